"""From turns to sources: every text of the history, cut into blocks of a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from context_compactor.classify.calls import read_call
from context_compactor.messages.jsontext import json_text
from context_compactor.messages.message import ToolCall
from context_compactor.plan.options import Block

LONG_LINE = 150
_MOST_BLOCKS = 4_000
_MOST_BLANKS = 3
_LONGEST = 2_000_000
_NUMBERED = re.compile(r"^ {0,8}\d+(?:→|\t)", re.MULTILINE)
_PIECE = re.compile(r".{1,150}(?:[\s,;}\])]|$)|.{1,150}")


class Grain(Struct, frozen=True):
    """How many lines a block has: of tool output, and of everything else."""

    result: int
    other: int


def grain_for(share: float) -> Grain:
    """The smaller the share of the history that may stay, the finer the choice."""
    if share >= 0.18:
        return Grain(result=4, other=4)
    return Grain(result=2, other=3)


def strip_numbers(text: str) -> str:
    """A file as it is, without the line numbers that a reading tool put in front of each line."""
    head = text[:400]
    if "→" not in head and "\t" not in head:
        return text
    lines = head.count("\n") + 1
    if len(_NUMBERED.findall(head)) * 2 < lines:
        return text
    return _NUMBERED.sub("", text)


def cut_blocks(text: str, size: int) -> tuple[Block, ...]:
    """Runs of `size` lines that say something, with the blank ones between them; long lines are cut into pieces."""
    blocks: list[Block] = []
    run: list[str] = []
    first = told = 0
    lines = text.split("\n")
    for at, line in enumerate(lines):
        is_blank = not line or line.isspace()
        if len(line) > LONG_LINE and not is_blank:
            _close(blocks, run, first, at)
            run, told = [], 0
            blocks.extend(Block(piece.strip(), at, 1) for piece in _PIECE.findall(line[:_LONGEST]) if piece.strip())
        elif not is_blank:
            if told >= size:
                _close(blocks, run, first, at)
                run, told = [], 0
            first = first if run else at
            run.append(line)
            told += 1
        elif run and len(run) < told + _MOST_BLANKS:
            run.append("")
    _close(blocks, run, first, len(lines))
    return _middle_out(blocks)


def _close(blocks: list[Block], run: list[str], first: int, end: int) -> None:
    if run:
        blocks.append(Block("\n".join(run), first, end - first))


def _middle_out(blocks: list[Block]) -> tuple[Block, ...]:
    if len(blocks) <= _MOST_BLOCKS:
        return tuple(blocks)
    half = _MOST_BLOCKS // 2
    return (*blocks[:half], *blocks[-half:])


def call_body(call: ToolCall) -> str:
    """A call's arguments as lines a person would read: strings unescaped, each argument on its own line."""
    arguments = read_call(call).arguments
    return "\n".join(_argument_lines(arguments)) if arguments else call.arguments


# Arguments whose text says all: their name would only be in the way of reading and matching it.
_SPEAKING = frozenset(
    "old_string old_str old_text oldText new_string new_str new_text newText "
    "command cmd content prompt patch input query pattern".split()
)


def _argument_lines(arguments: dict[str, object]) -> Iterator[str]:
    for key, value in arguments.items():
        if isinstance(value, str):
            if key in _SPEAKING or "\n" in value:
                yield value
            else:
                yield f"{key}: {value}"
        elif isinstance(value, dict):
            yield from _argument_lines(value)
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            for item in value:
                yield from _argument_lines(item)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield f"{key}: {' '.join(value)}"
        else:
            yield f"{key}: {json_text(value)}"
