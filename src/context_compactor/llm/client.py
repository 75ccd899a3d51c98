"""What the clients share: a name, its limits, and the parts of a request that a server has refused."""

from __future__ import annotations

from time import monotonic
from types import ModuleType
from typing import Any, Protocol

from msgspec import Struct, structs

from context_compactor.errors import ModelError, ModelUnavailable
from context_compactor.llm.calling import Hear, call
from context_compactor.llm.collect import Collected
from context_compactor.llm.failures import headers_of, understood, wire_errors
from context_compactor.llm.model import Control, ModelAnswer, ModelRequest
from context_compactor.llm.retry import check
from context_compactor.llm.secrets import Secrets
from context_compactor.measure.overflow import is_overflow
from context_compactor.measure.tokens import clean

CONNECT_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
Body = dict[str, Any]


class Named(Struct, frozen=True, kw_only=True):
    """A model's name as the user typed it and as its server knows it, what it takes and gives, and who says so."""

    name: str
    model: str
    window: int
    most_output: int
    source: str
    patience: float = PATIENCE_SECONDS
    """Seconds of silence after which a call is given up and may be tried again."""


class Wire(Protocol):
    """One provider's way to take a request and to stream an answer."""

    sdk: ModuleType
    optional: tuple[str, ...]
    """Parts of a request that some servers refuse; one that was refused is left out from then on."""

    def body(self, request: ModelRequest, named: Named, refused: frozenset[str]) -> Body:
        """The request in the provider's words, without what was refused."""
        ...

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of events."""
        ...

    def take(self, event: Any, collected: Collected) -> None:
        """Add one event to what was heard."""
        ...


class Client:
    """A model behind an SDK. Each `write` is one attempt: whether to try again is decided by `retry.py`.

    A request may still be sent more than once when a server refuses an optional part of it: then without that part.
    Nothing that it says of a call holds one of the `secrets`.
    """

    def __init__(self, named: Named, wire: Wire, secrets: Secrets) -> None:
        self.name = named.name
        self.window = named.window
        self.most_output = named.most_output
        self.named = named
        self.wire = wire
        self.secrets = secrets
        self._errors = wire_errors(wire.sdk)
        self._refused: frozenset[str] = frozenset()

    def describe(self) -> str:
        """The model, its window and its longest answer, and where the numbers come from."""
        named = self.named
        return f"{named.name}: window {named.window:,} tokens ({named.source}), answers up to {named.most_output:,}"

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """Its answer, or a `ModelError`. The stream is closed as soon as `control` ends the call."""
        try:
            answer = call(lambda hear: self._write(request, control, hear), control)
        except ModelError as error:
            if isinstance(error, ModelUnavailable):
                check(control)  # the time-out of a call that ends with the deadline is the deadline's
            error.args = (self.secrets.hide(str(error)),)
            raise
        return structs.replace(answer, model=self.secrets.hide(answer.model))

    async def _write(self, request: ModelRequest, control: Control, hear: Hear) -> ModelAnswer:
        collected = Collected(request, self.name, self.most_output, hear)
        try:
            await self._listen(await self._send(request, control), collected)
        except self._errors as error:
            raise understood(error, self.name, is_begun=collected.is_begun) from None  # it may hold the key
        except (ValueError, TypeError, AttributeError) as error:  # SDKs do not check what they are sent
            raise ModelError(f"{self.name}: the server sent something that is no answer ({error})") from None
        return collected.answer()

    async def _send(self, request: ModelRequest, control: Control) -> Any:
        while True:
            refused = self._refused
            body = sendable(self.wire.body(request, self.named, refused))
            silence = max(min(self.named.patience, control.deadline - monotonic()), 0.001)
            timeout = self.wire.sdk.Timeout(silence, connect=min(CONNECT_SECONDS, silence))
            try:
                return await self.wire.send(body, timeout)
            except self.wire.sdk.APIStatusError as error:
                blamed = self._blamed(error, body)
                if not blamed:
                    raise
                self._refused = refused | {blamed}

    def _blamed(self, error: Any, body: Body) -> str:
        """The optional part of a request that an error names as the reason why it was refused."""
        words = str(error)
        if error.status_code not in (400, 422) or is_overflow(words):
            return ""
        return next((part for part in self.wire.optional if part in body and part in words), "")

    async def _listen(self, stream: Any, collected: Collected) -> None:
        try:
            async for event in stream:
                collected.is_begun = True
                self.wire.take(event, collected)
                if collected.is_endless:
                    return
            if not collected.is_begun:
                self._expect_events(headers_of(stream).get("content-type", ""))
        finally:
            await _close(stream)

    def _expect_events(self, kind: str) -> None:
        if kind and "event-stream" not in kind:
            words = f"{self.name}: the server sent {kind.partition(';')[0]}, which is no answer of this API"
            raise ModelError(f"{words}; is the address right?", billed="html" not in kind)


def sendable(value: Any) -> Any:
    """The value with every half of a character replaced, which no request can carry."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {sendable(name): sendable(member) for name, member in value.items()}
    return [sendable(item) for item in value] if isinstance(value, list | tuple) else value


async def _close(stream: Any) -> None:
    for name in ("close", "aclose"):
        if close := getattr(stream, name, None):
            await close()
            return
