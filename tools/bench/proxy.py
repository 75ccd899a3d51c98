"""The part of `make bench` about the proxy: what it adds to a request, beside a relay that only relays, and its memory.

Client, relay, proxy and provider are programs of their own. Requests are sent one after the other and in turns, so that
whatever else runs on the machine meets all ways alike.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.bench.calling import demand
from tools.bench.serving import Program, module
from tools.bench.sessions import Line

_ROUNDS = 300
_WARM = 30
_SIZES = {"2 KB": 2_000, "100 KB": 100_000, "1 MB": 1_000_000}
_MANY = 10_000
_SETTLED = 1_000
_TURNS = 10
_STREAM_BYTES = 100 << 20
_STREAM_PATH = "/v1/messages?size=long"
_EVENTS = 40
_WORDS = "some words of an answer "
_MEGABYTE = 1 << 20
_LOOK_SECONDS = 0.05
_IDLE_SECONDS = 300.0


def bench(line: Line) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, module("tools.bench.proxy", "provider") as provider:
        upstream = f"http://127.0.0.1:{provider.port}"
        _overhead(line, provider, upstream, Path(folder) / "overhead")
        _memory(line, upstream, Path(folder) / "memory")


def _overhead(line: Line, provider: Program, upstream: str, folder: Path) -> None:
    with module("tools.bench.proxy", "relay", upstream) as relay, _proxy(upstream, folder) as proxy:
        for name, size in _SIZES.items():
            ways = {"none": provider.port, "relay": relay.port, "proxy": proxy.port}
            firsts, taken = _timed(ways, size)
            beside = {way: 1_000 * statistics.median(times) for way, times in taken.items()}
            first = {way: 1_000 * statistics.median(times) for way, times in firsts.items()}
            print(
                f"{name}: without any {beside['none']:.2f} ms, relay {beside['relay']:.2f} ms, "
                f"proxy {beside['proxy']:.2f} ms; first bytes after {first['none']:.2f}, {first['relay']:.2f} and "
                f"{first['proxy']:.2f} ms",
                flush=True,
            )
            line(f"the proxy, ms at the median over a bare relay, {name}", beside["proxy"] - beside["relay"], 1)
            _wait_until_recorded(folder)


def _timed(ways: dict[str, int], size: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The seconds to the first and to the last byte of each reply, by the way that it took."""
    firsts: dict[str, list[float]] = {way: [] for way in ways}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    connections = {way: socket.create_connection(("127.0.0.1", port)) for way, port in ways.items()}
    names = list(ways)
    history = _history(size)
    order = random.Random(size)
    for number in range(_WARM + _ROUNDS):
        history += _next(number)
        sent = _request(history, f"session-{size}")
        order.shuffle(names)
        for way in names:
            first, whole = _ask(connections[way], sent)
            if number >= _WARM:
                firsts[way].append(first)
                taken[way].append(whole)
    for connection in connections.values():
        connection.close()
    return firsts, taken


def _memory(line: Line, upstream: str, folder: Path) -> None:
    with _proxy(upstream, folder) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        recorder = _child_of(proxy)
        _send_many(connection, 0, _SETTLED)
        _wait_until_recorded(folder)
        before = proxy.memory(), recorder.memory()
        start = time.perf_counter()
        _send_many(connection, _SETTLED, _MANY)
        took = time.perf_counter() - start
        _wait_until_recorded(folder)
        behind = time.perf_counter() - start - took
        print(f"{_MANY - _SETTLED:,} small requests in {took:.1f} s; all are recorded {behind:.1f} s later", flush=True)
        line("MB that the proxy grows from the 1,000th to the 10,000th request", _grown(proxy, before[0]), 10)
        line("the same for its recorder", _grown(recorder, before[1]), 30)
        before = proxy.memory(), recorder.memory()
        _ask(connection, _request(_history(2_000), "stream", _STREAM_PATH))
        line("MB at most more while the proxy passes a stream of 100 MB", _peak(proxy) - before[0] / _MEGABYTE, 10)
        _wait_until_recorded(folder)
        line("the same for its recorder", _peak(recorder) - before[1] / _MEGABYTE, 100)
        demand(_child_of(proxy).pid == recorder.pid, "the recorder was started again")


def _send_many(connection: socket.socket, first: int, after: int) -> None:
    """Many small conversations of some turns each."""
    for number in range(first, after):
        history: list[dict[str, Any]] = [{"role": "user", "content": f"Conversation {number // _TURNS}"}]
        for turn in range(number % _TURNS):
            history += _next(turn)
        _ask(connection, _request(history, f"small-{number // _TURNS}"))


def _grown(program: Program, before: int) -> float:
    return (program.memory() - before) / _MEGABYTE


def _peak(program: Program) -> float:
    """The megabytes that a program has had at most."""
    return int(Path(f"/proc/{program.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def _proxy(upstream: str, folder: Path) -> Iterator[Program]:
    given = ("--port", "0", "--upstream", upstream, "--store", f"sqlite:///{folder}/.compactor/compactor.db")
    with module("context_compactor", "proxy", *given) as program:
        yield program
        demand(not program.complaints(), f"the proxy complains: {program.complaints()[:3]}")


def _child_of(program: Program) -> Program:
    (child,) = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    return Program(int(child), 0, program.log)


def _wait_until_recorded(folder: Path) -> None:
    """Wait until nothing is in the journal any more."""
    give_up = time.monotonic() + _IDLE_SECONDS
    while any((folder / ".compactor" / "proxy").glob("*/*-*")):
        demand(time.monotonic() < give_up, "the recorder does not come to an end")
        time.sleep(_LOOK_SECONDS)


# What an agent sends


def _request(history: list[dict[str, Any]], session: str, path: str = "/v1/messages?beta=true") -> bytes:
    tools = [{"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}}]
    asked = {"model": "claude-opus-5-5", "max_tokens": 32_000, "stream": True, "tools": tools, "messages": history}
    body = json.dumps(asked).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: claude-cli/2.1.0 (external, cli)",
        f"x-claude-code-session-id: {session}",
        "x-api-key: sk-ant-bench",
        "anthropic-version: 2023-06-01",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _history(size: int) -> list[dict[str, Any]]:
    """A conversation of about so many bytes, in results of two kilobytes."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "Fix the parser. Never touch legacy/."}]
    words = random.Random(size)
    for number in range(size // 2_300):
        shown = " ".join(words.choice(("parser", "token", "src/a.py:17", "FAILED", "0x7f")) for _ in range(280))
        history += _turn(number, shown)
    return history


def _turn(number: int, shown: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"ls {number}"}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"{number}: {shown}"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _next(number: int) -> list[dict[str, Any]]:
    """The reply as the provider gave it, and what the user says next."""
    said = {"type": "text", "text": _WORDS * _EVENTS}
    return [{"role": "assistant", "content": [said]}, {"role": "user", "content": f"Go on with {number}."}]


def _ask(connection: socket.socket, sent: bytes) -> tuple[float, float]:
    """The seconds to the first and to the last byte of the reply."""
    start = time.perf_counter()
    connection.sendall(sent)
    received = connection.recv(1 << 18)
    first = time.perf_counter() - start
    demand(received.startswith(b"HTTP/1.1 200"), f"a request was answered {received[:300]!r}")
    while not received.endswith(b"\r\n0\r\n\r\n"):
        more = connection.recv(1 << 18)
        demand(bool(more), "a reply broke off")
        received = received[-16:] + more
    return first, time.perf_counter() - start


# The provider, and a relay that does nothing else


def _reply() -> bytes:
    usage = {"input_tokens": 9, "cache_read_input_tokens": 9_000, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    delta = {"type": "text_delta", "text": _WORDS}
    values: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * _EVENTS,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 99}},
        {"type": "message_stop"},
    ]
    return b"".join(_chunk(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode()) for each in values)


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


async def _provide() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    reply = _reply()
    ping = _chunk(b": " + b"x" * (64 << 10) + b"\n\n")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(asked.partition(b"content-length:")[2].split(b"\r\n")[0]))
            writer.write(head)
            if _STREAM_PATH.encode() in line:
                for _ in range(_STREAM_BYTES // (64 << 10)):
                    writer.write(ping)
                    await writer.drain()
            writer.write(reply + b"0\r\n\r\n")
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    print(f"ready at {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def _relay(upstream: str) -> None:
    import aiohttp
    from aiohttp import web

    async with aiohttp.ClientSession(auto_decompress=False) as client:

        async def respond(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            headers = {name: value for name, value in request.headers.items() if name != "Host"}
            async with client.post(upstream + request.path_qs, data=body, headers=headers) as answer:
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                response.enable_chunked_encoding()
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", respond)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening).start()
        print(f"ready at {listening.getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


def main() -> int:
    """The provider or the relay for a bench, or the bench itself."""
    match sys.argv[1:]:
        case ["provider"]:
            asyncio.run(_provide())
        case ["relay", upstream]:
            asyncio.run(_relay(upstream))
        case _:
            from tools.bench.main import print_line

            bench(print_line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
