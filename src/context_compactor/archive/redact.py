"""Redaction: secrets replaced before anything is written. What is found here can never be recalled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from context_compactor.archive.redact_patterns import PATTERNS, SECRET_NAME, Pattern
from context_compactor.archive.redact_values import LOOKED_AT, MARK, is_quoted_secret
from context_compactor.errors import BadInput

_SHORTEST = 8
_ENDS_IN_NAME = re.compile(rf"{SECRET_NAME}\Z", re.IGNORECASE)
_SPACE = re.compile(r"\s")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_INLINE_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,[A-Za-z0-9+/]*+={0,2}")
# A value is judged by its beginning and replaced to its end.
_REST: dict[str | int, re.Pattern[str]] = {
    "quoted": re.compile(r"[^\s\"'`\\]*+"),
    "bare": re.compile(r"[^\s\"'`\\,;&|()<>{}\[\]]*+"),
}
_SEALS = ("signature", "encrypted_content")
_MEDIA_KEYS = ("media_type", "mime_type", "mimeType", "format")


class Redacted(Struct, frozen=True):
    """A value without its secrets, and how many of each kind were found."""

    value: Any
    found: dict[str, int]


def redact(value: Any) -> Redacted:
    """Any JSON value with `[redacted:KIND]` in the place of each secret in its texts; a struct of such values as well.

    The same object comes back when nothing is found. Keys, signed thinking and media are left alone.
    """
    found: Counter[str] = Counter()
    try:
        return Redacted(_redacted(value, found), dict(found))
    except RecursionError:
        raise BadInput("the value is nested too deeply to be searched for secrets") from None


def secrets_table() -> str:
    """Every pattern, as the rows of a Markdown table."""
    rows = [f"| `{pattern.kind}` | {pattern.looks_like} |" for pattern in PATTERNS]
    return "\n".join(["| kind | looks like |", "|---|---|", *rows])


def _redacted(value: Any, found: Counter[str]) -> Any:
    if isinstance(value, str):
        return _redacted_text(value, found)
    if isinstance(value, list | tuple):
        changed = [_redacted(inner, found) for inner in value]
        is_new = any(new is not old for new, old in zip(changed, value, strict=True))
        return type(value)(changed) if is_new else value
    if isinstance(value, Struct):
        fields = {name: _redacted(getattr(value, name), found) for name in value.__struct_fields__}
        return structs.replace(value, **{name: new for name, new in fields.items() if new is not getattr(value, name)})
    if isinstance(value, dict) and not _is_sealed(value):
        entries = {key: _redacted_entry(value, key, inner, found) for key, inner in value.items()}
        return entries if any(new is not value[key] for key, new in entries.items()) else value
    return value


def _redacted_entry(holder: dict[Any, Any], key: Any, value: Any, found: Counter[str]) -> Any:
    if key in _SEALS or (key == "data" and _holds_media(holder, value)):
        return value
    if isinstance(value, str) and isinstance(key, str) and _ENDS_IN_NAME.search(key[-40:]):
        return _redacted_under_name(value, found)
    return _redacted(value, found)


def _redacted_under_name(value: str, found: Counter[str]) -> str:
    """A text under a key such as `password`: what a pattern finds in it, or all of it if the rest may be a secret."""
    inside: Counter[str] = Counter()
    rest = _redacted_text(value, inside)
    if is_quoted_secret(rest) and not _SPACE.search(rest[:LOOKED_AT]):
        return _mark("secret", found)
    found.update(inside)
    return rest


def _is_sealed(block: dict[Any, Any]) -> bool:
    """Thinking that its provider would refuse if a letter of it were changed."""
    kind = block.get("type")
    is_reasoning = isinstance(kind, str) and kind.startswith("reasoning")
    return kind in ("thinking", "redacted_thinking") or (is_reasoning and any(block.get(seal) for seal in _SEALS))


def _holds_media(block: dict[Any, Any], value: Any) -> bool:
    kind = block.get("type")
    is_media = kind == "base64" or (kind != "text" and any(key in block for key in _MEDIA_KEYS))
    return is_media and isinstance(value, str) and _BASE64.fullmatch(value[:LOOKED_AT]) is not None


def _redacted_text(text: str, found: Counter[str]) -> str:
    """A text searched until nothing is found: what was refused may be a secret once something in it is gone.

    That is seen by a pattern which comes earlier than the one that took it, so the rounds are few.
    """
    if len(text) < _SHORTEST or _INLINE_URL.fullmatch(text):
        return text
    for _ in PATTERNS:
        before, text = text, _searched_once(text, found)
        if text is before:
            break
    return text


def _searched_once(text: str, found: Counter[str]) -> str:
    lowered = _lower(text)
    for pattern in PATTERNS:
        if any(hint in lowered for hint in pattern.hints):
            pieces = list(_pieces(text, lowered if pattern.any_case else text, pattern, found))
            if len(pieces) > 1:
                text = "".join(pieces)
                lowered = _lower(text)
    return text


def _lower(text: str) -> str:
    """A text in lower case, character for character; one capital alone would become two."""
    return text.replace("\u0130", "i").lower()


def _pieces(text: str, searched: str, pattern: Pattern, found: Counter[str]) -> Iterator[str]:
    """The text with its secrets replaced, or in one piece when there are none."""
    kept = at = 0
    while match := pattern.expression.search(searched, at):
        group: str | int = match.lastgroup or 0
        start, end = match.span(group)
        if pattern.is_secret(text[start:end]):
            rest = _REST[group].match(text, end) if group in _REST else None
            yield text[kept:start]
            yield _mark(pattern.kind, found)
            kept = at = rest.end() if rest else end
        else:
            # What was refused may hold another one, unless it is a token, which holds none.
            at = start if start > match.start() else end
    yield text[kept:]


def _mark(kind: str, found: Counter[str]) -> str:
    found[kind] += 1
    return f"{MARK}{kind}]"
