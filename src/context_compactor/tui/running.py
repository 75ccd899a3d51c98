"""Running the app on this terminal, and leaving it as it was found, whoever ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.tui.surviving import SurvivingApp, write_down

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
_WITHOUT_CURSOR = ("dumb", "unknown")
_LAST_SECONDS, _SAYING_SECONDS = 1.0, 0.5


def check_terminal() -> None:
    """`BadSetting` with what to use instead, where nothing can be drawn."""
    instead = "Try: `compactor sessions` and `compactor show SESSION`"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # what is drawn goes beside the output
        raise BadSetting(f"tui: this is no terminal. {instead}.")
    kind = os.environ.get("TERM", "")
    if kind in _WITHOUT_CURSOR:
        raise BadSetting(f"tui: nothing can be drawn on a terminal with TERM={kind}. {instead}, or another TERM.")
    encoding = sys.stderr.encoding or ""
    if not encoding.lower().replace("-", "").startswith("utf"):
        raise BadSetting(f"tui: this terminal is written to in {encoding}. Try: LANG=C.UTF-8, or PYTHONUTF8=1.")


def run_app(app: SurvivingApp) -> None:
    """Run until it is left. What it could not live with is a `CompactorError`, a signal an exit code above 128."""
    # Work that is asked for in the last moment is never begun, and need not be.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    before = set(threading.enumerate())
    asyncio.run(_run(app))
    _let_go(set(threading.enumerate()) - before, app.return_code or 0)
    if app.ending:
        raise CompactorError(app.ending)
    if app.return_code:
        raise SystemExit(app.return_code)


async def _run(app: SurvivingApp) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_keep)
    for name in _SIGNALS:
        with suppress(AttributeError, NotImplementedError):  # not on every system
            number = getattr(signal, name)
            loop.add_signal_handler(number, app.exit, None, 128 + number)
    await app.run_async()


def _let_go(threads: set[threading.Thread], code: int) -> None:
    """All is closed, and the terminal is as it was. A thread that hears from a silent server is not waited for long:
    the program ends without it, once it has said what it has to say.
    """
    give_up = time.monotonic() + _LAST_SECONDS
    for thread in threads:
        if not thread.daemon:
            thread.join(max(give_up - time.monotonic(), 0))
    if any(thread.is_alive() and not thread.daemon for thread in threads):
        end = threading.Timer(_SAYING_SECONDS, os._exit, (code,))
        end.daemon = True
        end.start()


def _keep(_: asyncio.AbstractEventLoop, told: dict[str, object]) -> None:
    """What some work ended with that nobody waits for any more: not for the screen, but not lost."""
    error = told.get("exception")
    write_down(error if isinstance(error, BaseException) else RuntimeError(str(told.get("message", ""))))
