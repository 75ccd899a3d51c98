"""Our hooks, our MCP server and our status line in a settings file that is JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from context_compactor.install.jsonedits import add, put_white_space, remove, replace, white_space
from context_compactor.install.jsonspots import BadSettingsText, Keys, check_json, line_of, spot_of, value_at
from context_compactor.install.ours import SERVER, is_our_hook, is_our_server, is_our_status_line
from context_compactor.install.shape import ABSENT, FULL, Shape

_HOOKS, _SERVERS, _STATUS_LINE = "hooks", "mcpServers", "statusLine"
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
            _check_kind(text, (_SERVERS,), dict)
        if self.status_line is not None:
            spot_of(text, (_STATUS_LINE,))

    def with_ours(self, text: str, shape: Shape) -> str:
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

    def without_ours(self, text: str, shape: Shape) -> str:
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

    def shape_of(self, text: str) -> Shape:
        """What must be known of a text without ours, to come back to it exactly."""
        if not text.strip():
            return Shape(blank=text)
        return Shape(containers={_name(path): _state(text, path) for path in self._containers(text)})

    def registered(self, text: str) -> list[str]:
        """What of ours stands in a text, in words."""
        if not text.strip():
            return []
        hooks = (value_at(text, (_HOOKS,)) or {}) if self.hooks is not None else {}
        events = [event for event, groups in hooks.items() if any(our_hooks(groups))]
        found = [f"hooks: {', '.join(events)}"] if events else []
        if self.server is not None and is_our_server(value_at(text, (_SERVERS, SERVER))):
            found.append(f"MCP server: {SERVER}")
        if self.status_line is not None and is_our_status_line(value_at(text, (_STATUS_LINE,))):
            found.append("status line")
        return found

    def _containers(self, text: str) -> Iterator[Keys]:
        yield ()
        if self.hooks is not None:
            yield (_HOOKS,)
            yield from ((_HOOKS, event) for event in {**self.hooks, **(value_at(text, (_HOOKS,)) or {})})
        if self.server is not None:
            yield (_SERVERS,)

    def _with_hooks(self, text: str, hooks: Mapping[str, Mapping[str, Any]], shape: Shape) -> str:
        for event in list(value_at(text, (_HOOKS,)) or {}):
            if event not in hooks:
                text = _without_hooks(text, event, shape)
        if hooks and spot_of(text, (_HOOKS,)) is None:
            text = add(text, (), _HOOKS, {})
        for event, group in hooks.items():
            text = _with_hook(text, event, group)
        return text


def has_other_status_line(text: str) -> bool:
    """Whether somebody else draws the status line."""
    value = value_at(text, (_STATUS_LINE,)) if text.strip() else None
    return value is not None and not is_our_status_line(value)


def _with_hook(text: str, event: str, group: Mapping[str, Any]) -> str:
    where: Keys = (_HOOKS, event)
    groups = value_at(text, where)
    if groups is None:
        return add(text, (_HOOKS,), event, [group])
    mine = list(our_hooks(groups))
    if len(mine) == 1 and groups[mine[0][0]].get("matcher") == group.get("matcher"):
        number, place = mine[0]
        spot: Keys = (*where, number, "hooks", place)
        return text if _same(text, spot, group["hooks"][0]) else replace(text, spot, group["hooks"][0])
    return add(_without_mine(text, where, mine), where, None, group)


def _with_status_line(text: str, wanted: Mapping[str, Any]) -> str:
    value = value_at(text, (_STATUS_LINE,))
    if value is None and spot_of(text, (_STATUS_LINE,)) is None:
        return add(text, (), _STATUS_LINE, wanted)
    if not is_our_status_line(value) or _same(text, (_STATUS_LINE,), wanted):
        return text
    return replace(text, (_STATUS_LINE,), wanted)


def _with_server(text: str, wanted: Mapping[str, Any]) -> str:
    where: Keys = (_SERVERS, SERVER)
    if spot_of(text, (_SERVERS,)) is None:
        return add(text, (), _SERVERS, {SERVER: wanted})
    value = value_at(text, where)
    if value is None and spot_of(text, where) is None:
        return add(text, (_SERVERS,), SERVER, wanted)
    if not is_our_server(value):
        problem = f"another MCP server is called {SERVER!r}. Try: rename or remove it, then again."
        raise BadSettingsText(_line(text, where), problem)
    for key, part in wanted.items():  # what the user has added to our entry, such as an environment, stays
        if key not in value:
            text = add(text, where, key, part)
        elif not _same(text, (*where, key), part):
            text = replace(text, (*where, key), part)
    return text


def _without_status_line(text: str) -> str:
    return remove(text, (_STATUS_LINE,)) if is_our_status_line(value_at(text, (_STATUS_LINE,))) else text


def _without_server(text: str, shape: Shape) -> str:
    where: Keys = (_SERVERS, SERVER)
    return _tidied(remove(text, where), (_SERVERS,), shape) if is_our_server(value_at(text, where)) else text


def _without_hooks(text: str, event: str, shape: Shape) -> str:
    groups = value_at(text, (_HOOKS, event))
    mine = list(our_hooks(groups))
    if not mine:
        return text
    text = _tidied(_without_mine(text, (_HOOKS, event), mine), (_HOOKS, event), shape)
    return _tidied(text, (_HOOKS,), shape)


def _without_mine(text: str, where: Keys, mine: list[tuple[int, int]]) -> str:
    """Without these hooks, and without groups that held no others. From the back, so that numbers stay right."""
    for number, place in reversed(mine):
        text = remove(text, (*where, number, "hooks", place))
        if not value_at(text, (*where, number, "hooks")):
            text = remove(text, (*where, number))
    return text


def our_hooks(groups: Any) -> Iterator[tuple[int, int]]:
    """Which hooks of an event are ours: the number of the group, and the place in it."""
    for number, group in enumerate(groups if isinstance(groups, list) else []):
        hooks = group.get("hooks") if isinstance(group, dict) else None
        for place, hook in enumerate(hooks if isinstance(hooks, list) else []):
            if is_our_hook(hook):
                yield number, place


def _tidied(text: str, path: Keys, shape: Shape) -> str:
    """A container as it was before us, if nothing is left in it: gone, or empty in its own way."""
    if white_space(text, path) is None:
        return text
    state = shape.containers.get(_name(path), ABSENT)
    if state == ABSENT:
        return remove(text, path)
    return text if state == FULL else put_white_space(text, path, state)


def _tidied_root(text: str, shape: Shape) -> str:
    if white_space(text, ()) is None:
        return text
    if shape.blank is not None:
        return shape.blank
    state = shape.containers.get(_name(()), FULL)
    return text if state in (ABSENT, FULL) else put_white_space(text, (), state)


def _state(text: str, path: Keys) -> str:
    if spot_of(text, path) is None:
        return ABSENT
    space = white_space(text, path)
    return FULL if space is None else space


def _name(path: Keys) -> str:
    return "/".join(str(key) for key in path)


def _same(text: str, path: Keys, wanted: Any) -> bool:
    return bool(value_at(text, path) == _as_read(wanted))


def _as_read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_read(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_read(part) for part in value]
    return value if isinstance(value, str | bool) or value is None else str(value)


def _check_kind(text: str, path: Keys, kind: type[dict[str, Any]] | type[list[Any]]) -> None:
    if spot_of(text, path) is None or isinstance(value_at(text, path), kind):
        return
    name, wanted = " → ".join(str(key) for key in path), "an object {…}" if kind is dict else "a list […]"
    raise BadSettingsText(_line(text, path), f"{name!r} is not {wanted}, which the agent needs there. Try: correct it.")


def _check_keys(text: str, known: frozenset[str]) -> None:
    for key in value_at(text, ()):
        if key not in known:
            problem = f"because of {key!r} the agent ignores this whole file. Try: remove it, then again."
            raise BadSettingsText(_line(text, (key,)), problem)


def _line(text: str, path: Keys) -> int:
    spot = spot_of(text, path)
    return 1 if spot is None else line_of(text, spot.start)
