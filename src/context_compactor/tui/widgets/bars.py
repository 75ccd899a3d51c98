"""The lines around a pane: the gauge, answers to what was entered, key hints, and the footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from msgspec import Struct
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static

from context_compactor.settings import Level
from context_compactor.text import percent, short_count
from context_compactor.tui.formatting import cut_line, gauge_bar, in_width, safe_text
from context_compactor.tui.sources.base import SessionStatus

SIGNS: dict[Level | None, str] = {None: "○", Level.SOFT: "◔", Level.AGGRESSIVE: "◑", Level.EMERGENCY: "●"}
_MAX_FORECAST = 1_000_000


def level_words(level: Level | None) -> str:
    """A level as a sign and a word."""
    return f"{SIGNS[level]} {level.value if level else 'below soft'}"


def level_style(level: Level | None) -> str:
    """The name of its colour."""
    return level.value if level else "ease"


class Gauge(Widget):
    """Three lines: name and level, the bar, the forecast."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"gauge--{name}" for name in ("title", "faint", "ease", "soft", "aggressive", "emergency")
    }

    status: reactive[SessionStatus | None] = reactive(None)

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self._session = session_id

    def render(self) -> Text:
        width, status = max(self.size.width, 20), self.status
        title = self.get_component_rich_style("gauge--title", partial=True)
        if status is None:
            return Text(in_width(cut_line(self._session), width), style=title, no_wrap=True, overflow="crop")
        line = status.line
        colour = self.get_component_rich_style(f"gauge--{level_style(line.level)}", partial=True)
        faint = self.get_component_rich_style("gauge--faint", partial=True)
        badge = level_words(line.level)
        about = cut_line(" · ".join(filter(None, (line.id, line.model, line.dialect))))
        text = Text(no_wrap=True, overflow="crop")
        text.append(in_width(about, width - len(badge) - 1) + " ", style=title)
        text.append(f"{badge}\n", style=colour)
        share = f" {percent(line.share)}"
        bar = gauge_bar(line.share, width - len(share), tuple(rule.threshold for rule in line.levels))
        text.append(bar, style=colour)
        text.append(f"{share}\n", style=colour)
        text.append(in_width(_forecast(status, width), width), style=faint)
        return text


def _forecast(status: SessionStatus, width: int) -> str:
    """Tokens of the budget, then the levels with how far away they are, as many as there is room for."""
    line = status.line
    said = [f"{line.tokens:,} of {status.budget_tokens:,} tokens", f"{line.messages:,} messages"]
    if status.turns_left is not None and status.turns_left < _MAX_FORECAST:
        said.append(f"room for ~{status.turns_left:,} turns")
    for rule in line.levels:
        starts = int(rule.threshold * status.budget_tokens)
        turns = status.turns_until(starts)
        away = f" in ~{turns:,} turns" if turns and turns < _MAX_FORECAST else ""
        said.append(f"{rule.level} at {short_count(starts)}{away}")
    shown = said[0]
    for part in said[1:]:
        if len(shown) + 3 + len(part) > width:
            break
        shown += f" · {part}"
    return shown


Tone = Literal["", "done", "failed", "warning", "faint"]
_MAX_TEXTS = 200
"""Texts that are kept."""
_MAX_TEXT = 20_000
"""Characters of one of them; what is longer belongs into the viewer."""


class AnswerPanel(Vertical):
    """What was shown since something was last entered, a few lines of it at a time. What was shown before is kept, and
    comes back into sight when one looks back.
    """

    def __init__(self) -> None:
        super().__init__(id="answer")
        self.display = False
        self.texts: list[str] = []
        """What was shown, the newest last."""
        self._messages = VerticalScroll(can_focus=False)
        self._progress = Static(id="progress", markup=False)
        self._progress.display = False

    def compose(self) -> ComposeResult:
        yield self._messages
        yield self._progress

    def begin(self) -> None:
        """Something was entered: what was shown until now is past."""
        for said in self._messages.children:
            said.add_class("past")
        self.remove_class("back")
        self._messages.display = False
        self._show()

    def show_message(self, text: str, style: Tone = "") -> None:
        """Show a text. Nothing in it is markup, and nothing in it drives the terminal."""
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}\n… and {len(text) - _MAX_TEXT:,} characters more"
        words = safe_text(text).rstrip("\n")
        self.texts = [*self.texts, words][-_MAX_TEXTS:]
        for old in list(self._messages.children)[: max(len(self._messages.children) - _MAX_TEXTS + 1, 0)]:
            old.remove()
        self._messages.mount(Static(words, markup=False, classes=f"said {style}".rstrip()))
        self._messages.display = True
        self._show()
        self._messages.scroll_end(animate=False)

    def show_progress_line(self, text: str) -> None:
        """Say in one line what goes on; nothing ends it."""
        self._progress.update(cut_line(text))
        self._progress.display = bool(text)
        self._show()

    def set_collapsed(self, is_wanted: bool) -> None:
        """Leave what was shown out of sight while its place is wanted for something else."""
        self._messages.set_class(is_wanted, "shut")

    @property
    def is_open(self) -> bool:
        """Whether anything that was shown is in sight."""
        return bool(self.display and self._messages.display)

    def close(self) -> bool:
        """Take what was shown out of sight; says whether there was any."""
        was_open = self.is_open
        self.begin()
        return was_open

    def look_back(self, by: int) -> None:
        """Pages up or down through everything that was shown."""
        if not self.texts:
            return
        if not self.has_class("back"):
            self.add_class("back")
            self._messages.display = True
            self._show()
            self._messages.scroll_end(animate=False)
        self.call_after_refresh(
            self._messages.scroll_page_up if by < 0 else self._messages.scroll_page_down, animate=False
        )

    def _show(self) -> None:
        self.display = bool(self._messages.display or self._progress.display)


_MAX_VALUE = 24


class KeyHint(Struct, frozen=True):
    """A key, what it is for, and how that stands now."""

    key: str
    words: str
    state: str = ""


class KeyLine(Static):
    """Hints side by side. A click does what the key does. The key is in bold, so no colour is needed to see it."""

    @dataclass
    class Pressed(Message):
        """A hint was clicked on."""

        key: str

    def show(self, hints: Sequence[KeyHint]) -> None:
        self.update(Content("  ").join([_hint_text(hint) for hint in hints]))

    def action_press(self, key: str) -> None:
        self.post_message(self.Pressed(key))


def _hint_text(hint: KeyHint) -> Content:
    words = " ".join(filter(None, (hint.words, cut_line(hint.state, _MAX_VALUE))))
    link = f"[@click=\"press('{hint.key}')\"]"
    return Content.from_markup(f"{link}[bold $text-accent]{hint.key}[/] $words[/]", words=words)


class KeysFooter(Footer):
    """Made anew when other keys do something, and only then: Textual would do so whenever the focus moves."""

    _shown: object = None
    _is_asked = False

    def bindings_changed(self, screen: Screen[object]) -> None:
        """Look soon whether there are other keys."""
        if self._shown is None:  # what a footer begins with is Textual's
            self._shown = ()
            super().bindings_changed(screen)
        if screen.app.app_focus and not self._is_asked:
            self._is_asked = self.call_after_refresh(self._compare_keys)

    async def _compare_keys(self) -> None:
        self._is_asked = False
        if not self.is_attached:
            return
        keys = [(binding, enabled, tip) for _, binding, enabled, tip in self.screen.active_bindings.values()]
        if keys != self._shown and self.screen.is_current:
            self._shown = keys
            await self.recompose()
