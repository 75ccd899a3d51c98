"""What two errors have in common: their words, without the numbers, ids and places that differ each time."""

from __future__ import annotations

import re

from context_compactor.classify.telling import BETWEEN

_LONGEST = 2_000
_LONGEST_PATTERN = 100
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>)]+")
_PATH = re.compile(r"(?<![\w.@~+-])(?:[a-z]:)?[\w.@~+-]*(?:[/\\][\w.@~+-]+)+[/\\]?")
_HEX = re.compile(r"\b(?:0x[0-9a-f]+|(?=[a-f-]*\d)[0-9a-f]{7,64}(?:-[0-9a-f]{4,16}){0,4})\b")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_TEMPORARY = re.compile(r"\btmp[\w-]{5,}")
_QUOTES = re.compile("[`'\"\u2018\u2019\u201c\u201d\u00ab\u00bb]")
# What says only that something failed, or that a call was written wrongly: it is known by what was tried.
_BARE = re.compile(
    r"(?:process )?(?:exited with )?(?:exit )?(?:code|status) ?#?|fail(?:ed|ure)?|error:?|unknown error|killed|#+"
    r"|timed? ?out|(?:\[[\w:.-]+\] )?error:? task failed|error: found # errors?|[\w.]*(?:error|exception):?"
    r"|(?:file|path|directory) (?:does not exist|not found)\.?"
    r"|no such file or directory\.?|permission denied\.?|command failed\.?"
    r"|[\w.]*(?:syntax|indentation|index|key)error:.*|string to replace not found.*|found # matches of.*"
    r"|file has (?:not been read|been modified).*|apply_patch verification failed.*"
)


def error_pattern(command: str, error: str) -> str:
    """One line of small letters; an error that tells nothing by itself is joined with the command that brought it."""
    whole = _general(error)
    first = _general(error.partition(BETWEEN)[0])
    told = first if first and not _BARE.fullmatch(first) else whole
    if not told or _BARE.fullmatch(told):
        told = f"{_general(command)} → {told}".strip(" →")
    return told[:_LONGEST_PATTERN].rstrip()


def is_bare(error: str) -> bool:
    """Whether an error says only that something failed."""
    return all(not told or _BARE.fullmatch(told) for told in map(_general, error.split(BETWEEN)))


def _general(text: str) -> str:
    text = _ESCAPES.sub("", text[:_LONGEST]).lower()
    text = _PATH.sub(_last_name, _URL.sub("url", text))
    text = _NUMBER.sub("#", _HEX.sub("#", _TEMPORARY.sub("tmp", text)))
    return " ".join(_QUOTES.sub("", text).split())


def _last_name(path: re.Match[str]) -> str:
    return re.split(r"[/\\]", path[0].rstrip("/\\"))[-1]
