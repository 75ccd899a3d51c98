"""Something that was said, and what becomes of it: what is under way, what was kept, what is to be told of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from context_compactor.errors import CompactorError, ModelError
from context_compactor.tui.chat.hearing import Heard
from context_compactor.tui.chat.outcome import Told
from context_compactor.tui.chat.talk import Talk, last_words

if TYPE_CHECKING:
    from context_compactor.tui.chat.chats import Chats
    from context_compactor.tui.source import Source

_KEPT = "Your words are kept: /retry asks again."
_LOST = "The answer is not kept. Copy it if you need it; /retry asks again."
_NOT_KEPT = "Nothing was kept: your words are in the prompt again."


class Note(Struct, frozen=True):
    """A line for people."""

    words: str
    tone: Literal["", "warning", "failed"] = ""


class Saying:
    """What the user says, and its answer. Without `text`, what was said last is to be answered."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.doing = "opening the model"
        """What goes on, in a few words; empty when it is over."""
        self.notes: list[Note] = []
        self.is_kept = not text
        """Whether the user's words are in the store."""
        self.is_answered = False
        """Whether the answer is in the store, all of it or what came of it."""
        self.began_at = self.kept_at = self.answered_at = 0
        """How many messages the store had before, and with each of them."""
        self.is_lost = False
        """Whether an answer came that could not be kept: it is only here to be seen."""
        self.is_over = False
        self._talk: Talk | None = None

    @property
    def heard(self) -> Heard:
        """The answer so far."""
        return self._talk.heard if self._talk else Heard()

    async def take(self, source: Source, session_id: str, chats: Chats) -> None:
        """Take it to its end. What goes wrong is a note; only a cancel goes on, when what was said is kept."""
        try:
            model = await chats.opened(source, session_id)
            await chats.make(source, session_id, model)
            self._talk = Talk(source, session_id, model, self._hear)
            outcome = await (self._talk.say(self.text) if self.text else self._talk.ask_again())
            if outcome.note:
                self._note(outcome.note + ("" if self.is_answered else f"\n{_KEPT}"), "warning")
        except CompactorError as error:
            self.is_lost = (
                bool(self.heard.kept().strip()) and not self.is_answered and not isinstance(error, ModelError)
            )
            what = _LOST if self.is_lost else _KEPT if self.is_kept else _NOT_KEPT
            self._note(f"{error}\n{what}", "failed")
        except asyncio.CancelledError:
            await self._tell_cancelled(source, session_id)
            raise
        finally:
            self.doing, self.is_over = "", True

    async def _tell_cancelled(self, source: Source, session_id: str) -> None:
        if not self.is_kept:
            with suppress(CompactorError):  # then they are in the prompt, and perhaps in the store: better than lost
                self.is_kept = await last_words(source, session_id) == self.text
        kept = "What was said is kept." if self.is_answered else _KEPT if self.is_kept else _NOT_KEPT
        self._note(f"Ended. {kept}", "warning")

    def _note(self, words: str, tone: Literal["", "warning", "failed"] = "") -> None:
        self.notes.append(Note(words, tone))

    def _hear(self, told: Told) -> None:
        match told.kind:
            case "begun":
                self.began_at, self.doing = told.messages, "keeping your words" if self.text else "reading the context"
            case "kept":
                self.is_kept, self.kept_at, self.doing = True, told.messages, "reading the context"
            case "compacting":
                self.doing = f"compacting{f': {told.words}' if told.words else ''}"
            case "compacted":
                self.doing = "reading the context"
            case "asked":
                self.doing = f"waiting for {told.words}"
            case "again":
                self._note(told.words, "warning")
            case "answered":
                self.is_answered, self.answered_at = True, told.messages
