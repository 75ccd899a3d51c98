"""The values of a handoff as JSON text, and back."""

from __future__ import annotations

import json
from typing import TypeVar

import msgspec
from msgspec import Struct

from context_compactor.errors import BadInput
from context_compactor.measure.tokens import clean

_Value = TypeVar("_Value", bound=Struct)


def stored_text(value: Struct) -> str:
    """A value as compact JSON. Half characters, which no store takes, are replaced."""
    return clean(json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False))


def read_stored(text: str | bytes, kind: type[_Value], name: str) -> _Value:
    """The value behind its JSON text; `BadInput` says what is wrong, and where."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise BadInput(f"this is no {name}: {problem}") from None
