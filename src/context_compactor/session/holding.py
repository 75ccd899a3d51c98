"""Who has a session open: noted when it first writes, taken back when it is closed."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from context_compactor.errors import UnknownSession
from context_compactor.protocols import Store
from context_compactor.session.core import Core

# What another machine has noted cannot be checked from here; after a day it is no longer believed.
_BELIEVED_SECONDS = 24 * 60 * 60


def hold(core: Core) -> str:
    """Note that this process has the session open; the name under which it is noted. The dead are struck out."""
    core.row()  # which must be there
    for holder, since in core.store.holders(core.id).items():
        if not is_alive(holder, core.seconds() - datetime.fromisoformat(since).timestamp()):
            core.store.release(core.id, holder)
    holder = new_name()
    core.store.hold(core.id, holder, core.now())
    return holder


def new_name() -> str:
    """A name of its own that tells which process bears it."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}:{secrets.token_hex(4)}"


def release(core: Core, holder: str) -> None:
    """Note that it is closed, unless it is the parent of this process that has it open."""
    if _pid(holder) == os.getpid():
        with suppress(UnknownSession):  # it was deleted, and its holders with it
            core.store.release(core.id, holder)


def others(store: Store, now: datetime, own: str = "") -> list[tuple[str, str, str]]:
    """Other holders in this store that are alive as far as can be told from here: session, holder, since when."""
    known = store.open_sessions()
    ages = {since: (now - datetime.fromisoformat(since)).total_seconds() for _, _, since in known}
    return [each for each in known if each[1] != own and is_alive(each[1], ages[each[2]])]


def _pid(holder: str) -> int:
    return int(holder.rsplit(":", 3)[1])


def is_alive(holder: str, age: float, believed: float = _BELIEVED_SECONDS) -> bool:
    """Whether who bears this name is still there; on another machine that is believed for so many seconds."""
    host, pid, started, _ = holder.rsplit(":", 3)
    if host != socket.gethostname():
        return age < believed
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is there, and somebody else's
    return started == _started(int(pid))


def _started(pid: int) -> str:
    """When a process began, in the system's own units, so that another one of the same number is not taken for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
