"""Numbers, times and texts as people read them, on a page or on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

_STEPS = ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h"), (float("inf"), 86_400, "d"))


def count(number: float) -> str:
    """A number with separators."""
    return f"{number:,.0f}"


def short_count(number: float) -> str:
    """A number in a few characters: `950`, `12.3k`, `1.2M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if abs(scaled) >= 100 else f"{scaled:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def percent(share: float | None) -> str:
    """A share of 1 in whole percent; what was not measured is a dash, and almost is never said to be all or nothing."""
    if share is None:
        return "–"
    if 0 < share < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= share < 1 else f"{100 * share:.0f} %"


def plural(number: int, one: str, many: str = "") -> str:
    """`1 session`, `2 sessions`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def moment(stamp: str) -> datetime | None:
    """A stored time; None when it is none."""
    try:
        found = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def ago(seconds: float) -> str:
    """A distance in one number and its unit."""
    if seconds < 0:
        return "in " + ago(-seconds).removesuffix(" ago").replace("just now", "a moment")
    if seconds < 5:
        return "just now"
    size, unit = next((size, unit) for most, size, unit in _STEPS if seconds < most)
    return f"{int(seconds // size)} {unit} ago"


def cut(text: str, most: int) -> str:
    """A text of at most so many characters, with a word about what is not shown."""
    rest = len(text) - most
    return text if rest <= 0 else f"{text[:most]}… ({rest:,} more characters)"
