"""Get an original again from where it came from: read a file as it is now and say whether it changed, or show the
command."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal

from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.facts.kinds import Kind, restore_hint
from context_compactor.facts.outputs import NumberedLines, read_numbered_lines, unwrap

# Reading tools cut lines and files that are longer.
_LONG_LINE, _LONG_FILE = 1_900, 2_000
_RANGE = re.compile(r" \((\d{1,9})-(\d{0,9})\)$")
_OPENING = re.compile(r"\A.{0,2000}?<output_head>\n", re.DOTALL)
# Where a tool says that it has left something out. Its notes are short.
_GAP = re.compile(
    r"</output_head>|.*…\s?\d+ (?:tokens|chars|characters|lines)|.*\d (?:characters|lines|bytes) (?:elided|truncated)"
    r"|\s*[\[(<.…]{1,6}.{0,80}\b(?:truncated|omitted|left out|elided|more lines)\b",
    re.IGNORECASE,
)
_LONG_NOTE = 300
_NOTE = re.compile(r"Shell cwd was reset to |\s*$")


class ShownLines(Struct, frozen=True):
    """What a tool has shown of a file.

    `first` and `last` are the lines that were asked for: 0 and None where that was the whole file or is not known.
    `is_cut` says that the end was left out, `is_mixed` that a command may have shown other things too.
    """

    lines: list[str]
    first: int = 0
    last: int | None = None
    is_cut: bool = False
    is_mixed: bool = False


def read_shown_lines(original: Original) -> ShownLines:
    """Take off what a tool has put around the lines of a file."""
    body = unwrap(original.text).body.replace("\r\n", "\n")
    lines = _OPENING.sub("", body, count=1).split("\n")
    while lines and _NOTE.match(lines[-1]):
        lines.pop()
    gap = next((at for at, line in enumerate(lines) if len(line) < _LONG_NOTE and _GAP.match(line)), None)
    requested = _RANGE.search(original.summary)
    return ShownLines(
        lines if gap is None else lines[: max(gap - 1, 0)],  # the line before the gap may be cut too
        first=int(requested[1]) if requested else 0,
        last=int(requested[2]) if requested and requested[2] else None,
        is_cut=gap is not None or len(lines) >= _LONG_FILE,
        is_mixed="`" in original.summary,
    )


def has_changed(shown: ShownLines, text: str) -> bool | None:
    """Whether a file that says this now said something else; None where that is not known."""
    block = "\n".join(shown.lines).strip("\n").rstrip()
    if not block:
        return None
    source = read_numbered_lines(shown.lines, first=0)
    if any(source.numbers) and _stand_at_their_numbers(shown, source, text.split("\n")):
        return False
    if shown.first and not any(source.numbers):
        there = "\n".join(text.split("\n")[shown.first - 1 : shown.last]).strip("\n").rstrip()
        return not (there.startswith(block) if shown.is_cut else there == block)
    return _is_gone(shown, block, text)


def _stand_at_their_numbers(shown: ShownLines, source: NumberedLines, now: list[str]) -> bool:
    """Whether every line is where it was, and no line has come behind a file that was shown to its end."""
    there = zip(source.numbers, source.lines, strict=True)
    if source.numbers[-1] > len(now) or not all(_is_line(line, now[number - 1]) for number, line in there):
        return False
    is_part = shown.is_cut or shown.first > 0 or source.numbers[0] > 1 or len(source.lines) < len(shown.lines)
    return is_part or not any(line.strip() for line in now[source.numbers[-1] :])


def _is_line(shown: str, line: str) -> bool:
    return shown == line or (len(shown) > _LONG_LINE and line.startswith(shown[:_LONG_LINE]))


def _is_gone(shown: ShownLines, block: str, text: str) -> bool | None:
    """Whether a text of which the place is not known stands nowhere in the file, or is no longer all of it."""
    text = text.rstrip()
    at = f"\n{text}\n".find(f"\n{block}\n")
    if at < 0:
        return None if shown.is_mixed else True
    goes_on = bool(text[at + len(block) :].strip())
    return goes_on and not text[:at].strip() and not shown.is_cut and not shown.is_mixed


RefetchKind = Literal["file", "command", "search", "page", "none"]

_MOST_BYTES = 5_000_000
_HEAD_BYTES = 8_000
_REFETCH_KINDS: dict[str, RefetchKind] = {Kind.SEARCH_RESULT.value: "search", Kind.WEB_PAGE.value: "page"}
# What stands in a command and hardly ever in the name of a file.
_COMMAND = re.compile(r"[\s|;&<>$`\"'*?]")
_LABEL = re.compile(r"`(.+)`", re.DOTALL)


class Refetched(Struct, frozen=True):
    """What became of an attempt to get an original again from where it came from.

    `can_restore` says whether that is possible; `text` is what a file says now, and `changed` whether that is not what
    it said when it was read, or None where that is not known. `said` tells all of it to people.
    """

    kind: RefetchKind
    target: str
    can_restore: bool
    said: str
    text: str = ""
    changed: bool | None = None


class RestoreRate(Struct, frozen=True):
    """How many files were to be read again, how many of them were there, and how many of those had changed."""

    tried: int = 0
    succeeded: int = 0
    changed: int = 0

    @property
    def share(self) -> float | None:
        """The share that was there; None before the first attempt."""
        return self.succeeded / self.tried if self.tried else None

    def after(self, refetched: Refetched) -> RestoreRate:
        """The rate with one more attempt. A command that was only shown is none."""
        if refetched.kind != "file":
            return self
        changed = self.changed + (refetched.changed is True)
        return RestoreRate(self.tried + 1, self.succeeded + refetched.can_restore, changed)


def refetch(original: Original, root: Path) -> Refetched:
    """Get an original again from where it came from. A path that is not absolute is one below `root`."""
    if original.hint == restore_hint(Kind.CODE) and original.target:
        path = _path(original.target, root)
        if not _COMMAND.search(original.target) or _is_there(path):
            return _read_again(original, path)
    return _show(original)


def _show(original: Original) -> Refetched:
    """The command, the query or the address, for somebody else to use."""
    if original.hint:
        way = _REFETCH_KINDS.get(original.kind, "command")
        return Refetched(way, original.target, True, f"to {original.hint}: {original.target}")
    label = _LABEL.search(original.summary)
    said = f"only the archive has what it was: {original.recovery}"
    if label is None:
        return Refetched("none", "", False, said)
    return Refetched(
        "command", label[1], False, f"`{label[1]}` may say or do something else when it is run again; {said}"
    )


def _read_again(original: Original, path: Path) -> Refetched:
    try:
        text = _read(path)
    except (OSError, ValueError) as error:
        return Refetched("file", original.target, False, f"{original.target} {_why(error)}")
    shown = read_shown_lines(original)
    changed = has_changed(shown, text)
    lines = f"lines {shown.first:,} to {shown.last or 'the end'} of " if shown.first else ""
    now = "has changed since it was read" if changed else "is as it was when it was read"
    if changed is None:
        now = "as it is now; whether it has changed since it was read is not known"
    # Of a part of a file the same lines are shown, as they are now.
    text = "\n".join(text.split("\n")[shown.first - 1 : shown.last]) if shown.first else text
    return Refetched("file", original.target, True, f"{lines}{original.target} {now}", text, changed)


def _path(target: str, root: Path) -> Path:
    path = Path(target)
    try:
        return root / path.expanduser()
    except RuntimeError:  # there is no such user
        return root / path


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _read(path: Path) -> str:
    """The text of a file, or an error whose words go on after the file's name."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ValueError("is a folder")
    if not stat.S_ISREG(found.st_mode):  # reading a pipe or a device may never end
        raise ValueError("is not a regular file")
    if found.st_size > _MOST_BYTES:
        raise ValueError(f"has {found.st_size / 1e6:.1f} MB, too much to read at once")
    content = path.read_bytes()
    if b"\0" in content[:_HEAD_BYTES]:
        raise ValueError("is not text")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text") from error


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is no longer there"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    is_ours = str(error).startswith(("is ", "has "))
    return str(error) if is_ours else f"is no name that a file can have: {error}"
