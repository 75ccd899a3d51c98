"""Finds and changes values in JSON and TOML texts while every other byte stays."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from context_compactor.errors import BadSetting

JsonPath = tuple[str | int, ...]

_JSON_SPACE = re.compile(r"[ \t\r\n]*")


class BadSettingsText(BadSetting):
    """A settings file that cannot be changed safely. `line` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(f"line {line}: {problem}")


class JsonValue(NamedTuple):
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
    """The line of an offset in a text, counted from 1."""
    before = text[:offset]
    return 1 + before.count("\n") + before.replace("\r\n", "").count("\r")


def check_json(text: str) -> None:
    """Raise `BadSettingsText` unless this is one JSON object."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON ({error.msg}). Try: correct it first."
        raise BadSettingsText(line_of(text, error.pos), problem) from error
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadSettingsText(1, f"this is not JSON that an agent can read ({what}). Try: correct it first.") from error
    if not isinstance(value, dict):
        raise BadSettingsText(1, "the file must hold a JSON object. Try: replace its content with {}.")


def value_at(text: str, path: JsonPath) -> Any:
    """The value at a path, None where there is none. Numbers come as they are written, as text."""
    node = position_of(text, path)
    return None if node is None else _DECODER.raw_decode(text, node.value)[0]


def position_of(text: str, path: JsonPath) -> JsonValue | None:
    """Where the value at a path stands. A key that stands twice is refused: which one counts is anybody's guess."""
    start = _skip_space(text, 0)
    node = JsonValue("", start, start, _DECODER.raw_decode(text, start)[1])
    for key in path:
        found = [child for child in children(text, node.value) if child.key == key]
        if not found:
            return None
        if len(found) > 1:
            lines = " and ".join(str(line_of(text, child.start)) for child in found[:2])
            problem = f"{key!r} is there twice (lines {lines}). Try: remove one of them."
            raise BadSettingsText(line_of(text, found[1].start), problem)
        node = found[0]
    return node


def children(text: str, start: int) -> list[JsonValue]:
    """The members of the object or the items of the array that begins here; a plain value has none."""
    opening = text[start]
    if opening not in "{[":
        return []
    found: list[JsonValue] = []
    at = _skip_space(text, start + 1)
    while text[at] not in "}]":
        key, value = _key(text, at) if opening == "{" else (len(found), at)
        end = _DECODER.raw_decode(text, value)[1]
        found.append(JsonValue(key, at, value, end))
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return found


def _key(text: str, at: int) -> tuple[str, int]:
    key, end = _DECODER.raw_decode(text, at)
    return key, _skip_space(text, _skip_space(text, end) + 1)


def _skip_space(text: str, at: int) -> int:
    found = _JSON_SPACE.match(text, at)
    return found.end() if found else at


_DEFAULT_UNIT = "  "
_LINE_END = re.compile(r"\r\n|\n|\r")


def add(text: str, path: JsonPath, key: str | None, value: Any) -> str:
    """Add a member (with a key) or an item (without) at the end of the container at this path."""
    node = _needed(text, path)
    inside = children(text, node.value)
    if not inside:
        return _fill_empty(text, node, key, value)
    space = _space_before(text, node, inside)
    if _LINE_END.search(space):
        indent = _LINE_END.split(space)[-1]
        space = _line_end(text) + indent
        rendered = _many_lines(text, key, value, indent)
    else:
        space = " " if _is_airy(text) else space
        rendered = _one_line(text, key, value)
    end = inside[-1].end
    return text[:end] + "," + space + rendered + text[end:]


def replace(text: str, path: JsonPath, value: Any) -> str:
    """Another value at the same path."""
    node = _needed(text, path)
    if _LINE_END.search(text[node.value : node.end]):
        rendered = _many_lines(text, None, value, _indent_of_line(text, node.value))
    else:
        rendered = _one_line(text, None, value)
    return text[: node.value] + rendered + text[node.end :]


def remove(text: str, path: JsonPath) -> str:
    """Take one member or item away, with the comma and the white space that belong to it."""
    parent = _needed(text, path[:-1])
    inside = children(text, parent.value)
    at = next(number for number, child in enumerate(inside) if child.key == path[-1])
    if len(inside) == 1:
        return text[: parent.value + 1] + text[parent.end - 1 :]
    if at == 0:
        return text[: inside[0].start] + text[inside[1].start :]
    return text[: inside[at - 1].end] + text[inside[at].end :]


def white_space(text: str, path: JsonPath) -> str | None:
    """What stands between the brackets of an empty container; None where there is no empty container."""
    node = position_of(text, path)
    if node is None or text[node.value] not in "{[" or children(text, node.value):
        return None
    return text[node.value + 1 : node.end - 1]


def put_white_space(text: str, path: JsonPath, space: str) -> str:
    """Give an empty container the white space it had."""
    node = _needed(text, path)
    return text[: node.value + 1] + space + text[node.end - 1 :]


def _needed(text: str, path: JsonPath) -> JsonValue:
    node = position_of(text, path)
    if node is None:
        raise LookupError(f"nothing stands at {path}")
    return node


def _fill_empty(text: str, node: JsonValue, key: str | None, value: Any) -> str:
    if _is_one_line(text):
        filling = _one_line(text, key, value)
    else:
        outer = _indent_of_line(text, node.value)
        end = _line_end(text)
        indent = outer + _unit(text)
        filling = end + indent + _many_lines(text, key, value, indent) + end + outer
    return text[: node.value + 1] + filling + text[node.end - 1 :]


def _space_before(text: str, node: JsonValue, inside: list[JsonValue]) -> str:
    begin = inside[-2].end if len(inside) > 1 else node.value + 1
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


def _indent_of_line(text: str, at: int) -> str:
    line = _LINE_END.split(text[:at])[-1]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _line_end(text: str) -> str:
    found = _LINE_END.search(text)
    return found.group() if found else "\n"


TomlPath = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TOML_SPACE = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[^\n]*\n?")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^\"'\[\]{}#\n]+")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


class TomlStatement(NamedTuple):
    """A table's head or a key with its value. `keys` is the whole path; `end` is behind its line."""

    keys: TomlPath
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
        raise BadSettingsText(line, f"this is not TOML ({why}). Try: correct it first.") from error
    except RecursionError as error:
        raise BadSettingsText(1, "this is nested too deeply. Try: correct it first.") from error


def statements(text: str) -> Iterator[TomlStatement]:
    """Every head and every key, in their order."""
    table: TomlPath = ()
    at = _end(_BLANK, text, 0)
    while at < len(text):
        if text[at] == "[":
            found = _head(text, at)
            table = found.keys
        else:
            found = _key_with_value(text, at, table)
        yield found
        at = _end(_BLANK, text, found.end)


def _head(text: str, at: int) -> TomlStatement:
    inside = at + 2 if text.startswith("[[", at) else at + 1
    keys, behind = _dotted(text, inside)
    return TomlStatement(keys, True, at, behind, behind, _end(_REST_OF_LINE, text, behind))


def _key_with_value(text: str, at: int, table: TomlPath) -> TomlStatement:
    keys, behind = _dotted(text, at)
    value = _end(_TOML_SPACE, text, behind + 1)  # behind the equals sign
    value_end = _value_end(text, value)
    return TomlStatement((*table, *keys), False, at, value, value_end, _end(_REST_OF_LINE, text, value_end))


def _dotted(text: str, at: int) -> tuple[TomlPath, int]:
    keys: list[str] = []
    while True:
        at = _end(_TOML_SPACE, text, at)
        quoted = _STRING.match(text, at)
        found = quoted or _BARE_KEY.match(text, at)
        if found is None:
            return tuple(keys), at
        keys.append(tomllib.loads(f"x = {found.group()}")["x"] if quoted else found.group())
        at = _end(_TOML_SPACE, text, found.end())
        if not text.startswith(".", at):
            return tuple(keys), at
        at += 1


def _value_end(text: str, at: int) -> int:
    """Behind a value: strings are skipped whole, brackets are counted, a line end within them is no end."""
    depth, end = 0, at
    while at < len(text):
        mark = text[at]
        string = _STRING.match(text, at)
        if string:
            at = end = string.end()
        elif mark in "[{":
            depth, at = depth + 1, at + 1
        elif mark in "]}":
            depth, at = depth - 1, at + 1
            end = at
        elif mark in "#\n" and depth == 0:
            break
        elif mark == "#":
            at = text.index("\n", at)
        elif mark == "\n":
            at += 1
        else:
            plain = _end(_PLAIN, text, at)
            end = at + len(text[at:plain].rstrip())
            at = plain
    return end


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
