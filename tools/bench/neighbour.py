"""The part of `make bench` about neighbours: how long does an append wait while another session appends 8 MB?

Each line is the longest wait of small appends while one large tool result is appended, indexed and found, times their
median wait alone, in the same run. `python -m tools.bench.neighbour` runs it alone; `thread`, `process`, `server` and
`cost` choose parts.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec

from context_compactor import Session
from tools.bench.calling import Caller, append, create, demand
from tools.bench.serving import new_store, serving
from tools.bench.sessions import Line, open_session, session_lines

LARGE = 8_000_000
MOST_RATIO = 40
_ALONE = 200
_SAME_BYTES = 1_000_000
_MOST_COST = 5
_LAST = "marker_of_the_last_line"
_CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat build.log"}'}}

Raw = dict[str, Any]


def bench(line: Line, size: int = LARGE, alone: int = _ALONE, parts: Sequence[str] = ()) -> None:
    """Measure and print all of it, or some parts; `Wrong` when the large result is not found afterwards."""
    for name, part in PARTS.items():
        if not parts or name in parts:
            with tempfile.TemporaryDirectory() as folder:
                part(line, f"sqlite:///{folder}/compactor.db", size, alone)


def in_a_thread(line: Line, store: str, size: int, alone: int) -> None:
    """Both sessions in one process."""
    messages = large(size)
    with open_session("large", store) as session, open_session("small", store) as small:
        usual = _usual(small, alone)
        writer = threading.Thread(target=_append_and_find, args=[session, messages])
        writer.start()
        beside = [_small(small, alone)]
        while writer.is_alive():
            beside.append(_small(small, alone + len(beside)))
        writer.join()
        _tell(line, "another thread", usual, beside)
        _find(session)


def in_a_process(line: Line, store: str, size: int, alone: int) -> None:
    """The large result comes from another process that uses the same file."""
    with open_session("small", store) as small, _other_process(store, size) as begin:
        usual = _usual(small, alone)
        is_done = begin()
        beside = [_small(small, alone)]
        while not is_done():
            beside.append(_small(small, alone + len(beside)))
        _tell(line, "another process", usual, beside)


def in_a_server(line: Line, store: str, size: int, alone: int) -> None:
    """Both sessions belong to clients of one server."""
    del store
    with new_store() as own, serving(own) as server:
        asyncio.run(_through(server.port, line, size, alone))


async def _through(port: int, line: Line, size: int, alone: int) -> None:
    async with Caller(port) as caller, Caller(port) as other:
        for name in ("large", "small"):
            await create(caller, name, 50_000_000)
        await _small_through(caller, alone)  # loads what is loaded once
        usual = [await _small_through(caller, at) for at in range(alone)]
        body = msgspec.json.encode({"messages": large(size)})
        sent = asyncio.ensure_future(_send_and_find(other, body))
        beside = [await _small_through(caller, alone)]
        while not sent.done():
            beside.append(await _small_through(caller, alone + len(beside)))
        await sent
    _tell(line, "another client of a server", usual, beside)


async def _send_and_find(caller: Caller, body: bytes) -> None:
    await caller.post("/v1/sessions/large/messages", body)
    found = await caller.get(f"/v1/sessions/large/search?q={_LAST}")
    demand(bool(found["hits"]), "the last line of the large result is not found")


def cost(line: Line, store: str, size: int, alone: int) -> None:
    """What a tool result costs beside a user's text of as many bytes, both of new words."""
    del alone
    size = min(size, _SAME_BYTES)
    times: dict[str, float] = {}
    with open_session("cost", store) as session:
        session.append({"role": "user", "content": "Look at the log."})
        for seed, name in enumerate(("user", "tool")):
            call, result = large(size, seed)[1:]
            session.append(call)
            session.append({**result, "content": "short"} if name == "user" else {**call, "tool_calls": []})
            message = {"role": "user", "content": result["content"]} if name == "user" else result
            start = time.perf_counter()
            session.append(message)
            times[name] = time.perf_counter() - start
    print(
        f"{size / 1e6:g} MB appended: {1000 * times['user']:,.0f} ms as a user's text, {1000 * times['tool']:,.0f} ms"
    )
    line("a large tool result, times a user's text of as many bytes", times["tool"] / times["user"], _MOST_COST)


def large(size: int, seed: int = 0) -> list[Raw]:
    """A request, a call, and its result of so many bytes: real lines with numbers and names that come once."""
    dice, known = Random(seed), session_lines()
    shown: list[str] = []
    while size > 0:
        shown.append(f"{dice.choice(known)} {dice.randrange(1 << 24):06x} step_{len(shown)}")
        size -= len(shown[-1].encode()) + 1
    return [
        {"role": "user", "content": "Look at the log."},
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": _CALL["id"], "content": "\n".join([*shown, _LAST])},
    ]


def _usual(session: Session, count: int) -> list[float]:
    _small(session, count)  # loads what is loaded once
    return [_small(session, at) for at in range(count)]


def _small(session: Session, at: int) -> float:
    start = time.perf_counter()
    session.append(_message(at))
    return time.perf_counter() - start


async def _small_through(caller: Caller, at: int) -> float:
    start = time.perf_counter()
    await append(caller, "small", [_message(at)])
    return time.perf_counter() - start


def _message(at: int) -> Raw:
    return {"role": "user" if at % 2 == 0 else "assistant", "content": f"Message {at} of many. " + "Some words. " * 8}


def _tell(line: Line, where: str, usual: Sequence[float], beside: Sequence[float]) -> None:
    median = statistics.median(usual)
    print(
        f"appends beside {where}: {len(beside):,}, median {1000 * statistics.median(beside):.1f} ms, longest "
        f"{1000 * max(beside):,.0f} ms; alone median {1000 * median:.1f} ms, longest {1000 * max(usual):.0f} ms"
    )
    line(f"the longest append beside a large result in {where}", max(beside) / median, MOST_RATIO)


def _append_and_find(session: Session, messages: list[Raw]) -> None:
    session.append(messages)
    _find(session)


def _find(session: Session) -> None:
    demand(bool(session.search(_LAST)), "the last line of the large result is not found")


@contextmanager
def _other_process(store: str, size: int) -> Iterator[Callable[[], Callable[[], bool]]]:
    """A process that is ready to append. What it gives begins that, and tells how to ask whether it is done."""
    command = [sys.executable, "-m", "tools.bench.neighbour", "append", store, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()

        def begin() -> Callable[[], bool]:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.close()
            return lambda: process.poll() is not None

        yield begin
    demand(process.returncode == 0, "the other process has failed")


def _append(store: str, size: int) -> None:
    messages = large(size)
    with open_session("large", store) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        _append_and_find(session, messages)


PARTS: dict[str, Callable[[Line, str, int, int], None]] = {
    "thread": in_a_thread,
    "process": in_a_process,
    "server": in_a_server,
    "cost": cost,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["append"]:
        _append(sys.argv[2], int(sys.argv[3]))
    else:
        from tools.bench.main import print_line

        bench(print_line, parts=sys.argv[1:])
