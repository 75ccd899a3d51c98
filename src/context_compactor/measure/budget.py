"""The budget: how many tokens and bytes a context may use."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.measure.windows import ASSUMED_REQUEST_BYTES, Window


class Budget(Struct, frozen=True):
    """What a context may use: the window without the reserved output and a margin for counting errors."""

    window: Window
    reserve_output: int = 0
    margin: int = 0
    bytes: int = ASSUMED_REQUEST_BYTES

    def __post_init__(self) -> None:
        _check(self)

    @property
    def tokens(self) -> int:
        """The tokens that are left for messages, tools and the system prompt."""
        return self.window.tokens - self.reserve_output - self.margin

    def share(self, tokens: int) -> float:
        """How full a context of so many tokens is; 1.0 is exactly full."""
        return max(0, tokens) / self.tokens

    def fits(self, tokens: int, size: int = 0) -> bool:
        """Whether a request of so many tokens and bytes is within both limits."""
        return tokens <= self.tokens and size <= self.bytes

    def lowered(self, limit: int | None) -> Budget:
        """The same budget under a lower limit that a provider taught us; a higher one changes nothing."""
        if limit is None or limit <= 0 or limit >= self.window.tokens:
            return self
        window = Window(limit, f"learned from a rejected request, below what was {self.window.source}")
        scale = limit / self.window.tokens
        return Budget(window, int(self.reserve_output * scale), int(self.margin * scale), self.bytes)

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens = {self.window.tokens:,} ({self.window.source})"
            f" - {self.reserve_output:,} reserved for output - {self.margin:,} margin; {self.bytes:,} bytes"
        )


def budget_for(window: Window, reserve_output: int, margin_share: float = 0.0, size: int | None = None) -> Budget:
    """The budget of a window. The margin is a share of what the reserved output leaves; `size` is a request's bytes."""
    _check_parts(window.tokens, reserve_output)
    margin = ceil((window.tokens - reserve_output) * min(0.9, max(0.0, margin_share)))
    return Budget(window, reserve_output, margin, ASSUMED_REQUEST_BYTES if size is None else size)


def fitting_reserve(window: Window, reserve_output: int) -> int:
    """A default reserve, or a quarter of a window that is too small for it."""
    return min(reserve_output, window.tokens // 4)


def _check_parts(window: int, reserve_output: int) -> None:
    if window <= 0:
        raise BadSetting(f"window is {window:,} tokens; it must be positive, such as 128,000")
    if reserve_output < 0:
        raise BadSetting(f"reserve_output_tokens is {reserve_output:,}; it must be 0 or more")
    if reserve_output >= window:
        raise BadSetting(
            f"reserve_output_tokens is {reserve_output:,} and leaves nothing of a window of {window:,} tokens; "
            f"try reserve_output_tokens={window // 8:,} or a window above {reserve_output * 2:,}"
        )


def _check(budget: Budget) -> None:
    _check_parts(budget.window.tokens, budget.reserve_output)
    if budget.margin < 0 or budget.bytes <= 0:
        raise BadSetting(f"margin ({budget.margin:,}) must be 0 or more and bytes ({budget.bytes:,}) positive")
    if budget.tokens <= 0:
        raise BadSetting(
            f"a window of {budget.window.tokens:,} tokens minus {budget.reserve_output:,} reserved for output minus a "
            f"margin of {budget.margin:,} leaves nothing; lower reserve_output_tokens or use a larger window"
        )
