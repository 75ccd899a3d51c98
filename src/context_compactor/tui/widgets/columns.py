"""The columns of a list, what stands in them, and how they share its width."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

_LEAST = 10
"""Cells that a column without a width of its own has, as long as there is another one to leave out for it."""


class Column(Struct, frozen=True):
    """A column: its title, its width in cells (0 takes what is left), and how wide the list must be to show it."""

    title: str
    width: int = 0
    right: bool = False
    from_width: int = 0
    name: str = ""
    """What it is sorted by; a column without one is not."""


class Cell(Struct, frozen=True):
    """A text in a row, and the component class that styles it."""

    text: str
    style: str = ""


Row = Sequence[Cell]


def widths_of(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column, 0 for those that are not shown; one blank stands between two.

    Where there is too little room, the last columns that have a width go first: what takes the rest says the most.
    """
    shown = [at for at, column in enumerate(columns) if width >= column.from_width]
    flexible = sum(1 for at in shown if not columns[at].width)
    while True:
        left = width - 1 - sum(columns[at].width + 1 for at in shown)
        fixed = [at for at in shown if columns[at].width]
        if not flexible or left >= _LEAST * flexible or len(fixed) < 2:
            break
        shown.remove(fixed[-1])
    share = max(left // flexible, 1) if flexible else 0
    return [(column.width or share) if at in shown else 0 for at, column in enumerate(columns)]
