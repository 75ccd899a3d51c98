"""Large bodies and answers: read, written and packed beside the event loop, and refused before they cost much."""

from __future__ import annotations

import gzip
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.server import app, requests, responses
from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import decode_body
from context_compactor.sessions.schemas import AppendBody
from tests.cli.conftest import conversation

VALUES = st.recursive(
    st.text(alphabet='[]{}"\\ab\n', max_size=8) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def _body(content: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":' + content + b"}]}"


def _refusal(body: bytes) -> int:
    with pytest.raises(RequestRefused) as refused:
        decode_body(body, AppendBody, "application/json")
    return refused.value.status


def _deep(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_deep, inner), default=0)


def _count(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(_count, inner))


@given(VALUES, st.sampled_from([True, False]))
def test_the_brackets_of_a_body_are_those_outside_its_texts(value, ascii_only):
    steps = requests._depth_changes(json.dumps(value, ensure_ascii=ascii_only).encode())
    depth, deepest = 0, 0
    for step in memoryview(steps).cast("b"):
        depth += step
        deepest = max(deepest, depth)
    assert (deepest, depth, steps.count(b"\x01")) == (_deep(value), 0, _count(value))


def test_a_body_of_many_lists_is_refused_before_any_is_read():
    assert _refusal(_body(b"[" + b",".join([b"[]"] * 1_000_000) + b"]")) == 413


def test_brackets_within_texts_are_no_lists():
    text = json.dumps('[{"' * 300_000).encode()
    assert decode_body(_body(text), AppendBody, "application/json").messages[0]["content"] == '[{"' * 300_000


@pytest.mark.parametrize(("deep", "is_taken"), [(190, True), (250, False), (900, False), (500_000, False)])
def test_what_is_nested_too_deep_is_refused(deep, is_taken):
    body = _body(b"[" * deep + b"]" * deep)
    if is_taken:
        assert decode_body(body, AppendBody, "application/json")
    else:
        assert _refusal(body) in (400, 413)


@pytest.fixture
def threads(monkeypatch) -> dict[str, set[str]]:
    """In which threads bodies are read, answers written, and either packed."""
    seen: dict[str, set[str]] = {}

    def watched(name, work):
        def wrapped(*args, **more):
            seen.setdefault(name, set()).add(threading.current_thread().name)
            return work(*args, **more)

        return wrapped

    monkeypatch.setattr(app, "decode_body", watched("read", app.decode_body))
    monkeypatch.setattr(responses, "encode", watched("written", responses.encode))
    monkeypatch.setattr(responses.gzip, "compress", watched("packed", gzip.compress))
    return seen


def _long(server) -> str:
    path = server.made()
    assert server.post(f"{path}/messages", {"messages": conversation()}).status == 200
    assert server.post(f"{path}/compact", {"target_tokens": 9_000}).json["compacted"]
    return path


def test_a_large_body_is_read_in_a_thread(server, threads):
    path = server.made()
    threads.clear()
    server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "x" * 100_000}]})
    assert all(name.startswith("context-compactor") for name in threads["read"])


@pytest.mark.parametrize(
    "look", ["history", "context", "archive", "compactions", "facts", "search?q=lorem", "checkpoint"]
)
def test_an_answer_that_may_be_large_is_written_and_packed_in_a_thread(server, threads, look):
    path = _long(server)
    threads.clear()
    got = server.get(f"{path}/{look}", Accept_Encoding="gzip")
    assert got.status == 200
    assert all(name.startswith("context-compactor") for name in threads["written"])
    content = gzip.decompress(got.raw) if got.headers.get("content-encoding") == "gzip" else got.raw
    if len(content) > responses.LARGE_BODY:
        assert all(name.startswith("context-compactor") for name in threads["packed"])


def test_the_history_is_large_enough_to_be_packed_in_a_thread(server, threads):
    path = _long(server)
    threads.clear()
    got = server.get(f"{path}/history", Accept_Encoding="gzip")
    assert len(gzip.decompress(got.raw)) > responses.LARGE_BODY
    assert all(name.startswith("context-compactor") for name in threads["packed"])


def test_a_packed_answer_and_a_plain_one_are_told_apart_by_whoever_keeps_them(server):
    path = _long(server)
    packed = server.get(f"{path}/history?limit=9", Accept_Encoding="br, gzip")
    plain = server.get(f"{path}/history?limit=9")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.raw) == plain.raw
    assert "accept-encoding" in packed.headers["vary"].lower()
    assert "accept-encoding" in plain.headers["vary"].lower()
