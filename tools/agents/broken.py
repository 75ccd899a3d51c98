"""Our part in Claude Code broken on purpose, in many ways: each time its own compaction must take over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from context_compactor.agents.hook_log import read_hook_log
from tools.agents.claude_code import SESSION, ClaudeCode
from tools.agents.home import Home, new_home
from tools.agents.promises import Promise, record_in
from tools.agents.scripted import Script, ScriptedModel, Step, scripted
from tools.agents.story import LOG, PROMPT, SUMMARY

_DONE = "The leeway of a day is why expired tokens are taken."
_SHOWN = 300
_COMMAND = re.compile(r"^export const COMMAND = .*$", re.MULTILINE)
# A finding of doctor, with the lines that go on with it.
_TOLD = re.compile(r"^(?:wrong|look) .*?(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
_FEW, _MANY = 20_000, 190_000


class Way(Struct, frozen=True):
    """A way of being broken, and what is done to a home for it."""

    what: str
    do: Callable[[Home], None]


def _instead(script: str) -> Callable[[Home], None]:
    """Another program in the place of ours, which the module starts."""

    def do(home: Home) -> None:
        program = home.folder / "instead"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        _start(home, program)

    return do


def _changed(old: str, new: str) -> Callable[[Home], None]:
    """Another line in the module."""

    def do(home: Home) -> None:
        module = _hooks(home) / "register.js"
        text = module.read_text()
        assert old in text, f"{old!r} is no longer in the module"
        module.write_text(text.replace(old, new, 1))

    return do


def _both(*each: Callable[[Home], None]) -> Callable[[Home], None]:
    def do(home: Home) -> None:
        for one in each:
            one(home)

    return do


def _not_there(home: Home) -> None:
    _start(home, home.folder / "nowhere" / "compactor")


def _start(home: Home, program: Path) -> None:
    """Let the module start this program; the rest of its files is as an install has written it."""
    file = _hooks(home) / "command.js"
    file.write_text(_COMMAND.sub(f"export const COMMAND = {json.dumps([str(program)])}", file.read_text()))


def _no_store(home: Home) -> None:
    """Where the store shall be is something else."""
    store = home.project / ".compactor" / "compactor.db"
    store.mkdir(parents=True)


def _hooks(home: Home) -> Path:
    return home.folder / ".claude" / "skills" / "compactor" / "hooks"


_COMPACTS = "on('session.compact', async ($, e, next) => {\n"
WAYS = (
    Way("the command is not there", _not_there),
    Way("the command leaves with 1", _instead("exit 1")),
    Way("the command prints nothing", _instead("exit 0")),
    Way("the command prints no JSON", _instead("echo it works")),
    Way("the command prints an empty record", _instead('echo \'{"record": " "}\'')),
    Way("the command prints a record that is no text", _instead('echo \'{"record": ["one"]}\'')),
    Way("the command hangs", _both(_instead("sleep 20"), _changed("COMPACT_MS = 20000", "COMPACT_MS = 500"))),
    Way("the module throws", _changed(_COMPACTS, f"{_COMPACTS}throw new Error('broken on purpose')\n")),
    Way("the module cannot be read", _changed("export function register", "export function function register")),
    Way("the store cannot be opened", _no_store),
    Way("the disk is full", _instead('ulimit -f 0; exec compactor "$@"')),
)


def broken(agent: ClaudeCode) -> Iterator[Promise]:
    """Each way, in a home of its own."""
    for way in WAYS:
        with new_home(agent.program) as home, scripted(agent.api, _story(agent)) as (address, model):
            agent.prepare(home, address)
            home.compactor("install", agent.name, "--yes")
            agent.review(home)
            way.do(home)
            ran = agent.ask(home, address, PROMPT, "--session-id", SESSION)
            is_over = not ran.returncode and _DONE in ran.stdout
            yield Promise(f"{way.what}: the agent compacts by itself", is_over and _took_over(model), _asked(model))
            reason = _reason(home)
            yield Promise(f"{way.what}: the hook log or doctor says so", bool(reason), reason or "nothing")


def _took_over(model: ScriptedModel) -> bool:
    """One summary was asked for, it stands in the next request, and no record of ours."""
    lanes = [request.lane for request in model.requests]
    after = model.requests[lanes.index("compact") + 1 :] if lanes.count("compact") == 1 else []
    return bool(after) and any(SUMMARY in text for text in after[0].texts) and not record_in(after[0])


def _asked(model: ScriptedModel) -> str:
    return f"{sum(request.lane == 'compact' for request in model.requests)} summary"


def _reason(home: Home) -> str:
    """Why our record was not there, as the hook log has it, else as doctor does."""
    lines = [line for line in read_hook_log(str(home.project)) if line["event"] == "compact"]
    reasons = [str(line.get("reason") or line.get("error") or line["what"]) for line in lines]
    doctor = home.compactor("doctor", "claude-code").stdout
    found = reasons or [" ".join(finding.split()) for finding in _TOLD.findall(doctor)]
    return home.neutral(found[-1][:_SHOWN]) if found else ""


def _story(agent: ClaudeCode) -> Script:
    read = [agent.shell(f"log-{at}", f"sed -n '{at},{at + 50}p' {LOG}") for at in range(1, 600, 50)]
    return Script(
        main=[
            *(Step(call, _FEW) for call in read),
            Step(agent.shell("source", "cat src/auth/jwt.py"), _MANY),
            Step(agent.shell("again", "cat src/auth/jwt.py"), _FEW),
            Step(_DONE, _FEW),
        ],
        sub=[],
        summary=f"<analysis>short</analysis><summary>{SUMMARY}</summary>",
    )
