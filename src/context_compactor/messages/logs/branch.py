"""Which lines of a Claude Code log still count.

Each line names its parent, so a log is a tree: a rewind starts a new branch and leaves the old one behind. The
active branch is the way from the last line back to the root. Calls that ran side by side hang off that way, since
only one of them can be the parent of what follows; they belong to it all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

Line = dict[str, Any]

_TALK = ("user", "assistant")
# Where a prompt may come from, and fields that only prompts have.
_TYPED = ("typed", "queued", "sdk", "user")
_PROMPT_FIELDS = ("permissionMode", "thinkingMetadata", "isReplay")


class Branch(Struct, frozen=True):
    """The indexes of the lines that count, and how much was left behind."""

    active: set[int]
    abandoned_lines: int = 0
    abandoned_branches: int = 0


def active_branch(lines: list[Line]) -> Branch:
    """The branch that the last line of the conversation belongs to."""
    tree = _Tree(lines)
    active = tree.way_back()
    active |= _rest_of_replies(lines, active)
    active |= _late_results(lines, active)
    active |= tree.without_place(active)
    left = tree.left_behind(active)
    talk = [start for index, start in left.items() if lines[index].get("type") in _TALK]
    return Branch(active, len(talk), len(set(talk)))


class _Tree:
    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.places: dict[str, int] = {}
        self.before: list[int | None] = []
        last: int | None = None
        for index, line in enumerate(lines):
            self.before.append(last)
            if isinstance(line.get("uuid"), str):
                self.places.setdefault(line["uuid"], index)
            if line.get("type") in _TALK or line.get("subtype") == "compact_boundary":
                last = index
        self.last = last

    def way_back(self) -> set[int]:
        way: set[int] = set()
        index = self.last
        while index is not None and index not in way:
            way.add(index)
            index = self.parent(index)
        return way

    def parent(self, index: int) -> int | None:
        """A parent that was never logged is taken to be the line before: better too much than lost."""
        line = self.lines[index]
        if "parentUuid" not in line:
            return self.before[index]
        parent = line["parentUuid"] or line.get("logicalParentUuid")
        if parent is None and not _starts_over(line) and not self._belongs_to_compaction(index):
            return None
        return self.places.get(parent, self.before[index]) if isinstance(parent, str) else self.before[index]

    def _belongs_to_compaction(self, index: int) -> bool:
        """Whether a row without a parent is what a compaction left, and not a new beginning that the user made."""
        before = self.before[index]
        is_behind = before is not None and self.lines[before].get("subtype") == "compact_boundary"
        return is_behind and self.lines[index].get("type") == "user" and not is_typed(self.lines[index])

    def left_behind(self, active: set[int]) -> dict[int, int]:
        """The lines that do not count, each with the line its branch starts at."""
        starts: dict[int, int] = {}
        for index in range(len(self.lines)):
            if index not in active:
                parent = self.parent(index)
                starts[index] = index if parent is None else starts.get(parent, index)
        return starts

    def without_place(self, active: set[int]) -> set[int]:
        """Lines that are not in the tree go with the line before them."""
        return {index for index, line in enumerate(self.lines) if "uuid" not in line and self.before[index] in active}


def _starts_over(line: Line) -> bool:
    """A compaction cuts the chain of parents, though the conversation goes on."""
    return line.get("subtype") == "compact_boundary" or bool(line.get("isCompactSummary"))


def _rest_of_replies(lines: list[Line], active: set[int]) -> set[int]:
    replies = {reply for index in active if (reply := reply_id(lines[index]))}
    return {index for index, line in enumerate(lines) if reply_id(line) in replies}


def _late_results(lines: list[Line], active: set[int]) -> set[int]:
    calls = {call for index in active for call in block_ids(lines[index], "tool_use", "id")}
    return {
        index
        for index, line in enumerate(lines)
        if line.get("type") == "user" and any(call in calls for call in block_ids(line, "tool_result", "tool_use_id"))
    }


def reply_id(line: Line) -> str | None:
    """The provider's id of the reply that a line holds a block of."""
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return None
    found = message.get("id")
    return found if isinstance(found, str) and found else None


def block_ids(line: Line, kind: str, field: str) -> Iterator[str]:
    """The ids of the blocks of one kind in a line."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(field), str):
            yield block[field]


def is_typed(line: Line) -> bool:
    """Whether a log says of a row that it is a prompt: typed by the user, or given by a program in the user's name."""
    if line.get("isMeta") or line.get("isCompactSummary") or line.get("isSynthetic"):
        return False
    origin, source = line.get("origin"), line.get("promptSource")
    if isinstance(origin, dict) and "kind" in origin:
        return bool(origin["kind"] == "human")
    if isinstance(source, str):
        return source in _TYPED
    return any(field in line for field in _PROMPT_FIELDS)
