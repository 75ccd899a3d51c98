"""What names a context without computing it, and whether a caller has it already (RFC 9110)."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from context_compactor import __version__

_TAG = re.compile(r'"[^"]*"')


def tag_of(*parts: Any) -> str:
    """The tag of what these parts stand for. It is a weak one: the same context may come packed or not."""
    digest = hashlib.sha256(msgspec.json.encode([__version__, *parts])).hexdigest()[:32]
    return f'W/"{digest}"'


def is_known(tag: str, header: str) -> bool:
    """Whether `If-None-Match` names a tag, weak or not, among others; `*` names whatever there is."""
    return header.strip() == "*" or tag.removeprefix("W/") in _TAG.findall(header)
