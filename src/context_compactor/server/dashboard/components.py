"""The parts of pages: times and paths, cards, tables, pagers, gauges and spark lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from context_compactor.markup import Markup, element
from context_compactor.settings import Level, LevelRule
from context_compactor.text import ago, parse_time, percent, truncated_text
from context_compactor.tokens.budget import level_at


def time_ago(stamp: str, now: datetime) -> Markup:
    """A time as its distance from now, with the time itself behind it."""
    at = parse_time(stamp)
    if at is None:
        return element("span", "–", class_="faint")
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return element("time", ago((now - at).total_seconds()), datetime=stamp, title=exact)


def page_path(*parts: str, **query: object) -> str:
    """An address of this server; each part may hold anything."""
    place = "/" + "/".join(quote(part, safe="", errors="replace") for part in parts)
    asked = "&".join(
        f"{name}={quote(str(value), safe='', errors='replace')}"
        for name, value in query.items()
        if value not in ("", None)
    )
    return f"{place}?{asked}" if asked else place


MAX_TEXT = 2_000
"""Characters of a conversation that stand in one place of a list; the rest is behind a recall."""


def card(title: str, *content: str, id: str | None = None, more: str = "", **attributes: object) -> Markup:  # noqa: A002
    """A part of a page under a heading; `more` stands beside the heading."""
    heading = element("div", element("h2", title), more, class_="head")
    return element("section", heading, *content, class_="card", id=id, **attributes)


def data_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], class_: str = "") -> Markup:
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


def number_list(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Numbers, each under its name."""
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in pairs), class_="numbers"
    )


def bounded_text(words: str, most: int = MAX_TEXT) -> Markup:
    """Words of a conversation: bounded, and apart from what stands around them whatever their direction."""
    return element("bdi", truncated_text(words, most))


def empty_state(title: str, *words: str) -> Markup:
    """What to say when there is nothing, and what to do about it."""
    return element("div", element("p", title, class_="title"), *(element("p", each) for each in words), class_="empty")


def pager(place: Sequence[str], page: int, pages: int, **query: object) -> Markup:
    """The way to the next and the previous page of a list."""
    if pages <= 1:
        return Markup()

    def step(name: str, to: int) -> Markup:
        if not 1 <= to <= pages:
            return element("span", name, class_="off", aria_hidden="true")
        return element("a", name, href=page_path(*place, **query, page=to if to > 1 else None))

    return element(
        "nav",
        step("← Previous", page - 1),
        element("span", f"Page {page:,} of {pages:,}"),
        step("Next →", page + 1),
        class_="pager",
        aria_label="Pages of the list",
    )


def problem_box(title: str, detail: str) -> Markup:
    """What went wrong, and what to try."""
    return element("div", element("strong", title), element("p", bounded_text(detail)), class_="problem", role="alert")


def select_field(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    """A list to choose from."""
    every = (element("option", words, value=value, selected=value == chosen) for value, words in options)
    return element("label", element("span", label), element("select", *every, name=name))


def live_attributes(part: str, place: str) -> dict[str, object]:
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


LEVEL_SIGNS: dict[Level | None, str] = {None: "○", Level.SOFT: "◔", Level.AGGRESSIVE: "◑", Level.EMERGENCY: "●"}
_NO_LEVEL = "below soft"
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 22


def level_name(level: Level | None) -> str:
    """A level in words; there is always one."""
    return level.value if level else _NO_LEVEL


def level_class(level: Level | None) -> str:
    """The class that colours what is at a level."""
    return f"at-{level.value if level else 'ease'}"


def badge(level: Level | None) -> Markup:
    """A level as a sign and a word; the colour only repeats them."""
    sign = element("span", LEVEL_SIGNS[level], aria_hidden="true")
    return element("span", sign, f" {level_name(level)}", class_=f"badge {level_class(level)}")


def gauge_bar(share: float, levels: Sequence[LevelRule], *, name: str = "") -> Markup:
    """How much of a budget is used, with a mark where each level begins."""
    level = level_at(share, levels)
    filled = element("rect", class_="fill", x=0, y=0, width=_percent_position(share), height="100%")
    marks = (
        element(
            "line",
            class_="tick",
            x1=_percent_position(rule.threshold),
            x2=_percent_position(rule.threshold),
            y1=0,
            y2="100%",
        )
        for rule in levels
    )
    return element(
        "svg",
        element("rect", class_="rail", x=0, y=0, width="100%", height="100%"),
        filled,
        *marks,
        class_=f"gauge {level_class(level)}",
        role="img",
        aria_label=f"{name}{percent(share)} of the budget, {level_name(level)}",
    )


def _percent_position(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def sparkline(points: Sequence[tuple[float, float]], name: str) -> Markup:
    """A line without axes: how something went, as far as a glance can tell."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return element("svg", class_="spark", width=_SPARK_WIDTH, height=_SPARK_HEIGHT, aria_hidden="true")
    first, last = points[0][0], points[-1][0]
    most = max((y for _, y in points), default=0) or 1
    placed = " ".join(
        f"{1 + (x - first) / (last - first) * (_SPARK_WIDTH - 2):.1f},"
        f"{_SPARK_HEIGHT - 2 - y / most * (_SPARK_HEIGHT - 4):.1f}"
        for x, y in points
    )
    ends = f"{_SPARK_WIDTH - 1},{_SPARK_HEIGHT} 1,{_SPARK_HEIGHT}"
    return element(
        "svg",
        element("polygon", points=f"{placed} {ends}", class_="under"),
        element("polyline", points=placed, class_="line", fill="none"),
        class_="spark",
        width=_SPARK_WIDTH,
        height=_SPARK_HEIGHT,
        viewBox=f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}",
        role="img",
        aria_label=name,
    )


def stacked_bar(parts: Sequence[tuple[str, int]], total: int, name: str) -> Markup:
    """Parts of a whole, side by side; what is left of the whole stays empty."""
    rects: list[Markup] = []
    at = 0.0
    for part, size in parts:
        width = 100 * size / max(total, 1)
        title = element("title", f"{part.replace('_', ' ')}: {size:,}")
        rects.append(
            element("rect", title, class_=f"part-{part}", x=f"{at:.3f}%", y=0, width=f"{width:.3f}%", height="100%")
        )
        at += width
    rail = element("rect", class_="rail", x=0, y=0, width="100%", height="100%")
    return element("svg", rail, *rects, class_="stacked", role="img", aria_label=name)


def swatch(part: str) -> Markup:
    """The colour of a part, beside its name."""
    box = element("rect", class_=f"part-{part}", width="100%", height="100%")
    return element("svg", box, class_="swatch", aria_hidden="true")
