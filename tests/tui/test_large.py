"""Much of everything: what a key press costs does not depend on how much there is, and nothing is asked for twice."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from functools import cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import msgspec
import pytest

from context_compactor.sessions.session import Session
from context_compactor.tui.sources.local import LocalSource
from tests.tui.places import CALM, NOW, URL, a_few_sessions, filled, play, press, rows_of, screen_text, settle, until
from tests.tui.test_typing_ahead import type_at_once

pytestmark = pytest.mark.slow

AROUND = 64
"""Rows that are asked for at once on a screen of 24 lines: those that are seen, and 20 on each side."""
MANY = 100_000
WRITER = """
import sys
from context_compactor.sessions.session import Session
from tests.sessions.talk import message
with Session.open("run-42", store=sys.argv[1]) as session:
    for number in range(120, 100_000):
        session.append(message(number))
        if number % 4 == 0:
            print(number, flush=True)
"""


class Counting(LocalSource):
    """Counts what is asked for, and lets nothing pass while its gate is closed."""

    def __init__(self, look_seconds: float = 3_600) -> None:
        super().__init__(URL, look_seconds=look_seconds)
        self.asked: list[tuple[int, int]] = []
        self.courses = 0
        self.lists = 0
        self.measured = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def turns(self, session_id, first=0, count=50):
        if count:
            self.asked.append((first, count))
        await self.gate.wait()
        return await super().turns(session_id, first, count)

    async def session(self, session_id):
        self.measured += 1
        await self.gate.wait()
        return await super().session(session_id)

    async def trend(self, line):
        self.courses += 1
        return await super().trend(line)

    async def sessions(self):
        self.lists += 1
        return await super().sessions()


@cache
def _huge() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    url = f"sqlite:///{folder.name}/sessions.db"
    with Session.open("huge", window=10**9, store=url, dialect="openai-chat", settings=CALM) as session:
        said = [{"role": role, "content": f"{role} {at}"} for at in range(MANY // 2) for role in ("user", "assistant")]
        with session._core.writing():
            session._core.store.append("huge", "message", map(msgspec.json.encode, said), session._core.now())
    return folder


@pytest.fixture
def huge() -> None:
    """A session of a hundred thousand messages in the store of this folder."""
    copyfile(Path(_huge().name) / "sessions.db", "sessions.db")


@pytest.mark.usefixtures("huge")
def test_each_key_in_a_hundred_thousand_turns_asks_once_at_most_and_only_for_what_is_seen():
    source = Counting()

    async def story(pilot):
        rows = rows_of(pilot)
        assert rows.total == MANY
        assert "assistant 49999" in screen_text(pilot)
        for key, words in (
            ("home", "user 0"),
            ("pagedown", "turn_00"),
            ("end", "assistant 49999"),
            ("pageup", "turn_99"),
            ("up", "turn_99"),
            ("home", "user 0"),
            *(("pagedown", "turn_") for _ in range(6)),
        ):
            source.asked.clear()
            made = rows.made
            await press(pilot, key)
            assert words in screen_text(pilot)
            assert len(source.asked) <= 1, key
            assert all(count <= AROUND for _, count in source.asked), key
            assert rows.made - made <= AROUND, key
        await pages_that_are_passed_by_while_the_source_is_slow_are_not_asked_for(pilot, source)
        rows.scroll_to(y=50_000, animate=False)
        await settle(pilot)
        assert "user 25000" in screen_text(pilot)
        await press(pilot, "end", "enter")
        assert "assistant 49999" in screen_text(pilot)
        assert len(rows._rows) <= 500
        assert len(pilot.app.screen_stack[-2].pane._lines) <= 500

    play(story, source=source, session_id="huge")


async def pages_that_are_passed_by_while_the_source_is_slow_are_not_asked_for(pilot, source):
    await press(pilot, "home")
    source.asked.clear()
    source.gate.clear()
    type_at_once(pilot, *["pagedown"] * 40)
    rows = rows_of(pilot)
    await until(pilot, lambda: rows.cursor == 40 * (rows.size.height - 2))
    assert "…" in screen_text(pilot)
    assert len(source.asked) == 1
    source.gate.set()
    await settle(pilot)
    assert f"turn_{rows.cursor + 1}" in screen_text(pilot)
    assert len(source.asked) == 2


def test_of_five_thousand_sessions_only_those_that_are_seen_are_looked_into():
    a_few_sessions()
    names = "created_at, updated_at, profile, state, head, messages, view, chain"
    copy = f"INSERT INTO sessions (id, {names}) SELECT ?, {names} FROM sessions WHERE id = 'run-42'"
    with closing(sqlite3.connect("sessions.db")) as store, store:
        store.executemany(copy, [(f"copy-{at:05}",) for at in range(5_000)])
    source = Counting()

    async def story(pilot):
        rows = rows_of(pilot)
        assert rows.total == 5_003
        for key in ("end", "pageup", "home", "pagedown", "s", "S"):
            source.courses, made = 0, rows.made
            await press(pilot, key)
            assert source.courses <= AROUND, key
            assert rows.made - made <= 2 * AROUND, key  # once at once, and once more when its course is known
        await press(pilot, *"/0123")
        assert "11 of 5,003 sessions" in screen_text(pilot)
        assert source.lists == 1

    play(story, source=source)


def test_a_session_that_another_program_writes_to_all_the_time_can_be_read_in_peace():
    a_few_sessions()
    command = [sys.executable, "-c", WRITER, URL]
    around = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=around)
    assert writer.stdout is not None
    source = Counting(look_seconds=0.05)

    async def story(pilot):
        rows = rows_of(pilot)
        seen = rows.total
        await press(pilot, "home", "down", "down")
        for _ in range(3):
            now = rows.total
            await until(pilot, lambda now=now: rows.total > now)
            assert rows.cursor == 2
            assert "turn_003" in screen_text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "Part 0 does 0" in screen_text(pilot))
        await pilot.press("escape", "end")
        await until(pilot, lambda: rows.cursor == rows.total - 1 > seen)
        writer.kill()
        writer.wait()
        await settle(pilot)

    try:
        writer.stdout.readline()
        play(story, source=source, session_id="run-42")
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


def test_who_moves_away_from_the_end_while_new_turns_are_read_stays_there():
    a_few_sessions()

    class SlowTurns(Counting):
        async def session(self, session_id):
            return await LocalSource.session(self, session_id)

        async def turns(self, session_id, first=0, count=50):
            read = super().turns if count else super(Counting, self).turns
            return await read(session_id, first, count)

    source = SlowTurns()

    async def story(pilot):
        rows = rows_of(pilot)
        assert rows.cursor == rows.total - 1
        source.gate.clear()
        source.asked.clear()
        pilot.app.screen.action_reload()
        await until(pilot, lambda: source.asked)
        await pilot.press("home", "down")
        source.gate.set()
        await settle(pilot)
        assert rows.cursor == 1
        assert "turn_002" in screen_text(pilot)

    play(story, source=source, session_id="run-42")


def test_however_often_a_session_changes_while_the_source_is_slow_it_is_measured_and_read_once_more():
    a_few_sessions()
    source = Counting()

    async def story(pilot):
        source.gate.clear()
        source.measured = 0
        source.asked.clear()
        for _ in range(50):
            pilot.app.screen.action_reload()
            await pilot.pause(0)
        assert source.measured == 1
        source.gate.set()
        await settle(pilot)
        assert source.measured == 2
        assert len(source.asked) <= 2

    play(story, source=source, session_id="run-42")


def test_a_clock_that_jumps_back_or_ahead_changes_distances_and_nothing_else():
    a_few_sessions()
    filled("tomorrow", [], age=timedelta(days=-1))

    async def story(pilot):
        assert "in 1 d" in screen_text(pilot)
        for jump, words in ((-3_650, "in 3651 d"), (3_650, "3649 d ago"), (0, "in 1 d")):
            pilot.app.now = lambda jump=jump: NOW + timedelta(days=jump)
            pilot.app.screen.rows.forget(4)
            await settle(pilot)
            assert words in screen_text(pilot)

    play(story, size=(140, 24))
