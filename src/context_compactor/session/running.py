"""What is under way in a session and can be ended: compactions, and summaries that are told ahead of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import Condition, Event, get_ident
from time import monotonic
from typing import Literal

from context_compactor.llm.model import Control

Work = Literal["compaction", "ahead"]
# A model that does not listen to its cancel is left behind; its thread ends with the program.
_MOST_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class Running:
    """The work of one open session, whichever threads do it. Only what is under way is ended, never what comes next."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._under_way: dict[Control, tuple[Work, int]] = {}
        self._last: dict[object, Callable[[], None]] = {}
        self.is_closed = False
        """Whether the session is closed: from then on its store belongs to somebody else."""

    @contextmanager
    def begin(self, work: Work) -> Iterator[Control]:
        """While the block runs, what it is ended by."""
        control = Control(inf, Event())
        with self._changed:
            self._under_way[control] = work, get_ident()
        try:
            yield control
        finally:
            with self._changed:
                del self._under_way[control]
                self._changed.notify_all()

    def has(self, work: Work) -> bool:
        """Whether such work is under way."""
        with self._changed:
            return any(kind == work for kind, _ in self._under_way.values())

    def cancel(self, *kinds: Work) -> bool:
        """End what is under way of these kinds; whether there was anything."""
        with self._changed:
            ended = [control for control, (work, _) in self._under_way.items() if work in kinds]
        for control in ended:
            control.cancel.set()
        return bool(ended)

    @contextmanager
    def or_at_close(self, last: Callable[[], None]) -> Iterator[None]:
        """A block that may outlive the session: then `last` is done before the session closes."""
        key = object()
        with self._changed:
            self._last[key] = last
        try:
            yield
        finally:
            with self._changed:
                self._last.pop(key, None)

    def close(self) -> None:
        """Cancel what is told ahead and wait for it; what does not end is left behind, with its last things done."""
        give_up = monotonic() + _MOST_SECONDS
        with self._changed:
            while monotonic() < give_up and (ahead := self._ahead_elsewhere()):
                for control in ahead:  # again and again: what can be cancelled may only be about to begin
                    control.cancel.set()
                self._changed.wait(_LOOK_SECONDS)
            self.is_closed = True
            left, self._last = list(self._last.values()), {}
        for last in reversed(left):
            last()

    def _ahead_elsewhere(self) -> list[Control]:
        return [
            control for control, (work, thread) in self._under_way.items() if work == "ahead" and thread != get_ident()
        ]
