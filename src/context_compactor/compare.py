"""One compaction made twice: without a model, and again with what one has said. The second may only be used if it is
no worse: what fits, which failures and facts are told, what can be recalled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.apply.fidelity import context_text
from context_compactor.classify.names import NameTable, shape_worth
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.messages.record import STORY, entry_line
from context_compactor.messages.turn import Turn
from context_compactor.plan.goal import Goal
from context_compactor.plan.sources import call_body
from context_compactor.plan.zones import Room, Zone
from context_compactor.report import ModelCall
from context_compactor.settle import Request, Settled, aim, settle
from context_compactor.summary.losses import Lost, find_losses, repair
from context_compactor.summary.shape import Prose, fit_prose, to_entries
from context_compactor.summary.subject import story_tokens
from context_compactor.summary.write import REPAIR_SHARE

# How much of its room a story takes; less when it would push out what is in use.
_SHORTER = (1.0, 0.5, 0.25)
# Hyphenated words, acronyms and numbers are names that hardly anybody asks for again.
_HARDLY = 0.1
_SHARES = ("failures_share", "pins_share", "recallable_share")


class Job(Struct, frozen=True):
    """One compaction that was made already: what was asked, what it works with, and what came out."""

    request: Request
    goal: Goal
    scene: flow.Scene
    kit: flow.Kit
    digest: Settled

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

    def again(self, kit: flow.Kit) -> Settled:
        """The same once more with another kit."""
        outcome = flow.compact(self.scene, aim(self.goal, self.request), kit)
        return settle(self.request, self.goal, self.scene, outcome)


class SameLayout(Struct, frozen=True):
    """The layout of a result that was made already: a few tokens more or less must not turn a context around."""

    kept: dict[int, Zone]
    name: str = "as before"

    def zones(self, room: Room) -> dict[int, Zone] | None:
        """The zones as they were."""
        return {turn.number: self.kept[turn.number] for turn in room.turns}


def place(job: Job, prose: Prose) -> tuple[Job, str]:
    """The compaction with this prose, shortened where it takes too much room, and what is wrong with it."""
    first = ""
    for share in _SHORTER:
        room = int(story_tokens(job.goal.target) * share)
        shorter = prose if share == 1 else fit_prose(prose, room, job.kit.counter.text)[0]
        told, wrong = _placed(job, shorter, room) if shorter else (job, "nothing of it is left")
        if not wrong:
            return told, ""
        first = first or wrong
    return job, first


def _placed(job: Job, prose: Prose, room: int) -> tuple[Job, str]:
    """What the story pushed out is put into it, once."""
    told = _retold(job, prose)
    lost = pushed_out(job, told.digest)
    if lost:
        prose, left = repair(prose, lost, int(room * REPAIR_SHARE), job.kit.counter.text)
        told = _retold(job, prose) if not left else told
        lost = left or pushed_out(job, told.digest)
    record = told.digest.outcome.written.record
    if record is None or STORY not in record.sections:
        return told, "there is no room for it"
    return told, worse(told.digest, job.digest, lost) or _used_names_lost(job, told.digest)


def _retold(job: Job, prose: Prose) -> Job:
    """The job with a story. At a level the story comes on top; a target that somebody asked for is kept with it."""
    entries = to_entries(prose)
    section = "\n".join((STORY, *(f"- {entry_line(STORY, entry)}" for entry in entries)))
    story = job.kit.counter.text(section) if job.request.ask.target_tokens is None else 0
    longer = structs.replace(job, goal=structs.replace(job.goal, target=job.goal.target + story))
    same = SameLayout(job.digest.outcome.composer.view.zones)
    kit = structs.replace(job.kit, story=entries, ladder=(same,))
    return structs.replace(longer, kit=kit, digest=longer.again(kit))


def _used_names_lost(job: Job, made: Settled) -> str:
    """Which names the user or the agent has used could be read before, and cannot be any more."""
    names = NameTable()
    used = names.ids("\n".join(_spoken(job.scene.turns)))
    before = names.ids(context_text(job.digest.outcome.written.messages))
    gone = (used & before) - names.ids(context_text(made.outcome.written.messages))
    lost = [name for name in sorted(gone) if shape_worth(names.names[name]) > _HARDLY]
    return f"{len(lost):,} names in use could not be read any more ({names.names[lost[0]]})" if lost else ""


def _spoken(turns: Sequence[Turn]) -> Iterator[str]:
    yield from (saying.text for saying in (*user_sayings(turns), *agent_sayings(turns)))
    yield from (call_body(each.call) for turn in turns for each in turn.exchanges if each.call)


def pushed_out(job: Job, made: Settled) -> list[Lost]:
    """Facts that the result of the job tells, and another one does not."""
    before = {lost.fact for lost in _untold(job.scene.facts, job.digest)}
    return [lost for lost in _untold(job.scene.facts, made) if lost.fact not in before]


def _untold(facts: Sequence[Fact], made: Settled) -> list[Lost]:
    written = made.outcome.written
    return find_losses(Prose(), facts, context_text(written.messages), frozenset(written.cited()))


def worse(made: Settled, digest: Settled, lost: Sequence[Lost]) -> str:
    """In which way a result is worse than the one before; empty when in none."""
    if made.report.status != "success" or not made.report.changed:
        return "with it the context would not fit"
    if lost:
        return f"it leaves no room for {len(lost):,} facts ({lost[0].code})"
    for name in _SHARES:
        if (getattr(made.report.metrics, name) or 0.0) < (getattr(digest.report.metrics, name) or 0.0):
            return f"{name} would be lower"
    more = len(made.report.fidelity.missing) - len(digest.report.fidelity.missing)
    return f"{more:,} more names could neither be read nor recalled" if more > 0 else ""


def noted(job: Job, made: Settled, calls: tuple[ModelCall, ...], reason: str) -> Settled:
    """A result whose report says which calls were made and, beside what it says already, why it is as it is."""
    report = made.report
    both = "; ".join(text for text in (report.reason, reason) if text)
    spent = job.request.head()["duration_ms"]
    return structs.replace(made, report=structs.replace(report, reason=both, model_calls=calls, duration_ms=spent))
