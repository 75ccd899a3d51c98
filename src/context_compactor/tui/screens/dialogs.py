"""Small screens over the others: create a session, delete one, and a terminal that is too small."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.sessions.state import check_id
from context_compactor.settings import read_value
from context_compactor.tui.chat.models import EXAMPLE_MODEL, MODEL_NAME_FORMS, ModelChoice, default_model, open_choice
from context_compactor.tui.formatting import cut_line, safe_text
from context_compactor.tui.screens.base import app_of

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp


_MAX_NAME = 80
_QUESTION = """Delete {name!r} for good?

Its messages, everything archived, its facts and its compactions go, and nothing brings them back.{more}
What other sessions have said too stays with them.

y deletes it, n or Esc keeps it."""
_LOCAL_NOTE = "\nSo do the sessions of its sub-agents, and the files that were made from them in the project."


class DeleteScreen(ModalScreen[bool]):
    """Asks, and says what goes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Delete"),
        Binding("n,escape", "answer(False)", "Keep", key_display="n"),
    ]

    def __init__(self, session_id: str, *, is_remote: bool) -> None:
        super().__init__()
        self._session_id = session_id
        self._is_remote = is_remote

    def compose(self) -> ComposeResult:
        words = _QUESTION.format(
            name=cut_line(self._session_id, _MAX_NAME), more="" if self._is_remote else _LOCAL_NOTE
        )
        with Vertical(id="delete-session"):
            yield Static(safe_text(words), markup=False)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


async def ask_and_delete(app: CompactorApp, session_id: str) -> bool:
    """Delete a session if the user wants that; whether it was. Call it in a worker."""
    if not await app.push_screen_wait(DeleteScreen(session_id, is_remote=app.source.is_remote)):
        return False
    await app.source.delete(session_id)
    app.chats.forget(session_id)
    return True


_HINT = f"Enter begins, Tab goes on, Esc leaves. A model is {MODEL_NAME_FORMS}."


class NewSessionScreen(ModalScreen[None]):
    """Asks, and opens the chat of the session. The session itself is made with the first words that are said in it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, taken: Collection[str]) -> None:
        super().__init__()
        self._taken = taken

    def compose(self) -> ComposeResult:
        given = app_of(self).chats.model
        model = given.name if given else default_model()
        window = f"{given.window}" if given and given.window else ""
        with Vertical(id="new-session"):
            yield Label("New session", classes="title")
            yield Label("Name")
            yield Input(free_name(app_of(self).now(), self._taken), id="new-name", compact=True)
            yield Label("Model")
            yield Input(model, placeholder=f"such as {EXAMPLE_MODEL}", id="new-model", compact=True)
            yield Label("Window, in tokens")
            yield Input(window, placeholder="what is known of the model", id="new-window", compact=True)
            yield Static(_HINT, id="new-problem", markup=False)

    def on_mount(self) -> None:
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
            await open_choice(chosen)
        except CompactorError as error:
            problem.update(safe_text(str(error)))
            problem.add_class("failed")
            return
        app = app_of(self)
        app.pop_screen()
        app.chats.expect(session_id, chosen)
        app.show_session(session_id, "chat")

    def _chosen(self) -> ModelChoice:
        model, window = self._value("model"), self._value("window")
        if not model:
            raise BadSetting(f"A model is missing. Try: {MODEL_NAME_FORMS}.")
        return ModelChoice(model, read_value("window", window, "this field") if window else None, "chosen here")


def free_name(now: datetime, taken: Collection[str]) -> str:
    """A name with the day in it that no session has."""
    name, number = f"chat-{now:%Y-%m-%d}", 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


MIN_SIZE = Size(40, 10)


def is_too_small(size: Size) -> bool:
    """Whether there is no room for a list and what stands around it."""
    return size.width < MIN_SIZE.width or size.height < MIN_SIZE.height


class SmallScreen(ModalScreen[None]):
    """Lies over everything and goes away by itself. What was begun goes on below."""

    def compose(self) -> ComposeResult:
        yield Static(id="small", markup=False)

    def on_screen_resume(self) -> None:
        """It may have been under something while the terminal grew."""
        self._check_size(self.app.size)

    def on_resize(self, event: events.Resize) -> None:
        self._check_size(event.size)

    def _check_size(self, size: Size) -> None:
        if is_too_small(size):
            need = f"{MIN_SIZE.width}x{MIN_SIZE.height}"
            self.query_one(Static).update(f"Too small: {size.width}x{size.height}. At least {need}, please. ^q quits")
        elif self.is_active:  # else it would take away what lies over it
            self.dismiss()
