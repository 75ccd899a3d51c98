"""`/model`, `/retry`, and what is entered without a slash: a message for the model of the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.notifications import SeverityLevel

from context_compactor.errors import BadSetting
from context_compactor.tui.chat.chats import ChatExchange
from context_compactor.tui.chat.models import full_name
from context_compactor.tui.commands.command import Choice, Command, quoted, refuse_arguments
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.panes.chat import ChatPane
from context_compactor.tui.screens.base import app_of
from context_compactor.tui.sources.base import SourceChange
from context_compactor.tui.widgets.prompt import PromptInput

if TYPE_CHECKING:
    from context_compactor.tui.app import CompactorApp
    from context_compactor.tui.screens.session import SessionScreen


_MAX_MESSAGE = 600


async def send_message(screen: SessionScreen, text: str) -> None:
    """Say something in a session, or without words have what was said last answered."""
    app, session_id, exchange = app_of(screen), screen.session_id, ChatExchange(text)
    app.chats.exchanges[session_id] = exchange
    app.run_worker(_run_exchange(app, session_id, exchange), name=session_id, group="talk", exit_on_error=False)
    pane = screen.show_pane("chat")
    if isinstance(pane, ChatPane):
        pane.follow()


async def _run_exchange(app: CompactorApp, session_id: str, exchange: ChatExchange) -> None:
    try:
        await app.chats.run(app.source, session_id, exchange)
    finally:
        if not app.is_leaving:
            if exchange.text and not exchange.is_kept:
                _restore_prompt(app, session_id, exchange.text)
            _notify_end(app, session_id, exchange)


def _restore_prompt(app: CompactorApp, session_id: str, text: str) -> None:
    """What was not kept is in the prompt again, unless something else is being written there."""
    entered, screen = app.prompt_history(session_id), app.screen_of(session_id)
    entered_text = f"/{text}" if text.startswith("/") else text  # what begins with one slash is a command
    line = next((line for line in reversed(entered.lines) if entered.pastes.full(line) == entered_text), entered_text)
    if screen is None:
        entered.draft = entered.draft or line
    elif not screen.query_one(PromptInput).value:
        screen.enter(line)


def _notify_end(app: CompactorApp, session_id: str, exchange: ChatExchange) -> None:
    """Look again; where another screen is seen, say that it is over."""
    screen = app.screen_of(session_id)
    if screen is not None:
        screen.changed(SourceChange(frozenset({session_id})))
    if screen is None or app.screen is not screen:
        last = exchange.notes[-1].words if exchange.notes else "the answer is there."
        is_failed = bool(exchange.notes) and exchange.notes[-1].tone == "failed"
        severity: SeverityLevel = "error" if is_failed else "information"
        title = cut_line(session_id, 60)
        app.notify(cut_line(last, _MAX_MESSAGE), title=title, severity=severity, markup=False)


async def model(screen: SessionScreen, rest: str) -> None:
    """Say who answers, or have another model answer from now on."""
    if " " in rest:
        raise BadSetting(f"/model: {quoted(rest)} is more than one name. Try: /model openai/NAME.")
    pane = screen.pane_of("chat")
    if isinstance(pane, ChatPane):
        if rest:
            screen.show_message(f"✓ From now on: {await pane.use_model(rest)}", "done")
        else:
            screen.show_message(await pane.model())


async def retry(screen: SessionScreen, rest: str) -> None:
    """Have what was said last answered."""
    refuse_arguments("retry", rest)
    await send_message(screen, "")


async def _model_choices(screen: SessionScreen, rest: str) -> Sequence[Choice]:
    """The models that are named somewhere already."""
    if " " in rest:
        return []
    source = app_of(screen).source
    own = (await source.session(screen.session_id)).line.model
    setting = (await source.settings(screen.session_id)).get("summarizer") or ""
    named = {full_name(own): "the session's own", setting: "writes summaries here"}
    return [Choice(name, words) for name, words in named.items() if name]


MODEL = Command("model", "Who answers in the chat, or another model from now on.", model, "[NAME]", _model_choices)
RETRY = Command("retry", "Have what you said last answered once more.", retry)
