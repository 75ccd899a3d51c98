"""The proxy: passes every request on byte for byte, writes down what passes, and answers what asks for a compaction."""

from __future__ import annotations

import io
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache, partial
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct, to_builtins
from multidict import CIMultiDict
from yarl import URL

from context_compactor.errors import BadSetting
from context_compactor.json_values import json_bytes
from context_compactor.proxy.clients import (
    COMPACT_PATH,
    KEPT_HEADERS,
    MODE_HEADER,
    OWN_HEADERS,
    Sender,
    credential_of,
    identify,
    may_ask_for_compaction,
    scope_of,
)
from context_compactor.proxy.encodings import unpacked
from context_compactor.proxy.journal import ExchangeFile, ExchangeReply, ExchangeRequest, Journal
from context_compactor.proxy.recorder import OWN_ITEM
from context_compactor.proxy.recorder_client import RecorderClient
from context_compactor.proxy.wire import RESPONSES, OwnCall, WireProtocol, add_usage, find_protocol
from context_compactor.sessions.core import wall_clock
from context_compactor.settings import ProxyMode
from context_compactor.store.rows import timestamp
from context_compactor.tokens.models import window_for
from context_compactor.tokens.overflow import is_overflow

_log = logging.getLogger("context_compactor")
MODES: tuple[ProxyMode, ...] = ("on", "record", "off")
ANTHROPIC, OPENAI = "https://api.anthropic.com", "https://api.openai.com"
_LOCAL_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
# Headers that belong to one connection, and those that follow from the address and the body that are sent on.
_NOT_PASSED_ON = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    "upgrade host content-length expect".split()
)
_ANSWER_SECONDS = 30.0
# A request that is most likely passed on as it came does not wait for long.
_LEAST_SECONDS = 2.0
# A model that only ever calls our tools does not get on.
_MOST_ROUNDS = 8
_MOST_MODELS = 1_000
_MOST_ERROR_BYTES = 1 << 20
LONGEST_HEADER = 1 << 18
"""Bytes of one header, or of the first line, that are passed on: some agents describe a whole workspace in one."""
_LARGE_BODY = 1 << 20
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')
# A token is at least a byte: a body of fewer bytes than this share of the window cannot be near its end.
_GATE_SHARE = 0.7
_NOT_AVAILABLE = "The archive could not be read just now. Go on without it, or try again later."


class ProxyConfig(Struct, frozen=True, kw_only=True):
    """Where requests go, and what is done with them. Without an `upstream` each protocol goes to its provider."""

    upstream: str = ""
    mode: ProxyMode = "on"
    window: int | None = None
    max_body_bytes: int = 64 << 20
    loopback_only: bool = True


def check_upstream(url: str) -> str:
    """The address of a provider without a slash at its end; `BadSetting` for one that nobody should send keys to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadSetting(f"--upstream: {url!r:.100} is not an address. Try: https://api.anthropic.com.")
    if parts.username or parts.password:
        raise BadSetting("--upstream: leave the user out of the address; keys are passed on as the client sends them.")
    address = _ip_address(parts.hostname)
    if address and (address.is_link_local or address.is_multicast or address.is_unspecified):
        raise BadSetting(f"--upstream: {parts.hostname} is no provider's address. Try: the provider's own.")
    return url.rstrip("/")


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in any of the forms that a resolver takes, such as one number; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


class Relay:
    """Passes requests on. Whatever fails here besides, the request itself goes on as it came."""

    def __init__(self, config: ProxyConfig, journal: Journal, recorder: RecorderClient) -> None:
        self._config = config
        self._journal = journal
        self._recorder = recorder
        self._client: aiohttp.ClientSession | None = None
        self._journal_problem = ""
        self._least: dict[tuple[str, str], int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs, requests can be passed on."""
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=None)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=1 << 16,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        ) as self._client:
            yield

    # From a request to its answer

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        refused = self._refusal(request)
        if refused is not None:
            return refused
        headers = _headers_of(request)
        mode = headers.get(MODE_HEADER, self._config.mode)
        protocol = find_protocol(request.method, request.path)
        if request.method == "POST" and request.path.endswith(COMPACT_PATH) and identify(headers).client == "codex":
            protocol = RESPONSES
        upstream = self._upstream(protocol, headers)
        if protocol is None or mode == "off":
            return await self._pass_on(request, upstream)
        length = request.content_length
        if length is not None and length > self._config.max_body_bytes:
            return await self._pass_on(request, upstream)
        body, is_whole = await _read_up_to(request, self._config.max_body_bytes)
        if not is_whole:
            return await self._pass_on(request, upstream, body)
        plain = unpacked(body, headers.get("content-encoding", "")) or body
        noted = _noted(request, headers, plain, protocol.dialect, upstream, mode)
        exchange = self._journal.begin(noted, body)
        self.note_problem(exchange)
        return await _Exchange(self, request, noted, body, plain, protocol, exchange).answer()

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not request.raw_path.startswith("/") or request.method == "CONNECT":
            return _error(400, "this proxy is called by its own address, as the base URL of an API")
        if self._config.loopback_only and not _LOCAL_HOST.fullmatch(request.host or ""):
            return _error(403, f"the proxy is called as {request.host!r:.80}, and only listens to this machine")
        if "websocket" in request.headers.get("Upgrade", "").lower():
            return _error(426, "this proxy takes no WebSocket; send the request over HTTP")
        mode = request.headers.get(MODE_HEADER, "on")
        if mode not in MODES:
            return _error(400, f"{MODE_HEADER}: {mode!r:.40} is none of {', '.join(MODES)}")
        return None

    def _upstream(self, protocol: WireProtocol | None, headers: Mapping[str, str]) -> str:
        if self._config.upstream:
            return self._config.upstream
        is_anthropic = protocol.dialect == "anthropic" if protocol else "anthropic-version" in headers
        return ANTHROPIC if is_anthropic or "x-claude-code-session-id" in headers else OPENAI

    def note_problem(self, exchange: ExchangeFile) -> None:
        """Say once that nothing can be written down, and once that it can be again."""
        if exchange.problem and exchange.problem != self._journal_problem:
            _log.error("requests are passed on but not recorded: %s", exchange.problem)
        elif self._journal_problem and not exchange.problem:
            _log.warning("requests are recorded again")
        self._journal_problem = exchange.problem

    # Byte for byte

    async def _pass_on(self, request: web.Request, upstream: str, start: bytes = b"") -> web.StreamResponse:
        """Pass a request on while it comes in; `start` is what was read of it already."""
        headers = passed_headers(request)
        if request.content_length is not None and request.body_exists:
            headers["Content-Length"] = str(request.content_length)
        content: Any = request.content if request.body_exists else None
        if start:
            content = _joined(start, request.content)
        try:
            async with self.send(request, upstream, headers, content) as answer:
                response = begin_response(request, answer)
                await response.prepare(request)
                await copy_body(request, answer, response)
                return response
        except aiohttp.ClientError as error:
            return _unreachable(upstream, error)

    def send(self, request: web.Request, upstream: str, headers: CIMultiDict[str], content: Any) -> Any:
        """A request to the provider, under the path that the client has asked for."""
        assert self._client is not None
        url = URL(upstream + request.raw_path, encoded=True)
        if isinstance(content, bytes) and len(content) >= _LARGE_BODY:
            content = io.BytesIO(content)  # is sent piece by piece, so that others get their turn
        return self._client.request(request.method, url, headers=headers, data=content, allow_redirects=False)

    async def may_be_full(self, exchange: ExchangeFile, scope: str, body: bytes, *, may_compact: bool) -> bool:
        """Whether a request may fill its window so far that something has to be done, or already was."""
        model = _model(body)
        if may_compact and len(body) >= _GATE_SHARE * (self._config.window or _window_of(model)):
            return True
        if (scope, model) not in self._least:
            self.note_least(scope, model, await self.ask("least", exchange, _LEAST_SECONDS))
        least = self._least.get((scope, model), 0)
        return 0 < least <= len(body)

    def note_least(self, scope: str, model: str, answer: Mapping[str, Any]) -> None:
        """Remember from which size on the requests of an account and a model are looked at."""
        if "least" in answer:
            if len(self._least) >= _MOST_MODELS:
                self._least.clear()
            self._least[scope, model] = answer["least"]

    async def ask(
        self, verb: str, exchange: ExchangeFile, seconds: float = _ANSWER_SECONDS, **more: Any
    ) -> dict[str, Any]:
        """What the recorder says about an exchange; nothing when it cannot. One that is being started is waited for."""
        if exchange.problem:
            return {"error": exchange.problem}
        answer = await self._recorder.ask(verb, exchange.path, seconds, **more)
        if "error" in answer:
            _log.warning("%s: %s; the request goes on as it came", verb, answer["error"])
        return answer

    def end(self, exchange: ExchangeFile, *, is_complete: bool, kind: str, usage: dict[str, Any] | None) -> None:
        """Give an exchange over to the recorder."""
        exchange.end(is_complete=is_complete, kind=kind, usage=usage)
        self.note_problem(exchange)
        self._recorder.notify()


class _Exchange:
    """One request of a protocol, from the client to the provider and back."""

    def __init__(
        self,
        relay: Relay,
        request: web.Request,
        noted: ExchangeRequest,
        body: bytes,
        plain: bytes,
        protocol: WireProtocol,
        exchange: ExchangeFile,
    ) -> None:
        self.relay = relay
        self.request = request
        self.body = body
        self.plain = plain
        """The body without the encoding of its transfer."""
        self.protocol = protocol
        self.upstream = noted.upstream
        self.mode = noted.mode
        self.scope = noted.scope
        self.exchange = exchange
        self.sender: Sender = identify(noted.headers)
        self.may_ask = noted.kind == "compaction"
        self.kind = ""
        self.is_complete = False
        self.usage: dict[str, Any] | None = None
        """What was billed for replies that the client has not got."""

    async def answer(self) -> web.StreamResponse:
        """Answer it, and give it over to be recorded whatever comes of it."""
        try:
            if self.mode == "on" and self.may_ask:
                answered = await self._compacted()
                if answered is not None:
                    return answered
            given = await self._fitted()
            if given.get("body"):
                return await self._send_other(given)
            return await self._send_as_it_is()
        except aiohttp.ClientError as error:
            return _unreachable(self.upstream, error)
        finally:
            self.relay.end(self.exchange, is_complete=self.is_complete, kind=self.kind, usage=self.usage)

    async def _compacted(self) -> web.StreamResponse | None:
        """The answer to a request for a compaction; None when the provider shall give it."""
        given = await self.relay.ask("answer", self.exchange)
        if "body" not in given:
            self.kind = given.get("kind", "")
            _log.info("a compaction is left to the provider: %s", given.get("pass") or given.get("error"))
            return None
        self.kind = "answered"
        response = web.Response(body=given["body"], headers={"Content-Type": given["content_type"]})
        self._note_reply(200, given["content_type"], given["body"])
        await response.prepare(self.request)
        await response.write_eof()
        self.is_complete = True
        return response

    def _note_reply(self, status: int, content_type: str, content: bytes) -> None:
        self.exchange.begin_reply(ExchangeReply(status=status, content_type=content_type))
        self.exchange.add(content)

    async def _fitted(self) -> dict[str, Any]:
        """What to send in the place of the client's body, if anything: `body`, and which tools of ours are in it."""
        if not await self._may_need_other():
            return {}
        given = await self.relay.ask("fit", self.exchange)
        self.relay.note_least(self.scope, _model(self.plain), given)
        return given

    async def _may_need_other(self) -> bool:
        if self.protocol.dialect == "openai-responses" and OWN_ITEM.encode() in self.plain:
            return True
        if self.sender.compacts or b'"tools"' not in self.plain:
            return False
        return await self.relay.may_be_full(self.exchange, self.scope, self.plain, may_compact=self.mode == "on")

    @property
    def _rescues(self) -> bool:
        """Whether a request that is too long is made shorter: an agent that compacts by itself does that."""
        return self.mode == "on" and not self.sender.compacts

    async def _send_as_it_is(self) -> web.StreamResponse:
        """Pass the request on, and its answer back while it comes in."""
        async with self.relay.send(self.request, self.upstream, passed_headers(self.request), self.body) as answer:
            if self._rescues and answer.status in (400, 413):
                return await self.refused(answer)
            return await self.stream_back(answer)

    async def stream_back(self, answer: aiohttp.ClientResponse, start: bytes = b"") -> web.StreamResponse:
        response = begin_response(self.request, answer)
        self.exchange.begin_reply(
            ExchangeReply(
                status=answer.status,
                content_type=_clean(answer.headers.get("Content-Type", "")),
                content_encoding=answer.headers.get("Content-Encoding", ""),
            )
        )
        await response.prepare(self.request)
        self.is_complete = await copy_body(self.request, answer, response, start, self.exchange.add)
        return response

    async def refused(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Send a request again that the provider has called too long, once, with a shorter history."""
        content = await _error_body(answer)
        plain = unpacked(content, answer.headers.get("Content-Encoding", ""), _MOST_ERROR_BYTES) or b""
        text = plain.decode("utf-8", "replace")
        if is_overflow(text):
            given = await self.relay.ask("overflow", self.exchange, error=text[:4_000])
            self.relay.note_least(self.scope, _model(self.plain), given)
            if given.get("body"):
                self.kind = "retry"
                return await self._send_other(given)
        return await self.stream_back(answer, content)

    # With another body than the client's

    async def _send_other(self, given: Mapping[str, Any]) -> web.StreamResponse:
        """Send another body than the client's own. Our tools in it are answered here."""
        headers = passed_headers(self.request)
        headers.popall("Content-Encoding", None)
        if not given.get("own"):
            async with self.relay.send(self.request, self.upstream, headers, given["body"]) as answer:
                if answer.status in (400, 413) and self._rescues and self.kind != "retry":
                    return await self.refused(answer)
                return await self.stream_back(answer)
        headers["Accept-Encoding"] = "identity"
        return await _OwnToolLoop(self, headers, given).run()


class _OwnToolLoop:
    """A request with our tools in it: while the model calls only these, it is answered here, and asked again."""

    def __init__(self, exchange: _Exchange, headers: CIMultiDict[str], given: Mapping[str, Any]) -> None:
        self.outer = exchange
        self.headers = headers
        self.body: bytes = given["body"]
        self.own = frozenset(given["own"])
        self.branch: str = given["branch"]
        self.hidden: list[dict[str, Any]] = []
        self.response: web.StreamResponse | None = None
        self.is_stream = False

    async def run(self) -> web.StreamResponse:
        """Ask until the model says something to the client."""
        try:
            return await self._run()
        except (aiohttp.ClientError, ConnectionError):
            if self.response is None or not self.response.prepared:
                raise
            break_off(self.outer.request)
            return self.response

    async def _run(self) -> web.StreamResponse:
        outer = self.outer
        merger = None
        for number in range(_MOST_ROUNDS + 1):
            async with outer.relay.send(outer.request, outer.upstream, self.headers, self.body) as answer:
                if merger is None:
                    if answer.status in (400, 413) and outer.kind != "retry":
                        return await outer.refused(answer)
                    if answer.status != 200:
                        return await outer.stream_back(answer)
                    self.is_stream = "event-stream" in answer.headers.get("Content-Type", "")
                    merger = outer.protocol.merger(self.own, is_stream=self.is_stream)
                    await self._begin(answer)
                elif answer.status != 200:
                    return await self._broken_off(answer)
                with ending_when_lost(answer):
                    async for chunk in answer.content.iter_any():
                        await self._write(merger.feed(chunk))
            turn = merger.end_of_response()
            outer.usage = turn.usage if outer.usage is None else add_usage(outer.usage, turn.usage)
            if not turn.own_calls or not turn.is_complete:
                break
            outer.kind = "recall"
            results = await self._results(turn.own_calls)
            if turn.has_client_calls or number == _MOST_ROUNDS:
                said = [_with_whole_arguments(each) for each in turn.messages]
                await self._keep(merger.client_messages(), [*self.hidden, *said], results)
                self.hidden = []
                break
            self._continue(turn.messages, outer.protocol.tool_results(results))
        assert merger is not None
        if self.hidden:
            await self._keep(merger.client_messages(), [*self.hidden, *merger.full_messages[-1]], [])
        return await self._finish(merger.finish())

    async def _broken_off(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """A later answer is an error: the client gets it where it has got nothing yet, and else no end of its own."""
        if self.response is None or not self.response.prepared:
            return await self.outer.stream_back(answer)
        break_off(self.outer.request)
        return self.response

    async def _begin(self, answer: aiohttp.ClientResponse) -> None:
        content_type = _clean(answer.headers.get("Content-Type", ""))
        self.outer.exchange.begin_reply(ExchangeReply(status=answer.status, content_type=content_type))
        self.response = begin_response(self.outer.request, answer, has_other_length=True)
        if self.is_stream:
            await self.response.prepare(self.outer.request)

    async def _write(self, content: bytes) -> None:
        if content and self.response is not None:
            self.outer.exchange.add(content)
            if not self.response.prepared:
                self.response.content_length = len(content)
                await self.response.prepare(self.outer.request)
            await self.response.write(content)

    async def _finish(self, content: bytes) -> web.StreamResponse:
        assert self.response is not None
        await self._write(content)
        self.outer.is_complete = True
        if not self.response.prepared:
            await self.response.prepare(self.outer.request)
        await self.response.write_eof()
        return self.response

    async def _results(self, calls: list[OwnCall]) -> list[tuple[OwnCall, str]]:
        asked = [to_builtins(call) for call in calls]
        used = sum(map(len, map(json_bytes, self.hidden)))
        given = await self.outer.relay.ask("run", self.outer.exchange, calls=asked, branch=self.branch, used=used)
        texts = given.get("results") or [_NOT_AVAILABLE] * len(calls)
        return list(zip(calls, texts, strict=True))

    def _continue(self, said: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
        """Ask again, with what the model has said and what our tools answer."""
        said = [_with_whole_arguments(each) for each in said]
        self.hidden += [*said, *results]
        sent = self.outer.protocol.read_request(self.body)
        self.body = self.outer.protocol.rebuild(
            self.body, [*sent.raws, *(json_bytes(each) for each in (*said, *results))]
        )

    async def _keep(
        self, seen: list[dict[str, Any]], messages: list[dict[str, Any]], results: list[tuple[OwnCall, str]]
    ) -> None:
        """Have it kept what the client does not see. Without that its next request would lack it, so it gets no end."""
        kept = await self.outer.relay.ask(
            "keep", self.outer.exchange, seen=seen, messages=messages, results=to_builtins(results)
        )
        if "error" in kept:
            raise aiohttp.ClientConnectionError("what the model has looked up could not be kept")


@lru_cache(maxsize=256)
def _window_of(model: str) -> int:
    return window_for(model).tokens


def _clean(text: str) -> str:
    """A header's value as it can be written down, whatever bytes are in it."""
    return text.encode("utf-8", "replace").decode()


def _noted(
    request: web.Request, headers: Mapping[str, str], plain: bytes, dialect: str, upstream: str, mode: str
) -> ExchangeRequest:
    """What is written down of a request beside its body: who sends it, and what it may ask for."""
    credential, account = credential_of(headers, request.query_string)
    may_compact = request.path.endswith(COMPACT_PATH) or may_ask_for_compaction(headers, plain)
    return ExchangeRequest(
        id=token_hex(12),
        at=timestamp(wall_clock()),
        protocol=dialect,
        path=request.path,
        upstream=upstream,
        scope=scope_of(dialect, upstream, account),
        credential=credential,
        headers={name: headers[name] for name in KEPT_HEADERS if name in headers},
        mode=mode,
        kind="compaction" if may_compact else "main",
    )


def _headers_of(request: web.Request) -> dict[str, str]:
    """The headers of a request by their names in lower case. One that was sent twice has both values, a line each."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        clean = _clean(value)
        found[name.lower()] = f"{found[name.lower()]}\n{clean}" if name.lower() in found else clean
    return found


def _with_whole_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a model without arguments of calls that were cut off: they would not be taken back."""
    if "arguments" in message:
        return {**message, "arguments": _whole(message["arguments"])}
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_whole_call(call) for call in calls]}


def _with_whole_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {**call, "function": {**function, "arguments": _whole(function.get("arguments"))}} if function else call


def _whole(arguments: Any) -> Any:
    try:
        msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return "{}"
    return arguments


def _model(body: bytes) -> str:
    """The model that a body names, at a first look."""
    found = _MODEL.search(body)
    return found[1].decode("utf-8", "replace") if found else ""


def passed_headers(request: web.Request) -> CIMultiDict[str]:
    """The headers of a request as they are passed on: those of the client, in its spelling and order."""
    named = {each.strip().lower() for each in request.headers.get("Connection", "").split(",")}
    kept: CIMultiDict[str] = CIMultiDict()
    spelled: dict[str, str] = {}  # of one name in several spellings, aiohttp would send only the last
    for raw_name, raw_value in request.raw_headers:
        name = raw_name.decode("latin-1")
        if name.lower() not in _NOT_PASSED_ON and name.lower() not in OWN_HEADERS and name.lower() not in named:
            kept.add(spelled.setdefault(name.lower(), name), raw_value.decode("utf-8", "surrogateescape"))
    return kept


class UpstreamResponse(web.StreamResponse):
    """A response with the provider's headers; `given` are their names."""

    given: frozenset[str] = frozenset()


def begin_response(
    request: web.Request, answer: aiohttp.ClientResponse, *, has_other_length: bool = False
) -> web.StreamResponse:
    """A response with the status and the headers of the provider's."""
    headers: CIMultiDict[str] = CIMultiDict()
    length = None
    named = {each.strip().lower() for each in answer.headers.get("Connection", "").split(",")}
    for raw_name, raw_value in answer.raw_headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("utf-8", "surrogateescape")
        if name.lower() == "content-length":
            length = value
        elif name.lower() not in _NOT_PASSED_ON and name.lower() not in named:
            headers.add(name, value)
    response = UpstreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    response.given = frozenset(name.lower() for name in headers)
    if has_other_length:
        return response
    if length is not None:
        response.content_length = int(length)
    elif answer.status not in (204, 304) and request.method != "HEAD":
        if request.version >= aiohttp.HttpVersion11:
            response.enable_chunked_encoding()
        else:
            response.force_close()  # nothing else says where the answer ends
    return response


async def without_added_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Take out what the framework adds to a provider's headers."""
    given = response.given if isinstance(response, UpstreamResponse) else frozenset({"date", "content-type"})
    for name in ("Server", "Date", "Content-Type"):
        if name.lower() not in given:
            response.headers.popall(name, None)


def _error(status: int, message: str) -> web.Response:
    """An error of the proxy's own, in the form that all providers share."""
    body = {"type": "error", "error": {"type": "proxy_error", "message": f"compactor proxy: {message}"}}
    return web.json_response(body, status=status)


def _unreachable(upstream: str, error: aiohttp.ClientError) -> web.Response:
    return _error(502, f"{upstream} cannot be reached: {type(error).__name__}: {error}")


async def copy_body(
    request: web.Request,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    start: bytes = b"",
    note: Callable[[bytes], None] = lambda _: None,
) -> bool:
    """Pass the body of an answer back while it comes in; whether all of it came.

    What breaks off in the middle breaks off for the client too: an end would make half an answer look whole.
    """
    try:
        with ending_when_lost(answer):
            if start:
                note(start)
                await response.write(start)
            async for chunk in answer.content.iter_any():
                note(chunk)
                await response.write(chunk)
            await response.write_eof()
    except (aiohttp.ClientError, ConnectionError):
        break_off(request)
        return False
    return True


@contextmanager
def ending_when_lost(answer: aiohttp.ClientResponse) -> Iterator[None]:
    """A block that reads an answer: it ends when the connection does, also where the framing was broken."""
    protocol = answer.connection.protocol if answer.connection is not None else None
    lost = protocol.closed if protocol is not None else None
    end = partial(_end_broken, answer.content)
    if lost is not None:
        lost.add_done_callback(end)
    elif protocol is not None:
        end(None)  # it is lost already
    try:
        yield
    finally:
        if lost is not None:
            lost.remove_done_callback(end)


async def _error_body(answer: aiohttp.ClientResponse) -> bytes:
    """The beginning of an answer that refuses a request."""
    content = b""
    with ending_when_lost(answer):
        while not answer.content.at_eof() and len(content) < _MOST_ERROR_BYTES:
            content += await answer.content.read(_MOST_ERROR_BYTES - len(content))
    return content


def _end_broken(content: aiohttp.StreamReader, _: object) -> None:
    """End a body whose connection is lost. aiohttp does not when the framing was broken, and would wait for ever."""
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError("the connection was closed in the middle of the answer"))


async def _read_up_to(request: web.Request, limit: int) -> tuple[bytes, bool]:
    """The body of a request, and whether that is all of it: more than about `limit` bytes are not read."""
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            return b"".join(pieces), False
    return b"".join(pieces), True


async def _joined(start: bytes, rest: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    yield start
    async for piece in rest.iter_any():
        yield piece


def break_off(request: web.Request) -> None:
    """Close the connection to a client in the middle of an answer."""
    if request.transport is not None:
        request.transport.close()
