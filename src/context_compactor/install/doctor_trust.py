"""Whether an agent runs our hooks at all: Codex skips those nobody has reviewed, and says nothing about it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from context_compactor.agents.known import Agent, Hook
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok, wrong
from context_compactor.install.doctor_sources import Registered
from context_compactor.install.jsonspots import value_at
from context_compactor.install.program import BY_NAME
from context_compactor.install.targets import peek, peek_toml, targets

AREA = "trust"
_REVIEW = "Start `codex` in a terminal and choose “Trust all and continue”, or type /hooks there, then t"
# Codex does not look at the matcher of these, and gives this one no more seconds.
_UNMATCHED = frozenset({"UserPromptSubmit", "Stop"})
_MOST_SECONDS = {"SessionEnd": 3}
_DEFAULT_SECONDS = 600


def trust(case: Case, agent: Agent, ours: Sequence[Registered]) -> list[Finding]:
    """Whether the user has agreed to what an agent would run."""
    return list(_codex(case, agent, ours) if agent.needs_trust else _claude_code(case, agent))


def _claude_code(case: Case, agent: Agent) -> Iterator[Finding]:
    """Claude Code asks once for each folder, and runs nothing before it is answered."""
    state = targets(agent, case.user, BY_NAME)[1].path
    if value_at(peek(state), ("projects", str(case.root), "hasTrustDialogAccepted")) is False:
        yield look(
            AREA,
            f"{agent.title} has not been told to trust {case.root}, and runs no hooks there until then",
            "Start `claude` there and answer its question",
        )


def _codex(case: Case, agent: Agent, ours: Sequence[Registered]) -> Iterator[Finding]:
    config = peek_toml(case.user.codex_folder / "config.toml")
    yield from _project(case, agent, config, ours)
    states = _table(config, "hooks", "state")
    known = {hook.event: hook for hook in agent.hooks}
    new, changed, off = [], [], []
    for each in ours:
        if each.event not in known:
            continue
        state = _state(states, each, known[each.event])
        if state.get("enabled") is False:
            off.append(each.event)
        elif "trusted_hash" not in state:
            new.append(each.event)
        elif state["trusted_hash"] != trusted_hash(each, known[each.event]):
            changed.append(each.event)
    skips = f"{agent.title} skips them without a word"
    if new:
        which = f"any of our {len(new)} hooks" if len(new) == len(ours) else f"our hooks for {', '.join(new)}"
        yield wrong(AREA, f"nobody has reviewed {which}: {skips}", _REVIEW)
    if changed:
        yield wrong(AREA, f"our hooks for {', '.join(changed)} have changed since they were reviewed: {skips}", _REVIEW)
    if off:
        yield wrong(AREA, f"our hooks for {', '.join(off)} are switched off in {agent.title}", "Type /hooks in codex")
    if not (new or changed or off):
        yield ok(AREA, f"{agent.title}: all {len(ours)} hooks are reviewed")


def trusted_hash(hook: Registered, known: Hook) -> str:
    """What Codex writes down when a hook is reviewed: a hash of everything in it that counts."""
    entry, most = hook.entry, _MOST_SECONDS.get(hook.event)
    told: dict[str, Any] = {
        "async": entry.get("async") is True,
        "command": hook.command,
        "timeout": min(_seconds(entry.get("timeout")), most or _seconds(entry.get("timeout"))),
        "type": "command",
    }
    if isinstance(entry.get("statusMessage"), str):
        told["statusMessage"] = entry["statusMessage"]
    group: dict[str, Any] = {"event_name": _snake(known), "hooks": [told]}
    if hook.matcher and hook.event not in _UNMATCHED:
        group["matcher"] = hook.matcher
    text = json.dumps(group, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _project(case: Case, agent: Agent, config: dict[str, Any], ours: Sequence[Registered]) -> Iterator[Finding]:
    if not any(hook.source.scope == "project" for hook in ours):
        return
    level = _table(config, "projects", str(case.root)).get("trust_level")
    if level == "trusted":
        return
    what = "does not trust" if level == "untrusted" else "has not been told to trust"
    found = wrong if level == "untrusted" else look
    told = f"{agent.title} {what} {case.root}, so it does not read {case.root / '.codex'}"
    yield found(AREA, told, "Start `codex` there and trust the folder")


def _state(states: dict[str, Any], hook: Registered, known: Hook) -> dict[str, Any]:
    path = hook.source.path
    for name in (str(path), os.path.realpath(path)):
        found = states.get(f"{name}:{_snake(known)}:{hook.number}:{hook.place}")
        if isinstance(found, dict):
            return found
    return {}


def _table(values: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        found = values.get(name)
        values = found if isinstance(found, dict) else {}
    return values


def _seconds(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() else _DEFAULT_SECONDS


def _snake(known: Hook) -> str:
    return known.word.replace("-", "_")
