"""`compactor doctor`: runs every check and returns one list of findings; nothing is changed by looking."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from msgspec import structs

from context_compactor.agents.coding_agents import AGENTS, CodingAgent
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.commands import Command
from context_compactor.agents.install.doctor_activity import briefs, firing, hook_log
from context_compactor.agents.install.doctor_compaction import compaction
from context_compactor.agents.install.doctor_findings import DoctorContext, Finding, look, ok, our_hooks_of, wrong
from context_compactor.agents.install.doctor_hooks import hooks, others, programs, trust
from context_compactor.agents.install.doctor_servers import servers, status_line
from context_compactor.agents.install.doctor_store import store
from context_compactor.agents.project import known_session_rows, refuse_foreign_store
from context_compactor.errors import BadSetting, CompactorError, UnknownSession
from context_compactor.settings import LoadedSettings, load_settings
from context_compactor.tokens.models import TABLE_DATE


def _first_steps(ctx: DoctorContext) -> Iterator[Finding]:
    if not ctx.is_named and not any(our_hooks_of(ctx, agent) for agent in ctx.agents):
        choice = " or ".join(f"compactor install {agent.name}" for agent in ctx.agents)
        yield look("nothing is registered with any coding agent yet", choice)


def _model_table(ctx: DoctorContext) -> Iterator[Finding]:
    """How old the table of windows and prices is."""
    days = (datetime.fromtimestamp(ctx.now, UTC).date() - date.fromisoformat(TABLE_DATE)).days
    what = f"windows and prices of models are as of {TABLE_DATE}"
    if days <= _TABLE_DAYS:
        yield ok(what)
    else:
        yield look(f"{what}, {days:,} days ago", "Upgrade, or correct single models with the setting `models`")


_TABLE_DAYS = 180
Check = Callable[[DoctorContext], Iterable[Finding]]
AgentCheck = Callable[[DoctorContext, CodingAgent], Iterable[Finding]]
# Each with the area of its findings; those that explain others come first.
_FIRST: tuple[tuple[str, Check], ...] = (("hooks", _first_steps), ("versions", programs), ("models", _model_table))
_BY_AGENT: tuple[tuple[str, AgentCheck], ...] = (
    ("hooks", hooks),
    ("trust", trust),
    ("firing", firing),
    ("brief", briefs),
    ("mcp", servers),
    ("status line", status_line),
    ("others", others),
    ("compaction", compaction),
)
_LAST: tuple[tuple[str, Check], ...] = (("store", store), ("hook log", hook_log))


def examine(
    root: Path, env: Mapping[str, str], agent: CodingAgent | None = None, session: str = "", command: Command = ()
) -> list[Finding]:
    """All findings for a project, which must be the working folder. `command` is what runs this program."""
    loaded, found = _settings(root, env)
    rows, problems = _rows(root, session)
    agents = (agent,) if agent else tuple(AGENTS.values())
    ctx = DoctorContext(
        env=env,
        root=root,
        agents=agents,
        is_named=agent is not None,
        settings=loaded.settings if loaded else None,
        rows=rows,
        command=command,
        now=time.time(),
    )
    checks = [
        *((area, partial(check, ctx)) for area, check in _FIRST),
        *((area, partial(check, ctx, each)) for each in agents for area, check in _BY_AGENT),
        *((area, partial(check, ctx)) for area, check in _LAST),
    ]
    return [*found, *problems, *(finding for area, check in checks for finding in _run_check(area, check))]


def _settings(root: Path, env: Mapping[str, str]) -> tuple[LoadedSettings | None, list[Finding]]:
    file = root / ".compactor" / "config.toml"
    try:
        loaded = load_settings(env=env, config_path=file if file.is_file() else None)
        refuse_foreign_store(str(root), loaded)
    except BadSetting as error:
        problem = wrong(f"every hook fails because of this: {error}", "Correct it; compactor config", "settings")
        return None, [problem]
    found = []
    if not loaded.settings.enabled:
        origin = loaded.origins["enabled"]
        found.append(wrong(f"everything is switched off: enabled = false ({origin})", "Set it to true", "settings"))
    for name in loaded.ignored:
        found.append(look(f"{name} names no setting and is ignored", "compactor config", "settings"))
    return loaded, found


def _rows(root: Path, session: str) -> tuple[list[AgentSessionRow], list[Finding]]:
    """What hooks know of sessions; with a name, of this one alone."""
    try:
        rows = known_session_rows(str(root))
    except sqlite3.DatabaseError as error:
        file = root / ".compactor" / "agents.db"
        remedy = f"Remove {file}: hooks start counting again, and no conversation is in it"
        return [], [wrong(f"{file} cannot be read: {error}", remedy, "firing")]
    if not session:
        return rows, []
    chosen = [row for row in rows if session in (row.key, row.session)]
    if not chosen:
        known = ", ".join(row.key for row in rows[:3] if "/" not in row.key) or "none yet"
        raise UnknownSession(f"the hooks have not seen a session {session!r:.80} in {root}. Try: one of: {known}.")
    return chosen, []


def _run_check(area: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of one check. What cannot be read is a finding too, so that the other checks still run."""
    try:
        found = list(check())
    except (OSError, sqlite3.DatabaseError, CompactorError) as error:
        found = [wrong(f"this check failed: {error}", "Give yourself permission to read it, then run the doctor again")]
    except Exception as error:  # noqa: BLE001  the other checks are to run all the same
        found = [wrong(f"this check failed: {type(error).__name__}: {error}", "Report it")]
    return [each if each.area else structs.replace(each, area=area) for each in found]
