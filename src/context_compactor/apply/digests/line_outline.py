"""Outlines line by line: for pieces of files, languages without a grammar, prose and settings."""

from __future__ import annotations

import re

from context_compactor.apply.digests.outline import Entry

_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]{1,20}\))?"
    r"|unsafe|extern|inline|virtual|override|declare|sealed|partial|data|open|suspend)\s+){0,6}"
)
_DECLARATION = re.compile(
    rf"[ \t]*{_MODIFIERS}(?:def|class|func|fn|function\*?|interface|type|enum|struct|trait|impl|module|namespace|record"
    r"|protocol|extension|object|fun|macro_rules!|message|service|rpc|defmodule|defp?|data)[ (<*]"
    r"\s{0,4}[\w$(<*&\[][^\n]*"
)
_ARROW = re.compile(
    r"[ \t]*(?:(?:export\s+)?(?:const|let|var)\s+([\w$]+)[^=]{0,200}=\s*(?:async\s*)?(?:function\b|\("
    r"|[\w$]+\s*=>)|(?:describe|it|test)(?:\.\w+)?\(['\"`]|t\.Run\(\"|module\.exports\b)"
)
_METHOD = re.compile(
    r"(?:[ ]{0,8}|\t{0,2})(?!(?:if|for|while|switch|return|else|catch|throw|new|do|try|case|await|yield|assert)\b)"
    r"(?:[\w:<>\[\],.*&?@~]{1,80}\s+){1,5}[*&]?([\w:~]{1,80})\s?\([^;{}]{0,200}\)[^;{}=]{0,80}\{?\s*$"
)
_NAME = re.compile(
    r"(?:def|class|func|fn|function\*?|interface|type|enum|struct|trait|impl|module|namespace|record|protocol|extension"
    r"|object|fun|message|service|rpc)\s+(?:\([^)]{0,80}\)\s*)?([\w$.:]{1,80})"
)
_SQL = re.compile(
    r"\s*(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:UNIQUE\s+)?(?:TABLE|VIEW|INDEX|FUNCTION|TRIGGER)\b.*",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(#{1,6}) (\S.*)")
_KEY = re.compile(r"([A-Za-z_][\w.-]{0,60})\s*[:=](?:\s|$)|\[{1,2}([\w.\"'-]{1,80})\]{1,2}\s*$")
_TARGET = re.compile(r"([A-Za-z_][\w./-]{0,60})\s*:(?!=)")
_C_LIKE = frozenset("java c h cc cpp cxx hpp cs kt scala swift dart m mm js ts jsx tsx mjs".split())
_PROSE = frozenset("md mdx markdown rst txt adoc".split())
_SETTINGS = frozenset("yaml yml toml ini cfg conf env properties".split())


def line_outline(lines: list[str], path: str) -> list[Entry]:
    """The lines that declare something, judged one by one. `line` of an entry is its index."""
    name = path.rpartition("/")[2].lower()
    ending = name.rpartition(".")[2]
    if ending in _PROSE:
        return _headings(lines)
    if ending in _SETTINGS:
        return _keys(lines, _KEY)
    if name in ("makefile", "gnumakefile", "justfile"):
        return _keys(lines, _TARGET)
    return _declarations(lines, ending in _C_LIKE)


def _headings(lines: list[str]) -> list[Entry]:
    found: list[Entry] = []
    fenced = False
    for at, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#") and (match := _HEADING.match(line)):
            found.append(Entry(at, max(0, len(match.group(1)) - 2), match.group(2), line))
    return found


def _keys(lines: list[str], pattern: re.Pattern[str]) -> list[Entry]:
    matches = [(at, line, pattern.match(line)) for at, line in enumerate(lines) if line[:1].strip()]
    return [Entry(at, 0, next(filter(None, match.groups()), ""), line) for at, line, match in matches if match]


def _declarations(lines: list[str], c_like: bool) -> list[Entry]:
    found: list[tuple[int, int, str, str]] = []
    for at, line in enumerate(lines):
        if len(line) < 6 or line.isspace():
            continue
        match = _DECLARATION.match(line) or _ARROW.match(line) or (_METHOD.match(line) if c_like else _SQL.match(line))
        if match:
            indent = len(line) - len(line.lstrip())
            found.append((at, indent, _name_of(line, match), _signature(line)))
    least = min((indent for _, indent, _, _ in found), default=0)
    return [Entry(at, int(indent > least), name, text) for at, indent, name, text in found]


def _signature(line: str) -> str:
    text = line.strip().rstrip("{:").rstrip()
    return text.partition(" {")[0] if "(" in text else text


def _name_of(line: str, match: re.Match[str]) -> str:
    if match.re.groups and match.lastindex:
        return match.group(1)
    named = _NAME.search(line)
    return named.group(1) if named else ""
