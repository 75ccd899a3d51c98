"""Talk with a real model over real HTTP. What it says is often poor; that the conversation goes on is what counts."""

from __future__ import annotations

import pytest

from context_compactor.summarize.clients.client import ModelClient
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest
from context_compactor.tui.chat.chats import Chats
from context_compactor.tui.chat.models import ModelChoice
from tests.llm.conftest import small_model  # noqa: F401
from tests.llm.small_model import SmallModel
from tests.tui.chatting import Place, assert_valid, run, send, show
from tests.tui.places import WIDE, enter, screen_text, settle, until

pytestmark = pytest.mark.slow

WINDOW, TURNS = 800, 8
WORDS = "The keeper of the lighthouse counts the ships that pass the rock, and writes them down. " * 4


@pytest.fixture
def model(small_model: SmallModel, monkeypatch) -> SmallModel:  # noqa: F811
    given = {"IDLE_SECONDS": "0", "PROMOTE_TO_MEMORY": "off", "RESERVE_OUTPUT_TOKENS": "40", "RETRY_DELAY_SECONDS": "0"}
    for name, value in given.items():
        monkeypatch.setenv(f"COMPACTOR_{name}", value)
    return small_model


def test_a_conversation_with_it_is_compacted_several_times_and_goes_on(model, monkeypatch):
    place = Place(model, window=WINDOW)
    place.chats = Chats(ModelChoice(model.name, WINDOW))
    place.chats.expect("chat")
    shown: list[int] = []
    write = ModelClient.write

    def counted(self: ModelClient, request: ModelRequest, control: Control) -> ModelAnswer:
        assert_valid({"messages": request.prefix})
        answer = write(self, request, control)
        shown.append(answer.usage.input + answer.usage.cache_read)
        return answer

    monkeypatch.setattr(ModelClient, "write", counted)

    async def story() -> None:
        for number in range(TURNS):
            exchange = await place.say(f"Question {number}. {WORDS} How many ships, and why?")
            assert [note for note in exchange.notes if note.tone == "failed"] == []
            status = await place.source.session("chat")
            assert status.line.tokens <= status.budget_tokens
        said = await place.talked()
        asked = [text for role, text in said if role == "user"]
        assert [text.split(".")[0] for text in asked] == [f"Question {number}" for number in range(TURNS)]
        assert all(text.strip() for role, text in said if role == "assistant")
        assert status.totals.compactions >= 2

    run(story, place)
    assert len(shown) >= TURNS
    assert max(shown) <= WINDOW


def test_its_answer_streams_onto_the_screen_and_can_be_ended(model, monkeypatch):
    monkeypatch.setenv("COMPACTOR_RESERVE_OUTPUT_TOKENS", "600")

    async def story(pilot) -> None:
        await send(pilot, "Tell a very long story about a lighthouse.")
        await until(pilot, lambda: "answering" in screen_text(pilot))
        await pilot.press("ctrl+c")
        await settle(pilot)
        assert "[cut off here: the user has ended the answer]" in screen_text(pilot)
        monkeypatch.setenv("COMPACTOR_RESERVE_OUTPUT_TOKENS", "24")
        await enter(pilot, "Say hello.")
        assert "4 messages" in screen_text(pilot)

    show(story, model, window=4_096, size=WIDE, model=model.name)
