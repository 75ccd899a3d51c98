"""Draws docs/images/agent-*.svg: what a user of Claude Code sees of us, from a terminal in which it really happened."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tools.agents.claude_code import SESSION, ClaudeCode
from tools.agents.home import Home, new_home
from tools.agents.scripted import Call, Script, Step, scripted
from tools.agents.story import FAILING, LOST, PROMPT, recalling
from tools.agents.terminal import COLUMNS, SHELL_PROMPT, Terminal, terminal
from tools.picture import WEB_FONTS

_FOLDER = Path("docs/images")
_SUMMARY = "The login in src/auth/jwt.py accepted tokens for a day too long. LEEWAY is 0 there now, and the tests pass."
_DONE, _AGAIN = "Expired tokens are refused now.", "It failed in tests/test_auth.py, line 9."
_RECALLS = (
    'compactor recall --search "assertion" --kind "test run" --limit 1',
    'compactor recall --search "never touch" --limit 1',
)
# Few fonts have the first.
_GLYPHS = {ord("⎿"): "└"}


def draw(agent: ClaudeCode) -> None:
    """Install, work, compact, look and recall, with a picture of each."""
    with new_home(agent.program) as home, scripted(agent.api, _story(agent, home)) as (address, _):
        agent.prepare(home, address)
        with terminal(home, **agent.env(address)) as shell:
            install, doctor = "compactor install claude-code", "compactor doctor claude-code"
            _save("install", install, _tail(_lines(home, _run(shell, install, question="Write this?"))))
            _save("compaction", "claude, right after /compact", _lines(home, _compacted(shell)))
            _save("doctor", doctor, _lines(home, _run(shell, doctor)))
            _save("recall", "compactor recall", _lines(home, _run(shell, *_RECALLS)))


def _story(agent: ClaudeCode, home: Home) -> Script:
    source = str(home.project / "src/auth/jwt.py")
    edit = {"file_path": source, "old_string": "LEEWAY = 86_400", "new_string": "LEEWAY = 0"}
    return Script(
        main=[
            Step(agent.shell("failing", FAILING), 61_000),
            Step(Call("read", "Read", {"file_path": source}), 62_000),
            Step(Call("edit", "Edit", edit), 63_000),
            Step(agent.shell("passing", FAILING), 64_000),
            Step(_DONE, 118_000),
            Step(agent.ours("search", "search_archive", {"text": LOST}), 21_000),
            recalling(agent),
            Step(_AGAIN, 24_000),
        ],
        sub=[],
        summary=f"<analysis>short</analysis><summary>{_SUMMARY}</summary>",
    )


def _run(shell: Terminal, *commands: str, question: str = "") -> str:
    """What commands show, with yes to their question."""
    shell.clear()
    for command in commands:
        shell.enter(command)
        if question:
            shell.wait_for(question)
            shell.enter("y")
        shell.wait_for_end()
    return shell.painted(above=True)


def _compacted(shell: Terminal) -> str:
    """Claude Code right after `/compact`; then it works on, so that there is something to look at."""
    shell.clear()
    shell.enter(f"claude --session-id {SESSION}")
    shell.wait_for("waiting for the first answer")  # our status line: the prompt stands above it
    shell.enter(PROMPT)
    shell.wait_for(_DONE)
    shell.enter("/compact")
    shell.wait_for("says: compactor")
    seen = shell.painted()
    shell.enter("Which test was it that failed?")
    shell.wait_for(_AGAIN)
    shell.enter("/exit")
    shell.wait_for_end()
    return seen


def _lines(home: Home, painted: str) -> list[Text]:
    """The lines of a screen, without an empty prompt at its end. A colour goes on until there is another one."""
    lines = list(AnsiDecoder().decode(home.neutral(painted).translate(_GLYPHS)))
    return lines[:-1] if lines[-1].plain.strip() == SHELL_PROMPT else lines


def _tail(lines: Sequence[Text]) -> list[Text]:
    """The command, the changes of the last file, and what comes behind."""
    files = [at for at, line in enumerate(lines) if line.plain.startswith("--- ")]
    return [lines[0], Text("⋮"), *lines[files[-1] :]]


def _save(name: str, title: str, lines: Sequence[Text]) -> None:
    out = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False, markup=False)
    for line in (*lines, Text()):  # the last one is cut a little below
        out.print(line, no_wrap=True, overflow="ignore", crop=False)
    path = _FOLDER / f"agent-{name}.svg"
    svg = out.export_svg(title=title, theme=MONOKAI, unique_id=name)
    path.write_text(WEB_FONTS.sub("", svg), encoding="utf-8")
    print(f"wrote {path}")
