"""Runs the real coding agents against a scripted model, and looks whether each promise is kept there.

`python -m tools.agents.live` is how a new version of an agent is checked, each time in a home of its own:

- story: `compactor install`, tool calls, a sub-agent, a compaction and recall, `compactor doctor` and `uninstall`
- long: Claude Code through 200 tool calls and five compactions with our record, and what the same work costs without us
- broken: our part of Claude Code broken on purpose, so that its own compaction must take over
- screens: Claude Code in a terminal, typed into and looked at (needs tmux)
- proxy: Claude Code and Codex behind `compactor proxy`, also one that is killed, and started by `compactor wrap`
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import structs

from context_compactor.settings import AgentCompaction
from tools.agents.broken import broken
from tools.agents.claude_code import ClaudeCode
from tools.agents.codex import Codex
from tools.agents.home import Home, new_home
from tools.agents.long_session import cost_of, cost_table, long_session, own_session
from tools.agents.opencode import OpenCode
from tools.agents.pi import Pi
from tools.agents.promises import Promise, Seen, extension_promises, promises
from tools.agents.proxied import proxied
from tools.agents.screens import screens
from tools.agents.scripted import ScriptedModel, scripted

Agent = ClaudeCode | Codex | Pi | OpenCode
PARTS = ("story", "long", "broken", "screens", "proxy")
_PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "pi": "@earendil-works/pi-coding-agent",
    "opencode": "opencode-ai",
}
_WAYS: tuple[AgentCompaction, ...] = ("ours", "steered", "beside")
_SHOWN = 2_000


def main() -> int:
    """Check what is found; 1 when a promise is not kept, or when there is nothing to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claude", default="claude", metavar="PATH", help="Claude Code; without, the one on the PATH")
    parser.add_argument("--codex", default="codex", metavar="PATH", help="Codex; without, the one on the PATH")
    parser.add_argument("--pi", default="pi", metavar="PATH", help="pi; without, the one on the PATH")
    parser.add_argument("--opencode", default="opencode", metavar="PATH", help="OpenCode; without, that on the PATH")
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts; may be given again")
    parser.add_argument("--pictures", action="store_true", help="draw docs/images/agent-*.svg from the screens as well")
    given = parser.parse_args()
    programs = {name: path for name in _PACKAGES if (path := _found(name, getattr(given, name)))}
    kept = [
        _report(title, found)
        for part in given.only or PARTS
        for title, found in _checks(part, programs, draws=given.pictures)
    ]
    return 0 if kept and all(kept) else 1


def _found(name: str, given: str) -> Path | None:
    path = shutil.which(given)
    if path is None:
        install = f"npm install --global {_PACKAGES[name]}"
        print(f"{given} is not there, and was not checked. Try: {install}, or {name.upper()}=/its/path make agents")
        return None
    return Path(path).absolute()


def _checks(part: str, programs: Mapping[str, Path], *, draws: bool) -> Iterator[tuple[str, Iterable[Promise]]]:
    """The titles and the promises of one part, for the agents that are there."""
    claude = programs.get("claude")
    if part == "story":
        yield from ((agent.title, _story(agent)) for agent in _agents(programs))
    elif part == "proxy":
        yield from proxied(claude, programs.get("codex"))
    elif claude and part == "long":
        yield "Claude Code, a long session", _long(claude)
    elif claude and part == "broken":
        yield "Claude Code, our part broken on purpose", broken(ClaudeCode(claude))
    elif claude and part == "screens":
        if shutil.which("tmux"):
            yield "Claude Code in a terminal", screens(ClaudeCode(claude), draws=draws)
        else:
            print("tmux is not there, and the screens of Claude Code were not checked")


def _agents(programs: Mapping[str, Path]) -> Iterator[Agent]:
    """The agents that are there, in each of the ways in which they work."""
    for name, program in programs.items():
        match name:
            case "claude":
                yield from (ClaudeCode(program, way) for way in _WAYS)
            case "codex":
                yield from (Codex(program), Codex(program, model="gpt-6-sol", in_scripts=True))
            case "pi":
                yield Pi(program)
            case "opencode":
                yield OpenCode(program)


def _report(title: str, found: Iterable[Promise]) -> bool:
    print(title, flush=True)
    is_kept = True
    for promise in found:
        print(f"  {'ok   ' if promise.is_kept else 'WRONG'}  {promise.what}: {promise.seen}", flush=True)
        is_kept &= promise.is_kept
    return is_kept


def _long(program: Path) -> Iterator[Promise]:
    """The long session, and what it costs beside the same work without us."""
    ours = yield from long_session(ClaudeCode(program))
    beside = ClaudeCode(program, "beside")
    costs = {
        "our record": cost_of(ours),
        "its own summary": cost_of(own_session(beside, installed=False)),
        "its own summary and our brief": cost_of(own_session(beside, installed=True)),
    }
    mine, others = costs["our record"], list(costs.values())[1:]
    is_less = all(mine.dollars < other.dollars and mine.tokens_after < other.tokens_after for other in others)
    yield Promise(
        "our record costs less than the agent's own summary", is_less, f"side by side:\n\n{cost_table(costs)}\n"
    )


def _story(agent: Agent) -> Iterator[Promise]:
    with new_home(agent.program) as home, scripted(agent.api, agent.story) as (address, model):
        version = home.run([agent.program, "--version"]).stdout.strip()
        yield Promise("it starts", bool(version), version)
        for promise in _seen_to_be(agent, home, address, model):
            yield structs.replace(promise, seen=home.neutral(promise.seen))


def _seen_to_be(agent: Agent, home: Home, address: str, model: ScriptedModel) -> Iterator[Promise]:
    agent.prepare(home, address)
    before = _contents(agent, home)
    yield _went_well(home, "install", agent.name, "--yes")
    installed = _contents(agent, home)
    agent.review(home)
    worked = agent.work(home, address)
    lanes = [request.lane for request in model.requests]
    ended = f"{len(lanes)} requests, {lanes.count('sub')} of a sub-agent, {lanes.count('compact')} for a summary"
    yield Promise(
        "the agent works to the end",
        not worked.returncode,
        f"{ended}{worked.stderr[-_SHOWN:] * bool(worked.returncode)}",
    )
    complaints = list(agent.complaints(home, worked.stderr))
    seen = Seen(home, model.requests, agent.logs(home), complaints, agent.shortens, agent.hears_all, agent.compaction)
    yield from extension_promises(seen, agent.summary_request) if agent.has_extension else promises(seen)
    yield _went_well(home, "doctor", agent.name)
    worked_with = _contents(agent, home)
    yield _went_well(home, "uninstall", agent.name, "--yes")
    after = _contents(agent, home)
    for path, content in after.items():
        yield _is_as_before(path, before[path], content, is_ours=installed[path] == worked_with[path])


def _went_well(home: Home, *arguments: str) -> Promise:
    ran = home.compactor(*arguments)
    lines = ran.stdout.strip().splitlines() or [""]
    output = lines[-1] if not ran.returncode else f"left with {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return Promise(f"`compactor {' '.join(arguments)}` is content", not ran.returncode, output[:_SHOWN])


def _contents(agent: Agent, home: Home) -> dict[Path, bytes | None]:
    return {path: _content(path) for path in agent.settings(home)}


def _content(path: Path) -> bytes | None:
    """What a file holds, or all files of a folder; None when it is not there."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        return b"".join(f"{each}\n".encode() + each.read_bytes() for each in files)
    return path.read_bytes() if path.exists() else None


def _is_as_before(path: Path, before: bytes | None, after: bytes | None, *, is_ours: bool) -> Promise:
    """Nothing of ours is left, and where only we have written it is what it was, byte for byte."""
    if before == after:
        return Promise(f"{path.name} is what it was", True, "gone, as before" if after is None else "byte for byte")
    left = b"compactor" in _without_statistics(after or b"")
    found = "something of ours is left" if left else "nothing of ours is left"
    who = "only we have" if is_ours else "the agent has"
    return Promise(f"{path.name} has nothing of ours", not left and not is_ours, f"{found}, and {who} written there")


def _without_statistics(content: bytes) -> bytes:
    """What Claude Code has written about itself, without how often it has seen a plugin."""
    try:
        known = json.loads(content)
    except ValueError:
        return content
    return json.dumps({key: value for key, value in known.items() if key not in ("pluginUsage", "skillUsage")}).encode()


if __name__ == "__main__":
    sys.exit(main())
