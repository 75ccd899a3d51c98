"""Delivers events to webhooks: allowed targets, signatures, the POST itself, and retries."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import logging
import random
import secrets
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from context_compactor import __version__
from context_compactor.errors import BadSetting
from context_compactor.protocols import ServiceStore
from context_compactor.server.event_feed import public_event
from context_compactor.server.tokens import Scope
from context_compactor.sessions.core import wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.holders import process_name
from context_compactor.store.events import make_event
from context_compactor.store.rows import Delivery, DeliveryAttempt, Webhook, namespace_of, timestamp

SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret for a new webhook."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signed_headers(secret: str, event_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows who has sent a body, which event it is, and when it was sent."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = hmac.digest(key, b"%s.%d.%s" % (event_id.encode(), seconds, body), "sha256")
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


_MAX_URL_LENGTH = 2_000
_DEFAULT_PORTS = {"https": 443, "http": 80}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Addresses with a meaning inside of some networks only, which the standard library takes for public ones or has taken.
_PRIVATE_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # for protocols; some clouds have their machines' own facts there
            "192.88.99.0/24",
            "168.63.129.16/32",  # the host of a machine in Azure
            "64:ff9b:1::/48",
            "2001:20::/28",
            "3fff::/20",
            "5f00::/16",
            "fec0::/10",
        ),
    )
)
_ADVICE = "Try: an https address that the public internet can reach, or `compactor serve --allow-private-webhooks`."

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""The addresses behind a name."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookTarget(Struct, frozen=True):
    """The parts of a webhook's address."""

    host: str
    port: int
    path: str
    is_tls: bool

    @property
    def host_header(self) -> str:
        """How the target is called in a request."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS["https" if self.is_tls else "http"] else f"{name}:{self.port}"


def read_target(url: str, *, allow_private: bool) -> WebhookTarget:
    """The parts of an address, or `BadSetting` that says why it cannot be one."""
    if len(url) > _MAX_URL_LENGTH or not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
        raise BadSetting(
            f"url: {url[:80]!r} is not a URL: it is too long or contains characters that a URL cannot have. {_ADVICE}"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadSetting(f"url: {url[:80]!r} is not a URL: {error}. {_ADVICE}") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise BadSetting(f"url: {parts.scheme[:20]}://… is not the URL of a webhook, or contains a password. {_ADVICE}")
    if parts.scheme == "http" and not allow_private:
        raise BadSetting(f"url: plain http would send events unencrypted. {_ADVICE}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], path, parts.scheme == "https")


def without_path(url: str) -> str:
    """An address as those may see it who may not use it: what stands behind the machine's name may be a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if parts.path.strip("/") or parts.query else "")


async def resolve_target(target: WebhookTarget, lookup: Resolver, *, allow_private: bool) -> str:
    """The address to connect to, or `BadSetting` when any address behind the name is one inside."""
    found = await lookup(target.host, target.port)
    if not allow_private and not all(map(is_public, found)):  # where it leads is nothing that a stranger may learn
        raise BadSetting(f"url: {target.host[:80]!r} does not resolve to a public address. {_ADVICE}")
    return found[0]


def is_public(text: str) -> bool:
    """Whether an address is one that anybody may reach: not loopback, private, link-local, shared or multicast."""
    address = _embedded_ipv4(ipaddress.ip_address(text.partition("%")[0]))
    is_odd = address.is_multicast or address.is_reserved or any(address in network for network in _PRIVATE_NETWORKS)
    return address.is_global and not is_odd


def _embedded_ipv4(address: Address) -> Address:
    """The IPv4 address within one of IPv6 that only wraps it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None) or address


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses that the system knows for a name; `OSError` when there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host[:80]!r} is not a host name") from error
    return [str(entry[4][0]) for entry in found]


_MAX_LINE = 8 * 1024
_MAX_ANSWER = 64 * 1024
_MAX_INTERIM_RESPONSES = 5
# Some servers log an error when nobody takes their answer; longer than that nobody waits for it.
_DRAIN_SECONDS = 1.0


class DeliveryFailed(Exception):
    """Nothing that could be called an answer came back."""


async def post(target: WebhookTarget, address: str, headers: dict[str, str], body: bytes, seconds: float) -> int:
    """The status that a target answers. `DeliveryFailed` says why there is none; whatever happens, it ends in time."""
    try:
        async with asyncio.timeout(seconds):
            return await _send_request(target, address, headers, body)
    except TimeoutError as error:
        raise DeliveryFailed(f"no answer within {seconds:g} seconds") from error
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise DeliveryFailed(f"no answer: {str(error) or type(error).__name__}") from error


async def _send_request(target: WebhookTarget, address: str, headers: dict[str, str], body: bytes) -> int:
    reader, writer = await asyncio.open_connection(
        address,
        target.port,
        limit=_MAX_LINE,
        ssl=_ssl_context() if target.is_tls else None,
        server_hostname=target.host if target.is_tls else None,
    )
    try:
        writer.write(_request_head(target, headers, len(body)) + body)
        await writer.drain()
        status = await _read_status(reader)
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await _drain(reader)
        return status
    finally:
        writer.transport.abort()


@cache
def _ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request_head(target: WebhookTarget, headers: dict[str, str], length: int) -> bytes:
    known = {"Host": target.host_header, "Content-Length": str(length), "Connection": "close", **headers}
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in known.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_status(reader: asyncio.StreamReader) -> int:
    """The status of the answer, behind those that only say that one is coming."""
    for _ in range(_MAX_INTERIM_RESPONSES):
        line = await reader.readuntil(b"\n")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("the response is not HTTP")
        status = int(rest[:3])
        if status >= 200:
            return status
        while (await reader.readuntil(b"\n")).strip():
            pass
    raise ValueError("the response ended after an interim status")


async def _drain(reader: asyncio.StreamReader) -> None:
    room = _MAX_ANSWER
    while room > 0 and (piece := await reader.read(room)):
        room -= len(piece)


_log = logging.getLogger("context_compactor")
_MAX_PARALLEL = 16
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_LEASE_SECONDS = 30.0
_FIRST_DELAY, _MAX_DELAY = 5.0, 3600.0
MAX_FAILURES = 12
"""So many in a row, within about two and a half hours, and a webhook is disabled."""
_GONE = 410
_STOP_SECONDS = 3.0

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class WebhookSender:
    """Sends webhooks the events that wait for them. `counts` has how often that went how."""

    def __init__(
        self,
        service_store: ServiceStore,
        bus: Bus,
        run: RunInThread,
        *,
        store_path: str,
        allow_private: bool,
        lookup: Resolver = resolve_host,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.first_wait = _FIRST_DELAY
        self.poll_seconds = _POLL_SECONDS
        self.answer_seconds = _ANSWER_SECONDS
        self._service_store = service_store
        self._bus = bus
        self._run = run
        self._store_path = store_path
        self._allow_private = allow_private
        self.lookup = lookup
        self._name = process_name()
        self._notified = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with what waits from before too. Call it in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def notify(self) -> None:
        """There may be something to send."""
        self._notified.set()

    async def stop(self) -> None:
        """Begin nothing more; what does not end soon is sent again by whoever comes next."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _serve(self) -> None:
        is_failing = False
        while True:
            self._notified.clear()
            try:
                await self._begin()
                is_failing = False
            except Exception as error:  # noqa: BLE001  what is due now is due at the next look
                if not is_failing:
                    _log.warning("deliveries cannot be looked for, which is tried until it works: %r", error)
                is_failing = True
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_seconds):
                    await self._notified.wait()

    async def _begin(self) -> None:
        while len(self._under_way) < _MAX_PARALLEL:
            now = wall_clock()
            until = timestamp(now, _LEASE_SECONDS)
            delivery = await self._run(lambda: self._service_store.webhooks.claim(self._name, timestamp(now), until))  # noqa: B023
            if delivery is None:
                return
            task = asyncio.create_task(self._deliver(delivery))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._notified.set()
        if not task.cancelled() and task.exception() is not None:  # its lease will lapse
            _log.warning("a delivery could not be ended: %s", task.exception())

    async def _deliver(self, delivery: Delivery) -> None:
        webhook = await self._run(lambda: self._webhook(delivery))
        if webhook is None:
            return  # it was removed meanwhile, and what waited for it too
        try:
            status = await self._post(webhook, delivery)
            redirected = ", and redirects are not followed" if 300 <= status < 400 else ""
            reason = "" if 200 <= status < 300 else f"it answered {status}{redirected}"
        except (DeliveryFailed, BadSetting, OSError) as error:
            status, reason = 0, str(error) or "its name was not resolved in time"
        await self._run(lambda: self._note(webhook, delivery, status, reason))

    def _webhook(self, delivery: Delivery) -> Webhook | None:
        return self._service_store.webhooks.find(delivery.webhook, namespace_of(delivery.kept.event.session_id))

    async def _post(self, webhook: Webhook, delivery: Delivery) -> int:
        event = delivery.kept.event
        target = read_target(webhook.url, allow_private=self._allow_private)
        async with asyncio.timeout(self.answer_seconds):
            address = await resolve_target(target, self.lookup, allow_private=self._allow_private)
        body = public_event(event, Scope(webhook.namespace), self._store_path)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"context-compactor/{__version__}",
            **signed_headers(webhook.secret, event.id, int(wall_clock().timestamp()), body),
        }
        return await post(target, address, headers, body, self.answer_seconds)

    def _note(self, webhook: Webhook, delivery: Delivery, status: int, reason: str) -> None:
        """Keep what came of an attempt. After too many that failed the webhook is disabled, and an event says so."""
        event, now = delivery.kept.event, wall_clock()
        is_over = False
        with self._service_store.writing():
            self._service_store.attempts.add(
                DeliveryAttempt(webhook.id, event.id, event.type, delivery.attempts, timestamp(now), status, reason)
            )
            if not reason:
                self._service_store.webhooks.delivered(delivery)
            else:
                due_at = timestamp(now, self._wait(delivery.attempts))
                failures = self._service_store.webhooks.failed(delivery, due_at, reason)
                is_over = failures >= MAX_FAILURES or status == _GONE
            if is_over:
                self._service_store.webhooks.disable(webhook.id, timestamp(now), reason)
        self.counts["failed" if reason else "delivered"] += 1
        if is_over:
            self._emit_disabled(webhook, delivery, reason)

    def _wait(self, attempts: int) -> float:
        """A wait that doubles each time, a little different for each, so that not all come back at once."""
        return min(self.first_wait * 2.0 ** (min(attempts, 30) - 1), _MAX_DELAY) * random.uniform(0.9, 1.1)

    def _emit_disabled(self, webhook: Webhook, delivery: Delivery, reason: str) -> None:
        self.counts["disabled"] += 1
        payload = {"what": "webhook", "webhook": webhook.id, "attempt": delivery.attempts, "reason": reason}
        self._bus.emit(make_event("job.dropped", Scope(webhook.namespace).prefix, payload, wall_clock()))
