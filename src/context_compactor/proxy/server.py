"""Runs the proxy: listens, starts the recorder, and ends both when all that was begun is done."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from context_compactor.errors import BadSetting, StoreError
from context_compactor.files import HOME
from context_compactor.proxy.journal import Journal
from context_compactor.proxy.recorder import RecorderConfig
from context_compactor.proxy.recorder_client import RecorderClient
from context_compactor.proxy.relay import LONGEST_HEADER, ProxyConfig, Relay, without_added_headers
from context_compactor.server.config import bind, url_of
from context_compactor.sessions.project import project_of
from context_compactor.store_urls import is_postgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_log = logging.getLogger("context_compactor")
_STOP_SECONDS = 30.0


class ProxyOptions(Struct, frozen=True, kw_only=True):
    """How a proxy is started."""

    config: ProxyConfig
    store: str
    host: str = "127.0.0.1"
    port: int = 8379
    holdout: float = 0.05
    log_file: int | None = None
    """Where the recorder writes its log; by default to standard error."""


def journal_folder(store: str) -> Path:
    """Where the journals of proxies lie: beside a store that is a file."""
    if store == "memory:":
        raise BadSetting("store: a proxy needs a store that stays. Try: --store sqlite:///.compactor/compactor.db.")
    project = None if is_postgres(store) else project_of(store)
    return (project.home if project else Path(HOME)) / "proxy"


@asynccontextmanager
async def running_proxy(options: ProxyOptions) -> AsyncIterator[str]:
    """A proxy for the length of the block; gives its address. What was begun is finished, and recorded, at its end."""
    listening = bind(options.host, options.port)
    journal = None
    try:
        folder = journal_folder(options.store).absolute()
        journal = Journal(folder)
        recorder = RecorderClient(
            RecorderConfig(
                store=options.store,
                folder=str(journal.folder),
                window=options.config.window,
                holdout=options.holdout,
            ),
            locks=journal.locks,
            log_file=options.log_file,
        )
        relay = Relay(options.config, journal, recorder)
        app = web.Application(client_max_size=options.config.max_body_bytes + 1)
        app.router.add_route("*", "/{path:.*}", relay.respond)
        app.on_response_prepare.append(without_added_headers)
        runner = web.AppRunner(
            app,
            handle_signals=False,
            access_log=None,
            logger=_server_log(),
            handler_cancellation=True,
            auto_decompress=False,
            shutdown_timeout=_STOP_SECONDS,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        )
        async with relay.running():
            try:
                await _start(recorder)
                await runner.setup()
                await web.SockSite(runner, listening).start()
                yield url_of(options.host, listening)
            finally:
                await runner.cleanup()
                if not await recorder.stop():
                    _log.warning("not everything is recorded yet; what is missing is in %s, for the next proxy", folder)
    finally:
        listening.close()
        if journal is not None:
            journal.close()


def _server_log() -> logging.Logger:
    """The log of the HTTP server, without requests that are none: their lines would stand in it, with a key perhaps."""
    log = logging.getLogger("context_compactor.proxy")
    log.filters = [lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))]
    return log


async def _start(recorder: RecorderClient) -> None:
    try:
        await recorder.start()
    except (TimeoutError, EOFError) as error:
        raise StoreError("the recorder could not be started; what it printed above says why") from error


def run_proxy(options: ProxyOptions, on_listening: Callable[[str], None]) -> None:
    """Run a proxy until Ctrl-C or SIGTERM."""
    asyncio.run(_run(options, on_listening))


async def _run(options: ProxyOptions, on_listening: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.set)
    async with running_proxy(options) as address:
        on_listening(address)
        await stop.wait()
