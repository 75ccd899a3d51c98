"""Whether a value is a secret, or only the place where one would stand."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from math import log2

MARK = "[redacted:"
LOOKED_AT = 64
"""How many characters of a value decide; more would tell nothing new."""

_LEAST_BITS = 18
_PLACEHOLDER = re.compile(
    r"x{6}|\*{3}|\.{3}|…|<|\$\{|\{\{|(?<![a-z])your[-_]|example|placeholder|change[-_]?me|dummy|redacted",
    re.IGNORECASE,
)
_POINTER = re.compile(
    r"[$%{<\[]|(?:~|\.{1,2})?/[a-z]{2,12}(?:[/.]|$)|(?:https?|file|op|vault)://|(?:arn|env|ssm|vault):", re.IGNORECASE
)
_ATTRIBUTE = re.compile(r"[a-z_$][\w$]*(?:(?:\.|->|::)[a-z_$][\w$]*)+", re.IGNORECASE)
_WORDS = re.compile(r"[a-z]+\d{0,3}(?:[_-][a-z]+\d{0,3})+", re.IGNORECASE)
_NAME = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_STAND_IN = frozenset("pass passwd password pw pwd secret token user username credentials".split())
_KINDS = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^\w./:=-]")))
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32}")


def is_written_out(value: str) -> bool:
    """Not a placeholder such as `<your-key>` or `xxxxxxxx`, and not what stands for a secret already."""
    return not _PLACEHOLDER.search(value[:LOOKED_AT]) and len(set(value[-16:])) > 3


def is_mixed(value: str) -> bool:
    """Letters with digits, or three of small letters, capitals, digits and signs: more than a word."""
    head = value[:LOOKED_AT]
    has_small, has_capital, has_digit, has_sign = (kind.search(head) is not None for kind in _KINDS)
    is_rich = has_small + has_capital + has_digit + has_sign >= 3
    return (is_rich or (has_digit and (has_small or has_capital))) and is_written_out(value)


def is_quoted_secret(value: str) -> bool:
    """A literal with enough in it to be a secret, and no path, address, variable or chain of words."""
    if _POINTER.match(value) or _WORDS.fullmatch(value[:LOOKED_AT]):
        return False
    return is_mixed(value) and _bits(value[:LOOKED_AT]) >= _LEAST_BITS


def is_bare_secret(value: str) -> bool:
    """As a quoted one, and no name or attribute of a program either."""
    head = value[:LOOKED_AT]
    is_name = head.isidentifier() and _NAME.search(head)
    return not is_name and not _ATTRIBUTE.fullmatch(head) and is_quoted_secret(value)


def is_url_password(value: str) -> bool:
    """Whatever is written out and is not just called `password`."""
    is_open = not _PLACEHOLDER.search(value[:LOOKED_AT]) and not value.startswith(("$", "{", "%(", "[", "*"))
    return is_open and value.lower() not in _STAND_IN


def is_credentials(value: str) -> bool:
    """Base64 of `user:password`."""
    head = value[: min(len(value), LOOKED_AT) // 4 * 4]
    try:
        decoded = base64.b64decode(head, altchars=b"-_" if "-" in head or "_" in head else None)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()


def is_key_text(value: str) -> bool:
    """A line of base64, not the code between two mentions of a key's first and last line."""
    return bool(_KEY_LINE.search(value))


def _bits(value: str) -> float:
    """How much the characters of a value tell by how often each occurs."""
    return -sum(times * log2(times / len(value)) for times in Counter(value).values())
