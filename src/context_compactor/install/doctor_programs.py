"""Which programs are there: this one, those that settings call, and the agents."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from context_compactor import __version__
from context_compactor.agents.known import Agent
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok, wrong
from context_compactor.install.doctor_sources import Registered, hooks_of, sources
from context_compactor.install.program import NAME, is_fleeting

AREA = "versions"
COMMANDS = {"claude-code": "claude", "codex": "codex"}
_SECONDS = 10.0
_LONGEST = 80


def programs(case: Case) -> Iterator[Finding]:
    """Versions of everything that has to work together."""
    yield ok(AREA, f"compactor {__version__} on Python {platform.python_version()} ({case.program or 'no script'})")
    for agent in case.agents:
        ours = [hook for hook in hooks_of(sources(case, agent)) if hook.is_ours]
        if ours or case.is_named:
            yield _agent(case, agent)
        by_program = {(program_of(hook.command), hook.source.scope): hook for hook in ours}
        for (program, _), hook in by_program.items():
            yield from _called(case, agent, program, hook)


def program_of(command: str) -> str:
    """The program in the command of one of our hooks."""
    return next((word for word in shlex.split(command) if Path(word).name == NAME), NAME)


def find_program(case: Case, program: str) -> str | None:
    """Where a program is that settings name, if it can be run."""
    return shutil.which(program, path=case.env.get("PATH"))


def may_run(case: Case, program: str, scope: str) -> bool:
    """Whether to run a program that settings name. Those of a project may come from anybody."""
    found = find_program(case, program)
    known = {os.path.realpath(each) for each in (case.program, find_program(case, NAME)) if each}
    return found is not None and (scope in ("user", "local") or os.path.realpath(found) in known)


def version_of(program: str, env: Mapping[str, str]) -> str:
    """What a program says for `--version`, on one line; nothing when it says nothing in time."""
    try:
        ran = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=dict(env),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = ran.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:_LONGEST] if lines and ran.returncode == 0 else ""


def _agent(case: Case, agent: Agent) -> Finding:
    name = COMMANDS[agent.name]
    found = shutil.which(name, path=case.env.get("PATH"))
    if found is None:
        return look(AREA, f"`{name}` is not found on the PATH", f"Install {agent.title}, or add its folder to the PATH")
    version = version_of(found, case.env)
    if not version:
        return look(AREA, f"{found} does not tell its version", f"Run `{name} --version` and see what it says")
    return ok(AREA, f"{agent.title}: {version} ({found})")


def _called(case: Case, agent: Agent, program: str, hook: Registered) -> Iterator[Finding]:
    """The program that an agent is told to run."""
    where = f"{agent.title} calls {program} ({hook.source.scope})"
    again = f"compactor install {agent.name}{' --project' if hook.source.scope == 'project' else ''}"
    found = find_program(case, program)
    if found is None:
        yield _not_there(program, where, again)
    elif os.path.realpath(found) == os.path.realpath(case.program):
        if is_fleeting(found) and program != NAME:
            yield look(AREA, f"{where}, which may be gone tomorrow", f"Install the package for good, then {again}")
        else:
            yield ok(AREA, f"{where}, which is this program")
    elif not may_run(case, program, hook.source.scope):
        yield look(AREA, f"{where}, which is another program than this one", f"Look whose it is, or {again}")
    else:
        yield _other_version(found, where, again, case)


def _not_there(program: str, where: str, again: str) -> Finding:
    if program == NAME:
        return wrong(AREA, f"{where}, which is not on the PATH", "Add its folder to the PATH")
    if Path(program).exists():
        return wrong(AREA, f"{where}, which cannot be run", f"chmod +x {shlex.quote(program)}, or {again}")
    return wrong(AREA, f"{where}, which is not there", again)


def _other_version(found: str, where: str, again: str, case: Case) -> Finding:
    version = version_of(found, case.env)
    if not version:
        return wrong(AREA, f"{where}, which does not run", again)
    if version != f"{NAME} {__version__}":
        return look(AREA, f"{where}, which is {version}; this is {__version__}", f"Update one of them, then {again}")
    return ok(AREA, f"{where}, of the same version as this one")
