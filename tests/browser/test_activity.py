"""Events, jobs, failures and quality in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import demo_messages, talk
from tests.server.running import running
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A server that works on its jobs, with a session that has crossed levels."""
    with running(tmp_path_factory.mktemp("busy"), workers=1) as site:
        path = site.made("crossing", window=60_000, dialect="anthropic")
        for message in demo_messages():
            site.post(f"{path}/messages", {"messages": [message]})
            assert site.service.engine.wait_idle(PATIENCE)
        yield site


def test_jobs_and_events_are_listed_with_the_newest_first(busy, open_window):
    page = open_window(f"{busy.url}/activity").page
    jobs = page.get_by_role("table", name="Jobs")
    expect(jobs.get_by_role("row", name=re.compile("done compact (soft|aggressive) crossing"))).to_have_count(1)
    events = page.get_by_role("table", name="Events")
    for name in ("threshold.crossed", "job.queued", "session.compacted"):
        expect(events.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.get_by_text("Nothing went wrong lately.")).to_be_visible()


def test_events_of_one_type_can_be_chosen(busy, open_window):
    page = open_window(f"{busy.url}/activity").page
    page.get_by_role("combobox", name="Events").select_option("session.compacted")
    events = page.get_by_role("table", name="Events").locator("tbody tr")
    expect(events.first).to_contain_text("session.compacted")
    expect(page.get_by_role("table", name="Events")).not_to_contain_text("job.queued")
    expect(page).to_have_url(re.compile("type=session.compacted"))


def test_failures_stand_apart_and_say_why(busy, open_window):
    page = open_window(f"{busy.url}/activity").page
    expect(page.get_by_role("heading", name="Failures")).to_be_visible()
    with busy.service.store.writing("crossing"):
        busy.service.bus.emit(_failure())
    table = page.get_by_role("table", name="Failures")
    expect(table).to_contain_text("job.dropped")
    expect(table).to_contain_text("the disk is <full>")


def test_all_failures_can_be_chosen_among_the_events(busy, open_window):
    with busy.service.store.writing("crossing"):
        busy.service.bus.emit(_failure())
    page = open_window(f"{busy.url}/activity").page
    page.get_by_role("combobox", name="Events").select_option("failures")
    events = page.get_by_role("table", name="Events")
    expect(events).not_to_contain_text("session.compacted")
    assert all(each.startswith("✕ ") for each in events.locator("tbody .tag").all_inner_texts())


def test_whoever_goes_back_among_the_events_sees_only_those(busy, open_window):
    newest = busy.service.service_store.events.newest(namespace="", types=(), limit=1)[0].number
    page = open_window(f"{busy.url}/activity?before={newest}").page
    expect(page.get_by_role("table", name="Events")).to_be_visible()
    expect(page.get_by_role("heading", name="Jobs")).to_have_count(0)
    page.get_by_role("link", name="Newest").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def _failure():
    from datetime import UTC, datetime

    from context_compactor.store.events import make_event

    return make_event("job.dropped", "crossing", {"reason": "the disk is <full>"}, datetime.now(UTC))


def test_a_new_event_appears_by_itself(busy, open_window):
    page = open_window(f"{busy.url}/activity?type=item.recalled").page
    expect(page.get_by_text("No events.")).to_be_visible()
    busy.get("/v1/sessions/crossing/archive/turn_001")
    expect(page.get_by_role("table", name="Events")).to_contain_text("item.recalled")


def test_quality_is_drawn_and_told_in_numbers(busy, open_window):
    page = open_window(f"{busy.url}/quality").page
    expect(page.locator(".chart canvas")).to_have_count(3)
    expect(page.locator("#quality")).to_contain_text("Failures kept")
    (report,) = busy.get("/v1/sessions/crossing/compactions").json["compactions"]
    row = page.get_by_role("row", name="crossing")
    expect(row).to_contain_text(f"{report['tokens_before']:,} → {report['tokens_after']:,}")
    expect(row).to_contain_text(f"{report['reduction_percent']:.0f} %")


def test_quality_follows_when_another_compaction_is_made(busy, open_window):
    page = open_window(f"{busy.url}/quality").page
    rows = page.get_by_role("table").locator("tbody tr")
    before = rows.count()
    name = talk(busy, upto=60)
    busy.post(f"/v1/sessions/{name}/compact", {})
    expect(rows).to_have_count(before + 1)


def test_quality_without_any_compaction_says_so(site, open_window):
    expect(open_window(f"{site.url}/quality").page.get_by_text("Nothing was compacted yet.")).to_be_visible()
