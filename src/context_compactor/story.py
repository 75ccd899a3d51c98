"""The same compaction with a record that a model wrote; where none can be used, the engine's own stands.

The engine has run without a model already, so there is always a context that can be used. The model's record is checked
line by line, the ledgers add what it lacks, and it takes the place of the engine's within the same target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from threading import Event

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.briefing import Briefing, brief, is_told, limits_for, reason_to_skip, subject_of
from context_compactor.errors import BadSetting, ModelStopped
from context_compactor.levels import Level
from context_compactor.llm.limited import LimitedModel
from context_compactor.llm.model import Control, Step
from context_compactor.llm.names import FORMS, open_model
from context_compactor.messages.turn import Turn
from context_compactor.placing import Job, noted, place, with_room
from context_compactor.plan.goal import Goal
from context_compactor.price import Spent
from context_compactor.prompts.prompt import load_prompt
from context_compactor.protocols import Model
from context_compactor.settings import Settings
from context_compactor.settle import Request, Settled
from context_compactor.summarize.subject import Limits, SummaryOutcome
from context_compactor.summarize.summary import Summary
from context_compactor.summarize.write import UNMERGED, write_summary

_REASONS_SHOWN = 2
_LONGEST_REASON = 200


class Sitting(Struct, frozen=True):
    """What all calls of one compaction share: the money, the deadline and who may end them, and how many they are."""

    model: LimitedModel
    control: Control
    limits: Limits


class Teller:
    """A model with all it needs to write records. Requests that failed are remembered and not sent again."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        on_text: Callable[[str], None] | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        self.model = model
        self.cancel = Event()
        """Set it to end a call that is under way: the compaction then raises `ModelStopped` and changes nothing."""
        self._settings = settings
        self._prompt = load_prompt(settings)
        self.before = Spent()
        """What the session has spent on models already, which counts for the limits of a session."""
        self.ahead = Spent()
        """What of that was spent for the next compaction, and counts for its limits."""
        self.spent = Spent()
        """What was spent since; also on calls that came to nothing."""
        self.failed: frozenset[str] = frozenset()
        self.watchers = [on_step] if on_step else []
        """Who is told of each call and each retry."""
        self._on_text = on_text
        self._is_cold = False
        self._at_work: LimitedModel | None = None

    def tell(self, request: Request, goal: Goal, scene: flow.Scene, kit: flow.Kit, digest: Settled) -> Settled:
        """The compaction with the model's record, or as it was; the report has every call, and why it is as it was."""
        job = Job(request, goal, scene, kit, digest)
        if not digest.report.changed or not (is_told(request) or request.trigger.level is Level.EMERGENCY):
            return digest
        roomy = with_room(job)
        why = reason_to_skip(roomy)
        if why:
            return noted(job, digest, (), f"no model was asked: {why}")
        sitting = self._sitting(roomy)
        try:
            told = self._ask(roomy, sitting)
            made, why = self._placed(roomy, told)
        except (KeyboardInterrupt, ModelStopped):
            self.cancel = Event()  # the next compaction was not cancelled
            raise
        finally:
            self._settle()
        return noted(job, made or digest, told.calls, why)

    def fork(self, cancel: Event, *, silent: bool = False) -> Teller:
        """The same for one piece of work that `cancel` ends; `join` it afterwards. A silent one shows no text."""
        twin = copy(self)
        twin.cancel, twin.spent, twin._at_work = cancel, Spent(), None
        twin._on_text = None if silent else self._on_text
        return twin

    def join(self, fork: Teller) -> None:
        """Remember what a fork has learned."""
        self.failed |= fork.failed
        self._is_cold |= fork._is_cold

    def tell_ahead(self, job: Job, turns: Sequence[Turn], previous: Summary) -> SummaryOutcome:
        """A summary of these turns of a compaction that is not made yet; `previous` tells those before them."""
        job = with_room(job)
        sitting = self._sitting(job)
        subject = subject_of(job, turns, previous)
        try:
            told = write_summary(
                sitting.model, subject, sitting.control, job.kit.counter.text, sitting.limits, self._prompt, self.failed
            )
        finally:
            self._settle()
        self.failed |= told.failed
        return told

    @property
    def taken(self) -> Spent:
        """What was spent since, what is under way with it."""
        return self.spent.plus(self._at_work.spent) if self._at_work else self.spent

    def _settle(self) -> None:
        self.spent, self._at_work = self.taken, None

    @property
    def asked(self) -> str:
        """In which way a record is asked for: the same for the same model and prompt."""
        return f"{self.model.name}\n{self._prompt.text}"

    def _sitting(self, job: Job) -> Sitting:
        settings = self._settings
        deadline = time.monotonic() + max(settings.deadline_seconds - (time.perf_counter() - job.request.began), 0.0)
        before = self.before.plus(self.spent)
        self._at_work = LimitedModel(self.model, settings, job.kit.counter.text, before, self.ahead)
        return Sitting(
            self._at_work,
            Control(deadline, self.cancel, self._on_text, self._step),
            limits_for(settings, job.asked_tokens),
        )

    def _placed(self, job: Job, told: SummaryOutcome) -> tuple[Settled | None, str]:
        """The compaction with the model's record, or why there is none."""
        if told.summary is None:
            return None, self._refusal(objections_of(told))
        made, wrong = place(job, told.summary, self.model.name)
        if made is None:
            return None, self._refusal(wrong)
        report = structs.replace(made.report, corrections=corrections_of(told))
        unmerged = next((objection.words for objection in told.objections if objection.code == UNMERGED), "")
        return structs.replace(made, report=report), unmerged

    def _ask(self, job: Job, sitting: Sitting) -> SummaryOutcome:
        count = job.kit.counter.text
        subject = self._brief(job).subject
        told = write_summary(sitting.model, subject, sitting.control, count, sitting.limits, self._prompt, self.failed)
        self.failed |= told.failed
        # A cache that was not read is not there, or the agent begins its requests in another way.
        self._is_cold |= bool(subject.prefix) and not any(call.cache_read for call in told.calls)
        return told

    def _brief(self, job: Job) -> Briefing:
        return brief(job, self.model, self._settings, self._prompt, may_send_own=not self._is_cold)

    def expect(self, request: Request, goal: Goal, scene: flow.Scene, kit: flow.Kit, digest: Settled) -> Settled:
        """The compaction as it was, with what `tell` would ask and what that should cost; nobody is asked."""
        job = with_room(Job(request, goal, scene, kit, digest))
        if not digest.report.changed or not is_told(request) or reason_to_skip(job):
            return digest
        expected = self._brief(job).effort.expected(self.model.name, self._settings.prices)
        return structs.replace(digest, report=structs.replace(digest.report, expected=expected))

    def _step(self, step: Step) -> None:
        for watcher in self.watchers:
            watcher(step)

    def _refusal(self, why: str) -> str:
        return f"the record by {self.model.name} could not be used: {why}; the one without a model stands"


def open_teller(
    model: str | Model,
    settings: Settings,
    on_text: Callable[[str], None] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Teller:
    """A teller with a model, which may be named. A wrong name, a missing key or a bad prompt is an error at once."""
    if not isinstance(model, str) and not callable(getattr(model, "write", None)):
        raise BadSetting(
            f"model is {model!r:.60}; it must be a name ({FORMS}) or an object that writes, as `Model` says"
        )
    return Teller(open_model(model, settings) if isinstance(model, str) else model, settings, on_text, on_step)


def objections_of(told: SummaryOutcome) -> str:
    """The first objections in words, without the text that was objected to."""
    words = dict.fromkeys(objection.advice[:_LONGEST_REASON] for objection in told.objections)
    return "; ".join(list(words)[:_REASONS_SHOWN]) or "there was nothing to tell"


def corrections_of(told: SummaryOutcome) -> tuple[str, ...]:
    """What was changed in a model's text, each in a line."""
    return tuple(f"{objection.code}: {objection.words}"[:_LONGEST_REASON] for objection in told.corrections)
