"""Search the archive of a session that rests in a store.

The store finds runs of passages by their terms, and of these the lines are chosen, as everywhere. While all there is
can be read at once, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct, structs

from context_compactor.archive.originals import voice_in_summary
from context_compactor.archive.search.passages import SPOKEN_KINDS, Exchanges, Hit, Passage, texts_of, voices_of
from context_compactor.archive.search.query import exact_tokens, read_query
from context_compactor.archive.search.search import LineSelector, check_search
from context_compactor.archive.search.terms import signs, terms
from context_compactor.archive.storage import cut_unindexed, index_archived, load_passages
from context_compactor.dialects.messages import Message
from context_compactor.errors import BadSetting, StoreError
from context_compactor.facts.kinds import Kind, Voice
from context_compactor.protocols import Store, TokenCounter
from context_compactor.store.rows import FoundRun, OriginalRow

# How many characters to choose from: at least so many, and so many for each token of the answer.
_LEAST, _PER_TOKEN = 50_000, 16
# The same of each of many sessions, and of all of them together.
_LEAST_OF_MANY, _MOST_OF_ALL = 2_000, 1_000_000
# No session has as many passages.
_SESSION = 1 << 40
_MOST_TERMS = 64
# So many passages of a turn that opens or closes an exchange are read.
_FRAME = 12
# Those of so many of the newest exchanges are read whatever is asked: they are little, and answer much.
_EXCHANGES = 100
# And the beginnings of so many turns in which the agent said something around what was found.
_TURNS_AROUND = 150
_TURN = "turn"
_VOICES = (Voice.USER.value, Voice.AGENT.value, Voice.THINKING.value, Voice.CALL.value)
_KINDS = (_TURN, *_VOICES, *(kind.value for kind in Kind), "instructions")


def search_stored(
    store: Store,
    session_id: str,
    text: str,
    counter: TokenCounter,
    *,
    shown: Sequence[Message] = (),
    tokens: int = 2000,
    limit: int | None = None,
    kind: str = "",
    since: str = "",
    until: str = "",
) -> list[Hit]:
    """The lines of a session's originals that answer a question, best first, for a reader who has `shown`.

    They are as many as `render_hits` shows in so many tokens, and no more than `limit`. `kind` is that of a hit, or
    `turn` for all that was said and called; `since` and `until` are times of archiving. A text without a word is
    looked for as it stands: by its signs, or among the newest originals.
    """
    check_search(text, tokens, limit)
    wanted = StoredQuery(text, kind, since, until)
    found = _find_candidates(store, session_id, wanted, max(_LEAST, _PER_TOKEN * tokens))
    return LineSelector(found.passages, counter, texts_of(shown), Exchanges(found.voices)).choose(text, tokens, limit)


def search_all(
    store: Store,
    session_ids: Sequence[str],
    text: str,
    counter: TokenCounter,
    *,
    tokens: int = 2000,
    limit: int | None = None,
    kind: str = "",
    since: str = "",
    until: str = "",
) -> list[tuple[str, Hit]]:
    """The same over many sessions, each hit with the session it is from: all are weighed together, not each alone."""
    check_search(text, tokens, limit)
    wanted = StoredQuery(text, kind, since, until)
    most = max(_LEAST_OF_MANY, _MOST_OF_ALL // max(len(session_ids), 1))
    passages: list[Passage] = []
    voices: list[tuple[str, str]] = []
    for number, session_id in enumerate(session_ids):  # the same ids stand for other originals in each session
        found = _find_candidates(store, session_id, wanted, most)
        start = number * _SESSION
        passages += (
            structs.replace(each, id=f"{number}:{each.id}", position=start + each.position) for each in found.passages
        )
        voices += ((f"{number}:{ref}", voice) for ref, voice in found.voices)
    hits = LineSelector(passages, counter, (), Exchanges(voices)).choose(text, tokens, limit)
    found_in: list[tuple[str, Hit]] = []
    for hit in hits:
        ref, exchange = (text.partition(":")[2] for text in (hit.id, hit.exchange))
        number, position = divmod(hit.position, _SESSION)
        found_in.append((session_ids[number], structs.replace(hit, id=ref, position=position, exchange=exchange)))
    return found_in


class StoredQuery(Struct, frozen=True):
    """What is searched for: words, and of which kind and time of archiving."""

    text: str
    kind: str = ""
    since: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        if self.kind and self.kind not in _KINDS:
            raise BadSetting(f"search: kind={self.kind!r:.40} is not a kind of content. Try: {', '.join(_KINDS)}.")


class _Candidates(Struct, frozen=True):
    """What may answer a question, in its order, and who speaks in each original of the session."""

    passages: list[Passage]
    voices: list[tuple[str, str]]


def _find_candidates(store: Store, session_id: str, wanted: StoredQuery, most: int) -> _Candidates:
    """What may answer, in about so many characters of what is in the index.

    What was said has a share of its own, and so has each token that is spelled out, whatever else is asked. With it
    come the turns that open and close its exchanges.
    """
    kind = _TURN if wanted.kind in _VOICES else wanted.kind
    times = {"since": stored_time("since", wanted.since), "until": stored_time("until", wanted.until)}
    words = _terms(wanted.text)
    unindexed: list[Passage] = []
    try:
        index_archived(store, session_id)
    except StoreError:  # it can be read but not written: what the index lacks is looked through as it is
        missing = [each for each in store.unindexed(session_id) if _is_of(each.original, kind, **times)]
        unindexed = [each for each in cut_unindexed(store, missing) if words.keys() & set(terms(each.text))]
    runs = store.search(session_id, words, most=most, kind=kind, **times)
    if words and not kind:
        runs += store.search(session_id, words, most=most // 2, kind=_TURN, **times)
    for token in exact_tokens(wanted.text):
        spelled = dict.fromkeys(terms(token), 1.0)
        runs += store.search(session_id, spelled, most=most // 4, kind=kind, **times) if spelled else []
    passages = _passages(runs) + unindexed
    rows = store.originals(session_id)
    if not kind and not any(times.values()):
        exchanges = Exchanges(_voices(rows, passages))
        refs = [passage.id for passage in passages if passage.kind in SPOKEN_KINDS]
        framing = exchanges.frame_of({*(passage.id for passage in passages), *exchanges.newest(_EXCHANGES)})
        runs += store.beginnings(session_id, framing, _FRAME)
        runs += store.beginnings(session_id, exchanges.agent_turns_around(refs, _TURNS_AROUND), 0)
        passages = _passages(runs) + unindexed
    if wanted.kind in _VOICES:
        passages = [passage for passage in passages if passage.kind == wanted.kind]
    return _Candidates(passages, _voices(rows, passages))


def _passages(runs: Iterable[FoundRun]) -> list[Passage]:
    """The passages of runs in their order, each once."""
    every = {run.position: run for run in runs}
    return [passage for position in sorted(every) for passage in load_passages(every[position])]


def _voices(rows: Iterable[OriginalRow], passages: Iterable[Passage]) -> list[tuple[str, str]]:
    """Who speaks in each original: by its passages, or by its summary where not all of them are here."""
    known = dict(voices_of(passages))
    return [(row.ref, known.get(row.ref) or voice_in_summary(row.summary)) for row in rows]


def _is_of(original: OriginalRow, kind: str, since: str, until: str) -> bool:
    return kind in ("", original.kind) and since <= original.created_at and (not until or original.created_at < until)


def _terms(text: str) -> dict[str, float]:
    """The terms of a question with their weights, no more than a search can look at; else its signs."""
    weights = read_query(text).weights or dict.fromkeys(signs(text), 1.0)
    heaviest = sorted(weights, key=lambda term: (-weights[term], -len(term)))
    return {term: weights[term] for term in heaviest[:_MOST_TERMS]}


def stored_time(name: str, text: str) -> str:
    """A time in the form in which times are stored; without a zone it is the local time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="milliseconds") if text else ""
    except (TypeError, ValueError, OverflowError) as error:
        raise BadSetting(f"search: {name}={text!r:.40} is not a time. Try: 2026-01-26, or 2026-01-26T14:30.") from error
