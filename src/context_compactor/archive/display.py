"""An archived turn as a reader sees it: who said what, the calls and the results, with the turns beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

from msgspec import Struct

from context_compactor.archive.originals import Original, voice_in_summary
from context_compactor.archive.search.passages import INSTRUCTIONS, parts_with_voice
from context_compactor.dialects.detection import likely_dialect
from context_compactor.dialects.messages import Media, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.errors import BadInput
from context_compactor.facts.calls import call_body, describe_call
from context_compactor.facts.kinds import Voice

TURN = "turn"
_ROLE_LABELS = {"assistant": "agent"}
_VOICE_LABELS = {Voice.THINKING.value: "agent, thinking", INSTRUCTIONS: "client"}
# Of a result that can be recalled by itself so many characters are shown, from its beginning and from its end.
_BEGINNING, _END = 1_200, 400
_WORDS = 60


class TurnEntry(Struct, frozen=True):
    """One line of the index of turns: who speaks, the first words or calls, and how long it is.

    What `is_shown` still stands in the context.
    """

    id: str
    who: str
    text: str
    tokens: int
    is_shown: bool = False

    @property
    def number(self) -> int:
        """The number of the turn."""
        return int(self.id.rpartition("_")[2])

    def line(self) -> str:
        """The line as it is printed."""
        return f"{self.id} {self.who}: {self.text} ({self.tokens:,} tokens{', in the context' * self.is_shown})"


def turn_entry(ref: str, summary: str, tokens: int, *, is_shown: bool = False) -> TurnEntry:
    """The line of a turn, from its summary."""
    role, _, words = summary.partition(": ")
    who = "client" if role == "user" and not voice_in_summary(summary) else _ROLE_LABELS.get(role, role)
    return TurnEntry(ref, who, words.strip() or "[no words]", tokens, is_shown)


class Surroundings(Struct, frozen=True):
    """What stands beside a turn: the turns before and behind it, and originals among which its results are."""

    before: TurnEntry | None = None
    after: TurnEntry | None = None
    results: Sequence[Original] = ()


def render_original(original: Original, beside: Surroundings) -> str:
    """An original as text: a turn as a conversation, a result as it was, its pieces one under another."""
    messages = turn_messages(original)
    if messages is None:
        return original.readable
    results = _Results(beside.results)
    lines = [line for message in messages for line in _message_lines(message, results)]
    head = f"[{original.id}{_neighbours(beside)}]"
    return "\n".join([head, *lines])


def turn_messages(original: Original) -> list[Message] | None:
    """The messages of a turn; None for anything else."""
    if original.kind != TURN or not isinstance(original.value, list):
        return None
    try:
        return likely_dialect(original.value).parse(original.value)
    except BadInput:
        return None


def neighbours(turns: Iterable[TurnEntry], ref: str) -> tuple[TurnEntry | None, TurnEntry | None]:
    """The turns right before and right behind one, of those that are known."""
    number = int(ref.rpartition("_")[2])
    every = sorted(turns, key=lambda turn: turn.number)
    before = [turn for turn in every if turn.number < number][-1:]
    after = [turn for turn in every if turn.number > number][:1]
    return next(iter(before), None), next(iter(after), None)


class HasKind(Protocol):
    """Whatever stands for an original in an archive."""

    @property
    def kind(self) -> str:
        """What kind of original it is."""
        ...


T = TypeVar("T", bound=HasKind)


def results_beside(archived: Sequence[T], at: int) -> list[T]:
    """Those between a turn and the turns beside it in the archive.

    A turn is archived with its results behind it; one that was not finished then, behind its results.
    """
    after = takewhile(_is_result, archived[at + 1 :])
    before = takewhile(_is_result, reversed(archived[:at]))
    return [*after, *before]


def _is_result(archived: HasKind) -> bool:
    return archived.kind != TURN


def _neighbours(beside: Surroundings) -> str:
    named = {"before": beside.before, "after": beside.after}
    return "".join(f"; {place}: {turn.id} ({_short(turn)})" for place, turn in named.items() if turn is not None)


def _short(turn: TurnEntry) -> str:
    text = turn.text if len(turn.text) <= _WORDS else f"{turn.text[:_WORDS].rstrip()}…"
    return f"{turn.who}: {text}"


class _Results:
    """The ids of results, each given out once, to the result that it stands for."""

    def __init__(self, originals: Iterable[Original]) -> None:
        self._left = list(originals)

    def id_of(self, part: ToolResult) -> str:
        """The id of a result; empty when it is not archived by itself."""
        value = part.text if part.content is None else part.content
        for at, original in enumerate(self._left):
            if original.value == value:
                return self._left.pop(at).id
        return ""


def _message_lines(message: Message, results: _Results) -> Iterator[str]:
    for voice, part in parts_with_voice(message):
        if isinstance(part, (Text, Thinking)):
            if part.text.strip():
                yield f"{_VOICE_LABELS.get(voice, voice)}: {part.text.strip()}"
        elif isinstance(part, ToolCall):
            yield from _call_lines(part)
        elif isinstance(part, ToolResult):
            yield from _result_lines(part, results.id_of(part))
        else:
            yield _other_line(part)


def _call_lines(call: ToolCall) -> Iterator[str]:
    """What a call is about, and all of its arguments where that leaves some out."""
    label = describe_call(call)
    body = call_body(call).strip()
    words = set(label.replace("`", " ").split())
    yield label if words.issuperset(body.split()) else f"{label}\n{body}"


def _result_lines(part: ToolResult, ref: str) -> Iterator[str]:
    failed = ", failed" if part.is_error else ""
    yield f"→ {ref or 'result'} ({len(part.text) // 4:,} tokens{failed}):"
    yield _cut(part.text, ref) if ref else part.text


def _cut(text: str, ref: str) -> str:
    """The beginning and the end of a long result, at whole lines, with a mark where the rest is left out."""
    if len(text) <= _BEGINNING + 2 * _END:
        return text
    start = text.rfind("\n", _BEGINNING // 2, _BEGINNING) + 1 or _BEGINNING
    end = text.find("\n", len(text) - _END, len(text) - _END // 2) + 1 or len(text) - _END
    left_out = (end - start) // 4
    return f'{text[:start].rstrip()}\n[… {left_out:,} tokens left out: recall("{ref}")]\n{text[end:]}'


def _other_line(part: Part) -> str:
    kind = part.kind if isinstance(part, Media) else part.type if isinstance(part, Opaque) else "part"
    return f"[{kind}]"
