"""Handoff from a session: compact first, write the request, and take from the answer only what is needed."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from context_compactor.archive.storage import prepare_and_store_items
from context_compactor.dialects.turns import FIRST_EXTRA_NUMBER, reference_id
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint import modified_files
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens
from context_compactor.handoff.orchestrator import (
    Extracted,
    Points,
    after,
    begin,
    named_task,
    phase_reports,
    read_points,
    start,
    with_task,
)
from context_compactor.handoff.parser import Parsed, read_response
from context_compactor.handoff.protocol import (
    PHASES,
    HandoffRequest,
    HandoffResponse,
    OrchestratorState,
    bad_field,
    read_state,
)
from context_compactor.handoff.writer import handover_text, material_of
from context_compactor.sessions.compaction import compact
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts, parsed_context
from context_compactor.sessions.state import read_session_state
from context_compactor.tokens.counting import message_counter_for

ORCHESTRATOR, POINTS = "orchestrator", "points"
_MOST_LISTED = 20
# Of the summary's tokens, so many are for what phases have reported; the rest is for the conversation.
_MOST_REPORTED = 300


def hand_off(core: Core, phase: str, task: str, task_id: str, feature: str = "", spec_path: str = "") -> HandoffRequest:
    """What the agent of the next phase is given; the session is compacted first, and the sub-agent registered.

    What earlier phases reported is part of it. `feature` and `spec_path` are kept for later handoffs.
    """
    if phase not in PHASES:
        raise bad_field("request", "phase", f"{str(phase)[:60]!r} is not known; use one of {', '.join(PHASES)}")
    facts = all_facts(core)
    summary = summary_for(core, phase)
    compact(core, core.ask(kind="pre_handoff"))
    bare_id = core.id.rpartition("/")[2] or core.id  # without its namespace, as whoever answers knows it
    with core.writing():
        state = with_task(orchestrator(core), core.without_secrets(feature), core.without_secrets(spec_path))
        subject, tasks = named_task(state, facts), _contents(facts, "task")
        request = HandoffRequest(
            task_id=task_id or f"{bare_id[:160]}-{phase}-{len(state.subagents.agents) + 1}",
            phase=phase,
            task=core.without_secrets(task) or next(iter(tasks[-1:]), "go on with what the summary says"),
            context_summary=summary,
            constraints=tuple(_contents(facts, "constraint")),
            files=changed_files(facts, state),
            references=references(core, state),
            feature=subject.feature,
            spec_path=subject.spec_path,
        )
        save_orchestrator(core, start(state, request))
    return request


def summary_for(core: Core, phase: str) -> str:
    """The `context_summary` for a phase: what the conversation says, then what the phases before have reported."""
    reports = phase_reports(orchestrator(core), _MOST_REPORTED)
    material = material_of(parsed_context(core), all_facts(core))
    counter = message_counter_for(None, core.dialect().name)
    behind = f"\n{reports}" if reports else ""
    room = MOST_TOKENS - count_tokens(behind)
    while True:
        text = handover_text(material, room, counter, f"# Handoff: {phase}") + behind
        beyond = count_tokens(text) - MOST_TOKENS
        if beyond <= 0:
            return text
        room -= beyond  # two texts may have a few tokens more together than each by itself


def changed_files(facts: list[Fact], state: OrchestratorState) -> tuple[str, ...]:
    """The files that were changed in the conversation, then those that phases have reported, each once."""
    own = (mark.path for mark in modified_files(facts, _MOST_LISTED))
    return tuple(dict.fromkeys((*own, *state.progress.files_changed[-_MOST_LISTED:])))


def references(core: Core, state: OrchestratorState) -> tuple[str, ...]:
    """What recalls the newest originals, the answers of earlier phases among them."""
    answers = [agent.ref for agent in state.subagents.agents if agent.ref][-_MOST_LISTED:]
    newest = (each.ref for each in core.store.originals(core.id, newest=_MOST_LISTED))
    return tuple(dict.fromkeys((*answers, *newest)))


def _contents(facts: list[Fact], kind: str) -> list[str]:
    return [fact.content for fact in facts if fact.kind == kind][-_MOST_LISTED:]


def receive(core: Core, answer: object) -> Extracted:
    """Take what is needed from a sub-agent's answer; all of it is archived under the id that stays."""
    plain = core.without_secrets(answer)
    with core.writing():
        before = orchestrator(core)
        received: Parsed[HandoffResponse] = read_response(plain, known=before.subagents)
        ref = reference_id("agent", max(before.last_ref + 1, FIRST_EXTRA_NUMBER))
        state, extracted = after(before, received, ref)
        if extracted.original is not None:
            core.store.archive(core.id, prepare_and_store_items([extracted.original], core.store), core.now())
            save_orchestrator(core, state)
            core.note(POINTS, points(core).answered(received, state).to_json())
    return extracted


def orchestrator(core: Core) -> OrchestratorState:
    """What an orchestrator needs to know: phases, summaries, decisions, and which sub-agents run."""
    stored = _notes(core).get(ORCHESTRATOR)
    return read_state(stored) if isinstance(stored, str) else begin(core.id)


def points(core: Core) -> Points:
    """The four measurement points, with the tool calls of this session."""
    stored = _notes(core).get(POINTS)
    known = read_points(stored) if isinstance(stored, str) else Points()
    calls = read_session_state(core.row().state).tool_calls
    return structs.replace(known, tool_calls=(calls,))


def save_orchestrator(core: Core, state: OrchestratorState) -> None:
    """Keep the state of the orchestrator."""
    core.note(ORCHESTRATOR, state.to_json())


def _notes(core: Core) -> dict[str, Any]:
    return read_session_state(core.row().state).notes
