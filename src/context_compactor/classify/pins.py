"""What must never be touched, and why.

Rules, decisions, failures and blockers live on as facts, so the turns they stood in need no pin.
"""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.messages.turn import Turn

INSTRUCTIONS = "system text"
FIRST_TASK = "the task as first given"
LATEST_REQUEST = "the latest request"
UNANSWERED = "not answered yet"
RECENT = "one of the last turns"


def pinned_turns(turns: Sequence[Turn], requests: Sequence[int] = (), preserve_recent: int = 5) -> dict[int, str]:
    """Turn numbers that stay as they are, each with the reason.

    `requests` are the turns in which the user asked for something, as the facts of kind `task` tell them; without
    them every turn of the user counts.
    """
    asked = list(requests) or [turn.number for turn in turns if _speaks(turn)]
    pins = {turn.number: INSTRUCTIONS for turn in turns if turn.is_instruction}
    for number in asked[:1]:
        pins.setdefault(number, FIRST_TASK)
    for number in last_words(turns):
        pins.setdefault(number, UNANSWERED)
    for number in asked[-1:]:
        pins.setdefault(number, LATEST_REQUEST)
    for turn in turns[max(len(turns) - preserve_recent, 0) :]:
        pins.setdefault(turn.number, RECENT)
    return dict(sorted(pins.items()))


def last_words(turns: Sequence[Turn]) -> set[int]:
    """The turns at the end that nobody has answered: the user's last messages, or calls that still run."""
    found: set[int] = set()
    for turn in reversed(turns):
        is_running = not found and any(exchange.result is None for exchange in turn.exchanges)
        if is_running or _speaks(turn):
            found.add(turn.number)
        if is_running or not _speaks(turn):
            break
    return found


def interjection(turns: Sequence[Turn]) -> set[int]:
    """The last turn when words of the user stand in it beside results: they stay, though the results may shrink."""
    last = turns[-1].messages[-1] if turns and turns[-1].exchanges else None
    return {turns[-1].number} if last is not None and last.role == "user" and last.text.strip() else set()


def settled(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns without one at the end whose calls still run: nothing is known of it yet."""
    is_running = bool(turns) and any(exchange.result is None for exchange in turns[-1].exchanges)
    return turns[:-1] if is_running else turns


def _speaks(turn: Turn) -> bool:
    return turn.role == "user" and not turn.exchanges
