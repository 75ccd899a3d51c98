"""Forks: no SQLite connection may live through one, or the child writes where nobody looks.

SQLite remembers its locks in memory, which a forked process inherits, while the locks themselves stay with the parent.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What rests while its process forks."""

    def before_fork(self) -> None:
        """Let go of everything that must not be inherited."""
        ...

    def after_fork(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Go on in the new process."""
        ...


_resting: WeakSet[Forkable] = WeakSet()
_kept: list[object] = []


def rest_at_fork(each: Forkable) -> None:
    """From now on this rests whenever the process forks, for as long as it lives."""
    _resting.add(each)


def keep_for_ever(inherited: object) -> None:
    """Never end this in the present process: it is its parent's."""
    _kept.append(inherited)


def _before() -> None:
    for each in tuple(_resting):
        each.before_fork()


def _after() -> None:
    for each in tuple(_resting):
        each.after_fork()


def _after_in_child() -> None:
    for each in tuple(_resting):
        each.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
