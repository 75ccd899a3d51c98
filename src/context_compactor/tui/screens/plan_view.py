"""How a plan is shown: what is wished for and what comes of it, the turns, and what is behind one of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Static

from context_compactor.figures import plural
from context_compactor.plan.plan import TurnPlan
from context_compactor.tui.plan import lines
from context_compactor.tui.plan.planner import Planner
from context_compactor.tui.plan.reading import DecidedReading
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.widgets.keys import KeyHint, KeyLine
from context_compactor.tui.widgets.rows import Row, RowList

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_LEAST_WAIT, _MOST_WAIT = 0.05, 0.4
"""Seconds between a change and the plan with it: what takes long to reckon waits for more changes."""
_MOST_REST = 2.0
"""Seconds between two plans of a session that goes on by itself: half of the time at most is spent on planning."""


class PlanView(Pane):
    """A plan, made again whenever something else is wished for. What is wished for stays while the app runs."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._planner: Planner | None = None
        self._must_look = True
        self._shown: int | None = None

    def compose(self) -> ComposeResult:
        """What can be chosen, what comes of it, the turns, and why."""
        yield KeyLine(id="plan-keys")
        field = Input(id="plan-field", compact=True)
        field.display = False
        yield field
        yield note()
        yield Static(id="plan-outcome", markup=False)
        yield RowList(lines.COLUMNS, self._some, id="plan-rows")
        yield Static(id="plan-why", markup=False)

    def on_mount(self) -> None:
        """Nothing is known yet."""
        self._show_choices()

    def on_unmount(self) -> None:
        """What was chosen and is not kept waits for whoever comes back, and they are told so."""
        changes = self.planner.wish.changes
        if changes and not app_of(self).is_leaving:
            count = plural(len(changes), "steer")
            told = f"{count} changed and not kept: they wait in the plan of {self.session_id[:60]}."
            self.app.notify(told, severity="warning", markup=False)

    # What is known

    @property
    def session_screen(self) -> SessionScreen:
        """The screen around it."""
        return cast("SessionScreen", self.screen)

    @property
    def planner(self) -> Planner:
        """What is known of the plan."""
        if self._planner is None:
            wish = app_of(self).plans.get(self.session_id, Wish())
            self._planner = Planner(self.source, self.session_id, wish)
        return self._planner

    @property
    def rows(self) -> RowList:
        """The turns."""
        return self.query_one("#plan-rows", RowList)

    @property
    def turn(self) -> TurnPlan | None:
        """The turn with the cursor."""
        at = self.rows.cursor
        return self.planner.turns[at] if at < len(self.planner.turns) else None

    def first_widget(self) -> RowList:
        """The turns have the focus."""
        return self.rows

    def turn_stale(self, *, is_seen: bool) -> None:
        """The session has changed: see how it stands before the next plan."""
        self._must_look = True
        super().turn_stale(is_seen=is_seen)

    async def load(self) -> None:
        """Plan what is wished for; once more behind that when it has changed meanwhile."""
        planner = self.planner
        if not self._must_look:
            await asyncio.sleep(min(max(planner.seconds / 3, _LEAST_WAIT), _MOST_WAIT))
        else:
            await asyncio.sleep(min(planner.seconds, _MOST_REST))
            self._must_look = False
            try:
                await planner.look()
            except BaseException:
                self._must_look = True
                raise
        refused = await planner.reckon()
        self._remember()
        for why in refused:
            self.session_screen.tell(why, "warning")
        self.say("" if planner.turns else "Nothing was said yet, so there is nothing to plan.")
        self.show()

    def wish_for(self, wish: Wish) -> None:
        """Wish for something else: seen at once, reckoned soon."""
        if wish != self.planner.wish:
            self.planner.wish = wish
            self._remember()
            self.show()
            self.reload()

    def _remember(self) -> None:
        app_of(self).plans[self.session_id] = self.planner.wish

    # What is shown

    def show(self) -> None:
        """Show what is known, with the cursor on the turn it stood on."""
        planner, shown = self.planner, self._shown
        self.rows.forget(len(planner.turns))
        at = planner.at(shown) if shown is not None else None
        if at is not None:
            self.rows.cursor = at
        self._show_choices()
        self._show_why()

    def _show_choices(self) -> None:
        planner = self.planner
        wish = planner.wish
        automatic = ("on" if planner.is_automatic else "off") if planner.is_enabled else "off: enabled is off"
        hints = [
            KeyHint("l", "level", wish.level or "–"),
            KeyHint("t", "target", f"{wish.target_tokens:,}" if wish.target_tokens else "–"),
            KeyHint("f", "focus", wish.focus or "–"),
            KeyHint("a", "accept"),
            KeyHint("s", "keep"),
            KeyHint("A", "auto", automatic),
        ]
        self.query_one(KeyLine).show(hints)
        outcome = self.query_one("#plan-outcome", Static)
        outcome.display = planner.plan is not None
        if planner.plan is not None:
            outcome.update(lines.outcome_text(planner.plan, planner.budget_tokens, wish, planner.is_reckoning))

    @on(RowList.Moved)
    def _show_why(self) -> None:
        turn = self.turn
        self._shown = turn.turn if turn is not None else None
        width, room = self.size.width - 2, max(self.size.height // 4 - 1, 2)
        self.query_one("#plan-why", Static).update(lines.why_text(turn, width, room) if turn is not None else "")

    def on_resize(self) -> None:
        """Another width has room for more or for less."""
        self._show_why()

    def _some(self, first: int, count: int) -> list[Row]:
        planner = self.planner
        steers, is_reckoning = planner.wish.steers(planner.kept), planner.is_reckoning
        return [
            lines.row_of(turn, planner.wish, planner.kept, steers, is_reckoning)
            for turn in planner.turns[first : first + count]
        ]

    @on(RowList.Chosen)
    def _open(self) -> None:
        if self.turn is not None:
            self.app.push_screen(ViewerScreen(DecidedReading(self.source, self.session_id, self.turn)))
