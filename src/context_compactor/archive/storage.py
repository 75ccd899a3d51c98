"""Originals in a store: written as JSON contents, indexed for search, and read back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import active_count
from time import perf_counter, sleep
from typing import Protocol

from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.archive.search.passages import Passage, cut_original
from context_compactor.archive.search.terms import signs, terms
from context_compactor.errors import DamagedContent
from context_compactor.json_values import json_bytes, read_json
from context_compactor.protocols import Store
from context_compactor.store.contents import PackedContent
from context_compactor.store.rows import FoundRun, IndexPart, NewOriginal, OriginalRow, PassageRun, Unindexed
from context_compactor.tokens.counting import replace_surrogates

# Characters of a run: small enough that words in it belong together.
_RUN_SIZE = 600
# Where passages that are in no index stand: behind all of their session that are.
_UNINDEXED = 1 << 39
# So many runs are put into the index in one transaction: others who write wait no longer than that takes.
_RUNS_AT_ONCE = 32
# Other threads of this process get a turn after so many seconds of work, for so long. Without it each of the many small
# steps of an append could wait for the interpreter's switch interval.
_WORK_SECONDS, _PAUSE_SECONDS = 0.0005, 0.00005


class ContentStore(Protocol):
    """What is needed of a store to keep the values of originals."""

    def ready(self, contents: Sequence[bytes]) -> list[PackedContent]:
        """Contents made ready to be put."""
        ...

    def ready_list(self, parts: Sequence[bytes]) -> list[PackedContent]:
        """A JSON list whose values are contents of their own, made ready to be put."""
        ...

    def put(self, contents: Sequence[PackedContent]) -> list[str]:
        """Keep contents; their hashes."""
        ...

    def get(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Contents by their hashes."""
        ...


class PreparedItem(Struct, frozen=True):
    """An original that is ready for an archive, and the contents that are to be put into the store with it."""

    item: NewOriginal
    contents: list[PackedContent]


def prepare_items(originals: Iterable[Original], store: ContentStore) -> list[PreparedItem]:
    """Make originals ready for an archive. What takes long is done here, so this is called before a transaction."""
    return [_prepared_item(original, store) for original in originals]


def store_items(ready: Iterable[PreparedItem], store: ContentStore) -> list[NewOriginal]:
    """Keep the values of originals in a store; what is to be archived. `index_archived` is to follow."""
    items = list(ready)
    store.put([content for each in items for content in each.contents])
    return [each.item for each in items]


def prepare_and_store_items(originals: Iterable[Original], store: ContentStore) -> list[NewOriginal]:
    """Both at once, for whoever has to be in a transaction already."""
    return store_items(prepare_items(originals, store), store)


def _prepared_item(original: Original, store: ContentStore) -> PreparedItem:
    value = original.value
    if isinstance(value, list) and value:  # each message of a list is in the store already
        contents = store.ready_list([json_bytes(each) for each in value])
    else:
        contents = store.ready([json_bytes(value)])
    item = NewOriginal(
        ref=original.id,
        kind=original.kind,
        summary=replace_surrogates(original.summary),
        tokens=original.tokens,
        recovery=replace_surrogates(original.recovery),
        hint=original.hint,
        target=replace_surrogates(original.target),
        content=contents[-1].hash,
        is_indexed=False,
    )
    return PreparedItem(item, contents)


def index_archived(store: Store, session_id: str, is_stopped: Callable[[], bool] = lambda: False) -> None:
    """Put into the index what of a session's archive is not there yet; until then a search would not find it.

    It is read from the archive, whoever has archived it, and written some at a time, so that others can write between.
    What is left when it `is_stopped` can be indexed later.
    """
    missing = deque(store.unindexed(session_id))
    begun: deque[_IndexBacklog] = deque()
    while (missing or begun) and not is_stopped():
        room, rests, parts = _RUNS_AT_ONCE, list[_IndexBacklog](), list[IndexPart]()
        while room > 0 and (missing or begun):
            rest = begun.popleft() if begun else _index_backlog(store, missing.popleft())
            if rest is not None:
                rests.append(rest)
                parts.append(rest.part(room))
                room -= len(parts[-1].runs) + 1
        reached = store.index(session_id, parts) if parts else {}
        for rest in rests:
            done = reached.get(rest.missing.original.number)
            if done == rest.done:
                begun.append(rest)
            elif done is not None:  # somebody else is indexing it too
                missing.append(Unindexed(rest.missing.original, done))


def cut_unindexed(store: Store, missing: Iterable[Unindexed]) -> Iterator[Passage]:
    """The passages of originals of which the index does not have all, behind all that it may have."""
    position = _UNINDEXED
    for each in missing:
        try:
            (original,) = load_originals([each.original], store)
        except DamagedContent:  # which `verify` tells
            continue
        for passage in cut_original(original, position):
            yield passage
            position = passage.position + 1


def _index_backlog(store: Store, missing: Unindexed) -> _IndexBacklog | None:
    """What the index lacks of an original; None when that cannot be read any more, which `verify` tells."""
    try:
        return _IndexBacklog(missing, load_originals([missing.original], store)[0])
    except DamagedContent:
        return None


class _IndexBacklog:
    """The passages of an original that the index lacks. The first `done` are there, or were given out as a part."""

    def __init__(self, missing: Unindexed, original: Original) -> None:
        self.missing = missing
        self._passages = cut_original(original)
        self._next = next(self._passages, None)
        self.done = 0
        while self._next is not None and self.done < missing.done:
            self._take()
        self.done = missing.done

    def part(self, most: int) -> IndexPart:
        """The next runs, no more than so many."""
        done, runs, began = self.done, list[PassageRun](), perf_counter()
        while self._next is not None and len(runs) < most:
            runs.append(_run(list(self._run())))
            if perf_counter() - began > _WORK_SECONDS and active_count() > 1:
                sleep(_PAUSE_SECONDS)
                began = perf_counter()
        return IndexPart(self.missing.original.number, done, runs, is_last=self._next is None)

    def _run(self) -> Iterator[Passage]:
        size = 0
        while self._next is not None and size < _RUN_SIZE:
            size += len(self._next.text)
            yield self._take()

    def _take(self) -> Passage:
        taken = self._next
        assert taken is not None
        self._next = next(self._passages, None)
        self.done += 1
        return taken


def _run(passages: Sequence[Passage]) -> PassageRun:
    body = json_bytes([[passage.kind, passage.line, passage.text] for passage in passages])
    size = sum(len(passage.text) for passage in passages)
    return PassageRun(len(passages), size, _terms(passage.text for passage in passages), body)


def _terms(texts: Iterable[str]) -> str:
    text = "\n".join(texts)
    return " ".join(dict.fromkeys((*terms(text), *signs(text))))


def terms_of(body: bytes) -> str:
    """The terms by which a run is found, from its body."""
    return _terms(text for _, _, text in read_json(body))


def load_passages(found: FoundRun) -> list[Passage]:
    """The passages of a run as they were cut when their original was archived."""
    return [
        Passage(found.ref, position, text, kind, line)
        for position, (kind, line, text) in enumerate(read_json(found.body), found.position)
    ]


def load_originals(rows: Sequence[OriginalRow], store: ContentStore) -> list[Original]:
    """Originals as they were archived."""
    contents = store.get([row.content for row in rows])
    values = [read_json(contents[row.content]) for row in rows]
    return [
        Original(row.ref, row.kind, row.summary, row.tokens, value, row.recovery, row.hint, row.target)
        for row, value in zip(rows, values, strict=True)
    ]
