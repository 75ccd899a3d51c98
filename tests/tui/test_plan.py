"""The plan of the next compaction: seen at any level, changed turn by turn, accepted or left, nothing in between."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from shutil import copytree

import pytest
from textual.widgets import Input

from context_compactor.engine.tiers import Tier
from context_compactor.errors import StoreError
from context_compactor.sessions.session import Session
from context_compactor.summarize.summarizer import open_summarizer
from context_compactor.tui.panes.plan import PlanPane
from context_compactor.tui.screens.viewer import ViewerScreen
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.widgets.bars import AnswerPanel
from tests.sessions.summarizing import FIRST, Slow, steps
from tests.sessions.talk import messages
from tests.tui.places import (
    CALM,
    SIZES,
    URL,
    WIDE,
    filled,
    key_of,
    play,
    press,
    screen_text,
    settle,
    until,
)
from tests.waiting import PATIENCE

KEY = key_of("plan")
NAMED = ("status", "tokens_before", "tokens_after", "messages_after", "preserved", "summarized", "discarded")


def talked(rounds: int = 15, window: int = 8_000) -> None:
    """A session that is almost full, in which the last words are the user's."""
    filled("run", messages(0, rounds * 4 + 1), window=window, automatic=False)


@contextmanager
def kept(name: str = "run"):
    """The session as it is in the store."""
    with Session.open(name, store=URL) as session:
        yield session


def pane_of(pilot) -> PlanPane:
    return pilot.app.screen.query_one(PlanPane)


def planned(pilot) -> PlanPane:
    """The pane when what it shows is what is wished for."""
    pane = pane_of(pilot)
    assert not pane.planner.is_planning
    return pane


def told(pilot) -> str:
    return "\n".join(pilot.app.screen.query_one(AnswerPanel).texts)


async def to_turn(pilot, turn: int) -> None:
    pane = pane_of(pilot)
    pane.rows.cursor = pane.planner.at(turn)
    await settle(pilot)


@pytest.mark.parametrize("size", SIZES)
def test_the_plan_shows_totals_turns_tiers_reasons_and_what_was_chosen(size, picture):
    talked()

    async def story(pilot):
        await press(pilot, KEY, "l", "l")
        await to_turn(pilot, 5)
        await press(pilot, "p", "down", "minus", "down", "down", "down", "minus", "up")
        text = screen_text(pilot)
        assert "level aggressive" in text
        assert "3 tiers changed, not saved yet" in text
        assert "pin*" in text
        assert "of the budget" in text
        picture(pilot, "plan-changed")

    play(story, size=size, session_id="run")


def test_every_change_shows_what_a_compaction_with_it_would_come_to_and_changes_nothing():
    talked()

    async def story(pilot):
        with kept() as session:
            row, tiers = session._core.store.session("run"), {}
            await press(pilot, KEY)
            for keys, level, changes in (
                (("l",), "soft", {}),
                (("l", "l"), "emergency", {}),
                (("p",), "emergency", {5: "keep"}),
                (("minus",), "emergency", {5: "summarize"}),
                (("minus", "minus"), "emergency", {5: "drop"}),
                (("plus",), "emergency", {5: "reference"}),
                (("x",), "emergency", {}),
                (("right", "right", "right"), "emergency", {5: "keep"}),
                (("X",), "emergency", {}),
            ):
                await to_turn(pilot, 5)
                await press(pilot, *keys)
                tiers = changes
                expected = session.plan(level=level, tiers=tiers)
                plan = planned(pilot).planner.plan
                assert plan.decisions == expected.decisions
                assert f"→ {expected.report.tokens_after:,} tokens" in screen_text(pilot)
            assert session.tiers() == {}
            assert session._core.store.session("run") == row

    play(story, session_id="run")


def test_a_target_in_tokens_or_percent_and_a_focus_are_asked_for():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "t")
        assert isinstance(pilot.app.focused, Input)
        await press(pilot, *"2500", "enter")
        assert planned(pilot).planner.draft.target_tokens == 2_500
        assert "target 2,500" in screen_text(pilot)
        await press(pilot, "t")
        pilot.app.focused.value = ""
        await press(pilot, *"30%", "enter")
        plan = planned(pilot).planner.plan
        assert pane_of(pilot).planner.draft.target_tokens == plan.report.tokens_before * 30 // 100
        await press(pilot, "f", *"part 3", "enter")
        with kept() as session:
            expected = session.plan("part 3", None, pane_of(pilot).planner.draft.target_tokens)
        assert planned(pilot).planner.plan.decisions == expected.decisions
        await press(pilot, "t")
        pilot.app.focused.value = "a lot"
        await press(pilot, "enter")
        assert any("neither a number" in each.message for each in pilot.app._notifications)
        assert pane_of(pilot).planner.draft.target_tokens == plan.report.tokens_before * 30 // 100
        await press(pilot, "escape")
        assert not pane_of(pilot).query_one("#plan-field").display
        await press(pilot, "t")
        pilot.app.focused.value = ""
        await press(pilot, "enter")
        assert planned(pilot).planner.draft.target_tokens is None

    play(story, session_id="run")


def test_tiers_that_cannot_be_set_are_a_message_and_leave_the_plan_as_it_was():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "l")
        before = planned(pilot).planner.plan
        await press(pilot, "end", "minus")
        assert "not answered yet" in told(pilot)
        assert planned(pilot).planner.plan.decisions == before.decisions
        assert pane_of(pilot).planner.draft.changes == {}
        await to_turn(pilot, 5)
        await pilot.press("p", "end", "minus")  # faster than anything is reckoned
        await settle(pilot)
        assert planned(pilot).planner.draft.changes == {5: Tier.KEEP}
        await to_turn(pilot, 5)
        await press(pilot, "plus")
        assert "nothing beyond" in told(pilot)

    play(story, session_id="run")


def test_instructions_cannot_be_chosen_about():
    filled("run", [{"role": "system", "content": "Be careful."}, *messages(0, 41)], window=8_000, automatic=False)

    async def story(pilot):
        await press(pilot, KEY, "home", "minus", "p", "plus")
        assert "Instructions are never touched" in told(pilot)
        assert "instr" in screen_text(pilot)
        assert planned(pilot).planner.draft.changes == {}
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)

    play(story, session_id="run")


def test_accepting_compacts_as_the_same_tiers_and_level_do_in_the_library(folder):
    talked()
    copytree(folder, folder / "other")

    async def story(pilot):
        await press(pilot, KEY, "l", "l", "l")
        for turn, key in ((5, "p"), (8, "p"), (2, "minus")):
            await to_turn(pilot, turn)
            await press(pilot, key)
        await press(pilot, "a")
        assert "✓ Compacted" in told(pilot)
        assert "3 tiers saved" in told(pilot)
        assert planned(pilot).planner.draft.changes == {}

    play(story, session_id="run")
    with Session.open("run", store=f"sqlite:///{folder}/other/sessions.db") as session:
        for turn, tier in ((5, "keep"), (8, "keep"), (2, "drop")):
            session.set_tier(turn, tier)
        expected = session.compact(level="emergency")
        context, tiers = session.context(), session.tiers()
    with kept() as session:
        (report,) = session.compactions()
        assert [getattr(report, name) for name in NAMED] == [getattr(expected, name) for name in NAMED]
        assert session.context() == context
        assert session.tiers() == tiers


def test_keeping_the_tiers_compacts_nothing():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "s")
        assert "no tier that is not saved" in told(pilot)
        await to_turn(pilot, 5)
        await press(pilot, "p")
        await to_turn(pilot, 8)
        await press(pilot, "p", "s")
        assert "2 tiers saved" in told(pilot)
        assert "not yet kept" not in screen_text(pilot)
        assert " pin " in screen_text(pilot)
        with kept() as session:
            assert session.tiers() == {5: Tier.KEEP, 8: Tier.KEEP}
        await press(pilot, "X")
        assert "free*" in screen_text(pilot)
        await press(pilot, "s")
        with kept() as session:
            assert session.tiers() == {}
            assert session.compactions() == []

    play(story, session_id="run")


def test_what_is_not_kept_waits_while_one_is_elsewhere_and_one_is_told_so():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "l")
        await to_turn(pilot, 5)
        await press(pilot, "p", "1", KEY)
        assert "1 tier changed, not saved yet" in screen_text(pilot)
        await press(pilot, "escape")
        assert any("1 tier changed and not saved" in each.message for each in pilot.app._notifications)
        await press(pilot, "enter", KEY)
        pane = planned(pilot)
        assert (pane.planner.draft.level, pane.planner.draft.changes) == ("soft", {5: Tier.KEEP})
        with kept() as session:
            assert session.tiers() == {}

    play(story, session_id="run")


def test_where_nothing_has_to_be_done_it_says_why_and_turns_can_be_pinned():
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        pane_of(pilot).preview(target=100_000)
        await settle(pilot)
        text = screen_text(pilot)
        assert "Nothing to do: " in text
        assert "within the target of 100,000 already" in text
        assert planned(pilot).rows.total > 40
        await to_turn(pilot, 5)
        await press(pilot, "p", "a")
        assert "No compaction needed" in told(pilot)
        with kept() as session:
            assert session.tiers() == {5: Tier.KEEP}
            assert session.compactions() == []

    play(story, session_id="run")


def test_a_session_in_which_nothing_was_said_has_no_plan():
    filled("run", [])

    async def story(pilot):
        await press(pilot, KEY, "p", "minus", "x", "X", "l", "enter", "end")
        assert "Nothing was said yet" in screen_text(pilot)
        await press(pilot, "a")
        assert "No compaction needed" in told(pilot)

    play(story, session_id="run")


def test_turns_that_come_in_meanwhile_are_planned_with_what_was_chosen_and_the_cursor_stays():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "l")
        await to_turn(pilot, 8)
        await press(pilot, "p")
        total = pane_of(pilot).rows.total
        with kept() as session:
            session.append(messages(61, 69))
        await until(pilot, lambda: pane_of(pilot).rows.total > total)
        await settle(pilot)
        pane = planned(pilot)
        assert pane.turn.turn == 8
        assert pane.planner.draft.changes == {8: Tier.KEEP}
        assert "pin*" in screen_text(pilot)

    play(story, session_id="run")


def test_what_was_chosen_about_turns_that_are_folded_meanwhile_is_said_to_be_past():
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        for turn, key in ((2, "minus"), (44, "p")):
            await to_turn(pilot, turn)
            await press(pilot, key)
        with kept() as session:
            session.compact(level="emergency")
        await until(pilot, lambda: "folded already" in told(pilot))
        await settle(pilot)
        assert planned(pilot).planner.draft.changes == {44: Tier.KEEP}

    play(story, session_id="run")


def test_an_accepted_plan_that_is_cancelled_leaves_the_context_and_the_tiers_as_they_were():
    filled("run", [*FIRST, *steps(0, 34)], window=32_000, automatic=False)
    model = Slow()

    async def story(pilot):
        with kept() as session:
            session.set_tier(3, "keep")
            before = session.context()
        await press(pilot, KEY)
        pane_of(pilot).preview(target=4_000)
        await settle(pilot)
        pilot.app.source._opened._known["run"].core.use_summarizer(open_summarizer(model, CALM))
        await to_turn(pilot, 5)
        await press(pilot, "p")
        await to_turn(pilot, 3)
        await press(pilot, "x")
        await pilot.press("a")
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
        await until(pilot, lambda: "Ctrl-C cancels" in screen_text(pilot))
        await pilot.press("a")
        await until(pilot, lambda: "Not now" in told(pilot))
        await press(pilot, "ctrl+c")
        assert "Cancelled: nothing was changed" in told(pilot)
        assert planned(pilot).planner.draft.changes == {5: Tier.KEEP, 3: None}
        with kept() as session:
            assert session.tiers() == {3: Tier.KEEP}
            assert session.context() == before
            assert session.compactions() == []
        model.go.set()
        await press(pilot, "a")
        assert "✓ Compacted" in told(pilot)

    play(story, session_id="run")


def test_a_plan_that_is_accepted_is_done_though_one_leaves_and_comes_back():
    filled("run", [*FIRST, *steps(0, 34)], window=32_000, automatic=False)
    model = Slow()

    async def story(pilot):
        await press(pilot, KEY)
        pane_of(pilot).preview(target=4_000)
        await settle(pilot)
        pilot.app.source._opened._known["run"].core.use_summarizer(open_summarizer(model, CALM))
        await to_turn(pilot, 5)
        await press(pilot, "p")
        await pilot.press("a")
        assert await asyncio.to_thread(model.begun.wait, PATIENCE)
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.query(PlanPane))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen.query(PlanPane))
        await pilot.press(KEY)
        model.go.set()
        await settle(pilot)
        assert "✓ Compacted" in told(pilot)
        assert planned(pilot).planner.draft.changes == {}
        with kept() as session:
            assert session.tiers() == {5: Tier.KEEP}
            assert len(session.compactions()) == 1

    play(story, session_id="run")


def test_enter_opens_the_decisions_about_a_turn_and_what_was_said_in_it():
    talked()

    async def story(pilot):
        await press(pilot, KEY, "l", "l", "l")
        for turn in (5, 44):
            await to_turn(pilot, turn)
            await press(pilot, "enter")
            text = screen_text(pilot)
            assert f"turn {turn}" in text
            assert "why " in text
            assert f"src/part_{(turn - 2) // 3}.py" in text
            await press(pilot, "escape")

    play(story, size=WIDE, session_id="run")


@pytest.mark.parametrize("size", SIZES)
def test_the_mouse_does_what_keys_do(size):
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        line = screen_text(pilot).splitlines()
        top = next(y for y, text in enumerate(line) if "t target" in text)
        await pilot.click(offset=(line[top].index("l level") + 3, top))
        await settle(pilot)
        assert planned(pilot).planner.draft.level == "soft"
        await pilot.click(offset=(line[top].index("f focus") + 3, top))
        await settle(pilot)
        assert isinstance(pilot.app.focused, Input)
        await press(pilot, "escape")
        first = pane_of(pilot).rows.region.y + 1
        await pilot.click(offset=(20, first + 3))
        await settle(pilot)
        assert pane_of(pilot).turn.turn == 4
        await pilot.click(offset=(20, first + 3))
        await settle(pilot)
        assert isinstance(pilot.app.screen, ViewerScreen)

    play(story, size=size, session_id="run")


def test_a_session_is_let_compact_by_itself_or_not():
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        assert "auto off" in screen_text(pilot)
        for is_on in (True, False):
            await press(pilot, "A")
            assert f"auto {'on' if is_on else 'off'}" in screen_text(pilot)
            with kept() as session:
                assert session.settings.automatic is is_on
                assert session.settings.idle_seconds == 0
        assert "only when it is asked for" in told(pilot)

    play(story, session_id="run")


class Held(LocalSource):
    """A store whose plans take until they are let go; one that is begun before is under way alone."""

    def __init__(self) -> None:
        super().__init__(URL, look_seconds=0.05)
        self.go = asyncio.Event()
        self.asked: list[dict[int, str]] = []
        self.at_once = 0

    async def planned(self, session_id, **draft):
        self.asked.append(dict(draft["tiers"] or {}))
        self.at_once += 1
        assert self.at_once == 1
        await self.go.wait()
        try:
            return await super().planned(session_id, **draft)
        finally:
            self.at_once -= 1


def test_a_change_is_seen_at_once_and_the_last_one_wins_however_long_plans_take():
    talked()

    async def story(pilot):
        source = pilot.app.source
        await pilot.press(KEY)
        source.go.set()
        await settle(pilot)
        source.go.clear()
        await to_turn(pilot, 5)
        begun = len(source.asked)
        await pilot.press("p")
        await until(pilot, lambda: len(source.asked) > begun)
        text = screen_text(pilot)
        assert "reckoning…" in text
        assert "keep…" in text
        await pilot.press("minus", "minus", "minus", "down", "p")
        await until(pilot, lambda: "drop…" in screen_text(pilot))
        assert pane_of(pilot).planner.is_planning
        source.go.set()
        await settle(pilot)
        assert "reckoning" not in screen_text(pilot)
        assert source.asked[-1] == {5: Tier.DROP, 6: Tier.KEEP}
        assert planned(pilot).planner.plan.tiers == {5: Tier.DROP, 6: Tier.KEEP}
        assert len(source.asked) == begun + 2  # five changes, but what nobody waits for is not planned

    play(story, session_id="run", source=Held())


def test_words_of_a_conversation_and_a_focus_are_shown_as_they_are():
    odd = "\x1b]0;owned\x07 [bold]not bold[/bold] [@click=app.quit]quit[/] \u202eright to left\x00"
    said = [{"role": ("user", "assistant")[at % 2], "content": f"{odd} {at} " + "word " * 80} for at in range(40)]
    filled("run", said, window=8_000, automatic=False)

    async def story(pilot):
        await press(pilot, KEY)
        pane_of(pilot).preview("emergency", None, "[bold]x[/] $told [@click=app.quit]q[/]")
        await settle(pilot)
        text = screen_text(pilot)
        assert "focus [bold]x[/] $told" in text
        assert "[bold]not bold[/bold]" in text
        assert "\x1b" not in text
        await press(pilot, "down", "enter")
        assert isinstance(pilot.app.screen, ViewerScreen)

    play(story, size=WIDE, session_id="run")


class Failing(LocalSource):
    """A store that fails where it is told to."""

    def __init__(self) -> None:
        super().__init__(URL, look_seconds=0.05)
        self.fails: set[str | int] = set()

    async def planned(self, session_id, **draft):
        self._fail("planned")
        return await super().planned(session_id, **draft)

    async def set_tier(self, session_id, turn, tier):
        self._fail(turn)
        await super().set_tier(session_id, turn, tier)

    def _fail(self, what) -> None:
        if what in self.fails:
            raise StoreError("the disk is full")


def test_a_plan_that_cannot_be_made_is_said_to_be_so_and_made_at_the_next_look():
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        pilot.app.source.fails.add("planned")
        await press(pilot, "l")
        assert "the disk is full" in screen_text(pilot)
        assert "reckoning…" in screen_text(pilot)
        pilot.app.source.fails.clear()
        await press(pilot, "r")
        assert "the disk is full" not in screen_text(pilot)
        assert planned(pilot).planner.plan.report.level == "soft"

    play(story, session_id="run", source=Failing())


@pytest.mark.parametrize("key", ["s", "a"])
def test_tiers_are_kept_all_or_none(key):
    talked()

    async def story(pilot):
        await press(pilot, KEY)
        for turn in (5, 8):
            await to_turn(pilot, turn)
            await press(pilot, "p")
        pilot.app.source.fails.add(8)
        await press(pilot, key)
        assert "the disk is full" in told(pilot)
        with kept() as session:
            assert session.tiers() == {}
            assert session.compactions() == []
        assert "2 tiers changed, not saved yet" in screen_text(pilot)

    play(story, session_id="run", source=Failing())
