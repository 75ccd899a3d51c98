"""What a compaction means for the agent's own bill.

The assumptions, all of them:

- The agent's next requests carry this context. What they add to it, and what the model answers, is the same with and
  without a compaction, so neither is counted.
- Where the model's price has a rate for cached input, the provider has the old context in its cache, and a request
  that begins like the one before is billed at that rate. Where it has none, every token is billed in full each time.
- The first request after a compaction reads the kept beginning from the cache and pays for the rest as new: at the rate
  for a cache write where there is one, else in full. From then on the new context is cached as the old one was.
- The compaction itself costs what its model calls have cost. Without a model it costs nothing.

So after `n` requests there is spent: before · n without a compaction, spent + rewrite + after · n with one.
`break_even_turns` is the first `n` at which the second is not more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from context_compactor.llm.model import ModelUsage
from context_compactor.llm.prices import cost, price_of
from context_compactor.price import Price
from context_compactor.report import Cost, Report

# No agent makes so many requests with one context.
_NEVER = 1_000_000


def cost_of(report: Report, model: str, prices: Mapping[str, Price] | None = None) -> Cost | None:
    """The bill of an agent that works with this model; None when the model's price is not known."""
    if price_of(model, prices) is None:
        return None
    kept = min(report.cache.prefix_tokens_kept, report.tokens_after)
    before = _price(ModelUsage(cache_read=report.tokens_before), model, prices)
    after = _price(ModelUsage(cache_read=report.tokens_after), model, prices)
    first = _price(ModelUsage(cache_read=kept, cache_write=report.tokens_after - kept), model, prices)
    spent = report.spent_on_models
    turns = None if spent is None else break_even(before, after, max(first - after, 0.0) + spent)
    return Cost(before, after, max(first - after, 0.0), spent, turns)


def break_even(before: float, after: float, once: float) -> int | None:
    """The fewest requests after which `once` and then `after` each is no more than `before` each; None if never."""
    if once <= 0 and after <= before:
        return 0
    if once >= _NEVER * (before - after):
        return None
    turns = ceil(once / (before - after))
    # A division rounds; the promise is about the sums.
    return turns if once + after * turns <= before * turns else turns + 1


def _price(usage: ModelUsage, model: str, prices: Mapping[str, Price] | None) -> float:
    return cost(usage, model, prices) or 0.0
