"""One value, one line: whatever a text holds, it can neither end its line nor look like a heading, a tag or a cell.

Only `\\` and a letter or a sign are added, as Markdown has it, so most texts stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LETTERS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SIGNS = {escape[1]: sign for sign, escape in _LETTERS.items()} | {"s": " "}
# Backslashes, control characters, line ends of any kind, marks that turn the order of letters, halves of a pair.
_HIDDEN = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OPENS = re.compile(r"^(?=[#>+*=~-]|```)|(?=<[A-Za-z/!?])")
_EDGES = re.compile(r"^ | $")
# Anything else behind a backslash was typed by somebody, and stays as it is.
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|([nrts]|[^\w\s]))")
_CELL = re.compile(r"((?:\\.|[^|\\])*)\|")


def escape(text: str) -> str:
    """A text as one line that says nothing but itself."""
    plain = _OPENS.sub(r"\\", _HIDDEN.sub(_sign, text))
    return _EDGES.sub(r"\\s", plain)


def _sign(match: re.Match[str]) -> str:
    return _LETTERS.get(match[0]) or f"\\u{ord(match[0]):04x}"


def unescape(line: str) -> str:
    """The text that a line stands for; blanks at its ends are not part of it."""
    return _ESCAPED.sub(_letter, line.strip(" "))


def _letter(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SIGNS.get(match[2], match[2])


def row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "".join(("|", *(f" {escape(cell).replace('|', chr(92) + '|')} |" for cell in cells)))


def cells_of(line: str) -> list[str]:
    """The cells of a row."""
    return [unescape(cell) for cell in _CELL.findall(line.strip(" ")[1:])]
