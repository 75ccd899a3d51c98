"""Passages: originals cut into the few lines that a search finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from context_compactor.archive.archive import Original
from context_compactor.classify.kinds import Kind, Voice
from context_compactor.errors import BadInput
from context_compactor.messages.client_text import is_client_text, without_client_blocks
from context_compactor.messages.detect import detect
from context_compactor.messages.message import Message, Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.plan.sources import call_body

TALK = frozenset({Voice.USER.value, Voice.AGENT.value, Voice.THINKING.value})
SAID = frozenset({Voice.USER.value, Voice.AGENT.value})
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

    def goes_on_in(self, other: Passage) -> bool:
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
    for kind, text in read_original(original):
        for passage in cut_text(text, original.id, kind, position, line):
            yield passage
            position += 1
        line += text.count("\n") + 1


def read_original(original: Original) -> list[tuple[str, str]]:
    """The texts of an original as a reader sees them, each with its kind: a result is one, a turn has several.

    The lines of a hit are counted through all of them. A turn is read without its results, which are originals of
    their own.
    """
    if original.kind == "turn" and isinstance(original.value, list):
        try:
            return _read_turn(detect(original.value).parse(original.value))
        except BadInput:
            pass  # a turn that is no list of messages is shown as it is
    return [(original.kind, original.readable)]


def _read_turn(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(voice, _words(part)) for message in messages for voice, part in voiced(message) if voice]


def voiced(message: Message) -> Iterator[tuple[str, Part]]:
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
    most_lines, most_size = (_TALK_LINES, _TALK_SIZE) if kind in TALK else (1, _LINE_SIZE)
    run: list[str] = []
    start = size = 0
    for at, content in enumerate(_lines(text), line):
        offset = _number_width(content) if kind == Kind.CODE else 0
        if run and (not content.strip() or size + len(content) > most_size or len(run) == most_lines):
            yield Passage(ref, position, "\n".join(run), kind, start)
            position += 1
            run, size = [], 0
        if len(content) - offset > most_size or offset:
            for begin, end in _pieces(content, offset, most_size, is_talk=kind in TALK):
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


def _number_width(line: str) -> int:
    numbered = _NUMBERED.match(line)
    return numbered.end() if numbered else 0


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
