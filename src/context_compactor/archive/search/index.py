"""Which passage holds which term, how well each answers a query, and which make the most of a number of tokens."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import fsum, log

from context_compactor.archive.search.passages import INSTRUCTIONS, SPOKEN_KINDS, TALK_KINDS, Passage
from context_compactor.archive.search.query import Query
from context_compactor.archive.search.terms import terms
from context_compactor.facts.kinds import KIND_WEIGHT, Kind, Voice
from context_compactor.facts.names import CHUNK, names_in

# BM25's two numbers: how soon a repeated term says no more, and how much a long passage has to say for itself.
_SOON, _LENGTH = 1.2, 0.5
_RARE = 1.3
_DECAY = 0.6
_OWN_WORDS = 1.5

_SPEAKER = re.compile(r"([^\W\d_][\w.'-]{0,20}(?: [\w.'-]{1,20}){0,2}): ")
_FEWEST_TURNS, _SMALLEST_SHARE = 3, 0.02

# How much a kind is preferred: the worth of its text to the agent, flattened, since the query counts for more.
_PREFERENCE = {
    **{kind.value: (weight / KIND_WEIGHT[Kind.TALK]) ** 0.25 for kind, weight in KIND_WEIGHT.items()},
    Voice.CALL.value: 1.3,
    Voice.THINKING.value: 0.8,
}
# The same for a question, which somebody has answered in words as a rule: what was said goes before what mentions it.
_ANSWERING = {
    **{kind.value: 0.6 for kind in KIND_WEIGHT},
    Kind.SUBAGENT.value: 1.0,
    Voice.USER.value: 1.3,
    Voice.AGENT.value: 1.2,
    Voice.CALL.value: 0.8,
    Voice.THINKING.value: 0.7,
    INSTRUCTIONS: 0.4,
}
# What an agent says before it does something tells nothing: `Now let me check the tests:`.
_INTENTION = re.compile(
    r"(?:[\w ,'\u2019-]{1,60}[.!:,;\u2014-]+\s+)?(?:now,? |next,? |first,? |also,? |so,? |then,? |and )*"
    r"(?:let me|let's|let\u2019s|i'll|i\u2019ll|i will|i need to|i should|now)\b"
    r"(?:[^.!?\n]|\.(?=\S)){0,160}[.:!\u2026]?\s*",
    re.IGNORECASE,
)
_INTENDED = 0.4
_NEARLY, _BEHIND = 0.7, 0.9
_WANTED_VOICE = 3.0
_NEWEST = 0.5


class PassageIndex:
    """Passages with their terms and names. Passages may be missing between two of them."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self._named: dict[int, frozenset[str]] = {}
        # A passage stands in a term's list as often as it holds the term.
        self._postings: defaultdict[str, list[int]] = defaultdict(list)
        self._lengths: list[int] = []
        self._rarities: dict[str, float] = {}
        for at, passage in enumerate(passages):
            found = terms(passage.text)
            self._lengths.append(len(found))
            for term in found:
                self._postings[term].append(at)
        self._mean = max(sum(self._lengths) / max(len(passages), 1), 1.0)

    def named(self, at: int) -> frozenset[str]:
        """The names in a passage."""
        if at not in self._named:
            self._named[at] = names_of(self.passages[at].text)
        return self._named[at]

    @cached_property
    def speakers(self) -> dict[str, list[int]]:
        """Where each speaker of a dialogue speaks: names that open several passages of talk, as in `Ann: Hello!`."""
        found: dict[str, list[int]] = {}
        for at, passage in enumerate(self.passages):
            opening = _SPEAKER.match(passage.text) if passage.kind in TALK_KINDS else None
            if opening:
                found.setdefault(opening[1].lower(), []).append(at)
        fewest = max(_FEWEST_TURNS, _SMALLEST_SHARE * len(self.passages))
        return {name: places for name, places in found.items() if len(places) >= fewest}

    def rarity(self, term: str) -> float:
        """How much a term tells: the more, the fewer passages hold it."""
        if term not in self._rarities:
            holders = len(set(self._postings.get(term, ())))
            self._rarities[term] = log(1 + (len(self.passages) - holders + 0.5) / (holders + 0.5))
        return self._rarities[term]

    def relevance(self, query: Query, exchanges: Sequence[int]) -> list[float]:
        """How well each passage answers, 0 to about 1: by itself, by its neighbours, by its kind and by who speaks.

        `exchanges` are the numbers of the exchanges that the passages stand in.
        """
        scores = self._scores(query)
        spoken = self._spoken(scores, exchanges) if query.is_question else {}
        scores = spread(scores, [passage.position for passage in self.passages])
        for at, score in spoken.items():
            scores[at] = score
        best = max(scores, default=0.0) or 1.0
        preference = _ANSWERING if query.is_question else _PREFERENCE
        for at, passage in enumerate(self.passages):
            scores[at] *= preference.get(passage.kind, 1.0) / best
            if query.is_question and is_intention(passage):
                scores[at] *= _INTENDED
        if query.is_question:
            self._put_spoken_first(scores, query)
        for at, passage in enumerate(self.passages):
            if query.voice == passage.kind:
                scores[at] *= _WANTED_VOICE
            if query.is_newest:
                scores[at] *= 1 - _NEWEST + _NEWEST * at / len(self.passages)
        for at in (at for name in query.speakers for at in self.speakers[name]):
            scores[at] *= _OWN_WORDS
        return scores

    def _put_spoken_first(self, scores: list[float], query: Query) -> None:
        """Lower what only mentions the words below what was said with as many of them, or nearly."""
        shares = self._shares(query)
        spoken = [at for at, passage in enumerate(self.passages) if passage.kind in SPOKEN_KINDS]
        others = [at for at, passage in enumerate(self.passages) if passage.kind not in SPOKEN_KINDS]
        said, mentioned = (max((shares[at] for at in places), default=0.0) for places in (spoken, others))
        first, second = (max((scores[at] for at in places), default=0.0) for places in (spoken, others))
        if first and said >= _NEARLY * mentioned and second >= first:
            for at in others:
                scores[at] *= _BEHIND * first / second

    def _shares(self, query: Query) -> list[float]:
        """How much of what was asked for stands in each passage."""
        shares = [0.0] * len(self.passages)
        for term in query.asked:
            for at in set(self._postings.get(term, ())):
                shares[at] += self.rarity(term)
        return shares

    def _spoken(self, scores: Sequence[float], exchanges: Sequence[int]) -> dict[int, float]:
        """What was said, with a share of what was said before and behind it, whatever was called in between."""
        places = [at for at, passage in enumerate(self.passages) if passage.kind in SPOKEN_KINDS]
        positions = [0]
        for before, after in pairwise(places):
            positions.append(positions[-1] + max(1, exchanges[after] - exchanges[before]))
        return dict(zip(places, spread([scores[at] for at in places], positions), strict=False))

    def _scores(self, query: Query) -> list[float]:
        scores = [0.0] * len(self.passages)
        for term, weight in query.weights.items():
            worth = weight * self.rarity(term) ** _RARE * (_SOON + 1)
            for at, count in Counter(self._postings.get(term, ())).items():
                norm = _SOON * (1 - _LENGTH + _LENGTH * self._lengths[at] / self._mean)
                scores[at] += worth * count / (count + norm)
        return scores

    def containing(self, text: str) -> list[float]:
        """1 for each passage that holds a text as it is, 0 for all others: for queries without a word."""
        wanted = text.casefold()
        return [float(wanted in passage.text.casefold()) for passage in self.passages]


def is_intention(passage: Passage) -> bool:
    """Whether an agent only says what it is about to do."""
    return passage.kind == Voice.AGENT and _INTENTION.fullmatch(passage.text) is not None


def names_of(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset().union(*map(_names_in, dict.fromkeys(CHUNK.findall(text))))


@lru_cache(maxsize=1 << 13)
def _names_in(chunk: str) -> tuple[str, ...]:
    return tuple(names_in(chunk))


def spread(scores: Sequence[float], positions: Sequence[int]) -> list[float]:
    """Give every passage a share of its neighbours' scores, less with each step: answers stand next to questions."""
    steps = [after - before for before, after in pairwise(positions)]
    before = _carried(scores, [1, *steps])
    after = reversed(list(_carried(scores[::-1], [1, *steps[::-1]])))
    return [own + left + right for own, left, right in zip(scores, before, after, strict=True)]


def _carried(scores: Sequence[float], steps: Sequence[int]) -> Iterator[float]:
    carried = 0.0
    for score, step in zip(scores, steps, strict=False):
        if step > 1:  # passages are missing here
            carried *= _DECAY ** (step - 1)
        yield carried
        carried = _DECAY * (carried + score)


# Beside a new name, which is worth 1: a token of text, a name the reader has, and a name whose parts were asked for.
_TEXT, _SHOWN, _ASKED = 0.03, 0.05, 3.0
_BESIDE = 2
# Beside the best answer, what is as faint as this is none.
_FAINT = 0.05
# The power of relevance: a short question means its words, a long one is about them.
_LONG, _SHORT = 0.7, 8


def rank_by_gain(
    index: PassageIndex,
    query: Query,
    places: Iterable[int],
    relevance: Sequence[float],
    tokens: Mapping[int, int],
    shown: Collection[str],
    taken: Collection[str],
) -> Iterator[int]:
    """Some passages by what each adds per token, best first.

    `shown` are the names that the reader has; `taken` those of the passages taken so far, to which the caller adds.
    """
    worth = _name_worth(index, query, shown)
    sharpness = _LONG + _SHORT / max(len(query.asked), 1)

    def gain(at: int) -> float:
        names = fsum(worth(name) for name in index.named(at) if name not in taken)
        return float(relevance[at] ** sharpness) * (_TEXT * tokens[at] + names) / (tokens[at] + _BESIDE)

    return best_first(places, gain)


def relevant_places(relevance: Sequence[float]) -> list[int]:
    """The places of what is no fainter than an answer may be."""
    faint = _FAINT * max(relevance, default=0.0)
    return [at for at, relevant in enumerate(relevance) if relevant > faint]


def best_first(items: Iterable[int], gain: Callable[[int], float]) -> Iterator[int]:
    """Items by what each still adds when its turn comes, until none adds anything.

    What an item adds only ever shrinks, so one that still leads when its gain is worked out again is the best there is.
    """
    heap = [(-gain(item), item) for item in items]
    heapify(heap)
    while heap:
        _, item = heappop(heap)
        now = (-gain(item), item)
        if heap and now > heap[0]:
            heappush(heap, now)
        elif now[0] < 0:
            yield item


def _name_worth(index: PassageIndex, query: Query, shown: Collection[str]) -> Callable[[str], float]:
    """A name counts for more when its parts were asked for, and for little when the reader has it already."""
    known: dict[str, float] = {}

    def worth(name: str) -> float:
        if name not in known:
            known[name] = (1 + _ASKED * _asked_share(index, query, name)) * (_SHOWN if name in shown else 1)
        return known[name]

    return worth


def _asked_share(index: PassageIndex, query: Query, name: str) -> float:
    """How much of what a name tells was asked for."""
    parts = dict.fromkeys(terms(name))
    if query.asked.isdisjoint(parts):
        return 0.0
    rarities = {term: index.rarity(term) for term in parts}
    return sum(rarity for term, rarity in rarities.items() if term in query.asked) / (sum(rarities.values()) or 1)
