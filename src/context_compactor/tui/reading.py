"""Long texts, page by page: a turn as it was said, an original from the archive, anything that is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from context_compactor.session.recall import cut_pages
from context_compactor.tui.source import Source
from context_compactor.tui.values import Piece

_PAGE_SIZE = 8_000


class Sheet(Struct, frozen=True):
    """One page of something: its pieces, and where it stands among the others."""

    pieces: list[Piece]
    number: int = 1
    pages: int = 1
    where: str = ""


class Reading(Protocol):
    """Something that can be read page by page."""

    title: str

    async def sheet(self, number: int) -> Sheet:
        """A page, counted from 1."""
        ...


class TextReading:
    """Pieces that are at hand."""

    def __init__(self, title: str, pieces: Sequence[Piece]) -> None:
        self.title = title
        self._sheets = sheets_of(pieces)

    async def sheet(self, number: int) -> Sheet:
        """A page of them."""
        return self._sheets[number - 1]


class TurnReading:
    """A turn as it was said."""

    def __init__(self, source: Source, session_id: str, at: int, title: str) -> None:
        self.title = title
        self._source, self._id, self._at = source, session_id, at
        self._sheets: list[Sheet] = []

    async def sheet(self, number: int) -> Sheet:
        """A page of the turn, which is read once."""
        if not self._sheets:
            self._sheets = sheets_of(await self._source.turn(self._id, self._at))
        return self._sheets[number - 1]


class OriginalReading:
    """An original from the archive, of which only the page that is shown is read."""

    def __init__(self, source: Source, session_id: str, ref: str) -> None:
        self.title = ref
        self._source, self._id, self._ref = source, session_id, ref

    async def sheet(self, number: int) -> Sheet:
        """A page of it."""
        original = await self._source.original(self._id, self._ref, number)
        page = original.page
        where = f"lines {page.first_line:,}–{page.last_line:,}"
        return Sheet([Piece(original.title, page.text, original.path)], page.number, page.pages, where)


def sheets_of(pieces: Sequence[Piece]) -> list[Sheet]:
    """Pieces on pages of about the same size; one that is longer goes on on the next."""
    pages: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        for at, (_, _, text) in enumerate(cut_pages(piece.text, _PAGE_SIZE)):
            if size and size + len(text) > _PAGE_SIZE:
                pages.append([])
                size = 0
            title = piece.title if at == 0 else f"{piece.title} (goes on)"
            pages[-1].append(Piece(title, text, piece.path, piece.role))
            size += len(text)
    return [Sheet(page, at, len(pages)) for at, page in enumerate(pages, 1)]
