"""The beginning and the end of what is too long by itself: instructions that would fill the target, and tool
outputs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from context_compactor.archive.originals import Original
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Text
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.engine.classify import Verdict
from context_compactor.facts.failures import failed_mark
from context_compactor.json_values import copy_containers
from context_compactor.text import beginning, ending
from context_compactor.tokens.counting import MessageCounter

MAX_OUTPUT_TOKENS = 2_000
_OUTPUT_HEAD = 0.6


def truncate_output(text: str, tokens: int, verdict: Verdict, most: int) -> str:
    """The first and last lines of an output within about so many tokens; a failed one begins with its error."""
    error = f"{failed_mark(verdict.failure.error)}\n" if verdict.failure else ""
    room = max(int(len(text) * most / max(tokens, 1)) - len(error), 200)
    head = beginning(text, int(room * _OUTPUT_HEAD))
    tail = ending(text, room - len(head))
    gone = text[len(head) : len(text) - len(tail)]
    left = max(round(tokens * len(gone) / len(text)), 1)
    what = f"{gone.count(chr(10)):,} lines, " if "\n" in gone else ""
    return f'{error}{head}\n[… {what}{left:,} tokens left out: recall("{verdict.ref}")]\n{tail}'


INSTRUCTIONS = reference_id("turn", 0)
# They stay whole while they are short, or leave a third of the target to the conversation; if not, they get a third.
_SHORT = 2000
_MOST = 2 / 3
_SHORTENED = 1 / 3
_INSTRUCTIONS_HEAD = 2 / 3
_SHORT_TEXT = 800
_LEFT_OUT = "characters of these instructions left out"


class FittedTurns(Struct, frozen=True):
    """The turns as they go on; where instructions were shortened, what each weighed before, and their original."""

    turns: list[Turn]
    cut: dict[int, int] = {}
    originals: tuple[Original, ...] = ()


def fit_instructions(turns: Sequence[Turn], target: int, counter: MessageCounter, dialect: Dialect) -> FittedTurns:
    """The turns with their instructions shortened to fit a target; as they were when they do fit."""
    instructions = [turn for turn in turns if turn.is_instruction]
    cut = {turn.number: sum(map(counter.count, turn.messages)) for turn in instructions}
    tokens = sum(cut.values())
    if tokens <= max(_SHORT, _MOST * target):
        return FittedTurns(list(turns))
    share = _SHORTENED * target / tokens
    whole = [copy_containers(message.raw) for turn in instructions for message in turn.messages]
    recovery = f'recall("{INSTRUCTIONS}")'
    original = Original(INSTRUCTIONS, "instructions", "the instructions as they were", tokens, whole, recovery)
    fitted = [
        structs.replace(turn, messages=tuple(_short_message(message, share, dialect) for message in turn.messages))
        if turn.is_instruction
        else turn
        for turn in turns
    ]
    return FittedTurns(fitted, cut, (original,))


def _short_message(message: Message, share: float, dialect: Dialect) -> Message:
    texts = {at: part.text for at, part in enumerate(message.parts) if isinstance(part, Text)}
    edits: dict[int, str | None] = {at: head_and_tail(text, share) for at, text in texts.items()}
    changed = {at: text for at, text in edits.items() if text != texts[at]}
    return (dialect.edit(message, changed) or message) if changed else message


def head_and_tail(text: str, share: float) -> str:
    """The beginning and the end of a text within a share of its length, with a mark that says what is left out.

    A short text stays, and so does one that was cut before.
    """
    if len(text) < _SHORT_TEXT or _LEFT_OUT in text:
        return text
    room = int(len(text) * share)
    head = beginning(text, int(room * _INSTRUCTIONS_HEAD))
    tail = ending(text, room - len(head))
    left = len(text) - len(head) - len(tail)
    return f'{head}\n[… {left:,} {_LEFT_OUT}: recall("{INSTRUCTIONS}")]\n{tail}'
