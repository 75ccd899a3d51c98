"""What each tool does: recall and search, facts and turns, window status, plan, checkpoint and handoff, in pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from context_compactor.agents.transcript_tail import last_window_tokens
from context_compactor.archive.search.passages import Hit, group_by_exchange
from context_compactor.engine.plan import Decision
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, may_repeat
from context_compactor.facts.ledgers import fact_line
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.orchestrator import named_task, with_task
from context_compactor.mcp.schemas import (
    CheckpointInput,
    CheckpointOutput,
    DecisionOutput,
    FactOutput,
    FactsInput,
    FactsOutput,
    HandoffInput,
    HandoffOutput,
    HitOutput,
    PastOutput,
    PlanInput,
    PlanOutput,
    RecallInput,
    RecallOutput,
    SearchInput,
    SearchOutput,
    StatusInput,
    StatusOutput,
    TierOutput,
    ToolOutput,
    TurnOutput,
    TurnsInput,
    TurnsOutput,
)
from context_compactor.mcp.session_scope import in_any_branch, opened_session
from context_compactor.mcp.tools import Tool, ToolContext
from context_compactor.sessions.compaction import run_engine
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.handoff import changed_files, orchestrator, references, summary_for
from context_compactor.sessions.recall import PAGE_TOKENS, cut_pages, find_original, original_text
from context_compactor.sessions.state import read_session_state
from context_compactor.sessions.views import report_of
from context_compactor.settings import Level, LevelRule
from context_compactor.text import clip_line
from context_compactor.tokens.budget import Usage, level_at
from context_compactor.tokens.counting import replace_surrogates

T = TypeVar("T")
_PAGE_BYTES = PAGE_TOKENS * 4
_FEWEST_CHARS = 500


def page_of_text(text: str, number: int, what: str) -> tuple[int, int, int, str]:
    """A page of a text: how many there are, its first and last line, and what it says.

    A page has fewer characters where these are not ASCII, since each is then more of a token.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    chars = _PAGE_BYTES if size == len(text) else max(_FEWEST_CHARS, _PAGE_BYTES * len(text) // size)
    pages = cut_pages(text, chars)
    first, last, piece = _pick(pages, number, what)
    return len(pages), first, last, piece


def page_of_list(items: Iterable[T], size_of: Callable[[T], int], number: int, what: str) -> tuple[int, list[T]]:
    """A page of a list: how many there are, and what is on it. `size_of` says how many characters an item takes."""
    pages: list[list[T]] = [[]]
    room = _PAGE_BYTES
    for item in items:
        size = size_of(item)
        if size > room and pages[-1]:
            pages.append([])
            room = _PAGE_BYTES
        pages[-1].append(item)
        room -= size
    return len(pages), _pick(pages, number, what)


def _pick(pages: Sequence[T], number: int, what: str) -> T:
    if number > len(pages):
        raise BadSetting(f"page {number:,} of {what}: it has {len(pages):,}. Try: page={len(pages)}.")
    return pages[number - 1]


_LONGEST_FACT = 500
_LONGEST_HIT = 8_000
_CONTEXT_LINES = 40
_LAST_LINE = 10**9
_REPLACED_CHARACTERS = "Halves of characters, which the protocol cannot carry, are shown as \N{REPLACEMENT CHARACTER}."
_EARLIER_BRANCH = "From before the user went back to an earlier point of this session and took another way."


def recall(place: ToolContext, asked: RecallInput) -> RecallOutput:
    """A page of an original."""
    with opened_session(place, asked.session) as found:
        answer = in_any_branch(found, lambda core: _recalled(core, asked))
        notes = [note for note in (found.note, answer.note) if note]
        if answer.session != found.core.id:
            notes.append(_EARLIER_BRANCH)
    return structs.replace(answer, note=" ".join(notes))


def _recalled(core: Core, asked: RecallInput) -> RecallOutput:
    ref = asked.id.strip().strip("`\"'[]()")
    original = find_original(core, ref)
    before, text = _lines(original_text(core, ref), original.id, asked.lines)
    pages, first, last, piece = page_of_text(text, asked.page, ref)
    core.emit("item.recalled", ref=ref, page=asked.page)
    lines = f', lines="{asked.lines}"' if asked.lines else ""
    return RecallOutput(
        session=core.id,
        id=original.id,
        kind=original.kind,
        summary=clip_line(original.summary),
        page=asked.page,
        pages=pages,
        first_line=before + first,
        last_line=before + last,
        text=piece,
        next=f'recall(id="{original.id}", page={asked.page + 1}{lines})' if asked.page < pages else "",
        note="" if replace_surrogates(piece) == piece else _REPLACED_CHARACTERS,
    )


def _lines(text: str, ref: str, wanted: str) -> tuple[int, str]:
    """How many lines come before the part that is wanted, and its text."""
    if not wanted:
        return 0, text
    start, dash, end = wanted.partition("-")
    first, last = int(start), int(end) if end else _LAST_LINE if dash else int(start)
    every = text.split("\n")
    if not 1 <= first <= last or first > len(every):
        raise BadSetting(f'lines "{wanted}" of {ref}: it has {len(every):,}, counted from 1. Try: "1-40".')
    return first - 1, "\n".join(every[first - 1 : last])


def search_archive(place: ToolContext, asked: SearchInput) -> SearchOutput:
    """Lines of originals that answer a question."""
    with opened_session(place, asked.session) as found:
        hits = found.session.search(asked.text, limit=asked.limit, tokens=PAGE_TOKENS, kind=asked.kind)
        archived = len(found.core.store.originals(found.core.id))
        name, note = found.core.id, found.note
    return SearchOutput(
        session=name,
        query=clip_line(asked.text, 200),
        archived=archived,
        hits=[_hit(hit) for hit in group_by_exchange(hits)],
        note=" ".join(each for each in (note, _hint(hits, archived)) if each),
    )


def _hint(hits: list[Hit], archived: int) -> str:
    if not archived:
        return "Nothing is archived yet: all that was said is still in the context."
    if not hits:
        return f"Nothing was found in {archived:,} originals. Try: fewer words, names as they were written, or facts()."
    return "recall(id=…) gives the whole of any of these."


def _hit(hit: Hit) -> HitOutput:
    """A hit with the lines around it. Those of a turn are counted without its results, and it is recalled with them."""
    around = f"{max(1, hit.first_line - _CONTEXT_LINES)}-{hit.last_line + _CONTEXT_LINES}"
    text = hit.text if len(hit.text) <= _LONGEST_HIT else hit.text[:_LONGEST_HIT] + "…"
    return HitOutput(hit.id, hit.kind, text, "" if hit.id.startswith("turn_") else around, hit.exchange)


def list_turns(place: ToolContext, asked: TurnsInput) -> TurnsOutput:
    """A page of the index of turns."""
    with opened_session(place, asked.session) as found:
        every = found.session.turns(asked.first, asked.last or None, asked.words)
        name, note = found.core.id, found.note
    rows = [TurnOutput(each.id, each.who, each.text, each.tokens, each.is_shown) for each in every]
    pages, shown = page_of_list(rows, lambda turn: len(turn.text) + _CONTEXT_LINES, asked.page, "the turns")
    last = f"last={asked.last}, " if asked.last else ""
    words = f'words="{asked.words}", ' if asked.words else ""
    following = f"list_turns(first={asked.first}, {last}{words}page={asked.page + 1})"
    return TurnsOutput(
        session=name,
        total=len(every),
        page=asked.page,
        pages=pages,
        turns=shown,
        next=following if asked.page < pages else "",
        note=note,
    )


def facts(place: ToolContext, asked: FactsInput) -> FactsOutput:
    """A page of the facts, the newest first."""
    with opened_session(place, asked.session) as found:
        every = found.session.facts(asked.kind or None)
        name, note = found.core.id, found.note
    rows = [_fact(fact) for fact in sorted(every, key=_last_turn, reverse=True)]
    pages, shown = page_of_list(rows, lambda fact: len(fact.line) + _CONTEXT_LINES, asked.page, "the facts")
    kind = f'kind="{asked.kind}", ' if asked.kind else ""
    return FactsOutput(
        session=name,
        total=len(every),
        counts=dict(sorted(Counter(fact.kind for fact in every).items())),
        page=asked.page,
        pages=pages,
        facts=shown,
        next=f"facts({kind}page={asked.page + 1})" if asked.page < pages else "",
        note=note,
    )


def _last_turn(fact: Fact) -> int:
    return fact.last_turn or fact.turn


def _fact(fact: Fact) -> FactOutput:
    ref = fact.ref or f"turn_{_last_turn(fact):03d}"
    line = clip_line(fact_line(fact), _LONGEST_FACT)
    return FactOutput(fact.kind, line, ref, fact.turn, fact.told_by, fact.first_seen, fact.last_seen)


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


def context_status(place: ToolContext, asked: StatusInput) -> StatusOutput:
    """How full the agent's window is, and what there is to get back."""
    with opened_session(place, asked.session) as found:
        core, row, usage = found.core, found.row, found.session.usage()
        made = core.context_reader.log_state().compactions
        stored, shelved = core.row(), core.store.originals(core.id)
        last = report_of(core, made[-1]) if made else None
        reported = last_window_tokens(row.transcript) if row else 0
        tokens, window = reported or usage.tokens, core.profile.window or usage.budget_tokens
        level = level_at(tokens / usage.budget_tokens, core.settings.levels)
        return StatusOutput(
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
            last_compaction=PastOutput(
                last.created_at, clip_line(last.reason, _LONGEST_LINE), last.tokens_before, last.tokens_after
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


def compact_plan(place: ToolContext, asked: PlanInput) -> PlanOutput:
    """What a compaction would do now."""
    with opened_session(place, asked.session) as found:
        core = found.core
        ask = core.ask(
            level=Level(asked.level) if asked.level else None,
            focus=core.without_secrets(asked.focus),
            target_tokens=asked.target_tokens or None,
            kind="manual",
        )
        plan = run_engine(core, ask, core.current_context(), None, dry_run=True)
        name, note = core.id, found.note
    decisions = sorted(plan.decisions, key=lambda each: each.tokens_after - each.tokens_before)
    rows = [_decision(each) for each in decisions]
    pages, shown = page_of_list(
        rows, lambda each: len(each.target) + len(each.reason) + _DECISION_OVERHEAD, asked.page, "the plan"
    )
    report = plan.report
    return PlanOutput(
        session=name,
        status=report.status,
        reason=clip_line(report.reason, _LONGEST_LINE),
        tokens_before=report.tokens_before,
        tokens_after=report.tokens_after,
        tokens_saved=report.tokens_saved,
        tiers=list(_tiers(decisions)),
        page=asked.page,
        pages=pages,
        decisions=shown,
        next=_next_plan_page(asked) if asked.page < pages else "",
        note=f"{note} {_DRY_RUN_NOTE}".strip(),
    )


def _decision(each: Decision) -> DecisionOutput:
    return DecisionOutput(
        clip_line(each.target),
        each.turn,
        each.tier.value,
        clip_line(each.reason),
        each.tokens_before,
        each.tokens_after,
        each.relevance,
        each.ref,
    )


def _tiers(decisions: Sequence[Decision]) -> Iterable[TierOutput]:
    for tier in Tier:
        chosen = [each for each in decisions if each.tier is tier]
        before, after = sum(each.tokens_before for each in chosen), sum(each.tokens_after for each in chosen)
        yield TierOutput(tier.value, len(chosen), before, after)


def _next_plan_page(asked: PlanInput) -> str:
    given = {"level": asked.level, "target_tokens": asked.target_tokens, "focus": asked.focus}
    told = "".join(f"{name}={str(value) if name == 'level' else value!r}, " for name, value in given.items() if value)
    return f"compact_plan({told}page={asked.page + 1})"


def checkpoint(place: ToolContext, asked: CheckpointInput) -> CheckpointOutput:
    """Write where the work stands."""
    with opened_session(place, asked.session) as found:
        text = render_checkpoint(found.session.checkpoint(asked.note))
        project = found.core.project
        return CheckpointOutput(
            session=found.core.id,
            file=str(project.checkpoint_file) if project else "",
            text=text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}\n… the rest is in the file",
            note=found.note,
        )


def handoff(place: ToolContext, asked: HandoffInput) -> HandoffOutput:
    """What somebody who goes on is to be given."""
    with opened_session(place, asked.session) as found:
        facts = all_facts(found.core)
        state = with_task(orchestrator(found.core), asked.feature, asked.spec_path)
        subject = named_task(state, facts)
        tasks = _fact_texts(facts, "task")
        return HandoffOutput(
            session=found.core.id,
            phase=asked.phase,
            task=asked.task or (tasks[-1] if tasks else "go on with what the summary says"),
            feature=subject.feature,
            spec_path=subject.spec_path,
            context_summary=summary_for(found.core, asked.phase),
            constraints=_fact_texts(facts, "constraint"),
            failed=_failures(fact for fact in facts if not may_repeat(fact)),
            failing=_failures(fact for fact in facts if may_repeat(fact) and fact.status != RESOLVED),
            files=[clip_line(path, _LONGEST_LINE) for path in changed_files(facts, state)],
            references=list(references(found.core, state)),
            note=found.note,
        )


def _failures(facts: Iterable[Fact]) -> list[str]:
    return [clip_line(fact_line(fact), _LONGEST_LINE) for fact in facts if fact.kind == "failure"][-_MOST_LISTED:]


def _fact_texts(facts: Sequence[Fact], kind: str) -> list[str]:
    return [clip_line(fact.content, _LONGEST_LINE) for fact in facts if fact.kind == kind][-_MOST_LISTED:]


_HANDLERS: Mapping[str, Callable[[ToolContext, Any], ToolOutput]] = {
    "recall": recall,
    "search_archive": search_archive,
    "list_turns": list_turns,
    "facts": facts,
    "context_status": context_status,
    "compact_plan": compact_plan,
    "checkpoint": checkpoint,
    "handoff": handoff,
}


def run_tool(tool: Tool, place: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
    """Do what is asked. An argument that is null counts as not given; `ValidationError` when one does not fit."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return _HANDLERS[tool.name](place, msgspec.convert(given, tool.asked, strict=False))
