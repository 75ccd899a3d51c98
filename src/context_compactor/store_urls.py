"""Addresses of stores: which kind each is, and how it is shown, which is without its password."""

from __future__ import annotations

import re

_POSTGRES = ("postgresql://", "postgres://")
# As far as the last `@`, since a password may hold one although it should not.
_IN_FRONT = re.compile(r"(://[^:@/?#]*):.*@", re.DOTALL)
_BEHIND = re.compile(r"((?:^|[?&\s])(?:ssl)?pass(?:word|file)=)[^&\s]*", re.IGNORECASE)


def is_postgres(url: object) -> bool:
    """Whether an address leads to PostgreSQL."""
    return isinstance(url, str) and url.startswith(_POSTGRES)


def without_password(url: str) -> str:
    """An address that may be shown to anybody."""
    return _BEHIND.sub(r"\1***", _IN_FRONT.sub(r"\1:***@", url))
