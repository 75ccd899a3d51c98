"""The Prometheus metrics of a server, and the collectors that look them up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from context_compactor import __version__
from context_compactor.protocols import ServiceStore
from context_compactor.server.event_feed import Subscribers
from context_compactor.server.open_sessions import OpenSessions
from context_compactor.server.webhook_delivery import WebhookSender
from context_compactor.settings import Level
from context_compactor.store.events import Event
from context_compactor.store.rows import StoredEvent
from context_compactor.store.statistics import SessionStatistics

_CACHE_SECONDS = 5.0
_MAX_LABEL_VALUES = 40
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_OUTCOMES = {"compaction.refused": "refused", "compaction.failed": "failed", "compaction.undone": "undone"}
_MEASURES = ("retained_share", "failures_share", "recallable_share", "pins_share")


class ServerMetrics:
    """All metrics of one server, in a registry of its own. Events are counted as the feed gives them out."""

    def __init__(self, look: Callable[[], Iterator[Metric]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_CachedCollector(look))
        ProcessCollector(registry=self.registry)
        self._names = _LabelValues(_MAX_LABEL_VALUES)
        self._events = self._counter("compactor_events", "Events of the store", "type")
        self._crossings = self._counter("compactor_thresholds_crossed", "Levels that were reached", "level")
        self._compactions = self._counter("compactor_compactions", "Compactions by how they ended", "level", "outcome")
        self._saved = self._counter("compactor_tokens_saved", "Tokens that contexts no longer have")
        self._removed = self._counter("compactor_messages_removed", "Messages that contexts no longer have")
        self._ratio = self._histogram("compactor_compaction_ratio", "Tokens after by tokens before", _SHARES)
        self._fidelity = self._histogram("compactor_fidelity_share", "What compactions have kept", _SHARES, "measure")
        self._duration = self._histogram("compactor_compaction_seconds", "How long compactions took", _SECONDS)
        self._attempts = self._counter("compactor_job_attempts_ended", "Jobs tried again or dropped", "what", "outcome")
        self._queued = self._counter("compactor_jobs_queued", "Jobs that were asked for", "what")
        self._calls = self._counter("compactor_model_calls", "Calls of models that write summaries", "model")
        self._cost = self._counter("compactor_model_cost_dollars", "What models have cost, where known", "model")
        self._tokens = self._counter("compactor_model_tokens", "Tokens shown to models and written", "model", "kind")
        self._requests = self._histogram(
            "compactor_http_request_seconds", "How long requests took", _SECONDS, "route", "method", "status"
        )
        self._timers: dict[tuple[str, str, int], Any] = {}

    def render(self) -> bytes:
        """Everything, in the text that Prometheus reads. Blocks."""
        return generate_latest(self.registry)

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        key = (route, method, status)
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = self._requests.labels(route, method, str(status))
        timer.observe(seconds)

    def count_events(self, batch: Sequence[StoredEvent]) -> None:
        """Count new events of the store."""
        for kept in batch:
            self._count(kept.event)

    def _count(self, event: Event) -> None:
        payload = event.payload
        self._events.labels(event.type).inc()
        what = self._names.known(payload.get("what"))
        if event.type == "session.compacted":
            self._compacted(payload)
        elif event.type in _OUTCOMES:
            self._compactions.labels(_level(payload), _OUTCOMES[event.type]).inc()
        elif event.type == "threshold.crossed":
            self._crossings.labels(_level(payload)).inc()
        elif event.type == "job.queued":
            self._queued.labels(what).inc()
        elif event.type in ("job.retried", "job.dropped"):
            self._attempts.labels(what, event.type.removeprefix("job.")).inc()

    def _compacted(self, payload: dict[str, Any]) -> None:
        before, after = _number(payload, "tokens_before"), _number(payload, "tokens_after")
        self._compactions.labels(_level(payload), str(payload.get("status") or "success")).inc()
        self._saved.inc(max(before - after, 0))
        self._removed.inc(max(_number(payload, "messages_removed"), 0))
        self._duration.observe(_number(payload, "duration_ms") / 1000)
        if before > 0:
            self._ratio.observe(after / before)
        found = payload.get("metrics")
        for measure in _MEASURES:
            share = found.get(measure) if isinstance(found, dict) else None
            if isinstance(share, int | float):
                self._fidelity.labels(measure.removesuffix("_share")).observe(share)
        for call in payload.get("model_calls") or ():
            self._called(call)

    def _called(self, call: dict[str, Any]) -> None:
        model = self._names.known(call.get("model"))
        self._calls.labels(model).inc()
        self._cost.labels(model).inc(max(_number(call, "cost"), 0.0))
        self._tokens.labels(model, "shown").inc(_number(call, "tokens_shown"))
        self._tokens.labels(model, "written").inc(_number(call, "tokens_written"))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)


class _CachedCollector(Collector):
    """What is looked up when it is asked for, and not more often than every few seconds."""

    def __init__(self, look: Callable[[], Iterator[Metric]]) -> None:
        self._look = look
        self._found: list[Metric] = []
        self._fresh_until = 0.0
        self._lock = Lock()

    def describe(self) -> Iterator[Metric]:
        """Nothing beforehand: it would have to look."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """What was found last."""
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._found = list(self._look())
                self._fresh_until = time.monotonic() + _CACHE_SECONDS
            return iter(self._found)


class _LabelValues:
    """The first so many names that come; all others are one, since every label is a series for ever."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def known(self, name: object) -> str:
        text = str(name or "unknown")[:80]
        if text not in self._known and len(self._known) >= self._most:
            return "other"
        self._known.add(text)
        return text


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def _rising(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[Any, float]) -> Metric:
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _level(payload: dict[str, Any]) -> str:
    level = payload.get("level")
    return str(level) if level in list(Level) else "none"


def _number(payload: dict[str, Any], name: str) -> float:
    value = payload.get(name)
    return value if isinstance(value, int | float) else 0


_DELIVERY_OUTCOMES = ("delivered", "failed", "disabled")


def make_collector(
    statistics: SessionStatistics,
    service_store: ServiceStore,
    opened: OpenSessions,
    readers: Subscribers,
    sender: WebhookSender,
) -> Callable[[], Iterator[Metric]]:
    """A function that looks at all of them. It blocks."""

    def look() -> Iterator[Metric]:
        found = statistics.read()
        levels = {(level or "none",): float(found.levels.get(level, 0)) for level in ("", *Level)}
        yield _gauge("compactor_version", "The version of the server", {(__version__,): 1.0}, "version")
        yield _gauge("compactor_sessions", "Sessions of the store by the level they have reached", levels, "level")
        yield _gauge("compactor_context_tokens", "Tokens of all contexts of the store", {(): float(found.tokens)})
        jobs = {key: float(count) for key, count in service_store.jobs.counts().items()}
        yield _gauge("compactor_jobs", "Jobs of the store", jobs, "kind", "state")
        yield _gauge("compactor_open_sessions", "Sessions that this server keeps open", {(): float(len(opened))})
        yield _gauge("compactor_event_readers", "Who follows events of this server", {(): float(len(readers))})
        yield _rising("compactor_event_readers_dropped", "Readers that were too slow", {(): float(readers.dropped)})
        sent = {(outcome,): float(sender.counts[outcome]) for outcome in _DELIVERY_OUTCOMES}
        yield _rising(
            "compactor_webhook_deliveries", "Attempts to deliver events to webhooks, by this server", sent, "outcome"
        )

    return look
