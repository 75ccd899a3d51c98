"""What pages are made of: cards, tables, numbers under names, pages of a list, and the words when there is nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.figures import cut
from context_compactor.markup import Markup, element
from context_compactor.server.dashboard.words import path

MOST_TEXT = 2_000
"""Characters of a conversation that stand in one place of a list; the rest is behind a recall."""


def card(title: str, *content: str, id: str | None = None, more: str = "", **attributes: object) -> Markup:  # noqa: A002
    """A part of a page under a heading; `more` stands beside the heading."""
    heading = element("div", element("h2", title), more, class_="head")
    return element("section", heading, *content, class_="card", id=id, **attributes)


def grid(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], class_: str = "") -> Markup:
    """A table. On a narrow screen each row becomes a small card, in which every cell is named."""
    names = [element("th", name, scope="col") for name in head]
    lines = (
        element("tr", *(element("td", cell, data_name=name or None) for name, cell in zip(head, row, strict=True)))
        for row in rows
    )
    return element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", *names)),
        element("tbody", *lines),
        class_=f"grid {class_}".strip(),
    )


def numbers(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Numbers, each under its name."""
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs), class_="numbers"
    )


def text(words: str, most: int = MOST_TEXT) -> Markup:
    """Words of a conversation: bounded, and apart from what stands around them whatever their direction."""
    return element("bdi", cut(words, most))


def empty(title: str, *words: str) -> Markup:
    """What to say when there is nothing, and what to do about it."""
    return element("div", element("p", title, class_="title"), *(element("p", each) for each in words), class_="empty")


def pager(place: Sequence[str], page: int, pages: int, **query: object) -> Markup:
    """The way to the next and the previous page of a list."""
    if pages <= 1:
        return Markup()

    def step(name: str, to: int) -> Markup:
        if not 1 <= to <= pages:
            return element("span", name, class_="off", aria_hidden="true")
        return element("a", name, href=path(*place, **query, page=to if to > 1 else None))

    return element(
        "nav",
        step("← Previous", page - 1),
        element("span", f"Page {page:,} of {pages:,}"),
        step("Next →", page + 1),
        class_="pager",
        aria_label="Pages of the list",
    )


def problem(title: str, detail: str) -> Markup:
    """What went wrong, and what to try."""
    return element("div", element("strong", title), element("p", text(detail)), class_="problem", role="alert")


def choice(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    """A list to choose from."""
    every = (element("option", words, value=value, selected=value == chosen) for value, words in options)
    return element("label", element("span", label), element("select", *every, name=name))


def live(part: str, place: str) -> dict[str, object]:
    """What makes an element with this id look again when something has happened. An error leaves it as it is."""
    return {
        "id": part,
        "hx_get": place,
        "hx_trigger": "told from:body",
        "hx_target": "this",
        "hx_swap": "outerMorph",
        "hx_status:4xx": "swap:none",
        "hx_status:5xx": "swap:none",
    }
