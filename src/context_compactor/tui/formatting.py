"""Text on its way to the screen: no control characters, no markup, cut to a width; bars and sparklines."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

from context_compactor.text import ago, one_line, parse_time, printable

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MAX_LINE = 400
_EMOJI_SELECTOR = "\ufe0f"
"""Makes a sign before it a picture, which some terminals draw twice as wide and others do not."""


def safe_text(text: str) -> str:
    """Text with its lines as they are and without any control character."""
    return printable(text.replace("\r\n", "\n").replace(_EMOJI_SELECTOR, ""), keep="\n\t").expandtabs(4)


def cut_line(text: str, width: int = _MAX_LINE) -> str:
    """Text as one line of at most so many characters."""
    return one_line(text[: 4 * width].replace(_EMOJI_SELECTOR, ""), width)


def in_width(text: str, width: int, *, right: bool = False) -> str:
    """A line of exactly so many cells of the screen, cut with a mark or filled up with blanks."""
    if width <= 0:
        return ""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - size) + text if right else text + " " * (width - size)


def time_ago(stamp: str, now: datetime) -> str:
    """A stored time as its distance from now."""
    at = parse_time(stamp)
    return "–" if at is None else ago((now - at.astimezone(UTC)).total_seconds())


def gauge_bar(share: float, width: int, marks: tuple[float, ...] = ()) -> str:
    """A share from 0 to 1 as a bar with a mark where each level begins; without colour it says the same."""
    filled = min(max(round(share * width), 1 if share > 0 else 0), width)
    cells = ["█"] * filled + ["░"] * (width - filled)
    for mark in marks:
        at = int(mark * width)
        if filled <= at < width:
            cells[at] = "│"
    return "".join(cells)


def sparkline(values: tuple[int, ...], width: int) -> str:
    """Numbers as a line of blocks of so many cells, from the first to the last; nothing where there are too few."""
    most = max(values, default=0)
    if len(values) < 2 or most <= 0 or width <= 0:
        return ""
    if len(values) > width:
        step = len(values) / width
        values = tuple(
            max(values[int(at * step) : max(int((at + 1) * step), int(at * step) + 1)]) for at in range(width)
        )
    return "".join(_BLOCKS[max(1, round(value / most * 8)) if value > 0 else 0] for value in values)
