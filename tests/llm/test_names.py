"""How a model is named, and what is said when it cannot be opened."""

from __future__ import annotations

import subprocess
import sys

import pytest

from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.settings import Settings
from context_compactor.summarize.clients import names
from context_compactor.summarize.clients.names import FORMS, UNKNOWN_WINDOW, open_model

KEYS = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai/gpt-4.1-mini", 1_047_576),
        ("anthropic/claude-haiku-4-5", 200_000),
        ("http://127.0.0.1:8080/v1#smollm2", UNKNOWN_WINDOW),
        ("https://example.org/v1#qwen3-coder-30b", 262_144),
    ],
)
def test_a_model_is_opened_by_its_name_and_knows_its_window(name, window):
    model = open_model(name, Settings(), KEYS)
    assert (model.name, model.window) == (name, window)
    assert 0 < model.most_output <= window // 2
    assert name in model.describe()
    assert f"{window:,}" in model.describe()


def test_the_window_can_be_set():
    model = open_model("http://127.0.0.1:8080/v1#smollm2", Settings(summarizer_window=2_048), {})
    assert (model.window, model.most_output) == (2_048, 512)
    assert "from the setting" in model.describe()


@pytest.mark.parametrize(
    "name",
    ["", "gpt-4.1", "openai/", "openai", "mistral/large", "http://", "http://host/v1", "http://host/v1#",
     "http://:80/v1#x", "http://host:port/v1#x", "ftp://host/v1#x", "OPENAI/gpt"],
)  # fmt: skip
def test_any_other_name_is_refused_with_the_forms_that_work(name):
    with pytest.raises(BadSetting) as caught:
        open_model(name, Settings(), KEYS)
    assert repr(name) in str(caught.value)
    assert FORMS in str(caught.value)


@pytest.mark.parametrize(
    ("name", "variable"), [("openai/gpt-4.1", "OPENAI_API_KEY"), ("anthropic/claude-opus-5", "ANTHROPIC_API_KEY")]
)
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_named(name, variable, value):
    with pytest.raises(BadSetting, match=variable):
        open_model(name, Settings(), {} if value is None else {variable: value})


@pytest.mark.parametrize("name", ["openai/x", "anthropic/x", "litellm/x", "http://host/v1#x"])
def test_a_missing_extra_is_named(monkeypatch, name):
    monkeypatch.setattr(names, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\["):
        open_model(name, Settings(), KEYS)


def test_importing_the_package_or_the_values_imports_no_client():
    code = "import sys, context_compactor.summarize.model, context_compactor.testing; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"openai", "anthropic", "litellm", "httpx", "httpx2", "asyncio"} & set(loaded)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, context_compactor; print(*sys.modules)"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "context_compactor.summarize.clients" not in bare.stdout.split()
