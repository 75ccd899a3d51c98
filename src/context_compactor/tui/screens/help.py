"""Help: the words on the screens and every key, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from context_compactor.tui.registry import COMMANDS, PANES

_WORDS = """\
Each bar is the context of one agent. When it reaches a mark, older turns are shortened and their originals go to the
archive: the agent never runs out of room, and nothing is lost.

levels   ○ below soft  ◔ soft  ◑ aggressive  ● emergency: how urgent a compaction is
tiers    keep       stands word for word       summarize  stands in fewer words
         reference  behind a reference         drop       left no text behind
Whatever is not kept is in the archive: open a turn, or search for it."""


class HelpScreen(ModalScreen[None]):
    """Words and keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "app.pop_screen", "Back")]

    def __init__(self, around: Screen[object]) -> None:
        super().__init__()
        self._text = _help(around)

    def compose(self) -> ComposeResult:
        """One page that scrolls."""
        with VerticalScroll(id="help"):
            yield Static(self._text, markup=False)

    def on_mount(self) -> None:
        """Keys scroll at once."""
        self.query_one("#help").focus()


def _help(around: Screen[object]) -> Text:
    text = Text("Context Compactor\n\n", style="bold")
    text.append(f"{_WORDS}\n", style="not bold")
    for title, lines in (
        ("Keys here", list(_keys(around))),
        ("Panes of a session", list(_panes())),
        ("Commands", list(_commands())),
    ):
        if lines:
            text.append(f"\n{title}\n", style="bold")
            text.append("".join(f"  {name:<14}{words}\n" for name, words in lines), style="not bold")
    return text


def _keys(around: Screen[object]) -> Iterator[tuple[str, str]]:
    told: set[str] = set()
    for active in around.active_bindings.values():
        binding = active.binding
        if binding.description and active.enabled and binding.description not in told:
            told.add(binding.description)
            yield around.app.get_key_display(binding), binding.description


def _panes() -> Iterator[tuple[str, str]]:
    for number, spec in enumerate(PANES, 1):
        yield str(number), spec.title


def _commands() -> Iterator[tuple[str, str]]:
    for command in COMMANDS.values():
        yield f"/{command.name} {command.arguments}".strip(), command.words
