"""What all clients share: streaming that can be cancelled, errors, refused request parts, and keys kept out of
messages."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from queue import Empty, SimpleQueue
from time import monotonic
from types import ModuleType
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from msgspec import Struct, structs

from context_compactor.errors import BadSetting, ModelDenied, ModelError, ModelOverflow, ModelUnavailable
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, StopReason, raise_if_stopped
from context_compactor.tokens.counting import replace_surrogates
from context_compactor.tokens.overflow import is_overflow
from context_compactor.tokens.prices import ModelUsage

_Result = TypeVar("_Result")
StreamedText = tuple[str, bool]
"""Some text, and whether it is reasoning."""
OnStreamedText = Callable[[StreamedText], None]

_POLL_SECONDS = 0.05


def run_cancellable(start: Callable[[OnStreamedText], Coroutine[Any, Any, _Result]], control: Control) -> _Result:
    """Run a coroutine that passes on each piece of the answer; its result, or `ModelStopped` as soon as it has to end.

    Whatever ends the wait, an interrupt by the user included, also cancels the coroutine, which closes its stream.
    """
    raise_if_stopped(control)
    pieces: SimpleQueue[StreamedText | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(start(pieces.put), _loop(os.getpid()))
    future.add_done_callback(lambda _: pieces.put(None))
    try:
        while (piece := _next(pieces, control)) is not None:
            show = control.on_thought if piece[1] else control.on_text
            if show:
                show(piece[0])
        return future.result()
    finally:
        future.cancel()


def _next(pieces: SimpleQueue[StreamedText | None], control: Control) -> StreamedText | None:
    while True:
        raise_if_stopped(control)
        try:
            return pieces.get(timeout=max(min(_POLL_SECONDS, control.deadline - monotonic()), 0.001))
        except Empty:
            continue


@cache
def _loop(pid: int) -> asyncio.AbstractEventLoop:  # a fork has the parent's cache but not its threads
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"model-calls-{pid}", daemon=True).start()
    return loop


# Some models write their reasoning into the answer itself.
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>\s*|\Z)", re.S)
# A model that ignores its limit is cut off by ours. No tokenizer has longer tokens on average than this.
_MOST_CHARS_PER_TOKEN, _SLACK_CHARS = 32, 65_536


class StreamedAnswer:
    """What has come of an answer of the model `name` so far; `on_piece` gets each piece of it."""

    def __init__(self, request: ModelRequest, name: str, most_output: int, on_piece: OnStreamedText) -> None:
        self._name = name
        self.usage = ModelUsage()
        self.model = ""
        self.stop: StopReason | None = None
        self.calls: set[Any] = set()
        self.is_begun = False
        """Whether anything of an answer has come."""
        self._room = _MOST_CHARS_PER_TOKEN * min(request.max_tokens, most_output) + _SLACK_CHARS
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._on_piece = on_piece

    def add_text(self, piece: str | None) -> None:
        """A piece of the answer itself."""
        if piece:
            self._text.append(piece)
            self._room -= len(piece)
            self._on_piece((piece, False))

    def add_reasoning(self, piece: str | None) -> None:
        """A piece of what the model thought before."""
        if piece:
            self._reasoning.append(piece)
            self._room -= len(piece)
            self._on_piece((piece, True))

    @property
    def is_endless(self) -> bool:
        """Whether more has come than any answer of the length asked for can have."""
        return self._room < 0

    def answer(self) -> ModelAnswer:
        """The whole answer, or `ModelUnavailable` when the stream broke off before it said why it ends."""
        stop: StopReason | None = "length" if self.is_endless else self.stop
        if stop is None:
            raise ModelUnavailable(f"{self._name}: the response is incomplete; the connection was closed early")
        text, thought = split_reasoning("".join(self._text))
        reasoning = "".join(self._reasoning) + thought
        return ModelAnswer(
            text=text,
            reasoning=reasoning,
            tool_calls=len(self.calls),
            stop="tool_call" if self.calls and stop == "complete" else stop,
            usage=self.usage,
            model=self.model,
        )


def split_reasoning(text: str) -> tuple[str, str]:
    """An answer, as far as it is there, without the reasoning that some models write into it, and that reasoning."""
    thought = _THOUGHT.match(text)
    return (text[thought.end() :], thought[1]) if thought else (text, "")


_DENIED_STATUS = frozenset({401, 402, 403})
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_DENIED_KINDS = frozenset(
    "authentication_error permission_error billing_error invalid_api_key insufficient_quota "
    "access_terminated_error".split()
)
# Waiting does not help against these, although they come as "too many requests".
_NO_MONEY = ("insufficient_quota", "credit balance is too low", "exceeded your current quota", "billing_hard_limit")
_MOST_WORDS = 500
_ORIGIN = re.compile(r"https?://[^/?#\s]+")
# Without a connection nothing was read; behind a gateway that lost its patience somebody may still be writing.
_NEVER_SENT = frozenset(
    "ConnectError ConnectTimeout PoolTimeout ProxyError UnsupportedProtocol LocalProtocolError".split()
)
_GATEWAY_TIMEOUTS = frozenset({504, 524})


def sdk_errors(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """The errors that a call by this SDK may raise: its own, and those of its HTTP library in mid-stream."""
    libraries = (sys.modules.get(name) for name in ("httpx2", "httpx"))
    used = [library.HTTPError for library in libraries if library and library.Timeout is sdk.Timeout]
    return (sdk.APIError, *used)


def translate_error(error: Exception, name: str, *, is_begun: bool = False) -> ModelError:
    """The error of our tree for an error of an SDK, in words that name the model; `is_begun` after the first event."""
    status = getattr(error, "status_code", None)
    if status is not None and 300 <= status < 400:
        origin = _ORIGIN.match(headers_of(error).get("location", ""))
        where = origin[0] if origin else "another place of the same server"
        words = f"the server redirects to {where}, and nothing is sent there; if that is right, use its address"
        return ModelError(f"{name}: HTTP {status}: {words}", billed=False)
    words = f"{name}: {_error_text(error)}"
    details = _error_details(error)
    kinds = {str(details.get(name)) for name in ("type", "code")}
    if _is_too_long(f"{words}\n{error}", status, kinds):
        return ModelOverflow(words)
    if status in _DENIED_STATUS or kinds & _DENIED_KINDS or any(said in words.lower() for said in _NO_MONEY):
        return ModelDenied(words)
    # An error in mid-stream comes with the status of its beginning, or with none.
    is_passing = status is None or status == 200 or status in _PASSING_STATUS or status >= 500
    billed = is_begun or _may_be_billed(error, status)
    if is_passing:
        return ModelUnavailable(words, seconds_to_wait(headers_of(error)), billed=billed)
    return ModelError(words, billed=billed)


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for, as seconds: it may be a number or a date."""
    milliseconds, retry_after = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(float(milliseconds) / 1000, 0.0)
        return None if retry_after is None else max(_seconds(retry_after), 0.0)
    except ValueError:
        return None


def _seconds(retry_after: str) -> float:
    if retry_after.strip().replace(".", "", 1).isdigit():
        return float(retry_after)
    when = parsedate_to_datetime(retry_after)
    return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


def headers_of(source: Any) -> Mapping[str, str]:
    """The headers of the response that an error or a stream comes from; none when it has no such thing."""
    return getattr(getattr(source, "response", None), "headers", None) or {}


def _may_be_billed(error: Exception, status: int | None) -> bool:
    if status in (None, 200) or "Timeout" in type(error).__name__:
        return type(error.__cause__).__name__ not in _NEVER_SENT
    return status in _GATEWAY_TIMEOUTS


def _is_too_long(words: str, status: int | None, kinds: set[str]) -> bool:
    # One request above a limit per minute will not pass in the next minute either.
    alone_too_large = status == 429 and "request too large" in words.lower()
    return status == 413 or "request_too_large" in kinds or alone_too_large or is_overflow(words)


def _error_text(error: Exception) -> str:
    """What the provider said, else what the SDK says, and the cause that the SDK hides."""
    said = _error_details(error).get("message") or str(error) or type(error).__name__
    cause = error.__cause__
    because = f" ({type(cause).__name__}: {cause})" if cause is not None and not hasattr(error, "status_code") else ""
    status = getattr(error, "status_code", None)
    shown = f"HTTP {status}: " if status not in (None, 200) else ""
    return f"{shown}{str(said)[:_MOST_WORDS]}{because}"


def _error_details(error: Exception) -> dict[str, Any]:
    """The part of an error's body that says what went wrong; providers nest it differently."""
    body = getattr(error, "body", None)
    while isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)\Z")
_USERINFO = re.compile(r"(?<=//)[^/?#\s]*@")
# Shorter ones are placeholders, and words of their own in many texts.
_SHORTEST = 6
_MARK = "[redacted:key]"


class Secrets:
    """What an environment calls a key, token, secret or password, and the passwords in its and one other address."""

    def __init__(self, env: Mapping[str, str], address: str = "") -> None:
        found = {value.strip() for name, value in env.items() if _SECRET_NAME.search(name)}
        for text in (address, *(value for name, value in env.items() if name.endswith("_URL"))):
            found.update(_in_userinfo(text))
        self._values = sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text with a mark in the place of each secret, and without the user and password of any address."""
        for value in self._values:
            text = text.replace(value, _MARK)
        return without_userinfo(text)


def without_userinfo(text: str) -> str:
    """A text whose addresses name no user and no password."""
    return _USERINFO.sub("", text)


def read_key(env: Mapping[str, str], variable: str) -> str:
    """The key in a variable, "" when there is none, or `BadSetting` when it cannot be one."""
    key = env.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadSetting(
            f"{variable} contains a line break or another character that is not allowed in a key; set it again"
        )
    return key


def _in_userinfo(text: str) -> Iterator[str]:
    for said in _USERINFO.findall(text):
        user, _, password = said[:-1].partition(":")
        yield from (password, unquote(password))
        yield b64encode(unquote(f"{user}:{password}").encode()).decode()


CONNECT_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
Body = dict[str, Any]


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model's name as the user typed it and as its server knows it, what it takes and gives, and who says so."""

    name: str
    model: str
    window: int
    most_output: int
    source: str
    patience: float = PATIENCE_SECONDS
    """Seconds of silence after which a call is given up and may be tried again."""


class ProviderAdapter(Protocol):
    """One provider's way to take a request and to stream an answer."""

    sdk: ModuleType
    optional: tuple[str, ...]
    """Parts of a request that some servers refuse; one that was refused is left out from then on."""

    def body(self, request: ModelRequest, named: ModelSpec, refused: frozenset[str]) -> Body:
        """The request in the provider's words, without what was refused."""
        ...

    async def send(self, body: Body, timeout: Any) -> Any:
        """Send it; a stream of events."""
        ...

    def take(self, event: Any, collected: StreamedAnswer) -> None:
        """Add one event to what has come."""
        ...


class ModelClient:
    """A model behind an SDK. Each `write` is one attempt: whether to try again is decided by `with_retries`.

    A request may still be sent more than once when a server refuses an optional part of it: then without that part.
    Nothing that it says of a call holds one of the `secrets`.
    """

    def __init__(self, named: ModelSpec, wire: ProviderAdapter, secrets: Secrets) -> None:
        self.name = named.name
        self.window = named.window
        self.most_output = named.most_output
        self.named = named
        self.wire = wire
        self.secrets = secrets
        self._errors = sdk_errors(wire.sdk)
        self._refused: frozenset[str] = frozenset()

    def describe(self) -> str:
        """The model, its window and its longest answer, and where the numbers come from."""
        named = self.named
        return f"{named.name}: window {named.window:,} tokens ({named.source}), answers up to {named.most_output:,}"

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """Its answer, or a `ModelError`. The stream is closed as soon as `control` ends the call."""
        try:
            answer = run_cancellable(lambda on_piece: self._write(request, control, on_piece), control)
        except ModelError as error:
            if isinstance(error, ModelUnavailable):
                raise_if_stopped(control)  # the time-out of a call that ends with the deadline is the deadline's
            error.args = (self.secrets.hide(str(error)),)
            raise
        return structs.replace(answer, model=self.secrets.hide(answer.model))

    async def _write(self, request: ModelRequest, control: Control, on_piece: OnStreamedText) -> ModelAnswer:
        collected = StreamedAnswer(request, self.name, self.most_output, on_piece)
        try:
            await self._listen(await self._send(request, control), collected)
        except self._errors as error:
            raise translate_error(error, self.name, is_begun=collected.is_begun) from None  # it may hold the key
        except (ValueError, TypeError, AttributeError) as error:  # SDKs do not check what they are sent
            raise ModelError(f"{self.name}: the response of the server could not be read ({error})") from None
        return collected.answer()

    async def _send(self, request: ModelRequest, control: Control) -> Any:
        while True:
            refused = self._refused
            body = encodable(self.wire.body(request, self.named, refused))
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

    async def _listen(self, stream: Any, collected: StreamedAnswer) -> None:
        try:
            async for event in stream:
                collected.is_begun = True
                self.wire.take(event, collected)
                if collected.is_endless:
                    return
            kind = headers_of(stream).get("content-type", "")
            if not collected.is_begun and kind and "event-stream" not in kind:
                words = f"{self.name}: the server sent {kind.partition(';')[0]}, which is not a response of this API"
                raise ModelError(f"{words}; check the URL", billed="html" not in kind)
        finally:
            await _close(stream)


def encodable(value: Any) -> Any:
    """The value with every half of a character replaced, which no request can carry."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {encodable(name): encodable(member) for name, member in value.items()}
    return [encodable(item) for item in value] if isinstance(value, list | tuple) else value


async def _close(stream: Any) -> None:
    for name in ("close", "aclose"):
        if close := getattr(stream, name, None):
            await close()
            return
