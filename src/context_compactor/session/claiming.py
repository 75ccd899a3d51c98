"""Work that is done by one alone: a line in the session's state says who is at it, in whichever process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs

from context_compactor.session.core import Core
from context_compactor.session.holding import is_alive, new_name
from context_compactor.session.values import Claim, State, read_state

# A claim of another machine is believed for as long as a call may take, and a little longer.
_GRACE_SECONDS = 60.0


@contextmanager
def claimed(core: Core) -> Iterator[bool]:
    """One at a time for a session, in all processes: whether it is ours now."""
    name = new_name()
    core.change(lambda state: _claim(core, state, name))
    is_ours = read_state(core.row().state).ahead_by.holder == name

    def release() -> None:
        core.change(lambda state: _released(state, name))

    with core.running.or_at_close(release):
        try:
            yield is_ours
        finally:
            if is_ours and not core.running.is_closed:
                release()


def _claim(core: Core, state: State, name: str) -> State:
    claim, now = state.ahead_by, core.seconds()
    believed = core.settings.deadline_seconds + _GRACE_SECONDS
    is_taken = claim.holder and now - claim.since < believed and is_alive(claim.holder, now - claim.since, believed)
    return state if is_taken else structs.replace(state, ahead_by=Claim(name, now))


def _released(state: State, name: str) -> State:
    return structs.replace(state, ahead_by=Claim()) if state.ahead_by.holder == name else state
