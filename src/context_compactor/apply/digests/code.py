"""A code file as its outline: path, purpose, what it imports, what it declares and where."""

from __future__ import annotations

import re

from context_compactor.apply.digests.grammars import grammar_for
from context_compactor.apply.digests.json_value import digest_json
from context_compactor.apply.digests.line_outline import line_outline
from context_compactor.apply.digests.numbered import Source, read_source
from context_compactor.apply.digests.outline import Entry, render_outline
from context_compactor.apply.digests.text import clip, counted, in_room, to_lines
from context_compactor.classify.calls import file_paths_of, line_range_of, read_call
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

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


def digest_code(call: ToolCall | None, output: Output) -> list[str]:
    """Path and purpose, imports, then signatures with line numbers. Nothing when there is nothing to outline."""
    paths = file_paths_of(call)
    source = read_source(to_lines(output.body), _first_line(call))
    path = paths[0] if paths else ""
    if path.endswith(_JSON) and source.numbers[0] == 1:
        return [_heading(path, source), *digest_json(call, Output("\n".join(source.lines)))]
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
    steps = read_call(call).steps if call else ()
    printing = [step for step in steps if not step.piped and step.program not in _SILENT]
    given = line_range_of(call)
    pieces = sum(len(_PIECE.findall(word)) for step in steps if step.program == "sed" for word in step.words[1:])
    if len(printing) > 1 or pieces > 1 or len(file_paths_of(call)) > 1:
        return 0
    return given[0] if given else 1


def _outline(source: Source, path: str) -> list[Entry]:
    grammar = grammar_for(path)
    entries: list[Entry] = []
    doubtful = True
    if grammar and source.is_whole_from_start:
        text = "\n".join(source.lines).encode("utf-8", "surrogatepass")
        if len(text) <= _TREE_LIMIT:
            from context_compactor.apply.digests.tree_outline import tree_outline

            entries, doubtful = tree_outline(grammar, text)
    if doubtful:
        plain = line_outline(source.lines, path)
        entries = plain if len(plain) > len(entries) else entries
    last = len(source.numbers) - 1
    return [Entry(source.numbers[min(e.line, last)], e.depth, e.name, e.signature, e.fields) for e in entries]


def _heading(path: str, source: Source) -> str:
    first, last = source.numbers[0], source.numbers[-1]
    size = f"lines {first:,}-{last:,}" if first > 1 and last else counted(len(source.lines), "line")
    return " · ".join(part for part in (path, size, _purpose(source)) if part)


def _purpose(source: Source) -> str:
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
