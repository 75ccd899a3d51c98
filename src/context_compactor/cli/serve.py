"""`compactor serve`: sessions over HTTP."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from context_compactor.cli.opening import store_url
from context_compactor.cli.options import StoreUrl
from context_compactor.cli.output import paper
from context_compactor.errors import BadSetting, MissingExtra

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
PublicMetrics = Annotated[
    bool, typer.Option("--public-metrics", help="Let everybody read /metrics, although tokens are configured.")
]
PrivateWebhooks = Annotated[
    bool,
    typer.Option("--allow-private-webhooks", help="Let webhooks lead to private addresses, and over plain http."),
]
Demo = Annotated[
    bool, typer.Option("--demo", help="Show a real session as it happens, in a store that is gone afterwards.")
]

_INTERRUPTED = 130


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8377,
    store: StoreUrl = None,
    token_file: Tokens = None,
    workers: Workers = 2,
    allow_origin: Origins = None,
    max_body: MaxBody = 32,
    public_metrics: PublicMetrics = False,
    allow_private_webhooks: PrivateWebhooks = False,
    demo: Demo = False,
) -> None:
    """Serve sessions over HTTP: append, context, compact, recall, search, facts, events; OpenAPI at /openapi.json.

    Without a token file only this machine can call it. Ctrl-C or SIGTERM finishes the requests that are under way; a
    second Ctrl-C does not wait for them.

    With --demo a real session is told again as it happened: open the address and watch its compactions.

    Example: `compactor serve --port 8377 --store sqlite:///.compactor/compactor.db`
    """
    try:
        from context_compactor.server.config import MEGABYTE, Config
        from context_compactor.server.run import listen
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("litestar", "uvicorn", "httptools", "prometheus_client"):
            raise
        raise MissingExtra("the server", "server") from error
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it says at every try is said once by ourselves
    if demo and (store is not None or token_file is not None):
        raise BadSetting("--demo has a store of its own, for this machine. Try: without --store and --token-file.")
    with _demonstrating() if demo else nullcontext((store_url(store), _tell)) as (url, told):
        config = Config(
            store=url,
            host=host,
            port=port,
            token_file=token_file,
            workers=workers,
            origins=tuple(allow_origin or ()),
            max_body_bytes=max_body * MEGABYTE,
            public_metrics=public_metrics,
            allow_private_webhooks=allow_private_webhooks,
        )
        has_finished = listen(config, lambda address: told(address, config.store))
    if has_finished:
        paper(beside_output=True).print("stopped; everything that was begun is done")
        return
    paper(beside_output=True).print(
        "stopped at once; what was answered for is kept, and jobs under way go to the next server"
    )
    sys.stderr.flush()
    os._exit(_INTERRUPTED)  # else the threads of what is still under way would be waited for


Told = Callable[[str, str], None]


def _tell(address: str, store: str) -> None:
    from context_compactor.store.address import without_password

    out = paper(beside_output=True)
    out.print(f"listening at {address} (store: {without_password(store)}); Ctrl-C stops")


@contextmanager
def _demonstrating() -> Iterator[tuple[str, Told]]:
    """The address of a store for a demo, and what begins it once the server can be called."""
    from context_compactor.server.demo import Replay, demo_place

    replay = Replay()

    def begin(address: str, _: str) -> None:
        replay.start(address)
        out = paper(beside_output=True)
        out.print(f"a real session, as it happens: open {address}; Ctrl-C stops, and nothing is left behind")

    with demo_place() as url:
        try:
            yield url, begin
        finally:
            replay.stop()
