"""Text of a conversation for a terminal: nothing in it can drive one."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Text without control characters, each of which becomes a blank, but for those to `keep`."""
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


def one_line(text: str, width: int) -> str:
    """Text as one printable line of at most this many characters."""
    line = " ".join(printable(text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
