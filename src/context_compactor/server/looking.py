"""What `/metrics` looks up: sessions, jobs, readers and deliveries as they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from context_compactor.levels import Level
from context_compactor.protocols import Desk
from context_compactor.server.metrics import gauge, total, version
from context_compactor.server.open_sessions import OpenSessions
from context_compactor.server.readers import Readers
from context_compactor.server.sender import Sender
from context_compactor.store.survey import Survey

_OUTCOMES = ("delivered", "failed", "disabled")


def looking(
    survey: Survey, desk: Desk, opened: OpenSessions, readers: Readers, sender: Sender
) -> Callable[[], Iterator[Metric]]:
    """A function that looks at all of them. It blocks."""

    def look() -> Iterator[Metric]:
        census = survey.look()
        levels = {(level or "none",): float(census.levels.get(level, 0)) for level in ("", *Level)}
        yield version()
        yield gauge("compactor_sessions", "Sessions of the store by the level they have reached", levels, "level")
        yield gauge("compactor_context_tokens", "Tokens of all contexts of the store", {(): float(census.tokens)})
        jobs = {key: float(count) for key, count in desk.jobs.counts().items()}
        yield gauge("compactor_jobs", "Jobs of the store", jobs, "kind", "state")
        yield gauge("compactor_open_sessions", "Sessions that this server keeps open", {(): float(len(opened))})
        yield gauge("compactor_event_readers", "Who follows events of this server", {(): float(len(readers))})
        yield total("compactor_event_readers_dropped", "Readers that were too slow", {(): float(readers.dropped)})
        sent = {(outcome,): float(sender.counts[outcome]) for outcome in _OUTCOMES}
        yield total("compactor_webhook_deliveries", "Attempts to tell webhooks, by this server", sent, "outcome")

    return look
