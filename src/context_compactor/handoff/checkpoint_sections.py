"""The sections of a checkpoint's file: each writes some fields of the checkpoint and reads them back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from context_compactor.handoff.checkpoint import Checkpoint, Span
from context_compactor.handoff.checkpoint_escape import escape, unescape
from context_compactor.handoff.checkpoint_lists import Items
from context_compactor.handoff.checkpoint_rows import Lines, convert, damaged, read_rows, write_table
from context_compactor.handoff.git import DirtyFile, GitState

_NOTHING = "None."
_NO_GIT = "No repository."
_FIELD = re.compile(r"\*\*([A-Za-z ]+)\*\*: ?(.*)")
_SPAN = re.compile(r"(\d{1,18}) messages, (\d{1,18}) tokens, (\d{1,18}) turns, (\d{1,18}) calls")
_MORE = re.compile(r"… and (\d{1,18}) more: .*")
_ITEM = re.compile(r"(?:-|\d+\.)(?: (.*)|$)")


class Section(Protocol):
    """One part of the file."""

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """The lines that stand for some fields of a checkpoint."""
        ...

    def read(self, lines: Lines) -> dict[str, Any]:
        """Those fields, from their lines. What cannot be read is a `BadCheckpoint` with the line."""
        ...


@dataclass(frozen=True)
class ListSection:
    """A list of lines and how many more there are. A line that somebody added without a dash counts as well."""

    name: str
    where: str

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """The lines behind dashes."""
        items: Items = getattr(checkpoint, self.name)
        yield from (f"- {escape(line)}" for line in items.lines)
        yield from _more_line(items.more, self.where) if items.count else (_NOTHING,)

    def read(self, lines: Lines) -> dict[str, Any]:
        """The lines."""
        listed, more = _split_more(lines)
        return {self.name: Items(_texts(listed), more)}


@dataclass(frozen=True)
class TextSection:
    """A few lines of text, numbered where their order matters."""

    name: str
    numbered: bool = False

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """The lines behind dashes or numbers."""
        for at, line in enumerate(getattr(checkpoint, self.name), 1):
            yield f"{at}. {escape(line)}" if self.numbered else f"- {escape(line)}"

    def read(self, lines: Lines) -> dict[str, Any]:
        """The lines."""
        return {self.name: _texts(lines)}


@dataclass(frozen=True)
class FieldSection:
    """Fields of the checkpoint, each behind its label."""

    labels: Mapping[str, str]

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """All fields."""
        yield from (f"**{label}**: {escape(getattr(checkpoint, name))}" for label, name in self.labels.items())

    def read(self, lines: Lines) -> dict[str, Any]:
        """All fields; none may be missing."""
        found = _fields(lines, self.labels)
        return {name: found[label] for label, name in self.labels.items()}


@dataclass(frozen=True)
class HeaderSection:
    """Some fields, and how long the history was."""

    labels: Mapping[str, str]

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """The fields and the history's length."""
        span = checkpoint.span
        yield from FieldSection(self.labels).write(checkpoint)
        yield f"**History**: {span.messages} messages, {span.tokens} tokens, {span.turns} turns, {span.calls} calls"

    def read(self, lines: Lines) -> dict[str, Any]:
        """The fields and the history's length."""
        told = _fields(lines, (*self.labels, "History"))["History"]
        numbers = _SPAN.fullmatch(told)
        if numbers is None:
            raise damaged(lines[0][0], f"History says {told!r:.60}, not how many messages, tokens, turns and calls")
        return FieldSection(self.labels).read(lines) | {"span": Span(*map(int, numbers.groups()))}


@dataclass(frozen=True)
class TableSection:
    """Values of one sort, one in each row, and how many more there are."""

    name: str
    more: str
    sort: type[Struct]
    columns: Mapping[str, str]
    where: str

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """The table."""
        values, more = getattr(checkpoint, self.name), getattr(checkpoint, self.more)
        yield from write_table(values, self.columns)
        yield from _more_line(more, self.where) if values or more else (_NOTHING,)

    def read(self, lines: Lines) -> dict[str, Any]:
        """The values of its rows."""
        listed, more = _split_more(lines)
        return {self.name: read_rows(listed, self.sort, self.columns), self.more: more}


@dataclass(frozen=True)
class GitSection:
    """The state of the repository: what is known of the branch, then the dirty files."""

    labels: Mapping[str, str]
    columns: Mapping[str, str]

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """What is known; fields that say nothing are left out."""
        git = checkpoint.git
        if git is None:
            yield _NO_GIT
            return
        known = ((label, getattr(git, name)) for label, name in self.labels.items())
        yield from (f"**{label}**: {escape(str(value))}" for label, value in known if value not in ("", None))
        yield ""
        yield from write_table(git.dirty, self.columns)
        yield from _more_line(git.more_dirty, "git status")

    def read(self, lines: Lines) -> dict[str, Any]:
        """The state; None where there was no repository."""
        if any(line == _NO_GIT for _, line in lines):
            return {"git": None}
        listed, more = _split_more(lines)
        found = _fields(listed, ("Detached",))
        known = {name: found[label] for label, name in self.labels.items() if label in found}
        dirty = read_rows(listed, DirtyFile, self.columns)
        return {"git": convert(known | {"dirty": dirty, "more_dirty": more}, GitState, lines[0][0])}


def _texts(lines: Lines) -> tuple[str, ...]:
    return tuple(_text(line) for _, line in lines if line and line != _NOTHING)


def _text(line: str) -> str:
    item = _ITEM.fullmatch(line)
    return unescape((item[1] or "") if item else line)


def _more_line(more: int, where: str) -> Iterator[str]:
    if more:
        yield ""
        yield f"… and {more} more: {where}"


def _split_more(lines: Lines) -> tuple[Lines, int]:
    """The lines without the one that says how many more there are, and that number."""
    found = [int(match[1]) for _, line in lines if (match := _MORE.fullmatch(line))]
    return [each for each in lines if not _MORE.fullmatch(each[1])], sum(found)


def _fields(lines: Lines, needed: Iterable[str]) -> dict[str, str]:
    found = {match[1]: unescape(match[2]) for _, line in lines if (match := _FIELD.fullmatch(line))}
    missing = [label for label in needed if label not in found]
    if missing:
        raise damaged(lines[0][0] if lines else 1, f"{' and '.join(missing)} should stand here")
    return found
