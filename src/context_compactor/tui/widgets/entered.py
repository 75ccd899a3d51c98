"""What was entered into a prompt, and what is being written: kept while the app runs, whichever screen is shown."""

from __future__ import annotations

from context_compactor.tui.widgets.held import Held

_MOST = 200
_MOST_CHARACTERS = 32_000_000
"""Of long pastes that are held for what was entered before."""


class Entered:
    """The lines of one session's prompt, the newest last, with the pastes that their labels stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.draft = ""
        """What is being written."""
        self.held = Held()
        self._at = 0
        self._new = ""

    def add(self, line: str) -> None:
        """Something was entered: the draft is over."""
        if self.lines[-1:] != [line]:
            self.lines.append(line)
        del self.lines[: max(len(self.lines) - _MOST, 0)]
        self.draft = self._new = ""
        self.held.keep_only(self.lines)
        while self.held.size > _MOST_CHARACTERS and len(self.lines) > 1:
            del self.lines[0]
            self.held.keep_only(self.lines)
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
