"""From the history that a client sends to the session that it belongs to.

A client's history is not the session's. It may have been compacted by the client, with our record or a summary of its
own in the place of its past; it lacks the calls of our own tools, which the proxy has answered; and a client may leave
reasoning out, or write a reply down in another form than it came in. So messages are compared by what they say, and
what the client does not have is put back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.record import OPENING, record_span
from context_compactor.errors import BadMessage, UnknownSession
from context_compactor.json_values import json_bytes, json_text
from context_compactor.protocols import ServiceStore, Store
from context_compactor.proxy.clients import Sender, is_client_summary, without_reminders
from context_compactor.proxy.wire.protocol import OwnCall, WireProtocol, WireRequest
from context_compactor.sessions.core import Core, wall_clock
from context_compactor.sessions.lifecycle import open_branch
from context_compactor.sessions.lineage import message_digest, next_link
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_profile
from context_compactor.sessions.sync import SyncedMessages
from context_compactor.settings import Settings
from context_compactor.store.proxied import ProxiedLink
from context_compactor.store.rows import timestamp

Raw = dict[str, Any]
_INSTRUCTIONS = ("system", "developer")
# As many conversations stay open; one that is closed is opened again when it goes on.
_MOST_OPEN = 32
_MOST_OUTPUT = 10**9
# As many messages are known again in a program that sends only its last ones, behind at most so many new ones.
_TAIL, _MOST_NEW = 4, 40
# A client that has compacted by itself may have kept as many of its last messages.
_MOST_KEPT = 200

# What is known by a link.
END = "end"  # the end of a history, by which its conversation is found
START = "start"  # a first request that nobody has answered yet
TAIL = "tail"  # the last messages of a history
BASE = "base"  # how many messages a summary by the client stands for
OFFER = "offer"  # the same for a record of ours, by its text
REPLACE = "replace"  # a reply with what the client does not see of it
RESPONSE = "response"  # a response that the provider keeps, by its id
ITEM = "item"  # the record that a compaction item of ours stands for
ACCEPTED = "accepted"  # a key that the provider has accepted, by its digest
LEAST = "least"  # the size of the shortest request of a model for which another one was sent
_LOADED = (BASE, REPLACE, OFFER)
# As much of a scope stands in the id of a session: enough that no two are alike.
_SCOPE = 16


class Base(Struct, frozen=True):
    """The first `given` messages of a client's history stand for the first `stored` ones of the session."""

    given: int
    stored: int


class HiddenReply(Struct, frozen=True):
    """A reply as it was, for the last `covers` messages that the client has of it.

    `results` are those of our own calls that belong among the client's results, which come next.
    """

    covers: int
    messages: list[Raw]
    results: list[tuple[OwnCall, str]] = []


class GivenMessage(Struct, frozen=True):
    """A message of a client's history. `at` is where it stands in the request, None for one that the client lacks.

    One that is `left_out` was sent once, and the client has left it out since. `sent` is how one is sent that the
    client lacks, where that is not as it was said.
    """

    raw: Raw
    said: bytes | None
    at: int | None = None
    left_out: bool = False
    sent: Raw | None = None


class TranslatedHistory(Struct, frozen=True):
    """A client's history as the session has it, and which record of ours it goes on from, if any."""

    messages: list[GivenMessage]
    is_rebased: bool = False
    is_known: bool = False
    """Whether the session has all of it, and perhaps more."""
    is_within: bool = False
    """Whether the session has all of it, and a reply behind it."""


def said_digest(message: Message) -> bytes | None:
    """The digest of what a message says, without reasoning and blanks around a text; None for reasoning alone."""
    parts = [part for part in message.parts if not isinstance(part, Thinking)]
    if not parts and message.parts:
        return None
    if any(isinstance(part, (Media, Opaque)) or getattr(part, "media", ()) for part in parts):
        return message_digest(message)
    # Clients join blocks, and cut blanks off: only what is not blank is compared.
    said: list[Any] = ["".join("".join(part.text.split()) for part in parts if isinstance(part, Text))]
    said += [["call", part.id, part.name] for part in parts if isinstance(part, ToolCall)]
    said += [["result", part.call_id, part.text.strip()] for part in parts if isinstance(part, ToolResult)]
    return blake2b(json_text([message.role, said]).encode("utf-8", "replace"), digest_size=16).digest()


def record_hash(text: str) -> bytes | None:
    """The digest of the last record in a text; None where there is none."""
    start = text.rfind(OPENING)
    span = record_span(text[start:]) if start >= 0 else None
    if span is None:
        span, start = record_span(text), 0
    return blake2b(text[start:][slice(*span)].encode("utf-8", "replace"), digest_size=16).digest() if span else None


class ProxiedConversation:
    """One session of a client, open."""

    def __init__(
        self, name: str, model: str, session: Session, scope: str, dialect: Dialect, links: Sequence[ProxiedLink]
    ) -> None:
        self.name = name
        """The id by which it was opened, whichever of its branches goes on."""
        self.model = model
        self.session = session
        self.scope = scope
        self.dialect = dialect
        self.has_open_offer = False
        self._stored: list[GivenMessage] = []
        self._stored_of = ""
        self._links: dict[tuple[bytes, str], bytes] = {(each.link, each.kind): each.body for each in links}
        self.new_links: list[ProxiedLink] = []
        """Links that were found while a history was read, and are yet to be stored."""

    def note(self, link: ProxiedLink) -> None:
        """Know a link from now on."""
        self._links[link.link, link.kind] = link.body

    @contextmanager
    def compacting(self, may_compact: bool) -> Iterator[None]:
        """A block in which the session compacts by itself, or not."""
        core = self.session.core
        settings = core.settings
        core.settings = settings if may_compact else structs.replace(settings, automatic=False)
        try:
            yield
        finally:
            core.settings = self.session.core.settings = settings

    def branch(self, name: str) -> Core:
        """The inside of a branch of this conversation."""
        if name != self.name and not name.startswith(f"{self.name}~"):
            raise UnknownSession(f"{name!r:.100} is no branch of {self.name!r:.100}")
        return open_branch(self.session.core, name)

    def digest(self, raw: Raw) -> bytes | None:
        """What a message says, as a digest."""
        return said_digest(self.dialect.parse([raw])[0])

    def stored(self) -> list[GivenMessage]:
        """All messages of the session. Only what is new is read."""
        if self._stored_of != self.session.id:
            self._stored, self._stored_of = [], self.session.id
        for raw in self.session.history(after=len(self._stored)):
            self._stored.append(GivenMessage(raw, self.digest(raw)))
        return self._stored

    def given(self, messages: Sequence[Raw]) -> list[GivenMessage]:
        """The messages of a request behind the instructions that it begins with."""
        return _given(self.dialect, messages)

    def translate(
        self, protocol: WireProtocol, given: list[GivenMessage], previous: int | None = None
    ) -> TranslatedHistory:
        """The history that a client means, as the session has it. Where the provider has the rest, only what is new is
        given, behind so many `previous` messages.
        """
        stored = self.stored()
        wanted = self._with_hidden(protocol, given)
        base = self._base(wanted, stored) if previous is None else Base(0, min(previous, len(stored)))
        first, past = (base.given, stored[: base.stored]) if base else (0, [])
        aligned, rest = _align(wanted[first:], stored[len(past) :])
        behind = stored[len(past) + len(aligned) :]
        is_within = bool(behind) and not rest and all(self.is_reply(each.raw) for each in behind)
        messages = [*past, *aligned, *rest]
        return TranslatedHistory(messages, base is not None, is_known=not rest, is_within=is_within)

    def is_reply(self, raw: Raw) -> bool:
        """Whether the model has said this."""
        return self.dialect.parse([raw])[0].role == "assistant"

    def _with_hidden(self, protocol: WireProtocol, given: list[GivenMessage]) -> list[GivenMessage]:
        """The history with what the proxy has asked and answered by itself."""
        wanted: list[GivenMessage] = []
        results: list[tuple[OwnCall, str]] = []
        for message, link in zip(given, chain(given), strict=True):
            hidden = self._links.get((link, REPLACE))
            if hidden is not None:
                reply = msgspec.json.decode(hidden, type=HiddenReply)
                seen = [*wanted[len(wanted) - reply.covers + 1 :], message]
                wanted = wanted[: len(wanted) - reply.covers + 1]
                wanted += self._hidden(reply.messages, has_thinking=any(self._thinks(each.raw) for each in seen))
                results = reply.results
                continue
            if results:
                wanted += [
                    GivenMessage(raw, self.digest(raw), message.at if raw == message.raw else None)
                    for raw in protocol.add_results([message.raw], 0, results)
                ]
                results = []
                continue
            wanted.append(message)
        return wanted

    def _hidden(self, messages: Sequence[Raw], *, has_thinking: bool) -> Iterator[GivenMessage]:
        """What the client does not see of a reply. Where the client leaves thinking out, none is put back either, since
        what is sent of it must have no gaps."""
        for raw in messages:
            (message,) = self.dialect.parse([raw])
            thoughts = {at: None for at, part in enumerate(message.parts) if isinstance(part, Thinking)}
            kept = message if has_thinking or not thoughts else self.dialect.edit(message, thoughts)
            sent = None if kept is None or kept is message else kept.raw
            yield GivenMessage(raw, said_digest(message), left_out=kept is None, sent=sent)

    def _thinks(self, raw: Raw) -> bool:
        return any(isinstance(part, Thinking) for part in self.dialect.parse([raw])[0].parts)

    def _base(self, wanted: list[GivenMessage], stored: list[GivenMessage]) -> Base | None:
        """What stands for the past in a history that was compacted: our record, or a summary by the client."""
        for at in range(len(wanted) - 1, -1, -1):
            text = self._text(wanted[at])
            offered = self._links.get((found, OFFER)) if (found := text and record_hash(text)) else None
            if offered is not None and int(offered) <= len(stored):
                return Base(at + 1 + _kept(wanted[at + 1 :], stored[: int(offered)]), int(offered))
            if is_client_summary(wanted[at].raw):
                return self._client_base(at, wanted[at].said or b"", stored)
        return None

    def _client_base(self, at: int, said: bytes, stored: list[GivenMessage]) -> Base | None:
        """A summary by the client stands behind all that the session had when it was first seen."""
        known = self._links.get((said, BASE))
        if known is not None:
            return structs.replace(msgspec.json.decode(known, type=Base), given=at)
        if not stored or any(each.said == said for each in stored):
            return None
        base = Base(at, len(stored))
        link = ProxiedLink(self.scope, said, BASE, self.name, msgspec.json.encode(base), timestamp(wall_clock()))
        self.note(link)
        self.new_links.append(link)
        return base

    def _text(self, message: GivenMessage) -> str:
        """The words of a message of the user that may hold a record."""
        if message.raw.get("role") != "user":
            return ""
        content = message.raw.get("content")
        texts = [content] if isinstance(content, str) else [str(each.get("text", "")) for each in content or ()]
        return next((text for text in texts if OPENING in text), "")


def tail_of(given: Sequence[GivenMessage]) -> bytes:
    """The digest of the last messages of a history; nothing of a short one, which may be like many others."""
    said = [each.said for each in given if each.said is not None][-_TAIL:]
    return b"".join(said) and next_link(b"tail", b"".join(said)) if len(said) == _TAIL else b""


def count_leading(messages: Sequence[Raw]) -> int:
    """How many instructions a history begins with. They are the caller's, and no part of the conversation."""
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in _INSTRUCTIONS:
        leading += 1
    return leading


def chain(given: Sequence[GivenMessage]) -> Iterator[bytes]:
    """For each message a digest of all that was said up to it. Reasoning changes nothing."""
    link = b""
    for message in given:
        link = link if message.said is None else next_link(link, message.said)
        yield link


def _align(wanted: list[GivenMessage], stored: list[GivenMessage]) -> tuple[list[GivenMessage], list[GivenMessage]]:
    """The messages that the session has already, as it has them, and the rest of the history.

    Where the two say something else, what follows is the rest: the session goes on from there in a branch.
    """
    aligned: list[GivenMessage] = []
    at = 0
    for each in stored:
        if at == len(wanted):
            break
        if each.said is None and wanted[at].said is not None:
            aligned.append(structs.replace(each, left_out=True))
            continue
        if each.said != wanted[at].said:
            break
        aligned.append(structs.replace(each, at=wanted[at].at, sent=wanted[at].sent))
        at += 1
    # Reasoning that nothing follows was not left out: the history may end before it.
    while aligned and aligned[-1].left_out:
        aligned.pop()
    return aligned, wanted[at:]


def _kept(wanted: Sequence[GivenMessage], stored: Sequence[GivenMessage]) -> int:
    """How many messages a client has kept behind a record: as many as the session ended with when it was written."""
    said = [each.said for each in stored[-_MOST_KEPT:]]
    given = [each.said for each in wanted[: len(said)]]
    return next((count for count in range(len(given), 0, -1) if given[:count] == said[-count:]), 0)


class ProxyConversations:
    """The conversations that pass through a proxy, by their senders and by what was said in them."""

    def __init__(self, store: Store, service_store: ServiceStore, settings: Settings, window: int | None) -> None:
        self._store = store
        self._links = service_store.proxied
        self._settings = settings
        self._window = window
        self._open: OrderedDict[str, ProxiedConversation] = OrderedDict()

    def close(self) -> None:
        """Close all of them."""
        while self._open:
            self._open.popitem()[1].session.close()

    def find(self, sender: Sender, scope: str, request: WireRequest, new_name: str) -> ProxiedConversation:
        """The conversation that a request belongs to; a new one when nobody has seen its beginning. `new_name` is what
        sets that apart from others: the same for the same exchange, which may be recorded twice.

        Of a client that names its conversations, a request without tools, such as for a title, stands apart.
        """
        dialect = find_dialect(request.dialect, ())
        given = _given(dialect, request.messages)
        links = list(chain(given))
        name = self.main_name(sender, scope)
        if name and not request.tools:
            name = f"{name}-aside-{links[0].hex()[:8] if links else ''}"
        if not name and request.previous_response_id:
            found = self._links.find_links(scope, [request.previous_response_id.encode()], (RESPONSE,))
            name = found[0].session_id if found else ""
        if not name:
            name = self._by_lineage(scope, links) or self._by_window(scope, given)
            name = name or f"{request.dialect}-{scope[:_SCOPE]}-{new_name}"
        return self._opened(name, scope, request, dialect, compacts=not sender.compacts)

    def open_main(self, sender: Sender, scope: str, request: WireRequest) -> ProxiedConversation:
        """The conversation that the headers of a request name."""
        dialect = find_dialect(request.dialect, ())
        return self._opened(self.main_name(sender, scope), scope, request, dialect, compacts=not sender.compacts)

    def main_name(self, sender: Sender, scope: str) -> str:
        """The id of the session that the headers of a request name; "" where they name none."""
        if not sender.conversation:
            return ""
        parts = [sender.client or "named", scope[:_SCOPE], sender.conversation]
        return "-".join([*parts, *([f"agent-{sender.agent}"] if sender.agent else [])])

    def _by_lineage(self, scope: str, links: Sequence[bytes]) -> str:
        """The session of the longest beginning that is known.

        A first message may be the same by chance: alone it counts only until it is answered.
        """
        found = {(each.link, each.kind): each.session_id for each in self._links.find_links(scope, links, (END, START))}
        for link in reversed(links):
            if ended := found.get((link, END)):
                return ended
            if (started := found.get((link, START))) and not self._is_answered(started):
                return started
        return ""

    def _by_window(self, scope: str, given: Sequence[GivenMessage]) -> str:
        """The session of a program that sends only its last messages: known by those before its newest."""
        tails = [
            tail for end in range(len(given), max(len(given) - _MOST_NEW, 0), -1) if (tail := tail_of(given[:end]))
        ]
        found = {each.link: each.session_id for each in self._links.find_links(scope, tails, (TAIL,))}
        return next((found[tail] for tail in tails if tail in found), "")

    def _is_answered(self, name: str) -> bool:
        if name in self._open:
            conversation = self._open[name]
            return any(conversation.is_reply(each.raw) for each in conversation.stored())
        try:
            return self._store.session(name).messages > 1
        except UnknownSession:
            return True

    def _opened(
        self, name: str, scope: str, request: WireRequest, dialect: Dialect, *, compacts: bool
    ) -> ProxiedConversation:
        if name in self._open and self._open[name].model == request.model:
            self._open.move_to_end(name)
            for link in self._links.links_of(name, _LOADED):  # another proxy may have put some
                self._open[name].note(link)
            return self._open[name]
        if name in self._open:
            self._open.pop(name).session.close()  # another model has other limits
        settings = structs.replace(
            self._settings,
            automatic=compacts and bool(request.tools) and self._settings.automatic,
            max_output_tokens=_MOST_OUTPUT,  # what passes is not shortened before there is a reason
            idle_seconds=0.0,
            recall_tool=True if compacts and request.tools and request.can_hide_calls else None,
        )
        session = Session.open(
            name,
            store=self._store,
            dialect=request.dialect,
            model=request.model or None,
            window=self._window_of(name) if compacts else None,
            settings=settings,
            profile="embedded",
        )
        conversation = ProxiedConversation(
            name, request.model, session, scope, dialect, self._links.links_of(name, _LOADED)
        )
        self._open[name] = conversation
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].session.close()
        return conversation

    def previous(self, scope: str, request: WireRequest) -> int | None:
        """Behind how many messages of its session a request goes on, where the provider has these; None elsewhere."""
        if not request.previous_response_id:
            return None
        found = self._links.find_links(scope, [request.previous_response_id.encode()], (RESPONSE,))
        return int(found[0].body) if found else None

    def _window_of(self, name: str) -> int | None:
        """The window that was set, or the smaller one that the provider has named since."""
        with suppress(UnknownSession):
            known = read_profile(self._store.session(name).profile).window
            return min(filter(None, (known, self._window)), default=None)
        return self._window

    def sync(
        self,
        conversation: ProxiedConversation,
        history: Sequence[GivenMessage],
        request: WireRequest,
        usage: Mapping[str, Any] | None = None,
    ) -> SyncedMessages:
        """Take over a history; what the session would send for it."""
        leading = count_leading(request.messages)
        raws = [*request.messages[:leading], *(each.raw for each in history)]
        synced = conversation.session.sync(
            raws, None if usage is None else dict(usage), tools=request.tools or None, system=request.system
        )
        self._links.put_links(conversation.new_links)
        conversation.new_links.clear()
        return synced

    def put(self, conversation: ProxiedConversation, kind: str, link: bytes, body: bytes = b"") -> None:
        """Keep a link of a conversation."""
        made = ProxiedLink(conversation.scope, link, kind, conversation.name, body, timestamp(wall_clock()))
        conversation.note(made)
        self._links.put_links([made])


def _given(dialect: Dialect, messages: Sequence[Raw]) -> list[GivenMessage]:
    """The messages of a request behind the instructions that it begins with; `BadMessage` with its index for others."""
    found = []
    for at in range(count_leading(messages), len(messages)):
        raw = without_reminders(messages[at])
        try:
            found.append(GivenMessage(raw, said_digest(dialect.parse([raw])[0]), at))
        except BadMessage as error:
            raise BadMessage(at, error.field, error.problem) from None
    return found


_MARK = b'"cache_control"'


def encoded(history: Sequence[GivenMessage], synced: SyncedMessages, request: WireRequest) -> list[bytes] | None:
    """The messages to send, those of the client byte for byte; None when they are what the client has sent.

    What the client has left out is not sent. Where the client marks places for the cache, ours have none.
    """
    leading = count_leading(request.messages)
    places: list[int | None] = [*range(leading), *(each.at for each in history)]
    left_out = {at + leading for at, each in enumerate(history) if each.left_out}
    kept: list[int | None] = []
    written: list[bytes] = []
    for raw, source in zip(synced, synced.sources, strict=True):
        if source not in left_out:
            given = history[source - leading] if source is not None and source >= leading else None
            kept.append(None if source is None else places[source])
            ours = given.sent if given and given.sent else raw
            written.append(json_bytes(ours) if kept[-1] is None else request.raws[kept[-1]])
    if kept == list(range(len(request.messages))):
        return None
    if any(_MARK in raw for raw in request.raws):
        for at in [at for at, place in enumerate(kept) if place is None and _MARK in written[at]]:
            written[at] = json_bytes(_without_marks(msgspec.json.decode(written[at])))
    return written


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(inner) for key, inner in value.items() if key != "cache_control"}
    return [_without_marks(inner) for inner in value] if isinstance(value, list) else value
