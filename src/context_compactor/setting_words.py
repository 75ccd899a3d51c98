"""Settings for people: what each does, and a value as it would be written."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Any

import msgspec

from context_compactor import settings as settings_module
from context_compactor.settings import Settings


def setting_docs() -> dict[str, str]:
    """What each setting does, as it is written under its field."""
    module = ast.parse(inspect.getsource(settings_module))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    docs: dict[str, str] = {}
    for field, under in pairwise(classes[Settings.__name__].body):
        if isinstance(field, ast.AnnAssign) and isinstance(under, ast.Expr) and isinstance(under.value, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(under.value.value).split())
    return docs


def shown(value: Any) -> str:
    """A value as it would be written in the environment."""
    if isinstance(value, tuple):
        return ",".join(f"{rule.level}={rule.threshold:.2f}:{rule.target:.2f}" for rule in value)
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else open_text(str(value))


def open_text(text: str) -> str:
    """A text without the password that an address in it may have."""
    from context_compactor.store.address import without_password

    return without_password(text)
