"""Words that mean three things in this field, and private metaphors, name nothing here (docs/glossary.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

WORDS = frozenset(
    "compress compressed compressor condense condensed prune pruned optimize optimized process processed processor "
    "handle handled manage managed manager data info util utils "
    "desk shelf shelve shelved doorman teller storyteller tooth teeth purse diary tally lens scene kit".split()
)
# Names that a base class of somebody else asks for; processes of an operating system; a handle on an open session.
ALLOWED = frozenset(
    "handle_starttag handle_endtag handle_data handle_exit data_received _handle_exception "
    "_process_messages_loop _started_process _ends_process _PROCESS_ENDED process_name _process_started "
    "handle with_handle SessionHandle".split()
)
# What LiteLLM calls the argument of its hooks.
ALLOWED_IN = {"src/context_compactor/integrations/litellm.py": {"data"}}
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def problems(root: Path = Path("src")) -> list[str]:
    """Every definition whose name holds one of the words."""
    return [problem for path in sorted(root.rglob("*.py")) for problem in _in_file(path)]


def _in_file(path: Path) -> Iterator[str]:
    if _bad(path.stem):
        yield f"{path}: the file's name holds a word that is not used here"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = _defined(node)
        if name and _bad(name) and name not in ALLOWED_IN.get(path.as_posix(), ()):
            yield f"{path}:{getattr(node, 'lineno', 0)}: {name} holds a word that is not used here"


def _defined(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()):
            return name
    return None


def _bad(name: str) -> bool:
    return name not in ALLOWED and any(piece.lower() in WORDS for piece in _PIECES.findall(name))
