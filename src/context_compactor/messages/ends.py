"""The beginning and the end of a text that is too long: cut between lines, or between words where lines are long.

No cut falls inside what is one character to a reader: an emoji of several parts, a letter with its accents, a flag.
"""

from __future__ import annotations

from unicodedata import category

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
