"""The dashboard without a browser: what is sent, what is computed, and what is never let through."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from context_compactor.server import dashboard
from context_compactor.server.dashboard.layout import CSP, show_controls
from context_compactor.server.dashboard.rendering import ENVIRONMENT, page_path
from context_compactor.server.dashboard.routes import local_path
from context_compactor.server.tokens import add_token
from context_compactor.sessions.session import Session
from context_compactor.sessions.token_series import MOST_POINTS, MessageWeights, TokenSeries, token_series
from context_compactor.text import ago, percent, short_count, truncated_text
from tests.cli.conftest import conversation
from tests.server.running import running

STATIC = Path(dashboard.__file__).with_name("static")
CELL = ENVIRONMENT.from_string('<td title="{{ text }}">{{ text }}</td>')
UNSEEN = st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp"))


# What is sent


@pytest.mark.parametrize("address", ["/", "/activity", "/quality", "/proxy", "/sessions/nobody", "/login"])
def test_every_page_forbids_what_it_does_not_need(shared, address):
    got = shared.get(address)
    assert got.headers["content-security-policy"] == CSP
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["cache-control"] == "no-store"
    assert "unsafe" not in CSP


def test_no_page_holds_a_script_or_style_of_its_own_or_an_address_of_another_site(shared):
    path = shared.made("spotless")
    shared.post(f"{path}/messages", {"messages": conversation(10)})
    for address in ("/", "/activity", "/quality", "/proxy", "/sessions/spotless", "/sessions/spotless/plan"):
        page = shared.get(address).raw.decode()
        assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)", page)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|https?://(?!127\.0\.0\.1)", page)


def test_style_script_and_libraries_are_small_and_their_licences_lie_beside_them():
    assert sum(each.stat().st_size for each in STATIC.rglob("*.*")) <= 150_000
    assert {each.name for each in STATIC.rglob("*.LICENSE")} == {"htmx.LICENSE", "uPlot.LICENSE"}


def test_files_are_kept_for_ever_under_an_address_that_changes_with_them(shared):
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', shared.get("/").raw.decode())
    assert len(addresses) == 7
    for address in addresses:
        got = shared.get(address)
        assert got.status == 200
        assert "immutable" in got.headers["cache-control"]
    assert shared.get("/static/000000000000/dashboard.js").status == 404
    assert shared.get("/static/x/..%2f..%2froutes.py").status == 404


# What is never let through


@given(st.text(alphabet=st.one_of(st.characters(), UNSEEN)))
def test_any_text_is_one_piece_of_text_in_a_page_and_all_of_it_can_be_seen(text):
    sent = show_controls(CELL.render(text=text))
    sent.encode()
    inside = re.fullmatch(r'<td title="([^"<>]*)">([^<>]*)</td>', sent, re.DOTALL)
    assert inside
    assert unescape(inside[1]) == unescape(inside[2])
    assert not any("\u202a" <= char <= "\u202e" or (char < " " and char not in "\n\t") for char in sent)


def test_a_value_that_a_template_lacks_is_an_error_and_no_empty_place():
    with pytest.raises(UndefinedError):
        CELL.render()


def test_only_a_page_of_this_server_can_be_gone_to_after_a_log_in():
    assert local_path("/sessions/a%2Fb?q=x") == "/sessions/a%2Fb?q=x"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\nx", ""):
        assert local_path(elsewhere) == "/"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    secrets = {
        "full": add_token(folder / "tokens", "full", "", read_only=False),
        "read": add_token(folder / "tokens", "read", "", read_only=True),
    }
    with running(folder, token_file=folder / "tokens") as made:
        made.post("/v1/sessions", {"id": "a", "window": 9_000}, Authorization=f"Bearer {secrets['full']}")
        yield made, secrets


def cookie(site, secret: str) -> dict[str, str]:
    return {"Cookie": f"compactor_{site.port}={secret}"}


def test_a_cookie_lets_read_everything_and_change_only_through_the_pages(guarded):
    site, secrets = guarded
    known = cookie(site, secrets["full"])
    assert site.get("/v1/sessions/a", **known).status == 200
    assert site.post("/v1/sessions/a/compact", {}, **known).status == 401
    assert site.post("/sessions/a/compact", **known).status == 200


@pytest.mark.parametrize("site_of_caller", ["cross-site", "same-site"])
def test_a_request_that_a_browser_sends_for_another_site_changes_nothing(guarded, site_of_caller):
    site, secrets = guarded
    for address in ("/sessions/a/compact", "/sessions/a/undo", "/sessions/a/delete", "/login", "/logout"):
        got = site.post(address, **cookie(site, secrets["full"]), Sec_Fetch_Site=site_of_caller)
        assert got.status == 403, address


def test_a_token_that_may_only_read_is_refused_by_every_button(guarded):
    site, secrets = guarded
    for verb in ("compact", "undo", "redo", "archive/tool_001/restore", "delete"):
        assert site.post(f"/sessions/a/{verb}", **cookie(site, secrets["read"])).status == 403


def test_whoever_is_not_known_is_led_to_the_log_in_and_a_part_of_a_page_leads_there_too(guarded):
    site, _ = guarded
    got = site.get("/sessions/a?page=2")
    assert (got.status, got.headers["location"]) == (303, "/login?to=%2Fsessions%2Fa%3Fpage%3D2")
    part = site.get("/", HX_Request="true")
    assert (part.status, part.headers["hx-redirect"]) == (401, "/login")
    assert site.get("/", **cookie(site, "cct_wrong")).status == 303


def test_a_cookie_is_given_for_a_token_and_is_only_for_this_server(guarded):
    site, secrets = guarded
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    got = site.post("/login", f"token={secrets['read']}".encode(), **form)
    assert got.status == 303
    assert got.headers["set-cookie"] == (f"compactor_{site.port}={secrets['read']}; Path=/; HttpOnly; SameSite=Strict")
    behind_tls = site.post("/login", f"token={secrets['read']}".encode(), **form, X_Forwarded_Proto="https")
    assert behind_tls.headers["set-cookie"].endswith("; Secure")
    for wrong in (b"token=nope", b"", b"token=a%0d%0aX:%20y", b"token=" + b"x" * 10_000):
        refused = site.post("/login", wrong, **form)
        assert refused.status in (401, 422)
        assert "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    "address",
    ["/?sort=nothing", "/?page=0", "/?page=1&page=2", "/?color=red", "/sessions/x/plan?level=high", "/activity?type=x"],
)
def test_a_question_that_cannot_be_is_answered_in_words(shared, address):
    got = shared.get(address)
    assert got.status == 422
    assert b"What was given cannot be used" in got.raw


@pytest.mark.parametrize("path", ["/nothing", "/sessions/a/b/c", "/v1/nothing", "/%3Cscript%3E"])
def test_a_browser_that_is_lost_is_shown_the_way_back_and_a_program_is_told_a_problem(shared, path):
    page = shared.get(path, Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (404, "text/html")
    assert b'href="/"' in page.raw
    assert b"<script>" not in page.raw
    assert page.headers["content-security-policy"]
    for accepted in ("application/json", "*/*"):
        assert shared.get(path, Accept=accepted).problem == "not-found"


def test_a_failure_of_the_server_is_told_without_its_inside(shared, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("secret place")

    monkeypatch.setattr("context_compactor.server.dashboard.caches.SessionListCache.sessions", fail)
    got = shared.get("/")
    assert got.status == 500
    assert b"The server failed" in got.raw
    assert b"secret" not in got.raw
    assert got.headers["content-security-policy"] == CSP


# What is computed


@pytest.fixture
def session(tmp_path):
    with Session.open("a", window=200_000, store=f"sqlite:///{tmp_path}/a.db") as made:
        made.append(conversation())
        yield made


def seen(session) -> TokenSeries:
    weighed = MessageWeights()
    weighed.follow(session._core)
    return token_series(weighed)


def test_the_last_point_of_the_saw_is_what_the_session_weighs(session):
    assert seen(session).points[-1] == (84, session.usage().tokens)
    session.compact(target_tokens=9_000)
    assert seen(session).points[-1][1] == session.usage().tokens
    session.append({"role": "assistant", "content": "Going on with a few more words."})
    assert seen(session).points[-1][1] == session.usage().tokens
    session.undo()
    assert seen(session).points[-1][1] == session.usage().tokens
    session.redo()
    assert seen(session).points[-1][1] == session.usage().tokens


def test_every_compaction_is_in_the_series_and_one_that_was_undone_is_marked(session):
    first = session.compact(target_tokens=12_000)
    session.append(conversation(10)[2:])
    second = session.compact(target_tokens=9_000)
    session.undo()
    drops = seen(session).compactions
    assert [drop.id for drop in drops] == [first.compaction_id, second.compaction_id]
    assert [drop.is_active for drop in drops] == [True, False]
    assert (drops[0].before, drops[0].after) == (first.tokens_before, first.tokens_after)


def test_a_saw_that_is_followed_is_the_one_that_is_read_at_once(session):
    followed = MessageWeights()
    for step in range(4):
        followed.follow(session._core)
        session.append(
            [{"role": "assistant", "content": f"Step {step}."}, {"role": "user", "content": "Go on. " * step}]
        )
        if step % 2:
            session.compact(target_tokens=9_000 - step * 1_000)
    followed.follow(session._core)
    assert token_series(followed) == seen(session)


def test_an_output_that_was_cut_short_weighs_what_is_shown_of_it(session):
    call = {"id": "call_x", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    session.append([{"role": "assistant", "content": None, "tool_calls": [call]}])
    session.append([{"role": "tool", "tool_call_id": "call_x", "content": "a long line of words\n" * 20_000}])
    assert seen(session).points[-1][1] == session.usage().tokens


def test_a_long_saw_has_few_points_and_keeps_its_corners():
    weighed = MessageWeights()
    weighed.positions = list(range(1, 50_001))
    weighed.sums = [10 * at for at in weighed.positions]
    found = token_series(weighed)
    assert len(found.points) <= MOST_POINTS + 1
    assert (found.points[0], found.points[-1]) == ((1, 10), (50_000, 500_000))


def test_numbers_and_times_are_short_and_never_say_more_than_is_known():
    assert [short_count(each) for each in (0, 950, 12_345, 999_999, 1_200_000)] == [
        "0",
        "950",
        "12.3k",
        "1M",
        "1.2M",
    ]
    assert [percent(each) for each in (None, 0.0, 0.001, 0.5, 0.9999, 1.0)] == [
        "–",
        "0 %",
        "<1 %",
        "50 %",
        ">99 %",
        "100 %",
    ]
    assert [ago(each) for each in (0, 59, 60, 7_200, 200_000, -90)] == [
        "just now",
        "59 s ago",
        "1 min ago",
        "2 h ago",
        "2 d ago",
        "in 1 min",
    ]
    assert truncated_text("abcdef", 4) == "abcd… (2 more characters)"
    assert page_path("sessions", "a/b?c#d %", page=2) == "/sessions/a%2Fb%3Fc%23d%20%25?page=2"
