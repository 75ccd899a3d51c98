"""Small drawings that need no script: a gauge, a spark line, a bar of sections. Each says in words what it shows."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.figures import percent
from context_compactor.levels import Level, LevelRule
from context_compactor.markup import Markup, element
from context_compactor.measure.usage import level_at

SIGNS: dict[Level | None, str] = {None: "○", Level.SOFT: "◔", Level.AGGRESSIVE: "◑", Level.EMERGENCY: "●"}
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
    sign = element("span", SIGNS[level], aria_hidden="true")
    return element("span", sign, f" {level_name(level)}", class_=f"badge {level_class(level)}")


def gauge(share: float, levels: Sequence[LevelRule], *, name: str = "") -> Markup:
    """How much of a budget is used, with a mark where each level begins."""
    level = level_at(share, levels)
    filled = element("rect", class_="fill", x=0, y=0, width=_at(share), height="100%")
    marks = (
        element("line", class_="tick", x1=_at(rule.threshold), x2=_at(rule.threshold), y1=0, y2="100%")
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


def _at(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def spark(points: Sequence[tuple[float, float]], name: str) -> Markup:
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


def stacked(parts: Sequence[tuple[str, int]], total: int, name: str) -> Markup:
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
