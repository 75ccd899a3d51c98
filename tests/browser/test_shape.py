"""Small and large screens, light and dark, the keyboard, and a server that goes away."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import DESKTOP, PHONE, talk
from tests.server.running import running

pytestmark = pytest.mark.slow

TABS = ("", "/plan", "/archive", "/archive/file_003", "/facts")


@pytest.fixture(scope="module")
def shown(site) -> list[str]:
    """The addresses of all pages, of a session with something in each of them."""
    name = talk(site, "shown", upto=80)
    report = site.post(f"/v1/sessions/{name}/compact", {}).json["report"]
    own = [f"/sessions/{name}{tab}" for tab in TABS]
    made = f"/sessions/{name}/compactions/{report['compaction_id']}"
    return ["/", *own, made, f"{made}/changes", "/activity", "/quality", "/proxy"]


@pytest.mark.parametrize("size", [PHONE, DESKTOP, {"width": 1920, "height": 1080}])
def test_every_page_fits_the_screen(site, shown, open_window, size):
    page = open_window(viewport=size).page
    for address in shown:
        page.goto(f"{site.url}{address}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], (address, scheme)


def test_the_dark_is_dark_and_the_text_can_be_read_in_both(site, shown, open_window):
    lights = []
    for scheme in ("light", "dark"):
        page = open_window(f"{site.url}/sessions/shown", color_scheme=scheme).page
        lights.append(page.evaluate(_LIGHT, "body"))
        for selector in (".numbers dt", ".badge", ".faint", "h1", "button.quiet", ".grid th", ".ref"):
            assert page.evaluate(_CONTRAST, selector) >= 4.5, (scheme, selector)
    assert lights[0] > 0.8
    assert lights[1] < 0.05


_SHARED = """
const light = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (!/, 0\\)$/.test(colour) && colour !== "transparent") return colour;
  }
  return "rgb(255, 255, 255)";
};"""
_LIGHT = f"(selector) => {{ {_SHARED} return light(ground(document.querySelector(selector))); }}"
_CONTRAST = f"""(selector) => {{ {_SHARED}
  const element = document.querySelector(selector);
  const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}}"""


def test_everything_can_be_done_with_the_keyboard_alone(site, open_window):
    name = talk(site, "by-keyboard", upto=60)
    page = open_window(f"{site.url}/").page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.type("by-keyboard")
    link = page.get_by_role("link", name="by-keyboard")
    expect(page.get_by_role("row")).to_have_count(2)
    _tab_to(page, link)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    _tab_to(page, page.get_by_role("button", name="Compact now"))
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    _tab_to(page, dialog.get_by_label("Focus"))
    page.keyboard.type("tests")
    _tab_to(page, dialog.get_by_role("button", name="Compact now"))
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("Conversation compacted:")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    _tab_to(page, page.get_by_role("button", name="Undo"))
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("Taken back")


def _tab_to(page, wanted) -> None:
    for _ in range(60):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the keyboard does not lead to {wanted}")


def test_a_field_that_is_being_typed_in_keeps_its_text_and_focus_while_the_page_changes(site, open_window):
    name = talk(site, upto=20)
    page = open_window(f"{site.url}/sessions/{name}").page
    page.get_by_role("button", name="Compact now").click()
    page.get_by_label("Focus").fill("half a thou")
    site.post(f"/v1/sessions/{name}/messages", {"messages": [{"role": "user", "content": "More."}]})
    expect(page.locator("#now dd").nth(2)).to_have_text("21")
    expect(page.get_by_label("Focus")).to_have_value("half a thou")
    expect(page.get_by_label("Focus")).to_be_focused()


def test_changes_are_told_to_those_who_cannot_see_them(site, open_window):
    name = talk(site, "spoken", upto=60)
    page = open_window(f"{site.url}/").page
    expect(page.locator("#pulse")).to_have_text("live")
    site.post(f"/v1/sessions/{name}/compact", {})
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"spoken: compacted, [\d,]+ → [\d,]+ tokens"))


def test_nothing_on_a_page_moves_while_it_is_loaded(site, shown, open_window):
    page = open_window(f"{site.url}/sessions/shown").page
    expect(page.locator(".chart canvas")).to_be_visible()
    shift = """() => new Promise(done => new PerformanceObserver(list =>
      done(list.getEntries().reduce((sum, one) => sum + one.value, 0))).observe({type: "layout-shift", buffered: true})
      || setTimeout(() => done(0), 500))"""
    assert page.evaluate(shift) < 0.02


def test_who_wants_no_motion_gets_none(site, shown, open_window):
    page = open_window(f"{site.url}/", reduced_motion="reduce").page
    names = "[...document.querySelectorAll('*')].map(each => getComputedStyle(each).animationName)"
    assert set(page.evaluate(names)) == {"none"}


def test_what_can_be_pressed_on_a_telephone_is_large_enough_for_a_finger(site, shown, open_window):
    page = open_window(viewport=PHONE).page
    for address in shown:
        page.goto(f"{site.url}{address}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate(_TOO_SMALL) == [], address


_TOO_SMALL = """() => [...document.querySelectorAll("a:not(.skip), button, input:not([type=hidden]), select, summary")]
  .filter(each => each.offsetParent && each.getBoundingClientRect().height < 24).map(each => each.outerHTML)"""


def test_a_button_that_nobody_answers_says_so_where_it_was_pressed(tmp_path, open_window):
    window = open_window()
    page = window.page
    with running(tmp_path) as site:
        talk(site, "alone", upto=10)
        page.goto(f"{site.url}/sessions/alone")
        page.get_by_role("button", name="Compact now").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    expect(page.locator("#outcome")).to_contain_text("The server did not answer")
    expect(page.get_by_role("dialog").get_by_role("button", name="Preview")).to_be_enabled()
    window.complaints = []


def test_times_are_told_by_the_clock_of_whoever_looks(site, shown, open_window):
    page = open_window(f"{site.url}/sessions/shown", timezone_id="Asia/Kathmandu").page
    moment = page.locator("#now time")
    moment.hover()
    expect(moment).to_have_attribute("title", re.compile(r"GMT\+5:45$"))


def test_a_server_that_goes_away_is_told_and_the_page_goes_on_when_it_is_back(tmp_path, open_window):
    window = open_window()
    page = window.page
    with running(tmp_path) as site:
        talk(site, "patient", upto=10)
        page.goto(f"{site.url}/?q=patient")
        expect(page.locator("#pulse")).to_have_text("live")
        port = site.port
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    expect(page.get_by_role("link", name="patient")).to_be_visible()
    with running(tmp_path, port=port) as again:
        expect(page.get_by_text("The server does not answer.")).to_be_hidden()
        again.post("/v1/sessions/patient/messages", {"messages": [{"role": "user", "content": "Back?"}]})
        expect(page.get_by_role("row", name="patient").get_by_role("cell").nth(3)).to_have_text("11")
    window.complaints = [
        each for each in window.complaints if not re.search("ERR_CONNECTION|Failed to fetch|ERR_INC", each)
    ]
