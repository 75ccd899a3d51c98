"""A short talk with an MCP server over its standard input and output: does it answer, and which tools has it?"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from context_compactor import __version__
from context_compactor.errors import CompactorError

_SECONDS = 30.0
_END_SECONDS = 5.0
_PROTOCOL = "2025-06-18"


def list_tools(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """The names of a server's tools; `CompactorError` says what it did instead of answering."""
    try:
        server = subprocess.Popen(
            command, cwd=folder, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise CompactorError(f"cannot be started: {error.strerror or error}") from error
    with server:
        talk = _Talk(server)
        try:
            client = {"name": "compactor doctor", "version": __version__}
            talk.ask("initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
            talk.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = talk.ask("tools/list", {}).get("tools")
            return [str(tool.get("name")) for tool in tools] if isinstance(tools, list) else []
        finally:
            talk.end()


class _Talk:
    """One server, and lines of it as they come."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._give_up = time.monotonic() + _SECONDS
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: list[bytes] = []
        self._asked = 0
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self._asked += 1
        self.say({"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params})
        while True:
            answer = self._next(method)
            if answer.get("id") == self._asked and isinstance(answer.get("result"), dict):
                return dict(answer["result"])
            if answer.get("id") == self._asked:
                raise CompactorError(f"refuses {method}: {str(answer.get('error'))[:200]}")

    def say(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self._server.stdin is not None  # it was opened as a pipe
        try:
            self._server.stdin.write(json.dumps(message).encode() + b"\n")
            self._server.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def end(self) -> None:
        """End the server, the polite way first."""
        with suppress(BrokenPipeError):  # it may have ended already
            if self._server.stdin is not None:
                self._server.stdin.close()
        try:
            self._server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
        for reader in self._readers:
            reader.join(_END_SECONDS)

    def _next(self, method: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(0.0, self._give_up - time.monotonic()))
        except queue.Empty:
            raise CompactorError(f"does not answer {method} within {_SECONDS:g} seconds") from None
        if not line:
            raise self._ended()
        try:
            found = json.loads(line)
        except ValueError:
            raise CompactorError(f"says something that is not MCP: {line[:100]!r}") from None
        return found if isinstance(found, dict) else {}

    def _ended(self) -> CompactorError:
        self._readers[1].join(_END_SECONDS)
        said = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        return CompactorError(f"ends at once: {said[-1][:300]}" if said else "ends at once and says nothing")

    def _read(self) -> None:
        assert self._server.stdout is not None  # it was opened as a pipe
        for line in self._server.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        assert self._server.stderr is not None  # it was opened as a pipe
        self._errors.extend(self._server.stderr)
