"""Learns from reported usage how far our counts are off: an offset and a ratio, each on its own."""

from __future__ import annotations

from math import ceil, isfinite
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from context_compactor.tokens.models import family_of

_REMEMBERED = 8
_OFFSET_REPLIES = 3

# How many tokens of growth weigh as much as what is known of a model's family: few when our messages are the whole
# request, since then already the first reply tells the ratio.
_PRIOR_TOKENS = {True: 20_000.0, False: 200.0}
_MAX_CONFIRMED = 200_000.0

# A step outside of this range says nothing about the ratio where something may be added or removed out of sight.
_BELIEVABLE = {True: (0.4, 2.5), False: (0.15, 6.0)}
_SMALLEST_STEP = 50
_SMALLEST_MARGIN = 0.005
# New text may be of another kind than what was confirmed, so a part of the family's margin never goes away.
_LASTING_DOUBT = 0.5
_LEAST_DOUBT = 0.02


class Estimate(Struct, frozen=True):
    """Tokens as the provider would count them. `margin` is the share by which the truth may be higher."""

    tokens: int
    margin: float

    @property
    def upper(self) -> int:
        """The tokens with the margin on top: what to fit by."""
        return ceil(self.tokens * (1 + self.margin))


class CalibrationSample(Struct, frozen=True):
    """What we counted for a request and what the provider reported for it."""

    counted: int
    reported: int


class Calibration(Struct, frozen=True):
    """What was learned about one model. `hidden` says that part of every request is not in our messages."""

    model: str = ""
    hidden: bool = True
    replies: tuple[CalibrationSample, ...] = ()
    errors: tuple[float, ...] = ()
    confirmed: float = 0.0
    grown: float = 0.0

    @property
    def ratio(self) -> float:
        """The provider's tokens for each of ours."""
        prior = _PRIOR_TOKENS[self.hidden]
        return (prior + self.grown) / (prior + self.confirmed)

    @property
    def offset(self) -> float:
        """The provider's tokens that none of ours stand for."""
        ratio = self.ratio
        last = self.replies[-_OFFSET_REPLIES:]
        return median(reply.reported - ratio * reply.counted for reply in last) if last else 0.0

    def learn(self, counted: object, reported: object) -> Calibration:
        """The calibration after one more reply. What is missing, zero, negative or no number teaches nothing."""
        ours, theirs = known_tokens(counted), known_tokens(reported)
        if ours is None or theirs is None:
            return self
        error = abs(self.estimate(ours).tokens - theirs) / theirs
        before = self.replies[-1] if self.replies else None if self.hidden else CalibrationSample(0, 0)
        confirmed, grown = _growth(before, CalibrationSample(ours, theirs), _BELIEVABLE[self.hidden])
        keep = min(1.0, _MAX_CONFIRMED / max(1.0, self.confirmed + confirmed))
        return replace(
            self,
            replies=(*self.replies, CalibrationSample(ours, theirs))[-_REMEMBERED:],
            errors=(*self.errors, error)[-_REMEMBERED:] if self.replies else (),
            confirmed=(self.confirmed + confirmed) * keep,
            grown=(self.grown + grown) * keep,
        )

    def with_counted(self, tokens: int) -> Calibration:
        """The same, had we counted so many tokens more in each of the requests so far."""
        replies = tuple(replace(reply, counted=reply.counted + tokens) for reply in self.replies)
        return replace(self, replies=replies)

    def estimate(self, counted: int) -> Estimate:
        """What the provider would count where we count so many."""
        counted = max(0, counted)
        if not self.replies:
            return Estimate(counted, family_of(self.model).margin)
        tokens = max(round(self.offset + self.ratio * counted), counted // 4)
        return Estimate(tokens, self._margin(counted, tokens))

    def _margin(self, counted: int, tokens: int) -> float:
        """The doubt about the ratio for what is new since the last reply, and the error of the last estimates."""
        family = max(_LEAST_DOUBT, family_of(self.model).margin)
        prior = _PRIOR_TOKENS[self.hidden]
        doubt = family * max(_LASTING_DOUBT, prior / (prior + self.confirmed))
        new = abs(counted - self.replies[-1].counted)
        seen = 3 * median(self.errors) if self.errors else _SMALLEST_MARGIN
        return max(_SMALLEST_MARGIN, min(family, doubt * new / max(1, tokens) + seen))


def known_tokens(value: object) -> int | None:
    """A count of tokens that can be true: a positive number, else None for "unknown"."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return int(value) if value >= 1 else None


def anchored_tokens(last_reported: object, counted_since: int, ratio: float = 1.0) -> int | None:
    """The gauge: what the last reply reported plus our count of what came after it; None when it reported nothing.

    `counted_since` is negative when less is sent than before, as when a provider leaves out old thinking.
    """
    reported = known_tokens(last_reported)
    return None if reported is None else max(1, reported + round(counted_since * ratio))


def _growth(
    before: CalibrationSample | None, now: CalibrationSample, believable: tuple[float, float]
) -> tuple[float, float]:
    """How much our count has changed since the reply before, and the provider's with it."""
    step = now.counted - before.counted if before else 0
    if before is None or abs(step) < _SMALLEST_STEP:
        return 0.0, 0.0
    growth = now.reported - before.reported
    if not believable[0] <= growth / step <= believable[1]:
        return 0.0, 0.0
    return float(abs(step)), float(abs(growth))
