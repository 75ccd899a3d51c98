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
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.engine import compact as flow
from context_compactor.engine.apply import WrittenContext
from context_compactor.engine.decisions import explain_decisions
from context_compactor.engine.layouts import Room, Zone
from context_compactor.engine.plan import Decision
from context_compactor.engine.report import ModelCall
from context_compactor.engine.request import Goal
from context_compactor.engine.required import root_line
from context_compactor.engine.result import CompactionResult, PreparedRequest, build_result, effective_goal
from context_compactor.engine.tiers import Tier
from context_compactor.engine.verify import find_damage
from context_compactor.facts.fact import Fact
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


class EngineCompaction(Struct, frozen=True):
    """One compaction that was made already: what was asked, what it works with, and what came out."""

    request: PreparedRequest
    goal: Goal
    scene: flow.ParsedContext
    config: flow.EngineConfig
    digest: CompactionResult

    @property
    def folded(self) -> list[Turn]:
        """The turns that leave the context."""
        view = self.digest.outcome.composer.view
        return [turn for turn in view.turns if view.zones[turn.number] is Zone.FOLDED]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is known of these turns."""
        gone = {turn.number for turn in self.folded}
        return tuple(fact for fact in self.scene.facts if fact.turn in gone or fact.last_turn in gone)

    @property
    def record(self) -> Record | None:
        """The record that the engine wrote."""
        return self.digest.outcome.written.record

    @property
    def room(self) -> int:
        """The tokens that the target leaves for a record, beside the turns that stay."""
        written, count = self.digest.outcome.written, self.config.counter.text
        target = effective_goal(self.goal, self.request).target
        return target - (written.tokens - count(render_record(written.record))) if written.record else 0

    @property
    def summary_tokens(self) -> int:
        """How long a summary is asked for; 0 when there is no room for one."""
        if self.record is None:
            return 0
        fixed = self.config.counter.text(render_record(_bare(self.record)))
        tokens = min(int(_ASKED * (self.room - fixed)), _MOST_TOKENS)
        return tokens if tokens >= _LEAST_TOKENS else 0


class FixedLayout(Struct, frozen=True):
    """The layout of a result that was made already."""

    kept: dict[int, Zone]
    name: str = "as before"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """The zones as they were."""
        return {turn.number: self.kept[turn.number] for turn in room.turns}


def with_room(job: EngineCompaction) -> EngineCompaction:
    """The job with room for a record of some length: where the engine has left little, the rest is made shorter."""
    target = effective_goal(job.goal, job.request).target
    wanted = min(max(int(_LEAST_SHARE * target), _SHORT_RECORD), _MOST_TOKENS)
    if job.record is None or not job.folded or target < _LEAST_TARGET or job.summary_tokens >= wanted:
        return job
    missing = int((wanted - job.summary_tokens) / _ASKED) + 1
    config = structs.replace(job.config, layouts=(FixedLayout(job.digest.outcome.composer.view.zones),))
    lower = structs.replace(effective_goal(job.goal, job.request), target=target - missing)
    outcome = flow.compact_context(job.scene, lower, config)
    if outcome.damage or outcome.written.record is None or outcome.written.tokens > lower.target:
        return job
    return structs.replace(job, digest=structs.replace(job.digest, outcome=outcome))


def _bare(record: Record) -> Record:
    """A record with nothing but its frame and the user's task."""
    return structs.replace(record, sections={}, happened=(), excerpts=())


def place_summary(job: EngineCompaction, summary: Summary, model: str) -> tuple[CompactionResult | None, str]:
    """The compaction with a summary as its record, within the target, or what was wrong."""
    own = job.record
    if own is None:
        return None, "there is no record whose place it could take"
    target, room = effective_goal(job.goal, job.request).target, job.room
    for _ in range(_ROUNDS):
        record = merge_record(summary, own, room, job.config.counter.text)
        if record is None:
            return None, "there is no room for it"
        outcome = job.digest.outcome
        written = outcome.composer.write_record(record, outcome.written.texts)
        if written.tokens <= target:
            break
        room -= written.tokens - target
    else:
        return None, "with it the context would not fit"
    made = _settled(job, written, model)
    if made.report.status != "success" or not made.report.changed:
        return None, made.report.reason or "with it the context would not be smaller"
    return made, ""


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


def _settled(job: EngineCompaction, written: WrittenContext, model: str) -> CompactionResult:
    outcome = job.digest.outcome
    damage = find_damage(job.scene.messages, written.messages, job.config.dialect)
    decisions = tuple(_decisions_after(job, written))
    made = build_result(
        job.request, job.goal, job.scene, structs.replace(outcome, written=written, damage=damage), decisions
    )
    return structs.replace(made, report=structs.replace(made.report, told_by=model))


def _decisions_after(job: EngineCompaction, written: WrittenContext) -> Iterator[Decision]:
    """What was decided; a text of which no line stands in the record any more is in the model's summary."""
    outcome = job.digest.outcome
    shown = {excerpt.ref for excerpt in written.record.excerpts} if written.record else set()
    folded = {turn.number for turn in job.folded}
    for decision in explain_decisions(outcome.composer, outcome.cut):
        is_shown = {decision.ref, reference_id("turn", max(decision.turn, 0))} & shown
        if decision.turn in folded and not is_shown and decision.tier in (Tier.KEEP, Tier.SUMMARIZE):
            changes = {"strategy": "summarizer", "reason": "told in the model's record", "tokens_after": 0}
            yield structs.replace(decision, tier=Tier.SUMMARIZE, **changes)
        else:
            yield decision


def with_model_calls(
    job: EngineCompaction, made: CompactionResult, calls: tuple[ModelCall, ...], reason: str
) -> CompactionResult:
    """A result whose report says which calls were made and, beside what it says already, why it is as it is."""
    report = made.report
    both = "; ".join(text for text in (report.reason, reason) if text)
    spent = job.request.head()["duration_ms"]
    return structs.replace(made, report=structs.replace(report, reason=both, model_calls=calls, duration_ms=spent))
