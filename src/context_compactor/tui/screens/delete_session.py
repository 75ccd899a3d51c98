"""The question before a session is deleted for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from context_compactor.tui.texts import cut_line, safe

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp

_LONGEST = 80
_QUESTION = """Delete {name!r} for good?

Its messages, everything archived, its facts and its compactions go, and nothing brings them back.{more}
What other sessions have said too stays with them.

y deletes it, n or Esc keeps it."""
_LOCAL = "\nSo do the sessions of its sub-agents, and the files that were made from them in the project."


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
        """The question."""
        words = _QUESTION.format(name=cut_line(self._session_id, _LONGEST), more="" if self._is_remote else _LOCAL)
        with Vertical(id="delete-session"):
            yield Static(safe(words), markup=False)

    def action_answer(self, is_yes: bool) -> None:
        """Yes or no."""
        self.dismiss(is_yes)


async def ask_and_delete(app: CompactorApp, session_id: str) -> bool:
    """Delete a session if the user wants that; whether it was. Call it in a worker."""
    if not await app.push_screen_wait(DeleteScreen(session_id, is_remote=app.source.is_remote)):
        return False
    await app.source.delete(session_id)
    app.chats.forget(session_id)
    return True
