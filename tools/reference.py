"""Reference pages made from the code. `python -m tools.reference --write` writes them; `make check` compares."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import typer.main

import context_compactor
from context_compactor.cli.main import app
from context_compactor.settings import ENV_PREFIX, Settings, expected, setting_docs, setting_text
from context_compactor.tokens.models import KNOWN_MODELS, TABLE_DATE
from tools.legality import legality_page

_MADE = "<!-- Made from the code by `make reference`. Change the code, not this page. -->\n"

_SETTINGS_INTRODUCTION = """\
Settings come from the default, `.compactor/config.toml`, the environment and the arguments of a command or function;
the last one wins. `compactor config` prints each value and where it came from. For a value outside its range the error
names the setting, the value, the range and the source.
"""


def settings_page() -> str:
    """Every setting with its default, its range and what it does."""
    docs, defaults = setting_docs(), Settings()
    blocks = ["# Settings", _MADE, _SETTINGS_INTRODUCTION]
    for name in Settings.__struct_fields__:
        blocks.append(
            f"## {name}\n\n{docs[name]}\n\n"
            f"- default: `{setting_text(getattr(defaults, name))}`\n"
            f"- accepts: {expected(name)}\n"
            f"- environment: `{ENV_PREFIX}{name.upper()}`\n"
        )
    return "\n".join(blocks)


def cli_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    blocks = ["# Command line", _MADE, f"{group.help} {group.epilog}\n"]
    for name, command in group.commands.items():
        if command.hidden:
            continue
        usage = " ".join(["compactor", name, *(_usage(param) for param in _shown(command) if param.name != "help")])
        blocks.append(f"## compactor {name}\n\n{inspect.cleandoc(command.help)}\n\n```text\n{usage}\n```\n")
        blocks.append("\n".join(_parameter_rows(command)) + "\n")
    return "\n".join(blocks)


def library_page() -> str:
    """Every name that `context_compactor` exports, functions first, with its docstring and its members."""
    blocks = ["# Library", _MADE]
    names = [name for name in context_compactor.__all__ if not name.startswith("_")]
    for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
        value = getattr(context_compactor, name)
        blocks.append(f"## {name}\n\n```python\n{_signature(name, value)}\n```\n\n{inspect.getdoc(value)}\n")
        blocks += [f"{member}\n" for member in ["\n".join(_members(value))] if member]
    return "\n".join(blocks)


_HTTP_INTRODUCTION = """\
JSON in and out, errors as `application/problem+json`. The same, with every field, is at `/openapi.json` of a running
server; [the how-to](../how-to/server.md) shows it in use. A read-only token can call the routes marked *read*.

A body may be compressed, with `Content-Encoding: gzip`; the size limits also apply to the uncompressed body. A body
that cannot be read is answered with 400, another encoding with 415.

With the header `Idempotency-Key` a repeated request to a route marked *write* does nothing and gets the first answer,
with `Idempotency-Replayed: true`. Keys are kept for a day.
"""


def http_page() -> str:
    """Every route of the server with what it takes and answers, and every verb of the client."""
    from context_compactor.client import Client
    from context_compactor.sessions.verbs import VERBS, Verb, Verbs

    blocks = ["# HTTP and the Python client", _MADE, _HTTP_INTRODUCTION]
    for verb in VERBS:
        kind = "open" if verb.is_open else "write" if verb.writes else "read"
        blocks.append(f"## {verb.method} {verb.path}\n\n{' '.join(verb.doc.split())} *{kind}*\n")
        blocks.append("\n".join(_fields(verb)) + "\n")
    blocks.append(
        f"## Client\n\n```python\nfrom context_compactor.client import Client\n```\n\n{inspect.getdoc(Client)}\n"
    )
    methods = [(name, verb) for name, verb in vars(Verbs).items() if isinstance(verb, Verb)]
    lines = [
        f"- `{name}({', '.join(_arguments(verb.arguments))})`: {verb.doc.splitlines()[0]}" for name, verb in methods
    ]
    blocks.append("\n".join([*lines, *_members(Client)]) + "\n")
    return "\n".join(blocks)


def _fields(verb: Any) -> Iterator[str]:
    for what, kind in (("body", verb.body), ("query", verb.query), ("answer", verb.answer)):
        names = ", ".join(f"`{name}`" for name in getattr(kind, "__struct_fields__", ()))
        if names:
            yield f"- {what}: {names}"


def _members(value: Any) -> Iterator[str]:
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        doc = inspect.getdoc(member.__func__ if isinstance(member, classmethod) else member)
        if not name.startswith("_") and doc and isinstance(member, property | classmethod | FunctionType):
            arguments = "" if isinstance(member, property) else f"({', '.join(_arguments(member))})"
            yield f"- `{name}{arguments}`: {doc.splitlines()[0]}"


def _arguments(member: Any) -> Iterator[str]:
    """The names of a method's arguments, with their defaults."""
    function = member.__func__ if isinstance(member, classmethod) else member
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        has_default = parameter.default is not inspect.Parameter.empty and not callable(parameter.default)
        name = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
        yield f"{name}={parameter.default!r}" if has_default else name


def _shown(command: Any) -> list[Any]:
    """The parameters of a command without former names, which are only still read."""
    return [param for param in command.params if not getattr(param, "hidden", False)]


def _usage(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar)
    value = "" if param.is_flag else f" {param.metavar or '|'.join(map(str, param.type.choices))}"
    return f"[{param.opts[-1]}{value}]"


def _parameter_rows(command: Any) -> Iterator[str]:
    yield "| argument | meaning |"
    yield "|---|---|"
    for param in _shown(command):
        names = param.metavar if param.param_type_name == "argument" else ", ".join(param.opts)
        names = str(names).replace("|", chr(92) + "|")
        yield f"| `{names}` | {' '.join(str(param.help or '').split()).replace('|', chr(92) + '|')} |"


def _signature(name: str, value: Any) -> str:
    """A function's head as it stands in the source, a class by its name."""
    if inspect.isclass(value):
        return f"class {name}"
    source = inspect.getsource(value)
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return "\n".join(source.splitlines()[: function.body[0].lineno - 1])


_MODELS_INTRODUCTION = f"""\
What is known of models: newest first, as of {TABLE_DATE}. `compactor doctor` names the date too. Your own entries in
the setting [`models`](settings.md#models) come before these; [why](../why/models.md) says how names are matched, and
where sources disagree.

Windows and answers are in tokens; where a maker limits the input apart from the output, the window is the input's.
Prices are US dollars for a million tokens. *Cache* is how long an unused prefix stays in the provider's cache, where
its maker says so; for Claude it is an hour for what was written at the price for an hour.
"""


def models_page() -> str:
    """Every model of the table, then the families for names that are not in it."""
    head = "| model | window | answer | input | cache read | cache write | for an hour | output | cache | source |"
    rows = [head, "|---|---|---|---|---|---|---|---|---|---|"]
    for known in (each for each in KNOWN_MODELS if each.price):
        price = known.price
        assert price is not None
        rates = (price.input, price.cache_read, price.cache_write, price.cache_write_hour, price.output)
        life = "" if known.cache_seconds is None else f"{known.cache_seconds // 60} min"
        cells = [f"`{known.name}`", f"{known.window:,}", f"{known.output:,}", *map(_rate, rates), life]
        rows.append(f"| {' | '.join(cells)} | {known.source}, {known.seen} |")
    longer = [
        f"- `{known.name}`: above {known.price.long_above:,} tokens {known.price.long_input:g} times as much to read, "
        f"{known.price.long_output:g} times to answer"
        for known in KNOWN_MODELS
        if known.price and known.price.long_above
    ]
    families = ["| names like | window | answer |", "|---|---|---|"]
    families += [f"| {known.name} | {known.window:,} | {known.output:,} |" for known in KNOWN_MODELS if known.is_family]
    blocks = ["# Models", _MADE, _MODELS_INTRODUCTION, "\n".join(rows) + "\n"]
    blocks += ["## Long requests\n", "\n".join(longer) + "\n"]
    blocks += ["## Families\n", "For other versions: a guess at the window, kept small, and no price.\n"]
    return "\n".join([*blocks, "\n".join(families) + "\n"])


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.6f}".rstrip("0").rstrip(".")


PAGES: dict[Path, Callable[[], str]] = {
    Path("docs/reference/settings.md"): settings_page,
    Path("docs/reference/models.md"): models_page,
    Path("docs/reference/cli.md"): cli_page,
    Path("docs/reference/library.md"): library_page,
    Path("docs/reference/http.md"): http_page,
    Path("docs/reference/legality.md"): partial(legality_page, _MADE),
}


def main(arguments: list[str]) -> int:
    """Write the pages, or print them."""
    for path, make in PAGES.items():
        if "--write" in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(make(), encoding="utf-8")
        else:
            print(make())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
