"""One session: how full it is over its panes, and a prompt under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.notifications import SeverityLevel
from textual.widgets import Input, TabbedContent, TabPane

from context_compactor.engine.report import Archived
from context_compactor.errors import CompactorError
from context_compactor.tui.commands.command import completions_for
from context_compactor.tui.commands.execution import run_entered
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.registry import COMMANDS, PANES, TALK
from context_compactor.tui.screens.base import LatestRun, LiveScreen, Pane, app_of, offline_banner
from context_compactor.tui.sources.base import SourceChange
from context_compactor.tui.widgets.bars import AnswerPanel, Gauge, KeysFooter, Tone
from context_compactor.tui.widgets.prompt import Completion, CompletionList, PromptInput


class PaneTabs(TabbedContent):
    """Tabs that change when somebody chooses one, and only then.

    Textual's own go to the pane in which the focus was seen to move, however long ago that was: who presses the key of
    the next pane meanwhile would be brought back.
    """

    def on_tab_pane_focused(self, event: TabPane.Focused) -> None:
        """Stay where somebody went."""
        event.stop()
        event.prevent_default()


_PLACEHOLDER = "/ for commands, ? for help"
_SEVERITIES: dict[str, SeverityLevel] = {"failed": "error", "warning": "warning"}
_MAX_MESSAGE = 1_000


class SessionScreen(LiveScreen):
    """Everything about one session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Back"),
        Binding("slash", "prompt", "Prompt"),
        Binding("r", "reload", "Reload"),
        *(Binding(str(number), f"pane({number - 1})", f"Pane {number}", show=False) for number in range(1, 10)),
        Binding("left_square_bracket", "next_pane(-1)", "Pane before", show=False),
        Binding("right_square_bracket", "next_pane(1)", "Next pane", key_display="1-9"),
    ]

    def __init__(self, session_id: str, pane: str = "") -> None:
        super().__init__()
        self.session_id = session_id
        self.archived: dict[str, Archived] | None = None
        """What is known to be archived, by id, the newest first; None until somebody asks."""
        self._first = pane or PANES[0].id
        self._measuring = LatestRun(self._measure)

    def compose(self) -> ComposeResult:
        yield offline_banner()
        yield Gauge(self.session_id)
        with PaneTabs(initial=self._first):
            for spec in PANES:
                with TabPane(spec.title, id=spec.id):
                    yield spec.make(self.session_id)
        answer = AnswerPanel()
        offers = CompletionList(answer.set_collapsed)
        yield answer
        yield offers
        yield PromptInput(app_of(self).prompt_history(self.session_id), offers, self._find, placeholder=_PLACEHOLDER)
        yield KeysFooter()

    def on_mount(self) -> None:
        """Find out how it stands; whoever begins with the chat wants to write."""
        super().on_mount()
        if self._first == "chat":
            self.focus_prompt()
        self.measure()

    # Panes

    @property
    def pane(self) -> Pane:
        return self.pane_of(self.query_one(TabbedContent).active)

    def pane_of(self, pane_id: str) -> Pane:
        return self.query_one(f"TabPane#{pane_id}").query_one(Pane)

    def show_pane(self, pane_id: str) -> Pane:
        self.query_one(TabbedContent).active = pane_id
        return self.pane_of(pane_id)

    @on(TabbedContent.TabActivated)
    def _activated(self, event: TabbedContent.TabActivated) -> None:
        pane = event.pane.query_one(Pane)
        pane.activate()
        first = pane.first_widget()
        if first is not None and not isinstance(self.focused, PromptInput):
            first.focus()

    def action_pane(self, at: int) -> None:
        if at < len(PANES):
            self.show_pane(PANES[at].id)

    def action_next_pane(self, by: int) -> None:
        names = [spec.id for spec in PANES]
        self.show_pane(names[(names.index(self.query_one(TabbedContent).active) + by) % len(names)])

    def action_reload(self) -> None:
        """Look at everything anew, unless it was left meanwhile."""
        shown = app_of(self).screen_of(self.session_id)
        if shown is not None:
            shown.changed(SourceChange(frozenset({self.session_id})))

    # Living

    def changed(self, change: SourceChange) -> None:
        """Look again when this session is no longer as it was, or when the source has come back."""
        if change.offline or (change.sessions and self.session_id not in change.sessions):
            return
        self.archived = None
        self.measure()
        active = self.query_one(TabbedContent).active
        for spec in PANES:
            self.pane_of(spec.id).mark_stale(is_seen=spec.id == active)

    def show_offline(self, why: str) -> None:
        """Say that the source cannot be reached; a store that is made with the first words is not missed."""
        app = app_of(self)
        super().show_offline("" if app.chats.is_new(self.session_id) and not app.source.is_remote else why)

    def measure(self) -> None:
        """Find out how full the session is now."""
        if self._measuring.request():
            self.attempt(self._measuring.run, "gauge")

    async def _measure(self) -> None:
        app = app_of(self)
        try:
            self.query_one(Gauge).status = await app.source.session(self.session_id)
        except CompactorError:
            if not app.chats.is_new(self.session_id):
                raise

    # What is said over the prompt

    def show_message(self, text: str, style: Tone = "") -> None:
        """Show a text over the prompt, on every pane, until Escape or until something else is entered.

        Where another screen is seen, it is a message there as well; also when this one was left meanwhile.
        """
        app = app_of(self)
        shown = app.screen_of(self.session_id)
        if shown is not None:
            shown.query_one(AnswerPanel).show_message(text, style)
        if shown is None or app.screen is not shown:
            severity = _SEVERITIES.get(style, "information")
            app.notify(
                cut_line(text, _MAX_MESSAGE), title=cut_line(self.session_id, 60), severity=severity, markup=False
            )

    def show_progress_line(self, text: str) -> None:
        """Say in one line what goes on; an empty one ends it."""
        shown = app_of(self).screen_of(self.session_id)
        if shown is not None:
            shown.query_one(AnswerPanel).show_progress_line(text)

    @on(PromptInput.ScrollRequested)
    def _look_back(self, event: PromptInput.ScrollRequested) -> None:
        answer = self.query_one(AnswerPanel)
        if answer.is_open or not self.pane.look_back(event.by):
            answer.look_back(event.by)

    # The prompt

    def action_prompt(self) -> None:
        """To the prompt, with the slash that a command begins with."""
        prompt = self.query_one(PromptInput)
        prompt.focus()
        if not prompt.value:
            prompt.value = "/"

    def focus_prompt(self) -> None:
        """To the prompt, as it is, at once."""
        self.set_focus(self.query_one(PromptInput))

    def action_leave(self) -> None:
        """Close what is open over the prompt, then from what is being written to the pane, then to all sessions."""
        if self.query_one(CompletionList).close() or self.query_one(AnswerPanel).close():
            return
        if isinstance(self.focused, Input):
            self.focused.value = ""
        if isinstance(self.focused, PromptInput) and self.focused.value == "/":
            self.focused.empty()
        if isinstance(self.focused, (Input, PromptInput)):
            self.set_focus(next(iter(self.pane.query("RowList, ConversationView")), None))
            return
        app_of(self).show_sessions()

    @on(PromptInput.Submitted)
    def _entered(self, event: PromptInput.Submitted) -> None:
        self.query_one(AnswerPanel).begin()
        if not run_entered(self, event.text, COMMANDS, TALK):
            event.prompt.put_back()

    async def _find(self, text: str) -> Sequence[Completion]:
        return await completions_for(self, text, COMMANDS)

    @on(CompletionList.OptionSelected)
    def _take(self, event: CompletionList.OptionSelected) -> None:
        event.stop()
        prompt = self.query_one(PromptInput)
        offer = prompt.offers.at(event.option_index)
        if offer is not None:
            prompt.focus()
            prompt.accept(offer)

    def on_paste(self, event: events.Paste) -> None:
        """What nobody else takes goes to the prompt: a paste is never lost."""
        event.stop()
        self.query_one(PromptInput).paste(event.text)

    def enter(self, text: str) -> None:
        """Put something into the prompt, for who is to go on writing."""
        prompt = self.query_one(PromptInput)
        prompt.focus()
        prompt.value = text
