"""A notice on the desktop or the terminal after a compaction, for who has set `notify_on_compact`.

It never blocks and never fails a compaction. A server, a worker and a CI job give none: nobody sits there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from shutil import which
from threading import Thread
from typing import TextIO

from context_compactor.messages.printing import one_line
from context_compactor.report import Report

_TITLE = "Context Compactor"
_WIDTH = 160
_SECONDS = 10
_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
# Terminals that show a notice for OSC 9, and those that do for OSC 777. The others get a bell.
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "kitty")
_OSC_777 = ("rxvt", "foot")


def notify(report: Report) -> None:
    """Tell whoever sits at this machine that a context was compacted, where that can be told."""
    if not report.changed or os.environ.get("CI"):
        return
    text = one_line(
        f"{report.session_id}: {report.tokens_before:,} → {report.tokens_after:,} tokens, "
        f"{report.reduction_percent:g} % less",
        _WIDTH,
    )
    try:
        command = desktop_command(text, os.environ)
        if command:
            _start(command)
        elif sys.stderr is not None and sys.stderr.isatty():
            ring(text, sys.stderr, os.environ)
    except (OSError, ValueError):  # a closed terminal, no room for a process: the compaction stands all the same
        return


def desktop_command(text: str, environ: Mapping[str, str]) -> list[str]:
    """The command that shows a notice on the desktop; empty where there is none."""
    if sys.platform == "darwin":
        program = which("osascript", path=environ.get("PATH"))
        script = [part for line in _APPLE for part in ("-e", line)]
        return [program, *script, _TITLE, text] if program and not environ.get("SSH_CONNECTION") else []
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        return []
    program = which("notify-send", path=environ.get("PATH"))
    return [program, "--app-name", _TITLE, "--", _TITLE, text] if program else []


def ring(text: str, terminal: TextIO, environ: Mapping[str, str]) -> None:
    """A notice of the terminal itself, or its bell. A terminal inside another one is only rung."""
    terminal.write(_sequence(text, environ))
    terminal.flush()


def _sequence(text: str, environ: Mapping[str, str]) -> str:
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if environ.get("TMUX") or term.startswith(("screen", "tmux")):
        return "\a"
    if program in _OSC_9 or "kitty" in term:
        return f"\x1b]9;{_TITLE}: {text}\a"
    if environ.get("VTE_VERSION") or term.startswith(_OSC_777):
        return f"\x1b]777;notify;{_TITLE};{text.replace(';', ',')}\a"
    return "\a"


def _start(command: list[str]) -> None:
    """Start a program and do not wait for it; a thread does, so that nothing of it is left behind."""
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    Thread(target=_reap, args=(program,), name="notice", daemon=True).start()


def _reap(program: subprocess.Popen[bytes]) -> None:
    try:
        program.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
