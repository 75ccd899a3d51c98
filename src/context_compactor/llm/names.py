"""Opens a model by its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit

from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.llm.client import Client, Named, Wire
from context_compactor.measure.windows import known_model, output_limit_for, window_for
from context_compactor.settings import Settings

FORMS = "openai/NAME, anthropic/NAME, litellm/NAME or an address such as http://127.0.0.1:8080/v1#NAME"

# What a model of which nothing is known takes and gives. Too little costs a call more; too much fails.
UNKNOWN_WINDOW = 8_192
UNKNOWN_OUTPUT = 2_048


def open_model(name: str, settings: Settings, env: Mapping[str, str] = os.environ) -> Client:
    """The model of this name, ready to write. Nothing is sent yet.

    `openai/` wants `OPENAI_API_KEY`, `anthropic/` wants `ANTHROPIC_API_KEY` (or `ANTHROPIC_AUTH_TOKEN`), and both
    follow `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`. An address works without a key; it is sent `MODEL_API_KEY` if
    there is one, and never the key of somebody else.
    """
    if name.startswith(("http://", "https://")):
        return _at_address(name, settings, env)
    provider, _, model = name.partition("/")
    if provider not in ("openai", "anthropic", "litellm") or not model.strip():
        raise BadSetting(f"model: {name!r} names no model; write {FORMS}")
    _need(provider, name)
    return Client(_named(name, model, settings), _wire(provider, name, env))


def _wire(provider: str, name: str, env: Mapping[str, str]) -> Wire:
    if provider == "openai":
        from context_compactor.llm.openai_client import OpenAIWire

        return OpenAIWire(_key(name, env, "OPENAI_API_KEY"), env.get("OPENAI_BASE_URL") or None)
    if provider == "anthropic":
        from context_compactor.llm.anthropic_client import AnthropicWire

        token = None if env.get("ANTHROPIC_API_KEY") else env.get("ANTHROPIC_AUTH_TOKEN") or None
        key = None if token else _key(name, env, "ANTHROPIC_API_KEY")
        return AnthropicWire(key, token, env.get("ANTHROPIC_BASE_URL") or None)
    from context_compactor.llm.litellm_client import LiteLLMWire

    return LiteLLMWire()


def _at_address(name: str, settings: Settings, env: Mapping[str, str]) -> Client:
    address, _, model = name.partition("#")
    if not model.strip() or not _host(address):
        raise BadSetting(f"model: {name!r} is no address with a model behind a #; write {FORMS}")
    _need("openai", name)
    from context_compactor.llm.openai_client import OpenAIWire

    return Client(_named(name, model, settings), OpenAIWire(env.get("MODEL_API_KEY") or "none", address))


def _host(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        return parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:  # a port that is no number
        return None


def _named(name: str, model: str, settings: Settings) -> Named:
    override = settings.model_window
    if override is None and known_model(model) is None:
        source = "unknown model: assumed; model_window sets it"
        return Named(name=name, model=model, window=UNKNOWN_WINDOW, most_output=UNKNOWN_OUTPUT, source=source)
    window = window_for(model, override)
    most = min(output_limit_for(model) or window.tokens // 4, max(window.tokens // 2, 1))
    return Named(name=name, model=model, window=window.tokens, most_output=most, source=window.source)


def _need(extra: str, name: str) -> None:
    if find_spec(extra) is None:
        raise MissingExtra(f"the model {name}", extra)


def _key(name: str, env: Mapping[str, str], variable: str) -> str:
    key = env.get(variable, "").strip()
    if not key:
        raise BadSetting(f"model: {name} needs a key in {variable}, which is not set; `export {variable}=…` sets it")
    return key
