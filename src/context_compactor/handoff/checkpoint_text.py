"""A checkpoint as Markdown, and back without loss.

Headings are fixed and every value is one escaped line (`escape`), so no text of a fact can pose as
structure. The last line holds a checksum. A file without that line was cut off and is refused. One whose sum is
wrong was edited, which is allowed as long as it can be read: `was_edited` tells, and resuming says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from context_compactor.errors import BadCheckpoint
from context_compactor.handoff.checkpoint import (
    ArchiveLine,
    Checkpoint,
    CheckpointSpan,
    DirtyFile,
    FileMark,
    GitState,
    Items,
)

_LETTERS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SIGNS = {escape[1]: sign for sign, escape in _LETTERS.items()} | {"s": " "}
# Backslashes, control characters, line ends of any kind, marks that turn the order of letters, halves of a pair.
_HIDDEN = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OPENS = re.compile(r"^(?=[#>+*=~-]|```)|(?=<[A-Za-z/!?])")
_EDGES = re.compile(r"^ | $")
# Anything else behind a backslash was typed by somebody, and stays as it is.
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|([nrts]|[^\w\s]))")
_CELL = re.compile(r"((?:\\.|[^|\\])*)\|")


def escape(text: str) -> str:
    """A text as one line that says nothing but itself."""
    shown = _HIDDEN.sub(lambda sign: _LETTERS.get(sign[0]) or f"\\u{ord(sign[0]):04x}", text)
    return _EDGES.sub(r"\\s", _OPENS.sub(r"\\", shown))


def unescape(line: str) -> str:
    """The text that a line stands for; blanks at its ends are not part of it."""
    return _ESCAPED.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else _SIGNS.get(found[2], found[2]), line.strip(" ")
    )


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "".join(("|", *(f" {escape(cell).replace('|', chr(92) + '|')} |" for cell in cells)))


def cells_of(line: str) -> list[str]:
    """The cells of a row."""
    return [unescape(cell) for cell in _CELL.findall(line.strip(" ")[1:])]


# The lines of a section, each with its number in the file.
Lines = Sequence[tuple[int, str]]


def damaged(number: int, problem: str) -> BadCheckpoint:
    """The error that names the line of a file."""
    return BadCheckpoint(f"progress checkpoint, line {number}: {problem}; write it anew with `compactor checkpoint`")


def write_table(values: Sequence[Struct], columns: Mapping[str, str]) -> Iterator[str]:
    """The table of some values; `columns` has the field behind each heading."""
    if values:
        yield row(columns)
        yield "|" + " --- |" * len(columns)
        yield from (row(str(getattr(value, name)) for name in columns.values()) for value in values)


def read_rows(lines: Lines, sort: type[Any], columns: Mapping[str, str]) -> tuple[Any, ...]:
    """The values of a table; its first two rows are the names of the columns and a rule."""
    rows = [(number, cells_of(line)) for number, line in lines if line.startswith("|")][2:]
    for number, cells in rows:
        if len(cells) != len(columns):
            raise damaged(number, f"a row of {len(columns)} cells should stand here, and has {len(cells)}")
    return tuple(convert(dict(zip(columns.values(), cells, strict=True)), sort, number) for number, cells in rows)


def convert(values: dict[str, Any], sort: type[Any], number: int) -> Any:
    """A value from the texts of its fields."""
    try:
        return msgspec.convert(values, sort, strict=False)
    except msgspec.ValidationError as error:
        raise damaged(number, str(error)) from error


_NOTHING = "None."
_NO_GIT = "No repository."
_FIELD = re.compile(r"\*\*([A-Za-z ]+)\*\*: ?(.*)")
_SPAN = re.compile(r"(\d{1,18}) messages, (\d{1,18}) tokens, (\d{1,18}) turns, (\d{1,18}) calls")
_MORE = re.compile(r"… and (\d{1,18}) more: .*")
_ITEM = re.compile(r"(?:-|\d+\.)(?: (.*)|$)")


class CheckpointSection(Protocol):
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
    """Fields of the checkpoint, each behind its label, and with `has_span` how long the history was."""

    labels: Mapping[str, str]
    has_span: bool = False

    def write(self, checkpoint: Checkpoint) -> Iterator[str]:
        """All fields."""
        yield from (f"**{label}**: {escape(getattr(checkpoint, name))}" for label, name in self.labels.items())
        if self.has_span:
            span = checkpoint.span
            yield f"**History**: {span.messages} messages, {span.tokens} tokens, {span.turns} turns, {span.calls} calls"

    def read(self, lines: Lines) -> dict[str, Any]:
        """All fields; none may be missing."""
        found = _fields(lines, (*self.labels, *(("History",) if self.has_span else ())))
        fields: dict[str, Any] = {name: found[label] for label, name in self.labels.items()}
        if self.has_span:
            numbers = _SPAN.fullmatch(found["History"])
            if numbers is None:
                problem = f"History says {found['History']!r:.60}, not how many messages, tokens, turns and calls"
                raise damaged(lines[0][0], problem)
            fields["span"] = CheckpointSpan(*map(int, numbers.groups()))
        return fields


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
    shown = [(line, _ITEM.fullmatch(line)) for _, line in lines if line and line != _NOTHING]
    return tuple(unescape((item[1] or "") if item else line) for line, item in shown)


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


_SECTIONS: dict[str, CheckpointSection] = {
    "# Progress Checkpoint": FieldSection(
        {"Updated": "updated", "Session": "session_id", "Phase": "phase"}, has_span=True
    ),
    "## Executive Summary": TextSection("summary"),
    "## Recovery Instructions": TextSection("recovery", numbered=True),
    "## Current Task": FieldSection({"Status": "task_status", "Task": "task", "Note": "note"}),
    "## What Happened": TextSection("told"),
    "## Completed Steps": ListSection("completed", "compactor facts"),
    "## Remaining Steps": ListSection("remaining", "compactor facts"),
    "## Active Blockers": ListSection("blockers", "compactor facts --kind blocker"),
    "## Files Modified": TableSection(
        "files",
        "more_files",
        FileMark,
        {
            "What": "status",
            "File": "path",
            "On disk": "on_disk",
            "Bytes": "size",
            "SHA-256": "sha256",
            "Original": "ref",
        },
        "compactor facts --kind file_state",
    ),
    "## Key Decisions": ListSection("decisions", "compactor facts --kind decision"),
    "## Context for the Next Session": FieldSection({}),
    "### Must Read": ListSection("must_read", "compactor facts"),
    "### Running Sub-agents": ListSection("running", "compactor facts --kind subagent"),
    "### Can Skip": ListSection("can_skip", "compactor facts"),
    "## Git State": GitSection(
        {
            "Branch": "branch",
            "Detached": "is_detached",
            "Commit": "commit",
            "Subject": "subject",
            "Upstream": "upstream",
            "Ahead": "ahead",
            "Behind": "behind",
            "Could not be read": "problem",
        },
        {"Status": "status", "File": "path", "Was": "origin"},
    ),
    "## Archive References": TableSection(
        "archive", "more_archived", ArchiveLine, {"Id": "id", "What": "summary", "Tokens": "tokens"}, "compactor export"
    ),
}

# Headings that files of earlier versions do not have.
_LATER = ("## What Happened",)

_END = re.compile(r"<!-- checkpoint ends, sha256 ([0-9a-f]{64}) -->")


def render_checkpoint(checkpoint: Checkpoint) -> str:
    """The checkpoint as `progress-checkpoint.md` holds it; what to do first stands near the top."""
    body = "".join(f"{line.rstrip(' ')}\n" for line in _lines(checkpoint))
    return f"{body}<!-- checkpoint ends, sha256 {_sum(body)} -->\n"


def _lines(checkpoint: Checkpoint) -> Iterator[str]:
    for heading, section in _SECTIONS.items():
        yield heading
        yield ""
        lines = list(section.write(checkpoint))
        yield from (*lines, "") if lines else ()


def parse_checkpoint(text: str) -> Checkpoint:
    """Read a checkpoint back. One that was cut off or damaged is a `BadCheckpoint` that names what is missing."""
    fields: dict[str, Any] = {}
    body, _ = _open(text)
    found = _split(body)
    missing = [heading for heading in _SECTIONS if heading not in found and heading not in _LATER]
    if missing:
        raise damaged(1, f"the file has no heading {', '.join(map(repr, missing))}")
    for heading, section in _SECTIONS.items():
        fields |= section.read(found.get(heading, ()))
    return Checkpoint(**fields)


def was_edited(text: str) -> bool:
    """Whether somebody has changed the file since it was written. Read it with `parse_checkpoint` first."""
    body, checksum = _open(text)
    return _sum(body) != checksum


def _open(text: str) -> tuple[str, str]:
    """The text before its last line, and the checksum in that line."""
    if not text.strip():
        raise damaged(1, "the file is empty")
    # An editor may have changed the line ends; a carriage return in a value is escaped.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n").split("\n")
    end = _END.fullmatch(lines[-1])
    if end is None:
        raise damaged(len(lines), f"the file was cut off: its last line is {lines[-1]!r:.60}, not its checksum")
    return "".join(f"{line}\n" for line in lines[:-1]), end[1]


def _split(body: str) -> Mapping[str, Lines]:
    """The lines below each heading that is ours, without empty ones. Headings of somebody else end a section, too."""
    found: dict[str, list[tuple[int, str]]] = {}
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(body.split("\n"), 1):
        if line.startswith("#"):
            if line in found:
                raise damaged(number, f"the heading {line!r:.60} stands here for the second time")
            lines = []
            found |= {line: lines} if line in _SECTIONS else {}
        elif line:
            lines.append((number, line))
    return found


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
