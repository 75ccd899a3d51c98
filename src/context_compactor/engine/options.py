"""What strategies propose: a source is one text of the history, an option one way to shorten it."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.dialects.record import RecordEntry
from context_compactor.engine.tiers import Tier
from context_compactor.facts.kinds import Kind, Voice


class Block(Struct, frozen=True):
    """A line, or a few that belong together; `lines` says how many lines of the original they were."""

    text: str
    first: int
    lines: int


class TextSource(Struct, frozen=True):
    """One text of the history with all that is known about it.

    A *loose* source belongs to no turn of the context: an excerpt of an earlier record, or a ledger.
    """

    number: int
    turn: int
    voice: Voice
    kind: Kind
    label: str
    ref: str
    text: str
    tokens: int
    blocks: tuple[Block, ...]
    lines: int
    exchange: int = 0
    path: str = ""
    weight: float = 1.0
    is_failure: bool = False
    superseded_by: int = 0
    duplicate_of: int = 0
    message: int = -1
    part: int = -1
    is_loose: bool = False
    is_clearable: bool = True
    entries: tuple[RecordEntry, ...] = ()
    """Of a ledger the entry that each block stands for."""


def token_rate(source: TextSource) -> float:
    """Tokens for each character of a source."""
    return source.tokens / max(len(source.text), 1)


# In the place of a block's number: a line of ours on how a call ended.
OUTCOME = -2


class Option(Struct, frozen=True):
    """One way to shorten one target.

    With `block` the text stands for that block of the source (a KEEP of some lines), as an `OUTCOME` in front of them;
    without it for the whole source. `weight` is the value of a token of this text, before what is already in the
    context is taken off. With `is_all` nothing else of the source may be chosen.
    """

    strategy: str
    source: int
    tier: Tier
    text: str
    reason: str
    weight: float = 1.0
    block: int = -1
    is_all: bool = False
