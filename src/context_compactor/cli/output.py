"""What goes where: messages and JSON to standard output, words for people beside them.

Text of a conversation is shown without its control characters, so that it cannot drive the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.messages.jsontext import json_text

if TYPE_CHECKING:
    from rich.console import Console

EXIT_CODES = {"success": 0, "unchanged": 0, "failed": 1, "partial": 3}


def console(*, beside_output: bool) -> Console:
    """Where words for people go: beside the output when standard output carries messages or JSON."""
    from rich.console import Console

    return Console(stderr=beside_output, highlight=False, emoji=False, markup=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A moving line on the terminal while something takes its time; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield
        return
    with console(beside_output=True).status(what):
        yield


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


def write_bytes(content: bytes) -> None:
    """Bytes to standard output, all of them or a broken pipe."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_file(path: Path, content: bytes) -> None:
    """A whole file at once: what stood there before stays until the new content is on the disk."""
    if path.is_dir() or not path.parent.is_dir():
        raise BadSetting(f"--output: {path} is not a place for a file")
    try:
        _replace(path.resolve(), content) if path.is_file() or not path.exists() else path.write_bytes(content)
    except OSError as error:
        raise CompactorError(f"cannot write {path}: {error.strerror}; nothing there was changed") from error


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def one_line(text: str, width: int) -> str:
    """Text of a conversation as one printable line of at most this many characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
