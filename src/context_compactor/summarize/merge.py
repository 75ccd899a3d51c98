"""Merges a model's summary into the record that the engine wrote, within the same target."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from context_compactor.dialects.record import (
    FAILED,
    FINDINGS,
    RULES,
    STANDING,
    TASK,
    Excerpt,
    Quote,
    Record,
    RecordEntry,
    StoryLine,
    entry_line,
    render_record,
    story_text,
)
from context_compactor.dialects.turns import reference_id
from context_compactor.engine.apply import WrittenContext
from context_compactor.engine.compact import write_context
from context_compactor.engine.explain import explain_decisions
from context_compactor.engine.layouts import Room, Zone
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import ModelCall
from context_compactor.engine.required import root_line
from context_compactor.engine.result import CompactionResult, build_result
from context_compactor.engine.tiers import Tier
from context_compactor.engine.verify import find_damage
from context_compactor.facts.ledgers import FILE_STATUSES
from context_compactor.summarize.evidence import LineIndex, names_in, paths_in, plain_words
from context_compactor.summarize.summary import Summary, fit_summary

# How much of the record's room a model is asked to fill; the rest is for what the ledgers know and it leaves out.
_ASKED = 0.95
_MOST_TOKENS = 6_000
_LEAST_TOKENS = 300
# A record has this share of the target at least, and as many tokens, where the target is not very small.
_LEAST_SHARE = 0.08
_SHORT_RECORD = 500
_LEAST_TARGET = 1_500
_ROUNDS = 6
# So long a name in an error identifies it, unless it is a file's.
_LONG = 15
_SOURCE = re.compile(r" \((?:×\d+, )?(?:turns \d+-\d+, )?(?:turn|tool|file|agent)_\d+\)$")
# In which order lines of the ledgers are added: by their section, and by the statuses that matter most in it.
_ADDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (RULES, ()),
    (FAILED, ("open", "")),
    (
        STANDING,
        ("uncommitted", "outside", "allowed by the user", "denied by the user", "running", "blocked"),
    ),
    (STANDING, ("asked", "next", "committed", "created", "deleted")),
    (FINDINGS, ()),
    (FAILED, ("given up", "resolved")),
)


def record_room(result: CompactionResult) -> int:
    """The tokens that the target leaves for a record, beside the turns that stay."""
    written, count = result.context.written, result.run.config.counter.text
    target = result.run.effective_goal.target
    return target - (written.tokens - count(render_record(written.record))) if written.record else 0


def summary_tokens(result: CompactionResult) -> int:
    """How long a summary is asked for; 0 when there is no room for one."""
    if result.record is None:
        return 0
    fixed = result.run.config.counter.text(render_record(_bare(result.record)))
    tokens = min(int(_ASKED * (record_room(result) - fixed)), _MOST_TOKENS)
    return tokens if tokens >= _LEAST_TOKENS else 0


class FixedLayout(Struct, frozen=True):
    """The layout of a result that was made already."""

    kept: dict[int, Zone]
    name: str = "as before"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """The zones as they were."""
        return {turn.number: self.kept[turn.number] for turn in room.turns}


def with_room(result: CompactionResult) -> CompactionResult:
    """The result with room for a record of some length: where the engine has left little, the rest is made shorter."""
    run, goal = result.run, result.run.effective_goal
    wanted = min(max(int(_LEAST_SHARE * goal.target), _SHORT_RECORD), _MOST_TOKENS)
    asked = summary_tokens(result)
    if result.record is None or not result.folded or goal.target < _LEAST_TARGET or asked >= wanted:
        return result
    missing = int((wanted - asked) / _ASKED) + 1
    layout = FixedLayout(result.context.composer.view.zones)
    config = structs.replace(run.config, layouts=(layout,), custom_layouts=())
    lower = structs.replace(goal, target=goal.target - missing)
    context = write_context(run.parsed, lower, config)
    if context.damage or context.written.record is None or context.written.tokens > lower.target:
        return result
    return structs.replace(result, context=context)


def _bare(record: Record) -> Record:
    """A record with nothing but its frame and the user's task."""
    return structs.replace(record, sections={}, happened=(), excerpts=())


def place_summary(result: CompactionResult, summary: Summary, model: str) -> tuple[CompactionResult | None, str]:
    """The compaction with a summary as its record, within the target, or what was wrong."""
    own = result.record
    if own is None:
        return None, "there is no record whose place it could take"
    target, room = result.run.effective_goal.target, record_room(result)
    for _ in range(_ROUNDS):
        record = merge_record(summary, own, room, result.run.config.counter.text)
        if record is None:
            return None, "there is no room for it"
        written = result.context.composer.write_record(record, result.context.written.texts)
        if written.tokens <= target:
            break
        room -= written.tokens - target
    else:
        return None, "with it the context would not fit"
    placed = _with_record(result, written, model)
    if placed.report.status != "success" or not placed.report.changed:
        return None, placed.report.reason or "with it the context would not be smaller"
    return placed, ""


def merge_record(summary: Summary, own: Record, room: int, count: Callable[[str], int]) -> Record | None:
    """A summary as a record of so many tokens, with what only the engine's own has; None if nothing fits."""
    root = root_line(own)
    left = room - count(render_record(_bare(own))) - (count(root) + 4 if root else 0)
    words = structs.replace(summary, sections=_without_quoted(summary.sections, own.quotes))
    fitted, _ = fit_summary(words, left - _needed(words, own, left, count), count)
    if not fitted:
        return None
    left -= count(_body(fitted))
    sections = {title: list(entries) for title, entries in fitted.sections.items()}
    happened = list(fitted.happened)
    lines = [*fitted.lines(), *(quote.text for quote in own.quotes)]
    covered = LineIndex(lines)
    for title, entry in _known(own):
        cost = count(f"- {entry_line(title, entry)}") + 1
        if cost <= left and entry.text != root and not _is_covered(entry, covered):
            sections.setdefault(title, []).append(entry)
            left -= cost
    quoted = {line.turn for line in happened if line.voice == "user"}
    spoken = [line for line in own.happened if line.voice == "user" and line.turn not in quoted]
    left = _add_lines(happened, spoken, covered, left, count)
    excerpts, left = _more_lines(fitted.excerpts, own.excerpts, left, count)
    known = LineIndex([*lines, *(entry.text for entries in sections.values() for entry in entries)])
    _add_lines(happened, [line for line in own.happened if line.voice != "user"], known, left, count)
    if root:
        sections[STANDING] = [RecordEntry(root), *sections.get(STANDING, [])]
    return structs.replace(
        own,
        sections={title: tuple(entries) for title, entries in sections.items()},
        happened=tuple(sorted(happened, key=lambda line: line.turn)),
        excerpts=excerpts,
    )


def _needed(summary: Summary, own: Record, left: int, count: Callable[[str], int]) -> int:
    """The room that is kept free for rules, open failures and changed files that a summary leaves out."""
    covered = LineIndex(summary.lines())
    untold = [entry_line(title, entry) for title, entry in _known(own, _ADDED[:3]) if not _is_covered(entry, covered)]
    return min(sum(count(f"- {line}") + 1 for line in untold), int((1 - _ASKED) * left))


def _body(summary: Summary) -> str:
    """A summary as it stands in a record."""
    record = Record(0, 0, 0, 0, (), summary.sections, summary.happened, summary.excerpts)
    return render_record(record).partition("\n")[2]


def _without_quoted(
    sections: dict[str, tuple[RecordEntry, ...]], quotes: Sequence[Quote]
) -> dict[str, tuple[RecordEntry, ...]]:
    """The sections without words of the task that the record quotes already."""
    words = plain_words("\n".join(quote.text for quote in quotes))
    entries = [
        entry
        for entry in sections.get(TASK, ())
        # Where words were left out of an entry it is compared piece by piece.
        if not entry.text.startswith('"')
        or not all(plain_words(piece) in words for piece in _SOURCE.sub("", entry.text).split("…"))
    ]
    kept = sections | {TASK: tuple(entries)}
    return {title: lines for title, lines in kept.items() if lines}


def _known(own: Record, places: Sequence[tuple[str, tuple[str, ...]]] = _ADDED) -> Iterator[tuple[str, RecordEntry]]:
    """What the ledgers know, in the order of its worth; the newest lines stand last in a section."""
    for title, statuses in places:
        for entry in reversed(own.sections.get(title, ())):
            if not statuses or entry.status in statuses:
                yield title, entry


def _is_covered(entry: RecordEntry, covered: LineIndex) -> bool:
    """Whether the summary has what a line of the ledgers says; of a file its name is enough."""
    body = _SOURCE.sub("", entry.text)
    tried, is_failure, rest = body.partition(" → ")
    if is_failure and entry.status not in FILE_STATUSES:
        error = rest.partition(" → ")[0]  # without what came of it
        places = " ".join(paths_in(error))
        names = [name for name in names_in(error) if len(name) > _LONG and name not in places]
        return covered.both(tried, error) or any(name in covered.text for name in names)
    names = [path.rstrip("/").rpartition("/")[2] for path in paths_in(body)] if entry.status in FILE_STATUSES else []
    return all(name in covered.text for name in names) if names else covered.says(body)


def _add_lines(
    happened: list[StoryLine], lines: Sequence[StoryLine], covered: LineIndex, room: int, count: Callable[[str], int]
) -> int:
    """Add lines of the engine's own story that are not there yet, the newest first; the room that is left."""
    for line in reversed(lines):
        cost = count(story_text(line)) + 1
        if cost <= room and not covered.says(line.text):
            happened.append(line)
            room -= cost
    return room


def _more_lines(
    first: Sequence[Excerpt], own: Sequence[Excerpt], room: int, count: Callable[[str], int]
) -> tuple[tuple[Excerpt, ...], int]:
    """The summary's exact lines, and those of the engine in what room is left: the newest of them; and what is left."""
    shown = {line for excerpt in first for line in excerpt.lines}
    kept: list[Excerpt] = []
    for excerpt in reversed(own):
        cost = count("\n".join((f"[{excerpt.ref} {excerpt.label}]", *excerpt.lines))) + 2
        if cost <= room and not shown.issuperset(excerpt.lines):
            kept.append(excerpt)
            room -= cost
    return (*reversed(kept), *first), room


def _with_record(result: CompactionResult, written: WrittenContext, model: str) -> CompactionResult:
    """The result with a context whose record a model wrote."""
    damage = find_damage(result.run.parsed.messages, written.messages, result.run.config.dialect)
    context = structs.replace(result.context, written=written, damage=damage)
    placed = build_result(result.run, context, tuple(_decisions_after(result, written)))
    return structs.replace(placed, report=structs.replace(placed.report, summarized_by=model))


def _decisions_after(result: CompactionResult, written: WrittenContext) -> Iterator[Decision]:
    """What was decided; a text of which no line stands in the record any more is in the model's summary."""
    shown = {excerpt.ref for excerpt in written.record.excerpts} if written.record else set()
    folded = {turn.number for turn in result.folded}
    for decision in explain_decisions(result.context.composer, result.context.cut, result.context.written.detached):
        is_shown = {decision.ref, reference_id("turn", max(decision.turn, 0))} & shown
        if decision.turn in folded and not is_shown and decision.tier in (Tier.KEEP, Tier.SUMMARIZE):
            changes = {"strategy": "summarizer", "reason": "in the summarizer's record", "tokens_after": 0}
            yield structs.replace(decision, tier=Tier.SUMMARIZE, **changes)
        else:
            yield decision


def with_model_calls(result: CompactionResult, calls: tuple[ModelCall, ...], reason: str) -> CompactionResult:
    """A result whose report says which calls were made and, beside what it says already, why it is as it is."""
    report = result.report
    both = "; ".join(text for text in (report.reason, reason) if text)
    spent = result.run.report_head()["duration_ms"]
    return structs.replace(result, report=structs.replace(report, reason=both, model_calls=calls, duration_ms=spent))
