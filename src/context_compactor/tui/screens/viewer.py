"""Long texts page by page, and the screen that shows them, highlighted as what they are written in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.highlight import guess_language, highlight
from textual.widgets import Static

from context_compactor.sessions.recall import cut_pages
from context_compactor.tui.formatting import cut_line, safe_text
from context_compactor.tui.screens.base import LiveScreen, offline_banner
from context_compactor.tui.sources.base import SessionSource, SourceChange, TextPiece
from context_compactor.tui.widgets.bars import KeysFooter

_PAGE_SIZE = 8_000


class DocumentPage(Struct, frozen=True):
    """One page of something: its pieces, and where it stands among the others."""

    pieces: list[TextPiece]
    number: int = 1
    pages: int = 1
    where: str = ""


class Document(Protocol):
    """Something that can be read page by page."""

    title: str

    async def document_page(self, number: int) -> DocumentPage:
        """A page, counted from 1."""
        ...


class TextDocument:
    """Pieces that are at hand, or that are read with the first page."""

    def __init__(
        self,
        title: str,
        pieces: Sequence[TextPiece] = (),
        read: Callable[[], Awaitable[Sequence[TextPiece]]] | None = None,
    ) -> None:
        self.title = title
        self._read = read
        self._pages = paginate(pieces) if read is None else []

    async def document_page(self, number: int) -> DocumentPage:
        if not self._pages and self._read is not None:
            self._pages = paginate(await self._read())
        return self._pages[number - 1]


class OriginalDocument:
    """An original from the archive, of which only the page that is shown is read."""

    def __init__(self, source: SessionSource, session_id: str, ref: str) -> None:
        self.title = ref
        self._source, self._id, self._ref = source, session_id, ref

    async def document_page(self, number: int) -> DocumentPage:
        original = await self._source.original(self._id, self._ref, number)
        page = original.page
        where = f"lines {page.first_line:,}–{page.last_line:,}"
        return DocumentPage([TextPiece(original.title, page.text, original.path)], page.number, page.pages, where)


def paginate(pieces: Sequence[TextPiece]) -> list[DocumentPage]:
    """Pieces on pages of about the same size; one that is longer goes on on the next."""
    pages: list[list[TextPiece]] = [[]]
    size = 0
    for piece in pieces:
        for at, (_, _, text) in enumerate(cut_pages(piece.text, _PAGE_SIZE)):
            if size and size + len(text) > _PAGE_SIZE:
                pages.append([])
                size = 0
            title = piece.title if at == 0 else f"{piece.title} (goes on)"
            pages[-1].append(TextPiece(title, text, piece.path, piece.role))
            size += len(text)
    return [DocumentPage(page, at, len(pages)) for at, page in enumerate(pages, 1)]


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

    def __init__(self, document: Document) -> None:
        super().__init__()
        self._document = document
        self._number, self._pages = 1, 1

    def compose(self) -> ComposeResult:
        yield offline_banner()
        yield Static(id="viewer-title", classes="title", markup=False)
        with VerticalScroll(id="viewer-text"):
            yield Static("Reading…", id="viewer-page", markup=False)
        yield KeysFooter()

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#viewer-text").focus()
        self.attempt(self._show)

    def changed(self, change: SourceChange) -> None:
        """What was said does not change."""

    def action_turn_page(self, by: int) -> None:
        number = self._number + by
        if 1 <= number <= self._pages:
            self._number = number
            self.attempt(self._show)

    def action_wrap(self) -> None:
        """Long lines go on below, or to the right."""
        self.query_one("#viewer-page").toggle_class("unwrapped")

    async def _show(self) -> None:
        document_page = await self._document.document_page(self._number)
        self._number, self._pages = document_page.number, document_page.pages
        page = f"page {document_page.number:,} of {document_page.pages:,}" if document_page.pages > 1 else ""
        title = " · ".join(filter(None, (self._document.title, page, document_page.where)))
        self.query_one("#viewer-title", Static).update(cut_line(title))
        self.query_one("#viewer-page", Static).update(page_content(document_page))
        self.query_one("#viewer-text").scroll_home(animate=False)


def page_content(document_page: DocumentPage) -> Content:
    """A page with each piece under its heading."""
    return Content("\n\n").join(_piece_content(piece) for piece in document_page.pieces)


def _piece_content(piece: TextPiece) -> Content:
    text = safe_text(piece.text).rstrip("\n")
    body = highlight(text, language=_language(piece.path, text), tab_size=4) if text else Content("(empty)")
    if not piece.title:
        return body
    return Content.assemble((f"── {cut_line(piece.title, 200)} ", "bold $text-accent"), "\n", body)


def _language(path: str, text: str) -> str:
    """What a text is written in: what its file's name says, else what it begins with."""
    language = guess_language("", path) if path else _UNKNOWN
    if language != _UNKNOWN:
        return language
    start = text.lstrip()[:20]
    return next((name for opening, name in _SHAPES if start.startswith(opening)), "text")
