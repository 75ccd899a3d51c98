"""The page about proxied requests: the same numbers as the report, for whoever may see them, and nothing of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape

import pytest
from msgspec import structs

from context_compactor.server.dashboard.caches import MAX_PROXIED, PROXIED_DAYS
from context_compactor.server.dashboard.layout import CSP
from context_compactor.server.tokens import add_token
from context_compactor.store.proxied import ProxiedRequest
from context_compactor.store.rows import timestamp
from tests.server.running import Running, running
from tests.waiting import wait_for

USED = ProxiedRequest(
    id="x",
    session_id="run-1",
    at="",
    client="claude-code",
    protocol="anthropic",
    model="claude-opus-4-8",
    input=1_000,
    cache_read=100_000,
    cache_write=10_000,
    output=2_000,
    has_usage=True,
    milliseconds=1_234,
)


def record(site: Running, *rows: ProxiedRequest) -> None:
    """Requests of the last minutes, each a second after the one before."""
    now = datetime.now(UTC)
    stamped = [
        structs.replace(row, id=f"{row.id}{at}", at=row.at or timestamp(now, at - 600)) for at, row in enumerate(rows)
    ]
    site.service.service_store.proxied.add_requests(stamped)


def text_of(site: Running, **headers: str) -> str:
    """What a reader sees of the page."""
    page = site.get("/proxy", **headers).raw.decode()
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def used(**more: object) -> ProxiedRequest:
    return structs.replace(USED, **more)


def test_before_the_first_request_the_page_says_how_to_begin(server: Running):
    got = server.get("/proxy")
    assert (got.status, got.headers["content-security-policy"]) == (200, CSP)
    assert f"No request went through the proxy in the last {PROXIED_DAYS} days." in text_of(server)
    assert "compactor proxy" in text_of(server)
    assert b'<a href="/proxy" aria-current="page">Proxy</a>' in got.raw


def test_both_sides_of_a_client_stand_side_by_side_with_their_models(server: Running):
    record(server, used(), used(session_id="run-2", is_held_out=True, output=0), used(client="", model="our-own"))
    text = text_of(server)
    for words in (
        "claude-code Too few held-out conversations to compare (1 of 20). Try: compactor proxy --holdout 10%.",
        "Dollars $0.1675 $0.1175",
        "Share read from cache 90 % 90 %",
        "claude-opus-4-8 with us 1 1 90 % $0.1675 $0.1675",
        "claude-opus-4-8 held out 1 1 90 % $0.1175 $0.1175",
        "other agents They do not compact by themselves and are never held out",
        "No price is known for: our-own (1 request).",
    ):
        assert words in text


def test_a_request_is_a_row_with_its_session_tokens_dollars_and_time(server: Running):
    record(server, used(), used(status=529, has_usage=False, input=0, cache_read=0, cache_write=0, output=0))
    page = server.get("/proxy").raw.decode()
    assert '<a href="/sessions/run-1" class="name">' in page
    text = text_of(server)
    assert "claude-opus-4-8 main 200 100,000 10,000 1,000 2,000 $0.1675 1,234" in text
    assert "claude-opus-4-8 main ✕ 529 – – – – – 1,234" in text
    assert text.index("✕ 529") < text.index("main 200")


def test_the_newest_requests_are_listed_and_older_days_count_nowhere(server: Running):
    long_ago = timestamp(datetime.now(UTC), -(PROXIED_DAYS + 1) * 86_400)
    record(server, used(at=long_ago, session_id="ancient"), *(used(session_id=f"run-{at}") for at in range(60)))
    page = server.get("/proxy").raw.decode()
    assert re.findall(r'href="/sessions/([^"]+)"', page) == [f"run-{at}" for at in range(59, 59 - MAX_PROXIED, -1)]
    assert "Conversations 60 –" in text_of(server)


def test_a_request_of_a_deleted_session_keeps_its_numbers_and_has_no_link(server: Running):
    path = server.made("run-1")
    record(server, used())
    assert server.call("DELETE", path).status in (200, 204)
    page = server.get("/proxy").raw.decode()
    assert "run-1" not in page
    assert "$0.1675" in page
    assert "1 request of deleted or unknown conversations" in text_of(server)


def test_hostile_names_are_text(server: Running):
    hostile = '<script>alert(1)</script>"\u202e'
    record(server, used(model=hostile, session_id="<b>x"), used(model=hostile, client='<img src="x">'))
    page = server.get("/proxy").raw.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)|<img|<b>x|\u202e", page)
    assert "⟨U+202E⟩" in page


@pytest.mark.parametrize("part", ["bills", "proxied"])
def test_a_part_that_looks_again_gets_only_itself(server: Running, part: str):
    record(server, used())
    got = server.get("/proxy", HX_Request="true", HX_Target=f"div#{part}").raw.decode()
    assert got.startswith("<div")
    assert f'id="{part}"' in got
    assert "<nav" not in got


def test_a_question_that_the_page_does_not_know_is_refused(server: Running):
    assert server.get("/proxy?days=3").status == 422


def test_what_is_recorded_while_somebody_looks_is_shown_soon(server: Running):
    record(server, used())
    assert "Conversations 1 –" in text_of(server)
    record(server, used(id="y", session_id="run-2"))
    wait_for(lambda: "Conversations 2 –" in text_of(server))


# Namespaces


@pytest.fixture
def walled(tmp_path) -> Iterator[tuple[Running, dict[str, dict[str, str]]]]:
    """A server with tokens of the namespace `red` and of none, and the headers of each."""
    names = {"red": "red", "plain": ""}
    secrets = {name: add_token(tmp_path / "tokens", name, space, read_only=True) for name, space in names.items()}
    with running(tmp_path, token_file=tmp_path / "tokens") as site:
        yield site, {name: {"Cookie": f"compactor_{site.port}={secret}"} for name, secret in secrets.items()}


def test_only_the_default_namespace_sees_what_a_proxy_recorded(walled):
    site, known = walled
    record(site, used(), used(session_id=""))
    assert "$0.3350" in text_of(site, **known["plain"])
    for _ in range(2):  # also once the numbers of the other one are kept
        text = text_of(site, **known["red"])
        assert "No request went through the proxy" in text
        assert "Only a token without one sees it." in text
        assert "run-1" not in text
        assert "$" not in text
    assert site.get("/proxy").status == 303


def test_requests_of_sessions_of_a_namespace_are_for_that_namespace_only(walled):
    site, known = walled
    record(site, used(session_id="red/run-7"), used(session_id="reda/run-8"))
    assert "run-7" in text_of(site, **known["red"])
    assert "red/run-7" not in text_of(site, **known["red"])
    assert "run-8" not in text_of(site, **known["red"])
    assert "No request went through the proxy" in text_of(site, **known["plain"])
