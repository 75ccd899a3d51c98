"""Names for messages by what they hold."""

from __future__ import annotations

import hashlib
import json

import msgspec

from context_compactor.messages.jsontext import json_text
from context_compactor.messages.message import Message


def message_hash(message: Message) -> str:
    """The SHA-256 of the message's raw value as canonical JSON; equal values have equal hashes."""
    return hashlib.sha256(_canonical(message.raw)).hexdigest()


def _canonical(raw: object) -> bytes:
    try:
        return msgspec.json.encode(raw, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _odd_canonical(raw)


def _odd_canonical(raw: object) -> bytes:
    try:
        return json.dumps(raw, separators=(",", ":"), sort_keys=True, default=str).encode()
    except (TypeError, ValueError, RecursionError):
        return json_text(raw).encode()
