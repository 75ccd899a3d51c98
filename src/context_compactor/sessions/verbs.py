"""Every verb of the HTTP API, declared once: the server's routes, both clients and the OpenAPI document follow from it.

A verb is a function that turns a caller's arguments into a request. Its decorator says where the request goes and what
comes back, its signature is that of the clients' method, and its docstring stands in the OpenAPI document.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct

from context_compactor.dialects.dialect import one_or_several, plain_messages
from context_compactor.engine.plan import Plan
from context_compactor.engine.tiers import Tier, tier_named, write_turns
from context_compactor.json_values import plain_value
from context_compactor.sessions import schemas
from context_compactor.sessions.schemas import NoQuery
from context_compactor.tokens.counting import read_system, read_tools

P = ParamSpec("P")
P2 = ParamSpec("P2")
Q = TypeVar("Q", bound=Struct)
"""What is sent: the body of a POST, the query of anything else."""
A = TypeVar("A")
"""What is answered: a struct as JSON, None for an empty answer, bytes for anything else."""
R = TypeVar("R")
"""What a method of the clients returns."""
T = TypeVar("T")


class VerbCall(Struct, Generic[Q], frozen=True):
    """A request, the `{id}` and `{ref}` of its path, and the caller's own idempotency key when there is one."""

    request: Q
    id: str = ""
    ref: str = ""
    key: str = ""


class VerbOptions(TypedDict, total=False):
    """What only some verbs declare."""

    name: str
    """The operation id; else the name of the function."""
    tag: str
    errors: tuple[int, ...]
    """Statuses of problems beside those that every verb of its kind can have."""
    statuses: tuple[int, ...]
    headers: tuple[str, ...]
    """Request headers that it reads."""
    media_type: str
    is_open: bool
    """Whether no token is needed."""
    former_path: str
    """The path that it had in an earlier version, which is still answered."""


class Verb(Generic[P, Q, A, R]):
    """One verb. As an attribute of a client it is a method; of a class, it is the declaration itself."""

    def __init__(
        self,
        arguments: Callable[Concatenate[Any, P], VerbCall[Q]],
        route: str,
        request: type[Q],
        answer: type[A],
        result: Callable[[A], R],
        options: VerbOptions,
    ) -> None:
        self.method, self.path = route.split(" ")
        self.request = request
        self.answer = answer
        self.result = result
        self.options = options
        self.name = options.get("name", arguments.__name__)
        self.tag = options.get("tag", "sessions")
        self.errors = options.get("errors", ())
        self.statuses = options.get("statuses", (200,))
        self.headers = options.get("headers", ())
        self.media_type = options.get("media_type", "application/json")
        self.is_open = options.get("is_open", False)
        self.former_path = options.get("former_path", "")
        self.arguments = arguments
        self.doc = inspect.getdoc(arguments) or ""
        self.is_variant = False

        def method(caller: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
            return caller.call(self, *args, **kwargs)

        signature = inspect.signature(arguments).replace(return_annotation=inspect.Signature.empty)
        vars(update_wrapper(method, arguments))["__signature__"] = signature
        self._method = method

    @overload
    def __get__(self, caller: None, owner: type) -> Self: ...
    @overload
    def __get__(self, caller: VerbCaller, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, caller: AsyncVerbCaller, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, caller: Any, owner: type) -> Any:
        return self if caller is None else MethodType(self._method, caller)

    @property
    def body(self) -> type[Q] | None:
        """The type of the body, when it has one."""
        return self.request if self.method == "POST" and self.request is not NoQuery else None

    @property
    def query(self) -> type[Struct]:
        """The type of the query."""
        return NoQuery if self.body else self.request

    @property
    def writes(self) -> bool:
        """Whether a token that may only read is refused, and an idempotency key is taken."""
        return self.method != "GET"

    @property
    def is_json(self) -> bool:
        """Whether a struct is answered."""
        return issubclass(self.answer, Struct)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> VerbCall[Q]:
        """The request that these arguments make."""
        return self.arguments(None, *args, **kwargs)

    def variant(
        self, result: Callable[[A], T]
    ) -> Callable[[Callable[Concatenate[Any, P2], VerbCall[Q]]], Verb[P2, Q, A, T]]:
        """Another method of the clients for the same route."""

        def declare(arguments: Callable[Concatenate[Any, P2], VerbCall[Q]]) -> Verb[P2, Q, A, T]:
            made = Verb(arguments, f"{self.method} {self.path}", self.request, self.answer, result, self.options)
            made.is_variant = True
            return made

        return declare


class VerbCaller:
    """Calls verbs and returns what they return."""

    def call(self, verb: Verb[P, Q, A, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb."""
        raise NotImplementedError


class AsyncVerbCaller:
    """Calls verbs, to be awaited."""

    async def call(self, verb: Verb[P, Q, A, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb."""
        raise NotImplementedError


@overload
def verb(
    route: str, request: type[Q], answer: type[A], *, result: Callable[[A], R], **options: Unpack[VerbOptions]
) -> Callable[[Callable[Concatenate[Any, P], VerbCall[Q]]], Verb[P, Q, A, R]]: ...
@overload
def verb(
    route: str, request: type[Q], answer: type[A], **options: Unpack[VerbOptions]
) -> Callable[[Callable[Concatenate[Any, P], VerbCall[Q]]], Verb[P, Q, A, A]]: ...
def verb(
    route: str,
    request: type[Q],
    answer: type[Any],
    *,
    result: Callable[[Any], Any] = lambda answer: answer,
    **options: Unpack[VerbOptions],
) -> Callable[[Callable[Concatenate[Any, P], VerbCall[Q]]], Verb[P, Q, Any, Any]]:
    """Declare a verb: its method and path, its request and its answer. `result` is what clients make of the answer."""
    return lambda arguments: Verb(arguments, route, request, answer, result, options)


def _ask(request: type[Q], session_id: str = "", ref: str = "", /, **fields: Any) -> VerbCall[Q]:
    """A request of these fields. The server checks them, with the same words for every client."""
    return VerbCall(request(**fields), session_id, ref)


def _plan(answer: schemas.PlanAnswer) -> Plan:
    return Plan(tuple(answer.decisions), answer.report, {each.turn: each.tier for each in answer.tiers})


def _tiers(answer: schemas.TiersAnswer) -> dict[int, Tier]:
    return {each.turn: each.tier for each in answer.tiers}


def _turns_by_tier(tiers: Mapping[int, str] | None) -> dict[str, str]:
    """Tiers by turn as a query has them, such as `keep=12,15`; `keep=` alone says that nothing is decided."""
    turns: dict[Tier, list[int]] = {} if tiers is None else {Tier.KEEP: []}
    for turn, tier in (tiers or {}).items():
        turns.setdefault(tier_named(tier), []).append(turn)
    return {tier.value: write_turns(numbers) for tier, numbers in turns.items()}


_SESSION = "/v1/sessions/{id}"
_WEBHOOK = "/v1/webhooks/{id}"


_FORMER_NAMES = {"steering": "tiers", "steer": "set_tier", "unsteer": "clear_tier"}


class Verbs:
    """The verbs that the clients have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A method under the name that it had in an earlier version."""
            if name not in _FORMER_NAMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warnings.warn(f"{name}() is deprecated; use {_FORMER_NAMES[name]}()", DeprecationWarning, stacklevel=2)
            return getattr(self, _FORMER_NAMES[name])

    # Sessions and messages

    @verb("POST /v1/sessions", schemas.CreateBody, schemas.SessionAnswer, statuses=(200, 201))
    def create(
        self,
        session_id: str | None = None,
        *,
        window: int,
        dialect: str = "auto",
        model: str | None = None,
        tools: object = None,
        system: object = None,
        settings: Mapping[str, Any] | None = None,
    ) -> VerbCall[schemas.CreateBody]:
        """Open a session: create it, or continue it if it exists. What is given holds from now on.

        `tools` and `system` are what the agent sends beside the messages: they are counted, and only their size is
        kept.
        """
        return _ask(
            schemas.CreateBody,
            id=session_id,
            window=window,
            dialect=dialect,
            model=model,
            tools=None if tools is None else read_tools(tools),
            system=None if system is None else read_system(system),
            settings=settings,
        )

    @verb("GET /v1/sessions", schemas.PageQuery, schemas.SessionPage)
    def sessions(self, after: str | None = None, limit: int = 100) -> VerbCall[schemas.PageQuery]:
        """List the sessions of the token's namespace, ordered by id, page by page."""
        return _ask(schemas.PageQuery, after=after, limit=limit)

    @verb(f"GET {_SESSION}", NoQuery, schemas.SessionDetail)
    def session(self, session_id: str) -> VerbCall[NoQuery]:
        """Show a session: its settings, how full its context is by section, and what its compactions have saved."""
        return _ask(NoQuery, session_id)

    @verb(f"DELETE {_SESSION}", NoQuery, type(None), name="delete_session", statuses=(204,))
    def delete(self, session_id: str) -> VerbCall[NoQuery]:
        """Delete a session for good, with its history, archive, facts and events.

        Running work is cancelled. Contents that other sessions share stay. The answer is 204, without a body.
        """
        return _ask(NoQuery, session_id)

    @verb(f"POST {_SESSION}/messages", schemas.AppendBody, schemas.AppendAnswer)
    def append(
        self,
        session_id: str,
        message: object,
        usage: object = None,
        *,
        key: str | None = None,
    ) -> VerbCall[schemas.AppendBody]:
        """Append messages, all or none; when the request is answered, they are on the disk.

        With the header `Idempotency-Key` a repeated request appends nothing and gets the first answer.
        """
        messages = plain_messages(one_or_several(message))
        given = plain_value(usage)
        return VerbCall(schemas.AppendBody(messages=messages, usage=given), session_id, key=key or "")

    @verb(
        f"GET {_SESSION}/context",
        schemas.ContextQuery,
        schemas.ContextAnswer,
        statuses=(200, 304),
        headers=("If-None-Match",),
    )
    def context(self, session_id: str, at: int | None = None, *, sealed: bool = True) -> VerbCall[schemas.ContextQuery]:
        """Get the messages to send next. With `If-None-Match` an unchanged context is answered with 304."""
        return _ask(schemas.ContextQuery, session_id, at=at, sealed=sealed)

    @verb(f"GET {_SESSION}/history", schemas.HistoryQuery, schemas.HistoryAnswer)
    def history(self, session_id: str, after: int = 0, limit: int | None = None) -> VerbCall[schemas.HistoryQuery]:
        """Get everything that was appended, in order and equal to what went in; with `limit`, page by page."""
        return _ask(schemas.HistoryQuery, session_id, after=after, limit=limit)

    # Compactions

    @verb(f"POST {_SESSION}/compact", schemas.CompactBody, schemas.CompactAnswer, tag="compactions", errors=(409, 502))
    def compact(
        self,
        session_id: str,
        focus: str | None = None,
        level: str | None = None,
        dry_run: bool = False,
        *,
        target_tokens: int | None = None,
        preserve: int | None = None,
    ) -> VerbCall[schemas.CompactBody]:
        """Compact now, however full it is. If there is not enough to compact, the answer has `compacted: false`.

        `reason` says why. Messages that are appended meanwhile follow the compacted context.
        """
        given = {"level": level, "focus": focus, "preserve": preserve, "target_tokens": target_tokens}
        return _ask(schemas.CompactBody, session_id, **given, dry_run=dry_run)

    @verb(f"POST {_SESSION}/cancel", NoQuery, schemas.CancelAnswer, tag="compactions")
    def cancel(self, session_id: str) -> VerbCall[NoQuery]:
        """Cancel all compactions of a session, running or waiting.

        When this is answered, none goes on at this server: their callers get an error, and the context is unchanged,
        unless a compaction was already done. A job in another process stops within seconds; what it has committed
        before stays. Plans are not cancelled.
        """
        return _ask(NoQuery, session_id)

    @verb(f"GET {_SESSION}/plan", schemas.PlanQuery, schemas.PlanAnswer, result=_plan, tag="compactions")
    def plan(
        self,
        session_id: str,
        focus: str | None = None,
        level: str | None = None,
        target_tokens: int | None = None,
        *,
        tiers: Mapping[int, str] | None = None,
        steers: Mapping[int, str] | None = None,
    ) -> VerbCall[schemas.PlanQuery]:
        """Show what a compaction would do now, target by target; nothing is changed, and no model is asked.

        With tiers for turns, such as `keep=12,15&drop=9`, show the effect of setting them.
        """
        if steers is not None:
            warnings.warn("plan(steers=…) is deprecated; use plan(tiers=…)", DeprecationWarning, stacklevel=3)
            tiers = steers
        given = {"focus": focus, "level": level, "target_tokens": target_tokens}
        return _ask(schemas.PlanQuery, session_id, **given, **_turns_by_tier(tiers))

    @verb(
        f"GET {_SESSION}/tiers",
        NoQuery,
        schemas.TiersAnswer,
        result=_tiers,
        tag="compactions",
        former_path=f"{_SESSION}/steering",
    )
    def tiers(self, session_id: str) -> VerbCall[NoQuery]:
        """List the tiers that are set for turns in the context."""
        return _ask(NoQuery, session_id)

    @verb(
        f"POST {_SESSION}/tiers",
        schemas.TierBody,
        schemas.TiersAnswer,
        result=_tiers,
        tag="compactions",
        former_path=f"{_SESSION}/steering",
    )
    def set_tier(self, session_id: str, turn: int, tier: str) -> VerbCall[schemas.TierBody]:
        """Set the tier of a turn for every compaction, or clear it."""
        return _ask(schemas.TierBody, session_id, turn=turn, tier=tier)

    @set_tier.variant(_tiers)
    def clear_tier(self, session_id: str, turn: int | None = None) -> VerbCall[schemas.TierBody]:
        """Clear the tier of a turn, or of all turns."""
        return _ask(schemas.TierBody, session_id, turn=turn)

    @verb(f"GET {_SESSION}/compactions", schemas.PageQuery, schemas.CompactionPage, tag="compactions")
    def compactions(self, session_id: str, after: str | None = None, limit: int = 100) -> VerbCall[schemas.PageQuery]:
        """List the reports of all compactions, in order, page by page, with their totals."""
        return _ask(schemas.PageQuery, session_id, after=after, limit=limit)

    @verb(f"POST {_SESSION}/undo", NoQuery, schemas.UndoAnswer, result=lambda answer: answer.report, tag="compactions")
    def undo(self, session_id: str) -> VerbCall[NoQuery]:
        """Take the last compaction back: the context is as before, with everything appended since."""
        return _ask(NoQuery, session_id)

    @verb(f"POST {_SESSION}/redo", NoQuery, schemas.UndoAnswer, result=lambda answer: answer.report, tag="compactions")
    def redo(self, session_id: str) -> VerbCall[NoQuery]:
        """Take the last undo back."""
        return _ask(NoQuery, session_id)

    # The archive and facts

    @verb(f"GET {_SESSION}/archive", schemas.PageQuery, schemas.ArchivePage, tag="archive")
    def archive(self, session_id: str, after: str | None = None, limit: int = 100) -> VerbCall[schemas.PageQuery]:
        """List the originals of a session in the order of archiving, page by page."""
        return _ask(schemas.PageQuery, session_id, after=after, limit=limit)

    @verb(
        f"GET {_SESSION}/archive/{{ref}}",
        schemas.RecallQuery,
        schemas.RecallAnswer,
        result=lambda answer: answer.text,
        tag="archive",
    )
    def recall(
        self, session_id: str, ref: str, lines: tuple[int, int] | None = None, *, form: schemas.RecallForm = "original"
    ) -> VerbCall[schemas.RecallQuery]:
        """Get an original, byte for byte, or some lines or one page of it; or a turn as a conversation.

        This emits the event `item.recalled`, unless the token may only read.
        """
        wanted = f"{lines[0]}-{lines[1]}" if lines else None
        return _ask(schemas.RecallQuery, session_id, ref, lines=wanted, form=form)

    @recall.variant(lambda answer: answer)
    def page(
        self, session_id: str, ref: str, number: int = 1, tokens: int = 2_000, *, form: schemas.RecallForm = "original"
    ) -> VerbCall[schemas.RecallQuery]:
        """Get one page of a long original."""
        return _ask(schemas.RecallQuery, session_id, ref, page=number, tokens=tokens, form=form)

    @verb(f"POST {_SESSION}/restore", schemas.RestoreBody, schemas.RestoreAnswer, tag="archive", errors=(409,))
    def restore(self, session_id: str, ref: str) -> VerbCall[schemas.RestoreBody]:
        """Put an original back into the context; space is made for it if needed."""
        return _ask(schemas.RestoreBody, session_id, ref=ref)

    @verb(f"GET {_SESSION}/search", schemas.SearchQuery, schemas.SearchAnswer, tag="archive")
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
    ) -> VerbCall[schemas.SearchQuery]:
        """Search all originals of a session: matching lines, best first."""
        found = {"limit": limit, "tokens": tokens, "kind": kind, "since": since, "until": until}
        return _ask(schemas.SearchQuery, session_id, q=text, **found)

    @verb(
        f"GET {_SESSION}/facts",
        schemas.FactsQuery,
        schemas.FactsAnswer,
        result=lambda answer: answer.facts,
        tag="facts",
    )
    def facts(self, session_id: str, kind: str | None = None) -> VerbCall[schemas.FactsQuery]:
        """List the facts of a session: decisions, errors, failures, file states and so on, by turn.

        Each says when it was first and last seen. `kind=error` includes failures. With `limit`, page by page.
        """
        return _ask(schemas.FactsQuery, session_id, kind=kind)

    # Checkpoints and handoffs

    @verb(f"GET {_SESSION}/checkpoint", NoQuery, schemas.CheckpointAnswer, tag="going on")
    def checkpoint(self, session_id: str) -> VerbCall[NoQuery]:
        """Get the state of the work, for continuing it in a fresh window."""
        return _ask(NoQuery, session_id)

    @verb(f"POST {_SESSION}/checkpoint", schemas.CheckpointBody, schemas.CheckpointAnswer, tag="going on")
    def write_checkpoint(self, session_id: str, note: str = "") -> VerbCall[schemas.CheckpointBody]:
        """Store a checkpoint with your own note. Every compaction stores one without a note."""
        return _ask(schemas.CheckpointBody, session_id, note=note)

    @verb(
        f"POST {_SESSION}/handoff",
        schemas.HandoffBody,
        schemas.HandoffAnswer,
        result=lambda answer: answer.request,
        tag="going on",
        errors=(409, 502),
    )
    def handoff(
        self,
        session_id: str,
        phase: str = "write",
        task: str = "",
        task_id: str = "",
        *,
        feature: str = "",
        spec_path: str = "",
    ) -> VerbCall[schemas.HandoffBody]:
        """Write the request for a sub-agent or the next phase, with a summary of at most 500 tokens. Compacts first."""
        given = {"phase": phase, "task": task, "task_id": task_id, "feature": feature, "spec_path": spec_path}
        return _ask(schemas.HandoffBody, session_id, **given)

    @verb(f"POST {_SESSION}/handoff/answer", schemas.ReceiveBody, schemas.ReceiveAnswer, tag="going on")
    def receive(self, session_id: str, answer: Mapping[str, Any] | str) -> VerbCall[schemas.ReceiveBody]:
        """Receive a sub-agent's answer to a handoff: archive it, and keep what the next phase needs."""
        return _ask(schemas.ReceiveBody, session_id, answer=answer if isinstance(answer, str) else dict(answer))

    # Webhooks

    @verb("POST /v1/webhooks", schemas.WebhookBody, schemas.WebhookMade, statuses=(201,), tag="events")
    def add_webhook(self, url: str, types: Iterable[str] = ()) -> VerbCall[schemas.WebhookBody]:
        """Add a webhook: events are sent to its address by POST, signed with the secret in the answer.

        The secret is shown only now. The address must be public and use https, unless the server allows others.
        """
        return _ask(schemas.WebhookBody, url=url, types=list(types))

    @verb("GET /v1/webhooks", NoQuery, schemas.WebhooksAnswer, result=lambda answer: answer.webhooks, tag="events")
    def webhooks(self) -> VerbCall[NoQuery]:
        """List the webhooks of the token's namespace, oldest first, without their secrets.

        A read-only token sees only the host of each address.
        """
        return _ask(NoQuery)

    @verb(f"GET {_WEBHOOK}", NoQuery, schemas.WebhookAnswer, tag="events")
    def webhook(self, webhook_id: str) -> VerbCall[NoQuery]:
        """Show a webhook, and whether it is enabled."""
        return _ask(NoQuery, webhook_id)

    @verb(f"DELETE {_WEBHOOK}", NoQuery, schemas.RemovedAnswer, result=lambda _: None, tag="events")
    def remove_webhook(self, webhook_id: str) -> VerbCall[NoQuery]:
        """Remove a webhook."""
        return _ask(NoQuery, webhook_id)

    @verb(f"GET {_WEBHOOK}/deliveries", NoQuery, schemas.DeliveriesAnswer, tag="events")
    def deliveries(self, webhook_id: str) -> VerbCall[NoQuery]:
        """List the waiting deliveries of a webhook, in order, and its last attempts, newest first."""
        return _ask(NoQuery, webhook_id)

    @verb(
        f"POST {_WEBHOOK}/replay",
        schemas.ReplayBody,
        schemas.ReplayAnswer,
        result=lambda answer: answer.queued,
        tag="events",
    )
    def replay(self, webhook_id: str, after: str = "") -> VerbCall[schemas.ReplayBody]:
        """Send a webhook the events after a given one again, or all that are kept. This enables a disabled webhook."""
        return _ask(schemas.ReplayBody, webhook_id, after=after)

    @verb("GET /healthz", NoQuery, schemas.HealthAnswer, name="healthz", is_open=True, tag="server")
    def health(self) -> VerbCall[NoQuery]:
        """Check that the server answers; the store is not checked."""
        return _ask(NoQuery)


class ServerVerbs(Verbs):
    """Those, and what is no method of the clients: what is not JSON, and what only a load balancer asks."""

    @verb(
        "GET /v1/events",
        schemas.EventsQuery,
        bytes,
        tag="events",
        headers=("Last-Event-ID",),
        media_type="text/event-stream",
    )
    def events(self) -> VerbCall[schemas.EventsQuery]:
        """Stream events as they happen, of all sessions or of one, as server-sent events without end.

        With `Last-Event-ID` (a header, or `last_event_id` in the query) the events after that one are sent first; `0`
        sends all that are kept. If that event is no longer kept, a `gap` is sent first. A comment is sent every 15
        seconds. A reader that is too slow, and every reader when the server stops, gets an `end` and may reconnect.
        `types` is a list of types, separated by commas.
        """
        return _ask(schemas.EventsQuery)

    @verb("GET /metrics", NoQuery, bytes, tag="server", media_type="text/plain")
    def metrics(self) -> VerbCall[NoQuery]:
        """Get the metrics of the server and its store, for Prometheus."""
        return _ask(NoQuery)

    @verb("GET /readyz", NoQuery, schemas.HealthAnswer, is_open=True, tag="server")
    def readyz(self) -> VerbCall[NoQuery]:
        """Check that the server can write to its store and read it.

        The answer comes within a second: 200, or 503 and what fails, `write` or `read` or both.
        """
        return _ask(NoQuery)


AnyVerb = Verb[..., Any, Any, Any]


def verbs_of(kind: type) -> tuple[AnyVerb, ...]:
    """The verbs that a class declares, one for each route."""
    declared = (each for base in reversed(kind.__mro__) for each in vars(base).values())
    return tuple(each for each in declared if isinstance(each, Verb) and not each.is_variant)


VERBS = verbs_of(ServerVerbs)
