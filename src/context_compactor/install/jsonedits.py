"""Small changes to a JSON text that keep every other byte, and that can be taken back exactly.

What is added stands behind what was there, in the style of its neighbours. Removing it again gives the text before,
except for the white space of a container that was empty: whoever wants that back keeps it (`white_space`).
"""

from __future__ import annotations

import json
import re
from typing import Any

from context_compactor.install.jsonspots import Child, Keys, children, spot_of

_DEFAULT_UNIT = "  "
_LINE_END = re.compile(r"\r\n|\n|\r")


def add(text: str, path: Keys, key: str | None, value: Any) -> str:
    """Add a member (with a key) or an item (without) at the end of the container at this path."""
    spot = _needed(text, path)
    inside = children(text, spot.value)
    if not inside:
        return _fill_empty(text, spot, key, value)
    space = _space_before(text, spot, inside)
    if _LINE_END.search(space):
        indent = _LINE_END.split(space)[-1]
        space = _line_end(text) + indent
        rendered = _many_lines(text, key, value, indent)
    else:
        space = " " if _is_airy(text) else space
        rendered = _one_line(text, key, value)
    end = inside[-1].end
    return text[:end] + "," + space + rendered + text[end:]


def replace(text: str, path: Keys, value: Any) -> str:
    """Another value in the same place."""
    spot = _needed(text, path)
    if _LINE_END.search(text[spot.value : spot.end]):
        rendered = _many_lines(text, None, value, _indent_of_line(text, spot.value))
    else:
        rendered = _one_line(text, None, value)
    return text[: spot.value] + rendered + text[spot.end :]


def remove(text: str, path: Keys) -> str:
    """Take one member or item away, with the comma and the white space that belong to it."""
    parent = _needed(text, path[:-1])
    inside = children(text, parent.value)
    place = next(number for number, child in enumerate(inside) if child.key == path[-1])
    if len(inside) == 1:
        return text[: parent.value + 1] + text[parent.end - 1 :]
    if place == 0:
        return text[: inside[0].start] + text[inside[1].start :]
    return text[: inside[place - 1].end] + text[inside[place].end :]


def white_space(text: str, path: Keys) -> str | None:
    """What stands between the brackets of an empty container; None where there is no empty container."""
    spot = spot_of(text, path)
    if spot is None or text[spot.value] not in "{[" or children(text, spot.value):
        return None
    return text[spot.value + 1 : spot.end - 1]


def put_white_space(text: str, path: Keys, space: str) -> str:
    """Give an empty container the white space it had."""
    spot = _needed(text, path)
    return text[: spot.value + 1] + space + text[spot.end - 1 :]


def _needed(text: str, path: Keys) -> Child:
    spot = spot_of(text, path)
    if spot is None:
        raise LookupError(f"nothing stands at {path}")
    return spot


def _fill_empty(text: str, spot: Child, key: str | None, value: Any) -> str:
    if _is_one_line(text):
        filling = _one_line(text, key, value)
    else:
        outer = _indent_of_line(text, spot.value)
        end = _line_end(text)
        indent = outer + _unit(text)
        filling = end + indent + _many_lines(text, key, value, indent) + end + outer
    return text[: spot.value + 1] + filling + text[spot.end - 1 :]


def _space_before(text: str, spot: Child, inside: list[Child]) -> str:
    begin = inside[-2].end if len(inside) > 1 else spot.value + 1
    return text[begin : inside[-1].start].replace(",", "", 1)


def _many_lines(text: str, key: str | None, value: Any, indent: str) -> str:
    rendered = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return _with_key(key, ": ") + rendered.replace("\n", _line_end(text) + indent)


def _one_line(text: str, key: str | None, value: Any) -> str:
    colon, comma = (": ", ", ") if _is_airy(text) else (":", ",")
    return _with_key(key, colon) + json.dumps(value, ensure_ascii=False, separators=(comma, colon))


def _with_key(key: str | None, colon: str) -> str:
    return "" if key is None else json.dumps(key, ensure_ascii=False) + colon


def _is_one_line(text: str) -> bool:
    root = _needed(text, ())
    inside = children(text, root.value)
    return bool(inside) and not _LINE_END.search(text[root.value : inside[0].start])


def _is_airy(text: str) -> bool:
    """Whether a colon is followed by white space where the document begins."""
    inside = children(text, _needed(text, ()).value)
    return not inside or text[inside[0].value - 1] != ":"


def _unit(text: str) -> str:
    root = _needed(text, ())
    inside = children(text, root.value)
    before = _LINE_END.split(text[root.value + 1 : inside[0].start]) if inside else []
    return (before[-1] if len(before) > 1 else "") or _DEFAULT_UNIT


def _indent_of_line(text: str, place: int) -> str:
    line = _LINE_END.split(text[:place])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str) -> str:
    found = _LINE_END.search(text)
    return found.group() if found else "\n"
