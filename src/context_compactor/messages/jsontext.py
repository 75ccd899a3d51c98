"""Values as compact JSON text, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def json_text(value: Any) -> str:
    """The value as compact JSON. Lone surrogates are escaped, values JSON does not know are written as text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _odd_json_text(value)


def _odd_json_text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), default=str, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(f"<{type(value).__name__} that is not JSON>")
