"""The brief that a fresh window begins with: a record of everything before it, written from facts alone.

It has the form of the record that a compaction leaves, so a later compaction merges it line by line, failures stay,
and ids are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from context_compactor.apply.digests.text import clip
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import FILE_STATUSES, cut_failure, ledger_lines, merge_entries
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.worth import is_enough
from context_compactor.measure.count import MessageCounter, message_counter_for
from context_compactor.messages.record import FAILED, FINDINGS, RULES, SECTIONS, STANDING, TASK, Record, render
from context_compactor.messages.references import ID
from context_compactor.plan.options import Line

_FEWEST = 400
_FAILURE_SHARE = 0.4
_FAILURE_LENGTHS = (0, 160, 110, 80, 64, 40)
# Of a long request so many characters for each token of the brief.
_TASK_SHARE = 1 / 8
_HEADINGS = 60
# What comes first when there is not room for everything: the user's rules, how the work stands, what was found.
_FIRST = (
    "doing",
    "blocked",
    "asked",
    "next",
    "running",
    "mode",
    "outside",
    "allowed by the user",
    "denied by the user",
)


def resume_brief(checkpoint: Checkpoint, facts: Sequence[Fact], tokens: int) -> str:
    """What a fresh window is given to start with, in at most so many tokens, the most important first.

    The task and every failure that is not resolved are always there: failures are cut short before they take too much,
    and only they may lift the brief above `tokens`. Of the rest, what does not fit is counted and can be looked up.
    """
    if not is_enough(tokens, _FEWEST):
        raise BadSetting(
            f"resume: tokens={tokens!r:.40} is no room for a brief; {_FEWEST} are the least, 4000 are good"
        )
    counter = message_counter_for(None, "openai-chat")
    lines = [*ledger_lines(_told_once(facts, tokens)), *_own_lines(checkpoint)]
    fixed, rest = _always(lines, tokens, counter)
    counts = _counts(checkpoint, facts)
    base = counter.text(render(_record([*fixed, _way_back(len(rest))], counts)))
    chosen = _fitting(rest, tokens - base - _HEADINGS, counter)
    while True:
        left = _way_back(len(rest) - len(chosen))
        text = render(_record([*fixed, *chosen, left], counts))
        if not chosen or counter.text(text) <= tokens:
            return text
        chosen.pop()


def _told_once(facts: Sequence[Fact], tokens: int) -> Iterator[Fact]:
    """The facts, with long requests cut; a command that failed is told by its failure."""
    most = int(tokens * _TASK_SHARE)
    for fact in facts:
        if fact.kind == "task":
            detail = clip(fact.detail, max(0, most - len(fact.content)))
            yield structs.replace(fact, content=clip(fact.content, most), detail=detail)
        elif (fact.kind, fact.status) != ("command", "failed"):
            yield fact


def _own_lines(checkpoint: Checkpoint) -> Iterator[Line]:
    """What only the checkpoint knows."""
    told = {"phase": checkpoint.phase, "note": checkpoint.note, "git": checkpoint.git.line() if checkpoint.git else ""}
    yield from (Line(STANDING, clip(text, 400), 0, True, name) for name, text in told.items() if text)
    for at, line in enumerate(checkpoint.archive):
        yield Line(STANDING, f"archived: {clip(line.summary)}, {line.tokens:,} tokens ({line.id})", at)


def _way_back(left_out: int) -> Line:
    more = f", {left_out:,} of which did not fit in here" if left_out else ""
    text = f'originals: `compactor recall ID`, `compactor recall --search "words"`; facts: `compactor facts`{more}'
    return Line(STANDING, text, 0, True)


def _always(lines: Sequence[Line], tokens: int, counter: MessageCounter) -> tuple[list[Line], list[Line]]:
    """The lines that stay whatever the room, and the others: the task as it was first given and as it is now."""
    failures = [line for line in lines if line.section == FAILED and line.must]
    tasks = [line for line in lines if line.section == TASK]
    kept = [line for line in tasks if line.must] or tasks[-1:]
    kept = [*(line for line in tasks[:1] if line not in kept), *kept[-1:]]
    rest = [line for line in lines if line not in failures and line not in kept]
    return [*kept, *_short_failures(failures, tokens, counter)], rest


def _short_failures(failures: Sequence[Line], tokens: int, counter: MessageCounter) -> list[Line]:
    short = list(failures)
    for most in _FAILURE_LENGTHS:
        short = [structs.replace(line, text=cut_failure(line.text, most)) for line in failures]
        if sum(counter.texts([line.text for line in short])) <= _FAILURE_SHARE * tokens:
            break
    return short


def _rank(line: Line) -> int:
    if line.section == STANDING:
        return 1 if line.status in _FIRST else 3 if line.status in FILE_STATUSES else 5
    return {RULES: 0, FINDINGS: 2, TASK: 4, FAILED: 6}[line.section]


def _fitting(lines: Sequence[Line], room: int, counter: MessageCounter) -> list[Line]:
    """As many lines as there is room for: what must be known first, then section by section, the newest first."""
    ordered = sorted(lines, key=lambda line: (not line.must, _rank(line), -line.turn))
    chosen: list[Line] = []
    for line, cost in zip(ordered, counter.texts([f"\n- {line.written}" for line in ordered]), strict=True):
        if cost <= room:
            chosen.append(line)
            room -= cost
    return chosen


def _counts(checkpoint: Checkpoint, facts: Sequence[Fact]) -> Record:
    """A record of nothing but its size. No id that is known may be given again, even if the history was not counted."""
    known = " ".join((*(fact.ref for fact in facts), *(line.id for line in checkpoint.archive)))
    numbers = [(prefix, int(number)) for prefix, _, number in (ref.partition("_") for ref in ID.findall(known))]
    span = checkpoint.span
    turns = [span.turns, *(max(fact.turn, fact.last_turn) for fact in facts)]
    return Record(
        messages=span.messages,
        tokens=span.tokens,
        turns=max(*turns, *(number for prefix, number in numbers if prefix == "turn"), 0),
        calls=max(span.calls, *(number for prefix, number in numbers if prefix != "turn"), 0),
    )


def _record(lines: Sequence[Line], counts: Record) -> Record:
    sections = {
        title: tuple(merge_entries(line.entry for line in _in_order(lines, title)))
        for title in SECTIONS
        if any(line.section == title for line in lines)
    }
    return structs.replace(counts, sections=sections)


def _in_order(lines: Sequence[Line], title: str) -> list[Line]:
    return sorted((line for line in lines if line.section == title), key=lambda line: line.turn)
