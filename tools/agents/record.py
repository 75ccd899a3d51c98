"""Records what the real coding agents write to the standard input of their hooks, for tests/hooks/recorded.

`python -m tools.agents.record` runs the agents of this machine against a scripted model, with a hook for every event
that only keeps what it is told. Each event and case is kept once; the folders of this machine become `$HOME` and
`$PROJECT`. Cases that no scene here reaches stay as they are in the files.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools.agents.claude_code import SESSION, ClaudeCode
from tools.agents.codex import Codex
from tools.agents.home import Home, new_home
from tools.agents.scripted import Api, Call, Script, Step, scripted
from tools.agents.story import FAILING, PROMPT, REPORT, SUMMARY, TASK
from tools.agents.terminal import terminal

_FOLDER = Path("tests/hooks/recorded")
_EVENTS = {
    "claude-code": "SessionStart UserPromptSubmit PreToolUse PostToolUse PostToolUseFailure PostToolBatch PreCompact "
    "PostCompact SubagentStart SubagentStop Stop SessionEnd",
    "codex": "SessionStart UserPromptSubmit PreToolUse PostToolUse PreCompact PostCompact SubagentStart SubagentStop "
    "Stop SessionEnd PreModelRequest PostModelRequest",
}
_CASE_FIELDS = ("tool_name", "source", "trigger", "reason")
_FEW, _MANY = 20_000, 190_000
_LOG_FOLDER = re.compile(r"(/projects/)-[^/\"]+")
_TEMPORARY = re.compile(r"/tmp/[^\s\"']*")
_PROMPT_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
# The name of the first agent in Codex, which looks like a folder of this machine.
_FIRST_AGENT = "/".join(("", "root", ""))
_PLUGIN = """\
export function register(on) {
  on("session.compact", {}, async ($, e) =>
    e.trigger === "precompute" ? { skip: "no" } : { messages: [{ role: "user", text: "A digest.", toolUses: [] }] })
}
"""

Cases = dict[str, dict[str, Any]]
Scene = Callable[[Home, str], None]


def main() -> None:
    """Record what is found, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claude", default="claude", metavar="PATH", help="Claude Code; without, the one on the PATH")
    parser.add_argument("--codex", default="codex", metavar="PATH", help="Codex; without, the one on the PATH")
    given = parser.parse_args()
    claude, codex = shutil.which(given.claude), shutil.which(given.codex)
    if claude:
        _write("claude-code", _claude_cases(ClaudeCode(Path(claude).absolute())))
    if codex:
        _write("codex", _codex_cases(Path(codex).absolute()))


def _write(agent: str, cases: Cases) -> None:
    path = _FOLDER / f"{agent}.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    merged = dict(sorted((known | cases).items()))
    path.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{path}: {len(cases)} cases recorded, {len(merged) - len(cases)} left as they were")


def _claude_cases(agent: ClaudeCode) -> Cases:
    def prompt(home: Home, address: str, *arguments: str | Path) -> None:
        home.run([agent.program, *arguments], **agent.env(address)).check_returncode()

    def at_work(home: Home, address: str) -> None:
        prompt(home, address, "-p", PROMPT, "--session-id", SESSION)
        prompt(home, address, "-p", "/compact", "--resume", SESSION)
        prompt(home, address, "-p", "Go on.", "--resume", SESSION)

    def with_instructions(home: Home, address: str) -> None:
        prompt(home, address, "-p", PROMPT, "--session-id", SESSION)
        prompt(home, address, "-p", "/compact keep the tests", "--resume", SESSION)

    def alone(home: Home, address: str) -> None:
        prompt(home, address, "-p", PROMPT, "--session-id", SESSION)

    def by_plugin(home: Home, address: str) -> None:
        folder = home.folder / "plugin"
        for name, text in {
            ".claude-plugin/plugin.json": '{"name": "other", "version": "1.0.0", "description": "compacts"}',
            "hooks/hooks.json": '{"modules": ["./register.js"]}',
            "hooks/register.js": _PLUGIN,
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        prompt(home, address, "-p", PROMPT, "--session-id", SESSION, "--plugin-dir", folder)

    def in_terminal(home: Home, address: str) -> None:
        with terminal(home, **agent.env(address)) as shell:
            shell.enter(f"claude --session-id {SESSION}")
            shell.wait_for(_PROMPT_SIGN)
            shell.enter(PROMPT)
            shell.wait_for("Done with it.")
            shell.enter("/compact")
            shell.wait_for("Compacted")
            shell.enter("/clear")
            shell.wait_for(_PROMPT_SIGN)
            shell.enter("/exit")
            shell.wait_for_end()

    def script(*steps: Step, sub: tuple[Step, ...] = ()) -> Script:
        done = (Step("Done with it.", _FEW), Step("All done.", _FEW))
        return Script([*steps, *done], list(sub), f"<analysis>short</analysis><summary>{SUMMARY}</summary>")

    source = "src/auth/jwt.py"
    edit = {"file_path": source, "old_string": "LEEWAY = 86_400", "new_string": "LEEWAY = 0"}
    tools = (
        Step(agent.shell("failing", FAILING), _FEW),
        Step(agent.shell("passing", "ls src"), _FEW),
        Step(Call("read", "Read", {"file_path": source}), _FEW),
        Step(Call("missing", "Read", {"file_path": "gone.py"}), _FEW),
        Step(Call("edit", "Edit", edit), _FEW),
        Step(Call("write", "Write", {"file_path": "notes.md", "content": "Mended.\n"}), _FEW),
        Step(agent.ours("recall", "recall", {"id": "tool_001"}), _FEW),
        Step(agent.shell("filling", "cat src/auth/jwt.py"), _MANY),
    )
    delegating = tuple(Step(call, _FEW) for call in agent.delegate(TASK) if isinstance(call, Call))
    waiting = Step(agent.shell("waiting", "sleep 2"), _FEW)
    working = (Step(agent.shell("callers", "grep -rl is_valid src tests")), Step(REPORT))
    filling = (Step(agent.shell("full", "ls"), _MANY), Step(agent.shell("after", "ls src")), Step(REPORT))
    scenes: dict[str, tuple[Script, Scene]] = {
        "": (script(*tools), at_work),
        "with-instructions": (script(), with_instructions),
        "with-background-agent": (script(*delegating, waiting, sub=working), alone),
        "compaction-inside-subagent": (script(*delegating, waiting, sub=filling), alone),
        "by-plugin": (script(Step(agent.shell("filling", "ls"), _MANY)), by_plugin),
        "tui": (script(), in_terminal),
    }
    found: Cases = {}
    for name, (story, scene) in scenes.items():
        found = _recorded(agent, agent.api, story, scene, name) | found
    return found


def _codex_cases(program: Path) -> Cases:
    direct, scripts = Codex(program), Codex(program, model="gpt-6-sol", in_scripts=True)

    def at_work(home: Home, address: str) -> None:
        direct.work(home, address).check_returncode()
        home.run([program, "exec", "resume", "--last", "Go on."]).check_returncode()

    def alone(home: Home, address: str) -> None:
        scripts.work(home, address).check_returncode()

    def in_terminal(home: Home, address: str) -> None:  # noqa: ARG001
        with terminal(home) as shell:
            shell.enter(f"codex -C {home.project}")
            shell.wait_for("? for shortcuts")
            shell.enter(PROMPT)
            shell.wait_for("Done with it.")
            shell.enter("/compact")
            shell.wait_for("compacted")
            shell.enter("/quit")
            shell.wait_for_end()

    def script(agent: Codex, *steps: Step) -> Script:
        first = Step(agent.shell("failing", FAILING), _FEW)
        done = (Step("Done with it.", _FEW), Step("All done.", _FEW))
        return Script([first, *steps, *done], [Step(agent.shell("callers", "ls src")), Step(REPORT)], SUMMARY)

    recall: dict[str, Any] = {"tool": "recall", "arguments": {"id": "tool_001"}}
    found: Cases = {}
    for name, agent, scene in (("", direct, at_work), ("codemode", scripts, alone), ("tui", scripts, in_terminal)):
        steps = [Step(agent.ours("recall", **recall), _FEW), *(Step(call, _FEW) for call in agent.delegate(TASK))]
        story = script(agent, *steps, Step(agent.shell("filling", "ls src"), _MANY)) if name != "tui" else script(agent)
        found = _recorded(agent, agent.api, story, scene, name) | found
    return found


def _recorded(agent: ClaudeCode | Codex, api: Api, script: Script, scene: Scene, name: str) -> Cases:
    with new_home(agent.program) as home, scripted(api, script) as (address, _):
        agent.prepare(home, address)
        path = agent.settings(home)[0]
        before = json.loads(path.read_text()) if path.exists() else {}
        home.compactor("install", agent.name, "--yes").check_returncode()  # for the tools of our MCP server
        kept = _only_recording(agent, home, before)
        (home.project / ".compactor").mkdir(exist_ok=True)
        (home.project / ".compactor" / "config.toml").write_text('agent_compaction = "beside"\n')
        agent.review(home)
        scene(home, address)
        return {_case(said, name): said for said in reversed(list(_neutral(home, kept)))}


def _only_recording(agent: ClaudeCode | Codex, home: Home, settings: dict[str, Any]) -> Path:
    """Put hooks that keep their input in the place of all that is ours; the folder they keep it in."""
    kept = home.folder / "kept"
    kept.mkdir()
    keep = {"type": "command", "command": f"sh -c 'cat > {kept}/$(date +%s%N)-$$.json'"}
    hooks = {"hooks": {event: [{"hooks": [keep]}] for event in _EVENTS[agent.name].split()}}
    line = {"statusLine": keep} if agent.name == "claude-code" else {}
    agent.settings(home)[0].write_text(json.dumps(settings | hooks | line, indent=2))
    return kept


def _neutral(home: Home, kept: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(kept.iterdir()):
        text = file.read_text().replace(str(home.project), "$PROJECT").replace(str(home.folder), "$HOME")
        text = text.replace(_FIRST_AGENT, "/first/")
        text = _TEMPORARY.sub("$HOME/tmp", _LOG_FOLDER.sub(r"\1-project", home.neutral(text)))
        if text.strip():
            yield json.loads(text)


def _case(said: dict[str, Any], scene: str) -> str:
    """What a call is called: its event, what is special about it, and the scene."""
    event = str(said.get("hook_event_name", "statusline"))
    parts = [event, *(str(said[field]) for field in _CASE_FIELDS if said.get(field))]
    if event == "statusline":
        parts.append("after-answer" if said.get("prompt_id") else "fresh")
    elif said.get("agent_type") == "":
        parts.append("of-the-compaction-fork")
    elif said.get("agent_id") and not event.startswith("Subagent"):
        parts.append("in-agent" if "turn_id" not in said else "in-subagent")
    return "-".join(filter(None, (*parts, scene if event != "statusline" else "")))


if __name__ == "__main__":
    main()
