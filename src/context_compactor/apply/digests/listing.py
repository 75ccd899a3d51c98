"""A directory listing as counts by extension, and as many names as there is room for."""

from __future__ import annotations

import re
from collections import Counter

from context_compactor.apply.digests.command import telling_lines
from context_compactor.apply.digests.text import clip, counted, in_room, to_lines, wrapped
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

_LONG = re.compile(r"([-dlcbps])[rwxsStT-]{9}\S?\s+\d+\s+\S+\s+\S+\s+[\d.,KMGT]+\s+\S+\s+\S+\s+\S+\s+(.+)|total \d")
_TREE = re.compile(r"[│├└─|`+\\\s\xa0-]*(?:── |-- )(.+)")
_OBJECT = re.compile(r"\d{6} (blob|tree|commit) [0-9a-f]{7,64}\s+(?:\d+|-)?\t?(.+)")
_PLAIN = re.compile(r"[^\s{}\[\]<>\"'=;:,]+(?: [^\s{}\[\]<>\"'=;:,]+){0,3}")
_ENDING = re.compile(r"[^/]\.([A-Za-z0-9]{1,7})$")
_NAME_LINES = 6


def digest_listing(_: ToolCall | None, output: Output) -> list[str]:
    """How many files and folders, which endings, then names."""
    return digest_paths([line for line in to_lines(output.body) if line.strip()]) or telling_lines(output)


def digest_paths(lines: list[str]) -> list[str]:
    """Counts and names of a list of paths in the form of `ls`, `tree`, `find` or one per line."""
    names = [name for name in map(_name, lines) if name]
    if len(names) < 4 or len(names) * 10 < len(lines) * 7:
        return []
    folders = sum(1 for name in names if name.endswith("/"))
    prefix = _common_folder(names)
    short = [clip(name.removeprefix(prefix), 80) for name in names]
    sizes = counted(len(names) - folders, "file") + (f", {counted(folders, 'folder')}" if folders else "")
    under = f" under {clip(prefix, 120)}" if prefix else ""
    return [f"{sizes}{under}{_endings(names)}", *_folders_of(short), *wrapped(short, _NAME_LINES)]


def _name(line: str) -> str:
    first = line[0]
    if first in "-dlcbpst" and (match := _LONG.match(line)):
        name = (match.group(2) or "").partition(" -> ")[0]
        folder = match.group(1) == "d" and not name.endswith("/")
        return "" if name in (".", "..") else name + "/" * folder
    if ("── " in line or "-- " in line) and (match := _TREE.match(line)):
        return match.group(1).strip()
    if first.isdigit() and (match := _OBJECT.match(line)):
        return match.group(2) + "/" * (match.group(1) == "tree")
    return _plain_name(line.strip())


def _plain_name(name: str) -> str:
    if name[-1] == ":" and " " not in name:
        return name[:-1] + "/"
    return name if any(map(str.isalnum, name)) and _PLAIN.fullmatch(name) else ""


def _common_folder(names: list[str]) -> str:
    first, last = min(names), max(names)
    at = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, at) + 1]


def _endings(names: list[str]) -> str:
    endings = Counter(f".{match.group(1)}" for match in map(_ENDING.search, names) if match)
    return ": " + in_room((f"{ending} {count:,}" for ending, count in endings.most_common(8)), 100) if endings else ""


def _folders_of(names: list[str]) -> list[str]:
    """Where most of the paths are, when there are too many to name."""
    counts = Counter(name.rpartition("/")[0] for name in names if "/" in name.rstrip("/"))
    if len(names) < 40 or len(counts) < 2:
        return []
    return ["in " + in_room(f"{folder}/ {count:,}" for folder, count in counts.most_common(12))]
