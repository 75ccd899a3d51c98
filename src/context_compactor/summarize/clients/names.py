"""Opens a model by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from context_compactor.errors import BadSetting, MissingExtra, ModelStopped
from context_compactor.settings import Settings, is_address
from context_compactor.summarize.clients.client import (
    ModelClient,
    ModelSpec,
    ProviderAdapter,
    Secrets,
    read_key,
    without_userinfo,
)
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest
from context_compactor.tokens.models import known_model, output_limit_for, own_entry, window_for

FORMS = "openai/NAME, anthropic/NAME, litellm/NAME or an address such as http://127.0.0.1:8080/v1#NAME"

# What a model of which nothing is known takes and gives. Too little costs a call more; too much fails.
UNKNOWN_WINDOW = 8_192
UNKNOWN_OUTPUT = 2_048


def open_model(name: str, settings: Settings, env: Mapping[str, str] = os.environ) -> ModelClient:
    """The model of this name, ready to write. Nothing is sent yet.

    `openai/` wants `OPENAI_API_KEY`, `anthropic/` wants `ANTHROPIC_API_KEY` (or `ANTHROPIC_AUTH_TOKEN`), and both
    follow `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`. An address works without a key; it is sent `MODEL_API_KEY` if
    there is one, and never the key of somebody else. A user and a password in it are sent, but are no part of its name.
    """
    named = _model_spec(name, _model_of(name), settings)
    provider = "openai" if is_address(name) else name.partition("/")[0]
    if find_spec(provider) is None:
        raise MissingExtra(f"the model {named.name}", provider)
    return ModelClient(named, _adapter_for(provider, name, env), Secrets(env, name))


class UnopenedModel:
    """A model of which only the name and the limits are known. It cannot be asked."""

    def __init__(self, named: ModelSpec) -> None:
        self.name = named.name
        self.window = named.window
        self.most_output = named.most_output

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:  # noqa: ARG002
        """Nothing: it raises `ModelStopped`."""
        raise ModelStopped(f"{self.name} is not open, so no request was sent")


def describe_model(name: str, settings: Settings) -> UnopenedModel:
    """The model of this name without a client: no key and no extra is needed."""
    return UnopenedModel(_model_spec(name, _model_of(name), settings))


def _model_of(name: str) -> str:
    """The name that the server knows, or `BadSetting` when it names no model."""
    if is_address(name):
        address, _, model = name.partition("#")
        if not model.strip() or not _host(address):
            shown = re.sub(r"//.*@", "//", name)
            raise BadSetting(f"model: {shown!r} is not a URL followed by # and a model name; write {FORMS}")
        return model
    provider, _, model = name.partition("/")
    if provider not in ("openai", "anthropic", "litellm") or not model.strip():
        raise BadSetting(f"model: {name!r} is not a model name; write {FORMS}")
    return model


def _adapter_for(provider: str, name: str, env: Mapping[str, str]) -> ProviderAdapter:
    if provider == "openai":
        from context_compactor.summarize.clients.openai import OpenAIAdapter

        if is_address(name):
            return OpenAIAdapter(read_key(env, "MODEL_API_KEY") or "none", name.partition("#")[0], is_own=True)
        return OpenAIAdapter(_key(name, env, "OPENAI_API_KEY"), env.get("OPENAI_BASE_URL") or None)
    if provider == "anthropic":
        from context_compactor.summarize.clients.anthropic import AnthropicAdapter

        token = None if env.get("ANTHROPIC_API_KEY") else read_key(env, "ANTHROPIC_AUTH_TOKEN") or None
        key = None if token else _key(name, env, "ANTHROPIC_API_KEY")
        return AnthropicAdapter(key, token, env.get("ANTHROPIC_BASE_URL") or None)
    from context_compactor.summarize.clients.openai import LiteLLMAdapter

    return LiteLLMAdapter()


def _host(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        return parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:  # a port that is no number
        return None


def _model_spec(name: str, model: str, settings: Settings) -> ModelSpec:
    name = without_userinfo(name)
    override, entries = settings.summarizer_window, settings.models
    own = own_entry(name, entries) or own_entry(model, entries)
    if override is None and own is not None:
        override = own.window
    if override is None and known_model(model) is None:
        source = "unknown model: assumed; summarizer_window sets it"
        return ModelSpec(name=name, model=model, window=UNKNOWN_WINDOW, most_output=UNKNOWN_OUTPUT, source=source)
    window = window_for(model, override)
    most = max(min(output_limit_for(model, entries) or window.tokens // 4, window.tokens // 2), 1)
    return ModelSpec(name=name, model=model, window=window.tokens, most_output=most, source=window.source)


def _key(name: str, env: Mapping[str, str], variable: str) -> str:
    key = read_key(env, variable)
    if not key:
        raise BadSetting(f"model: {name} needs a key in {variable}, which is not set; `export {variable}=…` sets it")
    return key
