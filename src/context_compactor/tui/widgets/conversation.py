"""A conversation as far as it is in view: its end, what comes in, and earlier messages when somebody wants them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message as Event
from textual.widget import Widget

from context_compactor.messages.detect import find_dialect
from context_compactor.messages.message import ToolCall
from context_compactor.session.pages import HistoryPage
from context_compactor.tui.widgets.coming import Coming
from context_compactor.tui.widgets.utterance import Compaction, Open, Opens, utterances

_LAST = 20
MOST = 300
"""Messages that are held in view; earlier ones are let go when new ones come."""


class Conversation(VerticalScroll):
    """Messages with the compactions between them, and behind them what is just being said."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,i", "write", "Write")]

    class Wanted(Event):
        """Earlier messages are wanted, or all about the compactions, or the prompt."""

        def __init__(self, what: str) -> None:
            self.what = what
            super().__init__()

    def __init__(self, open_piece: Open) -> None:
        super().__init__(id="conversation")
        self.first = self.end = 0
        """The indexes of the first message that is seen, and behind the last."""
        self.coming = Coming()
        self._earlier = Opens("", lambda: self._want("earlier"), classes="earlier")
        self._said = Vertical(id="said")
        self._open_piece = open_piece
        self._shown: deque[tuple[int, list[Widget]]] = deque()
        self._calls: dict[str, ToolCall] = {}
        self._last: deque[tuple[int, str, str]] = deque(maxlen=_LAST)
        self._undone: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        """From the earliest to what is just being said."""
        with Vertical(id="talk"):  # as high as what is around it, or what is at the end would be drawn out of place
            yield self._earlier
            yield self._said
            yield self.coming

    def on_mount(self) -> None:
        """Stay at the end until somebody scrolls away from it."""
        self._earlier.display = False
        self.anchor()

    def on_resize(self) -> None:
        """Draw the bar where the view is: Textual keeps the view at the end without drawing its bar again."""
        self.call_after_refresh(self._draw_bar)

    def _draw_bar(self) -> None:
        if not self._anchor_released:
            self.scroll_end(animate=False, immediate=True)
        self.vertical_scrollbar.refresh()

    def action_write(self) -> None:
        """To the prompt."""
        self._want("prompt")

    def _want(self, what: str) -> None:
        self.post_message(self.Wanted(what))

    # Filling

    async def begin(self, page: HistoryPage) -> None:
        """Show this page and nothing else."""
        await self._said.remove_children()
        self._shown.clear()
        self._calls.clear()
        self._last.clear()
        self.first = self.end = page.first
        await self.go_on(page)

    async def go_on(self, page: HistoryPage) -> None:
        """Show what is new in a page: messages behind those in view, and compactions."""
        known = {each.placed.id for each in self._compactions()}
        new = self._made(page, lambda index: index >= self.end, lambda name: name not in known)
        self._shown.extend(new)
        self.end = max(self.end, page.first + len(page.messages))
        await self._said.mount_all(_widgets(new))
        if len(self._shown) > MOST and not self._anchor_released:  # nobody reads what goes
            await self._let_go(len(self._shown) - MOST)
        self._tell()

    async def go_back(self, page: HistoryPage) -> None:
        """Show earlier messages over those in view, which stay where they are on the screen."""
        new = self._made(page, lambda index: index < self.first, lambda _: True)
        below = self.max_scroll_y - self.scroll_y
        self._shown.extendleft(reversed(new))
        self.first = page.first
        self.release_anchor()
        await self._said.mount_all(_widgets(new), before=0 if self._said.children else None)
        self._tell()
        self.call_after_refresh(lambda: self.scroll_to(y=self.max_scroll_y - below, animate=False, immediate=True))

    async def _let_go(self, count: int) -> None:
        gone = [self._shown.popleft() for _ in range(count)]
        self.first = self._shown[0][0]
        await self._said.remove_children(list(_widgets(gone)))

    def _made(
        self, page: HistoryPage, is_new: Callable[[int], bool], is_unknown: Callable[[str], bool]
    ) -> list[tuple[int, list[Widget]]]:
        messages = find_dialect("auto", page.messages).parse(page.messages)
        made: list[tuple[int, list[Widget]]] = []
        for index, message in enumerate(messages, page.first):
            self._know(message.calls)
            if index >= self.end:
                self._last.append((index, message.role, message.text))
            widgets = list(utterances(message, self._calls, self._open_piece)) if is_new(index) else []
            widgets += [
                Compaction(placed, lambda: self._want("compactions"))
                for placed in page.compactions
                if placed.message == index + 1 and is_unknown(placed.id)
            ]
            if widgets:
                made.append((index, widgets))
        return made

    def _know(self, calls: Iterable[ToolCall]) -> None:
        """Remember calls until their results come; not for ever, since they may be large."""
        self._calls.update((call.id, call) for call in calls)
        for name in list(self._calls)[: max(len(self._calls) - MOST, 0)]:
            del self._calls[name]

    def is_in_view(self, role: str, text: str, since: int) -> bool:
        """Whether one of the last messages, behind so many, is of this role and begins with this text."""
        begun = text.rstrip()
        return bool(begun) and any(
            index >= since and who == role and said.startswith(begun) for index, who, said in self._last
        )

    # How things stand

    def mark_undone(self, ids: Iterable[str]) -> None:
        """These compactions count no longer, all others do."""
        self._undone = frozenset(ids)
        self._tell()

    def _compactions(self) -> list[Compaction]:
        return [each for _, widgets in self._shown for each in widgets if isinstance(each, Compaction)]

    def _tell(self) -> None:
        self._earlier.display = self.first > 0
        self._earlier.update(f"▴ {self.first:,} earlier messages: Enter or a click shows some, Turns has all of them")
        made = self._compactions()
        active = [each for each in made if each.placed.id not in self._undone]
        for each in made:
            each.tell(is_undone=each.placed.id in self._undone, is_last=active[-1:] == [each])


def _widgets(shown: Iterable[tuple[int, list[Widget]]]) -> list[Widget]:
    return [widget for _, widgets in shown for widget in widgets]
