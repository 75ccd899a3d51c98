"""A model within limits: tried again when that is worth it, and never for more money than was allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from context_compactor.errors import ModelStopped
from context_compactor.llm.model import Control, ModelAnswer, ModelRequest, ModelUsage
from context_compactor.llm.prices import cost
from context_compactor.llm.retry import with_retries
from context_compactor.price import Price
from context_compactor.protocols import Model
from context_compactor.settings import Settings


class LimitedModel:
    """A model for one compaction. A call that could cost more than is left of `spend_limit` is not made."""

    def __init__(self, model: Model, settings: Settings, count: Callable[[str], int]) -> None:
        self.name = model.name
        self.window = model.window
        self.most_output = model.most_output
        self.spent = 0.0
        self._model = model
        self._attempts = settings.retry_attempts
        self._delay = settings.retry_delay_seconds
        self._limit = settings.spend_limit
        self._prices: Mapping[str, Price] = settings.prices
        self._count = count
        self._lock = Lock()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The answer of the first try that gives one. What a call may cost at most is set aside until it has ended."""
        most = self._set_aside(request)
        real = 0.0
        try:
            answer = with_retries(lambda: self._model.write(request, control), self._attempts, self._delay, control)
            real = most if answer.usage == ModelUsage() else cost(answer.usage, self.name, self._prices) or 0.0
            return answer
        except ModelStopped:  # an answer that was ended half-way is paid for
            real = most
            raise
        finally:
            with self._lock:
                self.spent += real - most

    def _set_aside(self, request: ModelRequest) -> float:
        if self._limit is None:
            return 0.0
        shown = sum(self._count(message.text) for message in request.messages)
        shown += sum(self._count(str(message)) for message in request.prefix)
        most = cost(ModelUsage(input=shown, output=request.max_tokens), self.name, self._prices)
        if most is None:
            raise ModelStopped(f"{self.name} has no known price, so spend_limit cannot be kept; prices sets one")
        with self._lock:
            if self.spent + most > self._limit:
                raise ModelStopped(f"a call for up to ${most:.4f} could cost more than spend_limit leaves")
            self.spent += most
        return most
