"""Outlines of source files from their syntax trees: which grammar reads which file, what it declares, and how that is
written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from context_compactor.engine.digests.text import LINE_LIMIT, clip, in_room, wrapped

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
    text = f"{'  ' * min(entry.depth, 3)}{number}{clip(entry.signature, 150)}"
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
