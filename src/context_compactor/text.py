"""Text for people: cut at readable places, printable on a terminal, with numbers, times and targets as people write
them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from unicodedata import category

from msgspec import Struct

from context_compactor.errors import BadSetting

_JOINER = "\u200d"
_MOST_STEPS = 64


def beginning(text: str, most: int) -> str:
    """At most so many characters from the start of a text."""
    if len(text) <= most:
        return text
    cut = text[: max(most, 0)]
    at = cut.rfind("\n") if cut.rfind("\n") > most // 2 else cut.rfind(" ")
    return cut[:at] if at > 0 else cut[: _whole(text, len(cut), -1)]


def ending(text: str, most: int) -> str:
    """At most so many characters from the end of a text."""
    if len(text) <= most:
        return text
    start = len(text) - max(most, 0)
    line, word = text.find("\n", start), text.find(" ", start)
    at = line if -1 < line < len(text) - 1 - most // 2 else word
    return text[at + 1 :] if -1 < at < len(text) - 1 else text[_whole(text, start, 1) :]


def cut_middle(text: str, most: int, head_share: float) -> tuple[str, str, str]:
    """The beginning of a text, what is left out, and its end; both ends together have at most so many characters."""
    head = beginning(text, int(most * head_share))
    tail = ending(text, most - len(head))
    return head, text[len(head) : len(text) - len(tail)], tail


def _whole(text: str, at: int, step: int) -> int:
    """The nearest place from `at` on, backwards or forwards, where a text may be cut."""
    for _ in range(_MOST_STEPS):
        if not 0 < at < len(text) or not _is_joined(text, at):
            break
        at += step
    return at


def _is_joined(text: str, at: int) -> bool:
    """Whether the characters around a place are parts of one."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return False
    if _JOINER in (before, after) or category(after).startswith("M") or _is_addition(after):
        return True
    if _is_flag_letter(before) and _is_flag_letter(after):
        return _flag_letters_before(text, at) % 2 == 1
    return "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"


def _is_addition(character: str) -> bool:
    """A skin tone, a letter inside a flag's tag, or the rest of a Korean syllable."""
    return (
        "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or "\u1160" <= character <= "\u11ff"
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    first = at
    while first > 0 and _is_flag_letter(text[first - 1]):
        first -= 1
    return at - first


def printable(text: str, keep: str = "") -> str:
    """Text without control characters, each of which becomes a blank, but for those to `keep`."""
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


# Every run of blanks and line breaks but a single blank.
_WIDE_GAP = re.compile(r"[^\S ]\s*| \s+")


def flat_text(text: str) -> str:
    """A text with one blank for every run of blanks and line breaks."""
    return _WIDE_GAP.sub(" ", text).strip()


def clip(text: str, most: int, *, strip: bool = True) -> str:
    """At most so many characters of a text, the last of them an ellipsis where something is cut off."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut.rstrip() if strip else cut}…"


LINE_LIMIT = 190


def clip_line(text: str, most: int = LINE_LIMIT) -> str:
    """A text as one line of at most so many characters."""
    return clip(" ".join(text[: most * 4].split()), most)


def one_line(text: str, width: int) -> str:
    """Text as one printable line of at most this many characters."""
    return clip(" ".join(printable(text[: 4 * width]).split()), width, strip=False)


_TIME_UNITS = ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h"), (float("inf"), 86_400, "d"))


def format_count(number: float) -> str:
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


def parse_time(stamp: str) -> datetime | None:
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
    size, unit = next((size, unit) for most, size, unit in _TIME_UNITS if seconds < most)
    return f"{int(seconds // size)} {unit} ago"


def truncated_text(text: str, most: int) -> str:
    """A text of at most so many characters, with a word about what is not shown."""
    rest = len(text) - most
    return text if rest <= 0 else f"{text[:most]}… ({rest:,} more characters)"


class TargetSize(Struct, frozen=True):
    """What `--target` asks for: a number of tokens, or a share of those there are."""

    tokens: int | None = None
    percent: float | None = None

    def of(self, tokens: int) -> int | None:
        """The goal as tokens, for a conversation of this many."""
        return self.tokens if self.percent is None else max(1, int(tokens * self.percent / 100))


def parse_target(text: str | None) -> TargetSize:
    """A target as people write it: `20000`, `20k`, `25%`."""
    if text is None:
        return TargetSize()
    number = text.strip().lower().replace("_", "").replace(",", "")
    try:
        goal = (
            TargetSize(percent=float(number[:-1])) if number.endswith("%") else TargetSize(tokens=_parse_tokens(number))
        )
    except (ValueError, OverflowError) as error:
        raise _bad_target(text) from error
    if not (goal.tokens is None or goal.tokens >= 1) or not (goal.percent is None or 0 < goal.percent <= 100):
        raise _bad_target(text)
    return goal


def _parse_tokens(number: str) -> int:
    unit = {"k": 1_000, "m": 1_000_000}.get(number[-1:], 1)
    return int(float(number[:-1]) * unit) if unit > 1 else int(number)


def _bad_target(text: str) -> BadSetting:
    return BadSetting(f"--target: {text!r} is neither a number of tokens of at least 1 nor a percentage up to 100%")


TIMES = "\N{MULTIPLICATION SIGN}"
# No digest looks further into one line; a minified file or a base64 blob is one line.
_LINE_READ = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])")


def to_lines(text: str) -> list[str]:
    """The lines of a text as a terminal would leave them: no colours, no overwritten progress."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    lines = text.replace("\r\n", "\n").split("\n") if "\r" in text else text.split("\n")
    if "\r" in text:
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines]
    if len(text) > _LINE_READ and max(map(len, lines)) > _LINE_READ:
        return [line[:_LINE_READ] for line in lines]
    return lines


def in_room(names: Iterable[str], room: int = LINE_LIMIT, separator: str = ", ") -> str:
    """As many names as one line has room for, and how many are left out."""
    every = list(names)
    kept: list[str] = []
    used = 0
    for name in every:
        used += len(name) + len(separator)
        if used > room - 10:
            break
        kept.append(name)
    left = len(every) - len(kept)
    return separator.join(kept) + (f" … {left:,} more" if left else "")


def wrapped(names: Sequence[str], lines: int, indent: str = "", separator: str = ", ") -> list[str]:
    """Names in at most `lines` lines; the last one says how many are left out."""
    out: list[str] = []
    line: list[str] = []
    used, shown = 0, 0
    for name in names:
        if line and used + len(name) > LINE_LIMIT - 30 - len(indent):
            out.append(indent + separator.join(line))
            line, used = [], 0
            if len(out) == lines:
                break
        line.append(name)
        shown += 1
        used += len(name) + len(separator)
    else:
        out += [indent + separator.join(line)] if line else []
    if shown < len(names) and out:
        out[-1] += f" … {len(names) - shown:,} more"
    return out


def merged(lines: Iterable[str]) -> list[str]:
    """Equal lines once, with how often they came."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line] = counts.get(line, 0) + 1
    return [f"{line}  {TIMES}{count}" if count > 1 else line for line, count in counts.items()]
