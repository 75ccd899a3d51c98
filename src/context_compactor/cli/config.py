"""`compactor config`: every setting, its value, and where that came from."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from context_compactor.cli.options import AsJson
from context_compactor.cli.output import paper, print_json, write_text
from context_compactor.setting_words import open_text, setting_docs, shown
from context_compactor.settings import LoadedSettings, Settings, load_settings

Prompt = Annotated[bool, typer.Option("--prompt", help="Print what a model is asked for a summary, and nothing else.")]


def config(prompt: Prompt = False, as_json: AsJson = False) -> None:
    """Print every setting with its value and where it came from.

    Values come from the defaults, then `.compactor/config.toml`, then `COMPACTOR_*` variables.

    Example: `compactor config`
    """
    loaded = load_settings()
    if prompt:
        from context_compactor.prompts.prompt import effective_prompt

        write_text(effective_prompt(loaded.settings))
    elif as_json:
        print_json(_as_json(loaded))
    else:
        _print_table(loaded)


def _as_json(loaded: LoadedSettings) -> dict[str, Any]:
    values = msgspec.to_builtins(loaded.settings)
    values["store"] = open_text(values["store"])
    docs = setting_docs()
    rows = {
        name: {"value": values[name], "origin": loaded.origins[name], "description": docs.get(name, "")}
        for name in values
    }
    return {"settings": rows, "ignored": list(loaded.ignored)}


def _print_table(loaded: LoadedSettings) -> None:
    out = paper(beside_output=False)
    values = {name: shown(getattr(loaded.settings, name)) for name in Settings.__struct_fields__}
    names, widest = max(map(len, values)), max(map(len, values.values()))
    for name, value in values.items():
        origin = loaded.origins[name]
        out.print(f"{name:<{names}}  {value:<{widest}}  {origin}", style="dim" if origin == "default" else "bold")
    for variable in loaded.ignored:
        out.print(f"{variable} names no setting and is ignored", style="yellow")
