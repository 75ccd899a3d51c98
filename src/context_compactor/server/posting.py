"""One POST to a pinned address within a time: no redirects, no proxies, and of the answer only its status."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from functools import cache

from context_compactor.server.targets import Target

_LONGEST_LINE = 8 * 1024
_MOST_READ = 64 * 1024
_MOST_HEADS = 5
# Some servers log an error when nobody takes their answer; longer than that nobody waits for it.
_REST_SECONDS = 1.0


class NoAnswer(Exception):
    """Nothing that could be called an answer came back."""


async def post(target: Target, address: str, headers: dict[str, str], body: bytes, seconds: float) -> int:
    """The status that a target answers. `NoAnswer` says why there is none; whatever happens, it ends in time."""
    try:
        async with asyncio.timeout(seconds):
            return await _post(target, address, headers, body)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} seconds") from error
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NoAnswer(f"no answer: {str(error) or type(error).__name__}") from error


async def _post(target: Target, address: str, headers: dict[str, str], body: bytes) -> int:
    reader, writer = await asyncio.open_connection(
        address,
        target.port,
        limit=_LONGEST_LINE,
        ssl=_trust() if target.is_tls else None,
        server_hostname=target.host if target.is_tls else None,
    )
    try:
        writer.write(_head(target, headers, len(body)) + body)
        await writer.drain()
        status = await _status(reader)
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_REST_SECONDS):
                await _read_rest(reader)
        return status
    finally:
        writer.transport.abort()


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _head(target: Target, headers: dict[str, str], length: int) -> bytes:
    known = {"Host": target.host_header, "Content-Length": str(length), "Connection": "close", **headers}
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in known.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _status(reader: asyncio.StreamReader) -> int:
    """The status of the answer, behind those that only say that one is coming."""
    for _ in range(_MOST_HEADS):
        line = await reader.readuntil(b"\n")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("what came back is no HTTP")
        status = int(rest[:3])
        if status >= 200:
            return status
        while (await reader.readuntil(b"\n")).strip():
            pass
    raise ValueError("it only said that an answer is coming")


async def _read_rest(reader: asyncio.StreamReader) -> None:
    room = _MOST_READ
    while room > 0 and (piece := await reader.read(room)):
        room -= len(piece)
