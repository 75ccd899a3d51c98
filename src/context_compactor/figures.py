"""Numbers, times and texts as people read and write them, on a page or on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from context_compactor.errors import BadSetting

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


class Goal(Struct, frozen=True):
    """What `--target` asks for: a number of tokens, or a share of those there are."""

    tokens: int | None = None
    percent: float | None = None

    def of(self, tokens: int) -> int | None:
        """The goal as tokens, for a conversation of this many."""
        return self.tokens if self.percent is None else max(1, int(tokens * self.percent / 100))


def read_goal(text: str | None) -> Goal:
    """A target as people write it: `20000`, `20k`, `25%`."""
    if text is None:
        return Goal()
    number = text.strip().lower().replace("_", "").replace(",", "")
    try:
        goal = Goal(percent=float(number[:-1])) if number.endswith("%") else Goal(tokens=_tokens(number))
    except (ValueError, OverflowError) as error:
        raise _bad_target(text) from error
    if not (goal.tokens is None or goal.tokens >= 1) or not (goal.percent is None or 0 < goal.percent <= 100):
        raise _bad_target(text)
    return goal


def _tokens(number: str) -> int:
    unit = {"k": 1_000, "m": 1_000_000}.get(number[-1:], 1)
    return int(float(number[:-1]) * unit) if unit > 1 else int(number)


def _bad_target(text: str) -> BadSetting:
    return BadSetting(f"--target: {text!r} is neither a number of tokens of at least 1 nor a percentage up to 100%")
