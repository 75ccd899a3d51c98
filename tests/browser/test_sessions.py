"""The list of sessions in a real browser."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from context_compactor.text import short_count
from tests.browser.conftest import PHONE, talk
from tests.server.running import running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A server with forty small sessions and one that is full."""
    with running(tmp_path_factory.mktemp("crowd")) as site:
        for at in range(40):
            path = site.made(f"agent-{at:02}", window=100_000)
            site.post(f"{path}/messages", {"messages": [{"role": "user", "content": "word " * 20 * at}]})
        talk(site, "very-full", window=38_800, upto=62, settings={"automatic": False})
        yield site


def test_without_any_session_the_page_says_how_to_begin_and_the_first_one_appears_by_itself(tmp_path, open_window):
    with running(tmp_path) as site:
        page = open_window(site.url).page
        expect(page.get_by_text("No session yet.")).to_be_visible()
        site.made("first-one")
        expect(page.get_by_role("link", name="first-one")).to_be_visible()


def test_a_session_is_shown_with_its_fill_its_level_in_words_and_its_numbers(crowd, open_window):
    page = open_window(f"{crowd.url}/?q=very-full").page
    row = page.get_by_role("row", name="very-full")
    expect(row).to_contain_text("emergency")
    expect(row.get_by_role("img", name=re.compile(r"of the budget, emergency"))).to_be_visible()
    expect(row.get_by_role("cell").nth(3)).to_have_text("62")


def test_a_list_changes_by_itself_when_an_agent_goes_on(crowd, open_window):
    page = open_window(f"{crowd.url}/?q=agent-07").page
    cell = page.get_by_role("row", name="agent-07").get_by_role("cell").nth(3)
    expect(cell).to_have_text("1")
    crowd.post("/v1/sessions/agent-07/messages", {"messages": [{"role": "assistant", "content": "Done."}]})
    expect(cell).to_have_text("2")


def test_typing_in_the_filter_narrows_the_list_and_the_address_follows(crowd, open_window):
    page = open_window(crowd.url).page
    page.get_by_label("Filter").press_sequentially("agent-1")
    expect(page.get_by_role("row")).to_have_count(11)
    expect(page).to_have_url(re.compile("q=agent-1"))
    page.reload()
    expect(page.get_by_role("row")).to_have_count(11)
    page.get_by_label("Filter").fill("nothing like this")
    expect(page.get_by_text("No session fits.")).to_be_visible()


def test_levels_can_be_chosen(crowd, open_window):
    page = open_window(crowd.url).page
    page.get_by_role("combobox", name="Level").select_option("any")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("link", name="very-full")).to_be_visible()


def test_a_click_on_a_heading_sorts_and_another_turns_the_order_round(crowd, open_window):
    page = open_window(crowd.url).page
    page.get_by_role("link", name="Session", exact=True).click()
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("agent-00")
    expect(page.get_by_role("columnheader", name="Session")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("columnheader", name="Session").get_by_role("link").click()
    expect(first).to_contain_text("very-full")


def test_a_long_list_has_pages(crowd, open_window):
    page = open_window(f"{crowd.url}/?sort=name").page
    expect(page.get_by_role("row")).to_have_count(26)
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("Page 2 of 2")).to_be_visible()
    expect(page.get_by_role("row").nth(1)).to_contain_text("agent-25")


def test_a_stranger_is_told_in_a_sentence_what_the_bars_are(crowd, open_window):
    page = open_window(crowd.url).page
    expect(page.get_by_text("Each bar is the context of one agent.")).to_be_visible()


def test_bars_are_equally_long_so_that_they_can_be_compared(crowd, open_window):
    page = open_window(f"{crowd.url}/?sort=-fill").page
    places = page.locator(".sessions .gauge").evaluate_all(
        "gauges => gauges.map(each => [each.getBoundingClientRect().x, each.getBoundingClientRect().width])"
    )
    assert len(places) == 25
    assert len({tuple(each) for each in places}) == 1


def test_a_page_behind_the_last_one_is_the_last_one(crowd, open_window):
    page = open_window(f"{crowd.url}/?sort=name&page=9").page
    expect(page.get_by_text("Page 2 of 2")).to_be_visible()
    expect(page.get_by_role("link", name="very-full")).to_be_visible()


def test_a_telephone_has_a_list_of_orders_instead_of_headings(crowd, open_window):
    page = open_window(crowd.url, viewport=PHONE).page
    page.get_by_role("combobox", name="Order").select_option("-fill")
    expect(page.locator(".sessions .name").first).to_have_text("very-full")
    expect(page).to_have_url(re.compile("sort=-fill"))


def test_rows_of_a_short_list_stay_where_they_are_while_their_sessions_change(tmp_path, open_window):
    with running(tmp_path) as site:
        began = datetime.now(UTC).minute
        paths = [site.made(f"busy-{at}") for at in range(3)]
        page = open_window(site.url).page
        expect(page.get_by_role("row")).to_have_count(4)
        site.post(f"{paths[2]}/messages", {"messages": [{"role": "user", "content": "Hello"}]})
        expect(page.get_by_role("row", name="busy-2").get_by_role("cell").nth(3)).to_have_text("1")
        names = page.locator(".sessions .name").all_inner_texts()
        # They may move once a minute, which a busy machine can take for this.
        assert names == ["busy-0", "busy-1", "busy-2"] or datetime.now(UTC).minute != began


def test_what_was_saved_is_told_as_a_sum_and_nothing_is_drawn_before_the_first_compaction(crowd, open_window):
    name = talk(crowd, "thrifty", upto=80)
    saved = [
        crowd.post(f"/v1/sessions/{name}/compact", {"level": level}).json["tokens_saved"]
        for level in ("soft", "aggressive")
    ]
    page = open_window(f"{crowd.url}/?q=thrifty").page
    row = page.get_by_role("row", name="thrifty")
    expect(row).to_contain_text(f"{short_count(sum(saved))} tokens")
    expect(row.get_by_role("img", name="2 compactions so far")).to_be_visible()
    page.goto(f"{crowd.url}/?q=agent-03")
    expect(page.get_by_role("row", name="agent-03")).to_contain_text("nothing yet")
    expect(page.locator(".spark")).to_have_count(0)
