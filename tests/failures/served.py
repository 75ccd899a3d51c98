"""A provider over real HTTP that answers by what it is asked, in both wire formats, and what a content makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from context_compactor import Compaction, Settings, compact
from context_compactor.summarize.clients.client import ModelClient
from context_compactor.summarize.clients.names import open_model
from context_compactor.summarize.model import ModelMessage, ModelRequest
from tests.engine.test_model import working_day
from tests.llm.formats import FORMATS, Format
from tests.llm.provider import Provider, Reply

DAY = working_day(12)
TARGET = 3_000
DIGEST = compact(DAY, target_tokens=TARGET)
"""The same content without a model."""
WIRES = list(FORMATS.values())
NO_DELAY = Settings(retry_delay_seconds=0.0)
Answer = Callable[[ModelRequest], Reply]


class Serving(Provider):
    """Gives each request the reply that `answer` finds for it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__()

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        self.replies = [self.answer(asked(await request.json()))]
        return await super()._reply(request)


@contextmanager
def serving(answer: Answer | Reply) -> Iterator[Serving]:
    """A provider that is there for as long as it is needed."""
    provider = Serving(answer if callable(answer) else lambda _: answer)
    try:
        yield provider
    finally:
        provider.close()


def asked(body: dict[str, Any]) -> ModelRequest:
    """What a body of either format asks for."""
    system = [ModelMessage("system", part["text"]) for part in body.get("system", ())]
    said = [ModelMessage(each["role"], each["content"]) for each in body["messages"]]
    most = body.get("max_tokens") or body["max_completion_tokens"]
    return ModelRequest(messages=(*system, *said), max_tokens=most)


def says(wire: Format, text: str, stop: str = "complete") -> Reply:
    """A reply of this text."""
    return Reply(pieces=[*wire.text(text), *wire.end(stop)])


def saying(wire: Format, answer: Callable[[ModelRequest], str]) -> Answer:
    """Replies with the text that a function makes of a request."""
    return lambda request: says(wire, answer(request))


def told(wire: Format, answer: Answer | Reply, settings: Settings = NO_DELAY) -> tuple[Compaction, Serving]:
    """The content compacted with a provider that answers so."""
    with serving(answer) as provider:
        result = compact(DAY, target_tokens=TARGET, summarizer=wire.client(provider.url), settings=settings)
    return result, provider


def small(provider: Provider, window: int) -> ModelClient:
    """A model at the provider's address with a window of this size."""
    return open_model(f"{provider.url}/v1#small", Settings(summarizer_window=window), {})


def body_text(body: dict[str, Any]) -> str:
    """Everything that a body says."""
    return "\n".join(message.text for message in asked(body).messages)


def outcomes(result: Compaction) -> list[str]:
    """What became of each call."""
    return [call.outcome for call in result.report.model_calls]


def assert_digest(result: Compaction) -> None:
    """The context is the one without a model, and the report says so."""
    assert result.messages == DIGEST.messages
    assert result.report.summarized_by == ""
    assert result.report.status == "success"
    assert "the one without a model stands" in result.report.reason
