"""Payloads as plain JSON within a size: the longest texts and lists are cut first, short ones stay whole."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import msgspec

LARGEST = 16 * 1024
"""Bytes of JSON that a payload may have."""

TRUNCATED = "truncated"
_DEEPEST = 12
# Characters that a text keeps and items that a list keeps, tried in this order until the payload fits.
_CUTS = ((4_000, 200), (2_000, 100), (1_000, 50), (500, 25), (200, 12), (100, 6), (40, 3), (20, 1))


def fitting(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain JSON values that is never over the limit; when something was cut, it says so."""
    plain = {plain_text(key): _plain(value) for key, value in payload.items()}
    if _size(plain) <= LARGEST:
        return plain
    for characters, items in _CUTS:
        shorter = {key: _cut(value, characters, items) for key, value in plain.items()} | {TRUNCATED: True}
        if _size(shorter) <= LARGEST:
            return shorter
    return _first_keys(plain)


def _first_keys(plain: dict[str, Any]) -> dict[str, Any]:
    """Thousands of keys, or keys that are texts themselves: as many of the first ones as there is room for."""
    kept: dict[str, Any] = {TRUNCATED: True}
    room = LARGEST - _size(kept)
    for key, value in plain.items():
        entry = {key[:100]: _cut(value, 20, 1)}
        room -= _size(entry)
        if room < 0:
            break
        kept |= entry
    return kept | {TRUNCATED: True}


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _cut(value: Any, characters: int, items: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else value[: characters - 1] + "…"
    if isinstance(value, list):
        return [_cut(item, characters, items) for item in value[:items]]
    if isinstance(value, dict):
        return {
            _cut(key, characters, items): _cut(item, characters, items) for key, item in list(value.items())[:items]
        }
    return value


def _plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    if value is None or isinstance(value, bool | str | int | float):
        return _scalar(value)
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if not isinstance(value, Mapping | list | tuple | Set):
        return plain_text(value)
    if len(above) >= _DEEPEST or id(value) in above:
        return "…"
    within = (*above, id(value))
    if isinstance(value, Mapping):
        return {plain_text(key): _plain(item, within) for key, item in value.items()}
    return [_plain(item, within) for item in value]


def _scalar(value: bool | str | float | None) -> Any:
    """The value as JSON's own type, whatever subclass it is; numbers that readers of JSON would not take as text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else hex(value)
    return float(value)


def plain_text(value: object) -> str:
    """The value as a text that UTF-8 can hold: lone surrogates are written out."""
    return str(value).encode("utf-8", "backslashreplace").decode()
