"""An outline: the declarations of a file with their line numbers, in as few lines as they deserve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.apply.digests.text import LINE_LIMIT, clip, in_room, wrapped


class Entry(Struct, frozen=True):
    """One declaration. `signature` is its source text up to its body, `fields` the names inside a plain type.

    `line` is 0 when its place in the file is not known.
    """

    line: int
    depth: int
    name: str
    signature: str
    fields: tuple[str, ...] = ()


def render_outline(entries: Sequence[Entry], room: int) -> list[str]:
    """One line per declaration if there is room; else members by name only; else the last ones by name only too."""
    if len(entries) <= room:
        return [_full(entry) for entry in entries]
    groups = list(_groups(entries))
    if len(groups) <= room:
        return list(_with_member_names(groups, room))
    shown = [_with_members_inline(head, members) for head, members in groups[: room - 3]]
    rest = [_name(head) for head, _ in groups[room - 3 :] if head.name]
    return shown + wrapped(rest, 3, "also ")


def _full(entry: Entry) -> str:
    number = f"{entry.line} " if entry.line else ""
    text = f"{'  ' * min(entry.depth, 3)}{number}{clip(entry.signature, 150)}"
    fields = ", ".join(entry.fields)
    return f"{text} {{ {fields} }}" if fields and len(text) + len(fields) < LINE_LIMIT - 4 else text


def _with_member_names(groups: list[tuple[Entry, list[Entry]]], room: int) -> Iterator[str]:
    with_members = sum(1 for _, members in groups if members)
    lines_each = (room - len(groups)) // with_members if with_members else 0
    for head, members in groups:
        if lines_each and members:
            yield _full(head)
            yield from wrapped(_names(members), lines_each, "  ")
        else:
            yield _with_members_inline(head, members)


def _with_members_inline(head: Entry, members: list[Entry]) -> str:
    line = _full(head)
    space = LINE_LIMIT - len(line) - 3
    return f"{line}: {in_room(_names(members), space)}" if members and space > 40 else line


def _names(members: list[Entry]) -> list[str]:
    return [_name(member) for member in members if member.name]


def _name(entry: Entry) -> str:
    return f"{entry.name}:{entry.line}" if entry.line else entry.name


def _groups(entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[Entry]]]:
    head: Entry | None = None
    members: list[Entry] = []
    for entry in entries:
        if head is None or entry.depth == 0:
            if head is not None:
                yield head, members
            head, members = entry, []
        else:
            members.append(entry)
    if head is not None:
        yield head, members
