"""When not to try again: a compaction that failed, that gained nothing, or that comes too soon after others.

A value like `Watch`: tell it what happened and keep what it returns. It holds back automatic compactions only; what a
user asks for is tried.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

_MOST_FAILURES = 3
_MOST_INEFFECTIVE = 2
_THRASH_TIMES = 3
_THRASH_MESSAGES = 8


class Breaker(Struct, frozen=True):
    """Failures in a row. After three there is a rest. A clock that went backwards ends every wait."""

    failures: int = 0
    failed_input: str = ""
    failed_at: float = 0.0

    def failed(self, what: str, now: float) -> Breaker:
        """After work on this input failed."""
        return Breaker(self.failures + 1, what, now)

    def rest(self, now: float, seconds: float) -> float:
        """How many seconds are left of the rest; 0 when there is none."""
        gone = now - self.failed_at
        return seconds - gone if self.failures >= _MOST_FAILURES and 0 <= gone < seconds else 0.0

    @property
    def is_open(self) -> bool:
        """Whether the last failure began a rest."""
        return self.failures >= _MOST_FAILURES


class Guard(Struct, frozen=True):
    """What went wrong lately. Times are seconds of the wall clock."""

    breaker: Breaker = Breaker()
    ineffective: int = 0
    ineffective_tokens: int = 0
    compacted_at: tuple[int, ...] = ()

    def failed(self, what: str, now: float) -> Guard:
        """After a compaction of this input failed."""
        return replace(self, breaker=self.breaker.failed(what, now))

    def gained_nothing(self, tokens: int) -> Guard:
        """After a compaction that would not have been worth it, at so many tokens."""
        return replace(self, breaker=Breaker(), ineffective=self.ineffective + 1, ineffective_tokens=tokens)

    def succeeded(self, messages: int) -> Guard:
        """After a compaction, when so many messages had been appended in all."""
        return Guard(compacted_at=(*self.compacted_at, messages)[-_THRASH_TIMES:])

    def objection(self, what: str, tokens: int, messages: int, now: float, wait: float, rest: float) -> str:
        """Why an automatic compaction of this input should not be tried now; "" when it may.

        `wait` is how long the same input is left alone after a failure, `rest` how long everything is after three.
        """
        breaker, gone = self.breaker, now - self.breaker.failed_at
        left = breaker.rest(now, rest)
        if left:
            return f"the last {breaker.failures} compactions failed; the next one is tried in {left:.0f} s"
        if breaker.failures and what == breaker.failed_input and 0 <= gone < wait:
            return f"the same context could not be compacted {gone:.0f} s ago and has not changed since"
        if self.ineffective >= _MOST_INEFFECTIVE and tokens < 1.05 * self.ineffective_tokens:
            return f"the last {self.ineffective} compactions would have gained too little"
        if self.is_thrashing(messages):
            return (
                f"{_THRASH_TIMES} compactions came within {messages - self.compacted_at[0]} messages: it does not help"
            )
        return ""

    def is_thrashing(self, messages: int) -> bool:
        """Whether the last compactions were so close together that they did not help."""
        return len(self.compacted_at) == _THRASH_TIMES and messages - self.compacted_at[0] < _THRASH_MESSAGES
