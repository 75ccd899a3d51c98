"""Whatever was said and whatever is wished for: a plan changes nothing, and what is accepted is what is done."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor.engine.tiers import Tier
from context_compactor.sessions import views
from context_compactor.sessions.session import Session
from context_compactor.settings import Level
from context_compactor.tui import plan_editor
from context_compactor.tui.panes.plan import revert_tiers, save_tiers
from context_compactor.tui.plan_editor import PlanDraft, Planner, find_turn, planned_turn_document
from context_compactor.tui.sources.local import LocalSource
from tests.dialects.strategies import DIALECT_NAMES, stories, tell
from tests.sessions.talk import CALM, messages

pytestmark = pytest.mark.slow

NAMED = ("status", "tokens_before", "tokens_after", "messages_after", "preserved", "summarized", "discarded")

wishes = st.builds(
    PlanDraft,
    level=st.sampled_from((None, *Level)),
    target_tokens=st.sampled_from((None, 1, 300, 1_000, 10**9)),
    focus=st.sampled_from((None, "", "part 3", "\x00[bold]")),
    changes=st.dictionaries(st.integers(-3, 40), st.sampled_from((None, *Tier)), max_size=6),
)


@contextmanager
def store_with(said, dialect: str):
    """The address of a new store with a session in which that was said."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/a/sessions.db"
        Path(folder, "a").mkdir()
        calm = structs.replace(CALM, automatic=False)
        with Session.open("run", window=4_000, store=url, dialect=dialect, settings=calm) as session:
            session.append(said)
        yield url


def state_of(url: str):
    with Session.open("run", store=url) as session:
        core, store = session._core, session._core.store
        return store.session("run"), store.entries("run"), views.context(core, core.current_context()), session.tiers()


async def planned(url: str, draft: PlanDraft) -> tuple[Planner, list[str]]:
    source = LocalSource(url)
    try:
        planner = Planner(source, "run", draft)
        await planner.refresh()
        refused = await planner.replan()
        for turn in planner.turns[:3]:
            plan_editor.plan_row(turn, planner.draft, planner.kept, planner.draft.tiers(planner.kept), False)
            plan_editor.reason_text(turn, 80, 3)
            assert (await planned_turn_document(source, "run", turn).document_page(1)).pieces
        plan_editor.outcome_text(planner.plan, planner.budget_tokens, planner.draft, False)
        return planner, refused
    finally:
        await source.close()


async def accepted(url: str, planner: Planner):
    source = LocalSource(url)
    draft = planner.draft
    try:
        await save_tiers(source, "run", planner.kept, draft)
        return await source.compact("run", level=draft.level, target_tokens=draft.target_tokens, focus=draft.focus)
    finally:
        await source.close()


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(story=stories(1, 6), draft=wishes)
def test_a_plan_of_any_conversation_changes_nothing_and_is_what_accepting_it_does(dialect, story, draft):
    with store_with(tell(dialect, story), dialect) as url:
        before = state_of(url)
        planner, refused = asyncio.run(planned(url, draft))
        assert state_of(url) == before
        assert not planner.is_planning
        assert len(planner.draft.changes) + len(refused) <= len(draft.changes)
        folder = Path(url.removeprefix("sqlite:///")).parent
        copytree(folder, folder.parent / "other")
        with Session.open("run", store=f"sqlite:///{folder.parent}/other/sessions.db") as session:
            for turn, tier in planner.draft.changes.items():
                session.clear_tier(turn) if tier is None else session.set_tier(turn, tier)
            expected = session.compact(draft.focus, draft.level, target_tokens=draft.target_tokens)
            context = session.context()
        report = asyncio.run(accepted(url, planner))
        for name in NAMED:
            assert getattr(report, name) == getattr(expected, name)
            assert getattr(planner.plan.report, name) == getattr(report, name)
        assert state_of(url)[2] == context


@given(draft=wishes, kept=st.dictionaries(st.integers(1, 12), st.sampled_from(Tier), max_size=4))
def test_what_is_put_back_is_as_it_was(draft, kept):
    with store_with(messages(0, 17), "openai-chat") as url:
        with Session.open("run", store=url) as session:
            for turn, tier in kept.items():
                session.set_tier(turn, tier)
            before = session.tiers()
        sound = PlanDraft(changes={turn: tier for turn, tier in draft.changes.items() if 0 < turn < 13})

        async def there_and_back():
            source = LocalSource(url)
            try:
                await save_tiers(source, "run", before, sound)
                assert await source.tiers("run") == sound.tiers(before)
                await revert_tiers(source, "run", before, sound)
                return await source.tiers("run")
            finally:
                await source.close()

        assert asyncio.run(there_and_back()) == before


@given(places=st.lists(st.integers(0, 20), max_size=6))
def test_a_turn_is_found_by_its_number_wherever_instructions_stand(places):
    said = messages(0, 28)
    for place in sorted(places, reverse=True):
        at = next(at for at in range(place, len(said)) if said[at]["role"] != "tool")
        said.insert(at, {"role": "system", "content": f"Be careful, {at}."})
    with store_with(said, "openai-chat") as url:

        async def found():
            source = LocalSource(url)
            try:
                known = (await source.turns("run", 0, 100)).turns
                for line in known:
                    if line.number > 0:
                        assert await find_turn(source, "run", line.number) == line.at
                assert await find_turn(source, "run", 0) is None
                assert await find_turn(source, "run", 999) is None
            finally:
                await source.close()

        asyncio.run(found())
