"""Which tree-sitter grammar reads which file, and which of its nodes declare something."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tree_sitter import Parser


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
