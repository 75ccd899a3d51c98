"""All sessions: how full each is, what was done about it, and how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from context_compactor.errors import CompactorError
from context_compactor.settings import Level
from context_compactor.text import percent, plural, short_count
from context_compactor.tui.formatting import cut_line, gauge_bar, safe_text, sparkline, time_ago
from context_compactor.tui.screens.base import LatestRun, LiveScreen, app_of, offline_banner
from context_compactor.tui.screens.dialogs import NewSessionScreen, ask_and_delete
from context_compactor.tui.sources.base import SessionLine, SessionTrend, SourceChange
from context_compactor.tui.widgets.bars import KeysFooter, level_style, level_words
from context_compactor.tui.widgets.row_list import Cell, Column, Row, RowList

_GAUGE, _SPARK = 8, 16
_COLUMNS = (
    Column("Session", name="name"),
    Column("Fill", _GAUGE + 6, name="fill"),
    Column("Level", 12, name="level"),
    Column("Tokens", 8, right=True, name="tokens"),
    Column("Turns", 7, right=True, name="turns"),
    Column("Messages", 9, right=True, min_list_width=120, name="messages"),
    Column("Compacted", 10, right=True, name="compacted"),
    Column("Course", _SPARK, min_list_width=95),
    Column("Used", 10, right=True, min_list_width=110, name="used"),
)
_LEVELS = (None, *Level)
_NO_STORE = """{error}

What to try
  n                                  chat with a model, here and now
  compactor sessions                 which sessions the store of this folder has
  compactor compact FILE --session A keep a conversation as a session
  compactor import                   take over what coding agents have logged
  compactor tui --store URL          another store
  compactor tui --server URL         the sessions of a server

It is looked for again and again: this page goes away as soon as there is something to show. r looks at once."""
_NONE_YET = """There is no session in {name} yet.

The first one appears here by itself, as soon as an agent begins one. To make one now:

  n                                         chat with a model, here and now
  compactor compact FILE --session run-42   keep a conversation
  compactor import                          take over what coding agents have logged"""


class SessionsScreen(LiveScreen):
    """The list, with a filter over it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("n", "new", "New"),
        Binding("s", "sort", "Sort"),
        Binding("S", "turn_around", "Reverse", show=False),
        Binding("r", "reload", "Reload"),
        Binding("d", "delete", "Delete", show=False),
        Binding("escape", "clear", "All", show=False),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._every: list[SessionLine] = []
        self._shown: list[SessionLine] = []
        self._trends: dict[str, SessionTrend] = {}
        self._sort = "-used"
        self._loading = LatestRun(self._read)

    def compose(self) -> ComposeResult:
        yield offline_banner()
        yield Static(id="sessions-title", classes="title", markup=False)
        yield Input(placeholder="filter by name or model", id="filter", compact=True)
        yield RowList(_COLUMNS, self._some, id="session-rows")
        with VerticalScroll(id="nothing"):
            yield Static("Reading…", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        super().on_mount()
        self.rows.sorted_by = self._sort
        self.rows.display = False
        self.load()

    @property
    def rows(self) -> RowList:
        return self.query_one("#session-rows", RowList)

    def changed(self, change: SourceChange) -> None:
        """Read the list again, unless there is one and nobody can be asked."""
        if not (change.offline and self._every):
            self.load()

    def load(self) -> None:
        """Read the list; while that is being done, once more behind it."""
        if self._loading.request():
            self.run_worker(self._loading.run(), group="load", exit_on_error=False)

    async def _read(self) -> None:
        source = app_of(self).source
        try:
            self._every = await source.sessions()
        except CompactorError as error:
            if not self._every:
                self._show_nothing(_NO_STORE.format(error=error))
            return
        if not self._every:
            self._show_nothing(_NONE_YET.format(name=source.name))
            return
        is_first = not self.rows.display
        self.rows.display = True
        self.query_one("#nothing").display = False
        self._choose()
        if is_first and not self.query_one("#filter", Input).value:
            self.rows.focus()

    def _show_nothing(self, words: str) -> None:
        nothing = self.query_one("#nothing")
        nothing.display = True
        nothing.query_one(Static).update(safe_text(words))
        self.rows.display = False
        self.query_one("#sessions-title", Static).update("Context Compactor")
        nothing.focus()

    # Filter and order

    def _choose(self) -> None:
        """Those that fit the filter in the order that is asked for; the cursor stays on its session."""
        rows = self.rows
        at_cursor = self._shown[rows.cursor].id if rows.cursor < len(self._shown) else ""
        words = self.query_one("#filter", Input).value.casefold().strip()
        self._shown = [line for line in self._every if words in line.id.casefold() or words in line.model.casefold()]
        self._shown.sort(key=lambda line: line.id)
        key = self._keys()[self._sort.lstrip("-")]
        self._shown.sort(key=key, reverse=self._sort.startswith("-"))
        rows.sorted_by = self._sort
        rows.forget(len(self._shown))
        rows.cursor = next(
            (at for at, line in enumerate(self._shown) if line.id == at_cursor), min(rows.cursor, len(self._shown))
        )
        part = f"{len(self._shown):,} of " if len(self._shown) != len(self._every) else ""
        many = f"{part}{plural(len(self._every), 'session')}"
        counts = Counter(line.level for line in self._every)
        levels = ", ".join(f"{counts[level]:,} {level}" for level in Level if counts[level])
        title = " · ".join(filter(None, (many, levels, app_of(self).source.name)))
        self.query_one("#sessions-title", Static).update(cut_line(title))

    def _keys(self) -> dict[str, Callable[[SessionLine], Any]]:
        none = SessionTrend()
        return {
            "used": lambda line: line.updated_at,
            "name": lambda line: line.id,
            "fill": lambda line: line.share,
            "level": lambda line: (_LEVELS.index(line.level), line.share),
            "tokens": lambda line: line.tokens,
            "turns": lambda line: self._trends.get(line.id, none).turns or 0,
            "messages": lambda line: line.messages,
            "compacted": lambda line: self._trends.get(line.id, none).last_at,
        }

    @on(Input.Changed, "#filter")
    def _filter(self) -> None:
        if self._every:
            self._choose()

    @on(Input.Submitted, "#filter")
    def _filtered(self) -> None:
        self.rows.focus()

    @on(RowList.Sorted)
    def _sort_by(self, event: RowList.Sorted) -> None:
        is_same = self._sort.lstrip("-") == event.name
        down = not self._sort.startswith("-") if is_same else event.name != "name"
        self._order(f"-{event.name}" if down else event.name)

    def _order(self, sort: str) -> None:
        self._sort = sort
        self._choose()

    def action_filter(self) -> None:
        self.query_one("#filter", Input).focus()

    def action_clear(self) -> None:
        self.query_one("#filter", Input).value = ""
        self.rows.focus()

    def action_sort(self) -> None:
        names = list(self._keys())
        name = names[(names.index(self._sort.lstrip("-")) + 1) % len(names)]
        self._order(name if name == "name" else f"-{name}")

    def action_turn_around(self) -> None:
        self._order(self._sort[1:] if self._sort.startswith("-") else f"-{self._sort}")

    def action_reload(self) -> None:
        self.load()

    def action_new(self) -> None:
        self.app.push_screen(NewSessionScreen(frozenset(line.id for line in self._every)))

    def action_delete(self) -> None:
        """Delete the session under the cursor, if that is really wanted."""
        if self.rows.display and self.rows.cursor < len(self._shown):
            self.run_worker(self._delete(self._shown[self.rows.cursor].id), group="delete", exit_on_error=False)

    async def _delete(self, session_id: str) -> None:
        app = app_of(self)
        try:
            is_gone = await ask_and_delete(app, session_id)
        except CompactorError as error:
            app.show_error(error)
            is_gone = True  # or as good as: the list says
        if is_gone:
            self.load()

    # Rows

    def _some(self, first: int, count: int) -> list[Row]:
        return [self._row(line) for line in self._shown[first : first + count]]

    @on(RowList.RowsRequested)
    def _want(self, event: RowList.RowsRequested) -> None:
        wanted = self._shown[event.first : event.first + event.count]
        self.run_worker(self._find_trends(wanted), group="trends", exclusive=True, exit_on_error=False)

    async def _find_trends(self, lines: list[SessionLine]) -> None:
        """How the sessions that are seen went, one after the other; each is shown as soon as it is known."""
        source = app_of(self).source
        for line in lines:
            try:
                trend = await source.trend(line)
            except CompactorError:
                continue  # what is wrong with the source is reported by who watches it
            if self._trends.get(line.id) != trend:
                self._trends[line.id] = trend
                at = next((at for at, shown in enumerate(self._shown) if shown.id == line.id), None)
                if at is not None:
                    self.rows.put(at, [self._row(self._shown[at])])

    def _row(self, line: SessionLine) -> list[Cell]:
        now, trend, style = app_of(self).now(), self._trends.get(line.id), level_style(line.level)
        marks = tuple(rule.threshold for rule in line.levels[:1])
        turns = "…" if trend is None else "–" if trend.turns is None else f"{trend.turns:,}"
        compacted = "…" if trend is None else time_ago(trend.last_at, now) if trend.compactions else "never"
        return [
            Cell(line.id, "strong"),
            Cell(f"{gauge_bar(line.share, _GAUGE, marks)} {percent(line.share)}", style),
            Cell(level_words(line.level), style),
            Cell(short_count(line.tokens)),
            Cell(turns),
            Cell(f"{line.messages:,}", "faint"),
            Cell(compacted, "faint"),
            Cell(sparkline(trend.line, _SPARK) if trend else "", style),
            Cell(time_ago(line.updated_at, now), "faint"),
        ]

    @on(RowList.Selected)
    def _open(self, event: RowList.Selected) -> None:
        if event.at < len(self._shown):
            app_of(self).show_session(self._shown[event.at].id)
