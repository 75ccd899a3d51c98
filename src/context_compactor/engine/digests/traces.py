"""An error trace as its message, its root cause, and the innermost frame of the user's own code."""

from __future__ import annotations

import re

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.output import informative_lines
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import clip_line, plural, to_lines

_PYTHON = re.compile(r'\s*(?:\| )?File "([^"]{1,400})", line (\d+)(?:, in (.+))?')
_NODE = re.compile(r"\s+at (?:(.{1,200}?) \(|async )?((?:file://)?(?:[A-Za-z]:)?[^\s():][^\s()]{0,300}:\d+:\d+)\)?$")
_DOTNET = re.compile(r"\s+at (.{1,200}?) in (.{1,300}:line \d+)$")
_JVM = re.compile(r"\s+at ([\w.$<>/@-]{1,300})\(([^)]{0,200})\)")
_GO = re.compile(r"\t(\S+\.go:\d+)")
_RUBY = re.compile(r"\s*(?:from )?(\S+\.rb:\d+):in [`'](.{1,100}?)'(?:: (.*))?")
_RUST = re.compile(r"thread '(.{0,100})' (?:\(\d+\) )?panicked at (?:'(.*)', )?(\S+:\d+(?::\d+)?):?")
_MESSAGE = re.compile(
    r"(?:Uncaught |Unhandled exception\.? ?|Exception in thread \"[^\"]{0,80}\" )?"
    r"[\w.$:]{0,200}(?:Error|Exception|Throwable|Failure|Fault|Interrupt)\b.*|panic: .*|fatal error: .*"
)
_MESSAGE_WORDS = ("Error", "Exception", "panic: ", "fatal error: ", "Throwable", "Failure", "Fault", "Interrupt")
_CAUSED = re.compile(r"\s*(?:Caused by|\[cause\]): ?(.*)|\s*---> (.*)")
_LINKS = ("During handling of the above", "The above exception was", "Caused by: ")
_NOT_MESSAGE = ("Traceback ", *_LINKS)
_INDENT = (" ", "\t", "|")
_FOREIGN = (
    "site-packages dist-packages /lib/python <frozen <string> node_modules node: internal/ java. javax. sun. jdk. "
    "org.junit org.springframework org.apache kotlin. scala. /usr/local/go/ /src/runtime/ rustc/ .cargo/registry "
    "/gems/ System. Microsoft. /go/pkg/mod/ importlib"
).split()


class _Trace(Struct):
    """What one pass over the lines has found. `marks` says how many frames stood before each message."""

    messages: list[str]
    frames: list[str]
    marks: list[int]
    python: bool = False
    chained: bool = False
    start: int = -1
    end: int = -1


class Raised(Struct, frozen=True):
    """What a trace says: the error that ended it, what caused it if that is another, and where in own code."""

    message: str
    cause: str
    place: str


def read_trace(lines: list[str]) -> Raised | None:
    """What the lines of a trace say, if there is one in them."""
    trace = _read(lines)
    if not trace.messages:
        return None
    last, root = _last_and_root(trace)
    return Raised(last, root if root != last else "", _innermost_own(trace))


def digest_trace(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """The error that ended it, what caused it, where in own code; and what else was printed just before and after."""
    lines = to_lines(output.body)
    trace = _read(lines)
    if not trace.messages:
        return informative_lines(output)
    last, root = _last_and_root(trace)
    code = f"exit code {output.exit_code}" if output.exit_code else ""
    count = f"{plural(len(trace.frames), 'frame')} in all" if len(trace.frames) > 1 else ""
    return [
        clip_line(last),
        *([f"root cause: {clip_line(root, 170)}"] if root and root != last else []),
        *([f"at {clip_line(place, 180)}"] if (place := _innermost_own(trace)) else []),
        ", ".join(part for part in (code, count) if part),
        *_printed("before", lines[: trace.start]),
        *_printed("after", lines[trace.end + 1 :]),
    ]


def _read(lines: list[str]) -> _Trace:
    trace = _Trace([], [], [])
    after_frames = False
    for at, line in enumerate(lines):
        frame = _frame(lines, at, trace) if line[:1] in _INDENT or ".rb:" in line else ""
        message = "" if frame else _message(lines, at, after_frames, trace)
        trace.frames += [frame] if frame else []
        if message:
            trace.messages.append(message.strip())
            trace.marks.append(len(trace.frames))
        if line[:1].strip() or frame:
            after_frames = bool(frame) and 'File "' in line
            trace.chained |= line.startswith(_LINKS)
        if frame or message or line.startswith("Traceback ") or line.lstrip().startswith("... "):
            trace.start = at if trace.start < 0 else trace.start
            trace.end = at
    return trace


def _frame(lines: list[str], at: int, trace: _Trace) -> str:
    line = lines[at]
    if 'File "' in line and (match := _PYTHON.match(line)):
        trace.python = True
        path, number, name = match.groups()
        following = lines[at + 1] if at + 1 < len(lines) else ""
        code = following.strip() if following[:1] == " " and not _PYTHON.match(following) else ""
        return f"{path}:{number}{f' in {name}' if name else ''}{f': {code}' if code else ''}"
    if line.lstrip()[:3] == "at ":
        return _called_frame(line)
    found = (_GO.match(line) if line[:1] == "\t" else None) or (_RUBY.match(line) if ".rb:" in line else None)
    return " in ".join(part for part in found.groups()[:2] if part) if found else ""


def _called_frame(line: str) -> str:
    if match := _NODE.match(line) or _DOTNET.match(line):
        return " ".join(part for part in (match.group(2), match.group(1)) if part)
    match = _JVM.match(line)
    return f"{match.group(1)}({match.group(2)})" if match else ""


def _message(lines: list[str], at: int, after_frames: bool, trace: _Trace) -> str:
    """A line that says what went wrong: by its words, or because it ends a Python traceback."""
    line = lines[at]
    if "panicked at" in line and (match := _RUST.match(line)):
        said = match.group(2) or (lines[at + 1].strip() if at + 1 < len(lines) else "")
        return f"{said} ({match.group(3)})" if said else line
    if ("Caused by" in line or "[cause]" in line or "--->" in line) and (match := _CAUSED.match(line)):
        trace.chained = True
        return match.group(1) or match.group(2) or ""
    if not line or line[0] in " \t" or line.startswith(_NOT_MESSAGE):
        return ""
    if after_frames:
        return line
    return line if any(word in line for word in _MESSAGE_WORDS) and _MESSAGE.match(line) else ""


def _last_and_root(trace: _Trace) -> tuple[str, str]:
    """Python prints the cause first; the JVM, Node and .NET print it last."""
    messages = trace.messages
    if trace.python:
        return messages[-1], messages[0] if trace.chained else ""
    return messages[0], messages[-1] if trace.chained else ""


def _innermost_own(trace: _Trace) -> str:
    """The frame where the root cause arose, in code that is not a library's if there is any."""
    frames = _frames_of_root(trace) or trace.frames
    inwards = frames[::-1] if trace.python else frames
    return next((frame for frame in inwards if not any(mark in frame for mark in _FOREIGN)), next(iter(inwards), ""))


def _frames_of_root(trace: _Trace) -> list[str]:
    """Python prints frames above their message, innermost last; all others below it, innermost first."""
    if trace.python:
        at = 0 if trace.chained else len(trace.marks) - 1
        return trace.frames[trace.marks[at - 1] if at else 0 : trace.marks[at]]
    return trace.frames[trace.marks[-1 if trace.chained else 0] :]


def _printed(when: str, lines: list[str]) -> list[str]:
    telling = [line for line in lines[-20:] if any(map(str.isalnum, line))]
    return [f"printed {when}: {clip_line(line, 160)}" for line in telling[-2:]]
