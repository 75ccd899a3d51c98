"""The server on standard input and output, until the input ends or a signal comes."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, cast

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server

from context_compactor.mcp.server import sendable

_READ_BYTES = 1 << 16


class StdinLines:
    """Lines of standard input, which end where it ends or when `stop` is called, by a signal too.

    A thread that waits for the next line could not be ended otherwise.
    """

    def __init__(self) -> None:
        # What is started by the server is to read nothing of ours.
        self._input = os.dup(0)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        self._stopped, self._stop = os.pipe()
        self._unread = bytearray()
        self._is_over = False

    def stop(self) -> None:
        """End the lines."""
        os.write(self._stop, b"!")

    def readline(self) -> str:
        """The next line; nothing at the end."""
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0 and not self._is_over:
            seen = len(self._unread)
            ready, _, _ = select.select([self._input, self._stopped], [], [])
            if self._stopped in ready:
                return ""
            more = os.read(self._input, _READ_BYTES)
            self._unread += more
            self._is_over = not more
        size = end + 1 if end >= 0 else len(self._unread)
        line = bytes(self._unread[:size])
        del self._unread[:size]
        return _readable(line.decode("utf-8", "replace"))


def _readable(line: str) -> str:
    """A line without halves of characters: a message with one would be dropped, and its caller would wait for ever."""
    if "\\ud" not in line and "\\uD" not in line:
        return line
    try:
        return json.dumps(sendable(json.loads(line))) + "\n"
    except (ValueError, RecursionError):
        return line


def serve_stdio(server: Server[Any]) -> None:
    """Serve whoever started this program, until it ends the input or says stop."""
    wire = StdinLines()
    before = {each: signal.signal(each, lambda *_: wire.stop()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        anyio.run(_serve, server, wire)
    finally:
        for each, known in before.items():
            signal.signal(each, known)


async def _serve(server: Server[Any], wire: StdinLines) -> None:
    lines = anyio.wrap_file(cast("Any", wire))
    try:
        async with stdio_server(stdin=lines) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    except* BrokenPipeError:  # whoever asked is gone, which is one way to end
        sys.stderr.write("compactor mcp: nobody reads the answers any more\n")
