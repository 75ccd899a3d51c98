"""The summarizer: a model within its limits that writes the record of a compaction, or leaves the engine's own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from copy import copy
from threading import Event, Lock

import msgspec
from msgspec import structs

from context_compactor.dialects.turns import Turn
from context_compactor.engine.result import CompactionResult
from context_compactor.errors import BadSetting, LimitReached, ModelError, ModelStopped
from context_compactor.protocols import Model
from context_compactor.settings import Level, Settings, Spending
from context_compactor.summarize.clients.client import Secrets
from context_compactor.summarize.clients.names import FORMS, open_model
from context_compactor.summarize.input import (
    RequestPlan,
    SummaryOutcome,
    SummarySubject,
    is_model_asked,
    limits_for,
    plan_request,
    reason_to_skip,
    subject_of,
)
from context_compactor.summarize.merge import place_summary, summary_tokens, with_model_calls, with_room
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, ModelStep, with_retries
from context_compactor.summarize.prompt import load_prompt
from context_compactor.summarize.summary import Summary
from context_compactor.summarize.writer import UNMERGED, write_summary
from context_compactor.tokens.prices import ModelUsage, call_cost

# Windows are guessed at times, and counts differ between tokenizers, but not by more than this.
_BELIEVED_WINDOWS = 16


class LimitedModel:
    """A model for one compaction; `before` is what the session has spent on earlier ones, and on this one so far.

    Of that, `ahead` was spent for this one.

    A call that could cost more than a limit leaves is not made, and neither is one attempt more than is allowed.
    Whatever the model raises or answers wrongly comes out as a `ModelError`, so that a fault of its author cannot stop
    a compaction; an object that is no model is a `BadSetting`.
    """

    def __init__(
        self,
        model: Model,
        settings: Settings,
        count: Callable[[str], int],
        before: Spending | None = None,
        ahead: Spending | None = None,
    ) -> None:
        check_model(model)
        self.name = model.name
        self.window = model.window
        self.most_output = model.most_output
        self.spent = Spending()
        self._model = model
        self._settings = settings
        self._count = count
        self._before = before or Spending()
        self._ahead = ahead or Spending()
        self._lock = Lock()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The answer of the first try that gives one. What a try may cost at most is set aside until it has ended."""
        tried = 0

        def attempt() -> ModelAnswer:
            nonlocal tried
            tried += 1
            return self._attempt(request, control)

        def report_retry(error: ModelError, pause: float) -> None:
            words = f"{error}; again in {pause:g} s"
            control.report(ModelStep("retried", self.name, tried + 1, self._settings.retry_attempts, words))

        attempts, delay = self._settings.retry_attempts, self._settings.retry_delay_seconds
        return with_retries(attempt, attempts, delay, control, report_retry)

    def _attempt(self, request: ModelRequest, control: Control) -> ModelAnswer:
        most = paid = self._reserve(request)
        try:
            answer = self._validated(self._model.write(request, control))
            known = None if answer.usage == ModelUsage() else call_cost(answer.usage, self.name, self._settings.models)
            paid = most if known is None else known
            return answer
        except ModelError as error:
            paid = most if error.billed else 0.0
            raise
        except Exception as error:  # the model is somebody else's code, and the digest stands without it
            words = Secrets(os.environ).hide(str(error))
            raise ModelError(f"{self.name} failed with {type(error).__name__}: {words}") from error
        finally:  # whatever ended the call, an interrupt by the user included
            self._spend(Spending(paid - most), lambda _: None)

    def _validated(self, answer: ModelAnswer) -> ModelAnswer:
        """An answer whose values are what they have to be, and whose counts are possible."""
        if not isinstance(answer, ModelAnswer):
            raise ModelError(f"{self.name} returned {type(answer).__name__}; it must be a ModelAnswer")
        try:
            sound = msgspec.convert(msgspec.to_builtins(answer), ModelAnswer)
        except (msgspec.ValidationError, TypeError) as error:
            raise ModelError(f"{self.name} returned an invalid ModelAnswer: {error}") from error
        most = _BELIEVED_WINDOWS * self.window
        counts = {name: min(max(count, 0), most) for name, count in structs.asdict(sound.usage).items()}
        return structs.replace(answer, usage=ModelUsage(**counts))

    def _reserve(self, request: ModelRequest) -> float:
        """What an attempt can cost at most, which is counted with it; 0 when that is not known and no limit asks."""
        settings = self._settings
        most = call_cost(self._largest_usage(request), self.name, settings.models)

        def check(session: Spending) -> None:
            own = self._ahead.plus(self.spent)
            self._check_attempts("attempt_limit", settings.attempt_limit, own)
            self._check_attempts("session_attempt_limit", settings.session_attempt_limit, session)
            self._check_dollars("spend_limit", settings.spend_limit, own, most)
            self._check_dollars("session_spend_limit", settings.session_spend_limit, session, most)

        self._spend(Spending(most or 0.0, 1), check)
        return most or 0.0

    def _spend(self, more: Spending, check: Callable[[Spending], None]) -> None:
        with self._lock:
            self._before = self._before.take(more, check)
            self.spent = self.spent.plus(more)

    def _check_attempts(self, name: str, limit: int | None, taken: Spending) -> None:
        if limit is not None and taken.attempts >= limit:
            raise LimitReached(f"{name} allows {limit:,} requests to the model, and all of them were made")

    def _check_dollars(self, name: str, limit: float | None, taken: Spending, most: float | None) -> None:
        if limit is None:
            return
        if most is None:
            raise LimitReached(
                f"{self.name} has no known price, so {name} cannot be enforced; set its price with `models`"
            )
        if taken.dollars + most > limit:
            raise LimitReached(f"a call for up to ${most:.4f} could exceed {name}")

    def _largest_usage(self, request: ModelRequest) -> ModelUsage:
        said = sum(self._count(message.text) for message in request.messages)
        prefix = sum(self._count(str(part)) for part in (*request.prefix, request.beside) if part)
        return ModelUsage(input=said, cache_write=prefix, output=request.max_tokens)


def check_model(model: Model) -> None:
    """`BadSetting` when an object lacks what `Model` promises."""
    for field, kind in (("name", str), ("window", int), ("most_output", int)):
        value = getattr(model, field, None)
        if not isinstance(value, kind) or not value or (isinstance(value, int) and value < 0):
            must = "a text" if kind is str else "a number of tokens above 0"
            raise BadSetting(f"summarizer: {field} of the {type(model).__name__} is {value!r:.60}; it must be {must}")


_MAX_REASONS = 2
_MAX_REASON_CHARS = 200


class ModelSummarizer:
    """A model with all it needs to write records. Requests that failed are remembered and not sent again."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        on_text: Callable[[str], None] | None = None,
        on_step: Callable[[ModelStep], None] | None = None,
    ) -> None:
        self.model = model
        self.cancel = Event()
        """Set it to end a call that is under way: the compaction then raises `ModelStopped` and changes nothing."""
        self._settings = settings
        self._prompt = load_prompt(settings)
        self.before = Spending()
        """What the session has spent on models already, which counts for the limits of a session."""
        self.ahead = Spending()
        """What of that was spent for the next compaction, and counts for its limits."""
        self.spent = Spending()
        """What was spent since; also on calls that came to nothing."""
        self.failed: frozenset[str] = frozenset()
        self.watchers = [on_step] if on_step else []
        """Callbacks for each call and each retry."""
        self._on_text = on_text
        self._is_cold = False
        self._running: LimitedModel | None = None

    def summarize(self, result: CompactionResult) -> CompactionResult:
        """The compaction with the model's record, or as it was; the report has every call, and why it is as it was."""
        run = result.run
        if not result.report.changed or not (is_model_asked(run) or run.trigger.level is Level.EMERGENCY):
            return result
        roomy = with_room(result)
        why = reason_to_skip(roomy)
        if why:
            return with_model_calls(result, (), f"no model was asked: {why}")
        try:
            subject = self._plan(roomy).subject
            outcome = self._write(roomy, subject)
            # A cache that was not read is not there, or the agent begins its requests in another way.
            self._is_cold |= bool(subject.prefix) and not any(call.cache_read for call in outcome.calls)
            made, why = self._merged(roomy, outcome)
        except (KeyboardInterrupt, ModelStopped):
            self.cancel = Event()  # the next compaction was not cancelled
            raise
        return with_model_calls(made or result, outcome.calls, why)

    def fork(self, cancel: Event, *, silent: bool = False) -> ModelSummarizer:
        """The same for one piece of work that `cancel` ends; `join` it afterwards. A silent one shows no text."""
        twin = copy(self)
        twin.cancel, twin.spent, twin._running = cancel, Spending(), None
        twin._on_text = None if silent else self._on_text
        return twin

    def join(self, fork: ModelSummarizer) -> None:
        """Remember what a fork has learned."""
        self.failed |= fork.failed
        self._is_cold |= fork._is_cold

    def presummarize(self, result: CompactionResult, turns: Sequence[Turn], previous: Summary) -> SummaryOutcome:
        """A summary of these turns of a compaction that is not made yet; `previous` summarizes those before them."""
        result = with_room(result)
        return self._write(result, subject_of(result, turns, previous))

    @property
    def taken(self) -> Spending:
        """What was spent since, what is under way with it."""
        return self.spent.plus(self._running.spent) if self._running else self.spent

    @property
    def configuration(self) -> str:
        """In which way a record is asked for: the same for the same model and prompt."""
        return f"{self.model.name}\n{self._prompt.text}"

    def _write(self, result: CompactionResult, subject: SummarySubject) -> SummaryOutcome:
        settings, count = self._settings, result.run.config.counter.text
        deadline = time.monotonic() + max(settings.deadline_seconds - (time.perf_counter() - result.run.began), 0.0)
        model = LimitedModel(self.model, settings, count, self.before.plus(self.spent), self.ahead)
        control = Control(deadline, self.cancel, self._on_text, self._step)
        limits = limits_for(settings, summary_tokens(result))
        self._running = model
        try:
            outcome = write_summary(model, subject, control, count, limits, self._prompt, self.failed)
        finally:
            self.spent, self._running = self.taken, None
        self.failed |= outcome.failed
        return outcome

    def _merged(self, result: CompactionResult, outcome: SummaryOutcome) -> tuple[CompactionResult | None, str]:
        """The compaction with the model's record, or why there is none."""
        if outcome.summary is None:
            return None, self._refusal(objections_of(outcome))
        made, wrong = place_summary(result, outcome.summary, self.model.name)
        if made is None:
            return None, self._refusal(wrong)
        report = structs.replace(made.report, corrections=corrections_of(outcome))
        unmerged = next((objection.words for objection in outcome.objections if objection.code == UNMERGED), "")
        return structs.replace(made, report=report), unmerged

    def _plan(self, result: CompactionResult) -> RequestPlan:
        check_model(self.model)
        return plan_request(result, self.model, self._settings, self._prompt, may_send_own=not self._is_cold)

    def estimate(self, result: CompactionResult) -> CompactionResult:
        """The compaction as it was, with what `summarize` would request and what that should cost; nothing is sent."""
        roomy = with_room(result)
        if not result.report.changed or not is_model_asked(result.run) or reason_to_skip(roomy):
            return result
        expected = self._plan(roomy).effort.expected(self.model.name, self._settings.models)
        return structs.replace(result, report=structs.replace(result.report, expected=expected))

    def _step(self, step: ModelStep) -> None:
        for watcher in self.watchers:
            watcher(step)

    def _refusal(self, why: str) -> str:
        return f"the record by {self.model.name} could not be used: {why}; the one without a model stands"


def open_summarizer(
    model: str | Model,
    settings: Settings,
    on_text: Callable[[str], None] | None = None,
    on_step: Callable[[ModelStep], None] | None = None,
) -> ModelSummarizer:
    """A summarizer with a model or a model's name. A wrong name, a missing key or a bad prompt is an error at once."""
    if not isinstance(model, str) and not callable(getattr(model, "write", None)):
        raise BadSetting(
            f"summarizer is {model!r:.60}; it must be a name ({FORMS}) or an object that implements `Model`"
        )
    return ModelSummarizer(open_model(model, settings) if isinstance(model, str) else model, settings, on_text, on_step)


def objections_of(outcome: SummaryOutcome) -> str:
    """The first objections in words, without the text that was objected to."""
    words = dict.fromkeys(objection.advice[:_MAX_REASON_CHARS] for objection in outcome.objections)
    return "; ".join(list(words)[:_MAX_REASONS]) or "there was nothing to summarize"


def corrections_of(outcome: SummaryOutcome) -> tuple[str, ...]:
    """What was changed in a model's text, each in a line."""
    return tuple(f"{objection.code}: {objection.words}"[:_MAX_REASON_CHARS] for objection in outcome.corrections)
