"""The client: every method of a session, and what a server adds to them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from context_compactor.client.responses import EventStream, answer_of, error_of
from context_compactor.client.transport import RETRY_SECONDS, HttpReply, HttpRequest, StreamCancel, Transport
from context_compactor.engine.plan import Plan
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier, tier_named, write_turns
from context_compactor.errors import ServerUnavailable
from context_compactor.facts.fact import Fact
from context_compactor.handoff.protocol import HandoffRequest
from context_compactor.json_values import json_bytes, prepare_types
from context_compactor.sessions import api
from context_compactor.store.events import Event


def path_of(session_id: str) -> str:
    """Where a session is."""
    return f"/v1/sessions/{quoted(session_id)}"


def by_tier(steers: Mapping[int, str] | None) -> dict[str, str]:
    """Tiers by turn as a query has them, such as `keep=12,15`; `keep=` alone says that nothing is decided."""
    turns: dict[Tier, list[int]] = {} if steers is None else {Tier.KEEP: []}
    for turn, tier in (steers or {}).items():
        turns.setdefault(tier_named(tier), []).append(turn)
    return {tier.value: write_turns(numbers) for tier, numbers in turns.items()}


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="", errors="replace")


def query_of(query: Mapping[str, Any]) -> dict[str, str]:
    """A query without what was not given."""
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


T = TypeVar("T")

# A server sends a sign of life more often than that.
_QUIET_SECONDS = 60.0


class Client:
    """Calls a server. Any thread may use it, and several at once; close it, or use it as a context manager.

    A server that is away, or answers 502, 503 or 504, is asked again for `retry_seconds`, so that a restart is not
    noticed; 0 turns that off, `math.inf` never gives up. Whatever changes something carries a key, made once for each
    call, by which the server does it once. Errors are those of the library, such as `UnknownSession`; a server that
    stays away is `ServerUnavailable`, a wrong token `ServerDenied`.
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

    # Sessions

    def create(
        self,
        session_id: str | None = None,
        *,
        window: int,
        dialect: str = "auto",
        model: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> api.SessionAnswer:
        """Open a session; it is made when there is none. Without an id it is given one."""
        given = {"id": session_id, "window": window, "dialect": dialect, "model": model, "settings": settings}
        return self._post("/v1/sessions", given, api.SessionAnswer)

    def session(self, session_id: str) -> api.SessionDetail:
        """What a session is, how full its context is, and what its compactions have saved."""
        return self._get(path_of(session_id), api.SessionDetail)

    def sessions(self, after: str | None = None, limit: int = 100) -> api.SessionPage:
        """A page of the sessions, by their ids; `next` of the answer is `after` of the next page."""
        return self._get("/v1/sessions", api.SessionPage, after=after, limit=limit)

    def every_session(self) -> Iterator[api.SessionAnswer]:
        """All sessions, page by page."""
        after: str | None = None
        while True:
            page = self.sessions(after)
            yield from page.sessions
            after = page.next
            if after is None:
                return

    def delete(self, session_id: str) -> None:
        """Delete a session for good, with everything that is kept of it; `UnknownSession` when there is none."""
        reply = self._delete(path_of(session_id))
        if reply.status != 204:
            raise error_of(reply)

    # Talking

    def append(
        self,
        session_id: str,
        message: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> api.AppendAnswer:
        """Append one message or several, all or none; `usage` is what the provider reported for the reply.

        However often it has to be sent, it is appended once. A `key` of your own makes that so across calls.
        """
        messages = [message] if isinstance(message, Mapping) else list(message)
        return self._post(
            f"{path_of(session_id)}/messages",
            {"messages": messages, "usage": usage},
            api.AppendAnswer,
            key=key,
        )

    def context(self, session_id: str, at: int | None = None, *, sealed: bool = True) -> api.ContextAnswer:
        """What to send next; with `at`, what was sent when so many messages had been appended."""
        return self._get(f"{path_of(session_id)}/context", api.ContextAnswer, at=at, sealed=sealed)

    def history(self, session_id: str, after: int = 0, limit: int | None = None) -> api.HistoryAnswer:
        """Everything that was appended, in order and equal to what went in; or a page of it."""
        return self._get(f"{path_of(session_id)}/history", api.HistoryAnswer, after=after, limit=limit)

    # Compacting

    def compact(
        self,
        session_id: str,
        focus: str | None = None,
        level: str | None = None,
        dry_run: bool = False,
        *,
        target_tokens: int | None = None,
        preserve: int | None = None,
    ) -> api.CompactAnswer:
        """Compact now, at any fill; `focus` says what matters, `dry_run` changes nothing."""
        given = {"focus": focus, "level": level, "target_tokens": target_tokens, "preserve": preserve}
        return self._post(f"{path_of(session_id)}/compact", {**given, "dry_run": dry_run}, api.CompactAnswer)

    def cancel(self, session_id: str) -> api.CancelAnswer:
        """End the compactions of a session that are under way; whoever has asked for one gets `Cancelled`."""
        return self._post(f"{path_of(session_id)}/cancel", None, api.CancelAnswer)

    def plan(
        self,
        session_id: str,
        focus: str | None = None,
        level: str | None = None,
        target_tokens: int | None = None,
        *,
        steers: Mapping[int, str] | None = None,
    ) -> Plan:
        """What a compaction would do now, turn by turn; nothing is changed.

        With `steers`, tiers by turn, it is as if these had been decided and no others.
        """
        given = {"focus": focus, "level": level, "target_tokens": target_tokens, **by_tier(steers)}
        found = self._get(f"{path_of(session_id)}/plan", api.PlanAnswer, **given)
        return Plan(tuple(found.decisions), found.report, {each.turn: each.tier for each in found.steers})

    def steer(self, session_id: str, turn: int, tier: str) -> dict[int, Tier]:
        """Decide about a turn yourself, for every compaction to come; what is decided now, by turn."""
        return self._steered(session_id, {"turn": turn, "tier": tier})

    def unsteer(self, session_id: str, turn: int | None = None) -> dict[int, Tier]:
        """Leave a turn to the engine again, or all of them; what is decided now, by turn."""
        return self._steered(session_id, {"turn": turn})

    def _steered(self, session_id: str, body: Mapping[str, Any]) -> dict[int, Tier]:
        found = self._post(f"{path_of(session_id)}/steering", body, api.SteeringAnswer)
        return {each.turn: each.tier for each in found.steers}

    def steering(self, session_id: str) -> dict[int, Tier]:
        """What was decided about turns that stand in the context, by their number."""
        found = self._get(f"{path_of(session_id)}/steering", api.SteeringAnswer)
        return {each.turn: each.tier for each in found.steers}

    def compactions(self, session_id: str, after: str | None = None, limit: int = 100) -> api.CompactionPage:
        """The reports of a session's compactions, in order."""
        return self._get(f"{path_of(session_id)}/compactions", api.CompactionPage, after=after, limit=limit)

    def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back; its report, or None when there is none to take back."""
        return self._post(f"{path_of(session_id)}/undo", None, api.UndoAnswer).report

    def redo(self, session_id: str) -> Report | None:
        """Take the last undo back."""
        return self._post(f"{path_of(session_id)}/redo", None, api.UndoAnswer).report

    # Getting back

    def archive(self, session_id: str, after: str | None = None, limit: int = 100) -> api.ArchivePage:
        """The originals of a session in the order in which they were archived."""
        return self._get(f"{path_of(session_id)}/archive", api.ArchivePage, after=after, limit=limit)

    def recall(
        self, session_id: str, ref: str, lines: tuple[int, int] | None = None, *, form: api.RecallForm = "original"
    ) -> str:
        """An original, byte for byte, or some lines of it, counted from 1; or a turn as a conversation."""
        wanted = f"{lines[0]}-{lines[1]}" if lines else None
        path = f"{path_of(session_id)}/archive/{quoted(ref)}"
        return self._get(path, api.RecallAnswer, lines=wanted, form=form).text

    def page(
        self, session_id: str, ref: str, number: int = 1, tokens: int = 2_000, *, form: api.RecallForm = "original"
    ) -> api.RecallAnswer:
        """One page of an original that is too long to be shown at once."""
        path = f"{path_of(session_id)}/archive/{quoted(ref)}"
        return self._get(path, api.RecallAnswer, page=number, tokens=tokens, form=form)

    def restore(self, session_id: str, ref: str) -> api.RestoreAnswer:
        """Put an original back into the context, with room made for it when there is none."""
        return self._post(f"{path_of(session_id)}/restore", {"ref": ref}, api.RestoreAnswer)

    def search(
        self,
        session_id: str,
        text: str,
        *,
        limit: int | None = None,
        tokens: int = 2_000,
        kind: str = "",
        since: str = "",
        until: str = "",
    ) -> api.SearchAnswer:
        """Lines of a session's originals that answer a question, best first."""
        path = f"{path_of(session_id)}/search"
        given = {"limit": limit, "tokens": tokens, "kind": kind or None, "since": since or None, "until": until or None}
        return self._get(path, api.SearchAnswer, q=text, **given)

    # Remembering and going on

    def facts(self, session_id: str, kind: str | None = None) -> list[Fact]:
        """What must outlive the text: decisions, errors, failures, file states and so on, by turn."""
        return self._get(f"{path_of(session_id)}/facts", api.FactsAnswer, kind=kind).facts

    def checkpoint(self, session_id: str) -> api.CheckpointAnswer:
        """Where the work stands, as a value and as Markdown."""
        return self._get(f"{path_of(session_id)}/checkpoint", api.CheckpointAnswer)

    def write_checkpoint(self, session_id: str, note: str = "") -> api.CheckpointAnswer:
        """Keep where the work stands, with a note of one's own."""
        return self._post(f"{path_of(session_id)}/checkpoint", {"note": note}, api.CheckpointAnswer)

    def handoff(
        self,
        session_id: str,
        phase: str = "write",
        task: str = "",
        task_id: str = "",
        *,
        feature: str = "",
        spec_path: str = "",
    ) -> HandoffRequest:
        """What a sub-agent or the next phase is given, with what earlier ones have reported. Compacts first."""
        given = {"phase": phase, "task": task, "task_id": task_id, "feature": feature, "spec_path": spec_path}
        return self._post(f"{path_of(session_id)}/handoff", given, api.HandoffAnswer).request

    def receive(self, session_id: str, answer: Mapping[str, Any] | str) -> api.ReceiveAnswer:
        """Take in a sub-agent's answer to a handoff; the next phase is given what it says."""
        given = {"answer": answer if isinstance(answer, str) else dict(answer)}
        return self._post(f"{path_of(session_id)}/handoff/answer", given, api.ReceiveAnswer)

    # The server

    def health(self) -> api.HealthAnswer:
        """That the server answers, and its version."""
        return self._get("/healthz", api.HealthAnswer)

    def events(
        self,
        session_id: str | None = None,
        after: str = "",
        types: Iterable[str] = (),
        on_gap: Callable[[str], None] | None = None,
    ) -> Iterator[Event]:
        """Events as they happen, of all sessions or of one, without end; `after` is the id of the last one known.

        After a break it goes on behind the last event it has seen; when the server no longer keeps that one, some may
        be missing, and `on_gap` is called with a sentence that says so. Without it a warning is logged. A server that
        stays away for longer than `retry_seconds` is `ServerUnavailable`.
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
        stream, patience = EventStream(after, on_gap), self._transport.patience()
        query = query_of({"session_id": session_id, "types": ",".join(types) or None})
        while True:
            known = {"Last-Event-ID": stream.last_id} if stream.last_id else {}
            request = HttpRequest(
                method="GET", path="/v1/events", query=query, headers={"Accept": "text/event-stream", **known}
            )
            try:
                with self._transport.stream(request, _QUIET_SECONDS, ending) as (reply, lines):
                    if reply.status != 200:
                        raise error_of(reply)
                    patience.succeed()
                    yield from stream.read(lines)
                problem: Exception = ServerUnavailable("the stream has ended")
            except (OSError, HTTPException, ServerUnavailable) as error:
                problem = error  # it is down or has gone quiet: it is asked again
            wait = patience.fail(stream.pause)
            if ending.is_over:
                return
            if wait is None:
                raise self._transport.unavailable(problem, patience) from problem
            ending.wait(wait)

    def add_webhook(self, url: str, types: Iterable[str] = ()) -> api.WebhookMade:
        """Have an address told of events; the answer has the secret of its signatures, which is shown only now."""
        return self._post("/v1/webhooks", {"url": url, "types": list(types)}, api.WebhookMade)

    def webhooks(self) -> list[api.WebhookAnswer]:
        """Who is told of events."""
        return self._get("/v1/webhooks", api.WebhooksAnswer).webhooks

    def remove_webhook(self, webhook_id: str) -> None:
        """Tell a webhook nothing more."""
        answer_of(self._delete(f"/v1/webhooks/{quoted(webhook_id)}"), api.RemovedAnswer)

    def deliveries(self, webhook_id: str) -> api.DeliveriesAnswer:
        """What a webhook is yet to be told, and how the last attempts went."""
        return self._get(f"/v1/webhooks/{quoted(webhook_id)}/deliveries", api.DeliveriesAnswer)

    def replay(self, webhook_id: str, after: str = "") -> int:
        """Tell a webhook again what came behind an event, or all that is kept; how many events that are."""
        return self._post(f"/v1/webhooks/{quoted(webhook_id)}/replay", {"after": after}, api.ReplayAnswer).owed

    # How it is said

    def _get(self, path: str, answer: type[T], /, **query: Any) -> T:
        request = HttpRequest(method="GET", path=path, query=query_of(query))
        return answer_of(self._transport.send(request), answer)

    def _delete(self, path: str) -> HttpReply:
        return self._transport.send(
            HttpRequest(method="DELETE", path=path, headers={api.IDEMPOTENCY_KEY: uuid.uuid4().hex})
        )

    def _post(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        kind: type[T],
        *,
        key: str | None = None,
    ) -> T:
        wanted = None if body is None else {name: value for name, value in body.items() if value is not None}
        content = None if wanted is None else json_bytes(wanted)
        headers = {api.IDEMPOTENCY_KEY: key or uuid.uuid4().hex}
        request = HttpRequest(method="POST", path=path, body=content, headers=headers)
        return answer_of(self._transport.send(request), kind)
