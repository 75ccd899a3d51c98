"""Texts that PostgreSQL would refuse: one with the character of number 0 is written with two others in its place."""

from __future__ import annotations

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown, TextBinaryLoader, TextLoader

_MARK = "\x01"
_NUL, _ITSELF = f"{_MARK}\x02", f"{_MARK}{_MARK}"


class _Writer(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or _MARK in obj:
            obj = obj.replace(_MARK, _ITSELF).replace("\0", _NUL)
        return obj.encode()


class _Reader(TextLoader):
    def load(self, raw: Buffer) -> str:
        return _read(str(raw, "utf-8"))


class _BinaryReader(TextBinaryLoader):
    def load(self, raw: Buffer) -> str:
        return _read(str(raw, "utf-8"))


def _read(text: str) -> str:
    if _MARK not in text:
        return text
    return _MARK.join(part.replace(_NUL, "\0") for part in text.split(_ITSELF))


def keep_every_text(connection: Connection) -> None:
    """From now on any text that UTF-8 can write comes back from this connection as it was."""
    connection.adapters.register_dumper(str, _Writer)
    connection.adapters.register_loader("text", _Reader)
    connection.adapters.register_loader("text", _BinaryReader)
