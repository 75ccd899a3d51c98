"""The orchestrator: starts sub-agents, takes what it needs from each response, and measures the sizes of both."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal, Self, get_args

from msgspec import Struct, structs

from context_compactor.archive.originals import Original
from context_compactor.dialects.turns import reference_id
from context_compactor.engine.actions import cut_words, sentences_of
from context_compactor.errors import BadInput
from context_compactor.facts.calls import paths_in
from context_compactor.facts.fact import Fact
from context_compactor.facts.kinds import Kind
from context_compactor.facts.outputs import error_lines
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens, files_in, join_summaries
from context_compactor.handoff.parser import Parsed
from context_compactor.handoff.protocol import (
    LONGEST_LINE,
    MOST_BLOCKED,
    MOST_ERRORS,
    MOST_FILES,
    PHASES,
    Blocked,
    Decision,
    HandoffRequest,
    HandoffResponse,
    OrchestratorState,
    Phase,
    Progress,
    SubAgent,
    Task,
    read_stored,
    stored_text,
)
from context_compactor.json_values import copy_containers, json_text
from context_compactor.text import clip_line

Point = Literal["response_tokens", "summary_tokens", "state_tokens", "tool_calls", "tokens_used"]
POINTS: tuple[Point, ...] = get_args(Point)


class Figures(Struct, frozen=True):
    """A measurement point in four numbers, all 0 when nothing was measured."""

    count: int
    median: float
    max: int
    total: int


class Points(Struct, frozen=True):
    """What was measured, in order: sizes in tokens for each answer, and the tool calls of each session."""

    response_tokens: tuple[int, ...] = ()
    summary_tokens: tuple[int, ...] = ()
    state_tokens: tuple[int, ...] = ()
    tool_calls: tuple[int, ...] = ()
    tokens_used: tuple[int, ...] = ()

    def answered(self, received: Parsed[HandoffResponse], state: OrchestratorState) -> Self:
        """With one more answer, and the state after it."""
        raw, used = received.raw, received.message.tokens_used
        size = count_tokens(raw if isinstance(raw, str) else json_text(raw))
        return structs.replace(
            self,
            response_tokens=(*self.response_tokens, size),
            summary_tokens=(*self.summary_tokens, count_tokens(received.message.context_summary)),
            state_tokens=(*self.state_tokens, state.tokens),
            tokens_used=self.tokens_used if used is None else (*self.tokens_used, used),
        )

    def called(self, times: int = 1) -> Self:
        """With more tool calls in the session at hand, which is the last one."""
        if times < 0:
            raise BadInput(f"tool calls: {times} is negative")
        *before, now = self.tool_calls or (0,)
        return structs.replace(self, tool_calls=(*before, now + times))

    def figures(self, point: Point) -> Figures:
        """Count, median, largest and sum of one point."""
        if point not in POINTS:
            raise BadInput(f"there is no measurement point {str(point)[:60]!r}; use one of {', '.join(POINTS)}")
        values: tuple[int, ...] = getattr(self, point)
        return Figures(len(values), median(values), max(values), sum(values)) if values else Figures(0, 0, 0, 0)

    def to_json(self) -> str:
        """The points as JSON text."""
        return stored_text(self)


def join_points(sessions: Iterable[Points]) -> Points:
    """The points of several sessions as one, so that tool calls can be compared from session to session."""
    every = list(sessions)
    return Points(
        *(tuple(value for points in every for value in getattr(points, name)) for name in Points.__struct_fields__)
    )


def read_points(text: str | bytes) -> Points:
    """Points from their JSON text."""
    return read_stored(text, Points, "list of measurement points")


_CHANGED = ("files_changed", "files_modified", "files_created", "files_written", "changed_files", "modified_files")
_ERRORS = ("errors", "error", "failures")
_ASKS = ("questions", "question", "clarifications", "blockers", "needs")
_WORDS = ("message", "error", "summary", "description", "question", "text")
_SETTLED = frozenset(("resolved", "fixed", "done", "closed"))
_MOST_OF_INTEREST = 20


class Extracted(Struct, frozen=True):
    """What was taken, and `original`, which is to be archived before the answer is let go.

    `original` is None when this answer had been taken before. `tokens_raw` is the size of the answer and
    `tokens_kept` what the state grew by.
    """

    decision: Decision
    context_summary: str
    files_of_interest: tuple[str, ...]
    files_changed: tuple[str, ...]
    errors: tuple[str, ...]
    asked: str
    original: Original | None
    tokens_raw: int
    tokens_kept: int = 0

    @property
    def reference(self) -> str:
        """The line that stands for the answer in the orchestrator's context; empty when it was taken before."""
        kept = self.original
        return f"[archived {kept.id}: {kept.summary}, {kept.tokens:,} tokens. {kept.recovery}]" if kept else ""

    @property
    def saving(self) -> float:
        """The share of the answer that the orchestrator does not carry."""
        return 1 - self.tokens_kept / self.tokens_raw if self.tokens_raw else 0.0


def extract(received: Parsed[HandoffResponse], ref: str) -> Extracted:
    """Decision, summary, files and errors of an answer; all of it, as it came, goes under the reference."""
    response = received.message
    raw = received.raw if isinstance(received.raw, str) else json_text(received.raw)
    tokens = count_tokens(raw)
    value = copy_containers(received.raw)
    summary = f"{response.phase} {response.task_id}: {response.status}, {response.decision}"
    return Extracted(
        decision=response.decision,
        context_summary=response.context_summary,
        files_of_interest=tuple(files_in(response.context_summary)[:_MOST_OF_INTEREST]),
        files_changed=tuple(_changed(response.findings)),
        errors=tuple(_errors(response.findings)),
        asked="" if response.decision == "PROCEED" else _question(response),
        original=Original(ref, Kind.SUBAGENT.value, clip_line(summary), tokens, value, f'recall("{ref}")'),
        tokens_raw=tokens,
    )


def _changed(findings: Mapping[str, Any]) -> Iterator[str]:
    """The files that were changed, without remarks such as "(created)"."""
    for value in (findings[key] for key in _CHANGED if key in findings):
        for path in paths_in({"files": value if isinstance(value, list) else [value]}):
            bare = path.partition(" (")[0].strip().strip("`")
            if bare and len(bare) <= LONGEST_LINE and "\n" not in bare:
                yield bare


def _errors(findings: Mapping[str, Any]) -> Iterator[str]:
    """One line for each error that is not settled."""
    for value in (findings[key] for key in _ERRORS if key in findings):
        for each in value if isinstance(value, list) else [value]:
            if not _is_settled(each) and (text := _words_of(each)):
                yield clip_line(error_lines(text) if "\n" in text else text, LONGEST_LINE)


def _is_settled(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    status = value.get("status")
    return value.get("resolved") is True or (isinstance(status, str) and status.lower() in _SETTLED)


def _question(response: HandoffResponse) -> str:
    """What has to be known or decided before it can go on, in one line."""
    for value in (response.findings[key] for key in _ASKS if key in response.findings):
        texts = map(_words_of, value if isinstance(value, list) else [value])
        if found := "; ".join(filter(None, texts)):
            return clip_line(found, LONGEST_LINE)
    return clip_line(response.context_summary, LONGEST_LINE)


def _words_of(value: object) -> str:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _WORDS if isinstance(value.get(key), str)), None) or json_text(value)
    return value.strip() if isinstance(value, str) else ""


_REF = re.compile(r"agent_(\d{3,9})")
_SPEC = re.compile(r"(?:^|/)specs?/([^/]+)/[^/]+$")
_SPEC_FILE = re.compile(
    r"(?:^|/)specs?/|(?:^|[/_-])(?:specs?|specification|requirements|design|prd|rfc|proposal)[\w.-]*\.(?:md|rst|txt|adoc)$",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_NAME = 80
_PART = re.compile(r"\n(?=## agent_\d+\n)")
_SEVERITY: tuple[Decision, ...] = ("STOP", "CLARIFY")


def begin(task_id: str, feature: str = "", spec_path: str = "") -> OrchestratorState:
    """The state before the first phase."""
    task = Task(*(clip_line(text, LONGEST_LINE) for text in (task_id, feature, spec_path)))
    return OrchestratorState(task, Progress("", (), ()), {})


def start(state: OrchestratorState, request: HandoffRequest, outputs: Sequence[str] = ()) -> OrchestratorState:
    """The state while a sub-agent works on a request; several may at once. A blocked phase is not left for another."""
    _refuse_blocked(state, request.phase)
    register = state.subagents.started(request.task_id, request.task, outputs, request.phase)
    progress = structs.replace(state.progress, current_phase=request.phase)
    blocked_by = tuple(blocked for blocked in state.blocked if blocked.task_id != request.task_id)
    return _decided(structs.replace(state, subagents=register, progress=progress, blocked=blocked_by), request.phase)


def after(
    state: OrchestratorState, received: Parsed[HandoffResponse], ref: str = ""
) -> tuple[OrchestratorState, Extracted]:
    """The state after a sub-agent's answer, and what was extracted, with the original to archive.

    `ref` is the answer's id where a session has given it one; the next number is taken otherwise. The same answer
    again changes nothing. An answer nobody waits for raises `BadInput`.
    """
    response = received.message
    digest = hashlib.sha256(response.to_json().encode("utf-8", "surrogatepass")).hexdigest()[:12]
    agent = _asked(state, response, digest)
    if agent.status != "running":
        return state, structs.replace(extract(received, agent.ref), original=None)
    number = _number(state, ref)
    ref = reference_id("agent", number)
    extracted = extract(received, ref)
    blocked = Blocked(response.task_id, response.phase, response.decision, extracted.asked)
    taken = structs.replace(
        state,
        progress=_progress(state, response.phase, extracted, ref),
        blocked=state.blocked if response.decision == "PROCEED" else (*state.blocked, blocked),
        subagents=state.subagents.finished(agent.id, response.status, ref, digest),
        last_ref=max(state.last_ref, number),
    )
    grown = _decided(taken, response.phase)
    return grown, structs.replace(extracted, tokens_kept=max(grown.tokens - state.tokens, 0))


def unblock(state: OrchestratorState, task_id: str) -> OrchestratorState:
    """The state after what a sub-agent asked was answered, or its STOP was overruled."""
    found = [blocked for blocked in state.blocked if blocked.task_id == task_id]
    if not found:
        open_ones = ", ".join(repr(blocked.task_id) for blocked in state.blocked) or "nothing"
        raise BadInput(f"task {task_id[:60]!r} is not blocking; blocking tasks: {open_ones}")
    rest = tuple(blocked for blocked in state.blocked if blocked.task_id != task_id)
    return _decided(structs.replace(state, blocked=rest), found[0].phase)


def next_request(
    state: OrchestratorState, task_id: str, phase: Phase, task: str, constraints: Sequence[str] = ()
) -> HandoffRequest:
    """What the next sub-agent is given: the summaries of all phases so far in 500 tokens, and where the answers are."""
    return HandoffRequest(
        task_id=task_id,
        phase=phase,
        task=task,
        context_summary=phase_reports(state),
        constraints=tuple(constraints),
        files=state.progress.files_changed,
        references=tuple(agent.ref for agent in state.subagents.agents if agent.ref),
        feature=state.task.feature,
        spec_path=state.task.spec_path,
    )


def phase_reports(state: OrchestratorState, tokens: int = MOST_TOKENS) -> str:
    """What the phases so far have reported, each under its name, in at most so many tokens; empty before the first.

    Errors that they have reported stand below it.
    """
    known = [f"# {before}\n{found}" for before in PHASES if (found := state.progress.summary(before))]
    if state.progress.errors:
        known.append("\n".join(("# errors", *(f"- {error}" for error in state.progress.errors))))
    return join_summaries(known, tokens)


def with_task(state: OrchestratorState, feature: str, spec_path: str) -> OrchestratorState:
    """The state with what the work is about; what is not given stays as it was.

    The specification of another feature is not that of this one. Without a feature, a specification in a folder of
    `specs/` is that of the feature the folder is named after.
    """
    known = state.task
    feature = feature or (_feature_of(spec_path) if spec_path else "") or known.feature
    if not spec_path and feature == known.feature:
        spec_path = known.spec_path
    return structs.replace(state, task=Task(known.id, feature, spec_path))


def named_task(state: OrchestratorState, facts: Sequence[Fact]) -> Task:
    """What the work is about: as somebody has said, else by what the user asked for.

    A specification is a file that a request names, the newest one; the feature is named after its folder, or in the
    words with which the user began.
    """
    known = state.task
    requests = [fact for fact in facts if fact.kind == "task"]
    named = (path for fact in reversed(requests) for path in files_in(f"{fact.content}\n{fact.detail}"))
    specs = filter(_SPEC_FILE.search, named)
    spec_path = known.spec_path or ("" if known.feature else next(specs, ""))
    opening = sentences_of(requests[0].content, is_quote=True) if requests else []
    first = _CONTROL.sub(" ", opening[0]).rstrip(".:! ") if opening else ""
    began = cut_words(first, _LONGEST_NAME) if first else ""
    return Task(known.id, known.feature or _feature_of(spec_path) or began, spec_path)


def _feature_of(spec_path: str) -> str:
    found = _SPEC.search(spec_path)
    return clip_line(found[1], LONGEST_LINE) if found else ""


def _refuse_blocked(state: OrchestratorState, phase: Phase) -> None:
    for blocked in (blocked for blocked in state.blocked if blocked.phase != phase):
        raise BadInput(
            f"phase {phase}: {blocked.task_id!r} said {blocked.decision} in phase {blocked.phase} "
            f"({blocked.asked!r}); resolve that first, then run it again with its task_id in its phase, or "
            f"unblock(state, {blocked.task_id!r})"
        )
    if len(state.blocked) >= MOST_BLOCKED:
        raise BadInput(f"{MOST_BLOCKED} sub-agents wait for an answer, which is the limit; unblock some of them first")


def _asked(state: OrchestratorState, response: HandoffResponse, digest: str) -> SubAgent:
    """The sub-agent that was asked for this answer: it runs, or has given the same answer before."""
    agent = state.subagents.find(response.task_id)
    if agent.phase != response.phase:
        raise BadInput(f"task {agent.id!r} was started in phase {agent.phase}, but its answer says {response.phase}")
    if agent.status != "running" and agent.digest != digest:
        raise BadInput(
            f"task {agent.id!r} has already answered differently ({agent.ref}); start it again to get a new answer"
        )
    return agent


def _number(state: OrchestratorState, ref: str) -> int:
    given = _REF.fullmatch(ref)
    if ref and not given:
        raise BadInput(f"{ref[:60]!r} is not the reference of a sub-agent's answer; it looks like agent_007")
    return int(given[1]) if given else state.last_ref + 1


def _decided(state: OrchestratorState, phase: Phase) -> OrchestratorState:
    """The decision of a phase: the severest of those that block it, pending while somebody works on it."""
    open_ones = {blocked.decision for blocked in state.blocked if blocked.phase == phase}
    is_running = any(agent.phase == phase for agent in state.subagents.running)
    decision = next((each for each in _SEVERITY if each in open_ones), "pending" if is_running else "PROCEED")
    completed = tuple(each for each in state.progress.completed_phases if each != phase)
    if decision == "PROCEED":
        completed = (*completed, phase)
    progress = structs.replace(state.progress, completed_phases=completed)
    return structs.replace(state, progress=progress, decisions={**state.decisions, phase: decision})


def _progress(state: OrchestratorState, phase: Phase, extracted: Extracted, ref: str) -> Progress:
    before = state.progress
    files = list(dict.fromkeys((*before.files_changed, *extracted.files_changed)))
    errors = tuple(dict.fromkeys((*before.errors, *extracted.errors)))
    beside = sum(agent.phase == phase for agent in state.subagents.agents) - 1
    summary = extracted.context_summary
    if beside or before.summary(phase):
        parts = filter(None, _PART.split(before.summary(phase)))  # what each sub-agent of the phase added
        summary = join_summaries([*parts, f"## {ref}\n{summary}"])
    return structs.replace(
        before,
        files_changed=tuple(files[-MOST_FILES:]),
        more_files_changed=before.more_files_changed + max(len(files) - MOST_FILES, 0),
        errors=errors[-MOST_ERRORS:],
        more_errors=before.more_errors + max(len(errors) - MOST_ERRORS, 0),
        **{f"{phase}_summary": summary},
    )
