"""What each tool does: recall and search, facts and turns, window status, plan, checkpoint and handoff, in pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from context_compactor.agents.transcript_tail import last_window_tokens
from context_compactor.archive.search.passages import Hit, group_by_exchange
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED, may_repeat
from context_compactor.facts.ledgers import fact_line
from context_compactor.handoff.checkpoint_text import render_checkpoint
from context_compactor.handoff.orchestrator import named_task, with_task
from context_compactor.mcp import schemas
from context_compactor.mcp.session_scope import OpenedSession, in_any_branch, opened_session
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


def recall(found: OpenedSession, given: schemas.RecallInput) -> schemas.RecallOutput:
    """A page of an original."""
    output = in_any_branch(found, lambda core: _recalled(core, given))
    return (
        output
        if output.session == found.core.id
        else structs.replace(output, note=_notes(output.note, _EARLIER_BRANCH))
    )


def _recalled(core: Core, given: schemas.RecallInput) -> schemas.RecallOutput:
    ref = given.id.strip().strip("`\"'[]()")
    original = find_original(core, ref)
    before, text = _lines(original_text(core, ref), original.id, given.lines)
    pages, first, last, piece = page_of_text(text, given.page, ref)
    core.emit("item.recalled", ref=ref, page=given.page)
    return schemas.RecallOutput(
        session=core.id,
        id=original.id,
        kind=original.kind,
        summary=clip_line(original.summary),
        page=given.page,
        pages=pages,
        first_line=before + first,
        last_line=before + last,
        text=piece,
        next=_next_call("recall", structs.replace(given, id=original.id), pages),
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


def search_archive(found: OpenedSession, given: schemas.SearchInput) -> schemas.SearchOutput:
    """Lines of originals that answer a question."""
    hits = found.session.search(given.text, limit=given.limit, tokens=PAGE_TOKENS, kind=given.kind)
    archived = len(found.core.store.originals(found.core.id))
    return schemas.SearchOutput(
        session=found.core.id,
        query=clip_line(given.text, 200),
        archived=archived,
        hits=[_hit(hit) for hit in group_by_exchange(hits)],
        note=_hint(hits, archived),
    )


def _hint(hits: list[Hit], archived: int) -> str:
    if not archived:
        return "Nothing is archived yet: all that was said is still in the context."
    if not hits:
        return f"Nothing was found in {archived:,} originals. Try: fewer words, names as they were written, or facts()."
    return "recall(id=…) gives the whole of any of these."


def _hit(hit: Hit) -> schemas.HitOutput:
    """A hit with the lines around it. Those of a turn are counted without its results, and it is recalled with them."""
    around = f"{max(1, hit.first_line - _CONTEXT_LINES)}-{hit.last_line + _CONTEXT_LINES}"
    text = hit.text if len(hit.text) <= _LONGEST_HIT else hit.text[:_LONGEST_HIT] + "…"
    return schemas.HitOutput(hit.id, hit.kind, text, "" if hit.id.startswith("turn_") else around, hit.exchange)


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
        next=_next_call("list_turns", given, pages),
    )


def facts(found: OpenedSession, given: schemas.FactsInput) -> schemas.FactsOutput:
    """A page of the facts, the newest first."""
    every = found.session.facts(given.kind or None)
    rows = [_fact(fact) for fact in sorted(every, key=_last_turn, reverse=True)]
    pages, shown = page_of_list(rows, lambda fact: len(fact.line) + _CONTEXT_LINES, given.page, "the facts")
    return schemas.FactsOutput(
        session=found.core.id,
        total=len(every),
        counts=dict(sorted(Counter(fact.kind for fact in every).items())),
        page=given.page,
        pages=pages,
        facts=shown,
        next=_next_call("facts", given, pages),
    )


def _last_turn(fact: Fact) -> int:
    return fact.last_turn or fact.turn


def _fact(fact: Fact) -> schemas.FactOutput:
    ref = fact.ref or f"turn_{_last_turn(fact):03d}"
    line = clip_line(fact_line(fact), _LONGEST_FACT)
    return schemas.FactOutput(fact.kind, line, ref, fact.turn, fact.summarized_by, fact.first_seen, fact.last_seen)


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
        next=_next_call("compact_plan", given, pages),
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


_HANDLERS: Mapping[str, Callable[[OpenedSession, Any], schemas.ToolAnswer]] = {
    handler.__name__: handler
    for handler in (recall, search_archive, list_turns, facts, context_status, compact_plan, checkpoint, handoff)
}


def run_tool(tool: Tool, context: ToolContext, arguments: Mapping[str, Any]) -> schemas.ToolAnswer:
    """Run a tool. An argument that is null counts as not given; `ValidationError` when one does not fit."""
    given = {name: value for name, value in arguments.items() if value is not None}
    checked = msgspec.convert(given, tool.input, strict=False)
    with opened_session(context, checked.session) as found:
        output = _HANDLERS[tool.name](found, checked)
    return structs.replace(output, note=_notes(found.note, output.note))


def _notes(*notes: str) -> str:
    return " ".join(filter(None, notes))


def _next_call(tool: str, given: schemas.PagedInput, pages: int) -> str:
    """The call that gives the following page; nothing when this is the last one."""
    fields = {name: value for name, value in structs.asdict(given).items() if value and name not in ("session", "page")}
    arguments = [f"{field}={json.dumps(value, ensure_ascii=False)}" for field, value in fields.items()]
    return f"{tool}({', '.join([*arguments, f'page={given.page + 1}'])})" if given.page < pages else ""
