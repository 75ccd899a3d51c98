"""The client: every verb of `sessions/verbs.py` as a method, and the stream of events."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from http.client import HTTPException
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from urllib.parse import quote

from msgspec import Struct, structs

from context_compactor.client.responses import EventStream, answer_of, error_of
from context_compactor.client.transport import RETRY_SECONDS, HttpRequest, StreamCancel, Transport
from context_compactor.errors import ServerUnavailable
from context_compactor.json_values import json_bytes, prepare_types
from context_compactor.sessions import schemas
from context_compactor.sessions.verbs import ServerVerbs, Verb, VerbCaller, Verbs
from context_compactor.store.events import Event

P = ParamSpec("P")
Q = TypeVar("Q", bound=Struct)
A = TypeVar("A")
R = TypeVar("R")

# A server sends a sign of life more often than that.
_QUIET_SECONDS = 60.0


class Client(Verbs, VerbCaller):
    """Calls a server. Several threads may use it at once. Close it, or use it as a context manager.

    If the server is away, or answers 502, 503 or 504, a call is repeated for `retry_seconds`; 0 turns that off,
    `math.inf` never gives up. Calls that write carry an idempotency key, so a repeated call is done once; `append`
    accepts a key of your own, which also covers several calls. Errors are those of the library, such as
    `UnknownSession`; `ServerUnavailable` means that there was no answer, `ServerDenied` a wrong token.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 330.0, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        prepare_types()
        self._transport = Transport(url, token, timeout=timeout, retry_seconds=retry_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def call(self, verb: Verb[P, Q, A, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb, like the method of its name."""
        call = verb.call(*args, **kwargs)
        path = verb.path.replace("{id}", _quoted(call.id)).replace("{ref}", _quoted(call.ref))
        fields = {name: value for name, value in structs.asdict(call.request).items() if value is not None}
        request = HttpRequest(
            method=verb.method,
            path=path,
            query={} if verb.body else _query(fields),
            body=json_bytes(fields) if verb.body else None,
            headers={schemas.IDEMPOTENCY_KEY: call.key or uuid.uuid4().hex} if verb.writes else {},
        )
        return verb.result(answer_of(self._transport.send(request), verb.answer))

    def every_session(self) -> Iterator[schemas.SessionAnswer]:
        """All sessions, page by page."""
        page = self.sessions()
        while True:
            yield from page.sessions
            if page.next is None:
                return
            page = self.sessions(page.next)

    def events(
        self,
        session_id: str | None = None,
        after: str = "",
        types: Iterable[str] = (),
        on_gap: Callable[[str], None] | None = None,
    ) -> Iterator[Event]:
        """Events as they happen, of all sessions or of one, without end; `after` is the id of the last known event.

        After a lost connection it continues after the last event. If the server no longer has that event, some may be
        missing: `on_gap` is called with a sentence that says so, or a warning is logged. A server that is away for
        longer than `retry_seconds` raises `ServerUnavailable`.
        """
        return self._follow(StreamCancel(), session_id, after, types, on_gap)

    def _follow(
        self,
        ending: StreamCancel,
        session_id: str | None,
        after: str,
        types: Iterable[str],
        on_gap: Callable[[str], None] | None,
    ) -> Generator[Event, None, None]:
        """The same, until it is ended from another thread."""
        stream, retries = EventStream(after, on_gap), self._transport.retry_timer()
        events, wanted = ServerVerbs.events, {"session_id": session_id, "types": ",".join(types) or None}
        query = _query({name: value for name, value in wanted.items() if value is not None})
        while True:
            headers = {"Accept": events.media_type, **({"Last-Event-ID": stream.last_id} if stream.last_id else {})}
            request = HttpRequest(method=events.method, path=events.path, query=query, headers=headers)
            try:
                with self._transport.stream(request, _QUIET_SECONDS, ending) as (reply, lines):
                    if reply.status != 200:
                        raise error_of(reply)
                    retries.succeed()
                    yield from stream.read(lines)
                problem: Exception = ServerUnavailable("the stream has ended")
            except (OSError, HTTPException, ServerUnavailable) as error:
                problem = error  # it is down or has gone quiet: it is asked again
            wait = retries.fail(stream.pause)
            if ending.is_over:
                return
            if wait is None:
                raise self._transport.unavailable(problem, retries) from problem
            ending.wait(wait)


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="replace")


def _query(fields: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
