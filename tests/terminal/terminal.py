"""A real terminal that is typed into and looked at: tmux on a socket of its own, with one program in it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tests.installing import program
from tests.waiting import wait_for

COMPACTOR = str(Path(sys.executable).with_name("compactor"))
_PAUSE = 0.1
_KIND = "tmux-256color"
_CONFIG = """\
set -g status off
set -s escape-time 0
set -g history-limit 5000
set -g default-terminal {kind}
"""
# The outer shell says what the program left behind, and then keeps the terminal open.
_SCRIPT = """\
stty -a >{folder}/before
{limits}sh -c 'echo $$ >{folder}/pid; exec "$@"' sh {command} {more}
echo $? >{folder}/code.part
stty -a >{folder}/after
mv {folder}/code.part {folder}/code
exec sleep 1000000
"""
_SCRUBBED = ("NO_COLOR", "COLUMNS", "LINES", "TMUX", "TMUX_PANE", "COLORTERM", "LC_ALL", "LC_CTYPE", "TERM_PROGRAM")


class Left(Struct, frozen=True):
    """How a program was left: its exit code, what stands on the screen, and whether the terminal is as it was."""

    code: int
    screen: str
    is_restored: bool


class Terminal:
    """One program on one terminal. `folder` is for what this needs itself, `place` is where the program runs."""

    def __init__(
        self,
        folder: Path,
        place: Path,
        arguments: Sequence[object],
        *,
        size: tuple[int, int] = (80, 24),
        kind: str = _KIND,
        limits: str = "",
        more: str = "",
        env: Mapping[str, str | None] | None = None,
    ) -> None:
        self._folder = folder
        (folder / "config").write_text(_CONFIG.format(kind=kind))
        command = shlex.join(map(str, arguments))
        limits = f"{limits}; " if limits else ""
        (folder / "script").write_text(_SCRIPT.format(folder=folder, command=command, limits=limits, more=more))
        around = {name: value for name, value in os.environ.items() if name not in _SCRUBBED}
        around |= {"LANG": "C.UTF-8", "HOME": str(folder), "TMUX_TMPDIR": str(folder), **(env or {})}
        self._env = {name: value for name, value in around.items() if value is not None}
        self._tmux = [program("tmux"), "-u", "-L", "tests", "-f", str(folder / "config")]
        width, height = map(str, size)
        shell = f"exec sh {folder / 'script'}"
        self._run("new-session", "-d", "-s", "tests", "-x", width, "-y", height, "-c", str(place), shell)
        self._run("resize-window", "-x", width, "-y", height)

    def _run(self, *arguments: str, given: bytes | None = None) -> str:
        done = subprocess.run([*self._tmux, *arguments], env=self._env, capture_output=True, check=False, input=given)
        assert done.returncode == 0, (arguments[:3], done.stderr)
        return done.stdout.decode("utf-8", "replace")

    def close(self) -> None:
        """End the terminal and all that runs in it."""
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True, check=False)

    # Doing

    def press(self, *keys: str) -> None:
        """Keys as tmux names them: `Enter`, `C-c`, `PageDown`, `q`."""
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        """A text, key by key."""
        self._run("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """A text at once, marked as pasted when the program has asked for that."""
        self._run("load-buffer", "-b", "given", "-", given=text.encode())
        self._run("paste-buffer", "-p", "-r", "-d", "-b", "given")

    def resize(self, width: int, height: int) -> None:
        """Another size."""
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def send(self, number: signal.Signals) -> None:
        """A signal to the program, from outside."""
        os.kill(self.pid, number)

    @property
    def pid(self) -> int:
        """The program's."""
        self._until(lambda: self._read("pid").endswith("\n"), "the program never began")
        return int(self._read("pid"))

    # Looking

    def screen(self) -> str:
        """What can be seen."""
        return self._run("capture-pane", "-p")

    def ask(self, about: str) -> str:
        """What tmux knows of the terminal, in its words for that."""
        return self._run("display-message", "-p", about)

    def painted(self) -> str:
        """What can be seen, with the codes of its colours."""
        return self._run("capture-pane", "-p", "-e")

    def sees(self, *words: str) -> str:
        """Look until all of these are on the screen; what is there then."""
        return self.shows(lambda screen: all(word in screen for word in words), f"never seen together: {words}")

    def misses(self, *words: str) -> str:
        """Look until none of these is on the screen any more."""
        return self.shows(lambda screen: not any(word in screen for word in words), f"always there: {words}")

    def shows(self, is_so: Callable[[str], object], told: str) -> str:
        """Look until the screen is as it should be."""
        seen = ""

        def look() -> object:
            nonlocal seen
            seen = self.screen()
            return is_so(seen)

        self._until(look, told)
        return seen

    def left(self) -> Left:
        """Wait until the program has ended."""
        self._until((self._folder / "code").exists, "it does not end")
        state = self.ask("#{alternate_on} #{cursor_flag} #{mouse_any_flag}")
        is_as_before = self._modes("before") == self._modes("after")
        screen = self._run("capture-pane", "-p", "-S", "-")
        return Left(int(self._read("code")), screen, is_as_before and state.split() == ["0", "1", "0"])

    def _modes(self, name: str) -> str:
        """All that `stty` says but the size, which is ours to change."""
        return self._read(name).partition("columns")[2].partition(";")[2]

    def _read(self, name: str) -> str:
        file = self._folder / name
        return file.read_text() if file.exists() else ""

    def _until(self, is_so: Callable[[], object], told: str) -> None:
        def state() -> str:
            return f"{told}; code {self._read('code')!r}, the screen:\n{self.screen()}"

        def look() -> object:
            has_ended = (self._folder / "code").exists()
            found = is_so()
            assert found or not has_ended, state()
            return found

        wait_for(look, state, pause=_PAUSE)


def left_well(terminal: Terminal, *keys: str) -> None:
    """With these keys it ends as if nothing had been: no error, and no trace of it on the terminal."""
    if keys:
        terminal.press(*keys)
    left = terminal.left()
    assert (left.code, left.screen.strip()) == (0, "")
    assert left.is_restored
