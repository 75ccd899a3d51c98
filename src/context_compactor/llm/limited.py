"""A model within limits: tried again when that is worth it, and never for more money or more often than was allowed."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock

import msgspec
from msgspec import structs

from context_compactor.errors import BadSetting, LimitReached, ModelError
from context_compactor.llm.model import Control, ModelAnswer, ModelRequest, ModelUsage, Step
from context_compactor.llm.prices import cost
from context_compactor.llm.retry import with_retries
from context_compactor.llm.secrets import Secrets
from context_compactor.price import Spent
from context_compactor.protocols import Model
from context_compactor.settings import Settings

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
        before: Spent | None = None,
        ahead: Spent | None = None,
    ) -> None:
        check_model(model)
        self.name = model.name
        self.window = model.window
        self.most_output = model.most_output
        self.spent = Spent()
        self._model = model
        self._settings = settings
        self._count = count
        self._before = before or Spent()
        self._ahead = ahead or Spent()
        self._lock = Lock()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The answer of the first try that gives one. What a try may cost at most is set aside until it has ended."""
        tried = 0

        def attempt() -> ModelAnswer:
            nonlocal tried
            tried += 1
            return self._attempt(request, control)

        def tell(error: ModelError, pause: float) -> None:
            words = f"{error}; again in {pause:g} s"
            control.tell(Step("retried", self.name, tried + 1, self._settings.retry_attempts, words))

        return with_retries(attempt, self._settings.retry_attempts, self._settings.retry_delay_seconds, control, tell)

    def _attempt(self, request: ModelRequest, control: Control) -> ModelAnswer:
        most = paid = self._set_aside(request)
        try:
            answer = self._believed(self._model.write(request, control))
            paid = self._paid(answer.usage, most)
            return answer
        except ModelError as error:
            paid = most if error.billed else 0.0
            raise
        except Exception as error:  # the model is somebody else's code, and the digest stands without it
            words = Secrets(os.environ).hide(str(error))
            raise ModelError(f"{self.name} failed with {type(error).__name__}: {words}") from error
        finally:  # whatever ended the call, an interrupt by the user included
            self._spend(Spent(paid - most), lambda _: None)

    def _believed(self, answer: ModelAnswer) -> ModelAnswer:
        """An answer whose values are what they have to be, and whose counts are possible."""
        if not isinstance(answer, ModelAnswer):
            raise ModelError(f"{self.name} returned {type(answer).__name__}; it must be a ModelAnswer")
        try:
            sound = msgspec.convert(msgspec.to_builtins(answer), ModelAnswer)
        except (msgspec.ValidationError, TypeError) as error:
            raise ModelError(f"{self.name} returned a ModelAnswer that is none: {error}") from error
        most = _BELIEVED_WINDOWS * self.window
        counts = {name: min(max(count, 0), most) for name, count in structs.asdict(sound.usage).items()}
        return structs.replace(answer, usage=ModelUsage(**counts))

    def _paid(self, usage: ModelUsage, most: float) -> float:
        paid = None if usage == ModelUsage() else cost(usage, self.name, self._settings.prices)
        return most if paid is None else paid

    def _set_aside(self, request: ModelRequest) -> float:
        """What an attempt can cost at most, which is counted with it; 0 when that is not known and no limit asks."""
        settings = self._settings
        most = cost(self._most(request), self.name, settings.prices)

        def look(session: Spent) -> None:
            own = self._ahead.plus(self.spent)
            self._look_at_attempts("attempt_limit", settings.attempt_limit, own)
            self._look_at_attempts("session_attempt_limit", settings.session_attempt_limit, session)
            self._look_at_dollars("spend_limit", settings.spend_limit, own, most)
            self._look_at_dollars("session_spend_limit", settings.session_spend_limit, session, most)

        self._spend(Spent(most or 0.0, 1), look)
        return most or 0.0

    def _spend(self, more: Spent, look: Callable[[Spent], None]) -> None:
        with self._lock:
            self._before = self._before.take(more, look)
            self.spent = self.spent.plus(more)

    def _look_at_attempts(self, name: str, limit: int | None, taken: Spent) -> None:
        if limit is not None and taken.attempts >= limit:
            raise LimitReached(f"{name} allows {limit:,} requests to the model, and they were made")

    def _look_at_dollars(self, name: str, limit: float | None, taken: Spent, most: float | None) -> None:
        if limit is None:
            return
        if most is None:
            raise LimitReached(f"{self.name} has no known price, so {name} cannot be kept; prices sets one")
        if taken.dollars + most > limit:
            raise LimitReached(f"a call for up to ${most:.4f} could cost more than {name} leaves")

    def _most(self, request: ModelRequest) -> ModelUsage:
        said = sum(self._count(message.text) for message in request.messages)
        prefix = sum(self._count(str(part)) for part in (*request.prefix, request.beside) if part)
        return ModelUsage(input=said, cache_write=prefix, output=request.max_tokens)


def check_model(model: Model) -> None:
    """`BadSetting` when an object lacks what `Model` promises."""
    for field, kind in (("name", str), ("window", int), ("most_output", int)):
        value = getattr(model, field, None)
        if not isinstance(value, kind) or not value or (isinstance(value, int) and value < 0):
            must = "a text" if kind is str else "a number of tokens above 0"
            raise BadSetting(f"model: {field} of the {type(model).__name__} is {value!r:.60}; it must be {must}")
