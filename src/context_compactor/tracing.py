"""Spans of OpenTelemetry along the stages of a compaction: `compact`, and within it `measure`, `classify` and so on.

A job is a span too, within the trace of the message that queued it.

Nothing is loaded for it. A program that wants spans has set OpenTelemetry up, and so has loaded it; where nobody has, a
stage costs a lookup in a dictionary. Spans say how much and how long, never what was said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

COMPACTION_SPAN = "compact"
_TRACER_NAME = "context_compactor"
_within: ContextVar[bool] = ContextVar("within a compaction", default=False)
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def traced(
    stage: str, attributes: Callable[[Any], Mapping[str, Any]] | None = None
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function a stage. `attributes` gives the attributes of its span from what the function returns.

    Of two whole compactions within each other, one span is made.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            api = sys.modules.get("opentelemetry.trace")
            if api is None or (stage == COMPACTION_SPAN and _within.get()):
                return function(*args, **kwargs)
            return _in_span(api, stage, attributes, lambda: function(*args, **kwargs))

        return call

    return decorate


def current_traceparent() -> str:
    """The trace that this moment belongs to, as a `traceparent` for what is done later; "" where there is none."""
    api = sys.modules.get("opentelemetry.trace")
    here = api.get_current_span().get_span_context() if api else None
    if here is None or not here.is_valid:
        return ""
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{int(here.trace_flags):02x}"


def run_in_span(name: str, written: str, attributes: Mapping[str, Any], work: Callable[[], T]) -> T:
    """Do some work as a span of the trace that was carried here, or of a new one when that is none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return work()
    return _in_span(api, name, lambda _: attributes, work, _context_of(api, written))


def _context_of(api: Any, written: str) -> Any:
    """The context of a span elsewhere; one without a span when it cannot be read."""
    found = _TRACEPARENT.fullmatch(written)
    trace, span, flags = (int(part, 16) for part in found.groups()) if found else (0, 0, 0)
    elsewhere = api.SpanContext(trace, span, is_remote=True, trace_flags=api.TraceFlags(flags))
    return api.set_span_in_context(api.NonRecordingSpan(elsewhere))


def _in_span(
    api: Any,
    stage: str,
    attributes: Callable[[Any], Mapping[str, Any]] | None,
    work: Callable[[], T],
    context: Any = None,
) -> T:
    # What an error says may quote a message, so only its kind is recorded.
    tracer = api.get_tracer(_TRACER_NAME)
    outer = _within.set(_within.get() or stage == COMPACTION_SPAN)
    try:
        with tracer.start_as_current_span(
            stage, context, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                result = work()
            except BaseException as error:
                span.set_status(api.StatusCode.ERROR, type(error).__name__)
                raise
            if attributes is not None and span.is_recording():
                span.set_attributes({f"compactor.{name}": value for name, value in attributes(result).items()})
            return result
    finally:
        _within.reset(outer)
