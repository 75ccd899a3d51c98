"""A new session to chat in: its name, the model, and how much that accepts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.session.values import check_id
from context_compactor.settings import read_value
from context_compactor.tui.chat.models import EXAMPLE, FORMS, Chosen, open_chosen, usual_model
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.texts import safe

_HINT = f"Enter begins, Tab goes on, Esc leaves. A model is {FORMS}."


class NewSessionScreen(ModalScreen[None]):
    """Asks, and opens the chat of the session. The session itself is made with the first words that are said in it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, taken: Collection[str]) -> None:
        super().__init__()
        self._taken = taken

    def compose(self) -> ComposeResult:
        """Three fields, and what is wrong with them."""
        given = app_of(self).chats.model
        model = given.name if given else usual_model()
        window = f"{given.window}" if given and given.window else ""
        with Vertical(id="new-session"):
            yield Label("New session", classes="title")
            yield Label("Name")
            yield Input(free_name(app_of(self).now(), self._taken), id="new-name", compact=True)
            yield Label("Model")
            yield Input(model, placeholder=f"such as {EXAMPLE}", id="new-model", compact=True)
            yield Label("Window, in tokens")
            yield Input(window, placeholder="what is known of the model", id="new-window", compact=True)
            yield Static(_HINT, id="new-problem", markup=False)

    def on_mount(self) -> None:
        """To what is missing."""
        self.query_one("#new-name" if self._value("model") else "#new-model").focus()

    def _value(self, name: str) -> str:
        return self.query_one(f"#new-{name}", Input).value.strip()

    @on(Input.Submitted)
    def _begin(self, event: Input.Submitted) -> None:
        event.stop()
        self.run_worker(self._try(), group="new", exclusive=True, exit_on_error=False)

    async def _try(self) -> None:
        problem = self.query_one("#new-problem", Static)
        try:
            session_id, chosen = check_id(self._value("name")), self._chosen()
            if session_id in self._taken:
                raise BadSetting(f"There is a session {session_id!r:.60} already. Try: another name.")
            problem.update("Opening the model…")
            await open_chosen(chosen)
        except CompactorError as error:
            problem.update(safe(str(error)))
            problem.add_class("failed")
            return
        app = app_of(self)
        app.pop_screen()
        app.chats.expect(session_id, chosen)
        app.show_session(session_id, "chat")

    def _chosen(self) -> Chosen:
        model, window = self._value("model"), self._value("window")
        if not model:
            raise BadSetting(f"A model is missing. Try: {FORMS}.")
        return Chosen(model, read_value("window", window, "this field") if window else None, "chosen here")


def free_name(now: datetime, taken: Collection[str]) -> str:
    """A name with the day in it that no session has."""
    name, number = f"chat-{now:%Y-%m-%d}", 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free
