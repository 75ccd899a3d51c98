"""Prose as the sentences and list items it is made of, without code, logs and markup."""

from __future__ import annotations

import re

from context_compactor.facts.utterances import is_quoted, without_code

_CAPITAL = r"[A-Z0-9\u00c0-\u00de\u0410-\u042f\u3040-\u9fff\uac00-\ud7af`\"'(*\[]"
_END = re.compile(rf"(?<=[.!?…])[ \t]+(?={_CAPITAL})|(?<=[\u3002\uff01\uff1f])")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,3}[.)]|#{1,6})\s+")
_RULE_LINE = re.compile(r"[\s|:=*_+-]*")
_EMPHASIS = re.compile(r"\*\*")
_LONGEST = 400
# A line as long as this with so many signs of a notation is no sentence.
_LONG_NOTATION = 60
_NOTATION_SIGN = re.compile(r'["{}\[\]=;<>|\\]')
_MOST_TEXT = 60_000


def sentences_of(text: str, *, is_quote: bool = False) -> list[str]:
    """The sentences of a text in order, long ones cut into clauses. A quotation keeps its bullets and its emphasis."""
    lines = prose_lines(text)
    return [each for line in lines for each in split_sentences(line if is_quote else _plain(line))]


def prose_lines(text: str) -> list[str]:
    """The lines of a text that are somebody's words, without those of code blocks, logs and data."""
    lines = map(str.strip, without_code(text[:_MOST_TEXT]).split("\n"))
    return [line for line in lines if line and not _RULE_LINE.fullmatch(line) and not _is_pasted(line)]


def _is_pasted(line: str) -> bool:
    """Whether a line is a log, code or data rather than somebody's words."""
    if is_quoted(line) and not line.startswith(">"):
        return True
    return len(line) > _LONG_NOTATION and len(_NOTATION_SIGN.findall(line)) * 12 > len(line)


def split_sentences(line: str) -> list[str]:
    """The sentences of one line; very long ones are cut into clauses. A bullet or number stays with its sentence."""
    bullet = _BULLET.match(line)
    start = bullet.end() if bullet else 0
    found = [clause for sentence in _END.split(line[start:]) for clause in _clauses(sentence.strip())]
    if found:
        found[0] = line[:start] + found[0]
    return [clause for clause in found if len(clause) > 1]


def _plain(line: str) -> str:
    """A line of prose without its bullet and its emphasis."""
    bullet = _BULLET.match(line)
    return _EMPHASIS.sub("", line[bullet.end() :] if bullet else line).strip("| ")


def _clauses(sentence: str) -> list[str]:
    if len(sentence) <= _LONGEST:
        return [sentence]
    at = max(sentence.rfind(mark, _LONGEST // 3, _LONGEST) for mark in ("; ", ", ", " "))
    cut = at + 1 if at > 0 else _LONGEST
    return [sentence[:cut].rstrip(), *_clauses(sentence[cut:].lstrip())]


def cut_words(text: str, most: int) -> str:
    """The beginning of a text, cut between two words where there is a gap to cut at."""
    if len(text) <= most:
        return text
    at = text.rfind(" ", most * 2 // 3, most - 1)
    return text[: at if at > 0 else most - 1].rstrip() + "…"
