"""The values that go into a store and come out of it. A store keeps bytes; what they mean is the session's business."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct

MESSAGE = "message"


class SessionRow(Struct, frozen=True):
    """A session as the store knows it.

    `head` is the position of its last entry, `view` that of the last one that is not a message, `messages` how many
    messages there are. `profile` and `state` are the session's own, as JSON.
    """

    id: str
    created_at: str
    updated_at: str
    profile: bytes
    state: bytes
    head: int = 0
    messages: int = 0
    view: int = 0


class Entry(Struct, frozen=True):
    """One entry of a session's log. Positions count from 1 and are never used again."""

    position: int
    kind: str
    created_at: str
    hash: str
    body: bytes


class Run(Struct, frozen=True):
    """Some passages of an original that follow one another: how many, and of how many characters.

    `terms` are the words by which they are found, with spaces between them; `body` holds the passages, in the form in
    which whoever archives them reads them again.
    """

    count: int
    size: int
    terms: str
    body: bytes


class Item(Struct, frozen=True):
    """An original on its way into the archive.

    `content` is the hash of its value as JSON, which must be in the store already; `runs` are its passages in order,
    for search: all of them, or the first ones when it is not `is_indexed` yet.
    """

    ref: str
    kind: str
    summary: str
    tokens: int
    recovery: str
    hint: str
    target: str
    content: str
    runs: Sequence[Run] = ()
    is_indexed: bool = True


class Shelved(Struct, frozen=True):
    """An original in the archive, without its value. `same_as` names the one archived before with the same value."""

    number: int
    ref: str
    kind: str
    summary: str
    tokens: int
    recovery: str
    hint: str
    target: str
    same_as: str
    created_at: str
    content: str


class Unindexed(Struct, frozen=True):
    """An original of which the index has only the first `done` passages."""

    original: Shelved
    done: int


class IndexPart(Struct, frozen=True):
    """The runs of an original, by its number, that follow its first `done` passages; `is_last` when no more follow."""

    original: int
    done: int
    runs: Sequence[Run]
    is_last: bool


class Found(Struct, frozen=True):
    """A run of passages that a search found, under the id of its original.

    `position` is that of its first passage among all that the session has archived.
    """

    ref: str
    position: int
    body: bytes


class FactRow(Struct, frozen=True):
    """A fact as the store knows it. `pattern` is what it has in common with facts of other sessions, if anything."""

    kind: str
    turn: int
    body: bytes
    pattern: str = ""
    updated_at: str = ""


def as_bytes(value: bytes | str) -> bytes:
    """What a store holds as text, as bytes."""
    return value.encode() if isinstance(value, str) else value


def hash_of(content: bytes) -> str:
    """The name of a content: its SHA-256."""
    return sha256(content).hexdigest()


def link(chain: bytes, kind: str, content_hash: str) -> bytes:
    """The chain after one more entry: changing, leaving out or swapping an entry changes every link behind it."""
    return sha256(chain + kind.encode() + bytes.fromhex(content_hash)).digest()
