"""The request for a summary: the turns quoted as material, cut into chunks, behind the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from math import ceil
from typing import Any, TypeVar

from msgspec import Struct

from context_compactor.dialects.messages import Media, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.record import EXCERPTS, HAPPENED, SECTIONS
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.facts.calls import call_body, describe_call
from context_compactor.facts.failures import failure_of
from context_compactor.protocols import Model
from context_compactor.summarize.language import language_name
from context_compactor.summarize.model import ModelMessage, ModelRequest
from context_compactor.summarize.prompt import Prompt, built_in_prompt
from context_compactor.summarize.summary import Summary, plain, render_summary

_MARK_LENGTH = 8
_SPEAKERS = {"assistant": "agent", "tool": "agent"}


class QuotedTurn(Struct, frozen=True):
    """One turn as it is shown: a heading of ours and a body. Reasoning is left out; `reasoning` is its length."""

    turn: int
    heading: str
    body: str
    reasoning: int = 0


def quote_turns(turns: Sequence[Turn]) -> list[QuotedTurn]:
    """Every turn but the instructions, which are never folded."""
    return [_quote_turn(turn) for turn in turns if not turn.is_fixed]


def _quote_turn(turn: Turn) -> QuotedTurn:
    failed = {each.result.call_id for each in turn.exchanges if each.result and failure_of(each, turn.number)}
    # Several calls are answered in any order: then each answer says what it answers.
    several = len(turn.exchanges) > 1
    names = {
        each.call.id: describe_call(each.call) if several else each.call.name for each in turn.exchanges if each.call
    }
    lines: list[str] = []
    reasoning = 0
    for _, _, _, part in turn.parts():
        if isinstance(part, Thinking):
            reasoning += len(part.text)
        else:
            lines.extend(_part_lines(part, names, failed))
    speaker = _SPEAKERS.get(turn.role, turn.role)
    return QuotedTurn(turn.number, f"{reference_id('turn', turn.number)} {speaker}", "\n".join(lines), reasoning)


def _part_lines(part: Part, names: dict[str, str], failed: set[str]) -> Iterator[str]:
    if isinstance(part, Media):
        yield f"[{part.kind}{f' {escape(part.title)}' if part.title else ''}]"
    elif isinstance(part, ToolCall):
        yield f"[calls {escape(part.name)}]"
        yield from quoted(call_body(part))
    elif isinstance(part, ToolResult):
        name = escape(names.get(part.call_id, "a call"))
        yield f"[{name} failed]" if part.call_id in failed else f"[{name} answered]"
        yield from quoted(part.text)
    elif isinstance(part, (Text, Opaque)):
        yield from quoted(part.text)


def quoted(text: str) -> Iterator[str]:
    """The lines of somebody else's text, each behind a blank."""
    return (f" {escape(line)}" for line in text.split("\n"))


def escape(line: str) -> str:
    """A line whose signs mean nothing to a tokenizer or a terminal: no control tokens, no half characters."""
    whole = line.encode("utf-8", "replace").decode().replace("<|", "< |").replace("|>", "| >")
    return "".join(sign if sign.isprintable() or sign == "\t" else " " for sign in whole)


def mark_for(text: str) -> str:
    """A mark that does not occur in a text."""
    mark = text
    while True:
        mark = sha256(mark.encode("utf-8", "replace")).hexdigest()
        if mark[:_MARK_LENGTH] not in text:
            return mark[:_MARK_LENGTH]


def framed(text: str, mark: str, what: str) -> str:
    """A text between two lines that carry the mark."""
    return f"=== {mark} {what} begins ===\n{text}\n=== {mark} {what} ends ==="


Count = Callable[[str], int]
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

# What a heading takes beside the text under it, and how many characters of it say what goes on.
_TURN_HEADING_TOKENS = 32
_LONGEST_WITHIN = 60
# A turn is cut into parts of about one size that leave some room, so that its small neighbours need no chunk each.
_FILLED = 0.9
_EVEN = 1.05


class TurnPart(Struct, frozen=True):
    """A part of a turn's text, from one character to before another."""

    turn: int
    start: int
    end: int


class Chunk(Struct, frozen=True):
    """As much of a span as is shown at once."""

    text: str
    tokens: int
    pieces: tuple[TurnPart, ...]

    @property
    def turns(self) -> frozenset[int]:
        """The turns that have a part in it."""
        return frozenset(piece.turn for piece in self.pieces)


class Coverage(Struct, frozen=True):
    """How many tokens of a span a model was shown, in how many chunks.

    `refused` of these got no usable answer, and their ledgers stand for them. `reasoning` tokens are left out on
    purpose and not among the others.
    """

    tokens: int = 0
    shown: int = 0
    chunks: int = 0
    reasoning: int = 0
    refused: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1: only 1 will do."""
        return self.shown / self.tokens if self.tokens else 1.0


def cut_chunks(quotes: Sequence[QuotedTurn], most: int, count: Count) -> list[Chunk]:
    """All quoted turns in order, in chunks of at most so many tokens."""
    chunks: list[Chunk] = []
    lines: list[str] = []
    pieces: list[TurnPart] = []
    tokens = 0
    for text, piece, cost in _pieces(quotes, max(most - _TURN_HEADING_TOKENS, 1), count):
        if pieces and tokens + cost > most:
            chunks.append(Chunk("\n".join(lines), tokens, tuple(pieces)))
            lines, pieces, tokens = [], [], 0
        lines.append(text)
        pieces.append(piece)
        tokens += cost
    return [*chunks, Chunk("\n".join(lines), tokens, tuple(pieces))] if pieces else chunks


def _pieces(quotes: Sequence[QuotedTurn], most: int, count: Count) -> Iterator[tuple[str, TurnPart, int]]:
    for quote in quotes:
        whole = count(quote.body)
        size = min(int(_EVEN * whole / ceil(whole / (_FILLED * most))) + 1, most) if whole > most else whole
        places = [(0, len(quote.body), whole)] if whole <= most else list(_cut(quote.body, size, count))
        for number, (start, end, cost) in enumerate(places, 1):
            part = f", part {number} of {len(places)}{_within(quote.body, start)}" if len(places) > 1 else ""
            body = quote.body[start:end]
            yield f"[{quote.heading}{part}]\n{body}", TurnPart(quote.turn, start, end), cost + _TURN_HEADING_TOKENS


def _within(body: str, start: int) -> str:
    """In what a part begins, by the line of ours that stands above it: what follows may be the middle of a file."""
    above = [line for line in body[:start].splitlines() if line.startswith("[")]
    return f", within {above[-1][1:-1][:_LONGEST_WITHIN]}" if above and above[-1].endswith("]") else ""


def _cut(text: str, most: int, count: Count) -> Iterator[tuple[int, int, int]]:
    """A long text in runs of lines; a line that is too long by itself is cut inside."""
    start = end = tokens = 0
    for line in text.splitlines(keepends=True):
        for part in _parts(line, most, count):
            cost = count(part)
            if end > start and tokens + cost > most:
                yield start, end, tokens
                start, tokens = end, 0
            end += len(part)
            tokens += cost
    if end > start:
        yield start, end, tokens


def _parts(line: str, most: int, count: Count) -> Iterator[str]:
    while line and count(line) > most:
        length = _longest(line, most, count)
        yield line[:length]
        line = line[length:]
    if line:
        yield line


def _longest(line: str, most: int, count: Count) -> int:
    """How many characters of a line stay within so many tokens; one at least, or nothing would ever end."""
    low, high = 1, min(len(line) - 1, most * 8)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(line[:middle]) <= most else (low, middle - 1)
    return max(low, 1)


def measure_coverage(quotes: Sequence[QuotedTurn], shown: Sequence[Chunk], count: Count) -> Coverage:
    """How much of the quoted turns these chunks show, by the places in their texts."""
    places: dict[int, list[tuple[int, int]]] = {}
    for piece in (piece for chunk in shown for piece in chunk.pieces):
        places.setdefault(piece.turn, []).append((piece.start, piece.end))
    tokens = covered = reasoning = 0
    for quote in quotes:
        cost, length = count(quote.body), len(quote.body)
        tokens += cost
        seen = _length(places.get(quote.turn, ()))
        covered += cost if seen == length else cost * seen // length
        reasoning += quote.reasoning // 4
    return Coverage(tokens, covered, len(shown), reasoning)


def _length(places: Sequence[tuple[int, int]]) -> int:
    """How many characters the places cover, each counted once."""
    reached = seen = 0
    for start, end in sorted(places):
        seen += max(end - max(start, reached), 0)
        reached = max(reached, end)
    return seen


def map_parallel(
    work: Callable[[_Item], _Answer], items: Sequence[_Item], limit: int, stop: Callable[[], None] = lambda: None
) -> list[_Answer]:
    """The answer to each item in order, so many at once. When one raises, those not begun are not begun.

    When the user interrupts it, `stop` ends those that run.
    """
    if len(items) < 2 or limit < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(limit, len(items)), thread_name_prefix="summary") as pool:
        waiting = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in waiting]
        except KeyboardInterrupt:
            stop()
            raise
        finally:
            for future in waiting:
                future.cancel()


_EARLIER = (
    "This is the record of the turns before these. Yours takes its place, so bring it up to date: keep its lines as "
    "they are while they hold, change those that the turns have overtaken, and add what is new."
)
_SYSTEM = "This is what the agent works by; it stays in its context, so do not repeat it."
_ABOVE = "The turns are the conversation above this message, up to here. These are their ids:"
# How much longer than asked an answer may get before it is cut off, and what the headings take.
_LEDGER_HEADING_TOKENS = 150
_SLACK = 1.5


class PromptMaterial(Struct, frozen=True):
    """What a model is shown: some turns, and what stands before them. All but `previous` was quoted already.

    With a `prefix` the turns are the conversation's own messages, and `text` is only the list of their ids.
    """

    text: str
    system: str = ""
    previous: Summary = Summary()
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}


class SummaryAssignment(Struct, frozen=True):
    """What is asked for: by which prompt, in which language, in how many tokens, and with what in view."""

    prompt: Prompt
    language: str
    tokens: int
    focus: str = ""
    is_roomy: bool = False
    """Let the answer run longer than it should before it is cut off."""


def build_request(
    assignment: SummaryAssignment, material: PromptMaterial, model: Model, objections: Sequence[str] = ()
) -> ModelRequest:
    """The request to write the record of some material. `objections` say what was wrong with an answer before."""
    earlier = "\n".join(escape(line) for line in render_summary(material.previous).split("\n"))
    mark = mark_for(f"{material.system}\n{earlier}\n{material.text}")
    shown = f"{_ABOVE}\n{material.text}" if material.prefix else framed(material.text, mark, "conversation")
    parts = [
        f"{_SYSTEM}\n{framed(material.system, mark, 'system text')}\n"
        if material.system and not material.prefix
        else "",
        f"{_EARLIER}\n{framed(earlier, mark, 'earlier record')}\n" if earlier else "",
        shown,
    ]
    asked = {"language": language_name(assignment.language), "tokens": str(assignment.tokens)}
    frame = built_in_prompt("frame").fill(mark=mark, **asked)
    question = assignment.prompt.fill(
        messages="\n".join(filter(None, parts)), headings=headings(), focus=focus_line(assignment.focus), **asked
    )
    if objections:
        question += "\n" + built_in_prompt("again").fill(objections="\n".join(f"- {words}" for words in objections))
    messages: tuple[ModelMessage, ...] = (ModelMessage("system", frame), ModelMessage("user", question))
    if material.prefix:  # the prefix has instructions of its own: a second system text is not taken everywhere
        messages = (ModelMessage("user", f"{frame}\n{question}"),)
    room = answer_room(assignment, model)
    return ModelRequest(messages=messages, max_tokens=room, prefix=material.prefix, beside=material.beside)


def headings() -> str:
    """The headings of the record, as a prompt may name them."""
    return "\n".join(f"## {plain(title)}" for title in (*SECTIONS, HAPPENED, EXCERPTS))


def focus_line(focus: str) -> str:
    """The line that says what the user wants most attention for; nothing without a focus."""
    words = escape(" ".join(focus.split()))
    return f"Pay most attention to what concerns: {words}\n" if words else ""


def answer_room(assignment: SummaryAssignment, model: Model) -> int:
    """The most tokens the answer may have: what was asked for with some slack, always within the model's limits."""
    wanted = int(assignment.tokens * _SLACK) + _LEDGER_HEADING_TOKENS
    return max(min(wanted * 4 if assignment.is_roomy else wanted, model.most_output, model.window // 2), 1)


def request_tokens(request: ModelRequest, count: Count) -> int:
    """The tokens of a request's own messages, without its prefix."""
    return sum(count(message.text) + 4 for message in request.messages)


def room_for_text(assignment: SummaryAssignment, model: Model, count: Count, before: PromptMaterial) -> int:
    """How many tokens of turns fit into one request beside all else; our counts may be a tenth too low."""
    bare = build_request(assignment, before, model)
    return int(model.window * 0.9) - bare.max_tokens - request_tokens(bare, count)
