"""`compactor config`: every setting, its value, and where that came from."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import typer

from context_compactor import settings as settings_module
from context_compactor.cli.options import AsJson
from context_compactor.cli.output import paper, print_json, write_text
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


def setting_docs() -> dict[str, str]:
    """What each setting does, as it is written under its field."""
    module = ast.parse(inspect.getsource(settings_module))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    docs: dict[str, str] = {}
    for field, under in pairwise(classes[Settings.__name__].body):
        if isinstance(field, ast.AnnAssign) and isinstance(under, ast.Expr) and isinstance(under.value, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(under.value.value).split())
    return docs


def shown(value: Any) -> str:
    """A value as it would be written in the environment."""
    if isinstance(value, tuple):
        return ",".join(f"{rule.level}={rule.threshold:.2f}:{rule.target:.2f}" for rule in value)
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else _open_text(str(value))


def _open_text(text: str) -> str:
    from context_compactor.store.address import without_password

    return without_password(text)


def _as_json(loaded: LoadedSettings) -> dict[str, Any]:
    values = msgspec.to_builtins(loaded.settings)
    values["store"] = _open_text(values["store"])
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
