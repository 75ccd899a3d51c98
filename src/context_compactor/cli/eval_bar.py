"""A bar that shows how far long work is. No thread moves it, since workers are forked beside it."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from context_compactor.cli.render import bar

WIDTH = 24
_PAUSE = 0.1
_CLEAR = "\r\x1b[K"


class Bar:
    """One line on a terminal, drawn over again; nothing where nobody looks."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._seen = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._what, self._total, self._done = "", 0, 0
        self._began = self._drawn = 0.0

    def start(self, what: str, total: int) -> None:
        """Begin a stretch of work of so many steps."""
        self._what, self._total, self._done = what, max(1, total), 0
        self._began, self._drawn = time.monotonic(), 0.0
        self._draw()

    def step(self, amount: int = 1) -> None:
        """So many steps are done."""
        self._done += amount
        self._draw()

    def clear(self) -> None:
        """Take the line away."""
        if self._seen and self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _draw(self) -> None:
        now = time.monotonic()
        if not self._seen or (now - self._drawn < _PAUSE and self._done < self._total):
            return
        self._drawn = now
        share = min(1.0, self._done / self._total)
        line = f"{self._what:<11}{bar(share, WIDTH):<{WIDTH}} {100 * share:3.0f} %{_left(share, now - self._began)}"
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(_CLEAR + line.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


def _left(share: float, gone: float) -> str:
    """About how long it will take still, once that can be said."""
    if share <= 0.02 or gone < 2 or share >= 1:
        return ""
    left = gone / share - gone
    return f"  about {left / 60:.0f} min left" if left >= 90 else f"  about {left:.0f} s left"
