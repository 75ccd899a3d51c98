"""What a session remembers beside its log: its profile, its state, how full its context is, and what failed lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unicodedata import category

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from context_compactor.dialects.messages import Message, Thinking
from context_compactor.engine.report import ModelCall
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting, StoreError
from context_compactor.facts.calls import file_paths_of, is_read
from context_compactor.settings import RENAMED_IN_SESSIONS, Settings, Spending
from context_compactor.tokens.budget import PlateauAlarm, SuggestionCounters
from context_compactor.tokens.calibration import Calibration, anchored_tokens
from context_compactor.tokens.counting import MessageCounter, PromptSize, is_question, message_bytes

_MAX_FAILURES = 3
_MAX_INEFFECTIVE = 2
_THRASH_TIMES = 3
_THRASH_MESSAGES = 8


class CircuitBreaker(Struct, frozen=True):
    """Failures in a row. After three there is a pause. A clock that went backwards ends every wait."""

    failures: int = 0
    failed_input: str = ""
    failed_at: float = 0.0

    def failed(self, what: str, now: float) -> CircuitBreaker:
        """After work on this input failed."""
        return CircuitBreaker(self.failures + 1, what, now)

    @property
    def is_open(self) -> bool:
        """Whether the last failure began a pause."""
        return self.failures >= _MAX_FAILURES

    def seconds_left(self, now: float, pause: float) -> float:
        """How many seconds are left of a pause of that length; 0 when there is none."""
        gone = now - self.failed_at
        return pause - gone if self.is_open and 0 <= gone < pause else 0.0


class CompactionGuard(Struct, frozen=True):
    """What went wrong lately. Times are seconds of the wall clock."""

    breaker: CircuitBreaker = CircuitBreaker()
    ineffective: int = 0
    ineffective_tokens: int = 0
    compacted_at: tuple[int, ...] = ()

    def failed(self, what: str, now: float) -> CompactionGuard:
        """After a compaction of this input failed."""
        return replace(self, breaker=self.breaker.failed(what, now))

    def gained_nothing(self, tokens: int) -> CompactionGuard:
        """After a compaction that would not have been worth it, at so many tokens."""
        return replace(self, breaker=CircuitBreaker(), ineffective=self.ineffective + 1, ineffective_tokens=tokens)

    def succeeded(self, messages: int) -> CompactionGuard:
        """After a compaction, when so many messages had been appended in all."""
        return CompactionGuard(compacted_at=(*self.compacted_at, messages)[-_THRASH_TIMES:])

    def objection(self, what: str, tokens: int, messages: int, now: float, wait: float, pause: float) -> str:
        """Why an automatic compaction of this input should not be tried now; "" when it may.

        `wait` is how long the same input is left alone after a failure, `pause` how long everything is after three.
        """
        breaker, gone = self.breaker, now - self.breaker.failed_at
        left = breaker.seconds_left(now, pause)
        if left:
            return f"the last {breaker.failures} compactions failed; the next one is tried in {left:.0f} s"
        if breaker.failures and what == breaker.failed_input and 0 <= gone < wait:
            return f"the same context could not be compacted {gone:.0f} s ago and has not changed since"
        if self.ineffective >= _MAX_INEFFECTIVE and tokens < 1.05 * self.ineffective_tokens:
            return f"the last {self.ineffective} compactions would have gained too little"
        if self.is_thrashing(messages):
            return (
                f"{_THRASH_TIMES} compactions came within {messages - self.compacted_at[0]} messages: it does not help"
            )
        return ""

    def is_thrashing(self, messages: int) -> bool:
        """Whether the last compactions were so close together that they did not help."""
        return len(self.compacted_at) == _THRASH_TIMES and messages - self.compacted_at[0] < _THRASH_MESSAGES


OS_USER = "os-user:"
"""What the owner begins with where the command line or a coding agent of a user of this machine made the session."""

_MAX_ID_LENGTH = 300
# Control characters, halves of characters, and breaks of lines and paragraphs.
_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Profile(Struct, frozen=True, kw_only=True):
    """What a session was opened with last. `settings` are those that were given and differ from the defaults, all but
    the agent's `model`. `prompt` is the size of its tools and system prompt; None when they were never given.

    `owner` is who its lessons belong to; without one it neither teaches nor learns. A dialect that `is_dialect_named`
    by the caller is the one to read any message in; else it was found, and messages of another one are refused.
    `largest_prompt` is the largest that the provider has accepted, where that is more than the window it was known for.
    `offers_recall` says that the agent has a tool named `recall`.
    Of a branch, `root` is the conversation's id; of that one, `branch` is the branch to continue, where it is another.
    """

    window: int | None = None
    dialect: str = "auto"
    is_dialect_named: bool = False
    model: str | None = None
    prompt: PromptSize | None = None
    owner: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    largest_prompt: int = 0
    offers_recall: bool = False
    root: str = ""
    branch: str = ""


class TokenGauge(Struct, frozen=True, kw_only=True):
    """How full the context is, kept up to date message by message so that nothing is counted twice.

    `tokens` and `bytes` are our own counts; `fixed` is what of the tokens are tools and a system prompt, `thinking`
    those of reasoning that a provider drops at the next question;
    `anchor` is what the provider reported last and what we counted then. `head` and `view` say for which context it is
    true, `counter` who counted.
    """

    head: int = 0
    view: int = 0
    counter: str = ""
    tokens: int = 0
    fixed: int = 0
    thinking: int = 0
    bytes: int = 0
    tool_results: int = 0
    open_calls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    anchor: tuple[int, int] | None = None

    def with_fixed(self, tokens: int) -> TokenGauge:
        """The same with tools and a system prompt of so many tokens."""
        if tokens == self.fixed:
            return self
        return replace(self, tokens=self.tokens + tokens - self.fixed, fixed=tokens)


class ReplacedContext(Struct, frozen=True):
    """The context that was replaced last: our count of it, and how many reports of usage may still be about it."""

    tokens: int = 0
    reports: int = 0


class WorkClaim(Struct, frozen=True):
    """Who has begun work that is done by one alone, and when in seconds."""

    holder: str = ""
    since: float = 0.0


class TierChoice(Struct, frozen=True):
    """What the user has decided about a turn. `position` is where it begins in the log, 0 when that is not known."""

    tier: Tier
    position: int = 0


class SessionState(Struct, frozen=True, kw_only=True):
    """Everything small that changes: the gauge, which level has fired, what the guard and the counters know.

    `presummary` is the hash of a summary that a model wrote ahead of a compaction, `presummary_claim` who is writing
    one, `presummary_spent` and `presummary_calls` what that has cost since the last compaction; `summarizer_failures`
    is what went wrong with models lately; `tiers` are those that the user has set, by turn; `last_message` is the hash
    of the message that was appended last. `answered_at` is when the last reply came, in seconds, `is_hour_cache` says
    that the provider keeps what it caches for an hour, `is_cold_said` that it was said that the cache has expired
    since. Some are stored under names that older versions gave them.
    """

    gauge: TokenGauge = TokenGauge()
    replaced: ReplacedContext = ReplacedContext()
    share: float = 0.0
    fired: str = ""
    failed_at: float | None = None
    attempted: int = 0
    held: bool = False
    is_waiting: bool = False
    guard: CompactionGuard = CompactionGuard()
    spent: Spending = Spending()
    summarizer_failures: CircuitBreaker = field(default=CircuitBreaker(), name="teller")
    presummary: str = field(default="", name="ahead")
    presummary_claim: WorkClaim = field(default=WorkClaim(), name="ahead_by")
    presummary_spent: Spending = field(default=Spending(), name="ahead_spent")
    presummary_calls: tuple[ModelCall, ...] = field(default=(), name="ahead_calls")
    counters: SuggestionCounters = SuggestionCounters()
    plateau: PlateauAlarm = PlateauAlarm()
    calibration: Calibration = Calibration()
    tool_calls: int = 0
    appended_tokens: int = 0
    prepared_turn: int = 0
    is_reminded: bool = False
    extracted_at: str = ""
    phase: str = ""
    tiers: dict[int, TierChoice] = field(default_factory=dict, name="steers")
    notes: dict[str, Any] = field(default_factory=dict)
    last_message: str = ""
    answered_at: float = 0.0
    is_hour_cache: bool = False
    is_cold_said: bool = False


def read_profile(stored: bytes) -> Profile:
    """The profile as it was stored; `StoreError` when it cannot be read."""
    try:
        profile = msgspec.json.decode(stored, type=Profile)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"the stored options of this session cannot be read ({error}). "
            "Try: the version of context-compactor that wrote them."
        ) from error
    settings = {RENAMED_IN_SESSIONS.get(name, name): value for name, value in profile.settings.items()}
    return replace(profile, settings=settings)


def read_session_state(stored: bytes) -> SessionState:
    """The state as it was stored; one of another version of this program begins anew where it does not fit."""
    try:
        return msgspec.json.decode(stored, type=SessionState)
    except msgspec.MsgspecError:
        return SessionState()


def check_id(session_id: object) -> str:
    """The id when it can be one."""
    return _check_name("session id", session_id, "a short text such as 'run-42'")


def check_owner(owner: object) -> str:
    """The owner of lessons as a program names one; only the command line names users of this machine."""
    if isinstance(owner, str) and owner.startswith(OS_USER):
        raise BadSetting(
            f"owner: {owner[:80]!r} begins with {OS_USER!r}, which is reserved for users of this machine. "
            "Try: another prefix."
        )
    return _check_name("owner", owner, "a user's id such as 'user-17', or None if unknown")


PROFILES = ("project", "embedded")


def check_profile(name: object) -> str:
    """The name of a profile for opening a session."""
    if name not in PROFILES:
        raise BadSetting(f"profile: {name!r:.40} is unknown; known profiles: {', '.join(PROFILES)}")
    return str(name)


def _check_name(what: str, name: object, example: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadSetting(f"{what}: {name!r:.40} is not a valid name. Try: {example}.")
    if len(name) > _MAX_ID_LENGTH:
        raise BadSetting(f"{what}: {name[:40]!r}… has {len(name):,} characters; {_MAX_ID_LENGTH} is the limit.")
    refuse_invisible(what, name)
    return name


def refuse_invisible(what: str, text: str) -> None:
    """Raise `BadSetting` for a name with characters that cannot be seen."""
    odd = next((char for char in text if category(char) in _INVISIBLE), "")
    if odd:
        raise BadSetting(f"{what}: {text[:40]!r} holds {odd!r}, an invisible character. Try: remove it.")


def given_settings(settings: Settings) -> dict[str, Any]:
    """The settings that differ from the defaults, as plain values; all but the store, which may be secret."""
    plain, default = msgspec.to_builtins(settings), msgspec.to_builtins(Settings())
    return {name: value for name, value in plain.items() if value != default[name] and name != "store"}


_MAX_FILES = 100
# An agent has one request under way when its context is replaced, seldom two.
_LATE_REPORTS = 2


def measure_messages(messages: Sequence[Message], counter: MessageCounter, fixed: int = 0) -> TokenGauge:
    """The gauge of a context with tools and a system prompt of `fixed` tokens."""
    empty = TokenGauge(counter=counter.counter.name, tokens=counter.overhead.request + fixed, fixed=fixed)
    return add_messages(empty, messages, counter)


def add_messages(
    gauge: TokenGauge,
    messages: Sequence[Message],
    counter: MessageCounter,
    weights: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
) -> TokenGauge:
    """The gauge after some more messages; `weights` and `sizes` are their tokens and bytes, where they are known."""
    weights = counter.count_many(messages) if weights is None else weights
    sizes = [message_bytes(message) for message in messages] if sizes is None else sizes
    tokens, thinking, size = gauge.tokens, gauge.thinking, gauge.bytes
    calls, files = dict.fromkeys(gauge.open_calls), dict.fromkeys(gauge.files)
    for message, weight, length in zip(messages, weights, sizes, strict=True):
        tokens += weight
        size += length
        if counter.overhead.drops_thinking:
            tokens, thinking = _drop_thinking(message, tokens, thinking, counter)
        _track_open_calls(calls, message)
        files.update(dict.fromkeys(path for call in message.calls if is_read(call) for path in file_paths_of(call)))
    return replace(
        gauge,
        tokens=tokens,
        thinking=thinking,
        bytes=size,
        tool_results=gauge.tool_results + sum(len(message.results) for message in messages),
        open_calls=tuple(calls),
        files=tuple(files)[-_MAX_FILES:],
    )


def explain_hidden(state: SessionState, tokens: int) -> SessionState:
    """The state when tools and a system prompt of so many tokens become known for the first time.

    What the provider has counted so far on top of our messages were they, as far as they go.
    """
    known = min(tokens, max(0, round(state.calibration.offset)))
    gauge, calibration = state.gauge, state.calibration.with_counted(known)
    anchor = gauge.anchor and (gauge.anchor[0], gauge.anchor[1] + known)
    return replace(state, gauge=replace(gauge, anchor=anchor), calibration=calibration)


def replace_context(state: SessionState, gauge: TokenGauge) -> SessionState:
    """The state after the context was replaced by another one, with the gauge of that.

    A request with the old context may be under way, and what the provider will report for it says nothing of the new.
    """
    return replace(state, gauge=gauge, replaced=ReplacedContext(state.gauge.tokens, _LATE_REPORTS))


def is_late_report(state: SessionState, counted: int, reported: int) -> bool:
    """Whether usage was reported for a request with the context that has been replaced since.

    It was when it is nearer to what we expect of the old one. Before the first report there is nothing to expect.
    """
    if not state.replaced.reports:
        return False
    now, before = (state.calibration.estimate(tokens).tokens for tokens in (counted, state.replaced.tokens))
    return not state.calibration.replies or abs(reported - before) < abs(reported - now)


def has_moment_without_open_calls(gauge: TokenGauge, messages: Sequence[Message]) -> bool:
    """Whether behind one of these messages no call waits for its result, so that a request could be sent there."""
    calls = dict.fromkeys(gauge.open_calls)
    for message in messages:
        _track_open_calls(calls, message)
        if not calls:
            return True
    return False


def _track_open_calls(calls: dict[str, None], message: Message) -> None:
    calls.update(dict.fromkeys(call.id for call in message.calls))
    for result in message.results:
        calls.pop(result.call_id, None)
    if is_question(message):
        calls.clear()  # whoever speaks now does not wait for them


def _drop_thinking(message: Message, tokens: int, thinking: int, counter: MessageCounter) -> tuple[int, int]:
    if is_question(message):
        return tokens - thinking, 0
    if any(isinstance(part, Thinking) for part in message.parts):
        weights = zip(message.parts, counter.part_tokens(message), strict=True)
        thinking += sum(weight for part, weight in weights if isinstance(part, Thinking))
    return tokens, thinking


def tokens_now(gauge: TokenGauge, calibration: Calibration, overhead: int) -> int:
    """The tokens of the next request: anchored on what the provider reported last, else as well as we have learned."""
    if gauge.anchor is not None:
        reported, counted = gauge.anchor
        tokens = anchored_tokens(reported, gauge.tokens - counted, calibration.ratio)
        if tokens is not None:
            return tokens
    return calibration.estimate(gauge.tokens).tokens if calibration.replies else gauge.tokens + overhead
