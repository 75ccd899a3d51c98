"""Where things stand in a JSON text, so that it can be changed without being written anew.

A path is a tuple of keys and numbers, as in `("hooks", "Stop", 0)`; the empty one is the whole document.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

from context_compactor.errors import BadSetting

Keys = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\r\n]*")


class BadSettingsText(BadSetting):
    """A settings file that cannot be changed safely. `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(f"line {line}: {problem}")


class Child(NamedTuple):
    """A member of an object or an item of an array: `start` is where it begins (a member with its key)."""

    key: str | int
    start: int
    value: int
    end: int


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text: one of ten thousand digits is legal, and none is ever changed.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def line_of(text: str, offset: int) -> int:
    """The line of a place in a text, counted from 1."""
    before = text[:offset]
    return 1 + before.count("\n") + before.replace("\r\n", "").count("\r")


def check_json(text: str) -> None:
    """Raise `BadSettingsText` unless this is one JSON object."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON ({error.msg}). Try: correct it, then again."
        raise BadSettingsText(line_of(text, error.pos), problem) from error
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadSettingsText(1, f"this is not JSON an agent reads ({what}). Try: correct it, then again.") from error
    if not isinstance(value, dict):
        raise BadSettingsText(1, "settings are a JSON object, and this is none. Try: {} in its place, then again.")


def value_at(text: str, path: Keys) -> Any:
    """The value at a path, None where there is none. Numbers come as they are written, as text."""
    spot = spot_of(text, path)
    return None if spot is None else _DECODER.raw_decode(text, spot.value)[0]


def spot_of(text: str, path: Keys) -> Child | None:
    """Where the value at a path stands. A key that stands twice is refused: which one counts is anybody's guess."""
    start = _skip_space(text, 0)
    spot = Child("", start, start, _DECODER.raw_decode(text, start)[1])
    for key in path:
        found = [child for child in children(text, spot.value) if child.key == key]
        if not found:
            return None
        if len(found) > 1:
            lines = " and ".join(str(line_of(text, child.start)) for child in found[:2])
            problem = f"{key!r} stands there twice (lines {lines}). Try: remove one of them, then again."
            raise BadSettingsText(line_of(text, found[1].start), problem)
        spot = found[0]
    return spot


def children(text: str, start: int) -> list[Child]:
    """The members of the object or the items of the array that begins here; a plain value has none."""
    opening = text[start]
    if opening not in "{[":
        return []
    found: list[Child] = []
    place = _skip_space(text, start + 1)
    while text[place] not in "}]":
        key, value = _key(text, place) if opening == "{" else (len(found), place)
        end = _DECODER.raw_decode(text, value)[1]
        found.append(Child(key, place, value, end))
        place = _skip_space(text, end)
        if text[place] == ",":
            place = _skip_space(text, place + 1)
    return found


def _key(text: str, place: int) -> tuple[str, int]:
    key, end = _DECODER.raw_decode(text, place)
    return key, _skip_space(text, _skip_space(text, end) + 1)


def _skip_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
