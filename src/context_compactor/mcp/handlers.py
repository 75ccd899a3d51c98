"""What each tool does: recall and search, facts and turns, window status, plan, checkpoint and handoff, in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from context_compactor.agents.transcript_tail import last_window_tokens
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, may_repeat
from context_compactor.facts.ledgers import fact_line
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.orchestrator import named_task, with_task
from context_compactor.mcp import schemas
from context_compactor.mcp.session_scope import OpenedSession, in_any_branch, opened_session
from context_compactor.mcp.tools import Tool, ToolContext
from context_compactor.sessions import tools
from context_compactor.sessions.compaction import run_engine
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.handoff import changed_files, orchestrator, references, summary_for
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.tool_schemas import FactsOutput, RecallOutput, SearchOutput, ToolAnswer
from context_compactor.sessions.tools import next_call, page_of_list
from context_compactor.sessions.views import report_of
from context_compactor.settings import Level, LevelRule
from context_compactor.text import clip_line
from context_compactor.tokens.budget import Usage, level_at

_CONTEXT_LINES = 40
_EARLIER_BRANCH = "From before the user went back to an earlier point of this session and took another way."


def recall(found: OpenedSession, given: schemas.RecallInput) -> RecallOutput:
    """A page of an original."""
    output = in_any_branch(found, lambda core: tools.recall(core, given))
    return (
        output
        if output.session == found.core.id
        else structs.replace(output, note=_notes(output.note, _EARLIER_BRANCH))
    )


def search_archive(found: OpenedSession, given: schemas.SearchInput) -> SearchOutput:
    """Lines of originals that answer a question."""
    return tools.search_archive(found.core, given)


def facts(found: OpenedSession, given: schemas.FactsInput) -> FactsOutput:
    """A page of the facts, the newest first."""
    return tools.facts(found.core, given)


def list_turns(found: OpenedSession, given: schemas.TurnsInput) -> schemas.TurnsOutput:
    """A page of the index of turns."""
    every = found.session.turns(given.first, given.last or None, given.words)
    rows = [schemas.TurnOutput(each.id, each.who, each.text, each.tokens, each.is_shown) for each in every]
    pages, shown = page_of_list(rows, lambda turn: len(turn.text) + _CONTEXT_LINES, given.page, "the turns")
    return schemas.TurnsOutput(
        session=found.core.id,
        total=len(every),
        page=given.page,
        pages=pages,
        turns=shown,
        next=next_call("list_turns", given, pages),
    )


_MOST_CHARS = 24_000
_MOST_LISTED = 20
_LONGEST_LINE = 400
_DECISION_OVERHEAD = 80
_MOST_TURNS = 999
_DRY_RUN_NOTE = (
    "Tokens are those of the conversation, without the agent's own instructions and tools. Nothing was changed: a tool "
    "cannot change the context of the agent that calls it. To compact, the user runs the agent's own command, such as "
    "/compact."
)


def context_status(found: OpenedSession, _: schemas.StatusInput) -> schemas.StatusOutput:
    """How full the agent's window is, and what there is to get back."""
    core, row, usage = found.core, found.row, found.session.usage()
    made = core.context_reader.log_state().compactions
    stored, originals = core.row(), core.store.originals(core.id)
    last = report_of(core, made[-1]) if made else None
    reported = last_window_tokens(row.transcript) if row else 0
    tokens, window = reported or usage.tokens, core.profile.window or usage.budget_tokens
    level = level_at(tokens / usage.budget_tokens, core.settings.levels)
    return schemas.StatusOutput(
        session=core.id,
        agent=row.agent if row else "",
        tokens=tokens,
        window=window,
        percent=round(100 * tokens / window, 1),
        level=level.value if level else "",
        forecast=_forecast(tokens, usage, core.settings.levels),
        source="as the provider counted the last answer" if reported else f"{usage.source}, by us",
        tool_calls=max(row.calls if row else 0, read_session_state(stored.state).tool_calls),
        messages=stored.messages,
        compactions=len(made),
        last_compaction=_past(last) if last else None,
        archived=len(originals),
        archived_tokens=sum(each.tokens for each in originals),
    )


def _past(report: Report) -> schemas.PastOutput:
    return schemas.PastOutput(
        report.created_at, clip_line(report.reason, _LONGEST_LINE), report.tokens_before, report.tokens_after
    )


def _forecast(tokens: int, usage: Usage, levels: Sequence[LevelRule]) -> str:
    """How far it is to the next level, or behind the last one to the end of the budget."""
    starts = sorted((int(rule.threshold * usage.budget_tokens), rule.level.value) for rule in levels)
    start, name = next(((at, name) for at, name in starts if at > tokens), (usage.budget_tokens, "the end"))
    left = max(0, start - tokens)
    if usage.growth is None:
        return f"{left:,} tokens to {name}"
    turns = left // usage.growth
    about = f"about {turns:,}" if turns <= _MOST_TURNS else f"over {_MOST_TURNS:,}"
    return f"{about} turns to {name}, of {usage.growth:,} tokens each"


def compact_plan(found: OpenedSession, given: schemas.PlanInput) -> schemas.PlanOutput:
    """What a compaction would do now."""
    core = found.core
    ask = core.ask(
        level=Level(given.level) if given.level else None,
        focus=core.without_secrets(given.focus),
        target_tokens=given.target_tokens or None,
        kind="manual",
    )
    plan = run_engine(core, ask, core.current_context(), None, dry_run=True)
    decisions = sorted(plan.decisions, key=lambda each: each.tokens_after - each.tokens_before)
    rows = [_decision(each) for each in decisions]
    pages, shown = page_of_list(
        rows, lambda each: len(each.target) + len(each.reason) + _DECISION_OVERHEAD, given.page, "the plan"
    )
    report = plan.report
    return schemas.PlanOutput(
        session=core.id,
        status=report.status,
        reason=clip_line(report.reason, _LONGEST_LINE),
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        tiers=list(_tiers(decisions)),
        page=given.page,
        pages=pages,
        decisions=shown,
        next=next_call("compact_plan", given, pages),
        note=_DRY_RUN_NOTE,
    )


def _decision(each: Decision) -> schemas.DecisionOutput:
    return schemas.DecisionOutput(
        clip_line(each.target),
        each.turn,
        each.tier.value,
        clip_line(each.reason),
        each.tokens_before,
        each.tokens_after,
        each.relevance,
        each.ref,
    )


def _tiers(decisions: Sequence[Decision]) -> Iterable[schemas.TierOutput]:
    for tier in Tier:
        chosen = [each for each in decisions if each.tier is tier]
        before, after = sum(each.tokens_before for each in chosen), sum(each.tokens_after for each in chosen)
        yield schemas.TierOutput(tier.value, len(chosen), before, after)


def checkpoint(found: OpenedSession, given: schemas.CheckpointInput) -> schemas.CheckpointOutput:
    """Write where the work stands."""
    text, project = render_checkpoint(found.session.checkpoint(given.note)), found.core.project
    return schemas.CheckpointOutput(
        session=found.core.id,
        file=str(project.checkpoint_file) if project else "",
        text=text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}\n… the rest is in the file",
    )


def handoff(found: OpenedSession, given: schemas.HandoffInput) -> schemas.HandoffOutput:
    """What somebody who goes on is to be given."""
    facts = all_facts(found.core)
    state = with_task(orchestrator(found.core), given.feature, given.spec_path)
    subject = named_task(state, facts)
    tasks = _fact_texts(facts, "task")
    return schemas.HandoffOutput(
        session=found.core.id,
        phase=given.phase,
        task=given.task or (tasks[-1] if tasks else "go on with what the summary says"),
        feature=subject.feature,
        spec_path=subject.spec_path,
        context_summary=summary_for(found.core, given.phase),
        constraints=_fact_texts(facts, "constraint"),
        failed=_failures(fact for fact in facts if not may_repeat(fact)),
        failing=_failures(fact for fact in facts if may_repeat(fact) and fact.status != RESOLVED),
        files=[clip_line(path, _LONGEST_LINE) for path in changed_files(facts, state)],
        references=list(references(found.core, state)),
    )


def _failures(facts: Iterable[Fact]) -> list[str]:
    return [clip_line(fact_line(fact), _LONGEST_LINE) for fact in facts if fact.kind == "failure"][-_MOST_LISTED:]


def _fact_texts(facts: Sequence[Fact], kind: str) -> list[str]:
    return [clip_line(fact.content, _LONGEST_LINE) for fact in facts if fact.kind == kind][-_MOST_LISTED:]


_HANDLERS: Mapping[str, Callable[[OpenedSession, Any], ToolAnswer]] = {
    handler.__name__: handler
    for handler in (recall, search_archive, list_turns, facts, context_status, compact_plan, checkpoint, handoff)
}


def run_tool(tool: Tool, context: ToolContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Run a tool. An argument that is null counts as not given; `ValidationError` when one does not fit."""
    given = {name: value for name, value in arguments.items() if value is not None}
    checked = msgspec.convert(given, tool.input, strict=False)
    with opened_session(context, given.get("session", "")) as found:
        output = _HANDLERS[tool.name](found, checked)
    return structs.replace(output, note=_notes(found.note, output.note))


def _notes(*notes: str) -> str:
    return " ".join(filter(None, notes))
