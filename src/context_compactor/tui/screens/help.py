"""Help: the words on the screens and every key, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingsMap, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from context_compactor.tui.registry import COMMANDS, PANES

_WORDS = """\
Each bar is the context of one agent. When it reaches a mark, \
older turns are shortened and their originals go to the archive: \
the agent never runs out of room, and nothing is lost.

levels   how urgent a compaction is:
         ○ below soft  ◔ soft  ◑ aggressive  ● emergency
tiers    what became of a turn:
         keep       stands word for word
         summarize  stands in fewer words
         reference  one line that leads to it
         drop       left no text behind
Whatever is not kept is in the archive, word for word."""
_PROMPT = (
    ("/", "commands; Tab, Enter or → take what is offered, ↑ ↓ choose, Esc closes"),
    ("Enter", "send"),
    ("Alt+Enter, Ctrl+J", "a new line; so does Shift+Enter where the terminal tells it"),
    ("↑ ↓", "what was entered before and after, from the first and the last line"),
    ("PgUp, PgDn", "earlier messages of the app"),
    ("Esc", "closes the message, then goes back"),
    ("Ctrl+C", "copies what is selected, else cancels, else empties the prompt, else leaves"),
)
_WIDTH = 22
_WIDEST, _EDGES = 100, 8
"""Of the page, as the style sheet has it."""
_USUAL = (
    "scroll_",
    "move(",
    "page(",
    "to(",
    "cursor_",
    "delete_",
    "select_",
    "page_left",
    "page_right",
    "app.focus",
    "screen.copy",
    "pane(",
)
"""What keys do everywhere, and those that the list of panes tells."""


class HelpScreen(ModalScreen[None]):
    """Words and keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "app.pop_screen", "Back")]

    def __init__(self, around: Screen[object]) -> None:
        super().__init__()
        self._text = _help(around)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._text, markup=False)

    def on_mount(self) -> None:
        self.query_one("#help").focus()


def _help(around: Screen[object]) -> Text:
    text = Text("Context Compactor\n\n", style="bold")
    text.append(f"{_WORDS}\n", style="not bold")
    width = max(min(int(0.9 * around.app.size.width), _WIDEST) - _EDGES, 2 * _WIDTH)
    for title, lines in (
        ("Keys here", list(_keys(around))),
        ("Commands", list(_commands())),
        ("The prompt", list(_PROMPT)),
        ("Panes of a session", list(_panes(around))),
    ):
        text.append(f"\n{title}\n", style="bold")
        text.append("".join(_line(name, words, width) for name, words in lines), style="not bold")
    return text


def _line(name: str, words: str, width: int) -> str:
    """Words behind their name, those that do not fit below one another."""
    return fill(words, width, initial_indent=f"  {name:<{_WIDTH}}", subsequent_indent=" " * (_WIDTH + 2)) + "\n"


def _keys(around: Screen[object]) -> Iterator[tuple[str, str]]:
    described: set[str] = set()
    for active in around.active_bindings.values():
        binding = active.binding
        is_usual = binding.action.startswith(_USUAL)
        if binding.description and active.enabled and not is_usual and binding.description not in described:
            described.add(binding.description)
            yield around.app.get_key_display(binding), binding.description


def _panes(around: Screen[object]) -> Iterator[tuple[str, str]]:
    """Each pane with its number and the keys that only it has."""
    for number, spec in enumerate(PANES, 1):
        known = BindingsMap(vars(spec.make).get("BINDINGS", ())).key_to_bindings.values()
        named = {each.description: around.app.get_key_display(each) for (each, *_) in reversed(known)}
        keys = ", ".join(f"{key} {what}" for what, key in reversed(named.items()))
        yield str(number), f"{spec.title}: {keys}" if keys else spec.title


def _commands() -> Iterator[tuple[str, str]]:
    for command in COMMANDS.values():
        yield command.usage, command.words
