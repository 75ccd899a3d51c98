"""Calling a server from a bench with as little effort as can be, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

CLIENTS = 32

Raw = dict[str, Any]


class Wrong(Exception):
    """A result that is not right, however quick it was."""


def demand(is_right: bool, otherwise: str) -> None:
    """Raise `Wrong` with this sentence unless something is so."""
    if not is_right:
        raise Wrong(otherwise)


class Caller:
    """One connection that is kept. Any answer but a good one is `Wrong`."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def get(self, path: str) -> Any:
        """What the server answers, read from JSON."""
        return msgspec.json.decode(await self.ask("GET", path))

    async def post(self, path: str, body: Any) -> Any:
        """The same for something that is sent as JSON, or as it is when it is bytes."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return msgspec.json.decode(await self.ask("POST", path, content))

    async def ask(self, method: str, path: str, content: bytes = b"") -> bytes:
        """The bytes of an answer."""
        kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n".encode() + content)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        answer = await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        demand(head.split()[1][:1] == b"2", f"{method} {path} was answered {head.split()[1]!r}: {answer[:500]!r}")
        return answer


async def share_out(
    port: int, count: int, work: Callable[[Caller, int], Awaitable[object]], clients: int = CLIENTS
) -> float:
    """Do some work for every number up to `count`, by so many clients side by side; the seconds it took."""
    numbers = iter(range(count))

    async def client() -> None:
        async with Caller(port) as caller:
            for number in numbers:
                await work(caller, number)

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(min(clients, count))))
    return time.perf_counter() - start


async def create(caller: Caller, name: str, window: int, **settings: Any) -> None:
    """A new session, which does nothing by itself but what its levels ask for, unless the settings say otherwise."""
    calm = {"idle_seconds": 0, "wait_for_boundary": False, **settings}
    await caller.post("/v1/sessions", {"id": name, "window": window, "dialect": "openai-chat", "settings": calm})


async def append(caller: Caller, name: str, messages: list[Raw]) -> Raw:
    """Messages for a session; what the server says of it afterwards."""
    answer: Raw = await caller.post(f"/v1/sessions/{name}/messages", {"messages": messages})
    demand(answer["appended"] == len(messages), f"{name}: {len(messages)} were sent, {answer['appended']} appended")
    return answer


def turn(name: str, number: int) -> list[Raw]:
    """A request, a call, its result and an answer: about as many tokens each time, and never the same words."""
    call = {"name": "run_tests", "arguments": f'{{"path": "tests/{name}/test_{number}.py"}}'}
    shown = [
        f"tests/{name}/test_{number}.py::test_{at} took {at * 7 + number} ms in worker {at % 4}" for at in range(20)
    ]
    failed = f"FAILED test_{number % 20}: AssertionError: expected {number * 31}, got {number * 37} from {name}"
    return [
        {
            "role": "user",
            "content": f"Request {number}: do the tests of {name} pass now? Never touch release {number}.",
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "\n".join([*shown, failed])},
        {
            "role": "assistant",
            "content": f"One fails since the clock of fixture {number} stands still. We chose {name}.",
        },
    ]


def turns(name: str, first: int, after: int) -> list[Raw]:
    """The messages of the turns from one number up to another."""
    return [message for number in range(first, after) for message in turn(name, number)]
