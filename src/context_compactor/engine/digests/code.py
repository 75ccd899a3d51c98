"""A code file as its outline: path, purpose, what it imports, what it declares and where."""

from __future__ import annotations

import re

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.outlines import OutlineEntry, grammar_for, render_outline
from context_compactor.engine.digests.responses import digest_json
from context_compactor.engine.digests.text import clip, counted, in_room, to_lines
from context_compactor.facts.calls import file_paths_of, line_range_of, parse_call
from context_compactor.facts.numbered_lines import NumberedLines, read_numbered_lines
from context_compactor.facts.outputs import ToolOutput

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


def line_outline(lines: list[str], path: str) -> list[OutlineEntry]:
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


def _headings(lines: list[str]) -> list[OutlineEntry]:
    found: list[OutlineEntry] = []
    fenced = False
    for at, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("#") and (match := _HEADING.match(line)):
            found.append(OutlineEntry(at, max(0, len(match.group(1)) - 2), match.group(2), line))
    return found


def _keys(lines: list[str], pattern: re.Pattern[str]) -> list[OutlineEntry]:
    matches = [(at, line, pattern.match(line)) for at, line in enumerate(lines) if line[:1].strip()]
    return [OutlineEntry(at, 0, next(filter(None, match.groups()), ""), line) for at, line, match in matches if match]


def _declarations(lines: list[str], c_like: bool) -> list[OutlineEntry]:
    found: list[tuple[int, int, str, str]] = []
    for at, line in enumerate(lines):
        if len(line) < 6 or line.isspace():
            continue
        match = _DECLARATION.match(line) or _ARROW.match(line) or (_METHOD.match(line) if c_like else _SQL.match(line))
        if match:
            indent = len(line) - len(line.lstrip())
            found.append((at, indent, _name_of(line, match), _signature(line)))
    least = min((indent for _, indent, _, _ in found), default=0)
    return [OutlineEntry(at, int(indent > least), name, text) for at, indent, name, text in found]


def _signature(line: str) -> str:
    text = line.strip().rstrip("{:").rstrip()
    return text.partition(" {")[0] if "(" in text else text


def _name_of(line: str, match: re.Match[str]) -> str:
    if match.re.groups and match.lastindex:
        return match.group(1)
    named = _NAME.search(line)
    return named.group(1) if named else ""


_TREE_LIMIT = 400_000
_COMMENT = re.compile(r"\s{0,8}(?:///?!?|#+|--|;+|/\*+|\*+/?|<!--)(?:\s|$)\s*(.*)", re.DOTALL)
_DOCSTRING = re.compile(r"[rRuU]?(?:\"{3}|'{3})\s*\\?\s*(\S[^\n]*)")
_LEGAL = re.compile(r"copyright|licen[sc]e|spdx|\(c\)|author", re.IGNORECASE)
_MARK = re.compile(
    r"#!|\s*\W{1,4}\s*(?:go:build|\+build|-\*-|eslint|noqa|pylint|mypy:|type: ?ignore|vim:|@ts-|prettier|pragma|include"
    r"|ifn?def|define|region|import\b)",
    re.IGNORECASE,
)
_IMPORT = re.compile(
    r"\s*(?:from\s+([\w.]+)\s+import\b|import\s+(?:static\s+)?([\w.]+)\b(?!\s+from|\s*,\s*\{)|use\s+([\w:\\]+)"
    r"|using\s+(?:static\s+)?([\w.]+)\s*;|#\s*include\s*[<\"]([^>\"]{1,120})[>\"]"
    r"|(?:import|export)\b[^'\"\n]{0,300}from\s+['\"]([^'\"]{1,160})['\"]|import\s+['\"]([^'\"]{1,160})['\"]"
    r"|\}\s*from\s+['\"]([^'\"]{1,160})['\"]|.{0,120}\brequire(?:_relative)?\s*\(?\s*['\"]([^'\"]{1,160})['\"])"
)
_PREAMBLE = ("<?php", '"use', "'use")
_GO_IMPORT = re.compile(r"\t(?:[\w.]+ )?\"([\w./-]{1,160})\"$")
_EXPORTS = re.compile(r"__all__\s*=\s*[\[(]([^\])]{0,2000})")
_JSON = (".json", ".jsonl", ".ndjson", ".ipynb", ".geojson")
_SILENT = frozenset(("cd", "export", "set", "source", ".", "true"))
_PIECE = re.compile(r"\d+(?:,\s*(?:\d+|\$))?p")
_QUOTED = re.compile(r"['\"](\w{1,80})['\"]")


def digest_code(call: ToolCall | None, output: ToolOutput) -> list[str]:
    """Path and purpose, imports, then signatures with line numbers. Nothing when there is nothing to outline."""
    paths = file_paths_of(call)
    source = read_numbered_lines(to_lines(output.body), _first_line(call))
    path = paths[0] if paths else ""
    if path.endswith(_JSON) and source.numbers[0] == 1:
        return [_heading(path, source), *digest_json(call, ToolOutput("\n".join(source.lines)))]
    entries = _outline(source, path)
    if not entries:
        return []
    room = min(32, 6 + len(source.lines) // 25)
    return [
        _heading(in_room(paths, 150), source),
        *(_imports(source.lines) + _exports(source.lines) if grammar_for(path) else []),
        *render_outline(entries, room),
    ]


def _first_line(call: ToolCall | None) -> int:
    """The number of the first line shown; 0 when a command shows more than one run of lines."""
    steps = parse_call(call).steps if call else ()
    printing = [step for step in steps if not step.piped and step.program not in _SILENT]
    given = line_range_of(call)
    pieces = sum(len(_PIECE.findall(word)) for step in steps if step.program == "sed" for word in step.words[1:])
    if len(printing) > 1 or pieces > 1 or len(file_paths_of(call)) > 1:
        return 0
    return given[0] if given else 1


def _outline(source: NumberedLines, path: str) -> list[OutlineEntry]:
    grammar = grammar_for(path)
    entries: list[OutlineEntry] = []
    doubtful = True
    if grammar and source.is_whole_from_start:
        text = "\n".join(source.lines).encode("utf-8", "surrogatepass")
        if len(text) <= _TREE_LIMIT:
            from context_compactor.engine.digests.outlines import tree_outline

            entries, doubtful = tree_outline(grammar, text)
    if doubtful:
        plain = line_outline(source.lines, path)
        entries = plain if len(plain) > len(entries) else entries
    last = len(source.numbers) - 1
    return [OutlineEntry(source.numbers[min(e.line, last)], e.depth, e.name, e.signature, e.fields) for e in entries]


def _heading(path: str, source: NumberedLines) -> str:
    first, last = source.numbers[0], source.numbers[-1]
    size = f"lines {first:,}-{last:,}" if first > 1 and last else counted(len(source.lines), "line")
    return " · ".join(part for part in (path, size, _purpose(source)) if part)


def _purpose(source: NumberedLines) -> str:
    """The first sentence of the docstring or comment that opens the file."""
    if source.numbers[0] > 1:
        return ""
    text = _docstring(source.lines[:60]) or _opening_comment(source.lines[:60])
    return clip(text.split(". ")[0].strip(" */\"'"), 120)


def _docstring(lines: list[str]) -> str:
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    match = _DOCSTRING.match("\n".join(lines[first : first + 3]))
    return match.group(1) if match else ""


def _opening_comment(lines: list[str]) -> str:
    """The first words of the first comment that is neither legal text nor an instruction to a tool."""
    block: list[str] = []
    for line in [line for line in lines if not _MARK.match(line)]:
        match = _COMMENT.match(line)
        if match is None and line.strip() and not line.startswith(_PREAMBLE):
            break
        if match is None and _first_words(block):
            break
        block = [*block, match.group(1)] if match else []
    return _first_words(block)


def _first_words(block: list[str]) -> str:
    legal = any(_LEGAL.search(text) for text in block)
    return "" if legal else next((words for text in block if (words := text.strip(" */->"))), "")


def _imports(lines: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for line in lines[:150]:
        match = _IMPORT.match(line) or _GO_IMPORT.match(line)
        if match and match.lastindex:
            found[match.group(match.lastindex)] = None
    return ["imports " + in_room(found, 170)] if found else []


def _exports(lines: list[str]) -> list[str]:
    text = "\n".join(lines[:400])
    at = text.find("\n__all__")
    match = _EXPORTS.match(text, at + 1) if at >= 0 else None
    names = _QUOTED.findall(match.group(1)) if match else []
    return ["exports " + in_room(names, 170)] if names else []
