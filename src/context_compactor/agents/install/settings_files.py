"""What we write for an agent: entries in a settings file, JSON or TOML, or a file that is wholly ours; and taking
that away again exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from context_compactor.agents.install.commands import SERVER, is_our_hook, is_our_server, is_our_status_line
from context_compactor.agents.install.text_edits import (
    BadSettingsText,
    JsonPath,
    TomlPath,
    TomlStatement,
    add,
    check_json,
    line_of,
    position_of,
    put_white_space,
    read_toml,
    remove,
    replace,
    statements,
    value_at,
    white_space,
)
from context_compactor.agents.steering import is_steering

ABSENT = "absent"
FULL = "full"


class SettingsShape(Struct, frozen=True, omit_defaults=True):
    """The containers of a settings file before we came.

    `containers` says of each that we write into: absent, full, or the white space it was empty with. `blank` is the
    whole text of a file that had nothing in it. `tail` is what we had to put between the last line and our table.
    """

    containers: dict[str, str] = {}
    blank: str | None = None
    tail: str | None = None


UNKNOWN = SettingsShape()


_HOOKS, _JSON_SERVERS, _STATUS_LINE = "hooks", "mcpServers", "statusLine"
_EMPTY = "{}\n"


class JsonSettings(Struct, frozen=True):
    """What one file shall hold of ours. A field that is None is not looked at in this file; an empty one wants none.

    With `only_keys` the agent ignores a file that has any other key at its root.
    """

    hooks: Mapping[str, Mapping[str, Any]] | None = None
    server: Mapping[str, Any] | None = None
    status_line: Mapping[str, Any] | None = None
    only_keys: frozenset[str] | None = None

    def check(self, text: str) -> None:
        """Raise `BadSettingsText` for a text in which nothing can be registered."""
        if not text.strip():
            return
        check_json(text)
        if self.hooks is not None:
            _check_kind(text, (_HOOKS,), dict)
            for event in value_at(text, (_HOOKS,)) or {}:
                _check_kind(text, (_HOOKS, event), list)
        if self.server is not None:
            _check_kind(text, (_JSON_SERVERS,), dict)
        if self.status_line is not None:
            position_of(text, (_STATUS_LINE,))

    def with_ours(self, text: str, shape: SettingsShape) -> str:
        """The text with everything of ours in it: what is there already is brought up to date where it stands."""
        if not text.strip():
            if not (self.hooks or self.server or self.status_line):
                return text
            text = _EMPTY
        if self.only_keys is not None:
            _check_keys(text, self.only_keys)
        if self.hooks is not None:
            text = self._with_hooks(text, self.hooks, shape)
        if self.status_line is not None:
            text = _with_status_line(text, self.status_line) if self.status_line else _without_status_line(text)
        if self.server is not None:
            text = _with_server(text, self.server) if self.server else _without_server(text, shape)
        return text

    def without_ours(self, text: str, shape: SettingsShape) -> str:
        """The text without anything of ours. Containers that we made go too, once they are empty."""
        if not text.strip():
            return text
        after = text
        if self.hooks is not None:
            for event in list(value_at(text, (_HOOKS,)) or {}):
                after = _without_hooks(after, event, shape)
        if self.status_line is not None:
            after = _without_status_line(after)
        if self.server is not None:
            after = _without_server(after, shape)
        return text if after == text else _tidied_root(after, shape)

    def shape_of(self, text: str) -> SettingsShape:
        """What must be known of a text without ours, to come back to it exactly."""
        if not text.strip():
            return SettingsShape(blank=text)
        return SettingsShape(containers={_name(path): _state(text, path) for path in self._containers(text)})

    def registered(self, text: str) -> list[str]:
        """What of ours stands in a text, in words."""
        if not text.strip():
            return []
        hooks = (value_at(text, (_HOOKS,)) or {}) if self.hooks is not None else {}
        events = [event for event, groups in hooks.items() if any(our_hooks(groups))]
        found = [f"hooks: {', '.join(events)}"] if events else []
        if self.server is not None and is_our_server(value_at(text, (_JSON_SERVERS, SERVER))):
            found.append(f"MCP server: {SERVER}")
        if self.status_line is not None and is_our_status_line(value_at(text, (_STATUS_LINE,))):
            found.append("status line")
        return found

    def _containers(self, text: str) -> Iterator[JsonPath]:
        yield ()
        if self.hooks is not None:
            yield (_HOOKS,)
            yield from ((_HOOKS, event) for event in {**self.hooks, **(value_at(text, (_HOOKS,)) or {})})
        if self.server is not None:
            yield (_JSON_SERVERS,)

    def _with_hooks(self, text: str, hooks: Mapping[str, Mapping[str, Any]], shape: SettingsShape) -> str:
        for event in list(value_at(text, (_HOOKS,)) or {}):
            if event not in hooks:
                text = _without_hooks(text, event, shape)
        if hooks and position_of(text, (_HOOKS,)) is None:
            text = add(text, (), _HOOKS, {})
        for event, group in hooks.items():
            text = _with_hook(text, event, group)
        return text


def has_other_status_line(text: str) -> bool:
    """Whether somebody else draws the status line."""
    value = value_at(text, (_STATUS_LINE,)) if text.strip() else None
    return value is not None and not is_our_status_line(value)


def _with_hook(text: str, event: str, group: Mapping[str, Any]) -> str:
    where: JsonPath = (_HOOKS, event)
    groups = value_at(text, where)
    if groups is None:
        return add(text, (_HOOKS,), event, [group])
    mine = list(our_hooks(groups))
    if len(mine) == 1 and groups[mine[0][0]].get("matcher") == group.get("matcher"):
        number, index = mine[0]
        spot: JsonPath = (*where, number, "hooks", index)
        return text if _same(text, spot, group["hooks"][0]) else replace(text, spot, group["hooks"][0])
    return add(_without_mine(text, where, mine), where, None, group)


def _with_status_line(text: str, wanted: Mapping[str, Any]) -> str:
    value = value_at(text, (_STATUS_LINE,))
    if value is None and position_of(text, (_STATUS_LINE,)) is None:
        return add(text, (), _STATUS_LINE, wanted)
    if not is_our_status_line(value) or _same(text, (_STATUS_LINE,), wanted):
        return text
    return replace(text, (_STATUS_LINE,), wanted)


def _with_server(text: str, wanted: Mapping[str, Any]) -> str:
    where: JsonPath = (_JSON_SERVERS, SERVER)
    if position_of(text, (_JSON_SERVERS,)) is None:
        return add(text, (), _JSON_SERVERS, {SERVER: wanted})
    value = value_at(text, where)
    if value is None and position_of(text, where) is None:
        return add(text, (_JSON_SERVERS,), SERVER, wanted)
    if not is_our_server(value):
        problem = f"another MCP server is already named {SERVER!r}. Try: rename or remove it."
        raise BadSettingsText(_json_line(text, where), problem)
    for key, part in wanted.items():  # what the user has added to our entry, such as an environment, stays
        if key not in value:
            text = add(text, where, key, part)
        elif not _same(text, (*where, key), part):
            text = replace(text, (*where, key), part)
    return text


def _without_status_line(text: str) -> str:
    return remove(text, (_STATUS_LINE,)) if is_our_status_line(value_at(text, (_STATUS_LINE,))) else text


def _without_server(text: str, shape: SettingsShape) -> str:
    where: JsonPath = (_JSON_SERVERS, SERVER)
    return _tidied(remove(text, where), (_JSON_SERVERS,), shape) if is_our_server(value_at(text, where)) else text


def _without_hooks(text: str, event: str, shape: SettingsShape) -> str:
    groups = value_at(text, (_HOOKS, event))
    mine = list(our_hooks(groups))
    if not mine:
        return text
    text = _tidied(_without_mine(text, (_HOOKS, event), mine), (_HOOKS, event), shape)
    return _tidied(text, (_HOOKS,), shape)


def _without_mine(text: str, where: JsonPath, mine: list[tuple[int, int]]) -> str:
    """Without these hooks, and without groups that held no others. From the back, so that numbers stay right."""
    for number, index in reversed(mine):
        text = remove(text, (*where, number, "hooks", index))
        if not value_at(text, (*where, number, "hooks")):
            text = remove(text, (*where, number))
    return text


def our_hooks(groups: Any) -> Iterator[tuple[int, int]]:
    """Which hooks of an event are ours: the number of the group, and the index in it."""
    for number, group in enumerate(groups if isinstance(groups, list) else []):
        hooks = group.get("hooks") if isinstance(group, dict) else None
        for index, hook in enumerate(hooks if isinstance(hooks, list) else []):
            if is_our_hook(hook):
                yield number, index


def _tidied(text: str, path: JsonPath, shape: SettingsShape) -> str:
    """A container as it was before us, if nothing is left in it: gone, or empty in its own way."""
    if white_space(text, path) is None:
        return text
    state = shape.containers.get(_name(path), ABSENT)
    if state == ABSENT:
        return remove(text, path)
    return text if state == FULL else put_white_space(text, path, state)


def _tidied_root(text: str, shape: SettingsShape) -> str:
    if white_space(text, ()) is None:
        return text
    if shape.blank is not None:
        return shape.blank
    state = shape.containers.get(_name(()), FULL)
    return text if state in (ABSENT, FULL) else put_white_space(text, (), state)


def _state(text: str, path: JsonPath) -> str:
    if position_of(text, path) is None:
        return ABSENT
    space = white_space(text, path)
    return FULL if space is None else space


def _name(path: JsonPath) -> str:
    return "/".join(str(key) for key in path)


def _same(text: str, path: JsonPath, wanted: Any) -> bool:
    return bool(value_at(text, path) == _as_read(wanted))


def _as_read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_read(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_read(part) for part in value]
    return value if isinstance(value, str | bool) or value is None else str(value)


def _check_kind(text: str, path: JsonPath, kind: type[dict[str, Any]] | type[list[Any]]) -> None:
    if position_of(text, path) is None or isinstance(value_at(text, path), kind):
        return
    name, wanted = " → ".join(str(key) for key in path), "an object {…}" if kind is dict else "a list […]"
    raise BadSettingsText(_json_line(text, path), f"{name!r} must be {wanted}. Try: correct it.")


def _check_keys(text: str, known: frozenset[str]) -> None:
    for key in value_at(text, ()):
        if key not in known:
            problem = f"the agent ignores the whole file because of the key {key!r}. Try: remove that key."
            raise BadSettingsText(_json_line(text, (key,)), problem)


def _json_line(text: str, path: JsonPath) -> int:
    spot = position_of(text, path)
    return 1 if spot is None else line_of(text, spot.start)


_TOML_SERVERS = "mcp_servers"
_TABLE: TomlPath = (_TOML_SERVERS, SERVER)
_TRUST: TomlPath = ("hooks", "state")
_FREE_LINE = re.compile(r"(?:\A|(?<=\n))\r?\n\Z")


class TomlSettings(Struct, frozen=True):
    """The server that one file shall name, and the names under which the agent keeps that our hooks were reviewed.

    Without a server only these names are looked at. `prompt` is the request by which the agent shall ask for a summary;
    without one none of ours stays, and one of the user's own stays in any case.
    """

    server: Mapping[str, Any] | None
    trusted: tuple[str, ...] = ()
    prompt: str = ""

    def check(self, text: str) -> None:
        """Raise `BadSettingsText` for a text in which nothing can be registered."""
        servers = read_toml(text).get(_TOML_SERVERS, {})
        if self.server is not None and not isinstance(servers, dict):
            problem = f"{_TOML_SERVERS!r} is not a table. Try: correct it first."
            raise BadSettingsText(_toml_line(text, (_TOML_SERVERS,)), problem)

    def with_ours(self, text: str, _shape: SettingsShape) -> str:
        """The text with our table: behind everything else, or brought up to date where it stands."""
        if self.server is None:
            return text
        return _with_prompt(self._with_server(text, self.server), self.prompt)

    def _with_server(self, text: str, server: Mapping[str, Any]) -> str:
        there = read_toml(text).get(_TOML_SERVERS, {}).get(SERVER)
        if there is None:
            return _checked(server, text, text + tail_of(text) + _table(server, _line_end(text)))
        if not is_our_server(there):
            problem = f"another MCP server is already named {SERVER!r}. Try: rename or remove it."
            raise BadSettingsText(_toml_line(text, _TABLE), problem)
        after = text
        for key, part in server.items():
            after = after if there.get(key) == part else _with_value(after, key, part)
        return _checked(server, text, after)

    def without_ours(self, text: str, shape: SettingsShape) -> str:
        """The text without our table, without the line we left free before it, and without our trust."""
        bare = after = text if self.server is None else _with_prompt(text, "")
        for name in self.trusted:
            after = _without(after, (*_TRUST, name))
        if after != bare and all(each.keys == _TRUST for each in _under(after, _TRUST)):
            after = _without(after, _TRUST)
        if self.server is not None and _has_ours(after):
            after = _without(after, _TABLE, shape.tail)
        if self.server is not None and _has_ours(after):
            problem = f"{SERVER!r} is written in a form that cannot be removed automatically. Try: remove it by hand."
            raise BadSettingsText(_toml_line(after, (_TOML_SERVERS,)), problem)
        return after

    def shape_of(self, text: str) -> SettingsShape:
        """What must be known of a text without ours, to come back to it exactly."""
        return SettingsShape(tail=tail_of(text))

    def registered(self, text: str) -> list[str]:
        """What of ours stands in a text, in words."""
        found = [f"MCP server: {SERVER}"] if self.server is not None and _has_ours(text) else []
        found += ["request for summaries"] if self.server is not None and has_our_prompt(read_toml(text)) else []
        reviewed = {each.keys[2] for each in _under(text, _TRUST) if len(each.keys) > 2}.intersection(self.trusted)
        return [*found, f"{len(reviewed)} hooks reviewed"] if reviewed else found


_PROMPT, _PROMPT_FILE = "compact_prompt", "experimental_compact_prompt_file"


def has_our_prompt(values: Mapping[str, Any]) -> bool:
    """Whether these settings ask for summaries by our request."""
    return is_steering(str(values.get(_PROMPT, "")))


def has_other_prompt(values: Mapping[str, Any]) -> bool:
    """Whether the user asks for summaries by a request of their own."""
    return _PROMPT_FILE in values or (_PROMPT in values and not has_our_prompt(values))


def _with_prompt(text: str, prompt: str) -> str:
    """The text with our request before everything else, as it must stand above all tables; without one, with none."""
    values = read_toml(text)
    if has_our_prompt(values):
        if values[_PROMPT] == f"{prompt}\n":
            return text
        text = _without(text, (_PROMPT,))
    if not prompt or has_other_prompt(values):
        return text
    lines = f"{_PROMPT} = '''\n{prompt}\n'''\n"
    return lines.replace("\n", _line_end(text)) + text


def _table(server: Mapping[str, Any], end: str) -> str:
    lines = [f"[{_TOML_SERVERS}.{SERVER}]", *(f"{key} = {_toml(part)}" for key, part in server.items())]
    return "".join(line + end for line in lines)


def _with_value(text: str, key: str, part: Any) -> str:
    spot = next((each for each in statements(text) if each.keys == (*_TABLE, key) and not each.is_head), None)
    if spot is None:
        problem = f"{SERVER!r} is written in a form that cannot be updated automatically. Try: remove it by hand."
        raise BadSettingsText(_toml_line(text, (_TOML_SERVERS,)), problem)
    return text[: spot.value] + _toml(part) + text[spot.value_end :]


def _checked(server: Mapping[str, Any], before: str, after: str) -> str:
    """The new text, if it means what it should: a table cannot be added to one that is written on one line."""
    wanted = read_toml(before)
    wanted.setdefault(_TOML_SERVERS, {}).setdefault(SERVER, {}).update(server)
    try:
        is_right = read_toml(after) == wanted
    except BadSettingsText:
        is_right = False
    if is_right:
        return after
    problem = f"a table cannot be added to {_TOML_SERVERS!r}. Try: write each server as a table [{_TOML_SERVERS}.NAME]."
    raise BadSettingsText(_toml_line(before, (_TOML_SERVERS,)), problem)


def _has_ours(text: str) -> bool:
    servers = read_toml(text).get(_TOML_SERVERS)
    return isinstance(servers, dict) and is_our_server(servers.get(SERVER))


def tail_of(text: str) -> str:
    """What has to stand between a text and a table behind it, with one free line."""
    if not text.strip():
        return ""
    end = _line_end(text)
    return end if text.endswith("\n") else end + end


def _without(text: str, keys: TomlPath, tail: str | None = None) -> str:
    """Without a table (or key) and all below it; comments and free lines behind it belong to whatever follows."""
    for start, end in reversed(list(_sections(text, keys))):
        before, behind = text[:start], text[end:]
        if tail and not behind and before.endswith(tail) and len(tail.splitlines()) > 1:
            before = before.removesuffix(tail)  # the last line had no end, and has none again
        elif tail != "":
            before = _FREE_LINE.sub("", before)
        text = before + behind
    return text


def _sections(text: str, keys: TomlPath) -> Iterator[tuple[int, int]]:
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


def _begin_of_line(text: str, index: int) -> int:
    return len(text[:index].rstrip(" \t"))


def _under(text: str, keys: TomlPath) -> Iterator[TomlStatement]:
    return (each for each in statements(text) if each.keys[: len(keys)] == keys)


def _toml_line(text: str, keys: TomlPath) -> int:
    return next((line_of(text, each.start) for each in _under(text, keys)), 1)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    # What JSON escapes, TOML reads alike; only DEL must be escaped there too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


OWN_FILE_MARK = "Written by `compactor install"
"""In the first lines of a file that we wrote whole, in a comment."""
_MARKED_LINES = 3


class OwnFile(Struct, frozen=True):
    """A file that is wholly ours, such as an extension of an agent.

    One with the `mark` in its first lines is ours, and is written anew or removed; any other is never touched. `what`
    it is, is said to the user. An empty text wants no file.
    """

    text: str
    what: str
    mark: str = OWN_FILE_MARK

    def check(self, _text: str) -> None:
        """Any text may be looked at: what is not ours just stays."""

    def with_ours(self, text: str, _shape: SettingsShape) -> str:
        """Our text in the place of an older one of ours; `BadSettingsText` for a file that somebody else wrote."""
        if text.strip() and not self._is_ours(text):
            problem = f"this file was not written by compactor, which needs its name for the {self.what}."
            raise BadSettingsText(1, f"{problem} Try: rename or remove it.")
        return self.text

    def without_ours(self, text: str, shape: SettingsShape) -> str:
        """Nothing, or the white space that stood there before."""
        return (shape.blank or "") if self._is_ours(text) else text

    def shape_of(self, text: str) -> SettingsShape:
        """What must be known of a file without ours, to come back to it exactly."""
        return SettingsShape(blank=text)

    def registered(self, text: str) -> list[str]:
        """What of ours the file is, in words."""
        return [self.what] if self._is_ours(text) else []

    def _is_ours(self, text: str) -> bool:
        return any(self.mark in line for line in text.split("\n", _MARKED_LINES)[:_MARKED_LINES])
