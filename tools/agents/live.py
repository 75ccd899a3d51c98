"""Runs the real coding agents against a scripted model, and looks whether each promise is kept there.

`python -m tools.agents.live` is how a new version of an agent is checked: `compactor install`, one story through
tool calls, a sub-agent, a compaction and recall, `compactor doctor`, `compactor uninstall`; all in a home of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.agents.claude_code import ClaudeCode
from tools.agents.codex import Codex
from tools.agents.home import Home, new_home
from tools.agents.opencode import OpenCode
from tools.agents.pi import Pi
from tools.agents.promises import Promise, Seen, extension_promises, promises
from tools.agents.scripted import ScriptedModel, scripted
from tools.agents.story import main_story

Agent = ClaudeCode | Codex | Pi | OpenCode
_SHOWN = 2_000


def main() -> int:
    """Check what is found; 1 when a promise is not kept, or when there is nothing to check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claude", default="claude", metavar="PATH", help="Claude Code; without, the one on the PATH")
    parser.add_argument("--codex", default="codex", metavar="PATH", help="Codex; without, the one on the PATH")
    parser.add_argument("--pi", default="pi", metavar="PATH", help="pi; without, the one on the PATH")
    parser.add_argument("--opencode", default="opencode", metavar="PATH", help="OpenCode; without, that on the PATH")
    parser.add_argument("--pictures", action="store_true", help="draw docs/images/agent-*.svg as well (needs tmux)")
    given = parser.parse_args()
    claude, codex, pi, opencode = map(_found, (given.claude, given.codex, given.pi, given.opencode))
    agents: list[Agent] = [ClaudeCode(claude)] if claude else []
    agents += [Codex(codex), Codex(codex, model="gpt-6-sol", in_scripts=True)] if codex else []
    agents += [Pi(pi)] if pi else []
    agents += [OpenCode(opencode)] if opencode else []
    kept = [_check(agent) for agent in agents]
    if given.pictures and claude:
        from tools.agents.pictures import draw

        draw(ClaudeCode(claude))
    return 0 if kept and all(kept) else 1


def _found(name: str) -> Path | None:
    path = shutil.which(name)
    if path is None:
        print(f"{name} is not there, and was not checked")
        return None
    return Path(path).absolute()


def _check(agent: Agent) -> bool:
    is_kept = True
    with new_home(agent.program) as home, scripted(agent.api, main_story(agent)) as (address, model):
        version = home.run([agent.program, "--version"]).stdout.strip()
        print(f"{agent.title} ({version})")
        for promise in _seen_to_be(agent, home, address, model):
            print(f"  {'ok   ' if promise.is_kept else 'WRONG'}  {promise.what}: {home.neutral(promise.seen)}")
            is_kept &= promise.is_kept
    return is_kept


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
    seen = Seen(home, model.requests, agent.logs(home), complaints, agent.shortens, agent.hears_all)
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
    return {path: path.read_bytes() if path.exists() else None for path in agent.settings(home)}


def _is_as_before(path: Path, before: bytes | None, after: bytes | None, *, is_ours: bool) -> Promise:
    """Nothing of ours is left, and where only we have written it is what it was, byte for byte."""
    if before == after:
        return Promise(f"{path.name} is what it was", True, "gone, as before" if after is None else "byte for byte")
    left = b"compactor" in (after or b"")
    found = "something of ours is left" if left else "nothing of ours is left"
    who = "only we have" if is_ours else "the agent has"
    return Promise(f"{path.name} has nothing of ours", not left and not is_ours, f"{found}, and {who} written there")


if __name__ == "__main__":
    sys.exit(main())
