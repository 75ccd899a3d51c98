"""The recorder: a process beside the proxy that turns what passes into sessions, and answers what needs a session.

It is a process of its own, with a lower priority, so that nobody who streams waits for it. The proxy asks it over a
pipe; exchanges reach it as the files of the journal, in the order in which they began.
"""

from __future__ import annotations

import logging
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct, structs

from context_compactor.agents.agent_record import AgentRecord, last_steps, reminder, write_record
from context_compactor.dialects.messages import ReportedUsage, read_usage
from context_compactor.errors import BadInput, CompactorError, DamagedContent, StoreError
from context_compactor.json_values import json_bytes
from context_compactor.proxy.clients import (
    CompactionKind,
    Sender,
    compaction_kind,
    identify,
    is_client_summary,
    without_request,
)
from context_compactor.proxy.conversations import (
    ACCEPTED,
    END,
    ITEM,
    LEAST,
    OFFER,
    REPLACE,
    RESPONSE,
    START,
    TAIL,
    GivenMessage,
    HiddenReply,
    ProxiedConversation,
    ProxyConversations,
    TranslatedHistory,
    chain,
    encoded,
    record_hash,
    tail_of,
)
from context_compactor.proxy.encodings import unpacked
from context_compactor.proxy.journal import (
    JournalExchange,
    claim,
    finish_open,
    finished,
    left_behind,
    opened,
    read_exchange,
    remove_folder,
    set_aside,
)
from context_compactor.proxy.wire import PROTOCOLS, RESPONSES
from context_compactor.proxy.wire.protocol import OwnCall, WireProtocol, WireReply, WireRequest
from context_compactor.sessions import views
from context_compactor.sessions.core import Core, wall_clock
from context_compactor.sessions.tools import call_tool
from context_compactor.settings import load_settings
from context_compactor.store.connect import connect
from context_compactor.store.proxied import ProxiedLink, ProxiedRequest
from context_compactor.store.rows import timestamp
from context_compactor.store.service_store import service_store_of
from context_compactor.tokens.counting import declares_recall, tool_names
from context_compactor.tokens.overflow import limit_in

_log = logging.getLogger("context_compactor")
OWN_ITEM = "compactor:1:"
"""How the content of a compaction item of ours begins; what follows is its id in the store."""
_LOST_ITEM = (
    "[Earlier messages of this conversation were replaced by a context record that is not in this store any more, so "
    "it cannot be shown. The user's messages above are as they were.]"
)
_PROTOCOLS: dict[str, WireProtocol] = {protocol.dialect: protocol for protocol in PROTOCOLS}
FRAME = struct.Struct(">I")
"""What stands before each value on the pipe: its length."""
_NO_ROOM = "There is no room for this in the window now. Ask for one original at a time, or for a few of its lines."
# A token of text has about as many bytes, hardly ever fewer.
_BYTES_PER_TOKEN = 2
_NICENESS = 5
_RETRY_SECONDS = 2.0
# A request that was refused as too long holds more than its window does, by our count at least by so much.
_REFUSED_SHARE = 0.9


class RecorderConfig(Struct, frozen=True, kw_only=True):
    """What a recorder is started with."""

    store: str
    folder: str
    window: int | None = None
    holdout: float = 0.0


class ReadRequest(Struct, frozen=True, kw_only=True):
    """A request that was read: our own compaction items in it are the records they stand for."""

    exchange: JournalExchange
    protocol: WireProtocol
    sender: Sender
    body: bytes
    request: WireRequest
    has_own_items: bool = False

    @property
    def scope(self) -> str:
        """Within which its conversation is looked for."""
        return self.exchange.request.scope

    @property
    def compaction_kind(self) -> CompactionKind:
        """How it asks for a compaction; "" when it does not, or when that is not certain."""
        noted = self.exchange.request
        return compaction_kind(noted.headers, noted.path, self.request.dialect, self.request.messages)


class Recorder:
    """Records exchanges, and answers the proxy."""

    def __init__(self, config: RecorderConfig) -> None:
        self.config = config
        self.folder = Path(config.folder)
        self.settings = load_settings({"store": config.store}).settings
        self.store = connect(config.store)
        self.links = service_store_of(self.store).proxied
        self.conversations = ProxyConversations(self.store, service_store_of(self.store), self.settings, config.window)
        self._accepted: set[tuple[str, str]] = set()
        self._taken: set[str] = set()
        self.verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "answer": self.answer,
            "fit": self.fit,
            "least": self.least,
            "overflow": self.overflow,
            "run": self.run,
            "keep": self.keep,
            "record": lambda _: {},
        }

    def close(self) -> None:
        """Close the store."""
        self.conversations.close()
        self.store.close()

    # Recording

    def record_left_behind(self) -> None:
        """Record what proxies have left that were killed."""
        for folder, lock in left_behind(self.folder.parent):
            try:
                for path in finished(folder):
                    self._record_file(path)
            finally:
                remove_folder(folder, lock)

    def record_abandoned(self) -> None:
        """Record what a proxy has left that has ended, also what was under way when it was killed."""
        finish_open(self.folder)
        self.record_waiting()

    def record_waiting(self) -> None:
        """Record every exchange that has ended."""
        for path in finished(self.folder):
            self._record_file(path)

    def _record_file(self, path: Path) -> None:
        """Record an exchange. One that cannot be read is kept aside, and one that cannot be stored is tried again."""
        claimed = claim(path)
        if claimed is None:
            _log.warning("an exchange has ended the recorder again and again, and is kept aside: %s", path.name)
            return
        try:
            exchange = read_exchange(claimed)
            if exchange is not None:
                self.record(exchange)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, DamagedContent):
                claimed.rename(path)  # the store is to blame, and not the exchange
                raise
            _log.warning("an exchange could not be recorded, and is kept as %s: %s", set_aside(claimed), error)
            return
        claimed.unlink(missing_ok=True)
        self._taken.discard(path.with_suffix(".open").name)

    def record(self, exchange: JournalExchange) -> None:
        """Take an exchange into its session, and note what it used."""
        status = exchange.reply.status if exchange.reply else 0
        try:
            found = self._read(exchange)
        except BadInput:
            if 200 <= status < 300:
                raise
            return  # the provider has refused it as well
        is_answered = exchange.kind == "answered"
        if 200 <= status < 300 and not is_answered:
            self._accept(found)
        # Whether a reply is whole is told by what it says: a client may hang up behind its last event.
        reply = self._reply(found) if 200 <= status < 300 and not is_answered else None
        kind = found.compaction_kind if exchange.kind in ("compaction", "answered") else ""
        name = self.conversations.main_name(found.sender, found.scope) if kind else ""
        if kind and name and not is_answered and 200 <= status < 300:
            # What a client has had summarized by its model: its last messages may come in no other request.
            self._take_history(found, kind)
        elif not kind and 200 <= status < 300:
            name = self._record_messages(found, reply)
        self.links.add_requests([self._row(found, name, status, reply)])

    def _record_messages(self, found: ReadRequest, reply: WireReply | None) -> str:
        conversation = self._conversation(found)
        self._take_request(found, conversation)
        if reply is None or not reply.is_complete or not reply.messages:
            return conversation.name
        given = conversation.given(found.request.messages)
        said = [GivenMessage(raw, conversation.digest(raw)) for raw in reply.messages]
        previous_end = self.conversations.previous(found.scope, found.request)
        whole = conversation.translate(found.protocol, [*given, *said], previous_end)
        if not whole.is_known:
            # An agent that compacts by itself sends more than it says, such as files that it attaches again: what the
            # provider counts for it says nothing about the size of its session.
            usage = None if found.sender.compacts else _usage(reply)
            self.conversations.sync(conversation, whole.messages, found.request, usage)
        if not found.sender.conversation:
            self.conversations.put(conversation, END, list(chain([*given, *said]))[-1])
            if tail := tail_of([*given, *said]):
                self.conversations.put(conversation, TAIL, tail)
        number = str(len(whole.messages)).encode()
        previous = found.request.previous_response_id
        for name in filter(None, (reply.id, previous if previous.startswith("conv") else "")):
            self.conversations.put(conversation, RESPONSE, name.encode(), number)
        return conversation.name

    def _conversation(self, found: ReadRequest) -> ProxiedConversation:
        noted = found.exchange.request
        began = noted.at[:19].translate(str.maketrans("T", "-", ":-"))
        return self.conversations.find(found.sender, found.scope, found.request, f"{began}-{noted.id[:6]}")

    def _take_history(self, found: ReadRequest, kind: CompactionKind) -> tuple[ProxiedConversation, TranslatedHistory]:
        """Take in the history that a client wants to have compacted, without the request for that."""
        messages, _, _ = without_request(found.request.messages, kind)
        history = structs.replace(found.request, messages=messages, raws=found.request.raws[: len(messages)])
        conversation = self.conversations.open_main(found.sender, found.scope, history)
        translated = conversation.translate(found.protocol, conversation.given(messages))
        if not translated.is_known:
            self.conversations.sync(conversation, translated.messages, history)
        return conversation, translated

    def _take_request(self, found: ReadRequest, conversation: ProxiedConversation) -> TranslatedHistory:
        """Take the history of a request into its session, so that the next request finds it there."""
        given = conversation.given(found.request.messages)
        previous = self.conversations.previous(found.scope, found.request)
        history = conversation.translate(found.protocol, given, previous)
        if conversation.has_open_offer and not history.is_known:
            if not history.is_rebased:
                views.undo(conversation.session.core)  # the client went on without the record
            conversation.has_open_offer = False
        if not history.is_known:
            self.conversations.sync(conversation, history.messages, found.request)
        self._note_place(found, conversation, given)
        return history

    def _note_place(self, found: ReadRequest, conversation: ProxiedConversation, given: list[GivenMessage]) -> None:
        """Note by what a conversation is found again whose client does not name it."""
        if given and not found.sender.conversation:
            is_answered = any(conversation.is_reply(each.raw) for each in given)
            self.conversations.put(conversation, END if is_answered else START, list(chain(given))[-1])

    def _take_open(self, until: Path, scope: str) -> None:
        """Take in the requests that are still being answered: a client may go on before we have seen the end of a
        reply, and would then begin a session of its own."""
        for path in opened(self.folder):
            if path.name >= until.name:
                return
            if path.name in self._taken:
                continue
            self._taken.add(path.name)
            with suppress(OSError, CompactorError, ValueError, msgspec.MsgspecError):
                exchange = read_exchange(path)
                if exchange is None or exchange.request.scope != scope or exchange.kind != "main":
                    continue
                found = self._read(exchange)
                if not found.sender.conversation and exchange.reply and 200 <= exchange.reply.status < 300:
                    self._take_request(found, self._conversation(found))

    def _reply(self, found: ReadRequest) -> WireReply | None:
        reply = found.exchange.reply
        content = unpacked(found.exchange.content, reply.content_encoding if reply else "")
        if reply is None or content is None:
            return None
        return found.protocol.read_reply(reply.content_type, content)

    def _row(self, found: ReadRequest, name: str, status: int, reply: WireReply | None) -> ProxiedRequest:
        exchange = found.exchange
        reported = (exchange.end.usage if exchange.end else None) or (reply.usage if reply else None)
        usage = read_usage(reported) if reported else None
        used = usage or ReportedUsage(0)
        kind: Any = "main" if exchange.kind == "compaction" and not found.compaction_kind else exchange.kind
        if kind == "main" and not found.request.tools:
            kind, name = "aside", self.conversations.main_name(found.sender, found.scope) or name
        return ProxiedRequest(
            id=exchange.request.id,
            session_id=name,
            at=exchange.request.at,
            client=found.sender.client,
            protocol=exchange.request.protocol,  # type: ignore[arg-type]
            model=(reply.model if reply else "") or found.request.model,
            kind=kind,
            status=status,
            is_held_out=self._is_held_out(found.sender, name),
            is_recorded_only=exchange.request.mode == "record",
            input=used.input,
            cache_read=used.cache_read,
            cache_write=used.cache_write,
            cache_write_hour=used.cache_write_hour,
            output=used.output,
            has_usage=usage is not None,
            milliseconds=exchange.end.milliseconds if exchange.end else 0,
        )

    def _read(self, exchange: JournalExchange) -> ReadRequest:
        protocol = _PROTOCOLS[exchange.request.protocol]
        headers = exchange.request.headers
        body = unpacked(exchange.body, headers.get("content-encoding", ""))
        if body is None:
            raise BadInput(f"a request with the encoding {headers.get('content-encoding')!r:.40} cannot be read")
        request = protocol.read_request(body)
        expanded = self._with_records(request, exchange.request.scope)
        return ReadRequest(
            exchange=exchange,
            protocol=protocol,
            sender=identify(headers),
            body=body,
            request=expanded or request,
            has_own_items=expanded is not None,
        )

    def _with_records(self, request: WireRequest, scope: str) -> WireRequest | None:
        """The request with the record in the place of each compaction item of ours; None where there is none."""
        tokens = {at: token for at, raw in enumerate(request.messages) if (token := _own_item(raw))}
        if not tokens:
            return None
        links = self.links.find_links(scope, [token.encode() for token in tokens.values()], (ITEM,))
        texts = {each.link.decode(): each.body.decode() for each in links}
        messages, raws = list(request.messages), list(request.raws)
        for at, token in tokens.items():
            text = texts.get(token, _LOST_ITEM)
            messages[at] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            raws[at] = json_bytes(messages[at])
        return structs.replace(request, messages=messages, raws=raws)

    def _accept(self, found: ReadRequest) -> None:
        """Note that the provider takes this key: only then is anything answered that a session holds."""
        key = found.scope, found.exchange.request.credential
        if key not in self._accepted:
            self._accepted.add(key)
            now = timestamp(wall_clock())
            self.links.put_links([ProxiedLink(key[0], key[1].encode(), ACCEPTED, "", b"", now)])

    def _is_accepted(self, found: ReadRequest) -> bool:
        scope, credential = found.scope, found.exchange.request.credential
        if (scope, credential) in self._accepted:
            return True
        if self.links.find_links(scope, [credential.encode()], (ACCEPTED,)):
            self._accepted.add((scope, credential))
            return True
        return False

    def _is_held_out(self, sender: Sender, name: str) -> bool:
        """Whether a conversation is left to its client, so that both can be compared. Its name decides, for good."""
        if not sender.compacts or not name:
            return False
        drawn = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64
        return drawn < self.config.holdout

    # Answering

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What to answer to a request for a compaction, or why it should go to the provider."""
        found = self._asked(asked)
        kind = found.compaction_kind
        if not kind:
            return {"pass": "it is not certain that this request asks for a compaction", "kind": "main"}
        name = self.conversations.main_name(found.sender, found.scope)
        if not name or not self._is_accepted(found):
            return {"pass": "the provider has not accepted a request with this key yet"}
        if self._is_held_out(found.sender, name):
            return {"pass": "this conversation is held out"}
        _, focus, trigger = without_request(found.request.messages, kind)
        conversation, translated = self._take_history(found, kind)
        core = conversation.session.core
        given = write_record(core, trigger, focus, f"{found.sender.client} asked for it")
        if not given.record:
            return {"pass": given.reason}
        # A reply behind what is to be compacted is one that the client keeps.
        behind = [each for each in given.behind if not (translated.is_within and each.role == "assistant")]
        parts = (given.record, *last_steps(behind, lambda *_: False), _reminder(core, given, found.request))
        text = "\n\n".join(filter(None, parts))
        self.conversations.put(conversation, OFFER, record_hash(given.record) or b"", str(core.row().messages).encode())
        conversation.has_open_offer = True
        content_type, body = self._written(found, kind, text, conversation, given.report.tokens_before)
        return {
            "content_type": content_type,
            "body": body,
            "tokens_before": given.report.tokens_before,
            "tokens_after": given.report.tokens_after,
            "session": core.id,
        }

    def _written(
        self, found: ReadRequest, kind: CompactionKind, text: str, conversation: ProxiedConversation, tokens: int
    ) -> tuple[str, bytes]:
        """The answer in the form in which its client takes it."""
        reply_id = f"{'msg' if kind == 'summary' else 'resp'}_compactor_{found.exchange.request.id}"
        if kind in ("item", "window"):
            token = token_hex(16)
            self.conversations.put(conversation, ITEM, token.encode(), text.encode())
            item = {"type": "compaction", "id": f"cmp_{token[:24]}", "encrypted_content": f"{OWN_ITEM}{token}"}
            if kind == "item":
                return RESPONSES.write_item_reply(found.request, item, tokens, reply_id)
            said = [raw for raw in found.request.messages if raw.get("role") == "user" and not is_client_summary(raw)]
            return RESPONSES.write_window_reply(found.request, [*said, item], tokens, reply_id)
        if kind == "summary":
            text = "<summary>\n" + text.replace("</summary>", "</ summary>") + "\n</summary>"
        return found.protocol.write_text_reply(found.request, text, tokens, reply_id)

    # Clients that never compact

    def fit(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The body to send in the place of a request's own, if another one is needed."""
        found = self._asked(asked)
        request = found.request
        if found.sender.compacts:
            return {"body": found.protocol.rebuild(found.body, request.raws) if found.has_own_items else None}
        if (
            not request.tools
            or request.previous_response_id
            or request.has_server_edits
            or not self._is_accepted(found)
        ):
            return {"body": None}
        conversation = self._conversation(found)
        return self._fitted(found, conversation, may_compact=found.exchange.request.mode == "on")

    def _fitted(
        self, found: ReadRequest, conversation: ProxiedConversation, *, may_compact: bool = True
    ) -> dict[str, Any]:
        request = found.request
        given = conversation.given(request.messages)
        history = conversation.translate(found.protocol, given)
        with conversation.compacting(may_compact):
            synced = self.conversations.sync(conversation, history.messages, request)
        self._note_place(found, conversation, given)
        messages = encoded(history.messages, synced, request)
        core = conversation.session.core
        if messages is None and core.context_reader.log_state().last is None:
            return {"body": None}
        taken = set(tool_names(request.tools))
        can_recall = request.can_hide_calls and not declares_recall(request.tools)
        tools = (
            [tool for tool in conversation.session.tools() if not taken & set(tool_names([tool]))] if can_recall else []
        )
        body = found.protocol.rebuild(found.body, request.raws if messages is None else messages, tools)
        least = self._note_least(found)
        return {"body": body, "own": list(tool_names(tools)), "least": least, "branch": core.id}

    def least(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The size of the shortest request for which another one was sent, of this account and model; 0 for none.

        Its conversation needs that for good, also where its window turns out to be larger than it was thought to be.
        """
        return {"least": self._least(self._asked(asked))}

    def _least(self, found: ReadRequest) -> int:
        known = self.links.find_links(found.scope, [found.request.model.encode()], (LEAST,))
        return int(known[0].body) if known else 0

    def _note_least(self, found: ReadRequest) -> int:
        known, size = self._least(found), len(found.exchange.body)
        if known and known <= size:
            return known
        now, model = timestamp(wall_clock()), found.request.model.encode()
        self.links.put_links([ProxiedLink(found.scope, model, LEAST, "", str(size).encode(), now)])
        return size

    def overflow(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A smaller body for a request that the provider has called too long; None when there is none."""
        found = self._asked(asked)
        if found.sender.compacts or not found.request.tools or found.request.previous_response_id:
            return {"body": None}
        if not self._is_accepted(found):
            return {"body": None}
        conversation = self._conversation(found)
        history = conversation.translate(found.protocol, conversation.given(found.request.messages))
        self.conversations.sync(conversation, history.messages, found.request)
        core = conversation.session.core
        tokens = views.usage(core).tokens
        limit = limit_in(str(asked.get("error", ""))) or int(tokens * _REFUSED_SHARE)
        if limit < core.budget(core.counter(core.dialect())).window.tokens:
            core.save_profile(structs.replace(core.profile, window=limit))
        report = conversation.session.compact(level="emergency", target_tokens=max(min(limit, tokens) // 3, 1))
        return self._fitted(found, conversation) if report.changed else {"body": None}

    def run(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What our own tools answer to the calls of a model, as far as there is room for it.

        They look into the branch that the request belongs to: meanwhile the conversation may go on in another.
        """
        found = self._asked(asked)
        conversation = self._conversation(found)
        core = conversation.branch(asked["branch"])
        usage = views.usage(core)
        room = max(core.budget(core.counter(core.dialect())).tokens - usage.tokens, 0) * _BYTES_PER_TOKEN
        room -= int(asked["used"])
        results = []
        for call in msgspec.convert(asked["calls"], list[OwnCall]):
            text = call_tool(core, call.name, call.arguments)
            size = len(text.encode("utf-8", "replace"))
            results.append(text if size <= room else _NO_ROOM)
            room -= size if size <= room else len(_NO_ROOM)
        return {"results": results}

    def keep(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Keep what the client does not see of a reply: with its next request it is put back."""
        found = self._asked(asked)
        conversation = self._conversation(found)
        given = conversation.given(found.request.messages)
        seen = [GivenMessage(raw, conversation.digest(raw)) for raw in asked["seen"]]
        hidden = HiddenReply(len(seen), asked["messages"], msgspec.convert(asked["results"], list[tuple[OwnCall, str]]))
        if seen:
            self.conversations.put(conversation, REPLACE, list(chain([*given, *seen]))[-1], msgspec.json.encode(hidden))
        return {}

    def _asked(self, asked: dict[str, Any]) -> ReadRequest:
        """The request that the proxy asks about. What has ended before it is recorded first, as far as that can be."""
        _attempt(self.record_waiting)
        path = Path(asked["path"])
        exchange = read_exchange(path)
        if exchange is None:
            raise BadInput("the exchange is not in the journal")
        found = self._read(exchange)
        if not found.sender.conversation:
            self._take_open(path, found.scope)
        return found


def _own_item(raw: dict[str, Any]) -> str:
    """The id of a compaction item of ours; "" for any other item."""
    content = raw.get("encrypted_content") if raw.get("type") == "compaction" else None
    return content.removeprefix(OWN_ITEM) if isinstance(content, str) and content.startswith(OWN_ITEM) else ""


_RECALL = (
    'Context Compactor wrote this record in the place of a summary. recall("id") and search_archive("words") are tools '
    "of the MCP server `compactor`."
)


def _reminder(core: Core, given: AgentRecord, request: WireRequest) -> str:
    """How the record is used, and how originals are read back where the agent has the tools for it."""
    return reminder(core, given.record, given.behind, _RECALL if declares_recall(request.tools) else "")


def _usage(reply: WireReply) -> dict[str, Any] | None:
    return reply.usage if reply.usage and read_usage(reply.usage) else None


# The pipe


def write_frame(pipe: BinaryIO, value: object) -> None:
    """Send a value."""
    pipe.write(pack_frame(value))
    pipe.flush()


def pack_frame(value: object) -> bytes:
    """A value as it goes over the pipe."""
    content = msgspec.msgpack.encode(value)
    return FRAME.pack(len(content)) + content


def read_frame(pipe: BinaryIO) -> dict[str, Any] | None:
    """The next value; None at the end."""
    head = pipe.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    content = pipe.read(FRAME.unpack(head)[0])
    return dict(msgspec.msgpack.decode(content))


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer the proxy at the other end of standard input and output until it is gone, then record what is left."""
    given = sys.argv[1:] if arguments is None else arguments
    config = msgspec.json.decode(given[0], type=RecorderConfig)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed must not end up between the answers
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with suppress(OSError):
        os.nice(_NICENESS)
    frames: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, frames), daemon=True).start()
    with closing(Recorder(config)) as recorder:
        write_frame(answers, {"id": 0, "ready": True})
        _attempt(recorder.record_left_behind)
        is_done = _serve(recorder, frames, answers)
    sys.exit(0 if is_done else 1)


def _listen(pipe: BinaryIO, frames: queue.Queue[dict[str, Any] | None]) -> None:
    while (frame := read_frame(pipe)) is not None:
        frames.put(frame)
    frames.put(None)


def _serve(recorder: Recorder, frames: queue.Queue[dict[str, Any] | None], answers: BinaryIO) -> bool:
    """Answer until the proxy is gone; whether everything was recorded then."""
    wait: float | None = 0.0  # what the recorder before has left
    while True:
        try:
            frame = frames.get(timeout=wait)
        except queue.Empty:
            frame = {"verb": "record"}
        if frame is None:
            return _attempt(recorder.record_abandoned)
        if frame["verb"] != "record":
            with suppress(OSError):  # the proxy is gone: what it has left is recorded
                write_frame(answers, {"id": frame["id"], **_answered(recorder, frame)})
        if frames.empty() or frame["verb"] == "record":
            wait = None if _attempt(recorder.record_waiting) else _RETRY_SECONDS


def _answered(recorder: Recorder, frame: dict[str, Any]) -> dict[str, Any]:
    """The answer, or why there is none: then the proxy sends on what it was given."""
    try:
        return recorder.verbs[frame["verb"]](frame)
    except Exception as error:  # noqa: BLE001  whatever it is, the request goes on without us
        _log.warning("%s: %s: %s", frame["verb"], type(error).__name__, error)
        return {"error": f"{type(error).__name__}: {error}"}


def _attempt(work: Callable[[], None]) -> bool:
    """Whether some work was done; a store that fails is tried again later."""
    try:
        work()
    except Exception as error:  # noqa: BLE001  what is in the journal is tried again
        _log.warning("recording waits: %s: %s", type(error).__name__, error)
        return False
    return True


if __name__ == "__main__":
    main()
