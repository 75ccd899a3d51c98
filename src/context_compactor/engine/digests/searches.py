"""Directory listings and search results: counts, files, and the first findings."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.output import informative_lines
from context_compactor.engine.digests.responses import digest_json
from context_compactor.facts.calls import parse_call
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import clip_line, in_room, plural, to_lines, wrapped

_LONG = re.compile(r"([-dlcbps])[rwxsStT-]{9}\S?\s+\d+\s+\S+\s+\S+\s+[\d.,KMGT]+\s+\S+\s+\S+\s+\S+\s+(.+)|total \d")
_TREE = re.compile(r"[│├└─|`+\\\s\xa0-]*(?:── |-- )(.+)")
_OBJECT = re.compile(r"\d{6} (blob|tree|commit) [0-9a-f]{7,64}\s+(?:\d+|-)?\t?(.+)")
_PLAIN = re.compile(r"[^\s{}\[\]<>\"'=;:,]+(?: [^\s{}\[\]<>\"'=;:,]+){0,3}")
_ENDING = re.compile(r"[^/]\.([A-Za-z0-9]{1,7})$")
_NAME_LINES = 6


def digest_listing(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """How many files and folders, which endings, then names."""
    return digest_paths([line for line in to_lines(output.body) if line.strip()]) or informative_lines(output)


def digest_paths(lines: list[str]) -> list[str]:
    """Counts and names of a list of paths in the form of `ls`, `tree`, `find` or one per line."""
    names = [name for name in map(_name, lines) if name]
    if len(names) < 4 or len(names) * 10 < len(lines) * 7:
        return []
    folders = sum(1 for name in names if name.endswith("/"))
    prefix = _common_folder(names)
    short = [clip_line(name.removeprefix(prefix), 80) for name in names]
    sizes = plural(len(names) - folders, "file") + (f", {plural(folders, 'folder')}" if folders else "")
    under = f" under {clip_line(prefix, 120)}" if prefix else ""
    counts = Counter(f".{match.group(1)}" for match in map(_ENDING.search, names) if match).most_common(8)
    endings = ": " + in_room((f"{ending} {count:,}" for ending, count in counts), 100) if counts else ""
    return [f"{sizes}{under}{endings}", *_folders_of(short), *wrapped(short, _NAME_LINES)]


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
    name = line.strip()
    if name[-1] == ":" and " " not in name:
        return name[:-1] + "/"
    return name if any(map(str.isalnum, name)) and _PLAIN.fullmatch(name) else ""


def _common_folder(names: list[str]) -> str:
    first, last = min(names), max(names)
    at = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, at) + 1]


def _folders_of(names: list[str]) -> list[str]:
    """Where most of the paths are, when there are too many to name."""
    counts = Counter(name.rpartition("/")[0] for name in names if "/" in name.rstrip("/"))
    if len(names) < 40 or len(counts) < 2:
        return []
    return ["in " + in_room(f"{folder}/ {count:,}" for folder, count in counts.most_common(12))]


_HIT = re.compile(r"((?:[A-Za-z]:)?[^:\n\t]{1,300}):(\d{1,9}):(.*)")
_NUMBERED = re.compile(r"(\d{1,9}):(.*)")
_COUNT = re.compile(r"([^:\n\t ][^:\n\t]{0,300}):(\d{1,9})$")
_UNNUMBERED = re.compile(r"([\w@~.+-]*/[^:\s]{1,300}|[\w@.+-]{1,100}\.\w{1,8}):(.*)")
_DEFINES = re.compile(
    r"\s*(?:(?:export|public|private|protected|static|async|pub|abstract|default|final|declare)\s+){0,4}"
    r"(?:def|class|func|fn|function|interface|type|struct|enum|trait|impl|module|const)\s"
)
_VALUE = re.compile(r"\s*(?:export\s+)?(?:const|type)\s")
WEB_HIT = re.compile(r'"title"\s*:\s*"((?:[^"\\]|\\.){1,300})"\s*,\s*"url"\s*:\s*"([^"\s]{1,500})"')
_FOUND = re.compile(r"Found \d+ (?:files?|matches)\b.{0,40}$")
_TOP = 3
_RANKED = 500


class SearchMatch(Struct, frozen=True):
    """One match: where it stands, and its line; `path` or `line` is empty where the search does not tell."""

    path: str
    line: str
    text: str


def digest_search(call: ToolCall | None, output: ToolOutput) -> list[str]:
    """How many matches in which files, and the three that tell most: definitions first."""
    web = WEB_HIT.findall(output.body[:200_000])
    if web:
        return [plural(len(web), "result"), *(clip_line(f"- {title} {url}") for title, url in web[:_TOP])]
    if output.body.lstrip()[:1] in ("{", "["):
        return digest_json(call, output)
    lines = [line for line in to_lines(output.body) if line.strip() and not _FOUND.match(line)]
    hits = find_hits(lines, only_file(call))
    if hits:
        return _render(hits)
    return _per_file_counts(lines) or digest_paths(lines)


def _render(hits: list[SearchMatch]) -> list[str]:
    files = Counter(hit.path for hit in hits if hit.path)
    top = top_hits(hits)
    where = f" in {plural(len(files), 'file')}" if len(files) > 1 else ""
    lines = [f"{plural(len(hits), 'match', 'matches')}{where}"]
    if len(files) > 1:
        lines += wrapped([f"{path} {count:,}" for path, count in files.most_common()], 2)
    return [*lines, *(clip_line(":".join(part for part in (hit.path, hit.line, hit.text) if part)) for hit in top)]


def top_hits(hits: list[SearchMatch]) -> list[SearchMatch]:
    """The three that tell most: definitions before others, and those of values behind those of functions and types."""
    first = hits[:_RANKED]
    defining = [hit for hit in first if _DEFINES.match(hit.text)]
    ranked = sorted(defining, key=lambda hit: bool(_VALUE.match(hit.text)))[:_TOP]
    others = [hit for hit in first[: 2 * _TOP] if hit not in ranked]
    return [*ranked, *others[: _TOP - len(ranked)]]


def find_hits(lines: list[str], searched: str) -> list[SearchMatch]:
    """The matches among the lines of a search; `searched` is the file that was searched, if it was only one."""
    placed = [SearchMatch(*match.groups()) for match in map(_HIT.match, lines) if match]
    if found := placed or [SearchMatch(searched, *match.groups()) for match in map(_NUMBERED.match, lines) if match]:
        return found
    told = [match for match in map(_UNNUMBERED.match, lines) if match and match.group(2).strip()]
    numeric = sum(1 for match in told if match.group(2).strip().isdigit())
    return [SearchMatch(match.group(1), "", match.group(2)) for match in told] if len(told) > 2 * numeric else []


def only_file(call: ToolCall | None) -> str:
    """The one file a search looked at, when its matches do not repeat it."""
    if call is None:
        return ""
    reading = parse_call(call)
    where = reading.arguments.get("path")
    if isinstance(where, str):
        return where
    words = next((step.words for step in reading.steps if step.program in ("grep", "rg", "egrep")), ())
    named = [word for word in words[2:] if "." in word and not word.startswith("-")]
    return named[0] if len(named) == 1 else ""


def _per_file_counts(lines: list[str]) -> list[str]:
    counts = [match.groups() for match in map(_COUNT.match, lines) if match]
    if len(counts) < 2 or len(counts) * 2 < len(lines):
        return []
    ranked = sorted(counts, key=lambda pair: -int(pair[1]))
    total = sum(int(count) for _, count in counts)
    return [f"{total:,} matches in {len(counts):,} files", in_room(f"{path} {count}" for path, count in ranked)]
