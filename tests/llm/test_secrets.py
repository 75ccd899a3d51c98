"""Keys and passwords: what is sent, and what is never said."""

from __future__ import annotations

import pytest

from context_compactor.errors import BadSetting, ModelDenied, ModelError
from context_compactor.settings import Settings
from context_compactor.summarize.clients.names import describe_model, open_model
from tests.llm.asking import ask, control
from tests.llm.formats import FORMATS
from tests.llm.provider import Reply, failure

OPENAI = FORMATS["openai"]
KEY = "sk-TOPSECRET12345"
NAMED = [
    ("http://127.0.0.1:9/v1#x", "MODEL_API_KEY"),
    ("openai/gpt-4.1-mini", "OPENAI_API_KEY"),
    ("anthropic/claude-haiku-4-5", "ANTHROPIC_API_KEY"),
    ("anthropic/claude-haiku-4-5", "ANTHROPIC_AUTH_TOKEN"),
]


@pytest.mark.parametrize(("name", "variable"), NAMED)
@pytest.mark.parametrize("key", ["sk-TOP\nSECRET", "sk-TOP\x00SECRET", "sk-TOP…SECRET"])
def test_a_key_that_cannot_be_one_is_refused_by_its_variable_alone(name, variable, key):
    with pytest.raises(BadSetting, match=variable) as caught:
        open_model(name, Settings(), {variable: key})
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "variable", "address"),
    [
        ("{url}/v1#x", "MODEL_API_KEY", ""),
        ("openai/gpt-4.1-mini", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("anthropic/claude-haiku-4-5", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
    ],
)
def test_space_around_a_key_is_not_sent(provider, name, variable, address):
    wire = FORMATS["anthropic" if name.startswith("anthropic") else "openai"]
    provider.replies = [Reply(pieces=[*wire.text("Hello"), *wire.end()])]
    env = {variable: f" {KEY}\n", address: provider.url}
    open_model(name.format(url=provider.url), Settings(), env).write(ask(), control())
    assert provider.keys == [f"Bearer {KEY}"]


def test_a_key_that_the_server_repeats_is_hidden(provider, wire):
    provider.replies = [failure(401, wire.error("invalid_api_key", f"Incorrect API key provided: {KEY}"))]
    with pytest.raises(ModelDenied, match=r"provided: \[redacted:key\]") as caught:
        wire.client(provider.url, KEY).write(ask(), control())
    assert caught.value.__suppress_context__  # what the SDK says, with the key, is in no traceback


def test_a_key_in_the_name_of_the_model_that_answered_is_hidden(provider):
    said = [piece.replace(b"served-model", KEY.encode()) for piece in (*OPENAI.text("Hello"), *OPENAI.end())]
    provider.replies = [Reply(pieces=said)]
    assert OPENAI.client(provider.url, KEY).write(ask(), control()).model == "[redacted:key]"


def test_a_user_and_a_password_in_an_address_are_sent_and_never_said(provider):
    provider.replies = [
        Reply(pieces=[*OPENAI.text("Hello"), *OPENAI.end()]),
        failure(500, OPENAI.error("x", "hunter2! for bWU6aHVudGVyMiE=")),
    ]
    name = provider.url.replace("//", "//me:hunter2%21@") + "/v1#x"
    model = open_model(name, Settings(), {})
    assert model.name == describe_model(name, Settings()).name == f"{provider.url}/v1#x"
    assert "hunter2" not in model.describe()
    model.write(ask(), control())
    assert provider.keys == ["Basic bWU6aHVudGVyMiE="]
    with pytest.raises(ModelError, match=r"\[redacted:key\] for \[redacted:key\]"):
        model.write(ask(), control())


@pytest.mark.parametrize(
    "name", ["http://me:hunter2@host/v1", "http://me:hunt#er2@host/v1#x", "http://me:hunter2@:9#x"]
)
def test_a_password_is_not_repeated_when_its_address_is_refused(name):
    with pytest.raises(BadSetting) as caught:
        open_model(name, Settings(), {})
    assert "er2" not in str(caught.value)


def test_nothing_of_openais_environment_goes_to_an_address_of_ones_own(provider, monkeypatch):
    theirs = {
        "OPENAI_API_KEY": "sk-theirs", "OPENAI_ADMIN_KEY": "sk-theirs", "OPENAI_ORG_ID": "theirs",
        "OPENAI_PROJECT_ID": "theirs", "OPENAI_CUSTOM_HEADERS": "X-Mine: theirs\nAuthorization: theirs",
    }  # fmt: skip
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    provider.replies = [Reply(pieces=[*OPENAI.text("Hello"), *OPENAI.end()])]
    open_model(f"{provider.url}/v1#x", Settings()).write(ask(), control())
    assert provider.keys == ["Bearer none"]
    assert not [value for value in provider.headers[0].values() if "theirs" in value]
