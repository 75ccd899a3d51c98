"""After a long pause the provider has forgotten the conversation: then compacting costs nothing extra."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import SessionState, read_session_state
from context_compactor.settings import ModelEntry
from tests.sessions.talk import messages, opened

MODEL = "claude-opus-4-8"
HELLO = {"role": "user", "content": "Go on, please."}
REPLY = {"role": "assistant", "content": "Done."}


class Scene:
    """A session that is more than half full, with a clock that is set by hand."""

    def __init__(self, tmp_path, **settings) -> None:
        self.now = datetime(2026, 11, 18, tzinfo=UTC)
        self.events = []
        bus = Bus()
        bus.subscribe(self.events.append, types=["compaction.suggested"])
        more = {"model": MODEL, "suggest_tool_results": 0, "suggest_files": 0, **settings}
        self.session: Session = opened(tmp_path, bus=bus, clock=lambda: self.now, **more)
        count = 0
        while self.session.usage().share < 0.5:
            self.session.append(messages(count, count + 4))
            count += 4

    def pass_minutes(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def cost(self):
        return self.session.compact(dry_run=True).cost


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path)
    with made.session:
        yield made


def test_while_the_cache_is_warm_a_rewrite_costs_something_and_nothing_is_suggested(scene):
    scene.pass_minutes(4)
    scene.session.append(HELLO)
    assert scene.events == []
    assert scene.cost().rewrite > 0
    assert scene.cost().note == ""


def test_after_its_life_the_rewrite_is_free_and_report_and_event_say_so(scene):
    scene.pass_minutes(6)
    scene.session.append(HELLO)
    (event,) = scene.events
    assert event.payload["cache_seconds"] == 300
    assert event.payload["idle_seconds"] == 360
    assert "compacting now costs nothing extra" in event.payload["reason"]
    cost = scene.cost()
    assert (cost.rewrite, cost.break_even_turns) == (0.0, 0)
    assert "expired after 6 min without a request" in cost.note
    assert cost.note in cost.in_words()


def test_it_is_suggested_once_for_each_pause(scene):
    scene.pass_minutes(6)
    scene.session.append(HELLO)
    scene.session.append({"role": "user", "content": "And this."})
    assert len(scene.events) == 1
    scene.session.append(REPLY)
    scene.pass_minutes(6)
    scene.session.append(HELLO)
    assert len(scene.events) == 2


def test_a_cache_that_was_bought_for_an_hour_is_cold_after_an_hour_and_dearer_to_write(scene):
    warm = scene.cost()
    hour = {"ephemeral_1h_input_tokens": 50, "ephemeral_5m_input_tokens": 0}
    usage = {"input_tokens": 2_000, "cache_creation_input_tokens": 50, "cache_creation": hour, "output_tokens": 5}
    scene.session.append([HELLO, REPLY], usage=usage)
    assert scene.cost().rewrite > warm.rewrite
    scene.pass_minutes(59)
    scene.session.append({"role": "user", "content": "Once more."})
    assert scene.events == []
    scene.pass_minutes(2)
    assert scene.cost().rewrite == 0.0


def test_the_users_own_cache_minutes_decide(tmp_path):
    made = Scene(tmp_path, models={"claude-*": ModelEntry(cache_minutes=30)})
    with made.session:
        made.pass_minutes(29)
        made.session.append(HELLO)
        assert made.events == []
        made.pass_minutes(2)
        made.session.append({"role": "user", "content": "Well?"})
        assert [event.payload["cache_seconds"] for event in made.events] == [1_800]


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "nobody-knows", None])
def test_where_the_life_of_a_cache_is_not_known_nothing_is_promised(tmp_path, model):
    made = Scene(tmp_path, model=model)
    with made.session:
        made.pass_minutes(10_000)
        made.session.append(HELLO)
        assert made.events == []


def test_a_state_of_an_older_version_is_read_and_promises_nothing(scene):
    stored = msgspec.json.decode(msgspec.json.encode(SessionState()))
    for name in ("answered_at", "is_hour_cache", "is_cold_said"):
        del stored[name]
    state = read_session_state(msgspec.json.encode(stored))
    assert state == SessionState()
    assert not scene.session._core.prompt_cache(state).is_cold


def test_a_prompt_that_was_accepted_shows_that_the_window_is_larger_and_it_is_remembered(tmp_path):
    with opened(tmp_path, window=None, model="claude-sonnet-4-5", automatic=False) as session:
        assert session.usage().budget_tokens < 200_000
        session.append([HELLO, REPLY], usage={"input_tokens": 250_000, "output_tokens": 5})
        assert session.usage().budget_tokens > 900_000
    with opened(tmp_path, window=None, model="claude-sonnet-4-5", automatic=False) as session:
        assert session.usage().budget_tokens > 900_000


@given(st.integers(0, 100_000))
def test_only_a_pause_that_is_longer_than_the_life_is_cold(seconds):
    state = SessionState(answered_at=1.0)

    class Still:
        model, settings = MODEL, type("Own", (), {"models": {}})

        def seconds(self) -> float:
            return 1.0 + seconds

    from context_compactor.sessions.core import Core

    assert Core.prompt_cache(Still(), state).is_cold == (seconds > 300)
