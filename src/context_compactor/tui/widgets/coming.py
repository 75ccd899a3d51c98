"""The end of a conversation while it is under way: what was just said, and the answer while it comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from context_compactor.tui.chat.saying import Saying
from context_compactor.tui.texts import cut_line, safe
from context_compactor.tui.widgets.prose import Prose

_LONGEST = 40_000
"""Characters of an answer that are shown while it comes; all of it can be opened when it is there."""
_LONGEST_QUESTION = 2_000
_LONGEST_THOUGHT = 240
_SOON = 3

InView = Callable[[str, str, int], bool]
"""Whether something that somebody of a role has said stands in the conversation behind so many messages."""


class Coming(Vertical):
    """Draws what was said and its answer as they stand, again and again."""

    def __init__(self) -> None:
        super().__init__(id="coming")
        self._saying: Saying | None = None
        self._since: datetime | None = None
        self._text = ""
        self._notes = 0
        self._question = Static(classes="user", markup=False)
        self._thought = Static(classes="thought", markup=False)
        self._answer = Prose()
        self._told = Vertical(id="told")
        self._doing = Static(classes="doing", markup=False)

    def compose(self) -> ComposeResult:
        """From what was asked to what goes on."""
        yield self._question
        yield self._thought
        yield self._answer
        yield self._told
        yield self._doing

    def on_mount(self) -> None:
        """Nothing goes on."""
        for each in (self._question, self._thought, self._answer, self._doing):
            each.display = False

    def draw(self, saying: Saying, is_in_view: InView, now: datetime) -> None:
        """Show how things stand, without what is in view already."""
        if saying is not self._saying:
            self._begin(saying, now)
        text, thought = saying.heard.said()
        is_asked = saying.is_over or is_in_view("user", saying.text, saying.began_at)
        is_seen = (saying.is_over and not saying.is_lost) or is_in_view("assistant", text, saying.began_at)
        self._question.display = bool(saying.text) and not is_asked
        self._thought.display = bool(thought) and not text and not is_seen
        if self._thought.display:
            self._thought.update(safe(thought)[-_LONGEST_THOUGHT:].lstrip())
        self._answer.display = bool(text) and not is_seen
        if self._answer.display:
            self._go_on(text)
        self._tell_notes(saying)
        self._doing.display = not saying.is_over
        self._doing.update(_words(saying, text, thought, int((now - (self._since or now)).total_seconds())))

    def _begin(self, saying: Saying, now: datetime) -> None:
        self._saying, self._since, self._text, self._notes = saying, now, "", 0
        self._answer.clear()
        self._told.remove_children()
        self._question.update(safe(saying.text[:_LONGEST_QUESTION]))

    def _go_on(self, text: str) -> None:
        text = text[:_LONGEST]
        if not text.startswith(self._text):  # it was asked again
            self._answer.clear()
            self._text = ""
        if len(text) > len(self._text):
            self._answer.add(text[len(self._text) :])
            self._text = text

    def _tell_notes(self, saying: Saying) -> None:
        for note in saying.notes[self._notes :]:
            self._told.mount(Static(safe(note.words), classes=f"note-line {note.tone}".rstrip(), markup=False))
        self._notes = len(saying.notes)


def _words(saying: Saying, text: str, thought: str, seconds: int) -> str:
    doing = saying.doing
    if not saying.is_answered and not doing.startswith("compacting"):
        doing = "answering" if text else "thinking" if thought else doing
    if len(text) > _LONGEST:
        doing = f"{doing}, {len(text):,} characters so far"
    time = f" · {seconds:,} s" if seconds >= _SOON else ""
    return cut_line(f"{doing}…{time} · Ctrl-C ends it")
