"""A long text on a screen of its own: highlighted as what it is written in, page by page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.highlight import guess_language, highlight
from textual.widgets import Static

from context_compactor.tui.reading import Reading, Sheet
from context_compactor.tui.screens.live import LiveScreen, offline_banner
from context_compactor.tui.texts import cut_line, safe
from context_compactor.tui.values import Change, Piece
from context_compactor.tui.widgets.footer import KeysFooter

_UNKNOWN = "default"
_SHAPES = (("{", "json"), ("[", "json"), ("diff --git", "diff"), ("--- ", "diff"), ("Traceback", "pytb"), ("<", "html"))


class ViewerScreen(LiveScreen):
    """What was said, or an original."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back"),
        Binding("n,right", "turn_page(1)", "Next page"),
        Binding("p,left", "turn_page(-1)", "Page before"),
        Binding("w", "wrap", "Wrap"),
    ]

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self._reading = reading
        self._number, self._pages = 1, 1

    def compose(self) -> ComposeResult:
        """A title, the text, the keys."""
        yield offline_banner()
        yield Static(id="viewer-title", classes="title", markup=False)
        with VerticalScroll(id="viewer-text"):
            yield Static("Reading…", id="viewer-page", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Show the first page."""
        super().on_mount()
        self.query_one("#viewer-text").focus()
        self.attempt(self._show)

    def changed(self, change: Change) -> None:
        """What was said does not change."""

    def action_turn_page(self, by: int) -> None:
        """The next page, or the one before."""
        number = self._number + by
        if 1 <= number <= self._pages:
            self._number = number
            self.attempt(self._show)

    def action_wrap(self) -> None:
        """Long lines go on below, or to the right."""
        self.query_one("#viewer-page").toggle_class("unwrapped")

    async def _show(self) -> None:
        sheet = await self._reading.sheet(self._number)
        self._number, self._pages = sheet.number, sheet.pages
        page = f"page {sheet.number:,} of {sheet.pages:,}" if sheet.pages > 1 else ""
        title = " · ".join(filter(None, (self._reading.title, page, sheet.where)))
        self.query_one("#viewer-title", Static).update(cut_line(title))
        self.query_one("#viewer-page", Static).update(content_of(sheet))
        self.query_one("#viewer-text").scroll_home(animate=False)


def content_of(sheet: Sheet) -> Content:
    """A page with each piece under its heading."""
    return Content("\n\n").join(_piece(piece) for piece in sheet.pieces)


def _piece(piece: Piece) -> Content:
    text = safe(piece.text).rstrip("\n")
    body = highlight(text, language=_language(piece.path, text), tab_size=4) if text else Content("(empty)")
    if not piece.title:
        return body
    return Content.assemble((f"── {cut_line(piece.title, 200)} ", "bold $text-accent"), "\n", body)


def _language(path: str, text: str) -> str:
    """What a text is written in: what its file's name says, else what it begins with."""
    told = guess_language("", path) if path else _UNKNOWN
    if told != _UNKNOWN:
        return told
    start = text.lstrip()[:20]
    return next((name for opening, name in _SHAPES if start.startswith(opening)), "text")
