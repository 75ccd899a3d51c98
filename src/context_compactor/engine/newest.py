"""The newest turns as text: where a context is to be one message, they stand at the end of its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.classify.rules import Verdicts
from context_compactor.facts.speech import own_words
from context_compactor.messages.ends import beginning, ending
from context_compactor.messages.record import GAP, Excerpt
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.sources import call_body

# Of a long text in the newest turns at most this share of their room is shown, its beginning and its end.
_LONG_SHARE = 0.4
_CHARACTERS = 3.5


def newest_excerpts(turns: Sequence[Turn], verdicts: Verdicts, tokens: int) -> tuple[Excerpt, ...]:
    """The last of these turns as they were, as many as fit into so many tokens; long texts are cut in their middle."""
    room = int(tokens * _CHARACTERS)
    chosen: list[list[Excerpt]] = []
    for turn in reversed(turns):
        excerpts = [*_excerpts(turn, verdicts, int(room * _LONG_SHARE))]
        size = sum(len(line) + 1 for excerpt in excerpts for line in (excerpt.label, *excerpt.lines))
        if size > room:
            break
        room -= size
        chosen.append(excerpts)
    return tuple(excerpt for excerpts in reversed(chosen) for excerpt in excerpts if excerpt.lines)


def _excerpts(turn: Turn, verdicts: Verdicts, longest: int) -> Iterator[Excerpt]:
    ref = reference_id("turn", turn.number)
    for message in turn.messages:
        words = message.text if message.role == "assistant" else own_words(message)
        if words.strip() and message.role in ("user", "assistant"):
            speaker = "agent" if message.role == "assistant" else "user"
            yield Excerpt(ref, speaker, _lines(words, longest))
    for use in turn.exchanges:
        verdict = verdicts.exchanges[use.number]
        if use.call is not None:
            yield Excerpt(ref, f"{verdict.label} · call", _lines(call_body(use.call), longest))
        if use.result is not None:
            yield Excerpt(verdict.ref, f"{verdict.label} · result", _lines(use.result.text, longest))


def _lines(text: str, longest: int) -> tuple[str, ...]:
    text = text.strip("\n")
    if len(text) <= longest:
        return tuple(line for line in text.split("\n") if line.strip())
    head, tail = beginning(text, longest * 2 // 3), ending(text, longest // 3)
    return tuple(line for line in (*head.split("\n"), GAP, *tail.split("\n")) if line.strip())
