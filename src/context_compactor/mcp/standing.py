"""How the work stands: the window, what a compaction would do, the checkpoint, and what to hand on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.agents.window_use import tokens_at_end
from context_compactor.apply.digests.text import clip
from context_compactor.classify.failures import may_repeat
from context_compactor.classify.resolutions import RESOLVED
from context_compactor.classify.tier import Tier
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.orchestrator import named_task, with_task
from context_compactor.levels import Level, LevelRule
from context_compactor.mcp.answers import (
    CheckpointAnswer,
    DecisionAnswer,
    HandoffAnswer,
    PastAnswer,
    PlanAnswer,
    StatusAnswer,
    TierAnswer,
)
from context_compactor.mcp.asked import CheckpointAsked, HandoffAsked, PlanAsked, StatusAsked
from context_compactor.mcp.pages import page_of_list
from context_compactor.mcp.place import Place
from context_compactor.mcp.scope import opened
from context_compactor.measure.usage import Usage, level_at
from context_compactor.plan.plan import Decision
from context_compactor.session.compacting import run_engine
from context_compactor.session.handing import changed_files, orchestrator, references, summary_for
from context_compactor.session.memory import all_facts
from context_compactor.session.values import read_state
from context_compactor.session.views import report_of

_MOST_CHARS = 24_000
_MOST_LISTED = 20
_LONGEST_LINE = 400
_BESIDE = 80
_MOST_TURNS = 999
_DRY = (
    "Tokens are those of the conversation, without the agent's own instructions and tools. Nothing was changed: a tool "
    "cannot change the context of the agent that calls it. To compact, the user runs the agent's own command, such as "
    "/compact."
)


def context_status(place: Place, asked: StatusAsked) -> StatusAnswer:
    """How full the agent's window is, and what there is to get back."""
    with opened(place, asked.session) as found:
        core, row, usage = found.core, found.row, found.session.usage()
        made = core.lens.sight().compactions
        stored, shelved = core.row(), core.store.originals(core.id)
        last = report_of(core, made[-1]) if made else None
        reported = tokens_at_end(row.transcript) if row else 0
        tokens, window = reported or usage.tokens, core.profile.window or usage.budget_tokens
        level = level_at(tokens / usage.budget_tokens, core.settings.levels)
        return StatusAnswer(
            session=core.id,
            agent=row.agent if row else "",
            tokens=tokens,
            window=window,
            percent=round(100 * tokens / window, 1),
            level=level.value if level else "",
            forecast=_forecast(tokens, usage, core.settings.levels),
            source="as the provider counted the last answer" if reported else f"{usage.source}, by us",
            tool_calls=max(row.calls if row else 0, read_state(stored.state).tool_calls),
            messages=stored.messages,
            compactions=len(made),
            last_compaction=PastAnswer(
                last.created_at, clip(last.reason, _LONGEST_LINE), last.tokens_before, last.tokens_after
            )
            if last
            else None,
            archived=len(shelved),
            archived_tokens=sum(each.tokens for each in shelved),
            note=found.note,
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


def compact_plan(place: Place, asked: PlanAsked) -> PlanAnswer:
    """What a compaction would do now."""
    with opened(place, asked.session) as found:
        core = found.core
        ask = core.ask(
            level=Level(asked.level) if asked.level else None,
            focus=core.without_secrets(asked.focus),
            target_tokens=asked.target_tokens or None,
            kind="manual",
        )
        plan = run_engine(core, ask, core.seen(), None, dry_run=True)
        name, note = core.id, found.note
    decisions = sorted(plan.decisions, key=lambda each: each.tokens_after - each.tokens_before)
    rows = [_decision(each) for each in decisions]
    pages, shown = page_of_list(
        rows, lambda each: len(each.target) + len(each.reason) + _BESIDE, asked.page, "the plan"
    )
    report = plan.report
    return PlanAnswer(
        session=name,
        status=report.status,
        reason=clip(report.reason, _LONGEST_LINE),
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        tiers=list(_tiers(decisions)),
        page=asked.page,
        pages=pages,
        decisions=shown,
        next=_next(asked) if asked.page < pages else "",
        note=f"{note} {_DRY}".strip(),
    )


def _decision(each: Decision) -> DecisionAnswer:
    return DecisionAnswer(
        clip(each.target),
        each.turn,
        each.tier.value,
        clip(each.reason),
        each.tokens_before,
        each.tokens_after,
        each.relevance,
        each.ref,
    )


def _tiers(decisions: Sequence[Decision]) -> Iterable[TierAnswer]:
    for tier in Tier:
        chosen = [each for each in decisions if each.tier is tier]
        before, after = sum(each.tokens_before for each in chosen), sum(each.tokens_after for each in chosen)
        yield TierAnswer(tier.value, len(chosen), before, after)


def _next(asked: PlanAsked) -> str:
    given = {"level": asked.level, "target_tokens": asked.target_tokens, "focus": asked.focus}
    told = "".join(f"{name}={str(value) if name == 'level' else value!r}, " for name, value in given.items() if value)
    return f"compact_plan({told}page={asked.page + 1})"


def checkpoint(place: Place, asked: CheckpointAsked) -> CheckpointAnswer:
    """Write where the work stands."""
    with opened(place, asked.session) as found:
        text = render_checkpoint(found.session.checkpoint(asked.note))
        project = found.core.project
        return CheckpointAnswer(
            session=found.core.id,
            file=str(project.checkpoint_file) if project else "",
            text=text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}\n… the rest is in the file",
            note=found.note,
        )


def handoff(place: Place, asked: HandoffAsked) -> HandoffAnswer:
    """What somebody who goes on is to be given."""
    with opened(place, asked.session) as found:
        facts = all_facts(found.core)
        state = with_task(orchestrator(found.core), asked.feature, asked.spec_path)
        subject = named_task(state, facts)
        tasks = _told(facts, "task")
        return HandoffAnswer(
            session=found.core.id,
            phase=asked.phase,
            task=asked.task or (tasks[-1] if tasks else "go on with what the summary says"),
            feature=subject.feature,
            spec_path=subject.spec_path,
            context_summary=summary_for(found.core, asked.phase),
            constraints=_told(facts, "constraint"),
            failed=_failures(fact for fact in facts if not may_repeat(fact)),
            failing=_failures(fact for fact in facts if may_repeat(fact) and fact.status != RESOLVED),
            files=[clip(path, _LONGEST_LINE) for path in changed_files(facts, state)],
            references=list(references(found.core, state)),
            note=found.note,
        )


def _failures(facts: Iterable[Fact]) -> list[str]:
    return [clip(fact_line(fact), _LONGEST_LINE) for fact in facts if fact.kind == "failure"][-_MOST_LISTED:]


def _told(facts: Sequence[Fact], kind: str) -> list[str]:
    return [clip(fact.content, _LONGEST_LINE) for fact in facts if fact.kind == kind][-_MOST_LISTED:]
