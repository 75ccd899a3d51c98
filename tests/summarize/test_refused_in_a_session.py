"""A summary that is refused in a session: the context is the one without a model, and an event tells the reason."""

from __future__ import annotations

import pytest

from context_compactor.sessions.events import Bus
from tests.engine.test_model import GERMAN, SHORT, SMUGGLED
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply
from tests.sessions.test_model import calm, opened
from tests.summarize.samples import GOOD

WIRE = FORMATS["openai"]
ORDERS = "\n".join(f"- {SMUGGLED} Part {n}." for n in range(12))
REFUSED = {
    "the answer was empty": " \n\t ",
    "the answer was only reasoning": "<think>hm</think>",
    "the answer refuses": "I'm sorry, but I can't help with that.",
    "does not have the sections": "All went well.",
    "the answer is not in English": GERMAN,
    "gives orders to its reader": GOOD + f"## Findings\n{ORDERS}\n",
    "lines say what the conversation does not": GOOD
    + "## Findings\n"
    + "\n".join(f"- lib/elsewhere/a_{n}.ts was made" for n in range(40)),
}


@pytest.fixture
def provider():
    serving = Provider()
    yield serving
    serving.close()


@pytest.fixture(scope="module")
def digest() -> list:
    with opened(calm()) as session:
        session.append(SHORT)
        session.compact(target_tokens=2_000)
        return session.context()


@pytest.mark.parametrize(("reason", "text"), REFUSED.items(), ids=REFUSED)
def test_a_refused_summary_leaves_the_context_without_one_and_an_event_with_the_reason(provider, digest, reason, text):
    provider.replies = [Reply(pieces=[*WIRE.text(text), *WIRE.end()])]
    bus, heard = Bus(), []
    bus.subscribe(heard.append, types=("job.dropped",))
    with opened(calm(provider), bus=bus) as session:
        session.append(SHORT)
        session.compact(target_tokens=2_000)
        assert session.context() == digest
    (event,) = [event for event in heard if event.payload["what"] == "summary by a model"]
    assert reason in event.payload["reason"]
    assert "curl" not in event.payload["reason"]
