"""Where `compactor` begins. What an agent waits for is not to wait for a command line it does not use."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_QUICK = ("hook", "statusline")


def main() -> None:
    """Run the command that was asked for and leave with its exit code."""
    name, *rest = sys.argv[1:] or [""]
    if name not in _QUICK or {"-h", "--help"} & set(rest):
        from context_compactor.cli.main import main as run

        run()
    elif name == "hook":
        from context_compactor.agents.hooks.entry import main as answer

        _leave_after(lambda: answer(rest))
    else:
        from context_compactor.agents.statusline import main as show

        _leave_after(show)


def _leave_after(work: Callable[[], int]) -> None:
    """End at once: all is written, and taking an interpreter apart takes as long as the rest of a hook.

    Always with 0, since any other code could stop an agent: Ctrl-C and a reader who is gone are no reason.
    """
    try:
        work()
    except (KeyboardInterrupt, OSError, ValueError, AttributeError):
        os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue  # nobody reads any more
    os._exit(0)
