"""A request may be packed with gzip: it is read as if it were not, within the same limits."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
import zlib

import pytest

from context_compactor.server.problems import RequestRefused
from context_compactor.server.requests import decompress
from context_compactor.sessions.verbs import VERBS
from tests.server.running import running

ASK = {"role": "user", "content": "Grüße"}
BODY = json.dumps({"messages": [ASK]}).encode()
GZIP = {"Content_Encoding": "gzip"}
MEGABYTE = 1 << 20


def _history(server, path: str) -> list[object]:
    return server.get(f"{path}/history").json["messages"]


@pytest.mark.parametrize("encoding", ["gzip", "GZip", "x-gzip", " gzip "])
def test_a_packed_body_is_read_as_if_it_were_not(shared, encoding):
    path = shared.made()
    assert shared.post(f"{path}/messages", gzip.compress(BODY), Content_Encoding=encoding).status == 200
    assert _history(shared, path) == [ASK]


def test_a_body_that_is_called_what_it_is_needs_no_unpacking(shared):
    path = shared.made()
    assert shared.post(f"{path}/messages", BODY, Content_Encoding="identity").status == 200


@pytest.mark.parametrize("route", [route for route in VERBS if route.body], ids=lambda route: route.name)
def test_every_route_with_a_body_takes_it_packed_and_says_what_is_wrong_with_it(shared, route):
    path = route.path.replace("{id}", "none")
    broken = shared.post(path, gzip.compress(b"{}")[:-4], **GZIP)
    assert (broken.status, broken.problem) == (400, "bad-request")
    assert "gzip" in broken.json["detail"]
    wrong = shared.post(path, gzip.compress(b'{"no such field": 1}'), **GZIP)
    assert wrong.status == 422
    assert "no such field" in wrong.json["detail"]


def test_several_members_are_one_body_and_zeros_behind_them_are_none_of_it(shared):
    path = shared.made()
    packed = gzip.compress(BODY[:10]) + gzip.compress(b"") + gzip.compress(BODY[10:]) + bytes(512)
    assert shared.post(f"{path}/messages", packed, **GZIP).status == 200
    assert _history(shared, path) == [ASK]


@pytest.mark.parametrize(
    "packed",
    [
        BODY,
        gzip.compress(BODY)[:-1],
        gzip.compress(BODY)[:5],
        gzip.compress(BODY) + b"and more",
        zlib.compress(BODY),
        gzip.compress(BODY)[:-8] + bytes(8),
        bytes(100),
    ],
    ids=["plain", "cut off", "only a head", "something behind it", "zlib", "a wrong sum", "zeros"],
)
def test_what_is_no_gzip_is_said_to_be_none(shared, packed):
    path = shared.made()
    got = shared.post(f"{path}/messages", packed, **GZIP)
    assert (got.status, got.problem) == (400, "bad-request")
    assert "gzip" in got.json["detail"]
    assert _history(shared, path) == []


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_another_encoding_is_refused_and_told_which_there_is(shared, encoding):
    got = shared.post(f"{shared.made()}/messages", gzip.compress(BODY), Content_Encoding=encoding)
    assert (got.status, got.problem, got.headers["accept-encoding"]) == (415, "media-type", "gzip")


def test_the_limit_counts_for_what_is_unpacked(tmp_path):
    with running(tmp_path, max_body_bytes=MEGABYTE) as server:
        path = server.made()
        text = json.dumps({"messages": [{"role": "user", "content": "a" * MEGABYTE}]}).encode()
        got = server.post(f"{path}/messages", gzip.compress(text), **GZIP)
        assert (got.status, got.problem) == (413, "too-large")
        assert f"{MEGABYTE:,} bytes" in got.json["detail"]
        fits = b'{"messages": []}'.ljust(MEGABYTE)
        assert server.post(f"{path}/messages", gzip.compress(fits), **GZIP).status == 200


def test_a_bomb_is_not_unpacked_beyond_the_limit():
    pack = zlib.compressobj(9, wbits=31)
    bomb = b"".join(pack.compress(bytes(MEGABYTE)) for _ in range(256)) + pack.flush()
    tracemalloc.start()
    try:
        with pytest.raises(RequestRefused, match="when it is unpacked"):
            decompress(bomb, "gzip", MEGABYTE)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


def test_the_limits_of_lists_and_depth_count_too(shared):
    path = shared.made()
    deep = b'{"messages": ' + b"[" * 1_000 + b"]" * 1_000 + b"}"
    assert shared.post(f"{path}/messages", gzip.compress(deep), **GZIP).status == 400
    many = b'{"messages": [' + b"[]," * 300_000 + b"[]]}"
    assert shared.post(f"{path}/messages", gzip.compress(many), **GZIP).status == 413


def test_more_members_than_anybody_needs_are_refused():
    with pytest.raises(RequestRefused, match=re.escape("more than 1,000 members")):
        decompress(gzip.compress(b"") * 1_001, "gzip", MEGABYTE)


def test_a_packed_request_that_is_sent_again_plain_is_the_same(shared):
    path = shared.made()
    first = shared.post(f"{path}/messages", gzip.compress(BODY), Idempotency_Key="k", **GZIP)
    second = shared.post(f"{path}/messages", BODY, Idempotency_Key="k")
    assert second.raw == first.raw
    assert second.headers["idempotency-replayed"] == "true"
    assert _history(shared, path) == [ASK]


def test_the_document_says_that_bodies_may_be_packed(shared):
    paths = shared.get("/openapi.json").json["paths"]
    for route in VERBS:
        if route.body:
            assert "gzip" in paths[route.path][route.method.lower()]["requestBody"]["description"]
