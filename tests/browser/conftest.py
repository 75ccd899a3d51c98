"""A browser for all tests here, a window for each, and a server with a session in it.

A window fails its test when anything is written to the console as an error, when a page throws, or when a request goes
anywhere but to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from context_compactor.dialects.transcripts.reader import read_transcript
from tests.installing import program
from tests.server.running import Running, running
from tests.waiting import PATIENCE

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DEMO = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
TIMEOUT = 1_000 * PATIENCE
expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program("chromium", _NAMES), args=_ARGUMENTS)
        yield made
        made.close()


class Window:
    """A page of the browser, and what it complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(TIMEOUT)
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: (self.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))

    def _listen(self, message: ConsoleMessage) -> None:
        # A request that the next one of the same form replaces is no error, though htmx writes it down as one.
        if message.type == "error" and "AbortError" not in message.text:
            self.complaints.append(message.text)

    def elsewhere(self) -> list[str]:
        """Requests to any other server than that of the page."""
        home = self.page.url.split("/", 3)[:3]
        return [url for url in self.requests if url.split("/", 3)[:3] != home and not url.startswith("data:")]


@pytest.fixture
def open_window(browser) -> Iterator[Callable[..., Window]]:
    """Opens windows that start with nothing: no cookie, nothing kept."""
    opened: list[Window] = []

    def open_one(address: str = "", **options: Any) -> Window:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        window = Window(context.new_page())
        opened.append(window)
        if address:
            window.page.goto(address)
        return window

    yield open_one
    complaints = [complaint for window in opened for complaint in window.complaints]
    elsewhere = [url for window in opened for url in window.elsewhere()]
    for window in opened:
        window.page.context.close()
    assert not complaints
    assert not elsewhere


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Running]:
    """A server without tokens."""
    with running(tmp_path_factory.mktemp("site")) as made:
        yield made


def demo_messages() -> list[dict]:
    """A real coding session in the dialect of Anthropic."""
    return read_transcript(DEMO).messages


def talk(site: Running, name: str = "", window: int = 90_000, upto: int = 100, **more: Any) -> str:
    """The id of a new session with the beginning of the real one in it."""
    path = site.made(name, window=window, dialect="anthropic", **more)
    got = site.post(f"{path}/messages", {"messages": demo_messages()[:upto]})
    assert got.status == 200, got.raw
    return path.rpartition("/")[2]
