"""Which processes have a session open, and claims on work that only one of them may do."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from msgspec import structs

from context_compactor.errors import UnknownSession
from context_compactor.protocols import Store
from context_compactor.sessions.core import Core
from context_compactor.sessions.state import SessionState, WorkClaim, read_session_state

# What another machine has noted cannot be checked from here; after a day it is no longer trusted.
_TRUSTED_SECONDS = 24 * 60 * 60


def hold(core: Core) -> str:
    """Note that this process has the session open, under a name that is returned. Dead processes are removed."""
    core.row()  # which must be there
    for holder, since in core.store.holders(core.id).items():
        if not is_alive(holder, core.seconds() - datetime.fromisoformat(since).timestamp()):
            core.store.release(core.id, holder)
    holder = process_name()
    core.store.hold(core.id, holder, core.now())
    return holder


def process_name() -> str:
    """A unique name that shows which process has it."""
    return f"{socket.gethostname()}:{os.getpid()}:{_process_started(os.getpid())}:{secrets.token_hex(4)}"


def release(core: Core, holder: str) -> None:
    """Note that it is closed, unless it is the parent of this process that has it open."""
    if _pid(holder) == os.getpid():
        with suppress(UnknownSession):  # it was deleted, and its holders with it
            core.store.release(core.id, holder)


def other_holders(store: Store, now: datetime, own: str = "") -> list[tuple[str, str, str]]:
    """Other holders in this store that are alive as far as is known here: session, holder, since when."""
    known = store.open_sessions()
    ages = {since: (now - datetime.fromisoformat(since)).total_seconds() for _, _, since in known}
    return [each for each in known if each[1] != own and is_alive(each[1], ages[each[2]])]


def _pid(holder: str) -> int:
    return int(holder.rsplit(":", 3)[1])


def is_alive(holder: str, age: float, trusted: float = _TRUSTED_SECONDS) -> bool:
    """Whether who bears this name is still there; on another machine that is assumed for so many seconds."""
    host, pid, started, _ = holder.rsplit(":", 3)
    if host != socket.gethostname():
        return age < trusted
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and somebody else's
    return started == _process_started(int(pid))


def _process_started(pid: int) -> str:
    """When a process began, in the system's own units, so that another one of the same number is not taken for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


# A claim of another machine is trusted for as long as a call may take, and a little longer.
_GRACE_SECONDS = 60.0


@contextmanager
def exclusive_claim(core: Core) -> Iterator[bool]:
    """One at a time for a session, in all processes: whether it is ours now."""
    name = process_name()
    core.change(lambda state: _claim(core, state, name))
    is_ours = read_session_state(core.row().state).presummary_claim.holder == name

    def release() -> None:
        core.change(released)

    def released(state: SessionState) -> SessionState:
        is_held = state.presummary_claim.holder == name
        return structs.replace(state, presummary_claim=WorkClaim()) if is_held else state

    with core.running.or_at_close(release):
        try:
            yield is_ours
        finally:
            if is_ours and not core.running.is_closed:
                release()


def _claim(core: Core, state: SessionState, name: str) -> SessionState:
    claim, now = state.presummary_claim, core.seconds()
    trusted = core.settings.deadline_seconds + _GRACE_SECONDS
    is_taken = claim.holder and now - claim.since < trusted and is_alive(claim.holder, now - claim.since, trusted)
    return state if is_taken else structs.replace(state, presummary_claim=WorkClaim(name, now))
