"""Spans along the stages, for programs that have set OpenTelemetry up; for all others nothing, not even an import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace

from context_compactor import Session, compact
from context_compactor.tracing import traced
from tests.cli.conftest import conversation
from tests.waiting import PATIENCE


class Span(trace.NonRecordingSpan):
    """A span that remembers what it was told."""

    def __init__(self, name: str, parent: str) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name = name
        self.parent = parent
        self.attributes: dict[str, object] = {}
        self.status = ""

    def is_recording(self) -> bool:
        return True

    def set_attributes(self, attributes) -> None:
        self.attributes.update(attributes)

    def set_status(self, status, description=None) -> None:
        self.status = f"{status.name} {description}"


class Tracer:
    """Keeps all spans in the order in which they began."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._open: list[str] = [""]

    @contextmanager
    def start_as_current_span(self, name: str, context: object = None, **_: object) -> Iterator[Span]:
        span = Span(name, self._open[-1])
        self.spans.append(span)
        self._open.append(name)
        try:
            yield span
        finally:
            self._open.pop()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def tracer(monkeypatch) -> Tracer:
    made = Tracer()
    monkeypatch.setattr(trace, "get_tracer", lambda _: made)
    return made


STAGES = {"measure", "classify", "plan", "write", "verify", "apply", "archive"}


def test_a_compaction_is_a_span_with_its_stages_within(tracer):
    result = compact(conversation(), target_tokens=9_000)
    whole = tracer.named("compact")
    assert len(whole) == 1
    assert whole[0].attributes["compactor.tokens_before"] == result.report.tokens_before
    assert whole[0].attributes["compactor.tokens_after"] == result.report.tokens_after
    assert whole[0].attributes["compactor.status"] == "success"
    assert {span.name for span in tracer.spans} == {"compact"} | STAGES
    assert {span.parent for span in tracer.spans if span.name != "apply"} == {"", "compact"}
    assert {span.parent for span in tracer.named("apply")} == {"write"}


def test_that_of_a_session_is_one_span_up_to_its_commit(tracer):
    with Session.open("run", window=200_000, store="memory:") as session:
        session.append(conversation())
        tracer.spans.clear()
        session.compact(target_tokens=9_000, level="soft")
    assert len(tracer.named("compact")) == 1
    assert tracer.named("compact")[0].attributes["compactor.session_id"] == "run"
    assert {span.name for span in tracer.spans} == {"compact", "commit"} | STAGES
    assert [span.parent for span in tracer.named("commit")] == ["compact"]


def test_spans_say_nothing_of_what_was_said(tracer):
    secret = "the password is hunter2"
    compact([{"role": "user", "content": secret}, *conversation()], target_tokens=9_000)
    found = repr([(span.name, span.attributes, span.status) for span in tracer.spans])
    assert "hunter2" not in found


def test_of_an_error_only_its_kind_is_told(tracer):
    @traced("plan")
    def fail() -> None:
        raise ValueError("the password is hunter2")

    with pytest.raises(ValueError, match="hunter2"):
        fail()
    assert tracer.spans[0].status == "ERROR ValueError"


def test_after_an_error_the_next_compaction_is_whole_again(tracer):
    @traced("compact")
    def fail() -> None:
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fail()
    assert len(tracer.named("compact")) == 2


def test_who_has_not_set_it_up_does_not_load_it():
    code = (
        "from context_compactor import compact; import sys\n"
        "messages = [{'role': 'user', 'content': f'Request {n}: ' + 'word ' * 400} for n in range(40)]\n"
        "compact(messages, target_tokens=4_000)\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_without_an_sdk_spans_are_nothing():
    """The programming interface is loaded here, but nobody collects."""
    assert compact(conversation(), target_tokens=9_000).report.status == "success"
