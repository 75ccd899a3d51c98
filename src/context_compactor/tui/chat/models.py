"""Which model is talked to, and how it is opened."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from context_compactor.errors import BadSetting, CompactorError
from context_compactor.llm.client import Client
from context_compactor.measure.windows import known_model
from context_compactor.settings import Settings, load_settings
from context_compactor.tui.values import SessionLine

EXAMPLE = "http://127.0.0.1:11434/v1#llama3.2"
FORMS = f"openai/NAME, anthropic/NAME, litellm/NAME, or the address of one of your own such as {EXAMPLE}"
_PATIENCE_SECONDS = 900.0
"""A model of one's own may read for long before it says anything, and whoever waits can end it."""
_MAKERS = ((r"^claude", "anthropic"), (r"^(?:gpt|chatgpt|o[1-9])\b", "openai"))


class Chosen(Struct, frozen=True):
    """A model by its name, the tokens it accepts where the user has said so, and who has chosen it."""

    name: str
    window: int | None = None
    by: str = ""


def choose(given: Chosen | None, line: SessionLine | None, settings: dict[str, Any]) -> Chosen:
    """The model that was named, else the session's own, else that of the settings; `BadSetting` when there is none."""
    if given is not None:
        return given
    own = line.model if line else ""
    if full_name(own):
        return Chosen(full_name(own), by="the session's own")
    setting = settings.get("model") or ""
    if setting:
        return Chosen(setting, by="that of the settings")
    nameless = f"; the session's own, {own!r:.60}, does not say where it is" if own else ""
    raise BadSetting(
        f"There is no model to talk to yet{nameless}. Try: `/model NAME`, or `compactor tui --model NAME`. "
        f"NAME is {FORMS}."
    )


def usual_model() -> str:
    """The model of the settings of this folder, or nothing."""
    with suppress(CompactorError):  # settings that cannot be read are told by who needs them
        return load_settings().settings.model or ""
    return ""


def full_name(model: str) -> str:
    """A model's name with its provider, which agents leave out; nothing when nobody knows whose it is."""
    if model.startswith(("http://", "https://")):
        return model if "#" in model else ""
    if model.startswith(("openai/", "anthropic/", "litellm/")):
        return model
    maker = next((maker for pattern, maker in _MAKERS if re.search(pattern, model)), "")
    return f"{maker}/{model}" if maker else ""


async def open_chosen(chosen: Chosen, window: int | None = None) -> Client:
    """The model, ready to be asked; `BadSetting` or `MissingExtra` say what it needs. Nothing is sent yet.

    `window` is that of the session: where nothing is known of the model, it is believed.
    """
    return await asyncio.to_thread(_open, chosen, window)  # the libraries of providers take long to load


def _open(chosen: Chosen, window: int | None) -> Client:
    from context_compactor.llm.names import open_model

    name = full_name(chosen.name.strip()) or chosen.name.strip()
    accepts = chosen.window
    if accepts is None and not is_known(name):
        accepts = window
    model = open_model(name, Settings(model_window=accepts))
    model.named = structs.replace(model.named, patience=_PATIENCE_SECONDS)
    return model


def is_known(name: str) -> bool:
    """Whether it is known how much a model accepts."""
    return known_model(re.split(r"[/#]", name)[-1]) is not None


def wire_of(name: str) -> str:
    """The dialect that a model takes."""
    return "anthropic" if name.startswith("anthropic/") else "openai-chat"


def is_same(name: str, other: str) -> bool:
    """Whether two names are those of one model, with or without its provider."""
    return name == other or re.split(r"[/#]", name)[-1] == other
