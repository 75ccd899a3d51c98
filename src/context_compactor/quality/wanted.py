"""What the future of a conversation needs from its history: worked out once per sample, for every method."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.quality.corpus import Conversation
from context_compactor.quality.cutting import Cut
from context_compactor.quality.failures import Failure, failures
from context_compactor.quality.names import Name, recalled_names, with_company
from context_compactor.quality.question import Question, questions
from context_compactor.quality.reading import read_messages
from context_compactor.quality.wording import Span, copied_spans, edited_lines


class Wanted(Struct, frozen=True):
    """Everything one sample asks of a context.

    `calls` are the next ten calls that need something from memory: indexes into `names`.
    """

    names: tuple[Name, ...]
    calls: tuple[tuple[int, ...], ...]
    spans: tuple[Span, ...]
    edits: tuple[Span, ...]
    failures: tuple[Failure, ...]
    questions: tuple[Question, ...] = ()


def wanted(conversation: Conversation, cut: Cut, common: frozenset[str] = frozenset()) -> Wanted:
    """What F takes from H: names, calls, wording, edited lines, and the failures of H."""
    history = read_messages(cut.history(conversation))
    future = read_messages(cut.future(conversation))
    names, calls = recalled_names(history, future, common)
    return Wanted(
        names=tuple(with_company(name, history) for name in names),
        calls=tuple(calls),
        spans=tuple(copied_spans(history, future)),
        edits=tuple(edited_lines(history, future)),
        failures=tuple(failures(history)),
        questions=tuple(questions(cut.future(conversation), names)),
    )
