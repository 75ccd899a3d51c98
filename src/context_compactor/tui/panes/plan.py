"""The plan of the next compaction turn by turn: shown, changed by hand, then accepted or left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, cast

from msgspec import structs
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from context_compactor.engine.plan import TurnPlan
from context_compactor.engine.tiers import Tier
from context_compactor.errors import CompactorError
from context_compactor.text import parse_target, plural
from context_compactor.tui import plan_editor
from context_compactor.tui.commands.command import Command
from context_compactor.tui.commands.execution import cancellable, report_compaction, start_command
from context_compactor.tui.plan_editor import PlanDraft, Planner, planned_turn_document, shift_tier
from context_compactor.tui.screens.base import Pane, app_of, placeholder
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.widgets.bars import AnswerPanel, KeyHint, KeyLine
from context_compactor.tui.widgets.row_list import Row, RowList

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen
    from context_compactor.tui.sources.base import SessionSource


async def save_tiers(source: SessionSource, session_id: str, kept: Mapping[int, Tier], draft: PlanDraft) -> None:
    """Keep the tiers of a draft, all of them or none."""
    try:
        for turn, tier in draft.changes.items():
            if tier is None:
                await source.clear_tier(session_id, turn)
            else:
                await source.set_tier(session_id, turn, tier)
    except BaseException:
        await revert_tiers(source, session_id, kept, draft)
        raise


async def revert_tiers(source: SessionSource, session_id: str, kept: Mapping[int, Tier], draft: PlanDraft) -> None:
    """Have the tiers again that were kept before."""
    for turn in draft.changes:
        if turn in kept:
            await source.set_tier(session_id, turn, kept[turn])
        else:
            await source.clear_tier(session_id, turn)


async def save_and_report(screen: SessionScreen, kept: Mapping[int, Tier], draft: PlanDraft) -> None:
    """Keep the tiers without compacting, and say so."""
    await save_tiers(app_of(screen).source, screen.session_id, kept, draft)
    screen.show_message(
        f"{plural(len(draft.changes), 'tier')} saved: every compaction of this session follows.", "done"
    )


async def accept_plan(screen: SessionScreen, kept: Mapping[int, Tier], draft: PlanDraft) -> None:
    """Keep the tiers and compact. When that is cancelled or fails, the tiers are as they were before, too."""
    source, session_id = app_of(screen).source, screen.session_id
    async with cancellable(screen, "Compacting as planned"):
        await save_tiers(source, session_id, kept, draft)
        try:
            report = await source.compact(
                session_id, level=draft.level, target_tokens=draft.target_tokens, focus=draft.focus
            )
        except BaseException:
            await revert_tiers(source, session_id, kept, draft)
            raise
    tiers = f"\n{plural(len(draft.changes), 'tier')} saved." if draft.changes else ""
    report_compaction(screen, report, tiers)


_MIN_WAIT, _MAX_WAIT = 0.05, 0.4
"""Seconds between a change and the plan with it: what takes long to plan waits for more changes."""
_MAX_PAUSE = 2.0
"""Seconds between two plans of a session that goes on by itself: half of the time at most is spent on planning."""


class PlanView(Pane):
    """A plan, made again whenever its draft changes. The draft stays while the app runs."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._planner: Planner | None = None
        self._must_refresh = True
        self._shown: int | None = None

    def compose(self) -> ComposeResult:
        yield KeyLine(id="plan-keys")
        field = Input(id="plan-field", compact=True)
        field.display = False
        yield field
        yield placeholder()
        yield Static(id="plan-outcome", markup=False)
        yield RowList(plan_editor.PLAN_COLUMNS, self._some, id="plan-rows")
        yield Static(id="plan-why", markup=False)

    def on_mount(self) -> None:
        self._show_choices()

    def on_unmount(self) -> None:
        """What was chosen and is not kept waits for whoever comes back, and they see a message."""
        changes = self.planner.draft.changes
        if changes and not app_of(self).is_leaving:
            count = plural(len(changes), "tier")
            words = f"{count} changed and not saved: they wait in the plan of {self.session_id[:60]}."
            self.app.notify(words, severity="warning", markup=False)

    # What is known

    @property
    def session_screen(self) -> SessionScreen:
        return cast("SessionScreen", self.screen)

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            draft = app_of(self).plans.get(self.session_id, PlanDraft())
            self._planner = Planner(self.source, self.session_id, draft)
        return self._planner

    @property
    def rows(self) -> RowList:
        return self.query_one("#plan-rows", RowList)

    @property
    def turn(self) -> TurnPlan | None:
        at = self.rows.cursor
        return self.planner.turns[at] if at < len(self.planner.turns) else None

    def first_widget(self) -> RowList:
        return self.rows

    def mark_stale(self, *, is_seen: bool) -> None:
        """The session has changed: see how it stands before the next plan."""
        self._must_refresh = True
        super().mark_stale(is_seen=is_seen)

    async def load(self) -> None:
        """Plan the draft; once more behind that when it has changed meanwhile."""
        planner = self.planner
        if not self._must_refresh:
            await asyncio.sleep(min(max(planner.seconds / 3, _MIN_WAIT), _MAX_WAIT))
        else:
            await asyncio.sleep(min(planner.seconds, _MAX_PAUSE))
            self._must_refresh = False
            try:
                await planner.refresh()
            except BaseException:
                self._must_refresh = True
                raise
        refused = await planner.replan()
        self._remember()
        for why in refused:
            self.session_screen.show_message(why, "warning")
        self.say("" if planner.turns else "Nothing was said yet, so there is nothing to plan.")
        self.show()

    def update_draft(self, draft: PlanDraft) -> None:
        """Take another draft: seen at once, planned soon."""
        if draft != self.planner.draft:
            self.planner.draft = draft
            self._remember()
            self.show()
            self.reload()

    def _remember(self) -> None:
        app_of(self).plans[self.session_id] = self.planner.draft

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
        draft = planner.draft
        automatic = ("on" if planner.is_automatic else "off") if planner.is_enabled else "off: enabled is off"
        hints = [
            KeyHint("l", "level", draft.level or "–"),
            KeyHint("t", "target", f"{draft.target_tokens:,}" if draft.target_tokens else "–"),
            KeyHint("f", "focus", draft.focus or "–"),
            KeyHint("a", "accept"),
            KeyHint("s", "keep"),
            KeyHint("A", "auto", automatic),
        ]
        self.query_one(KeyLine).show(hints)
        outcome = self.query_one("#plan-outcome", Static)
        outcome.display = planner.plan is not None
        if planner.plan is not None:
            outcome.update(plan_editor.outcome_text(planner.plan, planner.budget_tokens, draft, planner.is_planning))

    @on(RowList.Moved)
    def _show_why(self) -> None:
        turn = self.turn
        self._shown = turn.turn if turn is not None else None
        width, room = self.size.width - 2, max(self.size.height // 4 - 1, 2)
        self.query_one("#plan-why", Static).update(
            plan_editor.reason_text(turn, width, room) if turn is not None else ""
        )

    def on_resize(self) -> None:
        self._show_why()

    def _some(self, first: int, count: int) -> list[Row]:
        planner = self.planner
        tiers, is_planning = planner.draft.tiers(planner.kept), planner.is_planning
        return [
            plan_editor.plan_row(turn, planner.draft, planner.kept, tiers, is_planning)
            for turn in planner.turns[first : first + count]
        ]

    @on(RowList.Selected)
    def _open(self) -> None:
        if self.turn is not None:
            self.app.push_screen(ViewerScreen(planned_turn_document(self.source, self.session_id, self.turn)))


_MAX_FOCUS = 2_000
_FIELD_HINTS = {
    "target": "tokens to get down to, such as 40k, or 25% of what there is; empty for none",
    "focus": "what matters most; empty for nothing in particular",
}
_PLAN_BINDINGS = (
    Binding("a", "accept", "Accept the plan", show=False),
    Binding("s", "keep", "Save tiers", show=False),
    Binding("l", "level", "Next level", show=False),
    Binding("t", "ask('target')", "Target", show=False),
    Binding("f", "ask('focus')", "Focus", show=False),
    Binding("A", "automatic", "Compact by itself, or not", show=False),
)
"""The keys that stand over the plan, where they can be clicked on."""
_INSTRUCTIONS_FIXED = "Instructions are never touched, so there is nothing to choose about them."


class PlanPane(PlanView):
    """A plan that one can change: nothing of it is done until it is accepted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign,right", "raise(1)", "Raise", key_display="+"),
        Binding("minus,left", "raise(-1)", "Lower", key_display="-"),
        Binding("p", "pin", "Pin"),
        Binding("x", "free", "Free"),
        Binding("X", "free_all", "Free all", show=False),
        *_PLAN_BINDINGS,
    ]

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._asked: Literal["target", "focus"] = "target"

    # How far it goes

    def preview(self, level: str | None = None, target: int | None = None, focus: str | None = None) -> None:
        """Plan with these, and with the tiers that are chosen already."""
        self.update_draft(structs.replace(self.planner.draft, level=level, target_tokens=target, focus=focus))

    def action_level(self) -> None:
        self.update_draft(self.planner.draft.next_level())

    def action_ask(self, what: Literal["target", "focus"]) -> None:
        draft, self._asked = self.planner.draft, what
        field = self.query_one("#plan-field", Input)
        field.placeholder = f"{what}: {_FIELD_HINTS[what]}"
        field.max_length = _MAX_FOCUS
        field.value = (draft.focus or "") if what == "focus" else str(draft.target_tokens or "")
        field.display = True
        field.focus()

    @on(Input.Submitted, "#plan-field")
    def _take(self, event: Input.Submitted) -> None:
        event.stop()
        words, draft = event.value.strip(), self.planner.draft
        if self._asked == "focus":
            self.update_draft(structs.replace(draft, focus=words or None))
        else:
            try:
                goal = parse_target(words or None)
            except CompactorError as error:
                app_of(self).show_error(error)
                return
            now = self.planner.plan.report.tokens_before if self.planner.plan else 0
            self.update_draft(structs.replace(draft, target_tokens=goal.of(now)))
        self.rows.focus()

    @on(Input.Blurred, "#plan-field")
    def _hide(self, event: Input.Blurred) -> None:
        event.input.display = False

    # What becomes of a turn

    def action_raise(self, by: int) -> None:
        """The turn with the cursor gets a tier that keeps more, or less."""
        turn = self.turn
        if turn is None or self._is_fixed(turn.turn):
            return
        now = self.planner.draft.tiers(self.planner.kept).get(turn.turn)
        wanted = shift_tier(now or turn.tier, by)
        if wanted is None and now is None:
            wanted = turn.tier  # where it is already, but from now on because somebody wants it
        if wanted is None:
            words = "kept already" if by > 0 else "dropped already"
            self.session_screen.show_message(f"Turn {turn.turn:,} is {words}: there is nothing beyond.", "faint")
            return
        self._choose(turn.turn, wanted)

    def action_pin(self) -> None:
        """Keep the turn with the cursor, or no longer."""
        turn = self.turn
        if turn is not None and not self._is_fixed(turn.turn):
            tiers = self.planner.draft.tiers(self.planner.kept)
            self._choose(turn.turn, None if tiers.get(turn.turn) is Tier.KEEP else Tier.KEEP)

    def action_free(self) -> None:
        if self.turn is not None:
            self._choose(self.turn.turn, None)

    def action_free_all(self) -> None:
        self.update_draft(self.planner.draft.freed(self.planner.kept))

    def _choose(self, turn: int, tier: Tier | None) -> None:
        self.update_draft(self.planner.draft.with_tier(self.planner.kept, turn, tier))

    def _is_fixed(self, turn: int) -> bool:
        if turn <= 0:
            self.session_screen.show_message(_INSTRUCTIONS_FIXED, "faint")
        return turn <= 0

    # The end

    def action_accept(self) -> None:
        """Keep the tiers and compact as planned."""
        draft, kept = self.planner.draft, dict(self.planner.kept)
        self._do(lambda screen: accept_plan(screen, kept, draft), draft)

    def action_keep(self) -> None:
        """Keep the tiers for every compaction to come, without one now."""
        draft, kept = self.planner.draft, dict(self.planner.kept)
        if not draft.changes:
            self.session_screen.show_message("There is no tier that is not saved.", "faint")
            return
        self._do(lambda screen: save_and_report(screen, kept, draft), draft)

    def action_automatic(self) -> None:
        """Let the session compact by itself, or not."""
        is_on = not self.planner.is_automatic

        async def change(screen: SessionScreen) -> None:
            now = await self.source.set_automatic(self.session_id, is_on)
            words = "by itself when a level is reached" if now else "only when it is asked for"
            other = "" if now is is_on else " The settings around it say so; they count more."
            screen.show_message(
                f"From now on this session is compacted {words}.{other}", "done" if now is is_on else "warning"
            )

        self._do(change, PlanDraft())

    def _do(self, work: Callable[[SessionScreen], Awaitable[None]], done: PlanDraft) -> None:
        """Begin some work that can be cancelled; what of the draft it has kept is no change any more."""
        screen = self.session_screen
        busy = app_of(self).busy_with(screen)
        if busy:
            screen.show_message(
                f"Not now: {busy} is under way. Try: again when it is done; Ctrl-C cancels it.", "warning"
            )
            return

        async def run(screen: SessionScreen, _: str) -> None:
            try:
                await work(screen)
                plans = app_of(screen).plans
                plans[screen.session_id] = plans.get(screen.session_id, PlanDraft()).without(done.changes)
            finally:
                _refresh_plan(screen)

        screen.query_one(AnswerPanel).begin()
        start_command(screen, Command("plan", "", run), "")

    @on(KeyLine.Pressed)
    async def _press(self, event: KeyLine.Pressed) -> None:
        event.stop()
        for binding in _PLAN_BINDINGS:
            if binding.key == event.key:
                await self.run_action(binding.action)


def _refresh_plan(screen: SessionScreen) -> None:
    """Show what is so now where the session is shown by now: its screen may have been left, and opened again."""
    app = app_of(screen)
    shown = app.screen_of(screen.session_id)
    if shown is not None:
        pane = shown.pane_of("plan")
        if isinstance(pane, PlanPane):
            pane.planner.draft = app.plans.get(screen.session_id, PlanDraft())
        shown.action_reload()
