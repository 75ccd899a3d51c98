"""The chat of a session: what was said, with the compactions in their places, and the answer while it comes."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from context_compactor.errors import CompactorError
from context_compactor.tui.chat.chats import ChatExchange
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.screens.base import Pane, app_of, placeholder
from context_compactor.tui.screens.viewer import TextDocument, ViewerScreen
from context_compactor.tui.sources.base import TextPiece
from context_compactor.tui.widgets.conversation import ConversationView

_PAGE = 40
_MAX_NEW = 200
"""When more messages than that are new, only the last ones are shown."""
_DRAW_SECONDS = 0.08
_NEW_SESSION_TEXT = "This session is made with your first words. Write them below; Enter sends them."
_EMPTY_SESSION_TEXT = "Nothing was said yet. Write below; Enter sends it."


class ChatPane(Pane):
    """The conversation over a line that says who answers."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._timer: Timer | None = None
        self._seen: ChatExchange | None = None
        self._looked_at = 0

    def compose(self) -> ComposeResult:
        yield placeholder()
        yield ConversationView(self._open)
        yield Static(id="chat-model", markup=False)

    def on_mount(self) -> None:
        self._timer = self.set_interval(_DRAW_SECONDS, self._draw, pause=True)

    @property
    def conversation(self) -> ConversationView:
        return self.query_one(ConversationView)

    def first_widget(self) -> Widget | None:
        return self.conversation

    # What was said

    async def load(self) -> None:
        """Show the end of the history, or what has come since the last look; then what stands around it."""
        self.follow()
        talk = self.conversation
        try:
            await self._show_new(talk)
        except CompactorError:  # there may be no store either
            if not app_of(self).chats.is_new(self.session_id):
                raise
            self.say(_NEW_SESSION_TEXT)
        else:
            self.say("" if talk.end else _EMPTY_SESSION_TEXT)
            self._draw()
            talk.mark_undone((await self.source.session(self.session_id)).totals.undone_ids)
        self._show_model(await self._model_words())

    async def _show_new(self, talk: ConversationView) -> None:
        page = await self.source.history(self.session_id, max(talk.end - 1, 0), _MAX_NEW + 1) if talk.end else None
        if page is None or page.total < talk.end or page.total - talk.end > _MAX_NEW:
            await talk.begin(await self.source.history(self.session_id, None, _PAGE))
        else:
            await talk.go_on(page)

    @on(ConversationView.Requested)
    def _serve(self, event: ConversationView.Requested) -> None:
        event.stop()
        screen = app_of(self).screen_of(self.session_id)
        if event.what == "earlier":
            self.run_worker(self._load_earlier(), group="earlier", exclusive=True, exit_on_error=False)
        elif screen is not None and event.what == "compactions":
            screen.show_pane("compactions")
        elif screen is not None:
            screen.focus_prompt()

    async def _load_earlier(self) -> None:
        talk = self.conversation
        first = max(talk.first - _PAGE, 0)
        try:
            page = await self.source.history(self.session_id, first, talk.first - first)
        except CompactorError as error:
            app_of(self).show_error(error)
            return
        await talk.prepend_page(page)

    def _open(self, title: str, piece: TextPiece) -> None:
        self.app.push_screen(ViewerScreen(TextDocument(title, [piece])))

    def look_back(self, by: int) -> bool:
        talk = self.conversation
        (talk.scroll_page_up if by < 0 else talk.scroll_page_down)(animate=False)
        return True

    # What comes

    def follow(self) -> None:
        """Show what is being said and answered, if anything is."""
        exchange = app_of(self).chats.exchanges.get(self.session_id)
        if exchange is not None and exchange is not self._seen and self._timer is not None:
            self._seen = exchange
            self.say("")
            self.conversation.anchor()
            self._timer.resume()
            self._draw()

    def _draw(self) -> None:
        exchange, talk = self._seen, self.conversation
        if exchange is None:
            return
        talk.coming.draw(exchange, talk.is_in_view, app_of(self).now())
        if exchange.is_over and self._timer is not None:
            self._timer.pause()
        kept = max(exchange.kept_at, exchange.answered_at)
        screen = app_of(self).screen_of(self.session_id)
        if talk.end < kept and kept != self._looked_at and screen is not None:
            self._looked_at = kept
            screen.action_reload()

    # Who answers

    async def model(self) -> str:
        """The model that is talked to, and who has chosen it."""
        chosen = await app_of(self).chats.chosen(self.source, self.session_id)
        return f"{chosen.name} ({chosen.by})" if chosen.by else chosen.name

    async def use_model(self, name: str) -> str:
        """Talk with another model from now on; what it is, in a line."""
        description = await app_of(self).chats.use(self.source, self.session_id, name)
        self._show_model(await self._model_words())
        return description

    async def _model_words(self) -> str:
        try:
            return f"with {await self.model()} · /model NAME takes another"
        except CompactorError:
            return "no model to talk to yet: /model NAME names one, such as /model http://127.0.0.1:11434/v1#llama3.2"

    def _show_model(self, words: str) -> None:
        self.query_one("#chat-model", Static).update(cut_line(words))
