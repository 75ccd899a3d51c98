"""Says things in sessions; the answer goes on when the screen is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.notifications import SeverityLevel

from context_compactor.tui.chat.saying import Saying
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_chat import ChatPane
from context_compactor.tui.texts import cut_line
from context_compactor.tui.values import Change
from context_compactor.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp
    from context_compactor.tui.screens.session import SessionScreen

_LONGEST = 600


async def talk(screen: SessionScreen, text: str) -> None:
    """Say something in a session, or without words have what was said last answered."""
    app, session_id, saying = app_of(screen), screen.session_id, Saying(text)
    app.chats.sayings[session_id] = saying
    app.run_worker(_take(app, session_id, saying), name=session_id, group="talk", exit_on_error=False)
    pane = screen.show_pane("chat")
    if isinstance(pane, ChatPane):
        pane.follow()


async def _take(app: CompactorApp, session_id: str, saying: Saying) -> None:
    try:
        await app.chats.take(app.source, session_id, saying)
    finally:
        if not app.is_leaving:
            if saying.text and not saying.is_kept:
                _put_back(app, session_id, saying.text)
            _tell(app, session_id, saying)


def _put_back(app: CompactorApp, session_id: str, text: str) -> None:
    """What was not kept is in the prompt again, unless something else is being written there."""
    entered, screen = app.entered_in(session_id), app.screen_of(session_id)
    spoken = f"/{text}" if text.startswith("/") else text  # what begins with one slash is a command
    line = next((line for line in reversed(entered.lines) if entered.held.full(line) == spoken), spoken)
    if screen is None:
        entered.draft = entered.draft or line
    elif not screen.query_one(Prompt).value:
        screen.enter(line)


def _tell(app: CompactorApp, session_id: str, saying: Saying) -> None:
    """Look again; where another screen is seen, say that it is over."""
    screen = app.screen_of(session_id)
    if screen is not None:
        screen.changed(Change(frozenset({session_id})))
    if screen is None or app.screen is not screen:
        last = saying.notes[-1].words if saying.notes else "the answer is there."
        is_failed = bool(saying.notes) and saying.notes[-1].tone == "failed"
        severity: SeverityLevel = "error" if is_failed else "information"
        title = cut_line(session_id, 60)
        app.notify(cut_line(last, _LONGEST), title=title, severity=severity, markup=False)
