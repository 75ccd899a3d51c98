"""Transcripts are hostile text: whatever stands in one, no page runs it, loads it, or is bent by it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.engine.talks import bash, read, talk_in

pytestmark = pytest.mark.slow

EVIL = """<script>window.pwned = 1; alert(1)</script>
<img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>
<a href="javascript:window.pwned=4">click</a><iframe src="https://evil.example/"></iframe>
<style>body { display: none } * { background: url(https://evil.example/a.png) }</style>
<link rel="stylesheet" href="https://evil.example/b.css"><base href="https://evil.example/">
</pre></bdi></td></table></section></main><h1 id="main">owned</h1><form action="https://evil.example/"><button>Undo</button>
<hx-partial hx-target="body"><b hx-get="https://evil.example/" hx-trigger="load">x</b></hx-partial>
" onfocus="window.pwned=5" autofocus x=" ' onmouseover='window.pwned=6
{{7*7}} ${7*7} <!-- ]]> \\u003cscript\\u003e &lt;script&gt;"""
TURNED = "price \u202e000,1\u202c end \u2066iso\u2069 zero\u200bwidth \u0000nul \u001b[31mred \u0007bell \ufeffbom"
ID = "x'\"><img src=x onerror=window.pwned=7> %2e%2e \u202eabc"


@pytest.fixture(scope="module")
def hostile(site) -> str:
    """The address of a session made of hostile text, from its name to its archive."""
    talk = talk_in("openai-chat").user(f"Fix this. Never touch legacy/. {EVIL}")
    talk.step(bash("cat evil.html", f"{EVIL}\n{TURNED}"), text=EVIL)
    talk.step(read("src/<script>alert(1)</script>.py", "\n".join(f"{EVIL} {at}" for at in range(40))), text=TURNED)
    talk.step(bash("cat long.txt", "A" * 1_000_000 + EVIL), text="A line of a million letters.")
    talk.step(bash("make test", f"FAILED {EVIL}\nError: {TURNED}", failed=True), text=f"It failed: {EVIL}")
    for at in range(30):
        talk.step(read(f"src/part_{at}.py", f"def part_{at}(): pass\n" * 60), text=f"Part {at}. {EVIL}")
    messages = talk.answer(f"Done. {EVIL}").user("Go on.").messages
    got = site.post("/v1/sessions", {"id": ID, "window": 90_000, "model": "<b onclick=alert(1)>model</b>"})
    assert got.status == 201, got.raw
    path = f"/v1/sessions/{quote(ID, safe='')}"
    for at in range(0, len(messages), 10):
        assert site.post(f"{path}/messages", {"messages": messages[at : at + 10]}).status == 200
    for body in ({"focus": EVIL[:500]}, {"level": "emergency"}):
        assert site.post(f"{path}/compact", body).status == 200
    return f"/sessions/{quote(ID, safe='')}"


def pages(site, hostile) -> list[str]:
    """Every address that shows something of the session."""
    reports = site.get(f"/v1{hostile}/compactions").json["compactions"]
    originals = site.get(f"/v1{hostile}/archive").json["originals"]
    return [
        "/",
        f"/?q={quote(EVIL[:60])}",
        *(
            f"{hostile}{tab}"
            for tab in ("", "/plan", "/facts", "/archive", f"/archive?q={quote('script alert pwned')}")
        ),
        *(f"{hostile}/compactions/{report['compaction_id']}" for report in reports),
        *(f"{hostile}/compactions/{report['compaction_id']}/changes" for report in reports),
        *(f"{hostile}/archive/{original['id']}" for original in originals[:12]),
        "/activity",
        "/quality",
    ]


def test_nothing_in_a_transcript_runs_or_is_loaded_on_any_page(site, hostile, open_window):
    window = open_window()
    for address in pages(site, hostile):
        window.page.goto(f"{site.url}{address}")
        if address.endswith("/plan"):
            expect(window.page.locator("#plan .numbers")).to_be_visible()
        assert window.page.evaluate("window.pwned") is None, address
        assert window.page.locator("main").count() == 1, address
        assert window.page.locator("#main iframe, #main style, #main link, #main script, #main img, base").count() == 0
        assert window.page.locator("#main [onclick], #main [onerror], #main [onload], #main [onfocus]").count() == 0
        assert window.page.locator('[href^="javascript:"]').count() == 0
        assert window.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


def test_a_hostile_text_is_shown_as_the_text_it_is(site, hostile, open_window):
    page = open_window(f"{site.url}{hostile}/archive/tool_001").page
    shown = page.locator("pre.original").text_content()
    assert "<script>window.pwned = 1; alert(1)</script>" in shown
    assert '<hx-partial hx-target="body">' in shown


def test_what_turns_or_hides_text_can_be_seen(site, hostile, open_window):
    page = open_window(f"{site.url}{hostile}/archive/tool_001").page
    shown = page.locator("pre.original").text_content()
    for char, mark in (("\u202e", "⟨U+202E⟩"), ("\u200b", "⟨U+200B⟩"), ("\x00", "␀"), ("\x1b", "␛"), ("\x07", "␇")):
        assert mark in shown
        assert char not in shown


def test_an_id_that_is_markup_leads_to_its_own_session(site, hostile, open_window):
    page = open_window(f"{site.url}/?q={quote('onerror')}").page
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x onerror=window.pwned=7>")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#answer")).to_contain_text("Taken back")


def test_a_line_of_a_million_letters_is_shown_in_pages(site, hostile, open_window):
    page = open_window(f"{site.url}{hostile}/archive/tool_003").page
    assert len(page.locator("pre.original").text_content()) <= 8_000
    expect(page.get_by_text("Page 1 of 12")).to_be_visible()
    assert len(page.content()) < 60_000


def test_what_a_visitor_types_is_shown_as_text_too(site, hostile, open_window):
    page = open_window(f"{site.url}{hostile}/archive?q={quote(EVIL[:400])}").page
    expect(page.get_by_label("Search the archive")).to_have_value(EVIL[:400].replace("\n", ""))
    assert page.evaluate("window.pwned") is None
