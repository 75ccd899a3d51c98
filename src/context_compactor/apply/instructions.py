"""Instructions are never touched, but for one case: a target that was asked for and that they would all but fill."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from context_compactor.archive.archive import Original
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.copying import copy_containers
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.ends import beginning, ending
from context_compactor.messages.message import Message, Text
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn

INSTRUCTIONS = reference_id("turn", 0)
# They stay whole while they are short, or leave a third of the target to the conversation; if not, they get a third.
_SHORT = 2000
_MOST = 2 / 3
_SHORTENED = 1 / 3
_HEAD = 2 / 3
_SHORT_TEXT = 800
_LEFT_OUT = "characters of these instructions left out"


class Fitted(Struct, frozen=True):
    """The turns as they go on; where instructions were shortened, what each weighed before, and their original."""

    turns: list[Turn]
    cut: dict[int, int] = {}
    originals: tuple[Original, ...] = ()


def fit_instructions(turns: Sequence[Turn], target: int, counter: MessageCounter, dialect: Dialect) -> Fitted:
    """The turns with their instructions shortened to fit a target; as they were when they do fit."""
    told = [turn for turn in turns if turn.is_instruction]
    cut = {turn.number: sum(map(counter.count, turn.messages)) for turn in told}
    tokens = sum(cut.values())
    if tokens <= max(_SHORT, _MOST * target):
        return Fitted(list(turns))
    share = _SHORTENED * target / tokens
    whole = [copy_containers(message.raw) for turn in told for message in turn.messages]
    recovery = f'recall("{INSTRUCTIONS}")'
    original = Original(INSTRUCTIONS, "instructions", "the instructions as they were", tokens, whole, recovery)
    fitted = [_shortened(turn, share, dialect) if turn.is_instruction else turn for turn in turns]
    return Fitted(fitted, cut, (original,))


def _shortened(turn: Turn, share: float, dialect: Dialect) -> Turn:
    return structs.replace(turn, messages=tuple(_short_message(message, share, dialect) for message in turn.messages))


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
    head = beginning(text, int(room * _HEAD))
    tail = ending(text, room - len(head))
    left = len(text) - len(head) - len(tail)
    return f'{head}\n[… {left:,} {_LEFT_OUT}: recall("{INSTRUCTIONS}")]\n{tail}'
