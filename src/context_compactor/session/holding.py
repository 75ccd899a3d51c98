"""Who has a session open: noted when it is opened, taken back when it is closed."""

from __future__ import annotations

import os
import secrets
import socket

from context_compactor.session.core import Core


def hold(core: Core) -> str:
    """Note that this process has the session open; the name under which it is noted."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    core.store.hold(core.id, holder, core.now())
    return holder


def release(core: Core, holder: str) -> None:
    """Note that it is closed, unless it is the parent of this process that has it open."""
    if holder.rsplit(":", 2)[1] == str(os.getpid()):
        core.store.release(core.id, holder)


def others(core: Core, own: str) -> dict[str, str]:
    """Other processes that have the session open and, as far as can be told from here, are alive."""
    return {name: since for name, since in core.store.holders(core.id).items() if name != own and _is_alive(name)}


def _is_alive(holder: str) -> bool:
    host, pid, _ = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
