"""Which hooks are registered, where, and what keeps them from running."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from context_compactor.agents.known import CLAUDE_CODE, Agent, Hook
from context_compactor.errors import CompactorError
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok, wrong
from context_compactor.install.doctor_programs import COMMANDS, install_line
from context_compactor.install.doctor_sources import PLUGIN, Registered, Source, hooks_of, sources
from context_compactor.install.doctor_trust import trust
from context_compactor.install.ledger import Ledger
from context_compactor.install.ours import hook_command
from context_compactor.install.planning import plan_install
from context_compactor.install.program import BY_NAME
from context_compactor.install.targets import targets

AREA = "hooks"
# What an agent compares a matcher with: of tools, some of each sort.
_TOOLS = ("Bash", "apply_patch", "mcp__compactor__recall")
_VALUES = {
    "SessionStart": ("compact", "startup", "resume", "clear"),
    "PreCompact": ("auto", "manual"),
    "PostCompact": ("auto", "manual"),
    "PostToolUse": _TOOLS,
    "PostToolUseFailure": _TOOLS,
}


def hooks(case: Case, agent: Agent) -> list[Finding]:
    """All that can be said of an agent's hooks without having seen one run."""
    found = sources(case, agent)
    ours = [hook for hook in hooks_of(found) if hook.is_ours]
    broken = [
        wrong(AREA, f"{agent.title} cannot use {source.path}: {what}", remedy[:1].upper() + remedy[1:])
        for source in found
        if source.problem
        for what, _, remedy in (source.problem.partition(" Try: "),)
    ]
    if not ours:
        return [*broken, *_nothing(case, agent)]
    problems = [*broken, *_off(agent, found), *_missing(case, agent, ours), *_twice(case, agent, ours)]
    if not problems:
        problems = list(_outdated(case, agent, ours))
    return [_registered(agent, ours), *problems, *trust(case, agent, ours)]


def _nothing(case: Case, agent: Agent) -> Iterator[Finding]:
    install = install_line(case, agent, "user")
    if case.is_named:
        yield wrong(AREA, f"nothing is registered with {agent.title}", install)
    elif shutil.which(COMMANDS[agent.name], path=case.env.get("PATH")):
        yield ok(AREA, f"{agent.title} is there, and nothing is registered with it", install)


def _registered(agent: Agent, ours: Sequence[Registered]) -> Finding:
    files = {hook.source.path: hook.source for hook in ours}
    told = (
        f"{len({hook.event for hook in ours if hook.source is source})} of {len(agent.hooks)} hooks in {path} "
        f"({source.scope})"
        for path, source in files.items()
    )
    return ok(AREA, f"{agent.title}: {'; '.join(told)}")


def _off(agent: Agent, found: Sequence[Source]) -> Iterator[Finding]:
    for source in found:
        features = source.values.get("features")
        if agent is CLAUDE_CODE and source.values.get("disableAllHooks") is True:
            name = "disableAllHooks"
        elif agent is not CLAUDE_CODE and isinstance(features, dict) and features.get("hooks") is False:
            name = "features.hooks"
        else:
            continue
        yield wrong(
            AREA, f"all hooks of {agent.title} are switched off: {name} in {source.path}", "Remove that setting"
        )


def _missing(case: Case, agent: Agent, ours: Sequence[Registered]) -> Iterator[Finding]:
    again = install_line(case, agent, ours[0].source.scope)
    gone = [hook.event for hook in agent.hooks if not any(each.event == hook.event for each in ours)]
    if gone:
        yield wrong(AREA, f"{agent.title} is not told to call us for {', '.join(gone)}", again)
    for hook in agent.hooks:
        mine = [each for each in ours if each.event == hook.event]
        left = [value for value in _VALUES.get(hook.event, ()) if not any(each.matches(value) for each in mine)]
        if mine and left:
            matcher = " and ".join(repr(each.matcher) for each in mine)
            what = f"the matcher {matcher} of {hook.event} leaves out {_in_words(hook, left)}"
            yield wrong(AREA, f"{agent.title}: {what}", again)


def _in_words(hook: Hook, left: Sequence[str]) -> str:
    return "some tools" if _VALUES[hook.event] is _TOOLS else ", ".join(left)


def _twice(case: Case, agent: Agent, ours: Sequence[Registered]) -> Iterator[Finding]:
    """Hooks that run more than once for one event. Each would count, and give the model its text again."""
    double: dict[str, list[Registered]] = {}
    for hook in agent.hooks:
        for value in _VALUES.get(hook.event, ("",)):
            matching = [each for each in ours if each.event == hook.event and each.matches(value)]
            if len(matching) > 1:
                double[hook.event] = matching
    if not double:
        return
    places = {each.source.path: each.source for matching in double.values() for each in matching}
    scopes = [source.scope for source in places.values()]
    if len(places) == 1:
        remedy = install_line(case, agent, scopes[0])
    elif PLUGIN in scopes:
        remedy = f"compactor uninstall {agent.name}{' --project' if 'project' in scopes else ''} (the plugin stays)"
    else:
        remedy = f"compactor uninstall {agent.name} --project"
    where = " and ".join(f"{path} ({source.scope})" for path, source in places.items())
    yield wrong(AREA, f"{agent.title} calls us more than once for {', '.join(double)}: {where}", remedy)


def _outdated(case: Case, agent: Agent, ours: Sequence[Registered]) -> Iterator[Finding]:
    """Entries that an install would write in another way by now."""
    for place in (case.user, case.project):
        scope = "project" if place.is_project else "user"
        mine = next((each for each in ours if each.source.scope == scope), None)
        if mine is None:
            continue
        install = install_line(case, agent, scope)
        named = hook_command(mine.entry) or BY_NAME
        command = case.command or named if named == BY_NAME and not place.is_project else named
        try:
            plans = plan_install(agent, targets(agent, place, command), Ledger(case.env))
        except CompactorError as error:
            yield wrong(AREA, f"{agent.title}: {error}", f"Correct it, then {install}")
            continue
        changed = [str(plan.path) for plan in plans if plan.is_changed and any("hooks: " in each for each in plan.was)]
        if changed:
            yield look(AREA, f"{', '.join(changed)} has our hooks in another form than this version writes", install)
