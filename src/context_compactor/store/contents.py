"""Contents by their hash: each is kept once, whoever refers to it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import zstandard
from msgspec import Struct

from context_compactor.errors import DamagedContent
from context_compactor.store.database import Database
from context_compactor.store.rows import hash_of

PLAIN, ZSTD, LIST = 0, 1, 2
_LEVEL = 3
_SMALL = 96


class Kept(Struct, frozen=True):
    """A row of the table, as it is stored."""

    hash: str
    size: int
    codec: int
    stored: bytes


class Contents:
    """Puts bytes into a database and gets them back, checked against their hash."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._own = threading.local()

    def put(self, content: bytes) -> tuple[int, str]:
        """Keep some bytes; their number and hash. What is there already is not written again."""
        name = hash_of(content)
        return self._number(name) or self._add(name, len(content), *self._pack(content)), name

    def put_list(self, parts: Sequence[bytes]) -> tuple[int, str]:
        """Keep a JSON list of JSON values, each as a content of its own; the hash is that of the whole list."""
        whole = b"[" + b",".join(parts) + b"]"
        name = hash_of(whole)
        number = self._number(name)
        if number is None:
            hashes = [self.put(part)[1] for part in parts]
            number = self._add(name, len(whole), LIST, b"".join(map(bytes.fromhex, hashes)))
        return number, name

    def _number(self, name: str) -> int | None:
        row = self._database.row("SELECT number FROM contents WHERE hash = ?", [bytes.fromhex(name)])
        return row[0] if row else None

    def number(self, name: str) -> int:
        """The number of a content that must be there."""
        number = self._number(name)
        if number is None:
            raise DamagedContent(f"the content {name} is not in the store")
        return number

    def _pack(self, content: bytes) -> tuple[int, bytes]:
        if len(content) > _SMALL:
            packed = zstandard.ZstdCompressor(level=_LEVEL).compress(content)
            if len(packed) < len(content):
                return ZSTD, packed
        return PLAIN, content

    def _add(self, name: str, size: int, codec: int, stored: bytes) -> int:
        return self._database.write(
            "INSERT INTO contents (hash, size, codec, bytes) VALUES (?, ?, ?, ?)",
            [bytes.fromhex(name), size, codec, stored],
        )

    def get(self, names: Iterable[str]) -> dict[str, bytes]:
        """Contents by their hashes. One that is missing or not what its hash says raises `DamagedContent`."""
        wanted = list(dict.fromkeys(names))
        kept = self._kept(wanted)
        return {name: self._whole(name, kept) for name in wanted}

    def _kept(self, wanted: Sequence[str]) -> dict[str, Kept]:
        """The rows of these contents, and of all that the lists among them are made of."""
        statement = "SELECT hash, size, codec, bytes FROM contents WHERE hash IN ({})"
        kept: dict[str, Kept] = {}
        while names := [name for name in dict.fromkeys(wanted) if name not in kept]:
            rows = self._database.rows_in(statement, [bytes.fromhex(name) for name in names])
            found = {row[0].hex(): Kept(row[0].hex(), *row[1:]) for row in rows}
            missing = next((name for name in names if name not in found), None)
            if missing is not None:
                raise DamagedContent(f"the content {missing} is not in the store")
            kept |= found
            wanted = [part for each in found.values() if each.codec == LIST for part in list_hashes(each.stored)]
        return kept

    def _whole(self, name: str, kept: Mapping[str, Kept]) -> bytes:
        each = kept[name]
        if each.codec != LIST:
            return self.unpack(each)
        parts = (self._whole(part, kept) for part in list_hashes(each.stored))
        return _checked(name, b"[" + b",".join(parts) + b"]")

    def read(self, name: str, codec: int, size: int, stored: bytes) -> bytes:
        """The bytes behind a row that was read already."""
        if codec == LIST:
            return self.get([name])[name]
        return self.unpack(Kept(name, size, codec, stored))

    def unpack(self, kept: Kept) -> bytes:
        """The bytes behind a row that is no list."""
        if kept.codec == PLAIN:
            return _checked(kept.hash, kept.stored)
        try:
            if zstandard.frame_content_size(kept.stored) != kept.size:  # which is believed and made room for
                raise DamagedContent(f"the content {kept.hash} has another length than when it was stored")
            content = self._unpacker().decompress(kept.stored)
        except zstandard.ZstdError as error:
            raise DamagedContent(f"the content {kept.hash} cannot be unpacked: {error}") from error
        return _checked(kept.hash, content)

    def _unpacker(self) -> zstandard.ZstdDecompressor:
        """One for each thread, since two must not share it and making one takes longer than using it."""
        if not hasattr(self._own, "unpacker"):
            self._own.unpacker = zstandard.ZstdDecompressor()
        return cast("zstandard.ZstdDecompressor", self._own.unpacker)

    def damaged(self) -> Iterator[str]:
        """Hash every content again; the hashes of those that are not what they were."""
        after = 0
        while rows := self._database.rows(
            "SELECT number, hash FROM contents WHERE number > ? ORDER BY number LIMIT 200", [after]
        ):
            after = rows[-1][0]
            for _, name in rows:
                try:
                    self.get([name.hex()])
                except DamagedContent:
                    yield name.hex()


def list_hashes(joined: bytes) -> list[str]:
    """The hashes of the values of a list."""
    return [joined[at : at + 32].hex() for at in range(0, len(joined), 32)]


def _checked(name: str, content: bytes) -> bytes:
    if hash_of(content) != name:
        raise DamagedContent(f"the content {name} has changed since it was stored")
    return content
