"""`compactor token`: who may call a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from context_compactor.cli.options import AsJson
from context_compactor.cli.output import paper, print_json
from context_compactor.errors import BadSetting

DEFAULT_FILE = Path(".compactor/tokens")

Action = Annotated[str, typer.Argument(metavar="add|list|remove", help="What to do.")]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The name of the token.")]
File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The token file of the server.")]
Namespace = Annotated[
    str, typer.Option(metavar="N", help="The sessions it sees; without, the default ones.", show_default=False)
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="It may look, and change nothing.")]


def token(
    action: Action,
    name: Name = None,
    file: File = DEFAULT_FILE,
    namespace: Namespace = "",
    read_only: ReadOnly = False,
    as_json: AsJson = False,
) -> None:
    """Make, list or remove the tokens with which programs call a server. Only hashes are kept.

    A new token is printed once, on standard output, and cannot be shown again. A running server knows of a change
    within a second.

    Example: `compactor token add ci --namespace team` then `compactor serve --token-file .compactor/tokens`
    """
    if action == "list":
        _list(file, as_json)
    elif action == "add":
        _add(file, _needed(name, action), namespace, read_only, as_json)
    elif action == "remove":
        _remove(file, _needed(name, action), as_json)
    else:
        raise BadSetting(f"token: {action[:40]!r} is not known. Try: add, list or remove.")


def _needed(name: str | None, action: str) -> str:
    if name is None:
        raise BadSetting(f"token {action}: which one? Try: `compactor token {action} NAME`.")
    return name


def _list(file: Path, as_json: bool) -> None:
    from context_compactor.server.tokens import read_tokens

    known = [{"name": each.name, "namespace": each.namespace, "kind": each.kind} for each in read_tokens(file)]
    if as_json:
        print_json({"file": str(file), "tokens": known})
        return
    out = paper(beside_output=False)
    if not known:
        out.print(f"There is no token in {file}. Try: `compactor token add NAME`.")
        return
    out.print(f"{'token':<24} {'may':<6} namespace", style="bold")
    for each in known:
        out.print(f"{each['name']:<24} {each['kind']:<6} {each['namespace'] or '(default)'}")


def _add(file: Path, name: str, namespace: str, read_only: bool, as_json: bool) -> None:
    from context_compactor.server.tokens import add_token

    secret = add_token(file, name, namespace, read_only=read_only)
    if as_json:
        print_json({"file": str(file), "name": name, "namespace": namespace, "token": secret})
        return
    paper(beside_output=False).print(secret)
    paper(beside_output=True).print(f"{name!r} was added to {file}; the token is shown this once", style="dim")


def _remove(file: Path, name: str, as_json: bool) -> None:
    from context_compactor.server.tokens import remove_token

    gone = remove_token(file, name)
    if as_json:
        print_json({"file": str(file), "removed": gone.name})
    else:
        paper(beside_output=False).print(f"{gone.name!r} was removed from {file}")
