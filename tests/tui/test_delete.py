"""Deleting on the terminal: by a key in the list and by a command, never without a question."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from context_compactor.store.connect import connect
from context_compactor.tui.screens.dialogs import DeleteScreen
from context_compactor.tui.screens.session import SessionScreen
from context_compactor.tui.screens.sessions import SessionsScreen
from tests.tui.places import SIZES, URL, a_few_sessions, play, press, screen_text, settle, until
from tests.tui.test_commands import Place, begin, place, server

__all__ = ["place", "server"]


def names() -> list[str]:
    with closing(connect(URL)) as store:
        return [row.id for row in store.sessions()]


async def asked(pilot, *keys: str) -> str:
    """Press keys; the question that comes."""
    await pilot.press(*keys)
    await until(pilot, lambda: isinstance(pilot.app.screen, DeleteScreen) and "y deletes it" in screen_text(pilot))
    return screen_text(pilot)


@pytest.mark.parametrize("size", SIZES)
def test_a_key_deletes_the_session_under_the_cursor_after_a_question_that_names_it(size):
    a_few_sessions()

    async def story(pilot):
        first = pilot.app.screen._shown[0].id
        question = await asked(pilot, "d")
        assert f"Delete '{first}' for good?" in question
        assert "everything archived" in question
        await press(pilot, "y")
        assert isinstance(pilot.app.screen, SessionsScreen)
        await until(pilot, lambda: first not in [line.id for line in pilot.app.screen._shown])
        assert first not in names()
        assert len(names()) == 2

    play(story, size=size)


@pytest.mark.parametrize("key", ["n", "escape"])
def test_whoever_does_not_want_it_keeps_the_session(key):
    a_few_sessions()

    async def story(pilot):
        await asked(pilot, "d")
        await press(pilot, key)
        assert isinstance(pilot.app.screen, SessionsScreen)
        assert len(names()) == 3

    play(story)


def test_the_command_deletes_the_session_after_a_question_and_goes_back_to_the_others(place: Place):
    async def story(pilot):
        await begin(pilot, "/delete")
        await until(pilot, lambda: isinstance(pilot.app.screen, DeleteScreen) and "y deletes it" in screen_text(pilot))
        assert f"Delete '{place.name}' for good?" in screen_text(pilot)
        assert ("sub-agents" in screen_text(pilot)) is not place.is_remote
        await press(pilot, "y")
        await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))
        await settle(pilot)
        await until(pilot, lambda: place.name not in [line.id for line in pilot.app.screen._every])

    play(story, source=place.source(), session_id=place.name)
    assert place.name not in [line.id for line in asyncio.run(_lines(place))]


async def _lines(place: Place):
    source = place.source()
    try:
        return await source.sessions()
    finally:
        await source.close()


def test_the_command_can_be_declined_and_takes_nothing(place: Place):
    async def story(pilot):
        await begin(pilot, "/delete now")
        await settle(pilot)
        assert "/delete takes nothing" in screen_text(pilot)
        await begin(pilot, "/delete")
        await until(pilot, lambda: isinstance(pilot.app.screen, DeleteScreen))
        await press(pilot, "n")
        assert isinstance(pilot.app.screen, SessionScreen)

    play(story, source=place.source(), session_id=place.name)
    assert place.name in [line.id for line in asyncio.run(_lines(place))]


def test_a_session_that_somebody_else_has_deleted_meanwhile_is_told():
    a_few_sessions()

    async def story(pilot):
        await asked(pilot, "d")
        with closing(connect(URL)) as store:
            for name in [row.id for row in store.sessions()]:
                store.delete(name)
        await pilot.press("y")
        await until(pilot, lambda: "no session" in screen_text(pilot).casefold())

    play(story)


def test_a_session_of_the_same_name_that_is_made_later_begins_empty_here_too():
    a_few_sessions()

    async def story(pilot):
        source = pilot.app.source
        assert (await source.turns("run-42")).total
        await source.delete("run-42")
        await source.create("run-42", window=3_000)
        assert (await source.turns("run-42")).total == 0
        assert (await source.history("run-42")).messages == []
        await source.append("run-42", {"role": "user", "content": "first"})
        assert (await source.turns("run-42")).total == 1

    play(story)
