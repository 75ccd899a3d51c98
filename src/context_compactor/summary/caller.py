"""Calls of a model with their account: what was shown, what came back, what became of it. None is made twice."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from hashlib import sha256
from threading import Lock

import msgspec

from context_compactor.errors import ModelDenied, ModelError, ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.llm.model import Control, ModelAnswer, ModelRequest, ModelUsage
from context_compactor.llm.prices import cost
from context_compactor.price import Price
from context_compactor.protocols import Model
from context_compactor.report import ModelCall
from context_compactor.summary.ask import request_tokens
from context_compactor.summary.evidence import Objection
from context_compactor.summary.spans import Count

_CODES = {
    ModelDenied: "denied",
    ModelOverflow: "overflow",
    ModelUnavailable: "unavailable",
    ModelStopped: "stopped",
}
ACCEPTED = "accepted"


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
        self.failed: set[str] = set(failed)
        self._left = most_calls
        self._prices = prices
        self._lock = Lock()

    @property
    def left(self) -> int:
        """How many calls may still be made."""
        return self._left

    def send(self, request: ModelRequest, attempt: int = 1, *, alone: bool = True) -> ModelAnswer | None:
        """The answer, or None when the very same request failed before. What fails is in the account and raised.

        Only a call that runs alone shows its text while it is written.
        """
        if fingerprint(request) in self.failed:
            return None
        self._take()
        own = Control(self.control.deadline, self.control.cancel, self.control.on_text if alone else None)
        try:
            return self.model.write(request, own)
        except ModelError as error:
            self.note(request, None, attempt, [objection_to(error)])
            raise

    def note(
        self,
        request: ModelRequest,
        answer: ModelAnswer | None,
        attempt: int,
        objections: Collection[Objection],
        *,
        is_used: bool = False,
    ) -> None:
        """Write down what became of a request. An answer may be used in spite of objections, without some lines."""
        used = answer.usage if answer else None
        shown = used.input + used.cache_read + used.cache_write if used else 0
        written = (used.output if used else 0) or (self.count(answer.text) if answer else 0)
        codes = ", ".join(dict.fromkeys(objection.code for objection in objections))
        outcome = f"{ACCEPTED} without lines: {codes}" if is_used and codes else codes or ACCEPTED
        name = (answer.model if answer else "") or self.model.name
        paid = cost(used, self.model.name, self._prices) if used and used != ModelUsage() else None
        call = ModelCall(name, shown or request_tokens(request, self.count), written, attempt, outcome, paid)
        with self._lock:
            self.calls.append(call)
            self.objections.extend(objections)
            if objections and not is_used:
                self.failed.add(fingerprint(request))

    def object_to(self, objection: Objection) -> None:
        """Write down what speaks against going on, beside what was said of a single call."""
        with self._lock:
            self.objections.append(objection)

    def _take(self) -> None:
        if self.control.cancel.is_set():
            raise ModelStopped("cancelled")
        if time.monotonic() >= self.control.deadline:
            raise ModelStopped("the deadline has passed")
        with self._lock:
            if self._left <= 0:
                raise ModelStopped("the most calls that one summary may take have been made")
            self._left -= 1


def objection_to(error: ModelError) -> Objection:
    """A failed call as an objection."""
    return Objection(_CODES.get(type(error), "failed"), str(error))


def fingerprint(request: ModelRequest) -> str:
    """The same for the same request, so that one that failed is known again."""
    body = repr(msgspec.to_builtins(request)).encode("utf-8", "replace")
    return sha256(body).hexdigest()[:16]
