"""The beginning and the end of a text that is too long: cut between lines, or between words where lines are long."""

from __future__ import annotations


def beginning(text: str, most: int) -> str:
    """At most so many characters from the start of a text."""
    if len(text) <= most:
        return text
    cut = text[: max(most, 0)]
    at = cut.rfind("\n") if cut.rfind("\n") > most // 2 else cut.rfind(" ")
    return cut[:at] if at > 0 else cut


def ending(text: str, most: int) -> str:
    """At most so many characters from the end of a text."""
    return beginning(text[::-1], most)[::-1]
