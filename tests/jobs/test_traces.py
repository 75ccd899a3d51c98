"""A job goes on with the trace of the message that queued it, in whichever thread, process or machine it is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry import trace

from context_compactor import tracing
from tests.jobs.place import Place, fill
from tests.server.filling import Talk, told
from tests.server.running import running
from tests.waiting import PATIENCE

CALLER = trace.SpanContext(0xABCDEF, 0x1234, is_remote=False, trace_flags=trace.TraceFlags(1))
WRITTEN = f"00-{0xABCDEF:032x}-{0x1234:016x}-01"


class Tracer:
    """Keeps the name, the parent and the attributes of each span, whichever thread made it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, trace.SpanContext]] = []

    @contextmanager
    def start_as_current_span(self, name: str, context=None, **_: object) -> Iterator[trace.Span]:
        parent = trace.get_current_span(context).get_span_context()
        self.spans.append((name, parent))
        own = trace.SpanContext(parent.trace_id, len(self.spans), is_remote=False, trace_flags=parent.trace_flags)
        with trace.use_span(trace.NonRecordingSpan(own)) as span:
            yield span

    def parents(self, name: str) -> list[trace.SpanContext]:
        return [parent for known, parent in self.spans if known == name]


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    made = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda _: made)
    return made


def called() -> contextmanager:
    """As if a caller's span were around us."""
    return trace.use_span(trace.NonRecordingSpan(CALLER))


def test_the_trace_of_the_message_that_crossed_goes_into_its_job(place: Place, tracer: Tracer):
    with place.session() as session:
        with called():
            fill(session, 0.82)
        (job,) = place.jobs()
        assert job.trace == WRITTEN
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
        assert len(session.compactions()) == 1
    (parent,) = tracer.parents("job")
    assert (parent.trace_id, parent.span_id, parent.is_remote) == (CALLER.trace_id, CALLER.span_id, True)
    (whole,) = tracer.parents("compact")
    assert whole.trace_id == CALLER.trace_id


def test_without_a_trace_a_job_has_none_and_its_span_begins_one(place: Place, tracer: Tracer):
    with place.session() as session:
        fill(session, 0.82)
        assert [job.trace for job in place.jobs()] == [""]
        with place.engine() as engine:
            assert engine.wait_idle(PATIENCE)
    (parent,) = tracer.parents("job")
    assert not parent.is_valid


@pytest.mark.parametrize(
    "odd", ["", "00-zz-1-01", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "ff", "00-1-2", "x" * 500]
)
def test_a_trace_that_is_none_is_done_without(tracer: Tracer, odd: str):
    assert tracing.run_in_span("job", odd, {}, lambda: 7) == 7
    (parent,) = tracer.parents("job")
    assert not parent.is_valid


def test_who_has_not_set_it_up_carries_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(tracing.sys.modules, "opentelemetry.trace")
    assert tracing.current_traceparent() == ""
    assert tracing.run_in_span("job", WRITTEN, {}, lambda: 7) == 7


def test_over_http_the_trace_of_the_request_goes_into_the_job_and_no_other(tmp_path: Path, tracer: Tracer):
    """Requests of several callers share a transaction, and each keeps its own trace."""
    with running(tmp_path, workers=0) as server:
        make = server.listener.config.app

        async def traced(scope, receive, send):
            given = dict(scope.get("headers", ())).get(b"x-caller")
            if not given:
                await make(scope, receive, send)
                return
            context = trace.SpanContext(int(given), 7, is_remote=True, trace_flags=trace.TraceFlags(1))
            with trace.use_span(trace.NonRecordingSpan(context)):
                await make(scope, receive, send)

        server.listener.config.loaded_app = traced
        talks = [Talk(server, f"s{at}") for at in range(3)]
        for talk in talks:
            talk.fill(0.79)

        def cross(at: int) -> int:
            body = {"messages": [{"role": "user", "content": "more words " * 600}]}
            return server.post(f"{talks[at].path}/messages", body, X_Caller=str(at + 1)).status

        with ThreadPoolExecutor(3) as callers:
            assert list(callers.map(cross, range(3))) == [200] * 3
        assert [talk.jobs[0].trace[:35] for talk in talks] == [f"00-{at:032x}" for at in (1, 2, 3)]
        assert json.dumps(told(server)).count("00-0000") == 0  # it is nobody's business but the operator's
