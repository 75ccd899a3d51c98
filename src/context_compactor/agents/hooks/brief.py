"""The brief an agent gets after a compaction, and its redelivery when the agent went on without it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import structs

from context_compactor.agents.coding_agents import CodingAgent
from context_compactor.agents.compaction_trace import brief_arrival, read_compaction_trace, timestamp_seconds
from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.hooks.call import HookAnswer, HookCall, set_thresholds
from context_compactor.agents.paths import settings_fingerprint
from context_compactor.agents.sync import hook_state_of, synced_session, update_hook_state
from context_compactor.facts.lesson_folders import load_lessons, owner_folder
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.sessions import checkpoints
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts, parsed_context
from context_compactor.sessions.handoff import orchestrator
from context_compactor.sessions.project import local_owner, project_of

# Of what an agent takes, so much is left free.
_SPARE = 200
_SIZES = (2_600, 2_200, 1_800, 1_400, 1_000, 700, 400)
_LEARNED_TOKENS = 600
_MARKER_PREFIX = "compactor-brief"


def brief_marker(core: Core, why: str) -> str:
    """A word by which a brief is found again in the agent's log."""
    text = f"{core.id}\n{core.now()}\n{why}"
    return f"{_MARKER_PREFIX}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def brief_text(core: Core, agent: CodingAgent, mark: str) -> str:
    """What must not be forgotten, the most important first, and how everything else comes back."""
    facts = all_facts(core)
    checkpoint = structs.replace(
        checkpoints.current_checkpoint(core), archive=()
    )  # all of it is archived, so a list says nothing
    tail = _closing(core, agent, mark)
    room = agent.max_hook_bytes - _SPARE - _size(tail) - 2
    material = material_of(parsed_context(core), facts)
    text = ""
    for tokens in _SIZES:
        text = resume_brief(checkpoint, facts, tokens, material)
        if _size(text) <= room:
            break
    return f"{_cut(text, room)}\n\n{tail}"


def _closing(core: Core, agent: CodingAgent, mark: str) -> str:
    running = [agent.line for agent in orchestrator(core).subagents.running]
    lines = "".join(f"\n- {line}" for line in running[:5])
    children = (
        f"Sub-agents that were running when the window was compacted, not to be started again:{lines}\n"
        if lines
        else ""
    )
    return (
        f"{children}This record is kept by Context Compactor beside your own summary; where they differ, it has the "
        'exact words. Nothing is lost: the tools recall("tool_017"), search_archive("words") and facts() of the MCP '
        f"server `compactor`{agent.tool_hint} return originals, or run `compactor recall ID` and "
        f'`compactor recall --search "words"` with --session {core.id!r}. [{mark}]'
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _cut(text: str, most: int) -> str:
    """A brief in at most so many bytes: lines go from the longest list, the oldest of it first."""
    lines = text.split("\n")
    left = 0
    while _size(text) > most and len(lines) > 3:
        first, last = _longest_list(lines)
        if last - first < 2:
            break
        del lines[first]
        left += 1
        text = "\n".join((*lines, f"({left:,} older lines did not fit here: facts() has them.)"))
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _longest_list(lines: Sequence[str]) -> tuple[int, int]:
    spans: list[tuple[int, int]] = []
    first = 0
    for at, line in enumerate((*lines, "")):
        if not line.startswith("- "):
            spans.append((first, at))
            first = at + 1
    return max(spans, key=lambda span: sum(map(len, lines[slice(*span)])))


def learned_text(call: HookCall) -> str:
    """What other sessions of the same user have taught in this project."""
    project, owner = project_of(call.settings.store), local_owner(call.settings.store, Path(call.root))
    if project is None or not owner or not call.settings.promote_to_memory:
        return ""
    return load_lessons(owner_folder(project.learned, owner), _LEARNED_TOKENS)


# A log may be written a little later than what it records.
_BEFORE_SECONDS = 60.0
# A log that has not got the compaction by then will not get it: it was that of a sub-agent, or it was given up.
_CONFIRM_SECONDS = 300.0


def user_prompt_submit(call: HookCall) -> HookAnswer | None:
    """Nothing, unless a brief has not arrived. An announced compaction that did not happen is no longer expected."""
    if call.row is None or call.row.settings != settings_fingerprint(call.root, os.environ):
        set_thresholds(call)
    if call.row is not None and call.row.expected:
        update_hook_state(call.log, expected="")
        happened = (
            read_compaction_trace(call.log.path).compacted_at >= timestamp_seconds(call.row.expected) - _BEFORE_SECONDS
        )
        log_hook(call.root, call.event, "compaction came" if happened else "no compaction came", key=call.log.key)
    text = redeliver_brief(call)
    return call.for_model(text) if text else None


def expect_delivery(call: HookCall, mark: str) -> None:
    """Note that a brief with this mark was given."""
    update_hook_state(call.log, owed=f"{mark} {time.time():.0f}")


def redeliver_brief(call: HookCall) -> str:
    """The brief once more, when the agent has gone on without it; else nothing.

    What an agent got stands in its log. As long as the model has not answered since, nobody can tell.
    """
    pending = call.row.owed if call.row else ""
    mark, _, given_at = pending.partition(" ")
    if not mark or call.agent_id:
        return ""
    if brief_arrival(call.log.path, mark) == "given":
        return _close_delivery(call, pending, "brief arrived", mark)
    trace = read_compaction_trace(call.log.path)
    age = time.time() - float(given_at or 0)
    if trace.compacted_at < float(given_at or 0) - _BEFORE_SECONDS:  # no compaction stands in this log
        return _close_delivery(call, pending, "brief not confirmed", mark) if age > _CONFIRM_SECONDS else ""
    if not trace.has_continued or not _claim_delivery(call, pending):
        return ""
    with synced_session(call.log, call.settings) as synced:
        again = brief_marker(synced.core, "again")
        text = brief_text(synced.core, call.agent, again)
    log_hook(call.root, call.event, "brief given again", key=call.log.key, marker=again, instead_of=mark)
    return text


def _close_delivery(call: HookCall, pending: str, what: str, mark: str) -> str:
    if _claim_delivery(call, pending):
        log_hook(call.root, call.event, what, key=call.log.key, marker=mark)
    return ""


def _claim_delivery(call: HookCall, pending: str) -> bool:
    with hook_state_of(call.root) as state:
        return state.claim(call.log.key, "owed", pending, "")
