"""The four tiers, which turns are pinned, and what the user has decided about turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from context_compactor.dialects.turns import Turn
from context_compactor.errors import BadSetting


class Tier(StrEnum):
    """From dear to cheap. Whatever is not kept has its original archived first."""

    KEEP = "keep"
    SUMMARIZE = "summarize"
    REFERENCE = "reference"
    DROP = "drop"


def tier_named(name: str) -> Tier:
    """The tier of a name, or an error that names all of them."""
    try:
        return Tier(name)
    except ValueError:
        raise BadSetting(f"unknown tier {name!r:.40}; known tiers: {', '.join(Tier)}") from None


TURNS_SYNTAX = "12,15 or 3-9"
"""What may be written, for a help text."""
_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST = 10_000


def read_turns(name: str, turns: str | None) -> list[int]:
    """The numbers of turns that were written under a name; none when there is nothing."""
    found: list[int] = []
    for part in turns.split(",") if turns is not None else ():
        run = _RUN.fullmatch(part.strip())
        first, last = (int(run[1]), int(run[2] or run[1])) if run else (1, 0)
        if not first <= last < first + _MOST - len(found):
            raise BadSetting(
                f"{name}: {part!r:.40} is not a turn or a range of turns, or is too many turns. Try: {TURNS_SYNTAX}."
            )
        found.extend(range(first, last + 1))
    return found


def write_turns(turns: Iterable[int]) -> str:
    """The same the other way round, in order and with runs where there are any."""
    runs: list[list[int]] = []
    for turn in sorted(set(turns)):
        if runs and turn == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], turn]
        else:
            runs.append([turn])
    return ",".join("-".join(map(str, run)) for run in runs)


def read_overrides(given: Mapping[Tier, str | None], prefix: str = "") -> dict[int, Tier]:
    """Tiers by turn, written as turns by tier; a turn has one tier. Names in errors begin with the prefix."""
    found: dict[int, Tier] = {}
    for tier, turns in given.items():
        for turn in read_turns(f"{prefix}{tier}", turns):
            if found.setdefault(turn, tier) is not tier:
                raise BadSetting(
                    f"{prefix}{tier}: turn {turn} is already given to {prefix}{found[turn]}. Try: name each turn once."
                )
    return found


INSTRUCTIONS = "system text"
FIRST_TASK = "the task as first given"
LATEST_REQUEST = "the latest request"
UNANSWERED = "not answered yet"
PROVIDER_SUMMARY_PIN = "the provider's own summary of what was before it"
RECENT = "one of the last turns"


def pinned_turns(turns: Sequence[Turn], requests: Sequence[int] = (), preserve_recent: int = 5) -> dict[int, str]:
    """Turn numbers that stay as they are, each with the reason.

    `requests` are the turns in which the user asked for something, as the facts of kind `task` tell them; without
    them every turn of the user counts.
    """
    asked = list(requests) or [turn.number for turn in turns if _is_user_words(turn)]
    fixed = {True: INSTRUCTIONS, False: PROVIDER_SUMMARY_PIN}
    pins = {turn.number: fixed[turn.is_instruction] for turn in turns if turn.is_fixed}
    for number in asked[:1]:
        pins.setdefault(number, FIRST_TASK)
    for number in unanswered_turns(turns):
        pins.setdefault(number, UNANSWERED)
    for number in asked[-1:]:
        pins.setdefault(number, LATEST_REQUEST)
    for turn in turns[max(len(turns) - preserve_recent, 0) :]:
        pins.setdefault(turn.number, RECENT)
    return dict(sorted(pins.items()))


def unanswered_turns(turns: Sequence[Turn]) -> set[int]:
    """The turns at the end that nobody has answered: the user's last messages, or calls that still run."""
    found: set[int] = set()
    for turn in reversed(turns):
        is_running = not found and any(exchange.result is None for exchange in turn.exchanges)
        if is_running or _is_user_words(turn):
            found.add(turn.number)
        if is_running or not _is_user_words(turn):
            break
    return found


def interjected_turn(turns: Sequence[Turn]) -> set[int]:
    """The last turn when words of the user stand in it beside results: they stay, though the results may shrink."""
    if not turns or not turns[-1].exchanges:
        return set()
    last = next(message for message in reversed(turns[-1].messages) if message.role not in ("system", "developer"))
    return {turns[-1].number} if last.role == "user" and last.text.strip() else set()


def finished_turns(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns without one at the end whose calls still run: nothing is known of it yet."""
    is_running = bool(turns) and any(exchange.result is None for exchange in turns[-1].exchanges)
    return turns[:-1] if is_running else turns


def _is_user_words(turn: Turn) -> bool:
    return turn.role == "user" and not turn.exchanges


KEPT = "kept by you"
SHORTENED = "shortened by you"
LOWERED = "lowered by you"
PINNED = "pinned by you"
OVERRIDE_REASONS = {Tier.KEEP: KEPT, Tier.SUMMARIZE: SHORTENED, Tier.REFERENCE: LOWERED, Tier.DROP: LOWERED}

TierOverrides = Mapping[int, Tier]
"""The user's own tiers, by turn."""


def override_refusal(turns: Sequence[Turn], number: int, tier: Tier) -> str:
    """Why a turn of a context cannot have this tier; empty when it can."""
    turn = next((turn for turn in turns if turn.number == number), None)
    if turn is None:
        last = max((turn.number for turn in turns), default=0)
        return (
            "it was folded already" if 0 < number < last else f"there is no such turn; the last one is {max(last, 0)}"
        )
    if tier is Tier.KEEP:
        return ""
    if turn.is_fixed:
        return "it holds instructions or a summary by the provider, which are never touched"
    if number in unanswered_turns(turns):
        return "it is not answered yet, so it stays as it is"
    if number in interjected_turn(turns) and tier is not Tier.SUMMARIZE:
        return "it holds words that are not answered yet: its results can be summarized, no more"
    return ""


def valid_overrides(turns: Sequence[Turn], tier_overrides: TierOverrides) -> dict[int, Tier]:
    """The overrides that can be followed in a context."""
    return {number: tier for number, tier in tier_overrides.items() if not override_refusal(turns, number, tier)}
