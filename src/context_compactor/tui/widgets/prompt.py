"""The prompt: several lines, completions, what was entered before, and long pastes as labels."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from unicodedata import category

from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option
from textual.widgets.text_area import Edit, EditResult, Location, Selection
from textual.worker import WorkType

from context_compactor.tui.formatting import cut_line

_PASTE_LABEL = re.compile(r"\[pasted [^\[\]\n]{1,60}\]")
_MAX_SHOWN_CHARACTERS, _MAX_SHOWN_LINES = 2_000, 12
"""What is longer than that is held aside."""
_HARMLESS = "\n\t\u200d"
"""Also what joins several emoji into one."""


class PastedTexts:
    """Texts by their labels. A label says how much it stands for."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def label(self, text: str) -> str:
        """Hold a text; the label that stands for it."""
        lines = text.count("\n") + 1
        size = f"{len(text):,} characters" + (f", {lines:,} lines" if lines > 1 else "")
        number, label = 1, f"[pasted {size}]"
        while self._texts.get(label, text) != text:
            number += 1
            label = f"[pasted {size} #{number}]"
        self._texts[label] = text
        return label

    def spans(self, line: str) -> Iterator[tuple[int, int]]:
        """Where in a line labels stand."""
        for found in _PASTE_LABEL.finditer(line):
            if found[0] in self._texts:
                yield found.span()

    def full(self, text: str) -> str:
        """A text with what its labels stand for."""
        return _PASTE_LABEL.sub(lambda found: self._texts.get(found[0], found[0]), text)

    @property
    def size(self) -> int:
        return sum(map(len, self._texts.values()))

    def keep_only(self, texts: list[str]) -> None:
        """Let go of what none of these texts has a label for."""
        named = {found for text in texts for found in _PASTE_LABEL.findall(text)}
        self._texts = {label: text for label, text in self._texts.items() if label in named}


def plain_lines(text: str) -> str:
    """A paste with its lines ended in one way: terminals send a carriage return for each."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_short_and_printable(text: str) -> bool:
    """Whether a paste is short, and nothing in it could drive the terminal or would have to be left out."""
    if len(text) > _MAX_SHOWN_CHARACTERS or text.count("\n") >= _MAX_SHOWN_LINES:
        return False
    return all(char.isprintable() or char in _HARMLESS or category(char) == "Zs" for char in text)


_MAX_ENTRIES = 200
_MAX_PASTED_CHARACTERS = 32_000_000
"""Of long pastes that are held for what was entered before."""


class PromptHistory:
    """The lines of one session's prompt, the newest last, with the pastes that their labels stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.draft = ""
        """What is being written."""
        self.pastes = PastedTexts()
        self._at = 0
        self._new = ""

    def add(self, line: str) -> None:
        """Something was entered: the draft is over."""
        if self.lines[-1:] != [line]:
            self.lines.append(line)
        del self.lines[: max(len(self.lines) - _MAX_ENTRIES, 0)]
        self.draft = self._new = ""
        self.pastes.keep_only(self.lines)
        while self.pastes.size > _MAX_PASTED_CHARACTERS and len(self.lines) > 1:
            del self.lines[0]
            self.pastes.keep_only(self.lines)
        self._at = len(self.lines)

    def step(self, by: int, now: str) -> str | None:
        """What was entered before or after what stands there now; None when there is no more of it.

        What was being written comes back behind the newest.
        """
        at = self._at + by
        if not 0 <= at <= len(self.lines):
            return None
        if self._at == len(self.lines):
            self._new = now
        self._at = at
        return self.lines[at] if at < len(self.lines) else self._new


_MAX_COMPLETIONS = 300
_MAX_WIDTH = 34


class Completion(Struct, frozen=True):
    """One way to go on: what the prompt then holds, how that is shown, and what it means."""

    line: str
    shown: str
    words: str = ""


class CompletionList(OptionList, can_focus=False):
    """What may be chosen. Keys come from the prompt, clicks from anywhere. `make_room` hears if there is a list."""

    BINDINGS: ClassVar = []

    def __init__(self, set_collapsed: Callable[[bool], None]) -> None:
        super().__init__(id="offers", compact=True, markup=False)
        self._make_room = set_collapsed
        self.display = False
        self._offers: list[Completion] = []

    @property
    def is_open(self) -> bool:
        """Whether there is anything to choose."""
        return bool(self.display)

    @property
    def chosen(self) -> Completion | None:
        """The one with the cursor, if there is one."""
        at = self.highlighted
        return self._offers[at] if self.is_open and at is not None and at < len(self._offers) else None

    def offer(self, offers: Sequence[Completion], *, is_begun: bool) -> None:
        """Show these, or nothing. Where a word is begun, the first that fits it is chosen already."""
        self._offers = list(offers[:_MAX_COMPLETIONS])
        self.clear_options()
        self._make_room(bool(self._offers))
        if not self._offers:
            self.display = False
            return
        width = min(max(len(offer.shown) for offer in self._offers), _MAX_WIDTH)
        self.add_options([_option(offer, width) for offer in self._offers])
        if len(offers) > _MAX_COMPLETIONS:
            more = "… and more; go on writing"
            self.add_option(Option(Content.styled(more, "$text-muted"), disabled=True))
        self.display = True
        self.highlighted = 0 if is_begun else None
        self.scroll_home(animate=False)

    def close(self) -> bool:
        """Take the list away; says whether there was one."""
        was_open = self.is_open
        self.offer([], is_begun=False)
        return was_open

    def at(self, index: int) -> Completion | None:
        return self._offers[index] if 0 <= index < len(self._offers) else None

    def move(self, by: int) -> None:
        """The cursor to the next or the one before, around the ends."""
        count = len(self._offers)
        at = self.highlighted
        self.highlighted = (0 if by > 0 else count - 1) if at is None else (at + by) % count


def _option(offer: Completion, width: int) -> Option:
    shown = cut_line(offer.shown, _MAX_WIDTH)
    return Option(Content.assemble((f"{shown:<{width}}", "bold"), "  ", (cut_line(offer.words, 200), "$text-muted")))


CompletionFinder = Callable[[str], Awaitable[Sequence[Completion]]]
"""Finds how a text may go on."""
_NEW_LINE_KEYS = ("alt+enter", "shift+enter", "ctrl+j")


class PromptInput(TextArea):
    """Posts `Submitted(text)` when something is entered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # Keys of these three reach `on_key` first; here they are for the last line and for the help.
        Binding("enter", "submit", "Send"),
        Binding("alt+enter,ctrl+j,shift+enter", "new_line", "New line", key_display="alt+⏎"),
        Binding("tab", "complete", "Complete", show=False),
        Binding("pageup", "look_back(-1)", "Look back", show=False),
        Binding("pagedown", "look_back(1)", "Look on", show=False),
    ]

    @dataclass
    class Submitted(Message):
        """Something was entered."""

        prompt: PromptInput
        text: str

    @dataclass
    class ScrollRequested(Message):
        """What was shown before is wanted, or what was shown after that."""

        by: int

    def __init__(
        self, entered: PromptHistory, offers: CompletionList, find: CompletionFinder, *, placeholder: str = ""
    ) -> None:
        self._entered = entered  # asked for while the rest is made
        super().__init__(
            entered.draft,
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            placeholder=Content(placeholder),
        )
        self.set_reactive(TextArea.match_cursor_bracket, False)
        self.offers = offers
        self._find = find
        self._recalled = entered.draft
        self._offered_for = ""
        """The text that the offers go on from."""
        self._wanted_for = ""
        """The text that is to go on with the first offer, as soon as there is one."""

    def on_mount(self) -> None:
        self.move_cursor(self.document.end)

    def on_unmount(self) -> None:
        self._entered.draft = self.text

    # What stands in it

    @property
    def value(self) -> str:
        """What stands in it, with labels for long pastes."""
        return self.text

    @value.setter
    def value(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)

    def put_back(self) -> None:
        """What was entered last was not taken: it stands there again, unless something else does."""
        if not self.text and self._entered.lines:
            self.value = self._recalled = self._entered.lines[-1]

    def empty(self) -> bool:
        """Leave nothing in it; says whether there was anything."""
        had = bool(self.text)
        self.offers.close()
        self.load_text("")
        return had

    # Keys

    async def on_key(self, event: events.Key) -> None:
        """Send, complete or begin a new line, before Textual writes the key."""
        if event.key in ("enter", "tab") and self._is_ahead and " " not in self.text:
            await self._find_offers(self.text)  # names are known at once
        if event.key == "enter":
            self.action_submit()
        elif event.key in _NEW_LINE_KEYS:
            self.action_new_line()
        elif event.key == "tab" and (self.offers.is_open or self._is_ahead):
            self.action_complete()
        else:
            return
        event.stop()
        event.prevent_default()

    def action_new_line(self) -> None:
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_complete(self) -> None:
        """Take what is chosen among the offers, else the first; those that are still looked for are waited for."""
        self._wanted_for = self.text if self._is_ahead else ""
        if self.offers.is_open and self.offers.chosen is None:
            self.offers.move(1)
        self._choose()

    def action_submit(self) -> None:
        """Take what is chosen among the offers, else send what stands there."""
        if self._choose():
            return
        line = self.text.strip()
        if not line:
            return
        text = self._entered.pastes.full(line)
        self._entered.add(line)
        self.empty()
        self.post_message(self.Submitted(self, text))

    def action_cursor_up(self, select: bool = False) -> None:
        """Up: among offers, in the text, or on its first line to what was entered before."""
        if self.offers.is_open:
            self.offers.move(-1)
        elif select or not self.navigator.is_first_wrapped_line(self.cursor_location) or not self._recall(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down: among offers, in the text, or on its last line to what was entered after."""
        if self.offers.is_open:
            self.offers.move(1)
        elif select or not self.navigator.is_last_wrapped_line(self.cursor_location) or not self._recall(1):
            super().action_cursor_down(select)

    def action_cursor_right(self, select: bool = False) -> None:
        """Right: at the end, what is chosen among the offers."""
        if select or not self.cursor_at_end_of_text or not self._choose():
            super().action_cursor_right(select)

    def action_look_back(self, by: int) -> None:
        self.post_message(self.ScrollRequested(by))

    def _recall(self, by: int) -> bool:
        line = self._entered.step(by, self.text)
        if line is None:
            return False
        self.value = self._recalled = line
        return True

    # Offers

    def accept(self, offer: Completion) -> None:
        """Go on as offered."""
        self.offers.close()
        self.value = offer.line

    def _choose(self) -> bool:
        """Take the offer that is chosen; not so when there is none, or when it says what stands there already."""
        offer = self.offers.chosen
        if offer is None or self._is_ahead or offer.line.rstrip() == self.text.rstrip():
            return False
        self.accept(offer)
        return True

    def on_text_area_changed(self) -> None:
        self._entered.draft = self.text
        if self.text == self._recalled:
            self.offers.close()
            return
        self._recalled = ""
        work: WorkType[None] = partial(self._find_offers, self.text)
        self.run_worker(work, group="offers", exclusive=True, exit_on_error=False)

    async def _find_offers(self, text: str) -> None:
        found = await self._find(text) if text.startswith("/") and "\n" not in text else []
        if text == self.text:
            self._offered_for = text
            self.offers.offer(found, is_begun=not text.endswith(" "))
            if self._wanted_for == text:
                self.action_complete()

    @property
    def _is_ahead(self) -> bool:
        """Whether somebody writes faster than offers are found."""
        text = self.text
        return text.startswith("/") and "\n" not in text and text not in (self._offered_for, self._recalled)

    def on_blur(self) -> None:
        self.offers.close()

    # Pastes

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def action_paste(self) -> None:
        self.paste(self.app.clipboard)

    def paste(self, text: str) -> None:
        """Put a text where the cursor is: a short one as it is, a long one as a label that is one piece."""
        text = plain_lines(text)
        shown = text if is_short_and_printable(text) else self._entered.pastes.label(text)
        done = self.replace(shown, *self.selection, maintain_selection_offset=False)
        self.move_cursor(done.end_location)
        self.focus()

    def edit(self, edit: Edit) -> EditResult:
        """Change the text; a label that is touched goes as a whole."""
        top, bottom = sorted((edit.from_location, edit.to_location))
        wider = self._outside(top, -1 if top != bottom else 1), self._outside(bottom, 1)
        if wider != (top, bottom):
            edit = Edit(edit.text, *wider, edit.maintain_selection_offset)
        return super().edit(edit)

    def validate_selection(self, selection: Selection) -> Selection:
        """The cursor never stands within a label: it goes to the end that lies ahead."""
        ahead = 1 if selection.end >= self.selection.end else -1
        end = self._outside(selection.end, ahead)
        return Selection.cursor(end) if selection.is_empty else Selection(self._outside(selection.start, -ahead), end)

    def _outside(self, location: Location, towards: int) -> Location:
        row, column = location
        if row < self.document.line_count:
            for start, end in self._entered.pastes.spans(self.document.get_line(row)):
                if start < column < end:
                    return row, end if towards > 0 else start
        return location
