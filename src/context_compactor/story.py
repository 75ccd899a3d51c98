"""The same compaction with a story: a model tells what is folded, and the digest stands wherever that would be worse.

The engine has run without a model already, so there is always a context that can be used. The story is written
beside it, put in by a second run, and the two results are compared: what fits, which failures and facts are told, what
can be recalled. Only a result that loses nothing against the first one takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.apply.fidelity import context_text
from context_compactor.errors import BadSetting, ModelStopped
from context_compactor.facts.fact import Fact
from context_compactor.levels import Level
from context_compactor.llm.limited import LimitedModel
from context_compactor.llm.model import Control
from context_compactor.llm.names import FORMS, open_model
from context_compactor.measure.triggers import Trigger
from context_compactor.messages.turn import Turn
from context_compactor.plan.goal import Goal
from context_compactor.plan.zones import Zone
from context_compactor.prompts.prompt import load_prompt
from context_compactor.protocols import Model
from context_compactor.report import ModelCall
from context_compactor.settings import Settings
from context_compactor.settle import Request, Settled, aim, settle
from context_compactor.summary.losses import Lost, find_losses, repair
from context_compactor.summary.shape import Prose, from_record, to_lines
from context_compactor.summary.subject import Limits, Subject, SummaryOutcome, story_tokens
from context_compactor.summary.write import REPAIR_SHARE, write_summary

_SHARES = ("failures_share", "pins_share", "recallable_share")
_REASONS_SHOWN = 2
_LONGEST_REASON = 200


class Job(Struct, frozen=True):
    """One compaction that was made without a model: what was asked, what it works with, and what came out."""

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

    def with_story(self, prose: Prose) -> Settled:
        """The same once more, with prose in the record."""
        kit = structs.replace(self.kit, story=to_lines(prose))
        outcome = flow.compact(self.scene, aim(self.goal, self.request), kit)
        return settle(self.request, self.goal, self.scene, outcome)


class Teller:
    """A model with all it needs to tell stories. Requests that failed are remembered and not sent again."""

    def __init__(self, model: Model, settings: Settings, on_text: Callable[[str], None] | None = None) -> None:
        self.model = model
        self.cancel = Event()
        """Set it to end a call that is under way: the compaction then raises `ModelStopped` and changes nothing."""
        self._settings = settings
        self._prompt = load_prompt(settings)
        self._on_text = on_text
        self._failed: frozenset[str] = frozenset()

    def tell(self, request: Request, goal: Goal, scene: flow.Scene, kit: flow.Kit, digest: Settled) -> Settled:
        """The compaction with a story, or as it was; the report has every call, and why there is no story."""
        job = Job(request, goal, scene, kit, digest)
        if not digest.report.changed or not (is_told(request.trigger) or request.trigger.level is Level.EMERGENCY):
            return digest
        why = reason_to_skip(job)
        if why:
            return _noted(job, digest, (), f"no model was asked: {why}")
        told = self._ask(job)
        if told.prose is None:
            return _noted(job, digest, told.calls, self._refusal(_objections(told)))
        made, wrong = _placed(job, told.prose)
        if wrong:
            return _noted(job, digest, told.calls, self._refusal(wrong))
        made = structs.replace(made, report=structs.replace(made.report, told_by=self.model.name))
        return _noted(job, made, told.calls, "")

    def _ask(self, job: Job) -> SummaryOutcome:
        settings, count = self._settings, job.kit.counter.text
        written = job.digest.outcome.written
        standing, reachable = context_text(written.messages), frozenset(written.cited())
        untold = find_losses(Prose(), job.facts, standing, reachable)
        subject = Subject(
            turns=job.folded,
            facts=job.facts,
            previous=from_record(job.scene.past),
            standing=standing,
            reachable=reachable,
            focus=job.kit.focus,
            untold=frozenset(lost.fact for lost in untold),
        )
        deadline = time.monotonic() + max(settings.deadline_seconds - (time.perf_counter() - job.request.began), 0.0)
        control = Control(deadline, self.cancel, self._on_text)
        limits = Limits(tokens=story_tokens(job.goal.target), prices=settings.prices)
        limited = LimitedModel(self.model, settings, count)
        try:
            told = write_summary(limited, subject, control, count, limits, self._prompt, self._failed)
        except (KeyboardInterrupt, ModelStopped):
            self.cancel = Event()  # the next compaction was not cancelled
            raise
        self._failed |= told.failed
        return told

    def _refusal(self, why: str) -> str:
        return f"the summary by {self.model.name} was refused: {why}; the digest without a model stands"


def open_teller(model: str | Model, settings: Settings, on_text: Callable[[str], None] | None = None) -> Teller:
    """A teller with a model, which may be named. A wrong name, a missing key or a bad prompt is an error at once."""
    if not isinstance(model, str) and not callable(getattr(model, "write", None)):
        raise BadSetting(
            f"model is {model!r:.60}; it must be a name ({FORMS}) or an object that writes, as `Model` says"
        )
    return Teller(open_model(model, settings) if isinstance(model, str) else model, settings, on_text)


def reason_to_skip(job: Job) -> str:
    """Why a model is not asked; empty when it is."""
    if job.request.trigger.level is Level.EMERGENCY:
        return "an emergency cannot wait for one"
    if job.digest.report.status != "success":
        return "the context does not fit even without a story"
    if not job.folded:
        return "no turn was folded, so there is nothing to tell"
    if not story_tokens(job.goal.target):
        return f"a target of {job.goal.target:,} tokens leaves no room for a story"
    return ""


def is_told(trigger: Trigger) -> bool:
    """Whether a story belongs to such a compaction: at the soft and aggressive levels, and when somebody asked."""
    return trigger.level in (Level.SOFT, Level.AGGRESSIVE) or (trigger.level is None and trigger.kind == "manual")


def _placed(job: Job, prose: Prose) -> tuple[Settled, str]:
    """The compaction with this prose, and what is wrong with it. What the story pushed out is put into it, once."""
    made = job.with_story(prose)
    lost = _pushed_out(job, made)
    if lost:
        room = int(story_tokens(job.goal.target) * REPAIR_SHARE)
        prose, left = repair(prose, lost, room, job.kit.counter.text)
        made = job.with_story(prose) if not left else made
        lost = left or _pushed_out(job, made)
    return made, _worse(made, job.digest, lost)


def _pushed_out(job: Job, made: Settled) -> list[Lost]:
    """Facts that are told without the story, and are not with it."""
    before = {lost.fact for lost in _untold(job.facts, job.digest)}
    return [lost for lost in _untold(job.facts, made) if lost.fact not in before]


def _untold(facts: Sequence[Fact], made: Settled) -> list[Lost]:
    written = made.outcome.written
    return find_losses(Prose(), facts, context_text(written.messages), frozenset(written.cited()))


def _worse(made: Settled, digest: Settled, lost: Sequence[Lost]) -> str:
    """In which way a result is worse than the one without a model; empty when in none."""
    if made.report.status != "success" or not made.report.changed:
        return "with it the context would not fit"
    if lost:
        return f"it leaves no room for {len(lost):,} facts ({lost[0].code})"
    for name in _SHARES:
        if (getattr(made.report.metrics, name) or 0.0) < (getattr(digest.report.metrics, name) or 0.0):
            return f"{name} would be lower"
    more = len(made.report.fidelity.missing) - len(digest.report.fidelity.missing)
    return f"{more:,} more names could neither be read nor recalled" if more > 0 else ""


def _objections(told: SummaryOutcome) -> str:
    """The first objections in words, without the text that was objected to."""
    words = dict.fromkeys(objection.advice[:_LONGEST_REASON] for objection in told.objections)
    return "; ".join(list(words)[:_REASONS_SHOWN]) or "there was nothing to tell"


def _noted(job: Job, made: Settled, calls: tuple[ModelCall, ...], reason: str) -> Settled:
    report = made.report
    both = "; ".join(text for text in (report.reason, reason) if text)
    spent = job.request.head()["duration_ms"]
    return structs.replace(made, report=structs.replace(report, reason=both, model_calls=calls, duration_ms=spent))
