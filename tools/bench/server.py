"""The part of `make bench` about the server: messages appended over HTTP beside a bare echo of the same body.

Both are real servers in processes of their own, called by the same client in turns, so that whatever else the machine
does is the same for both. `python -m tools.bench.server` runs it alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

CLIENTS = 32
REQUESTS = 960
ROUNDS = 25
LEAST_RATIO = 0.25

_BODY = msgspec.json.encode(
    {
        "messages": [
            {"role": "assistant", "content": "The test fails since the clock of the fixture stands still. " * 6},
        ]
    }
)
_READY = "ready at "


def bench(line: Callable[[str, float, float], None]) -> None:
    """Measure and print; the limit is on the inverse, since a line's limit is the most it may be."""
    ratio, echo, ours = measure()
    print(f"requests per second: {echo:,.0f} echoed, {ours:,.0f} appended; ratio {ratio:.2f}, at least {LEAST_RATIO}")
    line("a bare echo, times the speed of appending over HTTP", 1 / ratio, 1 / LEAST_RATIO)


def measure() -> tuple[float, float, float]:
    """The median of the ratios of all rounds, and the best speed of each."""
    with tempfile.TemporaryDirectory() as folder, _running("echo") as echo, _running("serve", folder) as ours:
        asyncio.run(_make_sessions(ours))
        pairs = []
        for _ in range(ROUNDS):
            echoed = asyncio.run(_speed(echo, "/v1/sessions/{}/messages"))
            pairs.append((echoed, asyncio.run(_speed(ours, "/v1/sessions/{}/messages"))))
    ratio = statistics.median(appended / echoed for echoed, appended in pairs)
    return ratio, max(echoed for echoed, _ in pairs), max(appended for _, appended in pairs)


@contextmanager
def _running(what: str, *arguments: str) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, "-m", "tools.bench.server", what, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().removeprefix(_READY))
        finally:
            process.terminate()


async def _make_sessions(port: int) -> None:
    for at in range(CLIENTS):
        body = msgspec.json.encode({"id": f"run-{at}", "window": 50_000_000, "dialect": "openai-chat"})
        await _client(port, [_request("/v1/sessions", body)])


async def _speed(port: int, path: str) -> float:
    start = time.perf_counter()
    each = REQUESTS // CLIENTS
    await asyncio.gather(*(_client(port, [_request(path.format(f"run-{at}"), _BODY)] * each) for at in range(CLIENTS)))
    return REQUESTS / (time.perf_counter() - start)


def _request(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


async def _client(port: int, requests: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.split()[1][:1] == b"2", head
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    writer.close()


def _echo() -> None:
    """The least that a server of this framework can do with the same request."""
    import uvicorn
    from litestar import Litestar, post

    from context_compactor.server.config import bind

    @post("/v1/sessions/{name:str}/messages", status_code=200)
    async def echo(data: dict[str, Any]) -> dict[str, Any]:
        return data

    place = bind("127.0.0.1", 0)
    print(f"{_READY}{place.getsockname()[1]}", flush=True)
    app: Any = Litestar([echo], openapi_config=None)
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([place])


def _serve(folder: str) -> None:
    from context_compactor.server.config import ServerConfig
    from context_compactor.server.listener import listen

    config = ServerConfig(store=f"sqlite:///{folder}/compactor.db", port=0)
    listen(config, lambda address: print(f"{_READY}{address.rpartition(':')[2]}", flush=True))


def main(arguments: list[str]) -> int:
    """Measure, or be one of the two servers."""
    if arguments[:1] == ["echo"]:
        _echo()
    elif arguments[:1] == ["serve"]:
        _serve(arguments[1])
    else:
        ratio, echo, ours = measure()
        print(f"echoed {echo:,.0f}/s, appended {ours:,.0f}/s, ratio {ratio:.2f} (at least {LEAST_RATIO})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
