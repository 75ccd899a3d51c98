"""A session counts the tools and the system prompt that are sent beside its messages, in every process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import AsyncSession, BadSetting, Session
from context_compactor.dialects.detection import DIALECTS
from context_compactor.sessions.state import SessionState, TokenGauge, explain_hidden, tokens_now
from context_compactor.store.sqlite import SqliteStore
from context_compactor.tokens.calibration import Calibration
from tests.sessions.talk import CALM, count, messages, opened
from tests.tokens.test_prompt import WORDS, tools_in

QUESTION = {"role": "user", "content": "Hello"}


def open_session(folder: Path, **options: Any) -> Session:
    return Session.open(
        "run",
        **{"window": 20_000, "store": f"sqlite:///{folder / 'sessions.db'}", "settings": CALM, "count_tokens": count}
        | options,
    )


def test_tools_and_system_fill_the_gauge_and_the_context_never_holds_them(tmp_path):
    with open_session(tmp_path) as session:
        session.append(QUESTION)
        bare = session.usage()
    with open_session(tmp_path, tools=tools_in("openai-chat", 47), system=WORDS) as session:
        usage = session.usage()
        assert usage.sections.tools > 2_500
        assert usage.tokens == bare.tokens + usage.sections.tools + count(WORDS)
        assert session.context() == [QUESTION]
        assert session.history() == [QUESTION]


def test_another_process_continues_with_their_size(tmp_path):
    with open_session(tmp_path, tools=tools_in("openai-chat", 47), system=WORDS) as session:
        session.append(QUESTION)
        known = session.usage()
    with open_session(tmp_path) as session:
        assert session.usage() == known


def test_only_the_size_is_stored(tmp_path):
    with open_session(tmp_path, tools=tools_in("openai-chat", 3), system="hunter2 is the password") as session:
        session.append(QUESTION)
    assert b"hunter2" not in (tmp_path / "sessions.db").read_bytes()


def test_a_level_is_reached_by_tools_that_are_given_later(tmp_path):
    with open_session(tmp_path) as session:
        session.append(messages(0, 40))
        before = session.usage()
        assert before.level is None
        session.set_prompt(tools=tools_in("openai-chat", 200))
        assert session.usage().level is not None
        session.context()
        assert session.compactions()[-1].trigger == "threshold"


def test_changed_tools_change_the_gauge_and_what_is_not_given_stays(tmp_path):
    with open_session(tmp_path, tools=tools_in("openai-chat", 47), system=WORDS) as session:
        session.append(QUESTION)
        many = session.usage()
        session.set_prompt(tools=tools_in("openai-chat", 5))
        few = session.usage()
        assert few.tokens < many.tokens
        assert many.sections.system == few.sections.system
        session.set_prompt(tools=[], system="")
        assert session.usage().sections.tools == 0
        assert session.usage().tokens == few.tokens - few.sections.tools - count(WORDS) + count("")


def test_tools_that_change_behind_a_reported_usage_change_the_gauge(tmp_path):
    with open_session(tmp_path, tools=tools_in("openai-chat", 5)) as session:
        session.append(QUESTION)
        reported = session.usage().tokens
        session.append({"role": "assistant", "content": "Hi"}, {"prompt_tokens": reported, "completion_tokens": 3})
        before = session.usage()
        session.set_prompt(tools=tools_in("openai-chat", 47))
        after = session.usage()
    assert before.source == after.source == "anchored on the last reply"
    assert after.tokens - before.tokens > 2_500


def test_tools_that_the_provider_has_counted_already_are_not_counted_twice(tmp_path):
    tools = tools_in("openai-chat", 47)
    with open_session(tmp_path / "known", tools=tools) as session:
        session.append(QUESTION)
        reported = session.usage().tokens
    with open_session(tmp_path / "late") as session:
        session.append(QUESTION)
        session.append({"role": "assistant", "content": "Hi"}, {"prompt_tokens": reported, "completion_tokens": 3})
        before = session.usage().tokens
        session.set_prompt(tools=tools)
        assert abs(session.usage().tokens - before) < 50


def test_a_session_that_is_open_elsewhere_counts_them_with_its_next_message(tmp_path):
    with open_session(tmp_path) as one, open_session(tmp_path) as other:
        one.append(QUESTION)
        other.set_prompt(tools=tools_in("openai-chat", 47))
        one.append({"role": "assistant", "content": "Hi"})
        assert one.usage().sections.tools > 2_500
        assert one.usage().tokens == other.usage().tokens


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_dialect_that_the_messages_show_later_says_what_stands_around_them(tmp_path, dialect):
    tools = tools_in(dialect, 9)
    with (
        open_session(tmp_path / "later", tools=tools) as later,
        open_session(tmp_path / "named", tools=tools, dialect=dialect) as named,
    ):
        for session in (later, named):
            session.append(messages(0, 8, dialect))
        assert later.usage().tokens == named.usage().tokens


@pytest.mark.parametrize("given", [{"tools": "read"}, {"tools": ["read"]}, {"system": 7}])
def test_what_is_neither_is_refused_before_a_session_is_made(tmp_path, given):
    with pytest.raises(BadSetting, match="Try: "):
        open_session(tmp_path, **given)
    with open_session(tmp_path) as session:
        assert session.usage().sections.tools == 0
        with pytest.raises(BadSetting, match="Try: "):
            session.set_prompt(**given)


def test_async_sessions_count_them_too(tmp_path):
    async def tokens() -> tuple[int, int]:
        store = f"sqlite:///{tmp_path / 'sessions.db'}"
        session = await AsyncSession.open("run", window=20_000, store=store, settings=CALM, system=WORDS)
        async with session:
            await session.append(QUESTION)
            before = (await session.usage()).tokens
            await session.set_prompt(tools=tools_in("openai-chat", 47))
            return before, (await session.usage()).tokens

    before, after = asyncio.run(tokens())
    assert after - before > 2_000


def test_reports_and_later_compactions_count_them(tmp_path):
    with open_session(tmp_path, tools=tools_in("openai-chat", 47), system=WORDS) as session:
        session.append(messages(0, 80))
        fixed = session.usage().sections.tools + count(WORDS)
        report = session.compact(target_tokens=fixed + 2_000)
        assert report.status == "success"
        assert fixed < report.tokens_after <= fixed + 2_000
        assert session.usage().tokens == report.tokens_after
        session.append(messages(80, 120))
        again = session.compact(target_tokens=fixed + 1_500)
        assert fixed < again.tokens_after <= fixed + 1_500


def test_a_session_of_an_older_version_has_none(tmp_path):
    with opened(tmp_path) as session:
        session.append(messages(0, 4))
        known = session.usage().tokens
    store = SqliteStore(tmp_path / "sessions.db")
    row = store.session("run")
    profile, state = json.loads(row.profile), json.loads(row.state)
    del profile["prompt"], state["gauge"]["fixed"]
    with store.writing("run"):
        store.save_profile("run", json.dumps(profile).encode())
        store.save_state("run", json.dumps(state).encode())
    store.close()
    with opened(tmp_path) as session:
        assert session.usage().tokens == known
        session.set_prompt(system=WORDS)
        assert session.usage().tokens == known + count(WORDS)


@given(
    hidden=st.integers(0, 20_000),
    fixed=st.integers(0, 20_000),
    counted=st.integers(100, 50_000),
    since=st.integers(0, 5_000),
)
def test_the_gauge_grows_by_what_the_provider_has_not_counted_yet(hidden, fixed, counted, since):
    calibration = Calibration().learn(counted, counted + hidden)
    gauge = TokenGauge(tokens=counted + since, anchor=(counted + hidden, counted))
    state = SessionState(gauge=gauge, calibration=calibration)
    after = explain_hidden(state, fixed)
    before = tokens_now(gauge, calibration, 0)
    now = tokens_now(after.gauge.with_fixed(fixed), after.calibration, 0)
    assert now == before + max(0, fixed - hidden)
