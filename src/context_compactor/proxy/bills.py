"""What proxied conversations cost with us and, as those that were held out show, without us.

Only usage that a provider has reported counts. What has no usage or no known price is counted and named, never guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from context_compactor.protocols import Store
from context_compactor.settings import ModelEntry, Settings
from context_compactor.store.proxied import ProxiedRequest
from context_compactor.store.service_store import service_store_of
from context_compactor.text import in_room, percent, plural
from context_compactor.tokens.prices import ModelUsage, call_cost

NEEDED_CONVERSATIONS = 20
"""So many on both sides before they are compared."""
_MINUTES, _HOUR = 300, 3_600
_SURE = 1.96  # standard errors on either side of what holds in 95 of 100 cases
_NOTHING = "–"
_ANSWERS = frozenset({"main", "aside", "retry"})


class BillSide(Struct, frozen=True, kw_only=True):
    """What requests came to on one side: with us, or held out.

    `requests` went to the provider, `answered` are compactions that we answered without it. Of the requests,
    `summaries` are the agent's own, `recalls` and `retries` those that we made; `failed` had no answer or an error;
    `without_usage` were answered, but no usage was reported. `steps` are the answers that the agent got and that have
    usage: `dollars` of everything divided by them is `dollars_per_request`, so that what we ask for in addition makes a
    request dearer, never cheaper. `dollars` is None when the price of a request is not known: then it is at least
    `dollars_known`. Requests `without_session` are of deleted or unknown conversations, and count in none.
    """

    conversations: int = 0
    requests: int = 0
    steps: int = 0
    answered: int = 0
    summaries: int = 0
    recalls: int = 0
    retries: int = 0
    asides: int = 0
    failed: int = 0
    without_usage: int = 0
    without_session: int = 0
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    dollars: float | None = 0.0
    dollars_known: float = 0.0
    unpriced_requests: int = 0
    dollars_per_request: float | None = None
    dollars_per_conversation: float | None = None
    cache_share: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing on this side."""
        return not self.requests and not self.answered


class BillGroup(Struct, frozen=True):
    """Both sides of a client's requests to one model; `model` is None for all its models, `client` None for all."""

    client: str | None
    model: str | None
    with_us: BillSide = field(name="with")
    without_us: BillSide = field(name="without")


class BillComparison(Struct, frozen=True):
    """How many times as much a request of a client costs with us as held out, where that can be said; in words too.

    In 95 of 100 cases the truth is between `low` and `high`.
    """

    client: str
    with_conversations: int
    without_conversations: int
    ratio: float | None
    low: float | None
    high: float | None
    text: str


class UnpricedModel(Struct, frozen=True):
    """A model whose price is not known, and how many requests with usage it had."""

    model: str
    requests: int


class ProxyReport(Struct, frozen=True):
    """What a proxy's requests cost: all of them, by client, by client and model; the comparisons, and what is missing.

    `first_at` and `last_at` are the times of the first and the last request, "" when there was none.
    """

    first_at: str
    last_at: str
    total: BillGroup
    clients: tuple[BillGroup, ...]
    models: tuple[BillGroup, ...]
    comparisons: tuple[BillComparison, ...]
    unpriced_models: tuple[UnpricedModel, ...]
    notes: tuple[str, ...]


class BillLine(Struct, frozen=True):
    """One line of a table of both sides, as texts."""

    name: str
    with_us: str
    without_us: str


class _Conversation(Struct):
    dollars: float = 0.0
    steps: int = 0


class _BillSum:
    """What the requests of one side come to so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.dollars = 0.0
        self.conversations: dict[str, _Conversation] = {}

    def add(self, row: ProxiedRequest, cost: float | None) -> None:
        self.counts["answered" if row.kind == "answered" else "requests"] += 1
        self.counts[row.kind] += row.kind != "answered"
        self.counts["without_session"] += not row.session_id
        self.counts["failed"] += _has_failed(row)
        self.counts["without_usage"] += not row.has_usage and row.kind != "answered" and not _has_failed(row)
        is_step = row.has_usage and row.kind in _ANSWERS
        self.counts["steps"] += is_step
        if row.has_usage:
            self.counts["unpriced"] += cost is None
            for name in ("input", "cache_write", "cache_read", "output"):
                self.tokens[name] += getattr(row, name)
        self.dollars += cost or 0.0
        if row.session_id:
            conversation = self.conversations.setdefault(row.session_id, _Conversation())
            conversation.dollars += cost or 0.0
            conversation.steps += is_step

    def side(self) -> BillSide:
        counts, tokens = self.counts, self.tokens
        is_known = not counts["unpriced"]
        spent = sum(each.dollars for each in self.conversations.values())
        prompt = tokens["input"] + tokens["cache_write"] + tokens["cache_read"]
        return BillSide(
            conversations=len(self.conversations),
            requests=counts["requests"],
            steps=counts["steps"],
            answered=counts["answered"],
            summaries=counts["compaction"],
            recalls=counts["recall"],
            retries=counts["retry"],
            asides=counts["aside"],
            failed=counts["failed"],
            without_usage=counts["without_usage"],
            without_session=counts["without_session"],
            **{name: tokens[name] for name in ("input", "cache_write", "cache_read", "output")},
            dollars=self.dollars if is_known else None,
            dollars_known=self.dollars,
            unpriced_requests=counts["unpriced"],
            dollars_per_request=_share(self.dollars, counts["steps"]) if is_known else None,
            dollars_per_conversation=_share(spent, len(self.conversations)) if is_known else None,
            cache_share=_share(tokens["cache_read"], prompt),
        )

    def measured(self) -> list[_Conversation]:
        """The conversations in which something was answered."""
        return [each for each in self.conversations.values() if each.steps]


class _BothSides:
    def __init__(self) -> None:
        self.with_us, self.without_us = _BillSum(), _BillSum()

    def add(self, row: ProxiedRequest, cost: float | None) -> None:
        (self.without_us if row.is_held_out else self.with_us).add(row, cost)

    def group(self, client: str | None, model: str | None) -> BillGroup:
        return BillGroup(client, model, self.with_us.side(), self.without_us.side())


def make_report(store: Store, since: str, settings: Settings) -> ProxyReport:
    """What the requests in a store cost that were made from a time on; "" is from the beginning."""
    return report_of(service_store_of(store).proxied.requests(since=since), settings.models)


def report_of(rows: Iterable[ProxiedRequest], prices: Mapping[str, ModelEntry] | None = None) -> ProxyReport:
    """What requests, given by their time, cost with us and without us."""
    total = _BothSides()
    clients: dict[str, _BothSides] = {}
    models: dict[tuple[str, str], _BothSides] = {}
    unpriced: Counter[str] = Counter()
    times: list[str] = []
    recorded = 0
    for row in rows:
        if row.is_recorded_only:
            recorded += 1
            continue
        cost = request_cost(row, prices)
        unpriced[row.model] += row.has_usage and cost is None
        times[1:] = [row.at]
        for sums in (
            total,
            clients.setdefault(row.client, _BothSides()),
            models.setdefault((row.client, row.model), _BothSides()),
        ):
            sums.add(row, cost)
    whole = total.group(None, None)
    by_client = _largest_first(sums.group(client, None) for client, sums in clients.items())
    missing = tuple(UnpricedModel(model, count) for model, count in unpriced.most_common() if count)
    return ProxyReport(
        first_at=times[0] if times else "",
        last_at=times[-1] if times else "",
        total=whole,
        clients=by_client,
        models=_largest_first(sums.group(*names) for names, sums in models.items()),
        comparisons=tuple(_compare(group.client or "", clients[group.client or ""]) for group in by_client),
        unpriced_models=missing,
        notes=tuple(_notes(whole, missing, recorded)),
    )


def to_dict(report: ProxyReport) -> dict[str, Any]:
    """A report as JSON has it; the sides of a group are `with` and `without`."""
    found: dict[str, Any] = msgspec.to_builtins(report)
    return found


def request_cost(row: ProxiedRequest, prices: Mapping[str, ModelEntry] | None = None) -> float | None:
    """What a request has cost in US dollars by the usage that was reported; None when that or the price is not known.

    A compaction that we answered ourselves has cost nothing.
    """
    if not row.has_usage:
        return 0.0 if row.kind == "answered" else None
    usage = ModelUsage(row.input, row.cache_read, row.cache_write, row.output)
    cost = call_cost(usage, row.model, prices, _MINUTES)
    if cost is None or not row.cache_write_hour or not row.cache_write:
        return cost
    # All of the prompt decides whether a request is a long one, so its parts cannot be priced as requests of their own.
    for_an_hour = call_cost(usage, row.model, prices, _HOUR) or 0.0
    return cost + (for_an_hour - cost) * min(1.0, row.cache_write_hour / row.cache_write)


def client_name(client: str) -> str:
    """A client as tables call it."""
    return client or "other agents"


def money(amount: float | None) -> str:
    """US dollars in as many digits as say something."""
    if amount is None:
        return "not known"
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"


def side_dollars(side: BillSide) -> str:
    """The dollars of a side, or at least how many."""
    if side.is_empty:
        return _NOTHING
    return (
        f"at least {money(side.dollars_known)}" if side.dollars is None and side.dollars_known else money(side.dollars)
    )


def bill_lines(group: BillGroup) -> tuple[BillLine, ...]:
    """Both sides of a group line by line, for a table."""
    sides = [_side_texts(side) for side in (group.with_us, group.without_us)]
    return tuple(BillLine(name, *(side[name] for side in sides)) for name in sides[0])


def _side_texts(side: BillSide) -> dict[str, str]:
    counts = {
        "Conversations": side.conversations,
        "Requests to the provider": side.requests,
        "Compactions answered here": side.answered,
        "The agent's own summaries": side.summaries,
        "Requests for our own tools": side.recalls,
        "Sent again after an overflow": side.retries,
        "Failed": side.failed,
        "Input, uncached": side.input,
        "Input, written to cache": side.cache_write,
        "Input, read from cache": side.cache_read,
        "Output": side.output,
    }
    texts = {name: f"{count:,}" for name, count in counts.items()} | {
        "Share read from cache": percent(side.cache_share),
        "Dollars": side_dollars(side),
        "Dollars per request": _rate(side, side.dollars_per_request),
        "Dollars per conversation": _rate(side, side.dollars_per_conversation),
    }
    return dict.fromkeys(texts, _NOTHING) if side.is_empty else texts


def _rate(side: BillSide, amount: float | None) -> str:
    return _NOTHING if amount is None and side.dollars is not None else money(amount)


def _has_failed(row: ProxiedRequest) -> bool:
    return not 200 <= row.status < 400 and not row.has_usage


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _largest_first(groups: Iterable[BillGroup]) -> tuple[BillGroup, ...]:
    def size(group: BillGroup) -> tuple[int, str, str]:
        return -group.with_us.requests - group.without_us.requests, group.client or "", group.model or ""

    return tuple(sorted(groups, key=size))


def _compare(client: str, sums: _BothSides) -> BillComparison:
    measured = sums.with_us.measured(), sums.without_us.measured()
    counts = len(measured[0]), len(measured[1])
    ratio = low = high = None
    text = _obstacle(client, sums, counts)
    rates = sums.with_us.side().dollars_per_request, sums.without_us.side().dollars_per_request
    if not text and rates[0] is not None and rates[1]:
        ratio = rates[0] / rates[1]
        error = _SURE * math.sqrt(sum(map(_relative_variance, measured)))
        # The wider of the two usual ranges on either side: a few very dear conversations make both of them too narrow.
        low, high = ratio * max(0.0, 1 - error), ratio * math.exp(error)
        text = _ratio_text(ratio, low, high, counts)
    return BillComparison(client, *counts, ratio, low, high, text)


def _obstacle(client: str, sums: _BothSides, counts: tuple[int, int]) -> str:
    """Why both sides cannot be compared; "" when they can."""
    if not client and not sums.without_us.counts:
        return "They do not compact by themselves and are never held out, so their cost without us is not known."
    if counts[1] < NEEDED_CONVERSATIONS:
        enough = f"{counts[1]} of {NEEDED_CONVERSATIONS}"
        return f"Too few held-out conversations to compare ({enough}). Try: compactor proxy --holdout 10%."
    if counts[0] < NEEDED_CONVERSATIONS:
        return f"Too few conversations that were not held out to compare ({counts[0]} of {NEEDED_CONVERSATIONS})."
    if sums.with_us.counts["unpriced"] or sums.without_us.counts["unpriced"]:
        return "Not compared, since some prices are not known."
    return "" if sums.without_us.dollars else "Not compared, since held-out conversations cost nothing."


def _relative_variance(conversations: Sequence[_Conversation]) -> float:
    """Of dollars per request. What was drawn at random are conversations, whose requests resemble each other."""
    dollars, steps = (sum(each.dollars for each in conversations), sum(each.steps for each in conversations))
    if not dollars:
        return 0.0
    rest = sum((each.dollars - dollars / steps * each.steps) ** 2 for each in conversations)
    return len(conversations) / (len(conversations) - 1) * rest / dollars**2


def _ratio_text(ratio: float, low: float, high: float, counts: tuple[int, int]) -> str:
    between = f"95 % range {low:.2f} to {high:.2f}; {counts[0]:,} conversations with us, {counts[1]:,} held out"
    chance = " The difference may be chance." if low <= 1 <= high else ""
    return f"A request costs {ratio:.2f} times what it costs in held-out conversations ({between}).{chance}"


def _notes(total: BillGroup, unpriced: Sequence[UnpricedModel], recorded: int) -> Iterator[str]:
    sides = (total.with_us, total.without_us)
    if unpriced:
        names = in_room(f"{each.model or 'no name'} ({plural(each.requests, 'request')})" for each in unpriced)
        yield f'No price is known for: {names}. Try: [models."NAME"] with input and output in the settings.'
    if count := sum(side.without_usage for side in sides):
        yield f"No usage was reported for {plural(count, 'answered request')}; what they cost is in no sum."
    if count := sum(side.without_session for side in sides):
        yield f"{plural(count, 'request')} of deleted or unknown conversations count in the sums, not as conversations."
    if recorded:
        yield f"{plural(recorded, 'request')} that should only be recorded (mode record) are on neither side."
