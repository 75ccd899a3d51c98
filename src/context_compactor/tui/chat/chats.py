"""All talk of one app: with which model in each session, sessions that are yet to be made, and what is being said."""

from __future__ import annotations

import asyncio
from typing import Any

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.llm.client import Client
from context_compactor.tui.chat.models import Chosen, choose, is_known, open_chosen, usual_model, wire_of
from context_compactor.tui.chat.saying import Saying
from context_compactor.tui.source import Source
from context_compactor.tui.values import SessionLine

_END_SECONDS = 5.0


class Chats:
    """What the user has chosen, for as long as the app runs. It outlives the screens."""

    def __init__(self, model: Chosen | None = None) -> None:
        self.model = model
        """For all sessions; None leaves each its own."""
        self.sayings: dict[str, Saying] = {}
        """What was said last in each session, with what becomes of it; it may be under way."""
        self.has_made = False
        """Whether a session was made here, and with it perhaps the store."""
        self._own: dict[str, Chosen] = {}
        self._new: set[str] = set()
        self._open: dict[tuple[Chosen, int | None], Client] = {}
        self._under_way: set[asyncio.Task[Any]] = set()

    # Which model

    async def chosen(self, source: Source, session_id: str) -> Chosen:
        """The model of a session; `BadSetting` when nobody has named one."""
        return (await self._choose(source, session_id))[0]

    async def opened(self, source: Source, session_id: str) -> Client:
        """The same, ready to be asked."""
        chosen, line = await self._choose(source, session_id)
        return await self._opened(chosen, line)

    async def use(self, source: Source, session_id: str, name: str) -> str:
        """Talk with another model in a session from now on; what it is, in a line. It was only opened, not asked."""
        if not name.strip():
            raise BadSetting("model: no name was given")
        given = self.model
        is_same = given is not None and given.name == name
        window = given.window if given and (is_same or not is_known(name)) else None
        chosen = Chosen(name.strip(), window, "chosen here")
        _, line = await self._choose(source, session_id, chosen)
        model = await self._opened(chosen, line)
        self._own[session_id] = chosen
        return model.describe()

    async def _choose(
        self, source: Source, session_id: str, given: Chosen | None = None
    ) -> tuple[Chosen, SessionLine | None]:
        given = given or self._own.get(session_id) or self.model
        usual = {"model": usual_model()}
        try:
            line = (await source.session(session_id)).line
        except CompactorError:  # there may be no store either; whoever makes the session hears what is wrong
            if session_id not in self._new:
                raise
            return choose(given, None, usual), None
        self._new.discard(session_id)
        settings = await source.settings(session_id)
        return choose(given, line, settings if settings.get("model") else usual), line

    async def _opened(self, chosen: Chosen, line: SessionLine | None) -> Client:
        key = chosen, line.window if line else None
        if key not in self._open:
            self._open[key] = await open_chosen(*key)
        return self._open[key]

    # What is said

    async def take(self, source: Source, session_id: str, saying: Saying) -> None:
        """Take something that was said to its end, as the last of its session."""
        self.sayings[session_id] = saying
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await saying.take(source, session_id, self)
        finally:
            self._under_way.discard(task)

    async def end(self) -> None:
        """End all answers, and wait until what was said is kept."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=_END_SECONDS)

    # New sessions

    def expect(self, session_id: str, chosen: Chosen | None = None) -> None:
        """A session of this name is made when the first word is said in it."""
        self._new.add(session_id)
        if chosen is not None:
            self._own[session_id] = chosen

    def forget(self, session_id: str) -> None:
        """A session was deleted: what was said and chosen in it is of no use any more."""
        self.sayings.pop(session_id, None)
        self._own.pop(session_id, None)

    def is_new(self, session_id: str) -> bool:
        """Whether a session is yet to be made."""
        return session_id in self._new

    async def make(self, source: Source, session_id: str, model: Client) -> None:
        """Make a session that is yet to be made, for this model."""
        if session_id in self._new:
            self.has_made = True
            await source.create(session_id, window=model.window, model=model.name, dialect=wire_of(model.name))
            self._new.discard(session_id)
