"""From a question to the few lines of the originals that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from heapq import nlargest

from context_compactor.archive.originals import Original
from context_compactor.archive.search.index import PassageIndex, is_intention, names_of, rank_by_gain, relevant_places
from context_compactor.archive.search.passages import (
    GAP,
    SPOKEN_KINDS,
    Exchanges,
    Hit,
    Passage,
    cut_originals,
    heading,
    make_hits,
    render_hits,
    voices_of,
)
from context_compactor.archive.search.query import exact_places, read_query
from context_compactor.errors import BadSetting
from context_compactor.protocols import TokenCounter

_TOO_FEW = 6
# The share of the room for places of exact tokens, for these together with what was said, and with what was said around
# the best of them.
_EXACT_ROOM, _SAID_ROOM, _AROUND_ROOM = 0.4, 0.7, 0.85
# A token in more places than these says what a question is about, and not where to look; a message has many of them.
_RARE, _RARE_IN_MESSAGES = 30, 3
# Of a long message that spells out many tokens.
_EXACT_ROOM_OF_MESSAGES = 0.05
# What was said is shown as an answer when it is no fainter than this beside the best of it, and so are other lines
# beside the best of all.
_FAINT = 0.3
# Of these so many are shown with their exchanges, as what was said is.
_OTHERS = 3
# For each of so many tokens one exchange is shown with its beginning and its end, each of so many passages.
_FRAMED_PER, _ASK, _CONCLUSION = 500, 2, 2


class LineSelector:
    """Passages, in the order of the history, out of which lines are chosen for a reader who has `shown`.

    They need not be all there are: what has no neighbour among them is not joined with another. `exchanges` are those
    of the whole history, if some are missing.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        counter: TokenCounter,
        shown: Iterable[str] = (),
        exchanges: Exchanges | None = None,
    ) -> None:
        self._index = PassageIndex(passages)
        self._counter = counter
        self._texts = shown
        self._exchanges = exchanges or Exchanges(voices_of(passages))
        self._counted: dict[int, int] = {}

    @cached_property
    def _shown(self) -> set[str]:
        return set().union(*map(_names_shown, self._texts))

    @cached_property
    def _numbers(self) -> list[int]:
        return [self._exchanges.of(passage.id) for passage in self._index.passages]

    @cached_property
    def _said_in(self) -> dict[str, list[int]]:
        """The places of what was said in each turn."""
        found: dict[str, list[int]] = {}
        for at, passage in enumerate(self._index.passages):
            if passage.kind in SPOKEN_KINDS:
                found.setdefault(passage.id, []).append(at)
        return found

    def choose(self, text: str, tokens: int, limit: int | None) -> list[Hit]:
        """The hits, best first: as many as `render_hits` shows in so many tokens, and no more than `limit`."""
        index = self._index
        query = read_query(text, index.speakers)
        relevance = index.relevance(query, self._numbers) if query.weights else index.containing(text.strip())
        exact = exact_places(index.passages, query.exact, _RARE if query.is_question else _RARE_IN_MESSAGES)
        scores = _with_exact_first(relevance, exact)
        filling = _AnswerBuilder(index, self._counter, self._cost, tokens, limit)
        if query.is_question:
            framed = tokens // _FRAMED_PER
            filling.take(self._framed(exact, scores, framed), _EXACT_ROOM)
            answers = self._answers(scores)
            filling.take(self._framed(answers, scores, framed), _SAID_ROOM)
            filling.take(self._around(next(iter([*exact, *answers]), None)), _AROUND_ROOM)
        else:
            filling.take(exact, _EXACT_ROOM_OF_MESSAGES)
        places = self._informative(relevance) if query.is_question else relevant_places(relevance)
        self._count(places)
        filling.take(rank_by_gain(index, query, places, relevance, self._counted, self._shown, filling.names))
        chosen = list(filling.chosen)
        while chosen:
            hits = make_hits([(index.passages[at], scores[at]) for at in sorted(chosen)], self._exchanges)
            if self._counter.count(render_hits(hits)) <= tokens and len(hits) <= (limit or len(hits)):
                return hits
            chosen.pop()
        return []

    def _answers(self, relevance: Sequence[float]) -> list[int]:
        """Where something was said about the question, and the lines that tell most of anything else, best first.

        Without anybody's words no line has an exchange to be shown with.
        """
        if not self._said_in:
            return []
        said = [at for each in self._said_in.values() for at in each if relevance[at] > 0]
        faint = _FAINT * max((relevance[at] for at in said), default=0.0)
        kinds = (passage.kind for passage in self._index.passages)
        others = (at for at, kind in enumerate(kinds) if kind not in SPOKEN_KINDS and relevance[at] > 0)
        places = [*(at for at in said if relevance[at] > faint), *nlargest(_OTHERS, others, key=relevance.__getitem__)]
        return sorted(places, key=lambda at: (-relevance[at], -at))

    def _around(self, best: int | None) -> list[int]:
        """What the agent said in the exchange of the best answer, the beginning of each message, the nearest first."""
        if best is None or not self._numbers[best]:
            return []
        numbers, passages = self._numbers, self._index.passages
        firsts = (places[0] for places in self._said_in.values() if numbers[places[0]] == numbers[best])
        said = (at for at in firsts if not is_intention(passages[at]))
        return sorted(said, key=lambda at: abs(passages[at].position - passages[best].position))

    def _informative(self, relevance: Sequence[float]) -> list[int]:
        """The places of what may answer a question: all that was said about it, and of other lines the best."""
        faint = _FAINT * max(relevance, default=0.0)
        passages = self._index.passages
        return [at for at in relevant_places(relevance) if passages[at].kind in SPOKEN_KINDS or relevance[at] > faint]

    def _framed(self, places: Iterable[int], scores: list[float], most: int) -> Iterator[int]:
        """Places, the first of each of some exchanges followed by its beginning and its end, which are as good."""
        framed: set[int] = set()
        for at in places:
            yield at
            number = self._numbers[at]
            if number not in framed and len(framed) < most:
                framed.add(number)
                for beside in self._frame(at, scores):
                    scores[beside] = max(scores[beside], scores[at] * 0.999)
                    yield beside

    def _frame(self, at: int, scores: Sequence[float]) -> Iterator[int]:
        """What the user asked, what the agent concluded, and the reply to that when it is what was found."""
        number = self._numbers[at]
        concluded = self._exchanges.concluded(number)
        yield from self._said_in.get(self._exchanges.asked(number), ())[:_ASK]
        # Of the conclusion the passages that say most, in their order.
        yield from sorted(sorted(self._said_in.get(concluded, ()), key=lambda at: -scores[at])[:_CONCLUSION])
        if self._index.passages[at].id == concluded:
            yield from self._said_in.get(self._exchanges.replied(number), ())[:1]

    def _count(self, places: Iterable[int]) -> None:
        new = [at for at in places if at not in self._counted]
        counts = self._counter.count_many([f"{self._index.passages[at].text}\n" for at in new])
        self._counted.update(zip(new, counts, strict=True))

    def _cost(self, at: int) -> int:
        if at not in self._counted:
            self._count([at])
        return self._counted[at]


class _AnswerBuilder:
    """An answer being filled: which passages were chosen, in the order in which they were, and the names in them."""

    def __init__(
        self, index: PassageIndex, counter: TokenCounter, cost: Callable[[int], int], tokens: int, limit: int | None
    ) -> None:
        self.chosen: dict[int, None] = {}
        self.names: set[str] = set()
        self._index = index
        self._counter = counter
        self._cost = cost
        self._tokens = self._left = tokens
        self._limit = limit
        self._opened: set[str] = set()
        self._gap = counter.count(GAP)
        self._hits = 0

    def take(self, order: Iterable[int], share: float = 1.0) -> None:
        """Take passages while there is room, until so much of all of it is filled.

        Once there are enough hits, only what touches one of them is added.
        """
        floor = self._tokens - round(self._tokens * share)
        for at in order:
            if self._left - floor < _TOO_FEW:
                return
            if at not in self.chosen:
                self._try(at, floor)

    def _try(self, at: int, floor: int) -> None:
        joined = self._joined(at)
        head = heading(self._index.passages[at])
        cost = self._cost(at) + (self._gap if head in self._opened else self._counter.count(head))
        # The first one may take all there is: without it there would be no answer.
        room = self._left - floor if self.chosen else self._left
        if cost > room or (self._limit is not None and self._hits + 1 - joined > self._limit):
            return
        self._opened.add(head)
        self.chosen[at] = None
        self.names |= self._index.named(at)
        self._hits += 1 - joined
        self._left -= cost

    def _joined(self, at: int) -> int:
        """How many hits a passage would grow together with: none, one, or the two it stands between."""
        passages = self._index.passages
        before = at - 1 in self.chosen and passages[at - 1].continues_in(passages[at])
        after = at + 1 in self.chosen and passages[at].continues_in(passages[at + 1])
        return before + after


def _with_exact_first(relevance: Sequence[float], exact: Sequence[int]) -> list[float]:
    """The relevance of all passages, with the places of exact tokens before all others, in their order."""
    scores = list(relevance)
    best = max(scores, default=0.0)
    for rank, at in enumerate(reversed(exact), 1):
        scores[at] = best + 1 + rank / 100
    return scores


# Most of what is before the reader's eyes was there at the last search.
_names_shown = lru_cache(maxsize=1024)(names_of)


def check_search(text: str, tokens: int, limit: int | None) -> None:
    """Refuse what cannot be searched for."""
    if not isinstance(text, str):
        raise BadSetting(f"search: the search text is {type(text).__name__}, not str")
    for name, value in (("tokens", tokens), ("limit", limit if limit is not None else 1)):
        if not isinstance(value, int):
            raise BadSetting(f"search: {name} is {value!r:.40}, not a whole number")
    if not text.strip():
        raise BadSetting("search: the search text is empty; give a few words to look for")
    if tokens < 1:
        raise BadSetting(f"search: tokens={tokens} is too small; use for example 2000")
    if limit is not None and limit < 1:
        raise BadSetting(f"search: limit={limit} is too small; use 1 or more, or leave it out for as many hits as fit")


class Searcher:
    """Searches originals for a reader who has `shown` before the eyes; all preparing is left to the first search."""

    def __init__(self, originals: Iterable[Original], counter: TokenCounter, shown: Sequence[str] = ()) -> None:
        self._originals = originals
        self._counter = counter
        self._texts = shown

    @cached_property
    def _lines(self) -> LineSelector:
        return LineSelector(cut_originals(self._originals), self._counter, self._texts)

    def search(self, text: str, *, tokens: int = 2000, limit: int | None = None) -> list[Hit]:
        """The hits, best first: as many as `render_hits` shows in so many tokens, and no more than `limit`."""
        check_search(text, tokens, limit)
        return self._lines.choose(text, tokens, limit)
