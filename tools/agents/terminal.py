"""A real terminal that is typed into and looked at: tmux, on a socket of its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.agents.home import Home

COLUMNS, ROWS = 98, 40
SHELL_PROMPT = "$"
_LOOK_SECONDS = 0.2
_SETTLE_SECONDS = 1.5
_GIVE_UP_SECONDS = 60.0


class Terminal:
    """A shell in the project of a home."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket)]

    def enter(self, text: str) -> None:
        """Type a line. A program that draws its own prompt needs a moment between the text and the key."""
        self._run("send-keys", "-l", text)
        time.sleep(_SETTLE_SECONDS)
        self._run("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press one key."""
        self._run("send-keys", key)

    def wait_for(self, text: str) -> None:
        """Look until this is on the screen and nothing moves any more."""
        self._wait(lambda screen: text in screen, text)

    def wait_for_end(self) -> None:
        """Look until the shell asks for the next command."""
        self._wait(lambda screen: screen.rstrip().endswith(f"\n{SHELL_PROMPT}"), SHELL_PROMPT)

    def _wait(self, is_there: Callable[[str], bool], what: str) -> None:
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        while not is_there(now := self.screen()) or now != self._later():
            if time.monotonic() > give_up:
                raise RuntimeError(f"{what!r} does not come up on the screen:\n{now}")
            time.sleep(_LOOK_SECONDS)

    def _later(self) -> str:
        time.sleep(_SETTLE_SECONDS)
        return self.screen()

    def clear(self) -> None:
        """Begin with an empty screen, and nothing above it."""
        self.enter("clear")
        time.sleep(_SETTLE_SECONDS)
        self._run("clear-history")

    def screen(self) -> str:
        """What can be seen, without colours."""
        return self._run("capture-pane", "-p")

    def painted(self, *, above: bool = False) -> str:
        """What can be seen, with colours; with `above` also what has left the screen there."""
        return self._run("capture-pane", "-p", "-e", *(("-S", "-") if above else ())).rstrip()

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True).stdout

    def close(self) -> None:
        """End the shell and all that runs in it."""
        self._run("kill-server")


@contextmanager
def terminal(home: Home, **more: str) -> Iterator[Terminal]:
    """A terminal for the length of the block; `more` are environment variables."""
    socket = home.folder / "terminal"
    (home.folder / ".bashrc").write_text(f"PS1='{SHELL_PROMPT} '\n")
    config = home.folder / ".tmux.conf"
    config.write_text("set -g focus-events on\n")  # else Claude Code asks for it
    command = ["tmux", "-S", str(socket), "-f", str(config), "new-session", "-d"]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*command, *size, "bash"], cwd=home.project, env={**home.env, **more}, check=True)
    opened = Terminal(socket)
    try:
        yield opened
    finally:
        opened.close()
