"""`compactor serve`: sessions over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from context_compactor.cli.opening import store_url
from context_compactor.cli.options import StoreUrl
from context_compactor.cli.output import paper
from context_compactor.errors import MissingExtra

Host = Annotated[str, typer.Option(metavar="NAME", help="Where to listen; another than loopback needs a token file.")]
Port = Annotated[int, typer.Option(metavar="N", help="The port; 0 takes a free one.")]
Tokens = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Who may call; `compactor token add` writes it."),
]
Workers = Annotated[
    int, typer.Option(min=0, max=64, metavar="N", help="Jobs worked on at once; 0 leaves them to `compactor worker`.")
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", metavar="URL", help="A web site whose pages may call; may be given again."),
]
MaxBody = Annotated[int, typer.Option("--max-body", min=1, max=1024, metavar="MB", help="The largest request.")]

_INTERRUPTED = 130


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8377,
    store: StoreUrl = None,
    token_file: Tokens = None,
    workers: Workers = 2,
    allow_origin: Origins = None,
    max_body: MaxBody = 32,
) -> None:
    """Serve sessions over HTTP: append, context, compact, recall, search, facts; OpenAPI at /openapi.json.

    Without a token file only this machine can call it. Ctrl-C or SIGTERM finishes the requests that are under way; a
    second Ctrl-C does not wait for them.

    Example: `compactor serve --port 8377 --store sqlite:///.compactor/compactor.db`
    """
    try:
        from context_compactor.server.config import MEGABYTE, Config
        from context_compactor.server.run import listen
        from context_compactor.store.address import without_password
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("litestar", "uvicorn", "httptools"):
            raise
        raise MissingExtra("the server", "server") from error
    config = Config(
        store=store_url(store),
        host=host,
        port=port,
        token_file=token_file,
        workers=workers,
        origins=tuple(allow_origin or ()),
        max_body_bytes=max_body * MEGABYTE,
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    out = paper(beside_output=True)
    where = without_password(config.store)
    if listen(config, lambda address: out.print(f"listening at {address} (store: {where}); Ctrl-C stops")):
        out.print("stopped; everything that was begun is done")
        return
    out.print("stopped at once; what was answered for is kept, and jobs under way go to the next server")
    sys.stderr.flush()
    os._exit(_INTERRUPTED)  # else the threads of what is still under way would be waited for
