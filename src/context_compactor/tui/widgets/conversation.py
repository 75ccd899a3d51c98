"""A conversation as far as it is in view: messages, compactions between them, and the answer while it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message as Event
from textual.widget import Widget
from textual.widgets import Static

from context_compactor.dialects.detection import likely_dialect
from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.facts.calls import describe_call
from context_compactor.sessions.views import HistoryPage, Placed
from context_compactor.text import beginning, plural
from context_compactor.tui.chat.chats import ChatExchange
from context_compactor.tui.formatting import cut_line, safe_text
from context_compactor.tui.sources.base import TextPiece
from context_compactor.tui.widgets.markdown import Prose

MAX_MESSAGE = 6_000
"""Characters of a message that are shown; what is longer can be opened."""
_SHOWN_CHARACTERS = 4_000
_LINE_CHARACTERS = 200

OpenPiece = Callable[[str, TextPiece], None]


class LinkLine(Static, can_focus=True):
    """A line that leads to more: Enter or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "Open")]

    def __init__(self, words: str, follow: Callable[[], None], classes: str = "", *, can_focus: bool = True) -> None:
        super().__init__(cut_line(words), classes=f"opens {classes}".rstrip(), markup=False)
        self.can_focus = can_focus
        self._follow = follow

    def action_open(self) -> None:
        self._follow()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self._follow()


def message_widgets(message: Message, calls: Mapping[str, ToolCall], open_piece: OpenPiece) -> Iterator[Widget]:
    """What is seen of one message."""
    if message.role in ("system", "developer"):
        yield _link_line(f"instructions: {message.text}", TextPiece("instructions", message.text), open_piece)
        return
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield from _text_widgets(message.role, text, open_piece)
            case ToolCall(arguments=arguments):
                yield _link_line(
                    f"→ {describe_call(part)}", TextPiece(describe_call(part), arguments, "arguments.json"), open_piece
                )
            case ToolResult():
                yield _result_line(part, calls.get(part.call_id), open_piece)
            case Media(kind=kind, media_type=media_type, byte_size=size):
                yield Static(f"[{kind} {media_type}, {size:,} bytes]", classes="step", markup=False)
            case Opaque(type=kind, text=text):
                yield _link_line(f"[{kind}]", TextPiece(kind, text), open_piece)
            case Thinking(text=text) if text.strip():
                yield _link_line(f"thinking: {text}", TextPiece("thinking", text), open_piece)
            case _:
                pass


def _text_widgets(role: str, text: str, open_piece: OpenPiece) -> Iterator[Widget]:
    shown = text if len(text) <= MAX_MESSAGE else beginning(text, _SHOWN_CHARACTERS)
    yield Prose(shown) if role == "assistant" else Static(safe_text(shown.strip("\n")), classes="user", markup=False)
    rest = len(text) - len(shown)
    if rest > 0:
        yield LinkLine(
            f"… {rest:,} more characters: Enter or a click opens all of it",
            lambda: open_piece("assistant" if role == "assistant" else "you", TextPiece("", text)),
            classes="more",
        )


def _result_line(result: ToolResult, call: ToolCall | None, open_piece: OpenPiece) -> Widget:
    lines = result.text.count("\n") + 1 if result.text else 0
    first = next((line for line in result.text[:4_000].splitlines() if line.strip()), "")
    said = f"{plural(lines, 'line')}: {first}" if lines > 1 else first or "nothing"
    words = f"← {'failed: ' if result.is_error else ''}{said}"
    title = describe_call(call) if call else "result"
    return _link_line(words, TextPiece(title, result.text), open_piece, "failed" if result.is_error else "")


def _link_line(words: str, piece: TextPiece, open_piece: OpenPiece, tone: str = "") -> LinkLine:
    return LinkLine(
        words[: 4 * _LINE_CHARACTERS],
        lambda: open_piece(piece.title, piece),
        classes=f"step {tone}".rstrip(),
        can_focus=False,
    )


class CompactionMarker(LinkLine):
    """A compaction in its place."""

    def __init__(self, placed: Placed, follow: Callable[[], None]) -> None:
        super().__init__("", follow, classes="compaction", can_focus=False)
        self.placed = placed

    def show_state(self, *, is_undone: bool, is_last: bool) -> None:
        """Say what was done, and for the last one how to take it back."""
        placed = self.placed
        removed = placed.messages_removed
        what = f"Compacted {plural(removed, 'message')}" if removed else "Shortened results in place"
        saved = placed.tokens_before - placed.tokens_after
        done = f"{what} · Tokens: {placed.tokens_before:,} → {placed.tokens_after:,} (saved {saved:,})"
        hint = "\n  /undo takes it back · Compactions has its report" if is_last else ""
        self.update(f"↺ Taken back: {done[0].lower()}{done[1:]}" if is_undone else f"✓ {done}{hint}")
        self.set_class(is_undone, "undone")


_MAX_ANSWER = 40_000
"""Characters of an answer that are shown while it comes; all of it can be opened when it is there."""
_MAX_QUESTION = 2_000
_MAX_THOUGHT = 240
_SECONDS_SHOWN_FROM = 3

InView = Callable[[str, str, int], bool]
"""Whether something that somebody of a role has said stands in the conversation behind so many messages."""


class PendingAnswer(Vertical):
    """Draws what was said and its answer as they stand, again and again."""

    def __init__(self) -> None:
        super().__init__(id="coming")
        self._exchange: ChatExchange | None = None
        self._since: datetime | None = None
        self._text = ""
        self._notes = 0
        self._question = Static(classes="user", markup=False)
        self._thought = Static(classes="thought", markup=False)
        self._answer = Prose()
        self._note_lines = Vertical(id="notes")
        self._doing = Static(classes="doing", markup=False)

    def compose(self) -> ComposeResult:
        yield self._question
        yield self._thought
        yield self._answer
        yield self._note_lines
        yield self._doing

    def on_mount(self) -> None:
        for each in (self._question, self._thought, self._answer, self._doing):
            each.display = False

    def draw(self, exchange: ChatExchange, is_in_view: InView, now: datetime) -> None:
        """Show how things stand, without what is in view already."""
        if exchange is not self._exchange:
            self._begin(exchange, now)
        text, thought = exchange.partial.said()
        is_asked = exchange.is_over or is_in_view("user", exchange.text, exchange.messages_at_start)
        is_seen = (exchange.is_over and not exchange.is_lost) or is_in_view(
            "assistant", text, exchange.messages_at_start
        )
        self._question.display = bool(exchange.text) and not is_asked
        self._thought.display = bool(thought) and not text and not is_seen
        if self._thought.display:
            self._thought.update(safe_text(thought)[-_MAX_THOUGHT:].lstrip())
        self._answer.display = bool(text) and not is_seen
        if self._answer.display:
            self._go_on(text)
        self._show_notes(exchange)
        self._doing.display = not exchange.is_over
        self._doing.update(_progress_text(exchange, text, thought, int((now - (self._since or now)).total_seconds())))

    def _begin(self, exchange: ChatExchange, now: datetime) -> None:
        self._exchange, self._since, self._text, self._notes = exchange, now, "", 0
        self._answer.clear()
        self._note_lines.remove_children()
        self._question.update(safe_text(exchange.text[:_MAX_QUESTION]))

    def _go_on(self, text: str) -> None:
        text = text[:_MAX_ANSWER]
        if not text.startswith(self._text):  # it was asked again
            self._answer.clear()
            self._text = ""
        if len(text) > len(self._text):
            self._answer.add(text[len(self._text) :])
            self._text = text

    def _show_notes(self, exchange: ChatExchange) -> None:
        for note in exchange.notes[self._notes :]:
            self._note_lines.mount(
                Static(safe_text(note.words), classes=f"note-line {note.tone}".rstrip(), markup=False)
            )
        self._notes = len(exchange.notes)


def _progress_text(exchange: ChatExchange, text: str, thought: str, seconds: int) -> str:
    doing = exchange.doing
    if not exchange.is_answered and not doing.startswith("compacting"):
        doing = "answering" if text else "thinking" if thought else doing
    if len(text) > _MAX_ANSWER:
        doing = f"{doing}, {len(text):,} characters so far"
    time = f" · {seconds:,} s" if seconds >= _SECONDS_SHOWN_FROM else ""
    return cut_line(f"{doing}…{time} · Ctrl-C ends it")


_REMEMBERED_MESSAGES = 20
MAX_MESSAGES = 300
"""Messages that are held in view; earlier ones are let go when new ones come."""


class ConversationView(VerticalScroll):
    """Messages with the compactions between them, and behind them what is just being said."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,i", "write", "Write")]

    @dataclass
    class Requested(Event):
        """Earlier messages are wanted, or all about the compactions, or the prompt."""

        what: str

    def __init__(self, open_piece: OpenPiece) -> None:
        super().__init__(id="conversation")
        self.first = self.end = 0
        """The indexes of the first message that is seen, and behind the last."""
        self.coming = PendingAnswer()
        self._earlier = LinkLine("", lambda: self._request("earlier"), classes="earlier")
        self._said = Vertical(id="said")
        self._open_piece = open_piece
        self._shown: deque[tuple[int, list[Widget]]] = deque()
        self._calls: dict[str, ToolCall] = {}
        self._last: deque[tuple[int, str, str]] = deque(maxlen=_REMEMBERED_MESSAGES)
        self._undone: frozenset[str] = frozenset()
        self._is_released = False

    def compose(self) -> ComposeResult:
        with Vertical(id="talk"):  # as high as what is around it, or what is at the end would be drawn out of place
            yield self._earlier
            yield self._said
            yield self.coming

    def on_mount(self) -> None:
        """Stay at the end until somebody scrolls away from it."""
        self._earlier.display = False
        self.anchor()

    def anchor(self, anchor: bool = True) -> None:
        self._is_released = False
        super().anchor(anchor)

    def release_anchor(self) -> None:
        self._is_released = True
        super().release_anchor()

    @property
    def follows_end(self) -> bool:
        """Whether the view stays at the end: until somebody scrolls away from it, and again when they are back."""
        self._is_released = self._is_released and not self.is_vertical_scroll_end
        return not self._is_released

    def on_resize(self) -> None:
        """Draw the bar where the view is: Textual keeps the view at the end without drawing its bar again."""
        self.call_after_refresh(self._draw_bar)

    def _draw_bar(self) -> None:
        if self.follows_end:
            self.scroll_end(animate=False, immediate=True)
        self.vertical_scrollbar.refresh()

    def action_write(self) -> None:
        self._request("prompt")

    def _request(self, what: str) -> None:
        self.post_message(self.Requested(what))

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
        if len(self._shown) > MAX_MESSAGES and self.follows_end:  # nobody reads what goes
            await self._let_go(len(self._shown) - MAX_MESSAGES)
        self._show_state()

    async def prepend_page(self, page: HistoryPage) -> None:
        """Show earlier messages over those in view, which stay where they are on the screen."""
        new = self._made(page, lambda index: index < self.first, lambda _: True)
        below = self.max_scroll_y - self.scroll_y
        self._shown.extendleft(reversed(new))
        self.first = page.first
        self.release_anchor()
        await self._said.mount_all(_widgets(new), before=0 if self._said.children else None)
        self._show_state()
        self.call_after_refresh(lambda: self.scroll_to(y=self.max_scroll_y - below, animate=False, immediate=True))

    async def _let_go(self, count: int) -> None:
        gone = [self._shown.popleft() for _ in range(count)]
        self.first = self._shown[0][0]
        await self._said.remove_children(list(_widgets(gone)))

    def _made(
        self, page: HistoryPage, is_new: Callable[[int], bool], is_unknown: Callable[[str], bool]
    ) -> list[tuple[int, list[Widget]]]:
        messages = likely_dialect(page.messages).parse(page.messages)
        made: list[tuple[int, list[Widget]]] = []
        for index, message in enumerate(messages, page.first):
            self._know(message.calls)
            if index >= self.end:
                self._last.append((index, message.role, message.text))
            widgets = list(message_widgets(message, self._calls, self._open_piece)) if is_new(index) else []
            widgets += [
                CompactionMarker(placed, lambda: self._request("compactions"))
                for placed in page.compactions
                if placed.message == index + 1 and is_unknown(placed.id)
            ]
            if widgets:
                made.append((index, widgets))
        return made

    def _know(self, calls: Iterable[ToolCall]) -> None:
        """Remember calls until their results come; not for ever, since they may be large."""
        self._calls.update((call.id, call) for call in calls)
        for name in list(self._calls)[: max(len(self._calls) - MAX_MESSAGES, 0)]:
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
        self._show_state()

    def _compactions(self) -> list[CompactionMarker]:
        return [each for _, widgets in self._shown for each in widgets if isinstance(each, CompactionMarker)]

    def _show_state(self) -> None:
        self._earlier.display = self.first > 0
        self._earlier.update(f"▴ {self.first:,} earlier messages: Enter or a click shows some, Turns has all of them")
        made = self._compactions()
        active = [each for each in made if each.placed.id not in self._undone]
        for each in made:
            each.show_state(is_undone=each.placed.id in self._undone, is_last=active[-1:] == [each])


def _widgets(shown: Iterable[tuple[int, list[Widget]]]) -> list[Widget]:
    return [widget for _, widgets in shown for widget in widgets]
