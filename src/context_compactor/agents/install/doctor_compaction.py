"""Doctor checks: who compacts in an agent, and whether our plugin inside Claude Code is loaded and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_compactor.agents.coding_agents import CLAUDE_CODE, CODEX, CodingAgent
from context_compactor.agents.compaction_trace import timestamp_seconds
from context_compactor.agents.hook_log import NO_ANSWER, read_hook_log
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.install.commands import BY_NAME
from context_compactor.agents.install.doctor_findings import (
    DoctorContext,
    Finding,
    SettingsSource,
    look,
    moment,
    ok,
    our_hooks_of,
    sources,
)
from context_compactor.agents.install.doctor_hooks import find_command, install_line, version_of
from context_compactor.agents.install.settings_files import has_our_prompt
from context_compactor.agents.install.targets import InstallScope, has_plugin, mod_folder, read_json_or_empty, targets
from context_compactor.agents.install.text_edits import value_at
from context_compactor.agents.steering import effective_compaction
from context_compactor.settings import Settings

_FALSE = ("", "0", "false", "no", "off")
_FIRST_WITH_MODS = (2, 1, 287)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def compaction(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Who compacts, and what has come of our plugin."""
    if not our_hooks_of(ctx, agent):
        return
    found = sources(ctx, agent)
    if agent.extension:
        yield from _extension(ctx, agent)
        return
    if agent is CLAUDE_CODE:
        yield from _plugin(ctx, agent)
    yield _own_compaction(ctx, agent, found)


_WAYS = {
    "ours": "our record stands for its summary",
    "steered": "its own model writes the summary, as we ask for it",
    "beside": "it compacts by itself, and everything is archived afterwards",
}


def _extension(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Who compacts in an agent with an extension of ours, and what became of the last compaction."""
    way = (ctx.settings or Settings()).agent_compaction
    yield ok(f'{agent.title}: agent_compaction is "{way}": {_WAYS[way]}')
    keys = {row.key for row in ctx.rows if row.agent == agent.name}
    asked = [line for line in read_hook_log(str(ctx.root)) if line.get("event") == "compact"]
    lines = [line for line in asked if line.get("key") in keys]
    if not lines:
        yield ok(f"{agent.title} has not asked for a compaction in {ctx.root} yet")
        return
    last = lines[-1]
    at = moment(timestamp_seconds(last.get("time")))
    when = f"{agent.title} asked {len(lines):,}× for a compaction, last at {at}"
    if last.get("what") == "passed" and way == "ours":
        yield look(f"{when}, and had to compact by itself: {last.get('reason')}", "Correct that reason")
    else:
        yield ok(f"{when}: {last.get('what')}")


def _plugin(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Whether the plugin is there, was loaded by the session used last, and what it has answered."""
    places = [str(mod_folder(scope)) for scope in (ctx.user, ctx.project) if _has_module(scope)]
    places += [f"{scope.name} settings" for scope in (ctx.user, ctx.project) if has_plugin(scope)]
    if not places:
        yield look(f"the plugin that compacts inside {agent.title} is not there", install_line(ctx, agent, "user"))
        return
    if len(places) > 1:
        yield look(f"the plugin is there twice ({', '.join(places)})", "Remove one: compactor uninstall claude-code")
    rows = ctx.rows_of(agent)
    if not rows:
        yield ok(f"the plugin that compacts is in {places[0]}; no session has loaded it yet")
    elif not rows[0].has_plugin:
        yield _not_loaded(ctx, agent, places[0])
    else:
        yield _answers(ctx, rows[0], places[0])


def _has_module(scope: InstallScope) -> bool:
    return (mod_folder(scope) / "hooks" / "register.js").is_file()


def _not_loaded(ctx: DoctorContext, agent: CodingAgent, place: str) -> Finding:
    what = f"the plugin in {place} was not loaded by the session used last, so {agent.title} compacts by itself"
    program = find_command(ctx, ("claude",))
    version = _VERSION.search(version_of(program, ctx.env)) if program else None
    if version and tuple(map(int, version.groups())) < _FIRST_WITH_MODS:
        least = ".".join(map(str, _FIRST_WITH_MODS))
        return ok(f"{what}: version {version[0]} cannot load it", f"Update {agent.title} to {least} or later")
    remedy = f"Start {agent.title} again, without --safe-mode or --bare; `claude --debug` says what became of it"
    return look(what, remedy)


def _answers(ctx: DoctorContext, row: AgentSessionRow, place: str) -> Finding:
    known = ("record given", "passed", NO_ANSWER)
    log = read_hook_log(str(ctx.root))
    lines = [line for line in log if line.get("event") == "compact" and line.get("what") in known]
    given = [line for line in lines if line.get("what") == "record given"]
    left = [line for line in lines if line.get("what") != "record given"]
    missed = f"; the last it did not give, because {left[-1].get('reason')}" if left else ""
    counted = f"has given {len(given):,} of {len(lines):,} records{missed}"
    what = f"the plugin in {place} is loaded and {counted if lines else 'has not been asked for a compaction yet'}"
    if left and lines[-1] is left[-1] and row.compaction == "ours":
        return look(what, "Correct that; until then the agent's own summary and our brief take over")
    return ok(what)


def _own_compaction(ctx: DoctorContext, agent: CodingAgent, found: list[SettingsSource]) -> Finding:
    off = _switched_off(ctx, found) if agent is CLAUDE_CODE else ""
    if off:
        what = f"{agent.title} does not compact by itself ({off}): a session ends when its window is full"
        return look(what, "Remove that, or use /compact in time; the status line shows how full it is")
    limit = next(
        (source.values[name] for source in found if (name := "model_auto_compact_token_limit") in source.values), None
    )
    when = f" above {limit:,} tokens" if isinstance(limit, int) else ""
    settings = ctx.settings or Settings()
    replaces = any(row.has_plugin for row in ctx.rows_of(agent)[:1])
    steers = bool(agent.max_request_chars) or any(has_our_prompt(source.values) for source in found)
    now = effective_compaction(agent, settings, replaces=replaces, steers=steers)
    if now.way == "ours":
        return ok(f"{agent.title} goes on with our record{when} instead of a summary of its own")
    how = " in our format" if now.way == "steered" else ""
    why = f" (agent_compaction is {settings.agent_compaction!r}: {now.reason})" if now.reason else ""
    if now.way == "steered" and agent is CODEX:
        why = " (compaction by OpenAI's own servers ignores our request)"
    return ok(
        f"{agent.title} compacts by itself{how}{when}; we archive before it and give the model a brief afterwards{why}"
    )


def _switched_off(ctx: DoctorContext, found: list[SettingsSource]) -> str:
    state = targets(CLAUDE_CODE, ctx.user, BY_NAME)[1].path
    for name in ("DISABLE_AUTO_COMPACT", "DISABLE_COMPACT"):
        if _is_set(ctx.env, name):
            return f"{name} in the environment"
        for source in found:
            if _is_set(source.values.get("env"), name):
                return f"{name} in {source.path}"
    if value_at(read_json_or_empty(state), ("autoCompactEnabled",)) is False:
        return f"autoCompactEnabled in {state}"
    return next(
        (f"autoCompactEnabled in {each.path}" for each in found if each.values.get("autoCompactEnabled") is False), ""
    )


def _is_set(env: Any, name: str) -> bool:
    return isinstance(env, Mapping) and str(env.get(name, "")).lower() not in _FALSE
