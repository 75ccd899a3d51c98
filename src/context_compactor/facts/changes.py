"""What changed in a file, from its edits: the definitions that they add, change and remove, in the file's own names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compactor.classify.calls import read_call
from context_compactor.classify.lifecycle import FileRecord
from context_compactor.classify.shell import Step, heredoc_in
from context_compactor.facts.definitions import ADDED, CHANGED, REMOVED, compare, definition_in
from context_compactor.messages.turn import ToolUse

_OLD = ("old_string", "old_str", "oldText", "old_text", "search")
_NEW = ("new_string", "new_str", "newText", "new_text", "replace", "insert_text", "new_source")
_WHOLE = ("content", "file_text", "contents", "text")
_PATCH = ("input", "patch", "diff")
_SECTION = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: (.+)|diff --git a/\S+ b/(\S+))$", re.MULTILINE)
_HUNK = re.compile(r"^@@(?: -\d[^\n@]*@@)?[ \t]*(.*)$", re.MULTILINE)
_HUNK_ENDS = ("*** ", "diff --git", "index ", "--- ", "+++ ", "\\ No newline")
_TELLS = re.compile(r"(?!\s*(?:#|//|/\*|\*|--|<!--|\"\"\"|'''|import\b|from\b|use\b|require\b|package\b)).*\w")
_LONGEST = 120
_LONGEST_LINE = 60
_MOST_TEXT = 5_000
_MOST_PATCH = 40_000
_MOST_EDITS = 6
_MOST_READS = 2

Edit = tuple[str, str, str]
"""Old text, new text, and the definition around them as far as it is known."""


def changes_in(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> str:
    """The changes of a file that stand, in at most 120 characters: `+ def rotate(old), ~ verify, − check`."""
    diff = exchanges.get(record.diff)
    if diff and diff.result and (not record.standing or record.diff > record.standing[-1].exchange):
        told = _compared(_patched(diff.result.text, record.path), record.path, ())
        if told:
            return told
    return _compared(_standing(record, exchanges), record.path, _shown(record, exchanges))


def _standing(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> Iterator[Edit]:
    for write in record.standing[-_MOST_EDITS:]:
        exchange = exchanges.get(write.exchange)
        if exchange and write.action not in ("deleted", "restored"):
            yield from _edits(exchange, record.path)


def _shown(record: FileRecord, exchanges: Mapping[int, ToolUse]) -> list[str]:
    """What reads have shown of a file, the newest first."""
    shown = (exchanges.get(read.exchange) for read in record.reads[: -_MOST_READS - 1 : -1])
    return [each.result.text for each in shown if each and each.result]


def _compared(edits: Iterator[Edit], path: str, shown: Sequence[str]) -> str:
    """The names that edits change; where there is none, the first lines that are new."""
    found: dict[str, str] = {}
    lines: dict[str, str] = {}
    for old, new, known in edits:
        _merge(found, compare(old, new, path, known, shown))
        if not found:
            lines.update(_first_line(old, new))
    return _told(found or lines)


def _first_line(old: str, new: str) -> dict[str, str]:
    """The first line that is new, or else the first that is gone; comments and imports tell too little."""
    before, after = old.split("\n"), new.split("\n")
    added = next((line for line in after if line not in before and _TELLS.match(line)), "")
    gone = next((line for line in before if line not in after and _TELLS.match(line)), "") if not added else ""
    line, sign = (added, ADDED) if added else (gone, REMOVED)
    return {_cut(" ".join(line.split()), _LONGEST_LINE): sign} if line else {}


def _merge(found: dict[str, str], later: dict[str, str]) -> None:
    """Add later changes. What is added and then changed is added; what is added and then removed never was."""
    for name, sign in later.items():
        # What is new is shown with its signature, and known by its name afterwards.
        known = next((each for each in found if each == name or _names(each, name)), name)
        before = found.pop(known, "")
        if before == ADDED and sign == REMOVED:
            continue
        found[known if before == ADDED else name] = ADDED if before == ADDED else CHANGED if before == REMOVED else sign


def _names(label: str, name: str) -> bool:
    return label.partition("(")[0].endswith(f" {name}")


def _told(found: dict[str, str]) -> str:
    """The newest changes that have room, in order, and how many more there are."""
    kept: list[str] = []
    room = _LONGEST
    for name, sign in reversed(found.items()):
        room -= len(name) + 4
        if room < 0 and kept:
            break
        kept.append(f"{sign} {_cut(name, _LONGEST)}")
    more = len(found) - len(kept)
    return ", ".join(reversed(kept)) + (f", \u2026 {more} more" if more else "")


def _edits(exchange: ToolUse, path: str) -> Iterator[Edit]:
    """The pieces of text that a call replaces in a file."""
    if exchange.call is None:
        return
    reading = read_call(exchange.call)
    values = reading.arguments
    if reading.command is not None:
        yield from _shell_edits(reading.command, reading.steps, path)
        return
    several = values.get("edits")
    for edit in several if isinstance(several, list) else (values,):
        if isinstance(edit, dict) and _text(edit, _NEW + _OLD):
            yield _text(edit, _OLD), _text(edit, _NEW), ""
    if _text(values, _WHOLE):
        yield "", _text(values, _WHOLE), ""
    patch = _text(values, _PATCH, _MOST_PATCH) or ("" if values else exchange.call.arguments)
    if patch:
        yield from _patched(patch, path)


def _shell_edits(command: str, steps: Sequence[Step], path: str) -> Iterator[Edit]:
    if "*** Begin Patch" in command:
        yield from _patched(command, path)
        return
    for step in steps:
        if step.program == "sed" and any(word.startswith("-i") for word in step.words[1:4]):
            script = next((word for word in step.words[1:] if not word.startswith("-")), "")
            yield "", f"sed {script}", ""
        elif step.writes and path.endswith(step.writes.lstrip("./")):
            yield "", heredoc_in(command, step.writes)[:_MOST_TEXT], ""


def _patched(patch: str, path: str) -> Iterator[Edit]:
    """The pieces of a patch that are about a file: old and new lines of each hunk, and the definition it names."""
    patch = patch[:_MOST_PATCH]
    sections = list(_SECTION.finditer(patch))
    for at, section in enumerate(sections):
        named = (section[1] or section[2]).strip()
        if not path.endswith(named.lstrip("./")):
            continue
        body = patch[section.end() : sections[at + 1].start() if at + 1 < len(sections) else len(patch)]
        hunks = list(_HUNK.finditer(body))
        starts = [(0, "")] if not hunks else [(hunk.end(), hunk[1]) for hunk in hunks]
        ends = [*(hunk.start() for hunk in hunks[1:]), len(body)]
        for (start, around), end in zip(starts, ends, strict=True):
            lines = [line for line in body[start:end].split("\n") if not line.startswith(_HUNK_ENDS)]
            old = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-"))
            new = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
            yield old, new, definition_in(around, path)


def _text(values: Mapping[str, Any], keys: Sequence[str], most: int = _MOST_TEXT) -> str:
    return next((values[key][:most] for key in keys if isinstance(values.get(key), str) and values[key]), "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}\u2026"
