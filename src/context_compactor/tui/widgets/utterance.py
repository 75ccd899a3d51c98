"""Messages of a conversation as what is seen of them: words set apart by who says them, all else in a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from context_compactor.classify.calls import describe
from context_compactor.figures import plural
from context_compactor.messages.ends import beginning
from context_compactor.messages.message import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.session.pages import Placed
from context_compactor.tui.texts import cut_line, safe
from context_compactor.tui.values import Piece
from context_compactor.tui.widgets.prose import Prose

LONGEST = 6_000
"""Characters of a message that are shown; what is longer can be opened."""
_SHOWN = 4_000
_LINE = 200

Open = Callable[[str, Piece], None]


class Opens(Static, can_focus=True):
    """A line that leads to more: Enter or a click."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "Open")]

    def __init__(self, words: str, follow: Callable[[], None], classes: str = "", *, can_focus: bool = True) -> None:
        super().__init__(cut_line(words), classes=f"opens {classes}".rstrip(), markup=False)
        self.can_focus = can_focus
        self._follow = follow

    def action_open(self) -> None:
        """Go there."""
        self._follow()

    def on_click(self, event: events.Click) -> None:
        """Go there."""
        event.stop()
        self._follow()


def utterances(message: Message, calls: Mapping[str, ToolCall], open_piece: Open) -> Iterator[Widget]:
    """What is seen of one message."""
    if message.role in ("system", "developer"):
        yield _line(f"instructions: {message.text}", Piece("instructions", message.text), open_piece)
        return
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip():
                yield from _words(message.role, text, open_piece)
            case ToolCall(arguments=arguments):
                yield _line(f"→ {describe(part)}", Piece(describe(part), arguments, "arguments.json"), open_piece)
            case ToolResult():
                yield _result(part, calls.get(part.call_id), open_piece)
            case Media(kind=kind, media_type=media_type, byte_size=size):
                yield Static(f"[{kind} {media_type}, {size:,} bytes]", classes="step", markup=False)
            case Opaque(type=kind, text=text):
                yield _line(f"[{kind}]", Piece(kind, text), open_piece)
            case Thinking(text=text) if text.strip():
                yield _line(f"thinking: {text}", Piece("thinking", text), open_piece)
            case _:
                pass


def _words(role: str, text: str, open_piece: Open) -> Iterator[Widget]:
    shown = text if len(text) <= LONGEST else beginning(text, _SHOWN)
    yield Prose(shown) if role == "assistant" else Static(safe(shown.strip("\n")), classes="user", markup=False)
    rest = len(text) - len(shown)
    if rest > 0:
        yield Opens(
            f"… {rest:,} more characters: Enter or a click opens all of it",
            lambda: open_piece("assistant" if role == "assistant" else "you", Piece("", text)),
            classes="more",
        )


def _result(result: ToolResult, call: ToolCall | None, open_piece: Open) -> Widget:
    lines = result.text.count("\n") + 1 if result.text else 0
    first = next((line for line in result.text[:4_000].splitlines() if line.strip()), "")
    said = f"{plural(lines, 'line')}: {first}" if lines > 1 else first or "nothing"
    words = f"← {'failed: ' if result.is_error else ''}{said}"
    title = describe(call) if call else "result"
    return _line(words, Piece(title, result.text), open_piece, "failed" if result.is_error else "")


def _line(words: str, piece: Piece, open_piece: Open, tone: str = "") -> Opens:
    return Opens(
        words[: 4 * _LINE], lambda: open_piece(piece.title, piece), classes=f"step {tone}".rstrip(), can_focus=False
    )


class Compaction(Opens):
    """A compaction in its place."""

    def __init__(self, placed: Placed, follow: Callable[[], None]) -> None:
        super().__init__("", follow, classes="compaction", can_focus=False)
        self.placed = placed

    def tell(self, *, is_undone: bool, is_last: bool) -> None:
        """Say what was done, and for the last one how to take it back."""
        placed = self.placed
        removed = placed.messages_removed
        what = f"Compacted {plural(removed, 'message')}" if removed else "Shortened results in place"
        saved = placed.tokens_before - placed.tokens_after
        done = f"{what} · Tokens: {placed.tokens_before:,} → {placed.tokens_after:,} (saved {saved:,})"
        hint = "\n  /undo takes it back · Compactions has its report" if is_last else ""
        self.update(f"↺ Taken back: {done[0].lower()}{done[1:]}" if is_undone else f"✓ {done}{hint}")
        self.set_class(is_undone, "undone")
