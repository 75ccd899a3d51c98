"""A diff as its files, each with what was added and removed and the functions it touches."""

from __future__ import annotations

import re

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.searches import digest_paths
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import clip_line, in_room, plural, to_lines, wrapped

_GIT = re.compile(r"diff --git \"?a/(.+?)\"? \"?b/(.+?)\"?$")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
_PATCH_FILE = re.compile(r"\*\*\* (Update|Add|Delete) File: (.+)")
_STAT = re.compile(r" ?(\S.*?)\s+\|\s+(\d+|Bin\b)[^\n]*")
_TOTAL = re.compile(r" ?\d+ files? changed.*")
_COMMIT = re.compile(r"commit ([0-9a-f]{7,40})\b")
_ADDED = re.compile(
    r"\+\s*(?:(?:export|default|public|private|protected|static|async|pub|abstract|final)\s+){0,4}"
    r"(?:def|class|func|fn|function|interface|struct|enum|trait|type)\s+(?:\([^)]{0,80}\)\s*)?([A-Za-z_$][\w$]{0,80})"
)
_MOST_FILES = 28


class _Change(Struct):
    path: str
    note: str = ""
    added: int = 0
    removed: int = 0
    hunks: int = 0
    places: dict[str, None] = {}
    adds: dict[str, None] = {}


def digest_diff(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """Totals, then one line per file: lines added and removed, hunks, functions named in hunk headers."""
    lines = to_lines(output.body)
    changes = _changes(lines)
    if not changes:
        return _stat(lines)
    added, removed = sum(each.added for each in changes), sum(each.removed for each in changes)
    hunks = sum(each.hunks for each in changes)
    total = f"{plural(len(changes), 'file')}, {plural(hunks, 'hunk')}, +{added:,} -{removed:,}"
    shown = [_line(change) for change in changes[:_MOST_FILES]]
    rest = [f"also {in_room(change.path for change in changes[_MOST_FILES:])}"] if changes[_MOST_FILES:] else []
    return [*_commits(lines), total, *shown, *rest]


def _line(change: _Change) -> str:
    note = f" ({change.note})" if change.note else ""
    head = f"{change.path}{note} +{change.added:,} -{change.removed:,}"
    places = f": {in_room(change.places, 110, '; ')}" if change.places else ""
    new = [name for name in change.adds if name not in places]
    adds = f"; adds {in_room(new, 90)}" if new else ""
    return clip_line(f"{head}{places}{adds}")


def _changes(lines: list[str]) -> list[_Change]:
    found: list[_Change] = []
    before = ""
    for line in lines:
        mark = line[:1]
        if mark in ("+", "-") and not line.startswith(("+++ ", "--- ")):
            if found:
                _count_line(found[-1], line, mark)
        elif mark == "@" and found and (hunk := _HUNK.match(line)):
            found[-1].hunks += 1
            place = clip_line(hunk.group(1), 70).rstrip(" {(:")
            found[-1].places |= {place: None} if place and place != "import" else {}
        elif mark == "d" and (git := _GIT.match(line)):
            found.append(_Change(git.group(2), places={}, adds={}))
        elif mark == "*" and (patch := _PATCH_FILE.match(line)):
            found.append(
                _Change(patch.group(2), {"Add": "new", "Delete": "deleted"}.get(patch.group(1), ""), places={}, adds={})
            )
        elif line.startswith("--- "):
            before = line[4:].partition("\t")[0]
        elif line.startswith("+++ "):
            _open_plain(found, before, line[4:].partition("\t")[0])
        elif found and line.startswith(("new file", "deleted file", "rename from ", "Binary files")):
            note = line.partition(" mode")[0].removeprefix("rename from ") if line[0] in "nd" else clip_line(line, 80)
            found[-1].note = note
    return found


def _count_line(change: _Change, line: str, mark: str) -> None:
    change.removed += mark == "-"
    if mark == "+":
        change.added += 1
        if match := _ADDED.match(line):
            change.adds[match.group(1)] = None


def _open_plain(found: list[_Change], before: str, after: str) -> None:
    """A file of a diff that git did not write; git has named it already."""
    path = after if after != "/dev/null" else before
    path = path[2:] if path[:2] in ("a/", "b/") else path
    if not found or (found[-1].path != path and found[-1].hunks):
        found.append(_Change(path, places={}, adds={}))


def _commits(lines: list[str]) -> list[str]:
    """The commit that a `git show` begins with: its hash and first words."""
    match = _COMMIT.match(lines[0]) if lines else None
    if match is None:
        return []
    words = next((line.strip() for line in lines[1:12] if line.startswith("    ") and line.strip()), "")
    return [clip_line(f"commit {match.group(1)[:12]} {words}")]


def _stat(lines: list[str]) -> list[str]:
    rows = [match for match in map(_STAT.match, lines) if match]
    if not rows:
        return digest_paths([line for line in lines if line.strip()])
    total = next((line.strip() for line in reversed(lines) if _TOTAL.match(line)), plural(len(rows), "file"))
    ranked = sorted(rows, key=lambda row: -int(row.group(2)) if row.group(2).isdigit() else 0)
    return [*_commits(lines), total, *wrapped([f"{row.group(1)} {row.group(2)}" for row in ranked], 6)]
