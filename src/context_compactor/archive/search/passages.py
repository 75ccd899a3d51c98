"""Originals cut into passages, the exchanges they stand in, and the hits a search returns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.dialects.client_text import is_client_text, without_client_blocks
from context_compactor.dialects.detection import likely_dialect
from context_compactor.dialects.messages import Message, Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.errors import BadInput
from context_compactor.facts.calls import call_body
from context_compactor.facts.kinds import Kind, Voice

TALK_KINDS = frozenset({Voice.USER.value, Voice.AGENT.value, Voice.THINKING.value})
SPOKEN_KINDS = frozenset({Voice.USER.value, Voice.AGENT.value})
INSTRUCTIONS = "instructions"

_TALK_LINES, _TALK_SIZE = 4, 600
_LINE_SIZE = 200
# Behind a command, what is longer than this was not typed.
_LONGEST_REMARK = 1_500
# Characters that are split into lines in one step.
_AT_ONCE = 1 << 16
_NOT_TYPED = re.compile(r"<command-args>\s*</command-args>")
_SENTENCE_END = re.compile(r"[.!?\u2026][\"')\]]*\s+|[\u3002\uff01\uff1f]")
_NUMBERED = re.compile(r" {0,8}\d+(?:→|\t)")


class Passage(Struct, frozen=True):
    """Some lines of an original, or a piece of a long one, under the id that recalls the whole.

    `position` counts the passages of a history, of which some may be missing; `line` is the first line, from 1.
    """

    id: str
    position: int
    text: str
    kind: str
    line: int = 1

    @property
    def last_line(self) -> int:
        """The line on which the passage ends."""
        return self.line + self.text.count("\n")

    def continues_in(self, other: Passage) -> bool:
        """Whether nothing but blank lines stands between this passage and another."""
        return (self.id, self.kind, self.position + 1) == (other.id, other.kind, other.position)


def cut_originals(originals: Iterable[Original]) -> list[Passage]:
    """The passages of all originals, in their order."""
    found: list[Passage] = []
    for original in originals:
        found.extend(cut_original(original, len(found)))
    return found


def cut_original(original: Original, position: int = 0) -> Iterator[Passage]:
    """The passages of an original, one by one."""
    line = 1
    for kind, text in original_texts(original):
        for passage in cut_text(text, original.id, kind, position, line):
            yield passage
            position += 1
        line += text.count("\n") + 1


def original_texts(original: Original) -> list[tuple[str, str]]:
    """The texts of an original as a reader sees them, each with its kind: a result is one, a turn has several.

    The lines of a hit are counted through all of them. A turn is read without its results, which are originals of
    their own.
    """
    if original.kind == "turn" and isinstance(original.value, list):
        try:
            messages = likely_dialect(original.value).parse(original.value)
            return [(voice, _words(part)) for message in messages for voice, part in parts_with_voice(message) if voice]
        except BadInput:
            pass  # a turn that is no list of messages is shown as it is
    return [(original.kind, original.readable)]


def parts_with_voice(message: Message) -> Iterator[tuple[str, Part]]:
    """Each part of a message with who speaks in it, or nothing for a result.

    What a client adds in the user's name is instructions: reminders, its own notes, what a command stands for.
    """
    is_expanded = False
    for part in message.parts:
        voice = _voice(part, message.role)
        if voice == Voice.USER and isinstance(part, Text):
            voice = INSTRUCTIONS if _is_by_client(part.text, is_expanded) else voice
            is_expanded = is_expanded or "<command-name>" in part.text
        yield voice, part


def _voice(part: Part, role: str) -> str:
    if isinstance(part, Text):
        return {"assistant": Voice.AGENT.value, "system": INSTRUCTIONS, "developer": INSTRUCTIONS}.get(
            role, Voice.USER.value
        )
    if isinstance(part, Thinking):
        return Voice.THINKING.value
    return Voice.CALL.value if isinstance(part, ToolCall) else ""


def _is_by_client(text: str, is_expanded: bool) -> bool:
    """Whether nothing of a text is the user's own; behind a command stands the long text that it is short for."""
    if is_client_text(text) or (is_expanded and len(text) > _LONGEST_REMARK):
        return True
    return bool(text.strip()) and not without_client_blocks(_NOT_TYPED.sub("", text)).strip()


def _words(part: Part) -> str:
    if isinstance(part, ToolCall):
        return f"{part.name} {call_body(part)}"
    return part.text if isinstance(part, (Text, Thinking, ToolResult)) else ""


def texts_of(messages: Iterable[Message]) -> list[str]:
    """Everything that a reader of the messages sees."""
    return [_words(part) for message in messages for part in message.parts]


def cut_text(text: str, ref: str, kind: str, position: int = 0, line: int = 1) -> Iterator[Passage]:
    """A text in passages: talk a few lines at a time, anything else line by line; long lines in pieces.

    Blank lines are left out, and so are the line numbers that a reading tool put before the lines of a file.
    """
    most_lines, most_size = (_TALK_LINES, _TALK_SIZE) if kind in TALK_KINDS else (1, _LINE_SIZE)
    run: list[str] = []
    start = size = 0
    for at, content in enumerate(_lines(text), line):
        numbered = _NUMBERED.match(content) if kind == Kind.CODE else None
        offset = numbered.end() if numbered else 0
        if run and (not content.strip() or size + len(content) > most_size or len(run) == most_lines):
            yield Passage(ref, position, "\n".join(run), kind, start)
            position += 1
            run, size = [], 0
        if len(content) - offset > most_size or offset:
            for begin, end in _pieces(content, offset, most_size, is_talk=kind in TALK_KINDS):
                yield Passage(ref, position, content[begin:end], kind, at)
                position += 1
        elif content.strip():
            start = start if run else at
            run.append(content)
            size += len(content) + 1
    if run:
        yield Passage(ref, position, "\n".join(run), kind, start)


def _lines(text: str) -> Iterator[str]:
    """The same as splitting at each line break, though not all at once: other threads wait for a single long step."""
    start = 0
    while start <= len(text):
        end = text.find("\n", start + _AT_ONCE)
        end = len(text) if end < 0 else end
        yield from text[start:end].split("\n")
        start = end + 1


def _pieces(line: str, begin: int, size: int, *, is_talk: bool) -> Iterator[tuple[int, int]]:
    """Where to cut a long line: talk behind a sentence, anything else behind a space or bracket of its second half."""
    while begin < len(line):
        end = begin + size
        if end < len(line):
            half = end - size // 2
            sentence = max((found.end() for found in _SENTENCE_END.finditer(line, half, end)), default=0)
            mark = max(line.rfind(mark, half, end) for mark in " ,;)]}") + 1
            end = (is_talk and sentence) or mark or end
        if line[begin:end].strip():
            yield begin, end
        begin = end


class Exchanges:
    """The exchanges of a history, by the ids of its originals in their order."""

    def __init__(self, refs: Iterable[tuple[str, str]]) -> None:
        """Each original comes with who speaks in it: the user, the agent, or nobody."""
        self._number: dict[str, int] = {}
        self._user_turns: list[str] = [""]
        self._concluded: list[str] = [""]
        self._agent_turns: list[list[str]] = [[]]
        for ref, voice in refs:
            if voice == Voice.USER:
                self._user_turns.append(ref)
                self._concluded.append("")
                self._agent_turns.append([])
            elif voice == Voice.AGENT:
                self._concluded[-1] = ref
                self._agent_turns[-1].append(ref)
            self._number.setdefault(ref, len(self._user_turns) - 1)

    def of(self, ref: str) -> int:
        """The number of the exchange in which an original stands."""
        return self._number.get(ref, 0)

    def asked(self, number: int) -> str:
        """The id of the turn in which the user opened it; empty before the first."""
        return self._user_turns[number]

    def concluded(self, number: int) -> str:
        """The id of the turn with the agent's last words in it."""
        return self._concluded[number]

    def replied(self, number: int) -> str:
        """The id of the turn in which the user replied to that; empty when it is the last."""
        return self._user_turns[number + 1] if number + 1 < len(self._user_turns) else ""

    def agent_turns_around(self, refs: Iterable[str], most: int) -> list[str]:
        """Turns in which the agent said something, in the exchanges that hold most of some originals."""
        often = Counter(map(self.of, refs))
        return [ref for number, _ in often.most_common() for ref in self._agent_turns[number]][:most]

    def newest(self, count: int) -> list[str]:
        """The turns that opened the newest exchanges."""
        return [ref for ref in self._user_turns[-count:] if ref]

    def frame_of(self, refs: Iterable[str]) -> list[str]:
        """The turns that open and close the exchanges of some originals, and what the user replied."""
        frames = ((self.asked(each), self.concluded(each), self.replied(each)) for each in {*map(self.of, refs)})
        return [ref for frame in frames for ref in frame if ref]


def voices_of(passages: Iterable[Passage]) -> Iterator[tuple[str, str]]:
    """Each original with the first of its voices that says something; nothing where none does."""
    voices: dict[str, str] = {}
    for passage in passages:
        voices[passage.id] = voices.get(passage.id) or (passage.kind if passage.kind in SPOKEN_KINDS else "")
    yield from voices.items()


GAP = "…"


class Hit(Struct, frozen=True):
    """Lines of an original that match a search.

    `id` recalls the whole original. Lines are counted from 1 in the readable form of the original. `position` orders
    hits by the history. `exchange` is the turn with which the user began the exchange.
    """

    id: str
    kind: str
    first_line: int
    last_line: int
    text: str
    score: float
    position: int
    exchange: str = ""


def make_hits(chosen: Sequence[tuple[Passage, float]], exchanges: Exchanges) -> list[Hit]:
    """Join passages that follow one another, given in their order with their scores; the best hits come first."""
    hits = [_hit([passage for passage, _ in run], max(score for _, score in run), exchanges) for run in _joined(chosen)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.position))


def _joined(chosen: Sequence[tuple[Passage, float]]) -> Iterator[list[tuple[Passage, float]]]:
    joined = list(chosen[:1])
    for before, after in pairwise(chosen):
        if not before[0].continues_in(after[0]):
            yield joined
            joined = []
        joined.append(after)
    if joined:
        yield joined


def _hit(run: Sequence[Passage], score: float, exchanges: Exchanges) -> Hit:
    first, last = run[0], run[-1]
    parts = [first.text]
    for before, after in pairwise(run):
        parts += "\n" * (after.line - before.last_line), after.text
    asked = exchanges.asked(exchanges.of(first.id))
    text = "".join(parts)
    return Hit(first.id, first.kind, first.line, last.last_line, text, round(score, 4), first.position, asked)


def render_hits(hits: Sequence[Hit]) -> str:
    """Hits as text, in the order of the history: the id and kind of each original, its lines, and `…` at gaps."""
    blocks: list[str] = []
    open_head = ""
    for hit in sorted(hits, key=lambda hit: hit.position):
        head = heading(hit)
        blocks.append(f"{GAP}{hit.text}" if head == open_head else f"{head}{hit.text}")
        open_head = head
    return "\n".join(blocks)


def heading(shown: Hit | Passage) -> str:
    """What stands before the first lines of an original: talk goes on behind it, anything else under it."""
    return f"{shown.id}: " if shown.kind in TALK_KINDS else f"{shown.id} {shown.kind}:\n"


def group_by_exchange(hits: Sequence[Hit]) -> list[Hit]:
    """Hits for a reader: those of the exchange with the best one first, each exchange from its beginning to its end."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.exchange, []).append(hit)
    return [hit for group in groups.values() for hit in sorted(group, key=lambda hit: hit.position)]
