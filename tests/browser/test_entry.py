"""Logging in, looking with a token that may only read, and logging out, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from context_compactor.server.tokens import add_token
from tests.browser.conftest import demo_messages
from tests.server.running import Running, running


class Guarded(Running):
    secrets: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    path = folder / "tokens"
    names = (("red", "red", False), ("watcher", "red", True), ("blue", "blue", False))
    secrets = {name: add_token(path, name, space, read_only=read_only) for name, space, read_only in names}
    with running(folder, token_file=path) as made:
        made.__class__ = Guarded
        made.secrets = secrets
        headers = {"Authorization": f"Bearer {secrets['red']}"}
        made.post("/v1/sessions", {"id": "plans", "window": 90_000, "dialect": "anthropic"}, **headers)
        made.post("/v1/sessions/plans/messages", {"messages": demo_messages()[:60]}, **headers)
        made.post("/v1/sessions/plans/compact", {}, **headers)
        yield made


def log_in(page, secret: str) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()


def test_whoever_has_no_token_sees_only_the_log_in_and_afterwards_the_page_they_asked_for(guarded, open_window):
    page = open_window(f"{guarded.url}/sessions/plans/facts").page
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    log_in(page, guarded.secrets["red"])
    expect(page).to_have_url(f"{guarded.url}/sessions/plans/facts")
    expect(page.get_by_text("red@red")).to_be_visible()


def test_a_wrong_token_is_refused_in_words(guarded, open_window):
    window = open_window(guarded.url)
    log_in(window.page, "cct_wrong")
    expect(window.page.get_by_role("alert").filter(has_text="This token is not known")).to_be_visible()
    window.complaints = [each for each in window.complaints if "401" not in each]


def test_no_script_can_read_the_cookie_and_no_other_site_can_send_it(guarded, open_window):
    page = open_window(guarded.url).page
    log_in(page, guarded.secrets["red"])
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert cookie["expires"] == -1
    assert page.evaluate("document.cookie") == ""


def test_events_reach_a_page_that_has_only_the_cookie(guarded, open_window):
    page = open_window(guarded.url).page
    log_in(page, guarded.secrets["red"])
    expect(page.locator("#pulse")).to_have_text("live")


def test_a_token_that_may_only_read_sees_everything_and_no_button_and_is_refused_when_it_asks(guarded, open_window):
    window = open_window(guarded.url)
    page = window.page
    log_in(page, guarded.secrets["watcher"])
    page.get_by_role("link", name="plans").click()
    expect(page.get_by_role("heading", name="plans")).to_be_visible()
    expect(page.get_by_text("read-only")).to_be_visible()
    for name in ("Compact now", "Undo", "Redo"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("link", name="Archive").click()
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_role("button", name="Put back into the context")).to_have_count(0)
    for verb in ("compact", "undo", "redo", "archive/tool_001/restore"):
        asked = f"fetch('/sessions/plans/{verb}', {{method: 'POST'}}).then(answer => answer.status)"
        assert page.evaluate(asked) == 403
    window.complaints = [each for each in window.complaints if "403" not in each]


def test_a_token_sees_only_its_own_namespace(guarded, open_window):
    window = open_window(guarded.url)
    log_in(window.page, guarded.secrets["blue"])
    expect(window.page.get_by_text("No session yet.")).to_be_visible()
    window.page.goto(f"{guarded.url}/sessions/plans")
    expect(window.page.get_by_text("No such session")).to_be_visible()
    for page in ("activity", "quality"):
        window.page.goto(f"{guarded.url}/{page}")
        expect(window.page.get_by_role("heading", level=1)).to_be_visible()
        assert "plans" not in window.page.content()
    window.complaints = [each for each in window.complaints if "404" not in each]


def test_after_logging_out_nothing_is_shown_any_more(guarded, open_window):
    page = open_window(guarded.url).page
    log_in(page, guarded.secrets["red"])
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto(f"{guarded.url}/sessions/plans")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert page.context.cookies() == []


def test_a_form_of_another_site_changes_nothing(guarded, open_window, tmp_path):
    """The cookie stays at home, and so would be the request without it."""
    with running(tmp_path) as other:
        window = open_window(guarded.url)
        page = window.page
        log_in(page, guarded.secrets["red"])
        expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
        page.goto(f"{other.url.replace('127.0.0.1', 'localhost')}/healthz")
        page.evaluate(
            f"""const form = document.createElement("form");
            form.method = "post"; form.action = "{guarded.url}/sessions/plans/undo";
            document.body.append(form); form.submit();"""
        )
        page.wait_for_url(f"{guarded.url}/**")
        headers = {"Authorization": f"Bearer {guarded.secrets['red']}"}
        assert guarded.get("/v1/sessions/plans", **headers).json["totals"]["undone"] == 0
        window.complaints = [each for each in window.complaints if "403" not in each and "404" not in each]
        window.requests.clear()


def test_the_way_to_begin_has_a_place_for_the_token_and_is_not_shown_to_whoever_may_only_read(tmp_path, open_window):
    path = tmp_path / "tokens"
    writer, reader = (add_token(path, name, "new", read_only=name == "reader") for name in ("writer", "reader"))
    with running(tmp_path, token_file=path) as site:
        page = open_window(site.url).page
        log_in(page, writer)
        expect(page.locator("pre")).to_contain_text(f'Client("{site.url}", token="cct_…")')
        other = open_window(site.url).page
        log_in(other, reader)
        expect(other.get_by_text("No session yet.")).to_be_visible()
        expect(other.locator("pre")).to_have_count(0)
