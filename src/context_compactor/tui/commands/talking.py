"""`/model` and `/retry`: who answers in the chat, and once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.tui.chat.models import full_name
from context_compactor.tui.commands.command import Choice, Command, nothing_behind, quoted
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_chat import ChatPane
from context_compactor.tui.screens.talking import talk

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen


async def model(screen: SessionScreen, rest: str) -> None:
    """Say who answers, or have another model answer from now on."""
    if " " in rest:
        raise BadSetting(f"/model: {quoted(rest)} is more than one name. Try: /model openai/NAME.")
    pane = screen.pane_of("chat")
    if isinstance(pane, ChatPane):
        if rest:
            screen.tell(f"✓ From now on: {await pane.use_model(rest)}", "done")
        else:
            screen.tell(await pane.model())


async def retry(screen: SessionScreen, rest: str) -> None:
    """Have what was said last answered."""
    nothing_behind("retry", rest)
    await talk(screen, "")


async def _names(screen: SessionScreen, rest: str) -> Sequence[Choice]:
    """The models that are named somewhere already."""
    if " " in rest:
        return []
    source = app_of(screen).source
    own = (await source.session(screen.session_id)).line.model
    setting = (await source.settings(screen.session_id)).get("model") or ""
    named = {full_name(own): "the session's own", setting: "writes summaries here"}
    return [Choice(name, words) for name, words in named.items() if name]


MODEL = Command("model", "Who answers in the chat, or another model from now on.", model, "[NAME]", _names)
RETRY = Command("retry", "Have what you said last answered once more.", retry)
