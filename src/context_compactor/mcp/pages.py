"""Answers with an end: long texts and lists come in pages of about 2,000 tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from context_compactor.errors import BadSetting
from context_compactor.session.recall import PAGE_TOKENS, cut_pages

T = TypeVar("T")
_PAGE_BYTES = PAGE_TOKENS * 4
_FEWEST_CHARS = 500


def page_of_text(text: str, number: int, what: str) -> tuple[int, int, int, str]:
    """A page of a text: how many there are, its first and last line, and what it says.

    A page has fewer characters where these are not ASCII, since each is then more of a token.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    chars = _PAGE_BYTES if size == len(text) else max(_FEWEST_CHARS, _PAGE_BYTES * len(text) // size)
    pages = cut_pages(text, chars)
    first, last, piece = _pick(pages, number, what)
    return len(pages), first, last, piece


def page_of_list(items: Iterable[T], size_of: Callable[[T], int], number: int, what: str) -> tuple[int, list[T]]:
    """A page of a list: how many there are, and what is on it. `size_of` says how many characters an item takes."""
    pages: list[list[T]] = [[]]
    room = _PAGE_BYTES
    for item in items:
        size = size_of(item)
        if size > room and pages[-1]:
            pages.append([])
            room = _PAGE_BYTES
        pages[-1].append(item)
        room -= size
    return len(pages), _pick(pages, number, what)


def _pick(pages: Sequence[T], number: int, what: str) -> T:
    if number > len(pages):
        raise BadSetting(f"page {number:,} of {what}: it has {len(pages):,}. Try: page={len(pages)}.")
    return pages[number - 1]
