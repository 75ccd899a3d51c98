"""Source code in a few lines: what it defines, found with a grammar or by its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.responses import digest_json
from context_compactor.facts.calls import file_paths_of, line_range_of, parse_call
from context_compactor.facts.outputs import NumberedLines, ToolOutput, read_numbered_lines
from context_compactor.text import LINE_LIMIT, clip_line, in_room, plural, to_lines, wrapped

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


class OutlineEntry(Struct, frozen=True):
    """One declaration. `signature` is its source text up to its body, `fields` the names inside a plain type.

    `line` is 0 when its place in the file is not known.
    """

    line: int
    depth: int
    name: str
    signature: str
    fields: tuple[str, ...] = ()


def render_outline(entries: Sequence[OutlineEntry], room: int) -> list[str]:
    """One line per declaration if there is room; else members by name only; else the last ones by name only too."""
    if len(entries) <= room:
        return [_full(entry) for entry in entries]
    groups = list(_groups(entries))
    if len(groups) <= room:
        return list(_with_member_names(groups, room))
    shown = [_with_members_inline(head, members) for head, members in groups[: room - 3]]
    rest = [_name(head) for head, _ in groups[room - 3 :] if head.name]
    return shown + wrapped(rest, 3, "also ")


def _full(entry: OutlineEntry) -> str:
    number = f"{entry.line} " if entry.line else ""
    text = f"{'  ' * min(entry.depth, 3)}{number}{clip_line(entry.signature, 150)}"
    fields = ", ".join(entry.fields)
    return f"{text} {{ {fields} }}" if fields and len(text) + len(fields) < LINE_LIMIT - 4 else text


def _with_member_names(groups: list[tuple[OutlineEntry, list[OutlineEntry]]], room: int) -> Iterator[str]:
    with_members = sum(1 for _, members in groups if members)
    lines_each = (room - len(groups)) // with_members if with_members else 0
    for head, members in groups:
        if lines_each and members:
            yield _full(head)
            yield from wrapped(_names(members), lines_each, "  ")
        else:
            yield _with_members_inline(head, members)


def _with_members_inline(head: OutlineEntry, members: list[OutlineEntry]) -> str:
    line = _full(head)
    space = LINE_LIMIT - len(line) - 3
    return f"{line}: {in_room(_names(members), space)}" if members and space > 40 else line


def _names(members: list[OutlineEntry]) -> list[str]:
    return [_name(member) for member in members if member.name]


def _name(entry: OutlineEntry) -> str:
    return f"{entry.name}:{entry.line}" if entry.line else entry.name


def _groups(entries: Sequence[OutlineEntry]) -> Iterator[tuple[OutlineEntry, list[OutlineEntry]]]:
    head: OutlineEntry | None = None
    members: list[OutlineEntry] = []
    for entry in entries:
        if head is None or entry.depth == 0:
            if head is not None:
                yield head, members
            head, members = entry, []
        else:
            members.append(entry)
    if head is not None:
        yield head, members


class Grammar(Struct, frozen=True):
    """`declares`: nodes that become entries; `opens`: nodes to look into; `holds`: names inside a plain type."""

    module: str
    declares: frozenset[str]
    opens: frozenset[str]
    holds: frozenset[str] = frozenset()
    function: str = "language"


def _grammar(module: str, declares: str, opens: str, holds: str = "", function: str = "language") -> Grammar:
    return Grammar(module, frozenset(declares.split()), frozenset(opens.split()), frozenset(holds.split()), function)


_PYTHON = _grammar(
    "tree_sitter_python",
    "class_definition function_definition",
    "module block decorated_definition class_definition if_statement",
    "expression_statement",
)
_SCRIPT_DECLARES = (
    "function_declaration generator_function_declaration class_declaration abstract_class_declaration "
    "interface_declaration type_alias_declaration enum_declaration method_definition lexical_declaration "
    "variable_declaration internal_module module function_signature method_signature abstract_method_signature "
    "public_field_definition field_definition"
)
_SCRIPT_OPENS = (
    "program export_statement class_body class_declaration abstract_class_declaration interface_declaration "
    "interface_body internal_module module statement_block ambient_declaration enum_declaration enum_body object_type"
)
_SCRIPT_HOLDS = "property_signature enum_assignment property_identifier"
_JAVASCRIPT = _grammar("tree_sitter_javascript", _SCRIPT_DECLARES, _SCRIPT_OPENS, _SCRIPT_HOLDS)
_TYPESCRIPT = _grammar("tree_sitter_typescript", _SCRIPT_DECLARES, _SCRIPT_OPENS, _SCRIPT_HOLDS, "language_typescript")
_TSX = _grammar("tree_sitter_typescript", _SCRIPT_DECLARES, _SCRIPT_OPENS, _SCRIPT_HOLDS, "language_tsx")
_GO = _grammar(
    "tree_sitter_go",
    "function_declaration method_declaration type_spec type_alias const_spec var_spec",
    "source_file type_declaration const_declaration var_declaration var_spec_list type_spec struct_type "
    "interface_type field_declaration_list",
    "field_declaration method_elem",
)
_RUST = _grammar(
    "tree_sitter_rust",
    "function_item function_signature_item struct_item enum_item union_item trait_item impl_item mod_item type_item "
    "const_item static_item macro_definition",
    "source_file declaration_list impl_item trait_item mod_item struct_item enum_item field_declaration_list "
    "enum_variant_list",
    "field_declaration enum_variant",
)
_JAVA = _grammar(
    "tree_sitter_java",
    "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration "
    "method_declaration constructor_declaration",
    "program class_declaration class_body interface_declaration interface_body enum_declaration enum_body "
    "record_declaration enum_body_declarations",
    "enum_constant",
)
_C = _grammar(
    "tree_sitter_c",
    "function_definition declaration struct_specifier enum_specifier union_specifier type_definition preproc_def",
    "translation_unit preproc_ifdef preproc_if preproc_else linkage_specification declaration_list struct_specifier "
    "enum_specifier field_declaration_list enumerator_list",
    "field_declaration enumerator",
)
_CPP = _grammar(
    "tree_sitter_cpp",
    "function_definition declaration class_specifier struct_specifier enum_specifier union_specifier type_definition "
    "alias_declaration namespace_definition concept_definition",
    "translation_unit preproc_ifdef preproc_if preproc_else linkage_specification declaration_list "
    "namespace_definition template_declaration class_specifier struct_specifier field_declaration_list enum_specifier "
    "enumerator_list",
    "enumerator",
)
_CSHARP = _grammar(
    "tree_sitter_c_sharp",
    "namespace_declaration file_scoped_namespace_declaration class_declaration interface_declaration "
    "struct_declaration enum_declaration record_declaration method_declaration constructor_declaration "
    "property_declaration delegate_declaration",
    "compilation_unit namespace_declaration file_scoped_namespace_declaration declaration_list class_declaration "
    "interface_declaration struct_declaration record_declaration enum_declaration enum_member_declaration_list",
    "enum_member_declaration",
)
_PHP = _grammar(
    "tree_sitter_php",
    "function_definition class_declaration interface_declaration trait_declaration enum_declaration "
    "method_declaration namespace_definition",
    "program namespace_definition compound_statement class_declaration interface_declaration trait_declaration "
    "enum_declaration declaration_list enum_declaration_list",
    "enum_case",
    "language_php",
)
_RUBY = _grammar(
    "tree_sitter_ruby", "module class method singleton_method", "program module class body_statement singleton_class"
)
_BASH = _grammar("tree_sitter_bash", "function_definition", "program")

_BY_ENDING: dict[str, Grammar] = {
    **dict.fromkeys(("py", "pyi"), _PYTHON),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), _JAVASCRIPT),
    **dict.fromkeys(("ts", "mts", "cts"), _TYPESCRIPT),
    "tsx": _TSX,
    "go": _GO,
    "rs": _RUST,
    "java": _JAVA,
    "c": _C,
    **dict.fromkeys(("h", "cc", "cpp", "cxx", "hpp", "hh", "hxx"), _CPP),
    "cs": _CSHARP,
    "php": _PHP,
    **dict.fromkeys(("rb", "rake"), _RUBY),
    **dict.fromkeys(("sh", "bash"), _BASH),
}


def grammar_for(path: str) -> Grammar | None:
    """The grammar of a file, by the ending of its name."""
    return _BY_ENDING.get(path.rpartition(".")[2].lower())


@lru_cache(maxsize=16)
def parser_for(grammar: Grammar) -> Parser:
    """A parser for the grammar; loading one is slow, so each is loaded once and only when needed."""
    from importlib import import_module

    from tree_sitter import Language, Parser

    return Parser(Language(getattr(import_module(grammar.module), grammar.function)()))


_CALLED = re.compile(rb"(?:describe|it|test|suite|context|module\.exports|exports\.\w+|beforeEach|export)\b")
_VALUE = re.compile(
    r"^((?:export\s+)?(?:const|let|var)\s+[\w$]+[^=]*)=\s*(?!\s*(?:async\s*)?(?:function|\(|[\w$]+\s*=>)).*", re.DOTALL
)
_FRAMES = frozenset(("export_statement", "type_declaration", "const_declaration", "var_declaration"))
# What is inside a namespace is no deeper than the namespace.
_FLAT = frozenset(
    ("namespace_definition", "namespace_declaration", "file_scoped_namespace_declaration", "internal_module", "module")
)
_NAME_FIELDS = ("name", "declarator", "left")
_DEEPEST = 4


def tree_outline(grammar: Grammar, source: bytes) -> tuple[list[OutlineEntry], bool]:
    """The declarations of a source text, and whether the parser met something it could not read."""
    root = parser_for(grammar).parse(source).root_node
    return list(_Walk(grammar, source).entries(root, 0)), root.has_error


class _Walk:
    """One pass over the tree, into declarations and never into function bodies."""

    def __init__(self, grammar: Grammar, source: bytes) -> None:
        self.grammar = grammar
        self.source = source

    def entries(self, node: Node, depth: int) -> Iterator[OutlineEntry]:
        for child in node.named_children:
            kind = child.type
            if kind in self.grammar.declares and not self._is_import(child):
                yield self._entry(child, depth, node)
                if kind in self.grammar.opens and depth < _DEEPEST:
                    yield from self.entries(child, depth if kind in _FLAT else depth + 1)
            elif kind in self.grammar.opens:
                found = list(self.entries(child, depth))
                yield from found
                if kind == "export_statement" and not found:
                    yield self._line_entry(child, depth)
            elif kind in ("expression_statement", "export_statement") and _CALLED.match(self.source, child.start_byte):
                yield self._line_entry(child, depth)

    def _is_import(self, node: Node) -> bool:
        return node.type == "lexical_declaration" and b"require(" in self.source[node.start_byte : node.end_byte][:200]

    def _entry(self, node: Node, depth: int, parent: Node) -> OutlineEntry:
        framed = parent.type in _FRAMES and parent.start_point[0] == node.start_point[0]
        start = parent if framed or parent.type == "template_declaration" else node
        body = node.child_by_field_name("body") or _body_of_value(node)
        end = body.start_byte if body is not None and body.start_byte > node.start_byte else node.end_byte
        signature = self._text(start.start_byte, end)
        return OutlineEntry(node.start_point[0], depth, self._name(node), _short(signature), self._fields(node))

    def _line_entry(self, node: Node, depth: int) -> OutlineEntry:
        text = self._text(node.start_byte, min(node.end_byte, node.start_byte + 200))
        return OutlineEntry(node.start_point[0], depth, "", text.partition("\n")[0])

    def _fields(self, node: Node) -> tuple[str, ...]:
        if not self.grammar.holds or node.type not in self.grammar.opens:
            return ()
        near = [node, *node.named_children]
        opened = [child for child in node.named_children if child.type in self.grammar.opens]
        near += [inner for child in opened for inner in child.named_children[:1]]
        held = (child for each in near for child in each.named_children[:24] if self._is_held(child, each))
        return tuple(dict.fromkeys(name for name in map(self._held_name, held) if name))

    def _is_held(self, node: Node, parent: Node) -> bool:
        return node.type in self.grammar.holds and (node.type != "property_identifier" or parent.type == "enum_body")

    def _held_name(self, node: Node) -> str:
        if node.type != "expression_statement":
            return self._name(node)
        first = node.named_children[0] if node.named_children else None
        return self._name(first) if first is not None and first.type == "assignment" else ""

    def _name(self, node: Node) -> str:
        for _ in range(4):
            field = next((found for key in _NAME_FIELDS if (found := node.child_by_field_name(key))), None)
            if field is None:
                break
            node = field
        if node.type.endswith(("declaration", "definition")) and node.named_children:
            first = node.named_children[0]
            return self._name(first) if first.type == "variable_declarator" else ""
        text = self._text(node.start_byte, min(node.end_byte, node.start_byte + 80))
        return text if text.isprintable() and " " not in text else ""

    def _text(self, start: int, end: int) -> str:
        return self.source[start : min(end, start + 600)].decode("utf-8", "replace")


def _body_of_value(node: Node) -> Node | None:
    """The body of `const f = () => {…}` and of `type T struct {…}`."""
    for child in node.named_children:
        value = child.child_by_field_name("value") if child.type == "variable_declarator" else None
        if value is not None:
            return value.child_by_field_name("body")
        if child.type in ("struct_type", "interface_type") and child.named_children:
            return child.named_children[0]
        if child.type in ("field_declaration_list", "enum_variant_list", "declaration_list", "enumerator_list"):
            return child
    return None


def _short(signature: str) -> str:
    value = signature if len(signature) < 90 else _VALUE.sub(r"\1", signature)
    text = " ".join(value.split()).replace("( ", "(").replace(", )", ")")
    return text.rstrip().rstrip("{:;=").rstrip().removesuffix("=>").rstrip()


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
            entries, doubtful = tree_outline(grammar, text)
    if doubtful:
        plain = line_outline(source.lines, path)
        entries = plain if len(plain) > len(entries) else entries
    last = len(source.numbers) - 1
    return [OutlineEntry(source.numbers[min(e.line, last)], e.depth, e.name, e.signature, e.fields) for e in entries]


def _heading(path: str, source: NumberedLines) -> str:
    first, last = source.numbers[0], source.numbers[-1]
    size = f"lines {first:,}-{last:,}" if first > 1 and last else plural(len(source.lines), "line")
    return " · ".join(part for part in (path, size, _purpose(source)) if part)


def _purpose(source: NumberedLines) -> str:
    """The first sentence of the docstring or comment that opens the file."""
    if source.numbers[0] > 1:
        return ""
    text = _docstring(source.lines[:60]) or _opening_comment(source.lines[:60])
    return clip_line(text.split(". ")[0].strip(" */\"'"), 120)


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
