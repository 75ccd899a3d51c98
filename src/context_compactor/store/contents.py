"""Contents by their hash: each is stored once, whoever refers to it, and which of them a session needs."""

from __future__ import annotations

import re
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import cast

import zstandard
from msgspec import Struct

from context_compactor.errors import DamagedContent
from context_compactor.store.database import Database, rows_in
from context_compactor.store.rows import MESSAGE, as_bytes, hash_of

PLAIN, ZSTD, LIST = 0, 1, 2
_LEVEL = 3
_SMALL = 96
_AT_ONCE = 50


class PackedContent(Struct, frozen=True):
    """A row of the table, as it is stored."""

    hash: str
    size: int
    codec: int
    stored: bytes


class ContentTable:
    """Puts bytes into a database and gets them back, checked against their hash."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._own = threading.local()

    def put_many(self, contents: Iterable[bytes | PackedContent]) -> list[tuple[int, str]]:
        """Store contents in a few steps, however many; the number and hash of each. None is written twice."""
        named = [(each.hash if isinstance(each, PackedContent) else hash_of(each), each) for each in contents]
        numbers = self._numbers([name for name, _ in named])
        new = {name: content for name, content in named if name not in numbers}
        numbers |= self._add([_ready(name, content) for name, content in new.items()])
        return [(numbers[name], name) for name, _ in named]

    @staticmethod
    def ready(content: bytes) -> PackedContent:
        """Some bytes, hashed and packed: what takes long, and needs no transaction."""
        return _ready(hash_of(content), content)

    @staticmethod
    def ready_list(parts: Sequence[bytes]) -> list[PackedContent]:
        """A JSON list of JSON values, each as a content of its own; the list comes last, under the hash of its JSON."""
        ready = [ContentTable.ready(part) for part in parts]
        whole, hashes = b"[" + b",".join(parts) + b"]", b"".join(bytes.fromhex(each.hash) for each in ready)
        return [*ready, PackedContent(hash_of(whole), len(whole), LIST, hashes)]

    def _numbers(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers of those that are there, each the first of its hash.

        Whoever asks is about to use them. So those that are listed to be removed are taken off the list.
        """
        wanted = [bytes.fromhex(name) for name in dict.fromkeys(names)]
        statement = (
            "SELECT c.hash, c.number, u.number FROM contents c LEFT JOIN unneeded_contents u ON u.content = c.number "
            "WHERE c.hash IN ({}) ORDER BY c.number DESC"
        )
        rows = list(rows_in(self._database, statement, wanted))
        listed = [(number,) for _, _, number in rows if number is not None]
        if listed:
            self._database.write_many("DELETE FROM unneeded_contents WHERE number = ?", listed)
        return {name.hex(): number for name, number, _ in rows}

    def numbers(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers of contents that must be there."""
        wanted = list(names)
        known = self._numbers(wanted)
        _refuse_missing(wanted, known)
        return known

    def packed(self, names: Iterable[str]) -> list[PackedContent]:
        """Contents as they are stored, with all that the lists among them are made of; each is checked."""
        kept = self._kept(list(names))
        for name in kept:
            self._whole(name, kept)
        return list(kept.values())

    def put_packed(self, kept: Iterable[PackedContent]) -> None:
        """Keep contents of another store as they are stored there; those that are here already stay."""
        every = {each.hash: each for each in kept}
        known = self._numbers(every)
        self._add([each for name, each in every.items() if name not in known])

    def _add(self, new: Sequence[PackedContent]) -> dict[str, int]:
        """Write rows; their numbers. One alone, as most are, takes one step."""
        statement = "INSERT INTO contents (hash, size, codec, bytes) VALUES (?, ?, ?, ?)"
        rows = [(bytes.fromhex(each.hash), each.size, each.codec, each.stored) for each in new]
        if len(new) == 1:
            return {new[0].hash: int(self._database.row(f"{statement} RETURNING number", rows[0])[0])}
        self._database.write_many(statement, rows)
        return self._numbers(each.hash for each in new)

    def get(self, names: Iterable[str]) -> dict[str, bytes]:
        """Contents by their hashes. One that is missing or not what its hash says raises `DamagedContent`."""
        wanted = list(dict.fromkeys(names))
        kept = self._kept(wanted)
        return {name: self._whole(name, kept) for name in wanted}

    def _kept(self, wanted: Sequence[str]) -> dict[str, PackedContent]:
        """The rows of these contents, and of all that the lists among them are made of."""
        statement = "SELECT hash, size, codec, bytes FROM contents WHERE hash IN ({}) ORDER BY number DESC"
        kept: dict[str, PackedContent] = {}
        while names := [name for name in dict.fromkeys(wanted) if name not in kept]:
            rows = rows_in(self._database, statement, [bytes.fromhex(name) for name in names])
            found = {row[0].hex(): PackedContent(row[0].hex(), *row[1:]) for row in rows}
            _refuse_missing(names, found)
            kept |= found
            wanted = [part for each in found.values() if each.codec == LIST for part in list_hashes(each.stored)]
        return kept

    def _whole(self, name: str, kept: Mapping[str, PackedContent]) -> bytes:
        each = kept[name]
        if each.codec != LIST:
            return self.unpack(each)
        parts = (self._whole(part, kept) for part in list_hashes(each.stored))
        return _checked(name, b"[" + b",".join(parts) + b"]")

    def read(self, name: str, codec: int, size: int, stored: bytes) -> bytes:
        """The bytes behind a row that was read already."""
        if codec == LIST:
            return self.get([name])[name]
        return self.unpack(PackedContent(name, size, codec, stored))

    def unpack(self, kept: PackedContent) -> bytes:
        """The bytes behind a row that is no list."""
        if kept.codec == PLAIN:
            return _checked(kept.hash, kept.stored)
        try:
            if zstandard.frame_content_size(kept.stored) != kept.size:  # which is believed and made room for
                raise DamagedContent(f"the content {kept.hash} does not have the length it was stored with")
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
            "SELECT number, hash, codec, size, bytes FROM contents WHERE number > ? ORDER BY number LIMIT ?",
            [after, _AT_ONCE],
        ):
            after = rows[-1][0]
            for _, name, codec, size, stored in rows:
                try:
                    self.read(name.hex(), codec, size, stored)
                except DamagedContent:
                    yield name.hex()


def _ready(name: str, content: bytes | PackedContent) -> PackedContent:
    if isinstance(content, PackedContent):
        return content
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(content) if len(content) > _SMALL else content
    codec, stored = (ZSTD, packed) if len(packed) < len(content) else (PLAIN, content)
    return PackedContent(name, len(content), codec, stored)


def _refuse_missing(names: Iterable[str], known: Container[str]) -> None:
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise DamagedContent(f"the content {missing} is not in the store")


def list_hashes(joined: bytes) -> list[str]:
    """The hashes of the values of a list."""
    return [joined[at : at + 32].hex() for at in range(0, len(joined), 32)]


def _checked(name: str, content: bytes) -> bytes:
    if hash_of(content) != name:
        raise DamagedContent(f"the content {name} has changed since it was stored")
    return content


_HASH = re.compile(rb"[0-9a-f]{64}")


def needed_hashes(database: Database, contents: ContentTable, session: int | None = None) -> set[str]:
    """The hashes of all contents that a session needs, or all sessions; those of lists without their parts."""
    where, values = ("", []) if session is None else (" WHERE t.session = ?", [session])
    held: set[str] = set()
    for table in ("entries", "originals"):
        statement = f"SELECT DISTINCT c.hash FROM {table} t JOIN contents c ON c.number = t.content{where}"
        held |= {name.hex() for (name,) in database.rows(statement, values)}
    return held | _hashes_in_records(database, contents, session)


def with_parts(database: Database, names: Iterable[str]) -> set[str]:
    """Contents, and all that the lists among them are made of."""
    waiting, found = set(names), set[str]()
    statement = f"SELECT bytes FROM contents WHERE codec = {LIST} AND hash IN ({{}})"
    while waiting:
        found |= waiting
        lists = rows_in(database, statement, [bytes.fromhex(name) for name in waiting])
        waiting = {part for (joined,) in lists for part in list_hashes(joined)} - found
    return found


def _hashes_in_records(database: Database, contents: ContentTable, session: int | None) -> set[str]:
    """Contents that states, compactions and revisions refer to, and those that these refer to in turn."""
    of_entries, of_sessions, values = "", "", []
    if session is not None:
        of_entries, of_sessions, values = " AND e.session = ?", " WHERE number = ?", [session]
    rows = database.rows(
        "SELECT DISTINCT c.hash FROM entries e JOIN contents c ON c.number = e.content "
        f"WHERE e.kind <> '{MESSAGE}'{of_entries}",
        values,
    )
    states = database.rows(f"SELECT state FROM sessions{of_sessions}", values)
    found = _hashes(b"\n".join(as_bytes(state) for (state,) in states))
    found = _known(database, found | _named_in(contents, [name.hex() for (name,) in rows]))
    return found | _known(database, _named_in(contents, found))


def _named_in(contents: ContentTable, names: Iterable[str]) -> set[str]:
    return set().union(*map(_hashes, contents.get(names).values()))


def _hashes(content: bytes) -> set[str]:
    return {found.decode() for found in _HASH.findall(content)}


def _known(database: Database, names: Iterable[str]) -> set[str]:
    """What looks like a hash in a text may be none of ours."""
    rows = rows_in(database, "SELECT hash FROM contents WHERE hash IN ({})", [bytes.fromhex(name) for name in names])
    return {name.hex() for (name,) in rows}
