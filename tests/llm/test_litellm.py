"""The same promises through litellm."""

from __future__ import annotations

import pytest

from context_compactor.errors import ModelDenied, ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.settings import Settings
from context_compactor.summarize.clients.names import open_model
from context_compactor.tokens.prices import ModelUsage
from tests.llm.asking import ask, control
from tests.llm.formats import FORMATS
from tests.llm.provider import Reply, failure
from tests.waiting import PATIENCE

WIRE = FORMATS["openai"]

pytestmark = pytest.mark.filterwarnings("ignore")  # it warns of its own dependencies


@pytest.fixture
def model(provider, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_BASE", f"{provider.url}/v1")
    return open_model("litellm/openai/gpt-4.1-mini", Settings())


def test_an_answer_has_its_text_and_usage(provider, model):
    provider.replies = [Reply(pieces=[*WIRE.text("Good ", "morning"), *WIRE.end()])]
    heard = []
    answer = model.write(ask(), control(on_text=heard.append))
    assert (answer.text, answer.stop, heard) == ("Good morning", "complete", ["Good ", "morning"])
    assert answer.usage == ModelUsage(input=40, cache_read=60, output=7)


@pytest.mark.parametrize(
    ("status", "words", "error"),
    [
        (401, "Incorrect API key provided", ModelDenied),
        (400, "This model's maximum context length is 8192 tokens.", ModelOverflow),
        (429, "Rate limit reached", ModelUnavailable),
        (503, "oops", ModelUnavailable),
    ],
)
def test_errors_have_their_place_in_the_tree_and_nothing_is_sent_twice(provider, model, status, words, error):
    provider.replies = [failure(status, WIRE.error("x", words))]
    with pytest.raises(error):
        model.write(ask(), control())
    assert len(provider.bodies) == 1


def test_a_connection_lost_in_mid_stream_is_worth_a_retry(provider, model):
    provider.replies = [Reply(pieces=WIRE.text("Good "), end="drop")]
    with pytest.raises(ModelUnavailable):
        model.write(ask(), control())


def test_a_cancel_closes_the_stream(provider, model):
    provider.replies = [Reply(pieces=WIRE.text("la "), end="endless")]
    asked = control()
    asked.on_text = lambda _: asked.cancel.set()
    with pytest.raises(ModelStopped, match="cancelled"):
        model.write(ask(max_tokens=20_000), asked)
    assert provider.gone.wait(PATIENCE)
