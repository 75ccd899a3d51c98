"""`compactor doctor`: runs every check and returns one list of findings; nothing is changed by looking."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from context_compactor.agents.coding_agents import AGENTS, CodingAgent
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.commands import Command
from context_compactor.agents.install.doctor_activity import briefs, firing, hook_log
from context_compactor.agents.install.doctor_findings import DoctorContext, Finding, hooks_of, look, sources, wrong
from context_compactor.agents.install.doctor_hooks import hooks, others, programs
from context_compactor.agents.install.doctor_servers import servers, status_line
from context_compactor.agents.install.doctor_store import store
from context_compactor.agents.project import known_session_rows, refuse_foreign_store
from context_compactor.errors import BadSetting, CompactorError, UnknownSession
from context_compactor.settings import LoadedSettings, load_settings

_BY_AGENT: tuple[Callable[[DoctorContext, CodingAgent], Iterator[Finding] | list[Finding]], ...] = (
    hooks,
    firing,
    briefs,
    servers,
    status_line,
    others,
)
_LAST: tuple[Callable[[DoctorContext], Iterator[Finding]], ...] = (store, hook_log)


def _first_steps(case: DoctorContext) -> Iterator[Finding]:
    """How to begin, when nothing is registered anywhere."""
    if case.is_named or any(hook.is_ours for agent in case.agents for hook in hooks_of(sources(case, agent))):
        return
    choice = " or ".join(f"compactor install {agent.name}" for agent in case.agents)
    yield look("hooks", "nothing is registered with any coding agent yet", choice)


_FIRST: tuple[Callable[[DoctorContext], Iterator[Finding]], ...] = (_first_steps, programs)


def examine(
    root: Path, env: Mapping[str, str], agent: CodingAgent | None = None, session: str = "", command: Command = ()
) -> list[Finding]:
    """All findings for a project, which must be the working folder; those that explain others come first.

    `command` is what runs this program.
    """
    loaded, found = _settings(root, env)
    rows, problems = _rows(root, session)
    agents = (agent,) if agent else tuple(AGENTS.values())
    case = DoctorContext(
        env=env,
        root=root,
        agents=agents,
        is_named=agent is not None,
        settings=loaded.settings if loaded else None,
        rows=rows,
        command=command,
        now=time.time(),
    )
    found += problems
    for part in _FIRST:
        found += _run_check("hooks", partial(part, case))
    for each in agents:
        for check in _BY_AGENT:
            found += _run_check(check.__name__.replace("_", " "), partial(check, case, each))
    for part in _LAST:
        found += _run_check(part.__name__, partial(part, case))
    return found


def _settings(root: Path, env: Mapping[str, str]) -> tuple[LoadedSettings | None, list[Finding]]:
    file = root / ".compactor" / "config.toml"
    try:
        loaded = load_settings(env=env, config_path=file if file.is_file() else None)
        refuse_foreign_store(str(root), loaded)
    except BadSetting as error:
        return None, [wrong("settings", f"every hook fails because of this: {error}", "Correct it; compactor config")]
    found = []
    if not loaded.settings.enabled:
        origin = loaded.origins["enabled"]
        found.append(wrong("settings", f"everything is switched off: enabled = false ({origin})", "Set it to true"))
    found += [
        look("settings", f"{name} names no setting and is ignored", "compactor config") for name in loaded.ignored
    ]
    return loaded, found


def _rows(root: Path, session: str) -> tuple[list[AgentSessionRow], list[Finding]]:
    """What hooks know of sessions; with a name, of this one alone."""
    try:
        rows = known_session_rows(str(root))
    except sqlite3.DatabaseError as error:
        file = root / ".compactor" / "agents.db"
        remedy = f"Remove {file}: hooks count anew, and no conversation is in it"
        return [], [wrong("firing", f"{file} cannot be read: {error}", remedy)]
    if not session:
        return rows, []
    chosen = [row for row in rows if session in (row.key, row.session)]
    if not chosen:
        known = ", ".join(row.key for row in rows[:3] if "/" not in row.key) or "none yet"
        raise UnknownSession(f"the hooks have not seen a session {session!r:.80} in {root}. Try: one of: {known}.")
    return chosen, []


def _run_check(area: str, check: Callable[[], Iterator[Finding] | list[Finding]]) -> list[Finding]:
    """The findings of one check. What cannot be read is a finding, and no reason to be silent about the rest."""
    try:
        return list(check())
    except (OSError, sqlite3.DatabaseError, CompactorError) as error:
        return [wrong(area, f"this could not be looked at: {error}", "Give yourself the right to read it, then again")]
    except Exception as error:  # noqa: BLE001  the rest is to be looked at all the same
        return [wrong(area, f"this could not be looked at: {type(error).__name__}: {error}", "Report it")]
