"""Samples: a conversation, where it is cut, and what its future wants from its history."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.evaluation.corpus import HistoryCut, RecordedConversation, history_cuts
from context_compactor.evaluation.messages import RawMessage
from context_compactor.evaluation.wanted import WantedItems, find_wanted


class Sample(Struct, frozen=True):
    """One cut of one conversation and what its future wants."""

    conversation: RecordedConversation
    cut: HistoryCut
    wanted: WantedItems

    @property
    def id(self) -> str:
        """The conversation's id and the cut's label."""
        return f"{self.conversation.id}@{self.cut.label}"

    @property
    def history(self) -> list[RawMessage]:
        """What the agent knew at the cut."""
        return self.cut.history(self.conversation)


def samples_of(conversation: RecordedConversation, common: frozenset[str] = frozenset()) -> list[Sample]:
    """Every cut of a conversation; the `common` identifiers are not wanted."""
    return [Sample(conversation, cut, find_wanted(conversation, cut, common)) for cut in history_cuts(conversation)]
