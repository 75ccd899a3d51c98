"""What goes where: messages and JSON to standard output, words for people beside them.

Text of a conversation is shown without its control characters, so that it cannot drive the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Protocol, TextIO

from context_compactor import text as printing
from context_compactor.errors import BadSetting
from context_compactor.files import naming_write_errors, write_atomically
from context_compactor.json_values import json_text
from context_compactor.text import one_line

DONE, FAILED, BAD_USAGE, DOES_NOT_FIT, INTERRUPTED = 0, 1, 2, 3, 130
"""Every exit code."""
EXIT_CODES = {"success": DONE, "unchanged": DONE, "failed": FAILED, "partial": DOES_NOT_FIT}
"""The exit code for each status of a report."""
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_LONG_WORK_BYTES = 3_000_000
_LONGEST_TEXT = 500


class LineOutput(Protocol):
    """Where lines for people go: a `StyledStream` here, a `rich` console where a picture is drawn."""

    def print(self, text: str = "", /, *, style: str | None = None) -> None:
        """One line or several."""
        ...


class StyledStream:
    """A stream with colour where somebody looks at it. Plain, since loading `rich` would double the start-up time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def print(self, text: str = "", /, *, style: str | None = None) -> None:
        """One line or several, in the colour of its style."""
        if style and self._colours:
            codes = ";".join(str(_CODES[word]) for word in style.split())
            text = f"\x1b[{codes}m{text}\x1b[0m"
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def stdout() -> StyledStream:
    """Standard output, for what a command was asked for."""
    return StyledStream(sys.stdout)


def stderr() -> StyledStream:
    """Standard error, for words to people when standard output carries messages or JSON."""
    return StyledStream(sys.stderr)


def print_rows(rows: Iterable[tuple[str, str]], out: LineOutput) -> None:
    """A table of names and texts."""
    for name, text in rows:
        out.print(f"{name:<12}{text}")


@contextmanager
def progress_line(what: str, file: str, *, is_quiet: bool = False) -> Iterator[None]:
    """A moving line on the terminal while something large is worked on; nothing where nobody looks."""
    if is_quiet or not sys.stderr.isatty() or not _is_large(file):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _is_large(file: str) -> bool:
    path = Path(file)
    return not path.is_file() or path.stat().st_size > _LONG_WORK_BYTES


def confirm(question: str, *, yes: bool, default: bool, instead: str) -> None:
    """Ask on the terminal and leave when the answer is no. Without a terminal it is an error that says what to try."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadSetting(f"nothing was changed, since there is no terminal to ask for confirmation. Try: {instead}.")
    import typer

    sys.stdout.flush()  # the question comes on standard error, behind what it is about
    if not typer.confirm(question, default=default, err=True):
        stderr().print("Nothing was changed.")
        raise typer.Exit(FAILED)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    write_bytes((json_text(value) + "\n").encode())


def messages_text(messages: Sequence[Any], *, lines: bool = False) -> str:
    """Messages as a JSON array with one message on each line, or as JSON Lines."""
    rows = [json_text(message) for message in messages]
    if lines:
        return "".join(f"{row}\n" for row in rows)
    return "[\n" + ",\n".join(rows) + "\n]\n" if rows else "[]\n"


def write_messages(messages: Sequence[Any], out: str | None) -> None:
    """Messages to a file, or to standard output when no file is named."""
    if out is None or out == "-":
        write_bytes(messages_text(messages).encode())
    else:
        write_file(Path(out), messages_text(messages, lines=out.endswith(".jsonl")).encode())


def write_text(text: str) -> None:
    """Text of a conversation to standard output: byte for byte, but on a terminal without control characters."""
    if sys.stdout.isatty():
        stdout().print(printable(text).removesuffix("\n"))
    else:
        write_bytes(text.encode("utf-8", "surrogatepass"))


def refuse_same_file(source: str, out: str | None) -> None:
    """The input holds the originals of everything that is left out, so it is never overwritten."""
    if out is not None and Path(out).exists() and Path(source).exists() and Path(out).samefile(source):
        raise BadSetting(f"--output: {out} is the input file and would be overwritten. Try: another name.")


def write_bytes(content: bytes) -> None:
    """Bytes to standard output, all of them or a broken pipe."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_file(path: Path, content: bytes) -> None:
    """A whole file at once: what stood there before stays until the new content is on the disk."""
    with naming_write_errors(path):
        if path.is_dir():
            raise BadSetting(f"--output: {path} is a folder. Try: a file name in it.")
        if not path.parent.is_dir():
            raise BadSetting(f"--output: the folder {path.parent} does not exist. Try: create it first.")
        if path.is_file() or not path.exists():
            write_atomically(path, content, private=False)
        else:
            path.write_bytes(content)


def printable(text: str) -> str:
    """Text of a conversation with its lines as they are, and without anything that could drive a terminal."""
    return printing.printable(text, keep="\n\t")


def columns() -> int:
    """How many characters a line for people may have: those of the terminal, 80 where there is none."""
    return min(max(get_terminal_size((80, 24)).columns, 40), 160)


def wrap_text(text: str, first: str = "", indent: int = 0) -> str:
    """Text of a conversation in lines that fit, the first one behind `first`, the others under it."""
    from textwrap import fill

    line = one_line(text, _LONGEST_TEXT)
    under = " " * (indent or len(first))
    # A path or an id that is too long for a line stays whole, so that it can be copied.
    return fill(
        line, columns(), initial_indent=first, subsequent_indent=under, break_long_words=False, break_on_hyphens=False
    )
