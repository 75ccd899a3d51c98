"""From turns to sources: every text of the history, cut into lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from context_compactor.classify.calls import read_call
from context_compactor.messages.jsontext import json_text
from context_compactor.messages.message import ToolCall
from context_compactor.plan.options import Block

LONG_LINE = 150
_MOST_BLOCKS = 4_000
_LONGEST = 2_000_000
_NUMBERED = re.compile(r"^ {0,8}\d+(?:→|\t)", re.MULTILINE)
_PIECE = re.compile(r".{1,150}(?:[\s,;}\])]|$)|.{1,150}")


_LONE_TAG = re.compile(r"\s*</?[a-z][\w-]{0,40}>\s*")
# What an edit took out stands at the end of its text, each line behind this mark.
REMOVED = "- "
_OPTION = re.compile(
    r"(?:cwd|workdir|glob|type|output_mode|subagent_type|model|shell|id|taskId|status): \S*"
    r"|(?:description|activeForm|explanation|justification): .*"
    r"|[\w-]+: (?:-?[\d.]+|true|false|null|\[\]|\"\")"
)


def strip_numbers(text: str) -> str:
    """A file as it is, without the line numbers that a reading tool put in front of each line."""
    head = text[:400]
    if "→" not in head and "\t" not in head:
        return text
    lines = head.count("\n") + 1
    if len(_NUMBERED.findall(head)) * 2 < lines:
        return text
    return _NUMBERED.sub("", text)


def cut_blocks(text: str, *, is_call: bool = False) -> tuple[Block, ...]:
    """The lines that say something, each a block of its own; long lines are cut into pieces.

    Of a call the bare options say nothing: nobody asks for the limit or the offset again.
    """
    blocks: list[Block] = []
    for at, line in enumerate(text.split("\n")):
        if not line or line.isspace() or _LONE_TAG.fullmatch(line) or (is_call and _OPTION.fullmatch(line)):
            continue
        if len(line) > LONG_LINE:
            blocks.extend(Block(piece, at, 1) for piece in _PIECE.findall(line[:_LONGEST]) if piece.strip())
        else:
            blocks.append(Block(line, at, 1))
    return _middle_out(blocks)


def _middle_out(blocks: list[Block]) -> tuple[Block, ...]:
    if len(blocks) <= _MOST_BLOCKS:
        return tuple(blocks)
    half = _MOST_BLOCKS // 2
    return (*blocks[:half], *blocks[-half:])


def removed_lines(old: str, new: str) -> Iterator[str]:
    """What an edit took out, marked as gone: the lines of the old text that are not in the new one."""
    kept = set(new.split("\n"))
    return (f"{REMOVED}{line}" for line in old.split("\n") if line not in kept)


def call_body(call: ToolCall) -> str:
    """A call's arguments as lines a person would read: strings unescaped, each argument on its own line."""
    arguments = read_call(call).arguments
    return "\n".join(_argument_lines(arguments)) if arguments else call.arguments


# Arguments whose text says all: their name would only be in the way of reading and matching it.
_SPEAKING = frozenset(
    "old_string old_str old_text oldText new_string new_str new_text newText "
    "command cmd content prompt patch input query pattern".split()
)


_OLD = ("old_string", "old_str", "old_text", "oldText")
_NEW = ("new_string", "new_str", "new_text", "newText")


def _argument_lines(arguments: dict[str, object]) -> Iterator[str]:
    old, new = (next((key for key in keys if isinstance(arguments.get(key), str)), "") for keys in (_OLD, _NEW))
    if old and new:
        yield from _argument_lines({key: value for key, value in arguments.items() if key != old})
        yield from removed_lines(str(arguments[old]), str(arguments[new]))
        return
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
