"""What is sent."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_compactor.settings import Settings
from context_compactor.summarize.clients.client import encodable
from context_compactor.summarize.clients.names import open_model
from tests.llm.asking import ask, control
from tests.llm.formats import FORMATS
from tests.llm.provider import Reply, failure

EXOTIC = st.text(st.characters(exclude_categories=()), max_size=200)


def _good(wire):
    return Reply(pieces=[*wire.text("Hello"), *wire.end()])


def test_openai_gets_the_messages_the_limit_and_the_wish_for_usage(provider):
    wire = FORMATS["openai"]
    provider.replies = [_good(wire)]
    wire.client(provider.url, "secret").write(ask(), control())
    body = provider.bodies[0]
    assert body["messages"] == [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Say hello."},
    ]
    assert (body["model"], body["max_tokens"], body["stream_options"]) == ("gpt-4.1-mini", 50, {"include_usage": True})
    assert provider.keys == ["Bearer secret"]


def test_a_server_that_wants_the_other_name_of_the_limit_gets_it(provider):
    wire = FORMATS["openai"]
    words = "Unsupported parameter: 'max_tokens' is not supported with this model."
    provider.replies = [failure(400, wire.error("invalid_request_error", words)), _good(wire)]
    assert wire.client(provider.url).write(ask(), control()).text == "Hello"
    assert [("max_tokens" in body, "max_completion_tokens" in body) for body in provider.bodies] == [
        (True, False),
        (False, True),
    ]


def test_a_server_without_stream_options_is_asked_without_and_its_usage_is_unknown(provider):
    wire = FORMATS["openai"]
    answer = Reply(pieces=[*wire.text("Hello"), wire.end()[0]])
    provider.replies = [failure(422, wire.error("x", "unknown field stream_options")), answer]
    assert wire.client(provider.url).write(ask(), control()).usage.output == 0
    assert ["stream_options" in body for body in provider.bodies] == [True, False]


def test_anthropic_gets_the_system_text_apart(provider):
    wire = FORMATS["anthropic"]
    provider.replies = [_good(wire)]
    wire.client(provider.url, "secret").write(ask(), control())
    body = provider.bodies[0]
    assert body["system"] == [{"type": "text", "text": "You are brief."}]
    assert body["messages"] == [{"role": "user", "content": "Say hello."}]
    assert body["max_tokens"] == 50
    assert provider.keys[0].removeprefix("Bearer ") == "secret"


def test_a_prefix_is_sent_first_and_as_it_is(provider, wire):
    provider.replies = [_good(wire)]
    prefix = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"})
    wire.client(provider.url).write(ask(prefix=prefix), control())
    sent = provider.bodies[0]["messages"]
    assert sent[0] == prefix[0]
    assert sent[-1] == {"role": "user", "content": "Say hello."}


def test_the_end_of_a_prefix_is_marked_for_anthropics_cache_unless_it_has_marks(provider):
    wire = FORMATS["anthropic"]
    provider.replies = [_good(wire)]
    client = wire.client(provider.url)
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {"role": "user", "content": [{"type": "text", "text": "Hi", **mark}]}
    client.write(ask(prefix=({"role": "user", "content": "Hi"},)), control())
    client.write(ask(prefix=(marked, {"role": "assistant", "content": "Ho"})), control())
    assert provider.bodies[0]["messages"][0] == marked
    assert provider.bodies[1]["messages"][:2] == [marked, {"role": "assistant", "content": "Ho"}]


def test_the_limit_of_an_answer_is_never_above_the_models_own(provider, wire):
    provider.replies = [_good(wire)]
    client = wire.client(provider.url)
    client.write(ask(max_tokens=10_000_000), control())
    assert provider.bodies[0]["max_tokens"] == client.most_output


def test_an_address_is_sent_its_own_key_and_never_that_of_openai(provider):
    provider.replies = [_good(FORMATS["openai"])]
    name = f"{provider.url}/v1#local"
    for env in ({"OPENAI_API_KEY": "secret"}, {"OPENAI_API_KEY": "secret", "MODEL_API_KEY": "own"}):
        open_model(name, Settings(), env).write(ask(), control())
    assert provider.keys == ["Bearer none", "Bearer own"]
    assert provider.bodies[0]["model"] == "local"


def test_half_a_character_in_a_request_or_a_prefix_stops_nothing(provider, wire):
    provider.replies = [_good(wire)]
    prefix = ({"role": "user", "content": [{"type": "text", "text": "a\ud800b"}]},)
    wire.client(provider.url).write(ask("c\udfffd \x00", prefix=prefix), control())
    sent = provider.bodies[0]["messages"]
    assert sent[0]["content"][0]["text"] == "a\ufffdb"
    assert sent[-1]["content"] == "c\ufffdd \x00"


@given(EXOTIC)
def test_every_text_can_be_sent_and_a_sound_one_is_not_changed(text):
    sent = encodable({"messages": ({"content": text},)})["messages"][0]["content"]
    assert sent.encode().decode() == sent
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert sent == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EXOTIC)
def test_every_text_arrives_as_it_was_answered(provider, wire, text):
    sound = encodable(text)
    provider.bodies.clear()
    provider.replies = [Reply(pieces=[*wire.text(*sound), *wire.end()])]
    answer = wire.client(provider.url).write(ask(max_tokens=500), control())
    assert answer.text == sound
