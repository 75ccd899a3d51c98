"""Plots as inline SVG. Colours come from the page's style, so they follow light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.markup import Markup, element

WIDTH, HEIGHT = 340, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 10, 30
_BAR, _LABEL, _LETTER = 24, 138, 6.6
_MARKS = (
    "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0",
    "M-3,-3h6v6h-6z",
    "M0,-4l4,7h-8z",
    "M0,-4.2l4.2,4.2l-4.2,4.2l-4.2,-4.2z",
)


class Series(Struct, frozen=True):
    """One line of a plot: its colour's number, and y (0 to 100) by x where there is one."""

    name: str
    colour: int
    points: tuple[tuple[float, float], ...]


class PlotBar(Struct, frozen=True):
    """One bar: its name, its length, what is written at its end, its colour; `rest` is a paler bar behind it."""

    name: str
    value: float
    text: str
    colour: int = 0
    rest: float = 0.0


def line_plot(title: str, series: Sequence[Series], xs: Sequence[float]) -> Markup:
    """Lines over budgets from 0 to 100 percent; the first series is drawn last, on top."""
    drawn = [_line(item, xs) for item in reversed(series)]
    return _picture(title, HEIGHT, *_grid(xs), *drawn)


def mark(colour: int, x: float = 0, y: float = 0, title: str = "") -> Markup:
    """The mark of a series, also for a legend."""
    shape = _MARKS[colour % len(_MARKS)]
    said = [element("title", title)] if title else []
    return element("path", *said, d=shape, transform=f"translate({x:.1f},{y:.1f})", class_=f"mark m{colour}")


def bar_plot(title: str, bars: Sequence[PlotBar], most: float, line_at: float | None = None) -> Markup:
    """Horizontal bars; `line_at` draws a line to compare with."""
    height = len(bars) * _BAR + 8
    room = 14 + _LETTER * max((len(bar.text) for bar in bars), default=0)
    scale = (WIDTH - _LABEL - room) / (most or 1)
    parts = [part for index, bar in enumerate(bars) for part in _bar(bar, 4 + index * _BAR, scale)]
    if line_at is not None:
        x = f"{_LABEL + line_at * scale:.1f}"
        parts.append(element("line", x1=x, x2=x, y1=2, y2=height - 2, class_="goal"))
    return _picture(title, height, *parts)


def _picture(title: str, height: float, *parts: Markup) -> Markup:
    return element("svg", element("title", title), *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img")


def _x(value: float, xs: Sequence[float]) -> float:
    """Budgets stand at equal distances: the small ones are where methods differ."""
    room = WIDTH - _LEFT - _RIGHT - 24
    return _LEFT + 12 + (room * xs.index(value) / (len(xs) - 1) if len(xs) > 1 else room / 2)


def _y(value: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / 100)


def _grid(xs: Sequence[float]) -> Iterator[Markup]:
    for value in (0, 25, 50, 75, 100):
        y = f"{_y(value):.1f}"
        yield element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid")
        yield element("text", str(value), x=_LEFT - 6, y=f"{_y(value) + 4:.1f}", class_="end")
    for x in xs:
        yield element("text", f"{x:g} %", x=f"{_x(x, xs):.1f}", y=HEIGHT - 10, class_="middle")


def _line(series: Series, xs: Sequence[float]) -> Markup:
    places = [(_x(x, xs), _y(y), x, y) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in places)
    marks = (mark(series.colour, x, y, f"{series.name} at {at:g} %: {value:.1f}") for x, y, at, value in places)
    return element("g", element("polyline", points=path, class_=f"line m{series.colour}"), *marks)


def _bar(bar: PlotBar, top: float, scale: float) -> Iterator[Markup]:
    long = max(bar.value, 0) * scale
    yield element("text", bar.name, x=_LABEL - 8, y=f"{top + 14:.1f}", class_="end")
    if bar.rest:
        yield _box(bar.rest * scale, top, "rest", "")
    yield _box(long, top, f"fill m{bar.colour}", f"{bar.name}: {bar.text}")
    yield element("text", bar.text, x=f"{_LABEL + max(long, bar.rest * scale) + 6:.1f}", y=f"{top + 14:.1f}")


def _box(long: float, top: float, kind: str, title: str) -> Markup:
    said = [element("title", title)] if title else []
    width = f"{max(long, 1):.1f}"
    return element("rect", *said, x=_LABEL, y=f"{top + 2:.1f}", rx=2, width=width, height=_BAR - 8, class_=kind)
