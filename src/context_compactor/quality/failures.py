"""Failed tool calls, as the harness sees them: what was run and the line that says why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from context_compactor.quality.reading import Piece

COMMAND = 60
ERROR = 60

_EXIT = re.compile(
    r"(?:^|\n)(?:Exit code:? |<returncode>|Process exited with code |exit status |\[exit code:? )(-?\d+)", re.IGNORECASE
)
_TELLING = re.compile(
    r"not exist|has not"
    r"|error|exception|fail|fatal|panic|denied|not found|no such|cannot|can't|unable|undefined|invalid|unexpected"
    r"|refused|timed? ?out|missing|unknown|rejected|conflict|aborted|killed",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^(?:Exit code|<returncode>|</?output|<output_|Chunk ID|Wall time|Process exited|Original token|Output:)"
)
_TAG = re.compile(r"</?[a-z_]{1,30}>")
_LOOK = 400
_NOT_RUN = "Sibling tool call errored"


class Failure(Struct, frozen=True):
    """A failed call: the start of what it ran, and the lines of its output that tell why."""

    command: str
    lines: tuple[str, ...]


def failures(history: Sequence[Piece]) -> list[Failure]:
    """The failed calls of a history whose output says something, each once."""
    calls = {piece.call_id: piece for piece in history if piece.kind == "call"}
    found: dict[Failure, None] = {}
    for piece in history:
        call = calls.get(piece.call_id)
        if piece.kind == "result" and call and has_failed(piece):
            failure = Failure(_command(call), _telling(piece.text))
            if failure.command and failure.lines:
                found[failure] = None
    return list(found)


def has_failed(result: Piece) -> bool:
    """Whether a result is marked as an error or reports an exit code other than 0."""
    code = _EXIT.search(result.text[:_LOOK])
    if _NOT_RUN in result.text[:_LOOK]:
        return False
    return result.failed or (code is not None and code.group(1) != "0")


def squeeze(text: str) -> str:
    """The text with white space as single blanks."""
    return " ".join(text.split())


def without_tags(text: str) -> str:
    """The text without the simple tags that a client puts around output."""
    return _TAG.sub("", text)


def _command(call: Piece) -> str:
    return squeeze(without_tags(next(iter(call.values), "")))[:COMMAND]


def _telling(text: str) -> tuple[str, ...]:
    """The first and last line that name an error; indented ones, such as the code in a traceback, come second."""
    lines = [without_tags(line).rstrip() for line in text.splitlines()[:5000] if not _FRAME.match(line)]
    lines = [line for line in lines if len(line.strip()) > 3]
    named = [line for line in lines if _TELLING.search(line[:300])]
    telling = [line for line in named if not line[0].isspace()] or named or lines[-1:]
    ends = (telling[0], telling[-1]) if telling else ()
    return tuple(dict.fromkeys(squeeze(line)[:ERROR] for line in ends))
