"""The plan: what the next compaction would do turn by turn, changed by hand, then accepted or left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec import structs
from textual import on
from textual.binding import Binding, BindingType
from textual.widgets import Input

from context_compactor.classify.tier import Tier
from context_compactor.errors import CompactorError
from context_compactor.figures import read_goal
from context_compactor.tui.commands.command import Command
from context_compactor.tui.commands.entering import begin
from context_compactor.tui.plan.accepting import accept, tell_kept
from context_compactor.tui.plan.wish import Wish, raised
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.plan_view import PlanView
from context_compactor.tui.widgets.answer import Answer
from context_compactor.tui.widgets.keys import KeyLine

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_LONGEST_FOCUS = 2_000
_ASKED = {
    "target": "tokens to get down to, such as 40k, or 25% of what there is; empty for none",
    "focus": "what matters most; empty for nothing in particular",
}
_INSTRUCTIONS = "Instructions are never touched, so there is nothing to choose about them."


class PlanPane(PlanView):
    """A plan that one can change: nothing of it is done until it is accepted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign,right", "raise(1)", "Raise", key_display="+"),
        Binding("minus,left", "raise(-1)", "Lower", key_display="-"),
        Binding("p", "pin", "Pin"),
        Binding("x", "free", "Free"),
        Binding("X", "free_all", "Free all", show=False),
        Binding("a", "accept", "Accept the plan", show=False),
        Binding("s", "keep", "Keep steers", show=False),
        Binding("l", "level", "Next level", show=False),
        Binding("t", "ask('target')", "Target", show=False),
        Binding("f", "ask('focus')", "Focus", show=False),
        Binding("A", "automatic", "Compact by itself, or not", show=False),
    ]

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._asked: Literal["target", "focus"] = "target"

    # How far it goes

    def preview(self, level: str | None = None, target: int | None = None, focus: str | None = None) -> None:
        """Plan with these, and with the steers that are chosen already."""
        self.wish_for(structs.replace(self.planner.wish, level=level, target_tokens=target, focus=focus))

    def action_level(self) -> None:
        """The next level."""
        self.wish_for(self.planner.wish.next_level())

    def action_ask(self, what: Literal["target", "focus"]) -> None:
        """Ask for a target or a focus."""
        wish, self._asked = self.planner.wish, what
        field = self.query_one("#plan-field", Input)
        field.placeholder = f"{what}: {_ASKED[what]}"
        field.max_length = _LONGEST_FOCUS
        field.value = (wish.focus or "") if what == "focus" else str(wish.target_tokens or "")
        field.display = True
        field.focus()

    @on(Input.Submitted, "#plan-field")
    def _take(self, event: Input.Submitted) -> None:
        event.stop()
        words, wish = event.value.strip(), self.planner.wish
        if self._asked == "focus":
            self.wish_for(structs.replace(wish, focus=words or None))
        else:
            try:
                goal = read_goal(words or None)
            except CompactorError as error:
                app_of(self).tell_error(error)
                return
            now = self.planner.plan.report.tokens_before if self.planner.plan else 0
            self.wish_for(structs.replace(wish, target_tokens=goal.of(now)))
        self.rows.focus()

    @on(Input.Blurred, "#plan-field")
    def _hide(self, event: Input.Blurred) -> None:
        event.input.display = False

    # What becomes of a turn

    def action_raise(self, by: int) -> None:
        """The turn with the cursor gets a dearer tier, or a cheaper one."""
        turn = self.turn
        if turn is None or self._is_fixed(turn.turn):
            return
        now = self.planner.wish.steers(self.planner.kept).get(turn.turn)
        wanted = raised(now or turn.tier, by)
        if wanted is None and now is None:
            wanted = turn.tier  # where it is already, but from now on because somebody wants it
        if wanted is None:
            words = "kept already" if by > 0 else "dropped already"
            self.session_screen.tell(f"Turn {turn.turn:,} is {words}: there is nothing beyond.", "faint")
            return
        self._choose(turn.turn, wanted)

    def action_pin(self) -> None:
        """Keep the turn with the cursor, or no longer."""
        turn = self.turn
        if turn is not None and not self._is_fixed(turn.turn):
            steers = self.planner.wish.steers(self.planner.kept)
            self._choose(turn.turn, None if steers.get(turn.turn) is Tier.KEEP else Tier.KEEP)

    def action_free(self) -> None:
        """Leave the turn with the cursor to the engine."""
        if self.turn is not None:
            self._choose(self.turn.turn, None)

    def action_free_all(self) -> None:
        """Leave all turns to the engine."""
        self.wish_for(self.planner.wish.freed(self.planner.kept))

    def _choose(self, turn: int, tier: Tier | None) -> None:
        self.wish_for(self.planner.wish.with_steer(self.planner.kept, turn, tier))

    def _is_fixed(self, turn: int) -> bool:
        if turn <= 0:
            self.session_screen.tell(_INSTRUCTIONS, "faint")
        return turn <= 0

    # The end

    def action_accept(self) -> None:
        """Keep the steers and compact as planned."""
        wish, kept = self.planner.wish, dict(self.planner.kept)
        self._do(lambda screen: accept(screen, kept, wish), wish)

    def action_keep(self) -> None:
        """Keep the steers for every compaction to come, without one now."""
        wish, kept = self.planner.wish, dict(self.planner.kept)
        if not wish.changes:
            self.session_screen.tell("There is no steer that is not kept.", "faint")
            return
        self._do(lambda screen: tell_kept(screen, kept, wish), wish)

    def action_automatic(self) -> None:
        """Let the session compact by itself, or not."""
        is_on = not self.planner.is_automatic

        async def change(screen: SessionScreen) -> None:
            now = await self.source.set_automatic(self.session_id, is_on)
            told = "by itself when a level is reached" if now else "only when it is asked for"
            other = "" if now is is_on else " The settings around it say so; they count more."
            screen.tell(f"From now on this session is compacted {told}.{other}", "done" if now is is_on else "warning")

        self._do(change, Wish())

    def _do(self, work: Callable[[SessionScreen], Awaitable[None]], done: Wish) -> None:
        """Begin some work that can be cancelled; what of the wish it has kept is wished for no longer."""
        screen = self.session_screen
        busy = app_of(self).busy_with(screen)
        if busy:
            screen.tell(f"Not now: {busy} is under way. Try: again when it is done; Ctrl-C cancels it.", "warning")
            return

        async def run(screen: SessionScreen, _: str) -> None:
            try:
                await work(screen)
                plans = app_of(screen).plans
                plans[screen.session_id] = plans.get(screen.session_id, Wish()).without(done.changes)
            finally:
                _look_again(screen)

        screen.query_one(Answer).begin()
        begin(screen, Command("plan", "", run), "")

    @on(KeyLine.Pressed)
    async def _press(self, event: KeyLine.Pressed) -> None:
        event.stop()
        actions = {
            "l": "level",
            "t": "ask('target')",
            "f": "ask('focus')",
            "a": "accept",
            "s": "keep",
            "A": "automatic",
        }
        await self.run_action(actions[event.key])


def _look_again(screen: SessionScreen) -> None:
    """Show what is so now where the session is shown by now: its screen may have been left, and opened again."""
    app = app_of(screen)
    shown = app.screen_of(screen.session_id)
    if shown is not None:
        pane = shown.pane_of("plan")
        if isinstance(pane, PlanPane):
            pane.planner.wish = app.plans.get(screen.session_id, Wish())
        shown.action_reload()
