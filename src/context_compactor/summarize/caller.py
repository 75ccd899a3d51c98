"""Calls of a model with their account: what was shown, what came back, what became of it. None is made twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from threading import Lock

import msgspec

from context_compactor.errors import (
    LimitReached,
    ModelDenied,
    ModelError,
    ModelOverflow,
    ModelStopped,
    ModelUnavailable,
)
from context_compactor.llm.model import Control, ModelAnswer, ModelRequest, ModelUsage, Step
from context_compactor.llm.prices import cost
from context_compactor.llm.retry import check
from context_compactor.price import Price
from context_compactor.protocols import Model
from context_compactor.report import ModelCall
from context_compactor.summarize.ask import request_tokens
from context_compactor.summarize.evidence import Objection
from context_compactor.summarize.spans import Count

ACCEPTED = "accepted"
_LIMIT = "limit"
_FREE = ("denied", "overflow", _LIMIT)
_CODES = {
    ModelDenied: "denied",
    ModelOverflow: "overflow",
    ModelUnavailable: "unavailable",
    ModelStopped: "stopped",
    LimitReached: _LIMIT,
}


class Caller:
    """Sends requests to one model for one compaction; may be used from several threads at once."""

    def __init__(
        self,
        model: Model,
        control: Control,
        count: Count,
        most_calls: int,
        failed: Collection[str] = (),
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.model = model
        self.control = control
        self.count = count
        self.calls: list[ModelCall] = []
        self.objections: list[Objection] = []
        self.corrections: list[Objection] = []
        """What was changed in answers that are used."""
        self.failed: set[str] = set(failed)
        """Requests that need not be sent again, in another compaction neither."""
        self._tried: set[str] = set()
        self.expected = 0
        """How many calls it will take in all, for whoever looks; 0 when that is not known."""
        self._left = self._most = most_calls
        self._sent: dict[str, int] = {}
        self._prices = prices
        self._lock = Lock()

    @property
    def left(self) -> int:
        """How many calls may still be made."""
        return self._left

    def send(self, request: ModelRequest, *, alone: bool = True) -> ModelAnswer | None:
        """The answer, or None when the very same request failed before. What fails is in the account and raised.

        Only a call that runs alone shows its text while it is written.
        """
        name = fingerprint(request)
        if name in self.failed or name in self._tried:
            self.object_to(Objection("failed_before", "the same request failed before and is not sent again"))
            return None
        number = self._begin()
        own = Control(self.control.deadline, self.control.cancel, self.control.on_text if alone else None)
        own.on_step = lambda step: self._heard(name, step)
        self.control.tell(Step("asked", self.model.name, number, max(self.expected, number)))
        self._sent[name] = 1
        try:
            answer = self.model.write(request, own)
        except ModelError as error:
            self._sent[name] -= isinstance(error, LimitReached)  # the last attempt was not made
            self.note(request, None, [objection_to(error)])
            raise
        self.control.tell(Step("answered", self.model.name, number, max(self.expected, number)))
        return answer

    def _heard(self, name: str, step: Step) -> None:
        if step.kind == "retried":
            self._sent[name] = step.number
        self.control.tell(step)

    def note(
        self,
        request: ModelRequest,
        answer: ModelAnswer | None,
        objections: Collection[Objection],
        corrections: Collection[Objection] = (),
    ) -> None:
        """Write down what became of a request. An answer without objections is used, with these corrections."""
        outcome = _codes(objections) or f"{ACCEPTED} with corrections: {_codes(corrections)}"
        call = self._account(request, answer, outcome if objections or corrections else ACCEPTED)
        with self._lock:
            self.calls.append(call)
            self.objections.extend(objections)
            self.corrections.extend(() if objections else corrections)
            if objections and outcome != _LIMIT:  # what was not sent has not failed
                # Only what was said of the request itself is true next time; a server may be back by then.
                is_lasting = answer is not None or outcome == "overflow"
                (self.failed if is_lasting else self._tried).add(fingerprint(request))

    def _account(self, request: ModelRequest, answer: ModelAnswer | None, outcome: str) -> ModelCall:
        used = answer.usage if answer else ModelUsage()
        shown = used.input + used.cache_read + used.cache_write
        attempts = self._sent.get(fingerprint(request), 1)
        # A request that was turned down is not billed; of one that broke off, or was tried before, nobody knows.
        unknown = 0.0 if outcome in _FREE and attempts <= (outcome != _LIMIT) else None
        return ModelCall(
            model=(answer.model if answer else "") or self.model.name,
            tokens_shown=shown or request_tokens(request, self.count),
            tokens_written=used.output or (self.count(answer.text) if answer else 0),
            attempts=attempts,
            outcome=outcome,
            cost=unknown if used == ModelUsage() else cost(used, self.model.name, self._prices),
            cache_read=used.cache_read,
            cache_write=used.cache_write,
        )

    def give_up(self, objection: Objection) -> None:
        """Write down that nothing is sent, and why."""
        with self._lock:
            self.calls.append(ModelCall(self.model.name, 0, 0, 0, objection.code, 0.0))
        self.object_to(objection)

    def object_to(self, objection: Objection) -> None:
        """Write down what speaks against going on, beside what was said of a single call."""
        with self._lock:
            self.objections.append(objection)

    def _begin(self) -> int:
        """The number of the next call. One that may not be made is in the account and raises `ModelStopped`."""
        try:
            check(self.control)
            return self._take()
        except ModelStopped as error:
            self.give_up(objection_to(error))
            raise

    def _take(self) -> int:
        with self._lock:
            if self._left <= 0:
                raise LimitReached("attempt_limit: the most calls that one compaction may take have been made")
            self._left -= 1
            return self._most - self._left


def _codes(objections: Collection[Objection]) -> str:
    return ", ".join(dict.fromkeys(objection.code for objection in objections))


def objection_to(error: ModelError) -> Objection:
    """A failed call as an objection."""
    return Objection(_CODES.get(type(error), "failed"), str(error))


def fingerprint(request: ModelRequest) -> str:
    """The same for the same request, so that one that failed is known again."""
    body = repr(msgspec.to_builtins(request)).encode("utf-8", "replace")
    return sha256(body).hexdigest()[:16]
