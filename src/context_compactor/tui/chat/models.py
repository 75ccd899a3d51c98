"""Which model is talked to, and how it is opened."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.settings import Settings, load_settings
from context_compactor.summarize.clients.client import ModelClient
from context_compactor.tokens.models import known_model
from context_compactor.tui.sources.base import SessionLine

EXAMPLE_MODEL = "http://127.0.0.1:11434/v1#llama3.2"
MODEL_NAME_FORMS = (
    f"openai/NAME, anthropic/NAME, litellm/NAME, or the address of one of your own such as {EXAMPLE_MODEL}"
)
_TIMEOUT_SECONDS = 900.0
"""A model of one's own may read for long before it says anything, and whoever waits can end it."""
_PROVIDERS = ((r"^claude", "anthropic"), (r"^(?:gpt|chatgpt|o[1-9])\b", "openai"))


class ModelChoice(Struct, frozen=True):
    """A model by its name, the tokens it accepts where the user has said so, and who has chosen it."""

    name: str
    window: int | None = None
    by: str = ""


def choose_model(given: ModelChoice | None, line: SessionLine | None, settings: dict[str, Any]) -> ModelChoice:
    """The model that was named, else the session's own, else that of the settings; `BadSetting` when there is none."""
    if given is not None:
        return given
    own = line.model if line else ""
    if full_name(own):
        return ModelChoice(full_name(own), by="the session's own")
    setting = settings.get("model") or ""
    if setting:
        return ModelChoice(setting, by="that of the settings")
    nameless = f"; the session's own, {own!r:.60}, does not say where it is" if own else ""
    raise BadSetting(
        f"There is no model to talk to yet{nameless}. Try: `/model NAME`, or `compactor tui --model NAME`. "
        f"NAME is {MODEL_NAME_FORMS}."
    )


def default_model() -> str:
    """The model of the settings of this folder, or nothing."""
    with suppress(CompactorError):  # settings that cannot be read are reported by who needs them
        return load_settings().settings.model or ""
    return ""


def full_name(model: str) -> str:
    """A model's name with its provider, which agents leave out; nothing when nobody knows whose it is."""
    if model.startswith(("http://", "https://")):
        return model if "#" in model else ""
    if model.startswith(("openai/", "anthropic/", "litellm/")):
        return model
    maker = next((maker for pattern, maker in _PROVIDERS if re.search(pattern, model)), "")
    return f"{maker}/{model}" if maker else ""


async def open_choice(chosen: ModelChoice, window: int | None = None) -> ModelClient:
    """The model, ready to be asked; `BadSetting` or `MissingExtra` say what it needs. Nothing is sent yet.

    `window` is that of the session: where nothing is known of the model, it is believed.
    """
    return await asyncio.to_thread(_open, chosen, window)  # the libraries of providers take long to load


def _open(chosen: ModelChoice, window: int | None) -> ModelClient:
    from context_compactor.summarize.clients.names import open_model

    name = full_name(chosen.name.strip()) or chosen.name.strip()
    accepts = chosen.window
    if accepts is None and not is_known_model(name):
        accepts = window
    model = open_model(name, Settings(model_window=accepts))
    model.named = structs.replace(model.named, patience=_TIMEOUT_SECONDS)
    return model


def is_known_model(name: str) -> bool:
    """Whether it is known how much a model accepts."""
    return known_model(re.split(r"[/#]", name)[-1]) is not None


def dialect_of_model(name: str) -> str:
    """The dialect that a model takes."""
    return "anthropic" if name.startswith("anthropic/") else "openai-chat"


def is_same_model(name: str, other: str) -> bool:
    """Whether two names are those of one model, with or without its provider."""
    return name == other or re.split(r"[/#]", name)[-1] == other
