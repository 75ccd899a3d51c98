"""What a user of Claude Code sees of us, in a terminal in which it really happens; docs/images/agent-*.svg show it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import structs
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tools.agents.claude_code import SESSION, ClaudeCode
from tools.agents.home import Home, new_home
from tools.agents.promises import Promise, record_in
from tools.agents.scripted import Call, Doing, Request, Script, ScriptedModel, Step, scripted
from tools.agents.story import FAILING, LOG, LOST, PROMPT, recalling
from tools.agents.terminal import COLUMNS, SHELL_PROMPT, Terminal, terminal
from tools.picture import WEB_FONTS

_FOLDER = Path("docs/images")
_DONE, _AGAIN, _BACK = (
    "Expired tokens are refused now.",
    "It failed in tests/test_auth.py, line 9.",
    "All is here again.",
)
_RECALLS = (
    'compactor recall --search "assertion" --kind "test run" --limit 1',
    'compactor recall --search "never touch" --limit 1',
)
_PIECE = 55
_READ_LINES = 1_500
_FEW_LINES = 6
_STATUS = re.compile(r"[▓░]{5,}(.*)")
# Few fonts have the first of each.
_GLYPHS = {ord("⎿"): "└", ord("⏵"): "»"}


class _Pictures(dict[str, tuple[str, list[Text]]]):
    """Titles and lines by the names of their files."""

    def save(self) -> None:
        for name, (title, lines) in self.items():
            _save(name, title, lines)


def screens(agent: ClaudeCode, *, draws: bool = False) -> Iterator[Promise]:
    """Install, work, compact, undo, plan, look and recall; `draws` makes a picture of each."""
    pictures = _Pictures()
    with new_home(agent.program) as home, scripted(agent.api, _story(agent, home)) as (address, model):
        agent.prepare(home, address)
        with terminal(home, **agent.env(address)) as shell:
            install, doctor = "compactor install claude-code", "compactor doctor claude-code"
            lines = _lines(home, _run(shell, install, question="Write this?"))
            pictures["install"] = install, _tail(lines)
            yield Promise("an install shows what it writes, and asks", len(lines) > _FEW_LINES, f"{len(lines)} lines")
            yield from _at_work(shell, home, model, pictures)
            pictures["doctor"] = doctor, _lines(home, _run(shell, doctor))
            pictures["recall"] = "compactor recall", _lines(home, _run(shell, *_RECALLS))
    if draws:
        pictures.save()


def _at_work(shell: Terminal, home: Home, model: ScriptedModel, pictures: _Pictures) -> Iterator[Promise]:
    shell.clear()
    shell.enter(f"claude --session-id {SESSION} --permission-mode acceptEdits")
    shell.wait_for("waiting for the first answer")  # our status line: the prompt stands above it
    shell.enter(PROMPT)
    shell.wait_for(_DONE)
    before = model.requests[-1]
    yield _status("the status line speaks the user's words", shell.screen())
    shell.enter("/compact")
    shell.wait_for("compacted just now")
    yield _folded(shell.screen())
    pictures["compaction"] = "claude, right after /compact", _lines(home, shell.painted())
    shell.enter("Which test was it that failed?")
    shell.wait_for(_AGAIN)
    yield _on_record(model)
    yield _status("the status line tells of the compaction", shell.screen())
    yield from _taken_back(shell, home, pictures)
    shell.enter("Is everything there?")
    shell.wait_for(_BACK)
    undone = model.requests[-1]
    back = [label for label in before.results if label in undone.results]
    words = f"{before.tokens:,} tokens before, {undone.tokens:,} now, {len(back)} of {len(before.results)} results"
    yield Promise("after an undo the messages are back", len(back) == len(before.results), words)
    status = _status("the status line after an undo", shell.screen())
    yield structs.replace(status, is_kept=status.is_kept and "undone just now" in status.seen)
    shell.enter("/compactor:plan")
    shell.wait_for("A compaction now")
    plan = _since(_lines(home, shell.painted()), "/compactor:plan")
    pictures["plan"] = "/compactor:plan", plan
    yield Promise("`/compactor:plan` shows what a compaction would do", len(plan) > _FEW_LINES, f"{len(plan)} lines")
    shell.enter("/exit")
    shell.wait_for_end()


def _taken_back(shell: Terminal, home: Home, pictures: _Pictures) -> Iterator[Promise]:
    """`/compactor:undo` fills the prompt, and the user sends it."""
    shell.enter("/compactor:undo")
    shell.wait_for("Press Enter")
    is_filled = shell.screen().count("/compact undo") == 1
    yield Promise("`/compactor:undo` fills the prompt, and asks for one key", is_filled, "/compact undo")
    shell.press("Enter")
    shell.wait_for("waiting for the next answer")
    pictures["undo"] = "claude, /compactor:undo", _since(_lines(home, shell.painted()), "/compactor:undo")


def _folded(screen: str) -> Promise:
    seen = " ".join(screen.split())
    found = re.search(r"Context record of .*? takes it back\.", seen)
    is_kept = found is not None and seen.count("Context record") == 1 and "## Task" not in screen
    return Promise("our record is one line on the screen", is_kept, found[0] if found else screen)


def _on_record(model: ScriptedModel) -> Promise:
    asked = sum(request.lane == "compact" for request in model.requests)
    found = [request for request in model.requests if record_in(request)]
    words = f"{asked} requests for a summary, {len(found)} with our record, the first {_tokens(found)}"
    return Promise("`/compact` puts our record there, without a model", bool(found) and not asked, words)


def _tokens(found: Sequence[Request]) -> str:
    return f"of {found[0].tokens:,} tokens" if found else "is missing"


def _status(what: str, screen: str) -> Promise:
    found = _STATUS.findall(screen)
    words = found[-1].strip() if found else "no status line"
    return Promise(what, bool(found) and "soft" not in words, words)


def _story(agent: ClaudeCode, home: Home) -> Script:
    source = str(home.project / "src/auth/jwt.py")
    edit = {"file_path": source, "old_string": "LEEWAY = 86_400", "new_string": "LEEWAY = 0"}
    read = (agent.shell(f"log-{at}", f"sed -n '{at},{at + _PIECE - 1}p' {LOG}") for at in range(1, _READ_LINES, _PIECE))
    working: list[Call | str] = [
        *read,
        agent.shell("failing", FAILING),
        Call("read", "Read", {"file_path": source}),
        Call("edit", "Edit", edit),
        agent.shell("passing", FAILING),
        _DONE,
        agent.ours("search", "search_archive", {"text": LOST}),
    ]
    main: list[Doing] = [
        *(Step(each, None) for each in working),
        recalling(agent, None),
        Step(_AGAIN, None),
        Step(_BACK, None),
    ]
    return Script(main=main, sub=[], summary="<summary>Nobody should have asked for this.</summary>")


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


def _lines(home: Home, painted: str) -> list[Text]:
    """The lines of a screen, without an empty prompt at its end. A colour goes on until there is another one."""
    lines = list(AnsiDecoder().decode(home.neutral(painted).translate(_GLYPHS)))
    return lines[:-1] if lines[-1].plain.strip() == SHELL_PROMPT else lines


def _since(lines: Sequence[Text], prompt: str) -> list[Text]:
    """What comes behind the last prompt with this text, and the prompt itself."""
    found = [at for at, line in enumerate(lines) if line.plain.strip()[2:] == prompt]
    return list(lines[found[-1] if found else 0 :])


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
