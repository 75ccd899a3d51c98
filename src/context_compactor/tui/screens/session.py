"""One session: how full it is over its panes, and a prompt under them."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, TabbedContent, TabPane

from context_compactor.tui.registry import COMMANDS, PANES, TALK
from context_compactor.tui.screens.live import LiveScreen, app_of, offline_banner
from context_compactor.tui.screens.session_pane import Pane
from context_compactor.tui.source import Change
from context_compactor.tui.texts import cut_line
from context_compactor.tui.widgets.gauge import Gauge
from context_compactor.tui.widgets.prompt import Prompt
from context_compactor.tui.widgets.rows import RowList


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
        self._first = pane or PANES[0].id

    def compose(self) -> ComposeResult:
        """Gauge, tabs, prompt, keys."""
        yield offline_banner()
        yield Gauge(self.session_id)
        with TabbedContent(initial=self._first):
            for spec in PANES:
                with TabPane(spec.title, id=spec.id):
                    yield spec.make(self.session_id)
        yield Prompt(placeholder="/ for commands", id="prompt")
        yield Footer()

    def on_mount(self) -> None:
        """Find out how it stands."""
        super().on_mount()
        self.attempt(self._measure, "gauge")

    # Panes

    @property
    def pane(self) -> Pane:
        """The pane that is seen."""
        return self.pane_of(self.query_one(TabbedContent).active)

    def pane_of(self, pane_id: str) -> Pane:
        """The pane of this id."""
        return self.query_one(f"TabPane#{pane_id}").query_one(Pane)

    def show_pane(self, pane_id: str) -> Pane:
        """Choose a pane."""
        self.query_one(TabbedContent).active = pane_id
        return self.pane_of(pane_id)

    @on(TabbedContent.TabActivated)
    def _look(self, event: TabbedContent.TabActivated) -> None:
        pane = event.pane.query_one(Pane)
        pane.look()
        first = pane.first_widget()
        if first is not None and not isinstance(self.focused, Prompt):
            first.focus()

    def action_pane(self, at: int) -> None:
        """The pane of this number."""
        if at < len(PANES):
            self.show_pane(PANES[at].id)

    def action_next_pane(self, by: int) -> None:
        """The next pane, or the one before."""
        names = [spec.id for spec in PANES]
        self.show_pane(names[(names.index(self.query_one(TabbedContent).active) + by) % len(names)])

    def action_reload(self) -> None:
        """Look at everything anew."""
        self.changed(Change(frozenset({self.session_id})))

    # Living

    def changed(self, change: Change) -> None:
        """Look again when this session is no longer as it was, or when the source has come back."""
        if change.offline or (change.sessions and self.session_id not in change.sessions):
            return
        self.attempt(self._measure, "gauge")
        active = self.query_one(TabbedContent).active
        for spec in PANES:
            self.pane_of(spec.id).turn_stale(is_seen=spec.id == active)

    async def _measure(self) -> None:
        self.query_one(Gauge).standing = await app_of(self).source.session(self.session_id)

    # The prompt

    def action_prompt(self) -> None:
        """To the prompt, with the slash that a command begins with."""
        prompt = self.query_one(Prompt)
        prompt.focus()
        if not prompt.value:
            prompt.value = "/"
            prompt.cursor_position = 1

    def action_leave(self) -> None:
        """From what is being written back to the pane, from there back to all sessions."""
        if isinstance(self.focused, Input):
            self.focused.value = ""
            self.set_focus(next(iter(self.pane.query(RowList)), None))
            return
        app_of(self).show_sessions()

    @on(Prompt.Submitted)
    def _entered(self, event: Prompt.Submitted) -> None:
        name, _, rest = event.text[1:].partition(" ")
        if not event.text.startswith("/"):
            if TALK:
                self.attempt(lambda: TALK[-1](self, event.text), "talk")
            else:
                self.notify("There is nobody to talk to here. Try: a command such as /help.", markup=False)
        elif name in COMMANDS:
            self.attempt(lambda: COMMANDS[name].run(self, rest.strip()), "command")
        else:
            known = ", ".join(f"/{each}" for each in COMMANDS) or "none yet"
            self.notify(f"/{cut_line(name, 40)} is not known. Known: {known}.", severity="warning", markup=False)

    def enter(self, text: str) -> None:
        """Put something into the prompt, for who is to go on writing."""
        prompt = self.query_one(Prompt)
        prompt.value = text
        prompt.cursor_position = len(text)
        prompt.focus()
