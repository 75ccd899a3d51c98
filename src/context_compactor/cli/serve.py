"""`compactor serve`, `worker`, `mcp` and `token`: the programs that keep running, and who may call them."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_compactor.cli.options import AsJson, StoreUrl, open_store, store_url
from context_compactor.cli.output import INTERRUPTED, print_json, stderr, stdout
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.mcp.http import TokenCheck
    from context_compactor.store.events import Event, EventType


DEFAULT_FILE = Path(".compactor/tokens")

Action = Annotated[str, typer.Argument(metavar="add|list|remove", help="What to do.")]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The name of the token.")]
File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The token file of the server.")]
Namespace = Annotated[
    str,
    typer.Option(metavar="N", help="The sessions it sees; by default those of no namespace.", show_default=False),
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
    """Create, list or remove the tokens with which programs call a server. Only hashes are stored.

    A new token is printed once, on standard output, and cannot be shown again. A running server applies a
    change within a second.

    Example: `compactor token add ci --namespace team` then `compactor serve --token-file .compactor/tokens`
    """
    if action == "list":
        _list(file, as_json)
    elif action == "add":
        _add(file, _needed(name, action), namespace, read_only, as_json)
    elif action == "remove":
        _remove(file, _needed(name, action), as_json)
    else:
        raise BadSetting(f"token: {action[:40]!r} is not an action. Try: add, list or remove.")


def _needed(name: str | None, action: str) -> str:
    if name is None:
        raise BadSetting(f"token {action}: the name is missing. Try: `compactor token {action} NAME`.")
    return name


def _list(file: Path, as_json: bool) -> None:
    from context_compactor.server.tokens import read_tokens

    known = [{"name": each.name, "namespace": each.namespace, "kind": each.kind} for each in read_tokens(file)]
    if as_json:
        print_json({"file": str(file), "tokens": known})
        return
    out = stdout()
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
    stdout().print(secret)
    stderr().print(f"{name!r} was added to {file}; the token is shown this once", style="dim")


def _remove(file: Path, name: str, as_json: bool) -> None:
    from context_compactor.server.tokens import remove_token

    gone = remove_token(file, name)
    if as_json:
        print_json({"file": str(file), "removed": gone.name})
    else:
        stdout().print(f"{gone.name!r} was removed from {file}")


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

    With --demo a recorded session is replayed: open the address and watch its compactions.

    Example: `compactor serve --port 8377 --store sqlite:///.compactor/compactor.db`
    """
    try:
        from context_compactor.server.config import MEGABYTE, ServerConfig
        from context_compactor.server.listener import listen
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("litestar", "uvicorn", "httptools", "prometheus_client"):
            raise
        raise MissingExtra("the server", "server") from error
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it logs every retry; we report it once
    if demo and (store is not None or token_file is not None):
        raise BadSetting("--demo uses its own temporary store. Try: leave --store and --token-file out.")
    with _demo_store() if demo else nullcontext((store_url(store), _print_address)) as (url, announce):
        config = ServerConfig(
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
        has_finished = listen(config, lambda address: announce(address, config.store))
    if has_finished:
        stderr().print("stopped; all requests were completed")
        return
    stderr().print("stopped at once; everything acknowledged is stored, and running jobs go to the next server")
    sys.stderr.flush()
    os._exit(INTERRUPTED)  # else the threads of what is still under way would be waited for


Announce = Callable[[str, str], None]


def _print_address(address: str, store: str) -> None:
    from context_compactor.store_urls import without_password

    out = stderr()
    out.print(f"listening at {address} (store: {without_password(store)}); Ctrl-C stops")


@contextmanager
def _demo_store() -> Iterator[tuple[str, Announce]]:
    """The address of a store for a demo, and what begins it once the server can be called."""
    from context_compactor.server.demo import DemoReplay, demo_store

    replay = DemoReplay()

    def begin(address: str, _: str) -> None:
        replay.start(address)
        out = stderr()
        out.print(f"replaying a recorded session: open {address}; Ctrl-C stops, and nothing is left behind")

    with demo_store() as url:
        try:
            yield url, begin
        finally:
            replay.stop()


Concurrency = Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Jobs worked on at once.")]
Grace = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long jobs under way may take after the signal to stop.")
]
_SHOWN_EVENTS: tuple[EventType, ...] = ("session.compacted", "job.retried", "job.dropped")
_LONGEST_LINE = 200


def worker(store: StoreUrl = None, concurrency: Concurrency = 2, grace: Grace = 30.0) -> None:
    """Run the jobs of a store: compactions, and facts in idle time. Run as many workers as you like.

    Ctrl-C or SIGTERM finishes the running jobs and starts no others. Jobs that take longer than --grace, or all of them
    at a second Ctrl-C, are returned for another worker. The jobs of a killed worker go to others within seconds.

    Example: `compactor worker --store sqlite:///.compactor/compactor.db --concurrency 4`
    """
    if store_url(store) == "memory:":
        raise BadSetting(
            "store: a store in memory cannot be shared with other programs. Try: --store with the server's store URL."
        )
    from context_compactor.sessions.events import Bus, ServiceStoreSink
    from context_compactor.sessions.jobs.worker import WAKING_EVENTS, WorkerPool
    from context_compactor.store.service_store import event_listener_of

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it logs every retry; we report it once
    out, bus = stderr(), Bus()
    with open_store(store) as opened:
        engine = WorkerPool(opened, workers=concurrency, bus=bus)
        bus.subscribe(ServiceStoreSink(engine.service_store))
        bus.subscribe(lambda event: out.print(_line(event)), types=_SHOWN_EVENTS)
        notices = event_listener_of(opened, lambda kind: engine.wake() if kind in WAKING_EVENTS else None)
        with _signals(engine.hurry) as stop:
            engine.start()
            if notices is not None:
                notices.start()
            out.print(f"working on {opened.path}, {concurrency} jobs at once; Ctrl-C stops")
            stop.wait()
            out.print(f"stopping; {len(engine.status().running)} jobs under way")
            engine.stop(timeout=grace)
            if notices is not None:
                notices.stop()
    out.print("stopped; every job is done or waits for another worker")


@contextmanager
def _signals(hurry: Callable[[], None]) -> Iterator[Flag]:
    """A flag that the first SIGTERM or Ctrl-C sets; every further one hurries."""
    stop = Flag()

    def on_signal(*_: Any) -> None:
        if stop.is_set():
            hurry()
        stop.set()

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, known in before.items():
            signal.signal(each, known)


def _line(event: Event) -> str:
    payload = event.payload
    if event.type == "session.compacted":
        what = f"{payload['tokens_before']:,} → {payload['tokens_after']:,} tokens"
    else:
        what = (
            f"{event.type} {payload.get('what', '')}, attempt {payload.get('attempt', 0)}: {payload.get('reason', '')}"
        )
    return one_line(f"{event.created_at[11:19]} {event.session_id}: {what}", _LONGEST_LINE)


Http = Annotated[bool, typer.Option("--http", help="Listen at an address instead of using standard input and output.")]
McpHost = Annotated[
    str, typer.Option(metavar="NAME", help="Where --http listens; another than loopback needs a token file.")
]
McpPort = Annotated[int, typer.Option(metavar="N", help="The port of --http; 0 takes a free one.")]
McpTokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Who may call over HTTP; `compactor token add` writes it."),
]
ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", metavar="DIR", help="The project; by default the one around this folder.", exists=False),
]
SessionName = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="ID", help="Only this session; by default that of the agent that starts the server."
    ),
]


def mcp(
    http: Http = False,
    host: McpHost = "127.0.0.1",
    port: McpPort = 8378,
    token_file: McpTokenFile = None,
    project: ProjectFolder = None,
    session: SessionName = None,
    store: StoreUrl = None,
) -> None:
    """Serve tools over MCP, with which a coding agent reads back what left its context and sees the state of its work.

    The tools are recall, search_archive, list_turns, facts, context_status, compact_plan, checkpoint and handoff.
    `compactor install` registers the server, and the agent then starts it and ends it. It serves the session of that
    agent. With --http it listens at an address; without a token file only this machine can call it.

    Example: `compactor mcp --project .` or `compactor mcp --http --port 8378`
    """
    root, check_token = _root(project), _token_check(token_file) if token_file else None
    os.chdir(root)  # settings and stores are named from there
    try:
        from context_compactor.mcp.server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise MissingExtra("the MCP server", "mcp") from error
    from context_compactor.mcp.tools import ToolContext

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    server, out = make_server(ToolContext(root, store, session)), stderr()
    if not http:
        if token_file is not None:
            raise BadSetting(
                "--token-file needs --http: over standard input and output there is no caller to check. "
                "Try: add --http."
            )
        from context_compactor.mcp.stdio import serve_stdio

        if sys.stdin.isatty():
            out.print(
                "waiting for an MCP client on standard input, which is what an agent starts this for; Ctrl-C stops"
            )
        serve_stdio(server)
        return
    from context_compactor.mcp.http import ListenAddress, serve_http

    where = ListenAddress(host.strip("[]"), port, check_token)
    serve_http(server, where, lambda address: out.print(f"listening at {address} (project: {root}); Ctrl-C stops"))
    out.print("stopped; all requests were completed")


def _root(project: Path | None) -> str:
    from context_compactor.agents.paths import project_root

    if project is None:
        return project_root("", os.environ)
    if not project.is_dir():
        raise BadSetting(f"--project: the folder {project} does not exist. Try: the folder in which the agent works.")
    return str(project.absolute())


def _token_check(token_file: Path) -> TokenCheck:
    """Who may call: tokens of the default namespace, as for `compactor serve`."""
    from context_compactor.server.tokens import TokenFile

    tokens = TokenFile(token_file.absolute())

    def check(secret: str) -> bool | None:
        scope = tokens.find(secret)
        return None if scope is None or scope.namespace else scope.may_write

    return check
