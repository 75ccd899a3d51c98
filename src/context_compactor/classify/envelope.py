"""What an agent wraps around a tool's own output: exit code, timing, tags, reminders."""

from __future__ import annotations

import re

import msgspec

_CODEX = re.compile(
    r"(?:Chunk ID: [^\n]{0,80}\n|Exit code: (?P<first>-?\d{1,9})\n|Wall time: [^\n]{0,80}\n"
    r"|Process exited with code (?P<second>-?\d{1,9})\n|Process running with session ID [^\n]{0,80}\n"
    r"|Original token count: \d+\n|Total output lines: \d+\n){1,8}(?:\n?Output:[ ]?\n?)?"
    r"(?:Warning: truncated output[^\n]{0,80}\n(?:Total output lines: \d+\n)?\n?)?"
)
_TAGGED = re.compile(r"\s{0,8}<returncode>(-?\d{1,9})</returncode>\s{0,8}(?:<output>\n?)?")
_LABELLED = re.compile(
    r"Exit code:? (-?\d{1,9})\n|OBSERVATION:\n|<persisted-output>\nOutput too large[^\n]{0,300}\n\n?"
    r"(?:Preview[^\n]{0,80}\n)?|<tool_use_error>"
)
_CLOSING = re.compile(
    r"(?:</output>|</persisted-output>|</tool_use_error>|\[The command completed with exit code (-?\d{1,9})\.?\]"
    r"|Command exited with code (-?\d{1,9})|Exit Code: (-?\d{1,9})|Process Group PGID: \d+"
    r"|\[(?:Current working directory|Python interpreter): [^\n\]]{0,300}\])\s*\Z"
)
_REMINDER = "<system-reminder>"
_TAIL = 600


class Output(msgspec.Struct, frozen=True):
    """A tool's own output. `exit_code` is None when the agent does not tell one."""

    body: str
    exit_code: int | None = None


class _CodexMetadata(msgspec.Struct):
    exit_code: int | None = None


class _CodexOutput(msgspec.Struct):
    output: str
    metadata: _CodexMetadata


def unwrap(text: str) -> Output:
    """Take off what the agent wrapped around a tool's output."""
    if text.startswith('{"output":'):
        found = _unwrap_json(text)
        if found is not None:
            return found
    start, code = _opening(text)
    end = len(text.rstrip())
    if text.endswith((">", ">\n")):
        reminder = text.rfind(_REMINDER, start)
        end = reminder if reminder >= 0 and text.rstrip().endswith("</system-reminder>") else end
    return _without_closing(text[start:end], code)


def body_start(text: str) -> int:
    """Where a tool's own output begins."""
    return _opening(text)[0]


def _opening(text: str) -> tuple[int, int | None]:
    first = text[:1]
    if first in ("C", "W", "P", "E"):
        match = _CODEX.match(text)
        if match:
            code = match.group("first") or match.group("second")
            return match.end(), int(code) if code else None
    match = _TAGGED.match(text) or _LABELLED.match(text) if first in ("<", "E", "O", "\n", " ") else None
    if match is None:
        return 0, None
    return match.end(), int(match.group(1)) if match.group(1) else None


def _unwrap_json(text: str) -> Output | None:
    try:
        found = msgspec.json.decode(text, type=_CodexOutput)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return Output(found.output, found.metadata.exit_code)


def _without_closing(body: str, code: int | None) -> Output:
    while (last := body[-40:].rstrip()[-1:]) and (last in ">]" or last.isdigit()):
        match = _CLOSING.search(body, max(0, len(body) - _TAIL))
        if match is None:
            break
        told = next((group for group in match.groups() if group), None)
        code = int(told) if told and code is None else code
        body = body[: match.start()].rstrip()
    return Output(body, code)
