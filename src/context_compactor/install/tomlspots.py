"""Where tables and keys stand in a TOML text. The text must be valid: `tomllib` says so before anybody looks here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from context_compactor.install.jsonspots import BadSettingsText, line_of

Keys = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[^\n]*\n?")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^\"'\[\]{}#\n]+")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


class Statement(NamedTuple):
    """A table's head or a key with its value. `keys` is the whole path; `end` is behind its line."""

    keys: Keys
    is_head: bool
    start: int
    value: int
    value_end: int
    end: int


def read_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text, or `BadSettingsText` with the line."""
    try:
        return tomllib.loads(text, parse_float=str)  # as text, so that any two can be compared
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found.group(1)) if found else line_of(text, len(text))
        why = _AT_LINE.sub("", str(error)).strip()
        raise BadSettingsText(line, f"this is not TOML ({why}). Try: correct it, then again.") from error
    except RecursionError as error:
        raise BadSettingsText(1, "this is nested too deeply to be read. Try: correct it, then again.") from error


def statements(text: str) -> Iterator[Statement]:
    """Every head and every key, in their order."""
    table: Keys = ()
    place = _end(_BLANK, text, 0)
    while place < len(text):
        if text[place] == "[":
            found = _head(text, place)
            table = found.keys
        else:
            found = _key_with_value(text, place, table)
        yield found
        place = _end(_BLANK, text, found.end)


def _head(text: str, place: int) -> Statement:
    inside = place + 2 if text.startswith("[[", place) else place + 1
    keys, behind = _dotted(text, inside)
    return Statement(keys, True, place, behind, behind, _end(_REST_OF_LINE, text, behind))


def _key_with_value(text: str, place: int, table: Keys) -> Statement:
    keys, behind = _dotted(text, place)
    value = _end(_SPACE, text, behind + 1)  # behind the equals sign
    value_end = _value_end(text, value)
    return Statement((*table, *keys), False, place, value, value_end, _end(_REST_OF_LINE, text, value_end))


def _dotted(text: str, place: int) -> tuple[Keys, int]:
    keys: list[str] = []
    while True:
        place = _end(_SPACE, text, place)
        quoted = _STRING.match(text, place)
        found = quoted or _BARE_KEY.match(text, place)
        if found is None:
            return tuple(keys), place
        keys.append(tomllib.loads(f"x = {found.group()}")["x"] if quoted else found.group())
        place = _end(_SPACE, text, found.end())
        if not text.startswith(".", place):
            return tuple(keys), place
        place += 1


def _value_end(text: str, place: int) -> int:
    """Behind a value: strings are skipped whole, brackets are counted, a line end within them is no end."""
    depth, end = 0, place
    while place < len(text):
        mark = text[place]
        string = _STRING.match(text, place)
        if string:
            place = end = string.end()
        elif mark in "[{":
            depth, place = depth + 1, place + 1
        elif mark in "]}":
            depth, place = depth - 1, place + 1
            end = place
        elif mark in "#\n" and depth == 0:
            break
        elif mark == "#":
            place = text.index("\n", place)
        elif mark == "\n":
            place += 1
        else:
            plain = _end(_PLAIN, text, place)
            end = place + len(text[place:plain].rstrip())
            place = plain
    return end


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place
