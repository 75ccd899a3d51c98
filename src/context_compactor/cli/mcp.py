"""`compactor mcp`: the archive and the facts of a coding agent's session, as tools of that agent."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.options import StoreUrl
from context_compactor.cli.output import paper
from context_compactor.errors import BadSetting, MissingExtra

if TYPE_CHECKING:
    from context_compactor.mcp.listening import Admit

Http = Annotated[bool, typer.Option("--http", help="Listen at an address instead of using standard input and output.")]
Host = Annotated[
    str, typer.Option(metavar="NAME", help="Where --http listens; another than loopback needs a token file.")
]
Port = Annotated[int, typer.Option(metavar="N", help="The port of --http; 0 takes a free one.")]
Tokens = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Who may call over HTTP; `compactor token add` writes it."),
]
ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The project; without, the one around this folder.", exists=False),
]
SessionName = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="ID", help="Only this session; without, that of the agent which starts the server."
    ),
]


def mcp(
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = 8378,
    token_file: Tokens = None,
    project: ProjectFolder = None,
    session: SessionName = None,
    store: StoreUrl = None,
) -> None:
    """Give a coding agent tools over MCP, with which it gets back what left its context and sees how its work stands.

    They are recall, search_archive, list_turns, facts, context_status, compact_plan, checkpoint and handoff. An agent
    starts it by itself once it is registered there, as `compactor install` does. It serves the session of that agent,
    until the agent ends it. With --http it listens at an address; without a token file only this machine can call it.

    Example: `compactor mcp --project .` or `compactor mcp --http --port 8378`
    """
    root, admit = _root(project), _admit(token_file) if token_file else None
    os.chdir(root)  # settings and stores are named from there
    try:
        from context_compactor.mcp.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise MissingExtra("the MCP server", "mcp") from error
    from context_compactor.mcp.place import Place

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    server, out = make_server(Place(root, store, session)), paper(beside_output=True)
    if not http:
        if token_file is not None:
            raise BadSetting("--token-file is for --http: whoever starts this program can read everything anyway.")
        from context_compactor.mcp.stdio import serve_stdio

        if sys.stdin.isatty():
            out.print(
                "waiting for an MCP client on standard input, which is what an agent starts this for; Ctrl-C stops"
            )
        serve_stdio(server)
        return
    from context_compactor.mcp.listening import Where, listen

    where = Where(host.strip("[]"), port, admit)
    listen(server, where, lambda address: out.print(f"listening at {address} (project: {root}); Ctrl-C stops"))
    out.print("stopped; everything that was begun is done")


def _root(project: Path | None) -> str:
    from context_compactor.agents.places import project_root

    if project is None:
        return project_root("", os.environ)
    if not project.is_dir():
        raise BadSetting(f"--project: there is no folder {project}. Try: the one in which the agent works.")
    return str(project.absolute())


def _admit(token_file: Path) -> Admit:
    """Who may call: tokens of the default namespace, as for `compactor serve`."""
    from context_compactor.server.tokens import TokenFile

    tokens = TokenFile(token_file.absolute())

    def admit(secret: str) -> bool | None:
        scope = tokens.find(secret)
        return None if scope is None or scope.namespace else scope.may_write

    return admit
