"""Outlines from a syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from context_compactor.apply.digests.grammars import Grammar, parser_for
from context_compactor.apply.digests.outline import Entry

if TYPE_CHECKING:
    from tree_sitter import Node

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


def tree_outline(grammar: Grammar, source: bytes) -> tuple[list[Entry], bool]:
    """The declarations of a source text, and whether the parser met something it could not read."""
    root = parser_for(grammar).parse(source).root_node
    return list(_Walk(grammar, source).entries(root, 0)), root.has_error


class _Walk:
    """One pass over the tree, into declarations and never into function bodies."""

    def __init__(self, grammar: Grammar, source: bytes) -> None:
        self.grammar = grammar
        self.source = source

    def entries(self, node: Node, depth: int) -> Iterator[Entry]:
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

    def _entry(self, node: Node, depth: int, parent: Node) -> Entry:
        framed = parent.type in _FRAMES and parent.start_point[0] == node.start_point[0]
        start = parent if framed or parent.type == "template_declaration" else node
        body = node.child_by_field_name("body") or _body_of_value(node)
        end = body.start_byte if body is not None and body.start_byte > node.start_byte else node.end_byte
        signature = self._text(start.start_byte, end)
        return Entry(node.start_point[0], depth, self._name(node), _short(signature), self._fields(node))

    def _line_entry(self, node: Node, depth: int) -> Entry:
        text = self._text(node.start_byte, min(node.end_byte, node.start_byte + 200))
        return Entry(node.start_point[0], depth, "", text.partition("\n")[0])

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
