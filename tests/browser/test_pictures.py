"""Pictures of the dashboard, taken by the tests. With COMPACTOR_PICTURES=1 those in the docs are taken again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import DESKTOP, PHONE, demo_messages, talk
from tests.server.running import Running, running
from tests.waiting import PATIENCE

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.fixture(scope="module")
def lively(tmp_path_factory) -> Iterator[Running]:
    """A server with sessions at all levels, one of which has lived long enough to be compacted several times."""
    with running(tmp_path_factory.mktemp("lively"), workers=1) as site:
        talk(site, "docs-agent", window=200_000, upto=30, model="claude-sonnet-4")
        talk(site, "nightly-upgrade", window=90_000, upto=100)
        for name, window in (("migrate-billing", 57_000), ("triage-flaky-tests", 53_400), ("release-notes", 48_600)):
            talk(site, name, window=window, upto=62, settings={"automatic": False})
        path = site.made("fix-lint-and-review", window=60_000, dialect="anthropic")
        for message in [*demo_messages(), *demo_messages()[2:90] * 3]:
            site.post(f"{path}/messages", {"messages": [message]})
            assert site.service.engine.wait_idle(PATIENCE)
        yield site


@pytest.mark.parametrize(
    ("name", "address", "size", "scheme"),
    [
        ("sessions", "/", DESKTOP, "light"),
        ("session", "/sessions/fix-lint-and-review", {"width": 1280, "height": 960}, "light"),
        ("session-dark", "/sessions/fix-lint-and-review", {"width": 1280, "height": 960}, "dark"),
        ("phone", "/sessions/fix-lint-and-review", PHONE, "dark"),
        ("quality", "/quality", DESKTOP, "dark"),
        ("activity", "/activity", DESKTOP, "light"),
    ],
)
def test_a_page_has_its_picture_taken(lively, open_window, tmp_path, name, address, size, scheme):
    page = open_window(f"{lively.url}{address}", viewport=size, color_scheme=scheme).page
    expect(page.locator("#pulse")).to_have_text("live")
    places = page.locator("[data-chart]").count()
    expect(page.locator("[data-chart] canvas")).to_have_count(places)
    folder = IMAGES if os.environ.get("COMPACTOR_PICTURES") else tmp_path
    picture = folder / f"dashboard-{name}.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000
