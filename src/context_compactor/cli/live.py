"""What a model is doing, for whoever looks at the terminal; nothing where nobody looks, so that logs stay short."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from context_compactor.app import teller_for
from context_compactor.cli.output import Paper, printable
from context_compactor.messages.printing import one_line

if TYPE_CHECKING:
    from context_compactor.llm.model import Step
    from context_compactor.settings import Settings
    from context_compactor.story import Teller

_NAMES = {"asked": "asking", "answered": "answered", "retried": "again"}


class Live:
    """Shows each call, each retry and the text as it is written, line by line. Any thread may tell it."""

    def __init__(self) -> None:
        self._paper = Paper(sys.stderr)
        self._lock = Lock()
        self._is_amid_line = False

    def line(self, name: str, text: str) -> None:
        """One line of its own."""
        with self._lock:
            if self._is_amid_line:
                self._paper.print()
                self._is_amid_line = False
            self._paper.print(f"{name:<12}{one_line(text, 300)}", style="dim")
            sys.stderr.flush()

    def step(self, step: Step) -> None:
        """A call that begins, ends, or is made again."""
        noun = "attempt" if step.kind == "retried" else "call"
        reason = f": {step.reason}" if step.reason else ""
        self.line(_NAMES[step.kind], f"{noun} {step.number:,} of {step.of:,}{reason}")

    def text(self, piece: str) -> None:
        """A piece of what the model writes."""
        with self._lock:
            shown = printable(piece)
            encoding = sys.stderr.encoding or "utf-8"
            sys.stderr.write(shown.encode(encoding, "replace").decode(encoding))
            sys.stderr.flush()
            self._is_amid_line = not shown.endswith("\n") if shown else self._is_amid_line

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        if self._is_amid_line:
            self._paper.print()
            self._is_amid_line = False


@contextmanager
def live_teller(settings: Settings, left: str) -> Iterator[Teller | None]:
    """Who tells the story, shown at work on a terminal. When the user interrupts it, `left` says what there is now."""
    live = Live() if sys.stderr.isatty() else None
    teller = teller_for(settings, on_text=live.text if live else None, on_step=live.step if live else None)
    if teller is not None and live is not None:
        describe = getattr(teller.model, "describe", None)
        live.line("model", describe() if describe else teller.model.name)
    try:
        yield teller
    except KeyboardInterrupt:
        _end(live)
        Paper(sys.stderr).print(f"interrupted: {left}")
        raise
    _end(live)


def _end(live: Live | None) -> None:
    if live is not None:
        live.end()
