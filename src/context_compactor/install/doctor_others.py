"""Who else touches the context: other hooks, other programs of this kind, and the agent's own compaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_compactor.agents.known import CLAUDE_CODE, Agent
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok
from context_compactor.install.doctor_sources import Registered, Source, hooks_of, sources
from context_compactor.install.jsonspots import value_at
from context_compactor.install.program import BY_NAME
from context_compactor.install.targets import peek, targets
from context_compactor.messages.printing import one_line

AREA = "others"
# Programs that shorten or rewrite an agent's context too, by words in what is run.
_KNOWN = (
    "claude-mem",
    "context-mode",
    "magic-context",
    "dynamic-context-pruning",
    "headroom",
    "lossless-claw",
    "supermemory",
)
_AROUND = {"PreCompact": ("auto", "manual"), "PostCompact": ("auto", "manual"), "SessionStart": ("compact",)}
_ONE_OWNER = "Let one of them look after a session: switch one off"
_FALSE = ("", "0", "false", "no", "off")


def others(case: Case, agent: Agent) -> Iterator[Finding]:
    """What else takes part in the compactions of an agent."""
    found = sources(case, agent)
    hooks = hooks_of(found)
    if not any(hook.is_ours for hook in hooks):
        return
    foreign = [hook for hook in hooks if not hook.is_ours]
    for name, where in _rivals(foreign, found).items():
        yield look(AREA, f"{name} works on the context of {agent.title} too ({where})", _ONE_OWNER)
    around = [hook for hook in foreign if _known(hook.command) is None and _is_around(hook)]
    for hook in around:
        told = f"{agent.title} also calls `{one_line(hook.command, 100)}` for {hook.event} ({hook.source.path})"
        yield look(AREA, told, "See that it does not compact or add to the context as well; else switch one off")
    beside = [hook for hook in foreign if hook.event == "PostToolUse" and _known(hook.command) is None]
    if beside:
        names = ", ".join(f"`{one_line(hook.command, 60)}`" for hook in beside[:3])
        yield ok(AREA, f"{agent.title} also calls {names} after tools; that does no harm unless it replaces outputs")
    yield _own_compaction(case, agent, found)


def _rivals(foreign: list[Registered], found: list[Source]) -> dict[str, str]:
    """Programs of this kind by name, and where each is named."""
    named = {name: f"{hook.event} in {hook.source.path}" for hook in foreign if (name := _known(hook.command))}
    for source in found:
        plugins = source.values.get("enabledPlugins")
        for plugin, is_on in plugins.items() if isinstance(plugins, dict) else ():
            if is_on is not False and (name := _known(plugin)):
                named.setdefault(name, f"plugin {plugin} in {source.path}")
    return named


def _known(command: str) -> str | None:
    return next((name for name in _KNOWN if name in command.lower()), None)


def _is_around(hook: Registered) -> bool:
    return any(hook.matches(value) for value in _AROUND.get(hook.event, ()))


def _own_compaction(case: Case, agent: Agent, found: list[Source]) -> Finding:
    off = _switched_off(case, found) if agent is CLAUDE_CODE else ""
    if off:
        told = f"{agent.title} does not compact by itself ({off}): a session ends when its window is full"
        return look(AREA, told, "Remove that, or use /compact in time; the status line shows how full it is")
    limit = next(
        (source.values[name] for source in found if (name := "model_auto_compact_token_limit") in source.values), None
    )
    when = f" above {limit:,} tokens" if isinstance(limit, int) else ""
    return ok(
        AREA, f"{agent.title} compacts by itself{when}; we archive before and brief afterwards, and never beside it"
    )


def _switched_off(case: Case, found: list[Source]) -> str:
    """What keeps Claude Code from compacting by itself."""
    state = targets(CLAUDE_CODE, case.user, BY_NAME)[1].path
    for name in ("DISABLE_AUTO_COMPACT", "DISABLE_COMPACT"):
        if _is_set(case.env, name):
            return f"{name} in the environment"
        for source in found:
            if _is_set(source.values.get("env"), name):
                return f"{name} in {source.path}"
    if value_at(peek(state), ("autoCompactEnabled",)) is False:
        return f"autoCompactEnabled in {state}"
    return next(
        (f"autoCompactEnabled in {each.path}" for each in found if each.values.get("autoCompactEnabled") is False), ""
    )


def _is_set(env: Any, name: str) -> bool:
    return isinstance(env, Mapping) and str(env.get(name, "")).lower() not in _FALSE
