"""A list of any length whose rows are made as they are seen, and its columns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from context_compactor.tui.formatting import cut_line, in_width

_MIN_WIDTH = 10
"""Cells that a column without a width of its own has, as long as there is another one to leave out for it."""


class Column(Struct, frozen=True):
    """A column: its title, its width in cells (0 takes what is left), and how wide the list must be to show it."""

    title: str
    width: int = 0
    right: bool = False
    min_list_width: int = 0
    name: str = ""
    """What it is sorted by; a column without one is not."""


class Cell(Struct, frozen=True):
    """A text in a row, and the component class that styles it."""

    text: str
    style: str = ""


Row = Sequence[Cell]
T = TypeVar("T")


def column_widths(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column, 0 for those that are not shown; one blank stands between two.

    Where there is too little room, the last columns that have a width go first: what takes the rest says the most.
    """
    shown = [at for at, column in enumerate(columns) if width >= column.min_list_width]
    flexible = sum(1 for at in shown if not columns[at].width)
    while True:
        left = width - 1 - sum(columns[at].width + 1 for at in shown)
        fixed = [at for at in shown if columns[at].width]
        if not flexible or left >= _MIN_WIDTH * flexible or len(fixed) < 2:
            break
        shown.remove(fixed[-1])
    share = max(left // flexible, 1) if flexible else 0
    return [(column.width or share) if at in shown else 0 for at, column in enumerate(columns)]


_STYLES = (
    *("heading", "cursor", "waiting", "faint", "strong", "failed"),
    *("keep", "summarize", "reference", "drop"),
    *("ease", "soft", "aggressive", "emergency"),
)
_MAX_CACHED = 500
_MARGIN = 20
"""Rows around those that are seen which are asked for together with them."""


class RowList(ScrollView, can_focus=True):
    """Rows of cells under a heading.

    Who has all items calls `show`; who makes rows of what changes gives a `fill`. Who has to look for rows answers
    `RowsRequested` with `put`; until then a row is a mark.
    `made` counts the rows that were put, for whoever wants to know what a list costs.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"rows--{name}" for name in _STYLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open"),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "to(0)", "First", show=False),
        Binding("end,G", "to(-1)", "Last", show=False),
    ]

    total: reactive[int] = reactive(0)
    cursor: reactive[int] = reactive(0)

    @dataclass
    class RowsRequested(Message):
        """Rows are seen that nobody has put yet."""

        first: int
        count: int

    @dataclass
    class Selected(Message):
        """A row is to be opened."""

        at: int

    class Moved(Message):
        """The cursor stands on another row."""

    @dataclass
    class Sorted(Message):
        """The heading of a column was clicked on."""

        name: str

    def __init__(
        self,
        columns: Sequence[Column],
        fill: Callable[[int, int], Sequence[Row]] | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.columns = list(columns)
        self._fill = fill
        self.sorted_by = ""
        """The name of the column that orders the rows, with a `-` before it when the largest comes first."""
        self.made = 0
        self._rows: OrderedDict[int, Row] = OrderedDict()
        self._asked: tuple[int, int] | None = None

    # What it shows

    def show(self, items: Sequence[T], row: Callable[[T], Row]) -> None:
        """Show these, each as the row that is made of it when it is seen."""
        self._fill = lambda first, count: [row(item) for item in items[first : first + count]]
        self.forget(len(items))

    def put(self, first: int, rows: Sequence[Row]) -> None:
        """Give rows, from this one on."""
        self._store(first, rows)
        self._asked = None
        self.refresh()

    def _store(self, first: int, rows: Sequence[Row]) -> None:
        self.made += len(rows)
        for at, row in enumerate(rows, first):
            self._rows[at] = row
            self._rows.move_to_end(at)
        while len(self._rows) > max(_MAX_CACHED, 4 * self.size.height):
            self._rows.popitem(last=False)

    def forget(self, total: int) -> None:
        """Everything is another now: so many rows, which are asked for as they are seen."""
        self._rows.clear()
        self._asked = None
        self.total = total
        self.cursor = min(self.cursor, max(total - 1, 0))
        self.refresh()

    def at(self, at: int) -> Row | None:
        """A row, if it was given."""
        return self._rows.get(at)

    @property
    def seen(self) -> tuple[int, int]:
        """The first row that is seen, and how many are."""
        first = max(self.scroll_offset.y, 0)
        return first, max(min(self.size.height - 1, self.total - first), 0)

    def missing(self) -> tuple[int, int] | None:
        """The first row and how many to give, so that nothing that is seen is missing; None when nothing is."""
        first, seen = self.seen
        return None if all(at in self._rows for at in range(first, first + seen)) else self._around(first, seen)

    def _around(self, first: int, seen: int) -> tuple[int, int]:
        start = max(first - _MARGIN, 0)
        return start, min(seen + 2 * _MARGIN, self.total - start)

    def watch_total(self) -> None:
        self._resize()

    def on_resize(self) -> None:
        """A list is never wider than its place."""
        self._resize()
        self.call_after_refresh(self.show_cursor)

    def _resize(self) -> None:
        # The heading stands over the rows, so the last row needs one line more.
        self.virtual_size = Size(self.size.width, self.total + 1)

    def notify_style_update(self) -> None:
        """Another theme has other colours."""
        super().notify_style_update()
        self.refresh()

    # How it is drawn

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y == 0:
            return self._heading(width)
        at = self.scroll_offset.y + y - 1
        if at >= self.total:
            return Strip.blank(width, self.rich_style)
        is_cursor = at == self.cursor
        if at not in self._rows:
            self._want(at)
        row = self._rows.get(at) or [Cell("…", "waiting")]
        base = self.get_component_rich_style("rows--cursor") if is_cursor else self.rich_style
        return Strip(self._segments(row, width, base, is_cursor), width)

    def _heading(self, width: int) -> Strip:
        style = self.get_component_rich_style("rows--heading")
        cells = [Cell(column.title + self._arrow(column)) for column in self.columns]
        return Strip(self._segments(cells, width, style, False), width)

    def _arrow(self, column: Column) -> str:
        if not column.name or self.sorted_by.lstrip("-") != column.name:
            return ""
        return "↓" if self.sorted_by.startswith("-") else "↑"

    def _segments(self, row: Row, width: int, base: Style, is_cursor: bool) -> list[Segment]:
        line = [Segment("▌" if is_cursor and self.has_focus else " ", base)]
        used = 1
        widths = column_widths(self.columns, width) if len(row) > 1 else [width - 1]
        for cell, column, size in zip(row, self.columns, widths, strict=False):
            if not size or used + size > width:
                continue
            style = base
            if cell.style and not (is_cursor and self.has_focus):
                style = base + self.get_component_rich_style(f"rows--{cell.style}", partial=True)
            text = in_width(cut_line(cell.text), size, right=column.right and len(row) > 1)
            line += [Segment(text, style), Segment(" ", base)]
            used += size + 1
        line.append(Segment(" " * max(width - used, 0), base))
        return Segment.adjust_line_length(line, width, base)

    def _want(self, at: int) -> None:
        if self._asked is not None and self._asked[0] <= at < sum(self._asked):
            return
        start, count = self._around(*self.seen)
        if not start <= at < start + count:
            start, count = at, 1
        self._asked = start, count
        if self._fill is not None:
            self._store(start, self._fill(start, count))
        self.post_message(self.RowsRequested(start, count))

    # How one moves in it

    def watch_cursor(self, old: int, new: int) -> None:
        if self.total and old != new:
            self.show_cursor()
            self.post_message(self.Moved())
        self.refresh()

    def show_cursor(self) -> None:
        """Scroll to the row with the cursor."""
        self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False, force=True, x_axis=False, immediate=True)

    def validate_cursor(self, cursor: int) -> int:
        return min(max(cursor, 0), max(self.total - 1, 0))

    def action_move(self, by: int) -> None:
        self._move(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._move(self.cursor + by * max(self.size.height - 2, 1))

    def action_to(self, at: int) -> None:
        self._move(self.total - 1 if at < 0 else at)

    def _move(self, at: int) -> None:
        self.cursor = at
        self.show_cursor()

    def action_open(self) -> None:
        if self.total:
            self.post_message(self.Selected(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens; one on a heading sorts."""
        y = event.y
        if y == 0:
            self._sort_at(event.x)
            return
        at = self.scroll_offset.y + y - 1
        if at >= self.total:
            return
        if at == self.cursor:
            self.action_open()
        else:
            self.cursor = at

    def _sort_at(self, x: int) -> None:
        left = 1
        for column, size in zip(
            self.columns, column_widths(self.columns, self.scrollable_content_region.width), strict=True
        ):
            if size and left <= x < left + size + 1 and column.name:
                self.post_message(self.Sorted(column.name))
            left += size + 1 if size else 0
