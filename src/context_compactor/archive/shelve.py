"""From originals to items of a store and back: values as JSON contents, and the terms by which they are found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from context_compactor.archive.archive import Original
from context_compactor.archive.search.passages import Passage, cut_originals
from context_compactor.archive.search.words import signs, terms
from context_compactor.measure.tokens import clean
from context_compactor.messages.jsontext import json_bytes, read_json
from context_compactor.store.rows import Found, Item, Run, Shelved

# Characters of a run: small enough that words in it belong together.
_RUN_SIZE = 600


class Shelves(Protocol):
    """What is needed of a store."""

    def put(self, contents: Sequence[bytes]) -> list[str]:
        """Keep contents; their hashes."""
        ...

    def put_list(self, parts: Sequence[bytes]) -> str:
        """Keep a JSON list whose values are contents of their own."""
        ...

    def get(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Contents by their hashes."""
        ...


def make_items(originals: Sequence[Original], store: Shelves) -> list[Item]:
    """Keep the values of originals in a store, and describe each for its archive."""
    return [_item(original, _keep(original.value, store)) for original in originals]


def _keep(value: Any, store: Shelves) -> str:
    """A list of messages is kept message by message, since each of them is there already."""
    if isinstance(value, list) and value:
        return store.put_list([json_bytes(each) for each in value])
    return store.put([json_bytes(value)])[0]


def _item(original: Original, content: str) -> Item:
    return Item(
        ref=original.id,
        kind=original.kind,
        summary=clean(original.summary),
        tokens=original.tokens,
        recovery=clean(original.recovery),
        hint=original.hint,
        target=clean(original.target),
        content=content,
        runs=tuple(_runs(cut_originals([original]))),
    )


def _runs(passages: Sequence[Passage]) -> Iterator[Run]:
    first = size = 0
    for end, passage in enumerate(passages, 1):
        size += len(passage.text)
        if size >= _RUN_SIZE or end == len(passages):
            yield _run(passages[first:end], size)
            first, size = end, 0


def _run(passages: Sequence[Passage], size: int) -> Run:
    body = json_bytes([[passage.kind, passage.line, passage.text] for passage in passages])
    return Run(len(passages), size, _terms(passage.text for passage in passages), body)


def _terms(texts: Iterable[str]) -> str:
    text = "\n".join(texts)
    return " ".join(dict.fromkeys((*terms(text), *signs(text))))


def terms_of(body: bytes) -> str:
    """The terms by which a run is found, from its body."""
    return _terms(text for _, _, text in read_json(body))


def read_passages(found: Found) -> list[Passage]:
    """The passages of a run as they were cut when their original was archived."""
    return [
        Passage(found.ref, position, text, kind, line)
        for position, (kind, line, text) in enumerate(read_json(found.body), found.position)
    ]


def read_original(shelved: Shelved, content: bytes) -> Original:
    """The original as it was archived."""
    return Original(
        shelved.ref,
        shelved.kind,
        shelved.summary,
        shelved.tokens,
        read_json(content),
        shelved.recovery,
        shelved.hint,
        shelved.target,
    )


def read_originals(shelved: Sequence[Shelved], store: Shelves) -> list[Original]:
    """Several originals at once."""
    contents = store.get([each.content for each in shelved])
    return [read_original(each, contents[each.content]) for each in shelved]
