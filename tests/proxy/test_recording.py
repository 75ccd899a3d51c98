"""Every conversation that passes becomes a session that says what was said, and every request a row of what it used."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.proxy.clients import credential_of
from tests.proxy.apis import ANTHROPIC, APIS, CHAT, ENCODINGS, OUTPUT, READ, RESPONSES, UNCACHED, WRITTEN, Api
from tests.proxy.proxies import Place, ProxyCommand, Recorded, proxied
from tests.proxy.upstream import (
    CUT,
    END_OF_CHUNKS,
    HANG_UP,
    Header,
    Heard,
    Step,
    Upstream,
    answer,
    ask,
    chunk,
    connected,
    request,
    stream_head,
)
from tests.waiting import wait_for

Raw = dict[str, Any]
JSON = (b"Content-Type", b"application/json")
SECRET = b"sk-ant-very-secret-4711"


def key(text: str = "key") -> list[Header]:
    return [JSON, (b"x-api-key", text.encode())]


class Dialog:
    """A client of one conversation: it sends its whole history each time, with the replies as they came."""

    def __init__(self, api: Api, url: str, headers: Sequence[Header] = (), *, is_stream: bool = False) -> None:
        self.api, self.url, self.is_stream = api, url, is_stream
        self.headers = list(headers) or key()
        self.history: list[Raw] = []

    def ask(self, text: str, status: int = 200) -> None:
        """Say something, and take the reply into the history."""
        self.history.append(self.api.user(text))
        answered = self.send(self.history)
        assert answered.status == status, answered.body
        if status == 200:
            self.history.append(self.api.said(f"Answer to {text} «ß» 🧪"))

    def send(self, history: Sequence[Raw], **more: Any) -> Heard:
        body = self.api.body(history, is_stream=self.is_stream, **more)
        return ask(self.url, self.api.target, body, headers=self.headers)


def histories(recorded: Recorded) -> list[list[Raw]]:
    return sorted(recorded.histories.values(), key=json.dumps)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_session_says_what_was_said_and_each_request_what_it_used(
    tmp_path: Path, api: Api, is_stream: bool, encoding: str
) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider(encoding)) as upstream, proxied(upstream.url, place) as url:
        dialog = Dialog(api, url, is_stream=is_stream)
        for number in range(3):
            dialog.ask(f"question {number}")
    recorded = place.recorded()
    assert recorded.only == dialog.history
    assert place.journal() == []
    for row in recorded.rows:
        assert (row.protocol, row.model, row.kind, row.status, row.has_usage) == (
            api.name,
            "model-x",
            "main",
            200,
            True,
        )
        written = WRITTEN if api.writes else 0
        assert (row.input, row.cache_read, row.cache_write, row.output) == (UNCACHED, READ, written, OUTPUT)
        assert row.session_id in recorded.histories
    assert len(recorded.rows) == 3


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_request_that_was_sent_packed_is_recorded_too(tmp_path: Path, api: Api, pack: Any) -> None:
    place = Place(tmp_path)
    encoding = b"gzip" if pack is gzip.compress else b"zstd"
    with Upstream(api.provider()) as upstream, proxied(upstream.url, place) as url:
        body = pack(api.body([api.user("packed")]))
        assert ask(url, api.target, body, headers=[*key(), (b"Content-Encoding", encoding)]).status == 200
    assert place.recorded().only == [api.user("packed"), api.said("Answer to packed «ß» 🧪")]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_session_goes_on_when_the_proxy_was_started_again(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    history: list[Raw] = []
    with Upstream(api.provider()) as upstream:
        for number in range(3):
            with proxied(upstream.url, place) as url:
                dialog = Dialog(api, url)
                dialog.history = history
                dialog.ask(f"question {number}")
    assert place.recorded().only == history


# Which conversation


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_conversations_that_begin_alike_stay_apart_when_they_differ(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider()) as upstream, proxied(upstream.url, place) as url:
        one, two = Dialog(api, url), Dialog(api, url)
        for text in ("hello", "and now one"):
            one.ask(text)
        for text in ("hello", "and now two", "more of two"):
            two.ask(text)
        one.ask("more of one")
    found = histories(place.recorded())
    assert one.history in found
    assert two.history in found


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_conversations_side_by_side_do_not_mix(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider()) as upstream, proxied(upstream.url, place) as url:
        dialogs = [Dialog(api, url, is_stream=bool(number % 2)) for number in range(6)]

        def talk(number: int) -> None:
            for turn in range(5):
                dialogs[number].ask(f"conversation {number}, question {turn}")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(talk, range(6)))
    assert histories(place.recorded()) == sorted((dialog.history for dialog in dialogs), key=json.dumps)
    assert len(place.rows()) == 30


def claude(session: str, agent: str = "", secret: str = "key") -> list[Header]:
    own = [(b"x-claude-code-agent-id", agent.encode())] if agent else []
    return [
        *key(secret),
        (b"User-Agent", b"claude-cli/2.1.0 (external, cli)"),
        (b"x-claude-code-session-id", session.encode()),
        *own,
    ]


def test_sub_agents_of_one_session_have_sessions_of_their_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Upstream(ANTHROPIC.provider()) as upstream, proxied(upstream.url, place) as url:
        main = Dialog(ANTHROPIC, url, claude("11111111-1111-4111-8111-111111111111"))
        first = Dialog(ANTHROPIC, url, claude("11111111-1111-4111-8111-111111111111", "agent-a"))
        second = Dialog(ANTHROPIC, url, claude("11111111-1111-4111-8111-111111111111", "agent-b"))
        for turn in range(3):
            for dialog in (main, first, second):
                dialog.ask(f"the same question {turn}" if dialog is not main else f"of the main one {turn}")
    assert histories(place.recorded()) == sorted([main.history, first.history, second.history], key=json.dumps)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@pytest.mark.parametrize("is_named", [False, True])
def test_the_same_words_with_another_key_are_another_session(tmp_path: Path, api: Api, is_named: bool) -> None:
    place = Place(tmp_path)
    named = [(b"x-compactor-session", b"mine")] if is_named else []
    with Upstream(api.provider()) as upstream, proxied(upstream.url, place) as url:
        dialogs = [Dialog(api, url, [*key(secret), *named]) for secret in ("one", "two")]
        for dialog in dialogs:
            dialog.ask("the same")
            dialog.ask("for both")
    recorded = place.recorded()
    assert list(recorded.histories.values()) == [dialogs[0].history] * 2
    assert len({row.session_id for row in recorded.rows}) == 2


def token(subject: str, salt: str = "s") -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"iss": "https://auth", "sub": subject}).encode()).rstrip(b"=")
    return f"Bearer e30.{claims.decode()}.{salt}"


def test_a_token_that_is_renewed_stays_the_same_account() -> None:
    accounts = {credential_of({"authorization": token("me", salt)})[1] for salt in ("one", "two")}
    assert len(accounts) == 1


@pytest.mark.parametrize("other", ["x-api-key", "api-key", "x-goog-api-key"])
def test_who_only_claims_an_account_beside_a_key_of_their_own_does_not_get_it(other: str) -> None:
    """Of two credentials the provider takes one, and nobody here knows which: the claim may be made up."""
    _, victim = credential_of({"authorization": token("victim")})
    _, attacker = credential_of({"authorization": token("victim", "forged"), other: "the attacker's own key"})
    assert attacker != victim


def test_of_two_tokens_in_one_request_the_second_does_not_choose_the_account(tmp_path: Path) -> None:
    place = Place(tmp_path)
    named = (b"x-compactor-session", b"mine")
    with Upstream(ANTHROPIC.provider()) as upstream, proxied(upstream.url, place) as url:
        victim = [JSON, named, (b"Authorization", token("victim").encode())]
        own = (b"Authorization", b"Bearer the-attackers-own-key")
        attacker = [JSON, named, own, (b"Authorization", token("victim", "forged").encode())]
        Dialog(ANTHROPIC, url, victim).ask("of the victim")
        Dialog(ANTHROPIC, url, attacker).ask("of the attacker")
    assert len({row.session_id for row in place.rows()}) == 2


# What a client changes


def thinking_reply(text: str) -> Raw:
    reply = ANTHROPIC.whole(text)
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"}
    return {**reply, "content": [thought, {"type": "text", "text": f"  {text}\n"}]}


def respond_thinking(heard: Heard) -> Iterator[Step]:
    text = json.loads(heard.body)["messages"]
    yield answer(json.dumps(thinking_reply(f"Reply {len(text)}")).encode())


CHANGES = ("drop thinking", "trim", "one string", "cache_control")


def written_back(reply: Raw, changes: Sequence[str]) -> Raw:
    """A reply as some client writes it into its history."""
    blocks = [dict(block) for block in reply["content"]]
    if "drop thinking" in changes or "one string" in changes:
        blocks = [block for block in blocks if block["type"] != "thinking"]
    if "trim" in changes:
        blocks = [{**block, "text": block["text"].strip()} if "text" in block else block for block in blocks]
    if "one string" in changes:
        return {"role": "assistant", "content": "".join(block["text"] for block in blocks)}
    if "cache_control" in changes:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return {"role": "assistant", "content": blocks}


@given(turns=st.lists(st.sets(st.sampled_from(CHANGES)), min_size=2, max_size=4), marks=st.integers(0, 3))
def test_a_reply_that_is_written_back_in_another_form_begins_no_branch(
    tmp_path_factory: pytest.TempPathFactory, turns: list[set[str]], marks: int
) -> None:
    place = Place(tmp_path_factory.mktemp("proxy"))
    with Upstream(respond_thinking) as upstream, proxied(upstream.url, place) as url:
        history: list[Raw] = []
        for number, changes in enumerate(turns):
            blocks: list[Raw] = [{"type": "text", "text": f"question {number}"}]
            history.append({"role": "user", "content": f"question {number}" if number % 2 else blocks})
            sent = [dict(message) for message in history]
            if marks < len(sent) and isinstance(sent[marks]["content"], list):  # the mark moves on with each request
                last = {**sent[marks]["content"][-1], "cache_control": {"type": "ephemeral"}}
                sent[marks]["content"] = [*sent[marks]["content"][:-1], last]
            reply = ask(url, b"/v1/messages", ANTHROPIC.body(sent), headers=key())
            history.append(written_back(json.loads(reply.body), sorted(changes)))
    only = place.recorded().only
    assert len(only) == len(history)
    assert [message["role"] for message in only] == [message["role"] for message in history]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_conversation_that_is_rewound_keeps_both_ways(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider()) as upstream, proxied(upstream.url, place) as url:
        dialog = Dialog(api, url)
        for text in ("one", "two", "three"):
            dialog.ask(text)
        first_way = list(dialog.history)
        dialog.history = dialog.history[:2]
        for text in ("another two", "another three"):
            dialog.ask(text)
    found = histories(place.recorded())
    assert first_way in found
    assert dialog.history in found


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_answer_that_is_made_again_keeps_both(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    texts = iter(["first", "second", "third", "fourth"])

    def respond(_: Heard) -> Iterator[Step]:
        return api.answers(next(texts), is_stream=False)

    with Upstream(respond) as upstream, proxied(upstream.url, place) as url:
        dialog = Dialog(api, url)
        begin = [api.user("a"), api.said("first"), api.user("b")]
        dialog.send(begin[:1])
        dialog.send(begin)
        dialog.send(begin)  # the same again
        dialog.send([*begin, api.said("third"), api.user("c")])
    found = [[_text(message) for message in history] for history in histories(place.recorded())]
    assert ["a", "first", "b", "third", "c", "fourth"] in found
    assert any("second" in texts for texts in found)


def _text(message: Raw) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[-1]["text"]


@pytest.mark.parametrize("status", [b"400 Bad Request", b"401 No", b"429 Slow", b"500 Oh", b"529 Overloaded"])
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_refused_request_is_counted_and_says_nothing_in_a_session(tmp_path: Path, api: Api, status: bytes) -> None:
    place = Place(tmp_path)
    with Upstream(answer(b'{"error":{"message":"no"}}', status)) as upstream, proxied(upstream.url, place) as url:
        Dialog(api, url).ask("refused", status=int(status[:3]))
        upstream.respond = api.provider()
        Dialog(api, url).ask("taken")
    recorded = place.recorded()
    assert recorded.only == [api.user("taken"), api.said("Answer to taken «ß» 🧪")]
    assert [row.status for row in recorded.rows] == [int(status[:3]), 200]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_client_that_hangs_up_behind_the_last_event_has_its_reply_recorded(tmp_path: Path, api: Api) -> None:
    """SDKs close a stream when its last event came, and do not wait for the end of the connection."""
    place = Place(tmp_path)
    said = api.stream("All of it.")
    with Upstream(lambda _: [stream_head(), chunk(said), HANG_UP]) as upstream, proxied(upstream.url, place) as url:
        with connected(url) as wire:
            wire.connection.sendall(request(url, api.target, api.body([api.user("hi")], is_stream=True), key()))
            wire.read_head()
            received = b""
            while len(received) < len(said):
                received += wire.read_chunk()
        wait_for(upstream.has_hung_up)
    assert place.recorded().only == [api.user("hi"), api.said("All of it.")]
    assert [row.output for row in place.rows()] == [OUTPUT]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_half_a_reply_is_no_message_and_the_conversation_goes_on(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    said = api.stream("Half of it.")
    half = said[: len(said) // 2]
    with Upstream(lambda _: [stream_head(), chunk(half), CUT]) as upstream, proxied(upstream.url, place) as url:
        dialog = Dialog(api, url, is_stream=True)
        assert not dialog.send([api.user("hi")]).is_whole
        upstream.respond = api.provider()
        dialog.ask("hi")
        dialog.ask("go on")
    assert dialog.history in histories(place.recorded())
    assert "Half" not in json.dumps(histories(place.recorded()))


ODD_MESSAGES: list[Any] = [
    {"role": "user", "content": ["a text among blocks"]},
    {"role": "user", "content": None},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": "text", "text": 7}]},
    {"role": "user", "content": [[]]},
    {"role": 3, "content": "x"},
    {"content": "x"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": 1, "name": [], "input": "x"}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": {}, "content": [{"type": "text", "text": {}}]}],
    },
    {"role": "user", "content": {"type": "text"}},
    {"type": "message", "role": "user", "content": [{"type": "input_text"}, 3]},
    {"type": "compaction", "encrypted_content": "compactor:1:"},
    {"type": "compaction", "encrypted_content": ["compactor:1:x"]},
    {"type": ["x"], "role": "user"},
    "text",
    7,
    None,
    {"role": "user", "content": "\ud800"},
]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_what_nobody_understands_holds_up_no_other_exchange(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    bodies = [{"model": "m", api.field: [each]} for each in ODD_MESSAGES]
    bodies += [{"model": "m", api.field: [{"role": "user", "content": "a"}, each]} for each in ODD_MESSAGES]
    bodies += [{"model": [], api.field: {}}, {"tools": 7, api.field: [], "system": 7}, [], 7, {}]  # type: ignore[list-item]
    with Upstream(lambda _: api.answers("ok", is_stream=False)) as upstream, proxied(upstream.url, place) as url:
        for body in bodies:
            assert ask(url, api.target, json.dumps(body).encode(), headers=key()).status == 200
        deep = b'{"model":"m","%b":' % api.field.encode() + b"[" * 50_000 + b"]" * 50_000 + b"}"
        assert ask(url, api.target, deep, headers=key()).status == 200
        upstream.respond = api.provider()
        Dialog(api, url, key("another")).ask("after all that")
    assert [api.user("after all that"), api.said("Answer to after all that «ß» 🧪")] in histories(place.recorded())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_answers_that_nobody_understands_hold_up_no_other_exchange(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    odd = [
        b"",
        b"[]",
        b"7",
        b"{",
        b"null",
        b'{"content":[7],"choices":[7],"output":[7],"usage":[]}',
        b"\xff",
        b"[" * 9_999,
    ]
    odd += [b'{"content":{},"choices":{},"output":{},"usage":{"input_tokens":"x","prompt_tokens":-1}}']
    odd += [b'{"choices":[{"message":7}],"output":[{"type":"message","content":[7]}],"content":[{"type":"text"}]}']
    odd += [
        b'{"choices":[{"message":{"role":"assistant","tool_calls":[7,{}]},"finish_reason":"stop"}],"stop_reason":"x"}'
    ]
    odd += [
        b'{"content":[{"type":"tool_use"}],"stop_reason":"x","status":"completed","output":[{"type":"function_call"}]}'
    ]
    with Upstream() as upstream, proxied(upstream.url, place) as url:
        for number, content in enumerate(odd):
            for headers in ([JSON], [(b"Content-Type", b"text/event-stream")], [JSON, (b"Content-Encoding", b"br")]):
                upstream.respond = answer(content, headers=headers)
                assert Dialog(api, url).send([api.user(f"odd {number}")]).body == content
        for events in (
            b"data: {}\n\n",
            b"data: [7]\n\ndata: [DONE]\n\n",
            b'data: {"type":[]}\n\n',
            b"event: x\ndata: 7\n\n",
        ):
            upstream.respond = answer(events, headers=[(b"Content-Type", b"text/event-stream")])
            assert Dialog(api, url).send([api.user("odd events")]).body == events
        upstream.respond = api.provider()
        Dialog(api, url, key("another")).ask("after all that")
    assert [api.user("after all that"), api.said("Answer to after all that «ß» 🧪")] in histories(place.recorded())


def test_a_body_that_unpacks_into_far_more_is_passed_on_and_costs_no_memory(tmp_path: Path) -> None:
    place = Place(tmp_path)
    bomb = zstandard.compress(b"\0" * (1 << 30))
    with Upstream(answer(b'{"content":[]}')) as upstream, ProxyCommand(upstream.url, place) as proxy:
        for _ in range(2):
            headers = [*key(), (b"Content-Encoding", b"zstd")]
            assert ask(proxy.url, b"/v1/messages", bomb, headers=headers).status == 200
        upstream.respond = answer(bomb, headers=[JSON, (b"Content-Encoding", b"zstd")])
        ask(proxy.url, b"/v1/messages", ANTHROPIC.body([ANTHROPIC.user("hi")]), headers=key())
        upstream.respond = ANTHROPIC.provider()
        Dialog(ANTHROPIC, proxy.url, key("another")).ask("after all that")
        recorder = proxy.recorder()
        assert recorder is not None
        wait_for(lambda: len(place.rows()) >= 1 and not [each for each in place.journal() if each.suffix == ".done"])
        peak = Path(f"/proc/{recorder.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        assert int(peak) < 700 << 10


# Keys


def _everything_written(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_key_is_found_in_any_file_or_log(tmp_path: Path) -> None:
    place = Place(tmp_path)
    secret = SECRET.decode()
    headers = [
        JSON,
        (b"Authorization", b"Bearer " + SECRET),
        (b"x-api-key", SECRET),
        (b"api-key", SECRET),
        (b"x-goog-api-key", SECRET),
        (b"Cookie", b"session=" + SECRET),
        (b"Proxy-Authorization", b"Basic " + SECRET),
        (b"X-Unknown-Token", SECRET),
        (b"User-Agent", b"claude-cli/2.1.0"),
        (b"x-claude-code-session-id", b"11111111-1111-4111-8111-111111111111"),
    ]
    with Upstream(lambda _: [CUT]) as upstream, ProxyCommand(upstream.url, place) as proxy:
        recorder = proxy.recorder()
        assert recorder is not None
        os.kill(recorder.pid, signal.SIGSTOP)
        try:
            for api in APIS:
                target = api.target + b"?key=" + SECRET
                upstream.respond = lambda _: [CUT]
                assert ask(proxy.url, target, api.body([api.user("hi")]), headers=headers).status == 502
                upstream.respond = answer(headers=[JSON, (b"Set-Cookie", b"token=" + SECRET)])
                assert ask(proxy.url, target, api.body([api.user("hi")]), headers=headers).status == 200
                upstream.respond = lambda _: [b"HTTP/1.1 200 OK\r\nSet-Cookie " + SECRET + b"\r\n\r\n", CUT]
                ask(proxy.url, target, api.body([api.user("hi")]), headers=headers)
            for broken in (b"Authorization: Bearer " + SECRET + b"\x01", b"Authorization : " + SECRET, SECRET):
                with connected(proxy.url) as wire:
                    wire.connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n" + broken + b"\r\n\r\n")
                    assert wire.read_answer().status == 400
            too_long = [(b"x-api-key", SECRET * 20_000)]
            with connected(proxy.url) as wire:
                wire.connection.sendall(request(proxy.url, b"/v1/messages", headers=too_long))
                assert wire.read_answer().status == 400
            assert len(place.journal()) >= 6
            found = [path for path, content in _everything_written(tmp_path).items() if SECRET in content]
            assert found == [], proxy.said
        finally:
            os.kill(recorder.pid, signal.SIGCONT)
    assert secret not in proxy.said
    assert [path for path, content in _everything_written(tmp_path).items() if SECRET in content] == []


def test_what_is_written_down_is_for_its_owner_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    before = os.umask(0)  # whatever a user has set
    try:
        with Upstream(CHAT.provider()) as upstream, ProxyCommand(upstream.url, place) as proxy:
            recorder = proxy.recorder()
            assert recorder is not None
            os.kill(recorder.pid, signal.SIGSTOP)
            try:
                Dialog(CHAT, proxy.url).ask("hi")
                wait_for(place.journal)
                modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [place.home, *place.home.rglob("*")]}
            finally:
                os.kill(recorder.pid, signal.SIGCONT)
    finally:
        os.umask(before)
    public = {place.home / ".gitignore"}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077 and path not in public} == {}
    assert any(path.suffix in (".done", ".open") for path in modes)


def test_responses_that_name_the_one_before_are_one_session(tmp_path: Path) -> None:
    place = Place(tmp_path)
    numbers = iter(range(1, 9))

    def respond(_: Heard) -> Iterator[Step]:
        whole = RESPONSES.whole(f"Reply {(number := next(numbers))}")
        yield answer(json.dumps({**whole, "id": f"resp_{number}"}).encode())

    with Upstream(respond) as upstream, proxied(upstream.url, place) as url:
        dialog = Dialog(RESPONSES, url)
        dialog.send([RESPONSES.user("one")])
        dialog.send([RESPONSES.user("two")], previous_response_id="resp_1")
        dialog.send([RESPONSES.user("three")], previous_response_id="resp_2")
    assert [_text(each) for each in place.recorded().only] == ["one", "Reply 1", "two", "Reply 2", "three", "Reply 3"]


def test_a_stream_is_recorded_that_came_in_single_bytes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    said = ANTHROPIC.stream("Piece by piece.")
    steps = [stream_head(), *(chunk(said[at : at + 1]) for at in range(len(said))), END_OF_CHUNKS]
    with Upstream(lambda _: steps) as upstream, proxied(upstream.url, place) as url:
        assert Dialog(ANTHROPIC, url, is_stream=True).send([ANTHROPIC.user("hi")]).body == said
    assert place.recorded().only == [ANTHROPIC.user("hi"), ANTHROPIC.said("Piece by piece.")]
