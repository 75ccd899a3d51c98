"""A checkpoint as Markdown, and back without loss.

Headings are fixed and every value is one escaped line (`checkpoint_escape.py`), so no text of a fact can pose as
structure. The last line holds a checksum. A file without that line was cut off and is refused. One whose sum is
wrong was edited, which is allowed as long as it can be read: `was_edited` tells, and resuming says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_compactor.handoff.checkpoint import ArchiveLine, Checkpoint
from context_compactor.handoff.checkpoint_files import FileMark
from context_compactor.handoff.checkpoint_rows import Lines, damaged
from context_compactor.handoff.checkpoint_sections import (
    FieldSection,
    GitSection,
    HeaderSection,
    ListSection,
    Section,
    TableSection,
    TextSection,
)

_SECTIONS: dict[str, Section] = {
    "# Progress Checkpoint": HeaderSection({"Updated": "updated", "Session": "session_id", "Phase": "phase"}),
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
        told = list(section.write(checkpoint))
        yield from (*told, "") if told else ()


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
    body, told = _open(text)
    return _sum(body) != told


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
