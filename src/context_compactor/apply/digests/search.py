"""Search results as the count, the files, and the first three findings."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from context_compactor.apply.digests.json_value import digest_json
from context_compactor.apply.digests.listing import digest_paths
from context_compactor.apply.digests.text import clip, counted, in_room, to_lines, wrapped
from context_compactor.classify.calls import read_call
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

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


class Hit(Struct, frozen=True):
    """One match: where it stands, and its line; `path` or `line` is empty where the search does not tell."""

    path: str
    line: str
    text: str


def digest_search(call: ToolCall | None, output: Output) -> list[str]:
    """How many matches in which files, and the three that tell most: definitions first."""
    web = WEB_HIT.findall(output.body[:200_000])
    if web:
        return [counted(len(web), "result"), *(clip(f"- {title} {url}") for title, url in web[:_TOP])]
    if output.body.lstrip()[:1] in ("{", "["):
        return digest_json(call, output)
    lines = [line for line in to_lines(output.body) if line.strip() and not _FOUND.match(line)]
    hits = find_hits(lines, only_file(call))
    if hits:
        return _render(hits)
    return _per_file_counts(lines) or digest_paths(lines)


def _render(hits: list[Hit]) -> list[str]:
    files = Counter(hit.path for hit in hits if hit.path)
    top = top_hits(hits)
    where = f" in {counted(len(files), 'file')}" if len(files) > 1 else ""
    lines = [f"{counted(len(hits), 'match', 'matches')}{where}"]
    if len(files) > 1:
        lines += wrapped([f"{path} {count:,}" for path, count in files.most_common()], 2)
    return [*lines, *(clip(":".join(part for part in (hit.path, hit.line, hit.text) if part)) for hit in top)]


def top_hits(hits: list[Hit]) -> list[Hit]:
    """The three that tell most: definitions before others, and those of values behind those of functions and types."""
    first = hits[:_RANKED]
    defining = [hit for hit in first if _DEFINES.match(hit.text)]
    ranked = sorted(defining, key=lambda hit: bool(_VALUE.match(hit.text)))[:_TOP]
    others = [hit for hit in first[: 2 * _TOP] if hit not in ranked]
    return [*ranked, *others[: _TOP - len(ranked)]]


def find_hits(lines: list[str], searched: str) -> list[Hit]:
    """The matches among the lines of a search; `searched` is the file that was searched, if it was only one."""
    found = [Hit(*match.groups()) for match in map(_HIT.match, lines) if match]
    if found:
        return found
    found = [Hit(searched, *match.groups()) for match in map(_NUMBERED.match, lines) if match]
    if found:
        return found
    told = [match for match in map(_UNNUMBERED.match, lines) if match and match.group(2).strip()]
    numeric = sum(1 for match in told if match.group(2).strip().isdigit())
    return [Hit(match.group(1), "", match.group(2)) for match in told] if len(told) > 2 * numeric else []


def only_file(call: ToolCall | None) -> str:
    """The one file a search looked at, when its matches do not repeat it."""
    if call is None:
        return ""
    reading = read_call(call)
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
