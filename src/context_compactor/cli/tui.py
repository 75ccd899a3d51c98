"""`compactor tui`: sessions on a terminal, to look at and to steer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.opening import store_url
from context_compactor.cli.options import StoreUrl
from context_compactor.errors import BadSetting, MissingExtra

if TYPE_CHECKING:
    from context_compactor.tui.source import Source

Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Sessions of a server instead of a store, such as http://127.0.0.1:8377."),
]
Token = Annotated[str | None, typer.Option(metavar="TOKEN", help="The server's token; other users may see it.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="A file whose first line is the server's token.")
]
Which = Annotated[str | None, typer.Option("--session", metavar="ID", help="Begin with this session.")]


def tui(
    store: StoreUrl = None,
    server: Server = None,
    token: Token = None,
    token_file: TokenFile = None,
    session: Which = None,
) -> None:
    """Show sessions on the terminal, live: how full they are, their turns by tier, compactions, facts and archive.

    Keys stand in the last line, and ? explains all of them. Without a server it is the store of this folder.

    Example: `compactor tui` or `compactor tui --server http://127.0.0.1:8377 --token-file token.txt`
    """
    try:
        from context_compactor.tui.app import CompactorApp
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("textual", "textual_plotext", "plotext", "pygments"):
            raise
        raise MissingExtra("the terminal UI", "tui") from error
    source = _source(store, server, token, token_file)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # what is drawn goes beside the output
        raise BadSetting("tui: this is no terminal. Try: `compactor sessions` and `compactor show SESSION`.")
    CompactorApp(source, session or "").run()


def _source(store: str | None, server: str | None, token: str | None, token_file: Path | None) -> Source:
    if server is None:
        if token is not None or token_file is not None:
            raise BadSetting("--token and --token-file are for --server. Try: with it, or without them.")
        from context_compactor.tui.local import LocalSource

        return LocalSource(store_url(store))
    if store is not None:
        raise BadSetting("--store and --server are two places. Try: one of them.")
    if token is not None and token_file is not None:
        raise BadSetting("--token and --token-file are the same thing twice. Try: one of them.")
    from context_compactor.tui.remote import RemoteSource

    return RemoteSource(server, _read(token_file) if token_file else token)


def _read(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8").split("\n", 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"--token-file: {file} cannot be read: {error}") from error
    if not lines[0].strip():
        raise BadSetting(f"--token-file: the first line of {file} is empty. Try: what `compactor token add` printed.")
    return lines[0].strip()
