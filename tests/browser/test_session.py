"""One session in a real browser: what it shows, and what the buttons do."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import demo_messages, talk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compacted(site) -> str:
    """The id of a session that was compacted twice, the second time with a level."""
    name = talk(site, "compacted", upto=80)
    for body in ({"focus": "the shadow branch"}, {"level": "aggressive"}):
        assert site.post(f"/v1/sessions/{name}/compact", body).json["compacted"]
        site.post(f"/v1/sessions/{name}/messages", {"messages": demo_messages()[80:100]})
    return name


def test_a_session_shows_its_fill_its_sections_and_its_course(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    expect(page.get_by_role("heading", name="compacted", level=1)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("The context by section:.*tool results"))).to_be_visible()
    expect(page.locator(".chart canvas")).to_be_visible()
    expect(page.locator(".reading")).to_contain_text("2 compactions")


def test_the_chart_says_what_is_under_the_pointer(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    page.locator(".chart .u-over").hover(position={"x": 300, "y": 90})
    expect(page.locator(".reading")).to_contain_text(re.compile(r"message \d+ · [\d,]+ tokens"))


def test_the_numbers_and_the_chart_change_by_themselves(site, open_window):
    name = talk(site, upto=20)
    page = open_window(f"{site.url}/sessions/{name}").page
    expect(page.locator("#now")).to_contain_text("20")
    site.post(f"/v1/sessions/{name}/messages", {"messages": [{"role": "user", "content": "One more."}]})
    expect(page.locator("#now dd").nth(2)).to_have_text("21")
    site.post(f"/v1/sessions/{name}/compact", {})
    expect(page.locator(".reading")).to_contain_text("1 compaction")
    expect(page.get_by_role("row")).to_have_count(2)


def test_a_preview_with_focus_changes_nothing_and_compact_now_compacts(site, open_window):
    name = talk(site, upto=80)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("button", name="Compact now").click()
    dialog = page.get_by_role("dialog", name="Compact now")
    dialog.get_by_label("Focus").fill("the shadow branch")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("Preview: nothing was changed")
    expect(dialog.get_by_role("table")).to_contain_text("reasoning of a step that is over")
    assert site.get(f"/v1/sessions/{name}/compactions").json["compactions"] == []
    dialog.get_by_role("button", name="Compact now").click()
    expect(dialog).to_contain_text("Conversation compacted:")
    (report,) = site.get(f"/v1/sessions/{name}/compactions").json["compactions"]
    dialog.get_by_role("link", name="Report").click()
    expect(page.get_by_role("heading", name=report["compaction_id"])).to_be_visible()


def test_a_level_and_the_turns_to_keep_can_be_asked_for(site, open_window):
    name = talk(site, upto=80)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("button", name="Compact now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Level").select_option("emergency")
    dialog.get_by_label("Turns to keep").fill("2")
    dialog.get_by_role("button", name="Compact now").click()
    expect(dialog).to_contain_text("Conversation compacted:")
    assert site.get(f"/v1/sessions/{name}/compactions").json["compactions"][0]["level"] == "emergency"


def test_what_cannot_be_is_told_in_the_dialog(site, open_window):
    name = talk(site, upto=2)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("button", name="Compact now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Compact now").click()
    expect(dialog).to_contain_text("Nothing was compacted")


def test_a_compaction_is_undone_and_redone_with_a_button(site, open_window):
    name = talk(site, upto=80)
    site.post(f"/v1/sessions/{name}/compact", {})
    page = open_window(f"{site.url}/sessions/{name}").page
    expect(page.get_by_role("button", name="Redo")).to_be_disabled()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#answer")).to_contain_text("Taken back")
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()
    expect(page.get_by_role("row").nth(1)).to_contain_text("undone")
    page.get_by_role("button", name="Redo").click()
    expect(page.locator("#answer")).to_contain_text("Counts again")
    assert site.get(f"/v1/sessions/{name}").json["totals"]["undone"] == 0


def test_a_report_shows_every_target_with_tier_and_reason(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.locator("#tab")).to_contain_text("manual aggressive")
    table = page.get_by_role("table", name="Targets by tier")
    for tier in ("keep", "summarize", "reference"):
        expect(table.get_by_text(tier, exact=True).first).to_be_visible()


@pytest.mark.parametrize("row", [1, 2])
def test_the_context_before_and_after_a_compaction_stands_side_by_side(site, compacted, open_window, row):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    page.get_by_role("row").nth(row).get_by_role("link").click()
    page.get_by_role("link", name="Before and after").click()
    expect(page.locator(".is-removed, .is-changed").first).to_be_visible()
    expect(page.locator(".is-added, .is-changed").first).to_contain_text("Context record")


def test_what_went_stands_beside_what_came_in_its_place(site, open_window):
    name = talk(site, upto=80)
    report = site.post(f"/v1/sessions/{name}/compact", {}).json["report"]
    page = open_window(f"{site.url}/sessions/{name}/compactions/{report['compaction_id']}/changes").page
    went, came = page.locator(".went").first, page.locator(".came .is-added").first
    assert went.bounding_box()["y"] == pytest.approx(came.bounding_box()["y"], abs=2)
    (record,) = [
        message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
        for message in site.get(f"/v1/sessions/{name}/context").json["messages"]
        if "[Context record." in str(message["content"])
    ]
    assert came.locator("pre").inner_text().split()[:1_000] == record.split()[:1_000]
    expect(went.locator(".is-removed").last).to_be_hidden()
    went.get_by_text("more messages").click()
    expect(went.locator(".is-removed").last).to_be_visible()


def test_only_the_first_page_of_a_session_tells_everything_above_its_tabs(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    expect(page.get_by_text("What the context is made of")).to_be_visible()
    page.get_by_role("link", name="Archive").click()
    expect(page.locator("#now")).to_contain_text("Saved so far")
    with page.expect_response(lambda answer: "/now" in answer.url):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('told'))")
    expect(page.get_by_text("What the context is made of")).to_have_count(0)


def test_the_page_of_a_session_speaks_of_no_other_session(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    expect(page.locator("#pulse")).to_have_text("live")
    other, own = talk(site, upto=60), compacted
    site.post(f"/v1/sessions/{other}/compact", {})
    site.post(f"/v1/sessions/{own}/compact", {"level": "emergency"})
    expect(page.locator("#said")).to_contain_text(f"{own}: compacted")
    site.post(f"/v1/sessions/{other}/compact", {"level": "emergency"})
    expect(page.locator("#said")).not_to_contain_text(other)


def test_the_plan_shows_what_would_be_done_at_each_level(site, open_window):
    name = talk(site, upto=80)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("link", name="Plan").click()
    expect(page.get_by_role("table")).to_contain_text("one of the last turns")
    before = page.locator("#plan .from-to").inner_text()
    page.get_by_label("If compacted now at").select_option("emergency")
    page.get_by_role("button", name="Plan").click()
    expect(page.locator("#plan .from-to")).not_to_have_text(before)
    assert site.get(f"/v1/sessions/{name}/compactions").json["compactions"] == []


def test_the_archive_is_searched_and_an_original_is_recalled_page_by_page(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}").page
    page.get_by_role("link", name="Archive").click()
    page.get_by_label("Search the archive").fill("accumulateTokenUsage")
    page.get_by_role("button", name="Search").click()
    hit = page.get_by_role("article").first
    expect(hit).to_contain_text("accumulateTokenUsage")
    expect(page).to_have_url(re.compile("q=accumulateTokenUsage"))
    ref = hit.get_by_role("link").inner_text()
    hit.get_by_role("link").click()
    expect(page.get_by_role("heading", name=ref)).to_be_visible()
    pages = [page.locator("pre.original").text_content()]
    while page.get_by_role("link", name="Next").count():
        page.get_by_role("link", name="Next").click()
        expect(page.get_by_text(f"Page {len(pages) + 1} of")).to_be_visible()
        pages.append(page.locator("pre.original").text_content())
    assert "".join(pages) == site.get(f"/v1/sessions/{compacted}/archive/{ref}").json["text"]


def test_an_original_is_put_back_into_the_context(site, open_window):
    name = talk(site, upto=80)
    site.post(f"/v1/sessions/{name}/compact", {})
    page = open_window(f"{site.url}/sessions/{name}/archive").page
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.get_by_role("button", name="Put back into the context").click()
    expect(page.locator("#answer")).to_contain_text("stands in the context again")


def test_facts_are_listed_by_kind(site, compacted, open_window):
    page = open_window(f"{site.url}/sessions/{compacted}/facts").page
    page.get_by_role("link", name=re.compile("^failure")).click()
    expect(page).to_have_url(re.compile("kind=failure"))
    kinds = page.get_by_role("row").locator("td:first-child")
    assert set(kinds.all_inner_texts()) == {"failure"}


def test_a_session_that_is_not_there_is_told_in_words(site, open_window):
    window = open_window()
    response = window.page.goto(f"{site.url}/sessions/no%20such%2Fthing")
    assert response.status == 404
    window.page.goto(f"{site.url}/sessions/nobody")
    expect(window.page.get_by_role("alert").filter(has_text="No such session")).to_be_visible()
    window.page.get_by_role("link", name="← Sessions").click()
    expect(window.page.get_by_role("heading", name="Sessions")).to_be_visible()
    window.complaints = [each for each in window.complaints if "404" not in each]


def test_nothing_yet_is_told_on_every_page_of_a_new_session(site, open_window):
    page = open_window().page
    path = site.made("brand-new")
    for tab, words in (
        ("", "Nothing was compacted yet."),
        ("/archive", "The archive is empty."),
        ("/facts", "No facts yet."),
    ):
        page.goto(f"{site.url}{path.removeprefix('/v1')}{tab}")
        expect(page.get_by_text(words)).to_be_visible()
    page.goto(f"{site.url}/sessions/brand-new/plan")
    expect(page.get_by_text("Nothing would change.")).to_be_visible()


def test_a_session_is_deleted_after_a_question_that_names_it_and_says_what_goes(site, open_window):
    name, other = talk(site, "doomed", upto=20), talk(site, "other", upto=20)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete doomed?")
    expect(dialog).to_contain_text("Its 20 messages, everything archived, its facts, compactions and events go")
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_be_hidden()
    assert site.get("/v1/sessions/doomed").status == 200
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page).to_have_url(f"{site.url}/")
    expect(page.get_by_role("link", name=other)).to_be_visible()
    expect(page.get_by_role("link", name=name)).to_have_count(0)
    assert site.get("/v1/sessions/doomed").status == 404


def test_a_page_of_a_session_that_somebody_else_deletes_goes_back_to_the_others(site, open_window):
    name = talk(site, upto=20)
    page = open_window(f"{site.url}/sessions/{name}").page
    expect(page.locator("#pulse")).to_have_text("live")
    assert site.call("DELETE", f"/v1/sessions/{name}").status == 204
    expect(page).to_have_url(f"{site.url}/")
