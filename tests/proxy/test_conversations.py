"""Whatever a client does with its history, its requests stay legal and its session has what was said."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from context_compactor import Session
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.dialect import Dialect
from context_compactor.proxy.conversations import record_hash, said_digest
from context_compactor.proxy.journal import ExchangeReply, ExchangeRequest, Journal
from context_compactor.proxy.recorder import Recorder, RecorderConfig
from context_compactor.proxy.wire import PROTOCOLS, WireReply
from context_compactor.testing import StrictServer
from context_compactor.testing.replies import random_replies
from tests.proxy.talking import PATHS, Talking

WINDOW = 16_000
Raw = dict[str, Any]
MOVES = st.lists(
    st.sampled_from(
        ["turn", "turn", "turn", "turn", "turn", "retry", "rewind", "regenerate", "restart", "drop thinking", "respell"]
    ),
    min_size=4,
    max_size=24,
)


class _Refused(Exception):
    """The provider has refused what the client itself has sent."""


class Bench(Talking):
    """A client, a recorder and a strict provider in one place, without a network."""

    def __init__(self, folder: Path, dialect: str, seed: int) -> None:
        super().__init__("", dialect, output=120)
        self.folder = folder
        # A reply without thinking in the place of one that had some looks to the provider like one that was cut out.
        replies = (structs.replace(reply, thinking=reply.thinking or "") for reply in random_replies(seed))
        self.server = StrictServer(replies, window=WINDOW)
        self.journal = Journal(folder / "journal")
        self.recorder = self._recorder()
        self.numbers = count()
        self.protocol = next(each for each in PROTOCOLS if each.dialect == dialect)

    def _recorder(self) -> Recorder:
        config = RecorderConfig(store=f"sqlite:///{self.folder}/s.db", folder=str(self.journal.folder), window=WINDOW)
        return Recorder(config)

    def exchange(self) -> WireReply:
        """Send the history as the relay does, and have it recorded."""
        raw = json.dumps(self.body()).encode()
        request = ExchangeRequest(
            id=f"{next(self.numbers):08d}",
            at="2026-11-18T14:00:00.000+00:00",
            protocol=self.dialect,
            path=PATHS[self.dialect],
            upstream="http://provider",
            scope="s" * 24,
            credential="c" * 32,
            headers={},
            mode="on",
        )
        file = self.journal.begin(request, raw)
        body = self.recorder.fit({"path": str(file.path)})["body"] or raw
        status, answer = self.server.respond(PATHS[self.dialect], json.loads(body))
        if body == raw and status != 200:
            raise _Refused  # what the client has sent is illegal by itself
        assert status == 200, answer
        content = json.dumps(answer).encode()
        file.begin_reply(ExchangeReply(status=status, content_type="application/json"))
        file.add(content)
        file.end(is_complete=True)
        self.recorder.record_waiting()
        return self.protocol.read_reply("application/json", content)

    def move(self, name: str) -> None:
        match name:
            case "turn":
                self.turn()
            case "retry":
                self.exchange()
            case "regenerate" if self.replies:
                at = self.end_of_reply()
                while at and _is_reply(self.messages[at - 1]):
                    at -= 1
                self.messages = self.messages[:at]
                self.turn()
            case "rewind" if len(self.asked()) > 2:
                self.messages = self.messages[: self.asked()[-2]]
                self.messages = [*self.messages, {"role": "user", "content": f"another way, {next(self.numbers)}"}]
                self.turn()
            case "restart":
                self.recorder.close()
                self.recorder = self._recorder()
            case "drop thinking":
                self.messages = [each for each in map(_without_thinking, self.messages) if each]
            case "respell":
                self.messages = [_respelled(raw) for raw in self.messages]

    def end_of_reply(self) -> int:
        """How many messages there are up to the last one of the model."""
        return max(at + 1 for at, raw in enumerate(self.messages) if _is_reply(raw))

    def asked(self) -> list[int]:
        """Where the user speaks."""
        return [
            at
            for at, raw in enumerate(self.messages)
            if raw.get("role") == "user" and "tool_result" not in json.dumps(raw.get("content"))
        ]

    def turn(self, *, is_stream: bool = False) -> WireReply:
        reply = self.exchange()
        self.replies.append(reply)
        self.turns += 1
        self.take(reply)
        return reply


def _is_reply(raw: Raw) -> bool:
    return raw.get("role") == "assistant" or raw.get("type") in ("reasoning", "function_call")


def _without_thinking(raw: Raw) -> Raw | None:
    """A message as a client writes it that keeps no reasoning."""
    if raw.get("type") == "reasoning":
        return None
    if raw.get("role") != "assistant" or not isinstance(raw.get("content"), list):
        return raw
    kept = [block for block in raw["content"] if "thinking" not in block.get("type", "")]
    return {**raw, "content": kept} if kept else raw


def _respelled(raw: Raw) -> Raw:
    """The same message in another form: a text as one block, with a mark for the cache."""
    if raw.get("role") == "user" and isinstance(raw.get("content"), str) and "type" not in raw:
        return {**raw, "content": [{"type": "text", "text": raw["content"]}]}
    return raw


@contextmanager
def bench(dialect: str, seed: int) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        made = Bench(Path(folder), dialect, seed)
        try:
            yield made
        finally:
            made.recorder.close()
            made.journal.close()


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses"])
@settings(max_examples=12)
@given(moves=MOVES, seed=st.integers(0, 1_000))
def test_whatever_a_client_does_with_its_history_no_request_is_refused_and_the_session_has_it(dialect, moves, seed):
    if dialect == "openai-responses":  # items without reasoning that they came with are refused by the provider itself
        moves = [move for move in moves if move not in ("drop thinking", "respell")]
    with bench(dialect, seed) as client, suppress(_Refused):
        for move in moves:
            client.move(move)
        client.turn()
        reader = find_dialect(dialect, ())
        wanted = _said(reader, client.messages[: client.end_of_reply()])
        store = client.recorder.store
        histories = []
        for row in store.sessions():
            with Session.open(row.id, store=store, branch=row.id) as session:
                histories.append(_said(reader, session.history()))
        assert any(history == wanted for history in histories)


def _said(reader: Dialect, messages: list[Raw]) -> list[bytes]:
    return [said for raw in messages if (said := said_digest(reader.parse([raw])[0])) is not None]


def test_a_message_is_the_same_however_it_is_written_down():
    reader = find_dialect("anthropic", ())

    def digest(raw: Raw) -> bytes | None:
        return said_digest(reader.parse([raw])[0])

    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    text = {"type": "text", "text": "I look. "}
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"a": 1, "b": 2}}
    same = [
        {"role": "assistant", "content": [thought, text, call]},
        {"role": "assistant", "content": [text, call]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, {**call, "input": {"b": 2, "a": 1}}]},
        {"role": "assistant", "content": [{**text, "cache_control": {"type": "ephemeral"}}, call]},
    ]
    assert len({digest(raw) for raw in same}) == 1
    assert digest({"role": "assistant", "content": [thought]}) is None
    assert digest({"role": "user", "content": "a"}) != digest({"role": "assistant", "content": "a"})


def test_a_record_is_known_by_its_own_text_whatever_stands_around_it():
    record = "[Context record. Written by X.]\n\n## Task\nDo it.\n\n[End of record. The conversation continues.]"
    around = f"This session is being continued.\nSummary:\n{record}\n\nContinue."
    assert record_hash(record) == record_hash(around) is not None
    assert record_hash("no record") is None
