"""What a session is and what it remembers beside its log."""

from __future__ import annotations

from typing import Any
from unicodedata import category

import msgspec
from msgspec import Struct, field

from context_compactor.classify.tier import Tier
from context_compactor.errors import BadSetting, StoreError
from context_compactor.measure.calibrate import Calibration
from context_compactor.measure.triggers import Counters, Plateau
from context_compactor.price import Spent
from context_compactor.report import ModelCall
from context_compactor.session.guard import Breaker, Guard
from context_compactor.settings import Settings

OS_USER = "os-user:"
"""What the owner begins with where the command line or a coding agent of a user of this machine made the session."""

_LONGEST_ID = 300
# Control characters, halves of characters, and breaks of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Profile(Struct, frozen=True, kw_only=True):
    """What a session was opened with last. `settings` are those that were given and differ from the defaults.

    `owner` is who its lessons belong to; without one it neither teaches nor learns.
    """

    window: int | None = None
    dialect: str = "auto"
    model: str | None = None
    owner: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class Gauge(Struct, frozen=True, kw_only=True):
    """How full the context is, kept up to date message by message so that nothing is counted twice.

    `tokens` and `bytes` are our own counts; `thinking` those of reasoning that a provider drops at the next question;
    `anchor` is what the provider reported last and what we counted then. `head` and `view` say for which context it is
    true, `counter` who counted.
    """

    head: int = 0
    view: int = 0
    counter: str = ""
    tokens: int = 0
    thinking: int = 0
    bytes: int = 0
    tool_results: int = 0
    open_calls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    anchor: tuple[int, int] | None = None


class Replaced(Struct, frozen=True):
    """The context that was replaced last: our count of it, and how many reports of usage may still be about it."""

    tokens: int = 0
    reports: int = 0


class Claim(Struct, frozen=True):
    """Who has begun work that is done by one alone, and when in seconds."""

    holder: str = ""
    since: float = 0.0


class Steer(Struct, frozen=True):
    """What the user has decided about a turn. `position` is where it begins in the log, 0 when that is not known."""

    tier: Tier
    position: int = 0


class State(Struct, frozen=True, kw_only=True):
    """Everything small that changes: the gauge, which level has fired, what the guard and the counters know.

    `ahead` is the hash of what a model has told ahead, `ahead_by` who is at it, `ahead_spent` and `ahead_calls`
    what telling ahead has taken since the last compaction;
    `teller` is what went wrong with models lately; `steers` are the user's own tiers, by turn.
    """

    gauge: Gauge = Gauge()
    replaced: Replaced = Replaced()
    share: float = 0.0
    fired: str = ""
    failed_at: float | None = None
    attempted: int = 0
    held: bool = False
    is_waiting: bool = False
    guard: Guard = Guard()
    spent: Spent = Spent()
    teller: Breaker = Breaker()
    ahead: str = ""
    ahead_by: Claim = Claim()
    ahead_spent: Spent = Spent()
    ahead_calls: tuple[ModelCall, ...] = ()
    counters: Counters = Counters()
    plateau: Plateau = Plateau()
    calibration: Calibration = Calibration()
    tool_calls: int = 0
    appended_tokens: int = 0
    prepared_turn: int = 0
    is_reminded: bool = False
    extracted_at: str = ""
    phase: str = ""
    steers: dict[int, Steer] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def read_profile(stored: bytes) -> Profile:
    """The profile as it was stored; `StoreError` when it cannot be read."""
    try:
        return msgspec.json.decode(stored, type=Profile)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"what this session was opened with cannot be read ({error}). Try: the version that wrote it."
        ) from error


def read_state(stored: bytes) -> State:
    """The state as it was stored; one of another version of this program begins anew where it does not fit."""
    try:
        return msgspec.json.decode(stored, type=State)
    except msgspec.MsgspecError:
        return State()


def check_id(session_id: object) -> str:
    """The id when it can be one."""
    if not isinstance(session_id, str) or not session_id.strip():
        raise BadSetting(f"session id: {session_id!r:.40} is no name. Try: a short text such as 'run-42'.")
    if len(session_id) > _LONGEST_ID:
        raise BadSetting(
            f"session id: {session_id[:40]!r}… has {len(session_id):,} characters; {_LONGEST_ID} are the most."
        )
    _refuse_unseen("session id", session_id)
    return session_id


def check_owner(owner: object) -> str:
    """The owner of lessons as a program names one; only the command line names users of this machine."""
    if not isinstance(owner, str) or not owner.strip():
        raise BadSetting(f"owner: {owner!r:.40} is no name. Try: a user's id such as 'user-17', or None if unknown.")
    if len(owner) > _LONGEST_ID:
        raise BadSetting(f"owner: {owner[:40]!r}… has {len(owner):,} characters; {_LONGEST_ID} are the most.")
    if owner.startswith(OS_USER):
        raise BadSetting(
            f"owner: {owner[:80]!r} begins with {OS_USER!r}, as users of this machine do. Try: without it."
        )
    _refuse_unseen("owner", owner)
    return owner


def check_model(model: str | None) -> None:
    """The name of an agent's model when it can be one; it need not be known."""
    _refuse_unseen("model", model or "")


def _refuse_unseen(what: str, text: str) -> None:
    odd = next((char for char in text if category(char) in _UNSEEN), "")
    if odd:
        raise BadSetting(f"{what}: {text[:40]!r} holds {odd!r}, which cannot be seen. Try: without it.")


def given_settings(settings: Settings) -> dict[str, Any]:
    """The settings that differ from the defaults, as plain values; all but the store, which may be secret."""
    plain, default = msgspec.to_builtins(settings), msgspec.to_builtins(Settings())
    return {name: value for name, value in plain.items() if value != default[name] and name != "store"}
