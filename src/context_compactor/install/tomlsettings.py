"""Our MCP server in a settings file that is TOML: a table of its own, behind everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from context_compactor.install.jsonspots import BadSettingsText, line_of
from context_compactor.install.ours import SERVER, is_our_server
from context_compactor.install.shape import Shape
from context_compactor.install.tomlspots import Keys, Statement, read_toml, statements

_SERVERS = "mcp_servers"
_TABLE: Keys = (_SERVERS, SERVER)
_TRUST: Keys = ("hooks", "state")
_FREE_LINE = re.compile(r"(?:\A|(?<=\n))\r?\n\Z")


class TomlSettings(Struct, frozen=True):
    """The server that one file shall name, and the names under which the agent keeps that our hooks were reviewed.

    Without a server only these names are looked at.
    """

    server: Mapping[str, Any] | None
    trusted: tuple[str, ...] = ()

    def check(self, text: str) -> None:
        """Raise `BadSettingsText` for a text in which nothing can be registered."""
        servers = read_toml(text).get(_SERVERS, {})
        if self.server is not None and not isinstance(servers, dict):
            problem = f"{_SERVERS!r} is not a table. Try: correct it, then again."
            raise BadSettingsText(_line(text, (_SERVERS,)), problem)

    def with_ours(self, text: str, _shape: Shape) -> str:
        """The text with our table: behind everything else, or brought up to date where it stands."""
        if self.server is None:
            return text
        there = read_toml(text).get(_SERVERS, {}).get(SERVER)
        if there is None:
            return _checked(self.server, text, text + tail_of(text) + _table(self.server, _line_end(text)))
        if not is_our_server(there):
            problem = f"another MCP server is called {SERVER!r}. Try: rename or remove it, then again."
            raise BadSettingsText(_line(text, _TABLE), problem)
        after = text
        for key, part in self.server.items():
            after = after if there.get(key) == part else _with_value(after, key, part)
        return _checked(self.server, text, after)

    def without_ours(self, text: str, shape: Shape) -> str:
        """The text without our table, without the line we left free before it, and without our trust."""
        after = text
        for name in self.trusted:
            after = _without(after, (*_TRUST, name))
        if after != text and all(each.keys == _TRUST for each in _under(after, _TRUST)):
            after = _without(after, _TRUST)
        if self.server is not None and _has_ours(after):
            after = _without(after, _TABLE, shape.tail)
        if self.server is not None and _has_ours(after):
            problem = f"{SERVER!r} is written in a way that cannot be taken out. Try: remove it by hand, then again."
            raise BadSettingsText(_line(after, (_SERVERS,)), problem)
        return after

    def shape_of(self, text: str) -> Shape:
        """What must be known of a text without ours, to come back to it exactly."""
        return Shape(tail=tail_of(text))

    def registered(self, text: str) -> list[str]:
        """What of ours stands in a text, in words."""
        found = [f"MCP server: {SERVER}"] if self.server is not None and _has_ours(text) else []
        reviewed = {each.keys[2] for each in _under(text, _TRUST) if len(each.keys) > 2}.intersection(self.trusted)
        return [*found, f"{len(reviewed)} hooks reviewed"] if reviewed else found


def _table(server: Mapping[str, Any], end: str) -> str:
    lines = [f"[{_SERVERS}.{SERVER}]", *(f"{key} = {_toml(part)}" for key, part in server.items())]
    return "".join(line + end for line in lines)


def _with_value(text: str, key: str, part: Any) -> str:
    spot = next((each for each in statements(text) if each.keys == (*_TABLE, key) and not each.is_head), None)
    if spot is None:
        problem = f"{SERVER!r} is written in a way that cannot be changed in place. Try: remove it by hand, then again."
        raise BadSettingsText(_line(text, (_SERVERS,)), problem)
    return text[: spot.value] + _toml(part) + text[spot.value_end :]


def _checked(server: Mapping[str, Any], before: str, after: str) -> str:
    """The new text, if it means what it should: a table cannot be added to one that is written on one line."""
    wanted = read_toml(before)
    wanted.setdefault(_SERVERS, {}).setdefault(SERVER, {}).update(server)
    try:
        is_right = read_toml(after) == wanted
    except BadSettingsText:
        is_right = False
    if is_right:
        return after
    problem = f"no table can be added to {_SERVERS!r}. Try: write each server as a table [{_SERVERS}.NAME]."
    raise BadSettingsText(_line(before, (_SERVERS,)), problem)


def _has_ours(text: str) -> bool:
    servers = read_toml(text).get(_SERVERS)
    return isinstance(servers, dict) and is_our_server(servers.get(SERVER))


def tail_of(text: str) -> str:
    """What has to stand between a text and a table behind it, with one free line."""
    if not text.strip():
        return ""
    end = _line_end(text)
    return end if text.endswith("\n") else end + end


def _without(text: str, keys: Keys, tail: str | None = None) -> str:
    """Without a table (or key) and all below it; comments and free lines behind it belong to whatever follows."""
    for start, end in reversed(list(_sections(text, keys))):
        before, behind = text[:start], text[end:]
        if tail and not behind and before.endswith(tail) and len(tail.splitlines()) > 1:
            before = before.removesuffix(tail)  # the last line had no end, and has none again
        elif tail != "":
            before = _FREE_LINE.sub("", before)
        text = before + behind
    return text


def _sections(text: str, keys: Keys) -> Iterator[tuple[int, int]]:
    """From where to where statements of these keys reach without anything else between them."""
    start = end = -1
    for each in statements(text):
        is_under = each.keys[: len(keys)] == keys
        if start >= 0 and (each.is_head or not is_under):
            yield start, end
            start = -1
        if is_under:
            start = _begin_of_line(text, each.start) if start < 0 else start
            end = each.end
    if start >= 0:
        yield start, end


def _begin_of_line(text: str, place: int) -> int:
    return len(text[:place].rstrip(" \t"))


def _under(text: str, keys: Keys) -> Iterator[Statement]:
    return (each for each in statements(text) if each.keys[: len(keys)] == keys)


def _line(text: str, keys: Keys) -> int:
    return next((line_of(text, each.start) for each in _under(text, keys)), 1)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    # What JSON escapes, TOML reads alike; only DEL must be escaped there too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
