"""All chats of one app: the model of each session, sessions still to be created, and the exchange under way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from context_compactor.errors import BadSetting, CompactorError, ModelError
from context_compactor.summarize.clients.client import ModelClient
from context_compactor.tui.chat.models import (
    ModelChoice,
    choose_model,
    default_model,
    dialect_of_model,
    is_known_model,
    open_choice,
)
from context_compactor.tui.chat.runner import ChatProgress, ChatRunner, PartialAnswer, last_user_message
from context_compactor.tui.sources.base import SessionLine, SessionSource

_MESSAGE_SAVED = "Your words are kept: /retry asks again."
_ANSWER_LOST = "The answer is not kept. Copy it if you need it; /retry asks again."
_NOTHING_SAVED = "Nothing was kept: your words are in the prompt again."


class ChatNote(Struct, frozen=True):
    """A line for people."""

    words: str
    tone: Literal["", "warning", "failed"] = ""


class ChatExchange:
    """What the user says, and its answer. Without `text`, what was said last is to be answered."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.doing = "opening the model"
        """What goes on, in a few words; empty when it is over."""
        self.notes: list[ChatNote] = []
        self.is_kept = not text
        """Whether the user's words are in the store."""
        self.is_answered = False
        """Whether the answer is in the store, all of it or what came of it."""
        self.messages_at_start = self.kept_at = self.answered_at = 0
        """How many messages the store had before, and with each of them."""
        self.is_lost = False
        """Whether an answer came that could not be kept: it is only here to be seen."""
        self.is_over = False
        self._talk: ChatRunner | None = None

    @property
    def partial(self) -> PartialAnswer:
        """The answer so far."""
        return self._talk.partial if self._talk else PartialAnswer()

    async def run(self, source: SessionSource, session_id: str, chats: Chats) -> None:
        """Take it to its end. What goes wrong is a note; only a cancel goes on, when what was said is kept."""
        try:
            model = await chats.opened(source, session_id)
            await chats.make(source, session_id, model)
            self._talk = ChatRunner(source, session_id, model, self._on_progress)
            outcome = await (self._talk.say(self.text) if self.text else self._talk.ask_again())
            if outcome.note:
                self._note(outcome.note + ("" if self.is_answered else f"\n{_MESSAGE_SAVED}"), "warning")
        except CompactorError as error:
            self.is_lost = (
                bool(self.partial.kept().strip()) and not self.is_answered and not isinstance(error, ModelError)
            )
            what = _ANSWER_LOST if self.is_lost else _MESSAGE_SAVED if self.is_kept else _NOTHING_SAVED
            self._note(f"{error}\n{what}", "failed")
        except asyncio.CancelledError:
            await self._note_cancelled(source, session_id)
            raise
        finally:
            self.doing, self.is_over = "", True

    async def _note_cancelled(self, source: SessionSource, session_id: str) -> None:
        if not self.is_kept:
            with suppress(CompactorError):  # then they are in the prompt, and perhaps in the store: better than lost
                self.is_kept = await last_user_message(source, session_id) == self.text
        kept = "What was said is kept." if self.is_answered else _MESSAGE_SAVED if self.is_kept else _NOTHING_SAVED
        self._note(f"Ended. {kept}", "warning")

    def _note(self, words: str, tone: Literal["", "warning", "failed"] = "") -> None:
        self.notes.append(ChatNote(words, tone))

    def _on_progress(self, progress: ChatProgress) -> None:
        match progress.kind:
            case "begun":
                self.messages_at_start, self.doing = (
                    progress.messages,
                    "keeping your words" if self.text else "reading the context",
                )
            case "kept":
                self.is_kept, self.kept_at, self.doing = True, progress.messages, "reading the context"
            case "compacting":
                self.doing = f"compacting{f': {progress.words}' if progress.words else ''}"
            case "compacted":
                self.doing = "reading the context"
            case "asked":
                self.doing = f"waiting for {progress.words}"
            case "again":
                self._note(progress.words, "warning")
            case "answered":
                self.is_answered, self.answered_at = True, progress.messages


_END_SECONDS = 5.0


class Chats:
    """What the user has chosen, for as long as the app runs. It outlives the screens."""

    def __init__(self, model: ModelChoice | None = None) -> None:
        self.model = model
        """For all sessions; None leaves each its own."""
        self.exchanges: dict[str, ChatExchange] = {}
        """What was said last in each session, with what becomes of it; it may be under way."""
        self.has_created_session = False
        """Whether a session was made here, and with it perhaps the store."""
        self._own: dict[str, ModelChoice] = {}
        self._new: set[str] = set()
        self._open: dict[tuple[ModelChoice, int | None], ModelClient] = {}
        self._under_way: set[asyncio.Task[Any]] = set()

    # Which model

    async def chosen(self, source: SessionSource, session_id: str) -> ModelChoice:
        """The model of a session; `BadSetting` when nobody has named one."""
        return (await self._choose(source, session_id))[0]

    async def opened(self, source: SessionSource, session_id: str) -> ModelClient:
        """The same, ready to be asked."""
        chosen, line = await self._choose(source, session_id)
        return await self._opened(chosen, line)

    async def use(self, source: SessionSource, session_id: str, name: str) -> str:
        """Talk with another model in a session from now on; what it is, in a line. It was only opened, not asked."""
        if not name.strip():
            raise BadSetting("model: the name is missing")
        given = self.model
        is_same = given is not None and given.name == name
        window = given.window if given and (is_same or not is_known_model(name)) else None
        chosen = ModelChoice(name.strip(), window, "chosen here")
        _, line = await self._choose(source, session_id, chosen)
        model = await self._opened(chosen, line)
        self._own[session_id] = chosen
        return model.describe()

    async def _choose(
        self, source: SessionSource, session_id: str, given: ModelChoice | None = None
    ) -> tuple[ModelChoice, SessionLine | None]:
        given = given or self._own.get(session_id) or self.model
        usual = {"model": default_model()}
        try:
            line = (await source.session(session_id)).line
        except CompactorError:  # there may be no store either; whoever makes the session hears what is wrong
            if session_id not in self._new:
                raise
            return choose_model(given, None, usual), None
        self._new.discard(session_id)
        settings = await source.settings(session_id)
        return choose_model(
            given, line, settings if settings.get("model") or settings.get("summarizer") else usual
        ), line

    async def _opened(self, chosen: ModelChoice, line: SessionLine | None) -> ModelClient:
        key = chosen, line.window if line else None
        if key not in self._open:
            self._open[key] = await open_choice(*key)
        return self._open[key]

    # What is said

    async def run(self, source: SessionSource, session_id: str, exchange: ChatExchange) -> None:
        """Take something that was said to its end, as the last of its session."""
        self.exchanges[session_id] = exchange
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await exchange.run(source, session_id, self)
        finally:
            self._under_way.discard(task)

    async def end(self) -> None:
        """End all answers, and wait until what was said is kept."""
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=_END_SECONDS)

    # New sessions

    def expect(self, session_id: str, chosen: ModelChoice | None = None) -> None:
        """A session of this name is made when the first word is said in it."""
        self._new.add(session_id)
        if chosen is not None:
            self._own[session_id] = chosen

    def forget(self, session_id: str) -> None:
        """A session was deleted: what was said and chosen in it is of no use any more."""
        self.exchanges.pop(session_id, None)
        self._own.pop(session_id, None)

    def is_new(self, session_id: str) -> bool:
        """Whether a session is yet to be made."""
        return session_id in self._new

    async def make(self, source: SessionSource, session_id: str, model: ModelClient) -> None:
        """Make a session that is yet to be made, for this model."""
        if session_id in self._new:
            self.has_created_session = True
            await source.create(session_id, window=model.window, model=model.name, dialect=dialect_of_model(model.name))
            self._new.discard(session_id)
