"""What a client and a provider say to each other passes through the proxy byte for byte, as it comes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import brotli
import openai
import psutil
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.proxy.relay import check_upstream
from tests.proxy.proxies import Place, ProxyCommand, proxied
from tests.proxy.upstream import (
    CUT,
    END_OF_CHUNKS,
    HANG_UP,
    Heard,
    Step,
    Upstream,
    answer,
    ask,
    chunk,
    connected,
    digest,
    head,
    request,
    stream_head,
)
from tests.waiting import wait_for

JSON = (b"Content-Type", b"application/json")
ROUTES = [
    b"/v1/messages",
    b"/v1/messages?beta=true",
    b"/anthropic/v1/messages",
    b"/v1/messages/count_tokens?beta=true",
    b"/v1/chat/completions",
    b"/openai/deployments/a%2Fb/chat/completions?api-version=2025-01-01",
    b"/v1/responses",
    b"/backend-api/codex/responses",
    b"/v1/responses/compact",
    b"/v1/embeddings",
    b"/v1/batches/../batches",
    b"/api/event_logging/batch",
]
ODD_BODIES = {
    "a usual one": b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"stream":true}',
    "odd blanks": b'{ "model" :\t"m" ,\r\n "messages":[ {"content" : "x","role":"user"} ]\n}\n\n  ',
    "unknown fields": b'{"x":{"deep":[null,1e400,-0.0]},"model":"m","messages":[{"role":"user","content":"h","z":1}]}',
    "a key twice": b'{"model":"a","model":"b","messages":[],"messages":[{"role":"user","content":"hi"}]}',
    "half a surrogate pair": b'{"model":"m","messages":[{"role":"user","content":"\\ud83d \\udc00 \\u0000"}]}',
    "numbers that no float holds": b'{"model":"m","messages":[],"seed":123456789012345678901,"t":0.100000000000000001}',
    "an emoji": '{"model":"m","messages":[{"role":"user","content":"🧪 «ß» \u2028"}]}'.encode(),
    "a line of 5 MB": b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 5_000_000 + b'"}]}',
    "no JSON": b"\x00\xff\xfe not json",
    "JSON of another kind": b'["messages"]',
    "messages that are none": b'{"model":7,"messages":{"role":3},"tools":"x"}',
    "very deep": b'{"messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "nothing": b"",
}
PACKED = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "deflate, gzip": lambda content: gzip.compress(zstandard.compress(content)),  # not what it says
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("proxy"))


@pytest.fixture(scope="module")
def shared_upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def url(shared_upstream: Upstream, place: Place) -> Iterator[str]:
    with proxied(shared_upstream.url, place) as address:
        yield address


@pytest.fixture
def upstream(shared_upstream: Upstream) -> Iterator[Upstream]:
    shared_upstream.respond = answer()
    shared_upstream.heard.clear()
    shared_upstream.has_hung_up.clear()
    yield shared_upstream
    shared_upstream.respond = answer()


def sent_headers(*more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [
        JSON,
        (b"User-Agent", b"someone/1.0 (x; y)"),
        (b"x-api-key", b"sk-ant-1"),
        (b"Authorization", b"Bearer abc"),
        (b"anthropic-version", b"2023-06-01"),
        (b"anthropic-beta", b"one"),
        (b"anthropic-beta", b"two,three"),
        (b"Accept", b"*/*"),
        (b"ACCEPT-encoding", b"gzip, br"),
        (b"Cookie", b"a=b; c=d"),
        (b"X-Empty", b""),
        (b"X-Utf8", "ü🧪".encode()),
        *more,
    ]


def passes(
    url: str, upstream: Upstream, target: bytes, body: bytes | None, method: bytes = b"POST", **more: Any
) -> Heard:
    """Send a request; it arrived as it was sent, and its answer is the provider's, by hash. Gives the answer."""
    told = upstream.respond
    assert isinstance(told, bytes)
    answered = ask(url, target, body, method, **{"headers": sent_headers(), **more})
    (heard,) = upstream.heard
    upstream.heard.clear()
    given = more.get("headers", sent_headers())
    assert heard.line == method + b" " + target + b" HTTP/1.1"
    assert heard.passed() == Heard(b"", list(given), b"").passed()
    assert digest(heard.body) == digest(b"".join(more["chunks"]) if "chunks" in more else body or b"")
    said_line, *lines = told.partition(b"\r\n\r\n")[0].split(b"\r\n")
    said = Heard(b"", [(each.partition(b": ")[0], each.partition(b": ")[2]) for each in lines], b"")
    assert answered.line == said_line
    assert answered.passed() == said.passed()
    assert answered.is_whole
    return answered


# Requests and answers by hash


@pytest.mark.parametrize("target", ROUTES)
@pytest.mark.parametrize("kind", [kind for kind in ODD_BODIES if kind != "a line of 5 MB"])
def test_a_request_and_its_answer_are_the_same_bytes_on_both_sides(
    url: str, upstream: Upstream, target: bytes, kind: str
) -> None:
    upstream.respond = answer(b'{"ok": 1 ,"\\ud800":1}\n')
    answered = passes(url, upstream, target, ODD_BODIES[kind])
    assert digest(answered.body) == digest(b'{"ok": 1 ,"\\ud800":1}\n')


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions", b"/v1/responses", b"/v1/files"])
def test_a_line_of_five_megabytes_passes_both_ways(url: str, upstream: Upstream, target: bytes) -> None:
    body = ODD_BODIES["a line of 5 MB"]
    upstream.respond = answer(body)
    assert digest(passes(url, upstream, target, body).body) == digest(body)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
@given(body=st.binary(max_size=300), said=st.binary(max_size=300))
def test_any_bytes_pass_both_ways(url: str, shared_upstream: Upstream, target: bytes, body: bytes, said: bytes) -> None:
    shared_upstream.heard.clear()
    shared_upstream.respond = answer(said)
    assert passes(url, shared_upstream, target, body).body == said


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"PUT", b"PATCH", b"OPTIONS", b"QUERY"])
@pytest.mark.parametrize("target", [b"/v1/models", b"/v1/messages", b"/v1/responses/resp_1?a=%20b", b"/"])
def test_every_method_passes_with_and_without_a_body(
    url: str, upstream: Upstream, method: bytes, target: bytes
) -> None:
    for body in (None, b'{"x":1}'):
        assert passes(url, upstream, target, body, method).body == b"{}"


@pytest.mark.parametrize("length", [b"0", b"12345"])
def test_the_answer_to_head_has_its_length_and_no_body(url: str, upstream: Upstream, length: bytes) -> None:
    upstream.respond = head(b"HTTP/1.1 200 OK", [JSON, (b"Content-Length", length), (b"ETag", b'"x"')])
    answered = passes(url, upstream, b"/v1/models", None, b"HEAD")
    assert answered.values(b"Content-Length") == [length]


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/x%2Fy%zz?a=%41&b=c%20d+e&&=",
        b"//example.com/v1/models",
        b"/a/../b/./c//d",
        b"/a;b=c?d=e?f=/../",
        b"/%00%ff%C3%BC",
        b"/'\"<>|{}^`\\~!$&()*,:@",
        b"/v1/models?q=" + b"a" * 7_000,
    ],
)
def test_odd_paths_are_left_as_they_are(url: str, upstream: Upstream, target: bytes) -> None:
    passes(url, upstream, target, None, b"GET")
    passes(url, upstream, target, b"{}")


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions", b"/v1/responses", b"/v1/models"])
def test_encoded_bodies_are_not_touched(url: str, upstream: Upstream, encoding: str, target: bytes) -> None:
    plain = ODD_BODIES["a usual one"]
    packed = PACKED[encoding](plain)
    upstream.respond = answer(packed, headers=[JSON, (b"Content-Encoding", encoding.encode())])
    headers = sent_headers((b"Content-Encoding", encoding.encode()))
    assert digest(passes(url, upstream, target, packed, headers=headers).body) == digest(packed)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
@pytest.mark.parametrize("chunks", [[b"{}"], [b'{"model":', b'"m","messages":[]}'], [b"x" * 70_000, b"y", b"z" * 9]])
def test_a_request_in_chunks_arrives_whole(url: str, upstream: Upstream, target: bytes, chunks: list[bytes]) -> None:
    passes(url, upstream, target, None, chunks=chunks)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
def test_a_request_that_waits_for_a_go_ahead_gets_it(url: str, upstream: Upstream, target: bytes) -> None:
    with connected(url) as wire:
        whole = request(url, target, b'{"a":1}', [JSON, (b"Expect", b"100-continue")])
        wire.connection.sendall(whole[:-7])
        assert wire.read_head()[0] == b"HTTP/1.1 100 Continue"
        wire.connection.sendall(whole[-7:])
        assert wire.read_answer().status == 200
    assert [heard.body for heard in upstream.heard] == [b'{"a":1}']


@pytest.mark.parametrize(
    "headers",
    [
        [(b"X-Codex-Turn-Metadata", b'{"a":"' + b"x" * 20_000 + b'"}')],
        [(f"X-Many-{number}".encode(), b"v") for number in range(100)],
        [(b"X-Twice", b"1"), (b"x-twice", b"2"), (b"X-Twice", b"1")],
    ],
    ids=["long", "many", "in several spellings"],
)
def test_headers_of_any_kind_pass_both_ways(url: str, upstream: Upstream, headers: list[tuple[bytes, bytes]]) -> None:
    upstream.respond = answer(headers=headers)
    heard = ask(url, b"/v1/messages", b"{}", headers=headers)
    assert heard.status == 200, heard.body
    assert _names_in_lower_case(heard) == _names_in_lower_case(Heard(b"", headers, b""))
    assert _names_in_lower_case(upstream.heard[0]) == _names_in_lower_case(Heard(b"", headers, b""))


def _names_in_lower_case(heard: Heard) -> list[tuple[bytes, bytes]]:
    return sorted((name.lower(), value) for name, value in heard.passed())


def test_headers_of_one_connection_go_no_further(url: str, upstream: Upstream) -> None:
    own = [(b"Connection", b"keep-alive, X-Mine"), (b"X-Mine", b"1"), (b"Keep-Alive", b"timeout=5"), (b"TE", b"gzip")]
    ask(url, b"/v1/messages", b"{}", headers=[JSON, *own, (b"Proxy-Authorization", b"Basic abc"), (b"X-Other", b"2")])
    assert _names_in_lower_case(upstream.heard[0]) == [(b"content-type", JSON[1]), (b"x-other", b"2")]


def test_nothing_is_added_to_a_bare_request_nor_to_a_bare_answer(url: str, upstream: Upstream) -> None:
    upstream.respond = answer(headers=[])
    for target in (b"/v1/messages", b"/v1/models"):
        heard = ask(url, target, b"{}", headers=[])
        assert heard.headers == [(b"Content-Length", b"2")]
        assert [name.lower() for name, _ in upstream.heard[-1].headers] == [b"host", b"content-length"]


ERRORS = [
    b"400 Bad Request",
    b"401 ",
    b"403 Nope",
    b"404 Not Found",
    b"413 Too Large",
    b"422 X",
    b"429 Too Many Requests",
]
ERRORS += [b"500 Internal Server Error", b"502 Bad", b"503 Away", b"529 Overloaded", b"599 What"]


@pytest.mark.parametrize("status", ERRORS)
@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/responses", b"/v1/models"])
def test_errors_pass_as_they_are(url: str, upstream: Upstream, status: bytes, target: bytes) -> None:
    body = b'{"type": "error",  "error":{"type":"x","message":"prompt is odd"}}\n'
    headers = [
        JSON,
        (b"Retry-After", b"7"),
        (b"x-should-retry", b"true"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
    ]
    upstream.respond = answer(body, status, [*headers, (b"request-id", b"r1")])
    assert digest(passes(url, upstream, target, ODD_BODIES["a usual one"]).body) == digest(body)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified", b"201 Created", b"202 ", b"299 Very Odd"])
def test_other_statuses_and_their_reasons_pass(url: str, upstream: Upstream, status: bytes) -> None:
    has_body = status[:3] not in (b"204", b"304")
    upstream.respond = answer(b"{}" if has_body else b"", status, has_length=has_body)
    passes(url, upstream, b"/v1/models", None, b"GET")


def test_a_redirect_is_the_clients_to_follow(url: str, upstream: Upstream) -> None:
    upstream.respond = answer(b"", b"307 Temporary Redirect", [(b"Location", b"http://169.254.169.254/latest")])
    for target in (b"/v1/messages", b"/v1/models"):
        assert passes(url, upstream, target, b"{}").values(b"Location") == [b"http://169.254.169.254/latest"]


def test_an_answer_that_ends_with_its_connection_passes_whole(url: str, upstream: Upstream) -> None:
    upstream.respond = lambda _: [head(b"HTTP/1.1 200 OK", [JSON, (b"Connection", b"close")]), b"a" * 100_000, CUT]
    for target in (b"/v1/messages", b"/v1/models"):
        answered = ask(url, target)
        assert (answered.is_whole, digest(answered.body)) == (True, digest(b"a" * 100_000))


# The SDKs


def _anthropic_calls(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="sk-ant-key", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi «ß» 🧪"}]
    for stream in (False, True):
        with pytest.raises(anthropic.APIStatusError):
            client.messages.create(model="claude-x", max_tokens=9, messages=messages, stream=stream)
    with pytest.raises(anthropic.APIStatusError):
        client.messages.count_tokens(model="claude-x", messages=messages)
    with pytest.raises(anthropic.APIStatusError):
        client.models.list()
    with pytest.raises(anthropic.APIStatusError):
        client.beta.messages.create(model="claude-x", max_tokens=9, messages=messages, betas=["x-2026"])
    client.close()


def _openai_calls(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-key", max_retries=0)
    messages: Any = [{"role": "user", "content": "hi «ß» 🧪"}]
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(model="gpt-x", messages=messages, stream=stream)
        with pytest.raises(openai.APIStatusError):
            client.responses.create(model="gpt-x", input=messages, stream=stream, store=False)
    with pytest.raises(openai.APIStatusError):
        client.models.list()
    with pytest.raises(openai.APIStatusError):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.APIStatusError):
        client.files.create(
            file=("a.txt", b"abc"),
            purpose="user_data",
            extra_headers={"Content-Type": "multipart/form-data; boundary=zzz"},
        )
    client.close()


@pytest.mark.parametrize("call", [_anthropic_calls, _openai_calls])
def test_what_an_sdk_sends_is_the_same_with_the_proxy_and_without(url: str, upstream: Upstream, call: Any) -> None:
    upstream.respond = answer(b'{"type":"error","error":{"message":"teapot"}}', b"418 I am a teapot")
    call(upstream.url)
    direct = _fingerprints(upstream)
    call(url)
    assert _fingerprints(upstream) == direct
    assert len(direct) >= 5


def _fingerprints(upstream: Upstream) -> list[tuple[bytes, Any, str]]:
    heard, upstream.heard[:] = list(upstream.heard), []
    return [(each.line, each.passed(), digest(each.body)) for each in heard]


# As it comes

EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n',
    b": ping\n\nevent: ping\r\ndata: {}\r\n\r\n",
    'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"ü🧪"}}\n\n'.encode(),
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    b"data: [DONE]\n\n",
]


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/chat/completions", b"/v1/responses", b"/v1/other"])
@pytest.mark.parametrize("headers", [[], [(b"X-Compactor-Mode", b"off")]])
def test_each_event_arrives_while_the_provider_still_waits(
    url: str, upstream: Upstream, target: bytes, headers: list[Any]
) -> None:
    gates = [threading.Event() for _ in EVENTS]

    def respond(_: Heard) -> Iterator[Step]:
        yield stream_head()
        for event, gate in zip(EVENTS, gates, strict=True):
            yield chunk(event)
            yield gate
        yield END_OF_CHUNKS

    upstream.respond = respond
    with connected(url) as wire:
        wire.connection.sendall(request(url, target, ODD_BODIES["a usual one"], [JSON, *headers]))
        assert wire.read_head()[0] == b"HTTP/1.1 200 OK"
        for event, gate in zip(EVENTS, gates, strict=True):
            assert wire.read_chunk() == event  # the provider cannot go on before this
            gate.set()
        assert wire.read_chunk() == b""


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_that_is_cut_anywhere_arrives_as_it_is(
    url: str, shared_upstream: Upstream, target: bytes, cuts: list[int]
) -> None:
    whole = b"".join(EVENTS)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    shared_upstream.respond = lambda _: [stream_head(), *map(chunk, pieces), END_OF_CHUNKS]
    answered = ask(url, target, ODD_BODIES["a usual one"])
    assert (answered.is_whole, digest(answered.body)) == (True, digest(whole))


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
def test_the_head_of_an_answer_arrives_before_its_body_begins(url: str, upstream: Upstream, target: bytes) -> None:
    gate = threading.Event()
    upstream.respond = lambda _: [stream_head(), gate, chunk(b"x"), END_OF_CHUNKS]
    with connected(url) as wire:
        wire.connection.sendall(request(url, target))
        assert wire.read_head()[0] == b"HTTP/1.1 200 OK"
        gate.set()
        assert wire.read_chunk() == b"x"


def test_a_long_request_is_passed_on_while_it_comes_in(url: str, upstream: Upstream, place: Place) -> None:
    with proxied(upstream.url, place, max_body_bytes=1_000) as small:
        for target in (b"/v1/messages", b"/v1/files"):
            body = os.urandom(3_000_000)
            for chunks in (None, [body[:500], body[500:900_000], body[900_000:]]):
                answered = ask(small, target, body, chunks=chunks)
                assert answered.status == 200, answered.body
                assert digest(upstream.heard.pop().body) == digest(body)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
def test_a_client_that_is_gone_ends_the_request_at_the_provider(url: str, upstream: Upstream, target: bytes) -> None:
    upstream.respond = lambda _: [stream_head(), chunk(EVENTS[0]), HANG_UP]
    with connected(url) as wire:
        wire.connection.sendall(request(url, target))
        wire.read_head()
        assert wire.read_chunk() == EVENTS[0]
    wait_for(upstream.has_hung_up)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
def test_a_client_that_is_gone_before_the_answer_ends_the_request_too(
    url: str, upstream: Upstream, target: bytes
) -> None:
    upstream.respond = lambda _: [HANG_UP]
    with connected(url) as wire:
        wire.connection.sendall(request(url, target))
        wait_for(lambda: upstream.heard)
    wait_for(upstream.has_hung_up)


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
@pytest.mark.parametrize("ending", [[CUT], [b"5\r\nab", CUT], [b"zz\r\n", CUT]], ids=["between", "within", "broken"])
def test_a_stream_that_breaks_off_has_no_clean_end(
    url: str, upstream: Upstream, target: bytes, ending: list[Step]
) -> None:
    upstream.respond = lambda _: [stream_head(), chunk(EVENTS[0]), *ending]
    answered = ask(url, target)
    assert answered.status == 502 or (not answered.is_whole and answered.body.startswith(EVENTS[0]))
    upstream.respond = answer()
    assert ask(url, target).status == 200


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
def test_a_body_that_is_shorter_than_it_said_has_no_clean_end(url: str, upstream: Upstream, target: bytes) -> None:
    upstream.respond = lambda _: [answer(b"x" * 1_000)[:-500], CUT]
    answered = ask(url, target)
    assert (answered.is_whole, answered.values(b"Content-Length")) == (False, [b"1000"])


def test_a_slow_reader_of_a_stream_that_breaks_off_sees_no_clean_end(url: str, upstream: Upstream) -> None:
    upstream.respond = lambda _: [stream_head(), *[chunk(b"x" * 60_000)] * 100, CUT]
    with connected(url, receive_buffer=4_096) as wire:
        wire.connection.sendall(request(url, b"/v1/messages"))
        wait_for(lambda: upstream.heard)
        assert not wire.read_answer().is_whole


def test_an_upstream_that_says_nothing_and_closes_is_a_502_and_not_the_end(url: str, upstream: Upstream) -> None:
    upstream.respond = lambda _: [CUT]
    for target in (b"/v1/messages", b"/v1/models"):
        _is_own_error(ask(url, target), 502)
    upstream.respond = lambda _: [b"what is this\r\n\r\n", CUT]
    for target in (b"/v1/messages", b"/v1/models"):
        _is_own_error(ask(url, target), 502)
    upstream.respond = answer()
    assert ask(url, b"/v1/messages").status == 200


def _is_own_error(answered: Heard, status: int) -> str:
    assert answered.status == status
    error = json.loads(answered.body)["error"]
    assert error["type"] == "proxy_error"
    assert error["message"].startswith("compactor proxy: ")
    return str(error["message"])


def test_an_upstream_that_is_not_there_is_a_502_that_names_it(tmp_path: Path) -> None:
    with Upstream() as upstream:
        gone = upstream.url
    with proxied(gone, Place(tmp_path)) as url:
        for target in (b"/v1/messages", b"/v1/models"):
            assert gone in _is_own_error(ask(url, target, b'{"messages":[]}'), 502)


class Measured(threading.Thread):
    """Sends a stream of so many bytes, and knows how many it has got rid of."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.sent = size, 0
        self.block = os.urandom(1 << 16)

    def steps(self, heard: Heard) -> Iterator[Step]:
        if heard.line.startswith(b"HEAD"):
            yield answer(b"")
            return
        yield stream_head()
        while self.sent < self.size:
            yield chunk(self.block)
            self.sent += len(self.block)
        yield END_OF_CHUNKS

    def is_stuck(self) -> Any:
        """A look that is true once nothing was sent for many looks."""
        looks = [0, -1]

        def look() -> bool:
            looks[0] = looks[0] + 1 if looks[1] == self.sent else 0
            looks[1] = self.sent
            return looks[0] > 60

        return look


@pytest.mark.slow
@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/other"])
def test_a_reader_that_stops_stops_the_provider_and_costs_no_memory(tmp_path: Path, target: bytes) -> None:
    stream = Measured(100 << 20)
    with Upstream(stream.steps) as upstream, ProxyCommand(upstream.url, Place(tmp_path)) as proxy:
        ask(proxy.url, b"/v1/other?warm", None, b"HEAD")
        before = psutil.Process(proxy.pid).memory_info().rss
        with connected(proxy.url, receive_buffer=1 << 14) as wire:
            wire.connection.sendall(request(proxy.url, target))
            wire.read_head()
            wait_for(stream.is_stuck())
            assert 0 < stream.sent < 30 << 20
            assert psutil.Process(proxy.pid).memory_info().rss - before < 16 << 20
            assert ask(proxy.url, b"/v1/models", None, b"HEAD").status == 200  # others are not held up
            received = 0
            while content := wire.read_chunk():
                received += len(content)
        assert received == 100 << 20
        assert psutil.Process(proxy.pid).memory_info().rss - before < 16 << 20


# Connections


def test_both_connections_are_kept_for_the_next_request(upstream: Upstream, tmp_path: Path) -> None:
    with Upstream() as alone, proxied(alone.url, Place(tmp_path)) as url, connected(url) as wire:
        for target in (b"/v1/messages", b"/v1/models", b"/v1/responses", b"/v1/messages"):
            wire.connection.sendall(request(url, target))
            assert wire.read_answer().body == b"{}"
        assert alone.connections == 1


def test_an_upstream_that_says_it_closes_after_each_answer_fails_no_request(tmp_path: Path) -> None:
    said = answer(headers=[JSON, (b"Connection", b"close")])
    with (
        Upstream(lambda _: [said, CUT]) as upstream,
        proxied(upstream.url, Place(tmp_path)) as url,
        connected(url) as wire,
    ):
        for _ in range(100):
            wire.connection.sendall(request(url, b"/v1/messages", b'{"messages":[]}'))
            answered = wire.read_answer()
            assert answered.status == 200, answered.body


@pytest.mark.parametrize("target", [b"http://127.0.0.1:1/v1/messages", b"https://example.com/v1/models", b"//", b"*"])
def test_the_request_line_never_chooses_the_provider(url: str, upstream: Upstream, target: bytes) -> None:
    answered = ask(url, target, b"{}")
    if target.startswith(b"/"):
        assert [heard.line for heard in upstream.heard] == [b"POST // HTTP/1.1"]
    else:
        assert (answered.status, upstream.heard) == (400, [])


def test_connect_is_refused(url: str, upstream: Upstream) -> None:
    assert ask(url, b"example.com:443", None, b"CONNECT").status in (400, 404)
    assert upstream.heard == []


@pytest.mark.parametrize(
    "host", [b"example.com", b"attacker.test:8379", b"127.0.0.1.evil.test", b"10.0.0.1", b"", b"[::2]"]
)
def test_a_name_that_leads_here_from_elsewhere_is_refused(url: str, upstream: Upstream, host: bytes) -> None:
    answered = ask(url, b"/v1/messages", host=host)
    assert (answered.status, upstream.heard) == (403, [])


@pytest.mark.parametrize(
    "host", [b"127.0.0.1", b"localhost", b"localhost:99", b"LocalHost:8379", b"[::1]", b"[::1]:80"]
)
def test_every_name_of_this_machine_is_taken(url: str, upstream: Upstream, host: bytes) -> None:
    assert ask(url, b"/v1/messages", host=host).status == 200


def test_a_websocket_is_refused_so_that_the_client_falls_back(url: str, upstream: Upstream) -> None:
    headers = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13")]
    assert ask(url, b"/v1/responses", None, b"GET", headers=headers).status == 426
    assert upstream.heard == []


@pytest.mark.parametrize("mode", [b"off", b"record", b"on"])
@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/models"])
def test_own_headers_go_no_further(url: str, upstream: Upstream, mode: bytes, target: bytes) -> None:
    own = [(b"X-Compactor-Mode", mode), (b"x-compactor-session", b"mine")]
    ask(url, target, headers=[JSON, *own])
    assert upstream.heard[0].passed() == [JSON]


def test_a_mode_that_is_none_is_refused(url: str, upstream: Upstream) -> None:
    for target in (b"/v1/messages", b"/v1/models"):
        assert "x-compactor-mode" in _is_own_error(ask(url, target, headers=[(b"X-Compactor-Mode", b"maybe")]), 400)
    assert upstream.heard == []


def test_what_is_sent_with_mode_off_is_not_written_down(upstream: Upstream, tmp_path: Path) -> None:
    place = Place(tmp_path)
    secret = b'{"model":"m","messages":[{"role":"user","content":"only-for-the-provider"}]}'
    with proxied(upstream.url, place) as url:
        ask(url, b"/v1/messages", secret, headers=[(b"X-Compactor-Mode", b"off")])
    with proxied(upstream.url, place, mode="off") as url:
        ask(url, b"/v1/messages", secret)
    assert not any(b"only-for-the-provider" in path.read_bytes() for path in place.home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "address",
    [
        "ftp://example.com",
        "example.com",
        "http://",
        "http://169.254.169.254",
        "http://[fe80::1]",
        "http://[::ffff:169.254.169.254]/",
        "http://0.0.0.0",
        "http://2852039166",
        "http://0xa9fea9fe/",
        "http://0",
        "http://224.0.0.1",
        "http://user:key@example.com",
        "http://example.com?x=1",
        "http://example.com#x",
    ],
)
def test_addresses_that_no_provider_has_are_refused(address: str) -> None:
    with pytest.raises(BadSetting):
        check_upstream(address)


# TLS


class Certificates:
    """An authority of our own, and a certificate by it for this machine."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        def name(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        def made(subject: str, key: Any, issuer: str, by: Any, *more: x509.ExtensionType) -> bytes:
            builder = x509.CertificateBuilder(
                name(issuer), name(subject), key.public_key(), x509.random_serial_number(), began, ends
            )
            for each in more:
                builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
            builder = builder.add_extension(identifier, critical=False)
            own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            signed = builder.add_extension(own, critical=False).sign(by, hashes.SHA256())
            return signed.public_bytes(serialization.Encoding.PEM)

        began = datetime.now(UTC) - timedelta(days=1)
        ends = began + timedelta(days=3)
        authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.authority = folder / "authority.pem"
        self.authority.write_bytes(
            made("Tests", authority, "Tests", authority, x509.BasicConstraints(ca=True, path_length=None))
        )
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = folder / "chain.pem"
        chain.write_bytes(made("localhost", key, "Tests", authority, names) + private)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(chain)


def test_an_upstream_is_called_over_tls_and_only_when_its_certificate_is_trusted(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Upstream(tls=certificates.context) as upstream:
        trusting = {"SSL_CERT_FILE": str(certificates.authority)}
        with ProxyCommand(upstream.url, Place(tmp_path), env=trusting) as proxy:
            for target in (b"/v1/messages", b"/v1/models"):
                assert ask(proxy.url, target).body == b"{}"
        assert len(upstream.heard) == 2
        with ProxyCommand(upstream.url, Place(tmp_path)) as proxy:
            for target in (b"/v1/messages", b"/v1/models"):
                assert "ertificate" in _is_own_error(ask(proxy.url, target, headers=[(b"x-api-key", b"k")]), 502)
        assert len(upstream.heard) == 2


def test_what_the_environment_says_of_other_proxies_leads_no_request_elsewhere(tmp_path: Path) -> None:
    with Upstream() as upstream, Upstream() as other:
        others = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), other.url)
        with ProxyCommand(upstream.url, Place(tmp_path), env=others) as proxy:
            assert ask(proxy.url, b"/v1/messages").status == 200
        assert (len(upstream.heard), len(other.heard)) == (1, 0)


def test_ctrl_c_lets_a_stream_finish(tmp_path: Path) -> None:
    gate = threading.Event()
    with (
        Upstream(lambda _: [stream_head(), chunk(b"a"), gate, chunk(b"b"), END_OF_CHUNKS]) as upstream,
        ProxyCommand(upstream.url, Place(tmp_path)) as proxy,
        connected(proxy.url) as wire,
    ):
        wire.connection.sendall(request(proxy.url, b"/v1/other"))
        wire.read_head()
        assert wire.read_chunk() == b"a"
        os.kill(proxy.pid, signal.SIGINT)
        wait_for(lambda: not _listens(proxy.url))
        gate.set()
        assert [wire.read_chunk(), wire.read_chunk()] == [b"b", b""]


def _listens(url: str) -> bool:
    try:
        with connected(url):
            return True
    except OSError:
        return False
