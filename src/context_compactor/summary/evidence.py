"""What a model's answer is held against, and how an objection to it is put."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import user_sayings
from context_compactor.messages.message import ToolResult
from context_compactor.messages.turn import Turn
from context_compactor.summary.exact import references_in

WORD = re.compile(r"\w+")


class Objection(Struct, frozen=True):
    """Why a text is refused: a code for the report, words for whoever writes it again."""

    code: str
    words: str

    @property
    def advice(self) -> str:
        """The words for whoever writes it again, without the text that was objected to: it may be an order itself."""
        return self.words.partition(": ")[0] if self.code in _QUOTING else self.words


_QUOTING = ("tool_syntax", "role_mark", "frame", "continued", "refusal", "instruction", "unspoken")


class Evidence(Struct, frozen=True):
    """What an answer is held against: the text that was shown, who said what in it, and what is known of it.

    `said` are the words and calls of the user and the agent; `spoken`, `user` and `results` are words alone.
    """

    source: str
    tokens: int
    user: str
    said: str
    spoken: str
    results: str
    refs: frozenset[str]
    language: str
    budget: int
    facts: tuple[Fact, ...] = ()


def gather_evidence(
    turns: Sequence[Turn], source: str, tokens: int, language: str, budget: int, facts: Sequence[Fact] = ()
) -> Evidence:
    """The evidence of these turns; `source` is all that the model was shown, an earlier summary with it.

    `tokens` are those of everything that the whole summary stands for, of which this may be a part.
    """
    results = [part.text for turn in turns for _, _, _, part in turn.parts() if isinstance(part, ToolResult)]
    said = [message.text for turn in turns for message in turn.messages if message.role != "tool"]
    calls = [call.arguments for turn in turns for message in turn.messages for call in message.calls]
    user = "\n".join(saying.text for saying in user_sayings(turns))
    return Evidence(
        source=source,
        tokens=tokens,
        user=flat(user),
        said="\n".join((*said, *calls)),
        spoken=flat("\n".join((*said, *calls))),
        results=flat("\n".join(results)),
        refs=frozenset(references_in(source) | {fact.ref for fact in facts}),
        language=language,
        budget=budget,
        facts=tuple(facts),
    )


def flat(text: str) -> str:
    """The words of a text with one blank between them, in small letters."""
    return " ".join(WORD.findall(text.lower()))
