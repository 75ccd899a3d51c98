"""The words a repair puts before what it could not leave as it was.

What follows such a frame is a record. It stands in a user message because a provider takes it nowhere else,
and must never be read as something the user asked for.
"""

from __future__ import annotations

NO_RESULT = "[no result was recorded]"
"""The text of a result that stands in for one that never came."""

LOST_CALL = "[result of a call that is not in the history]"
FURTHER_RESULT = "[a further result of the same call]"
LOST_RESULT = "[a call without a result]"
SERVER_TOOL = "[a server tool's call without its result, or the other way round]"
SYSTEM_MESSAGE = "[system message]"
START = "[The history before this point is not available.]"

FRAMES = (LOST_CALL, FURTHER_RESULT, LOST_RESULT, SERVER_TOOL, SYSTEM_MESSAGE, START)


def is_framed(text: str) -> bool:
    """Whether a text was put into its message by a repair, and not by whoever has the message's role."""
    return text.startswith(FRAMES)
