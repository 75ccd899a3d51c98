"""The proxy's end of the pipe to its recorder. When the recorder does not answer, the request goes on without it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from context_compactor.proxy.recorder import FRAME, RecorderConfig, pack_frame

_log = logging.getLogger("context_compactor")
_START_SECONDS = 30.0
_END_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
# What is asked for requests that most likely pass as they came.
_CAN_WAIT = ("least",)
# A recorder that ends at once is not started again in a loop.
_RESTART_SECONDS = 1.0


class RecorderClient:
    """Starts the recorder, asks it, and starts it again when it has ended."""

    def __init__(self, config: RecorderConfig, locks: Sequence[int] = (), log_file: int | None = None) -> None:
        self._config = config
        self._log_file = log_file
        self._locks = tuple(locks)
        self._child: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count(1)
        self._keeper: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_silent = False

    @property
    def pid(self) -> int | None:
        """The process of the recorder."""
        return self._child.pid if self._child else None

    async def start(self) -> None:
        """Start the recorder, and wait until it can be asked; `TimeoutError` or `EOFError` when it cannot."""
        child = await self._spawn()
        assert child.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            await _read_frame(child.stdout)
        self._keeper = asyncio.create_task(self._keep(child))

    async def _spawn(self) -> asyncio.subprocess.Process:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "context_compactor.proxy.recorder",
            msgspec.json.encode(self._config).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log_file,
            pass_fds=self._locks,  # the folder stays locked until both have ended
            start_new_session=True,  # Ctrl-C is for the proxy, which ends it when all is done
        )
        return self._child

    async def _keep(self, child: asyncio.subprocess.Process) -> None:
        """Take the answers, and start the recorder again when it ends."""
        while True:
            await self._take_answers(child)
            self._give_up("the recorder has ended")
            code = await child.wait()
            if not self._is_stopping:
                _log.warning("the recorder has ended with code %d, and is started again; nothing is lost", code)
                await asyncio.sleep(_RESTART_SECONDS)
            if self._is_stopping:
                return
            child = await self._spawn_again(child)

    async def _spawn_again(self, child: asyncio.subprocess.Process) -> asyncio.subprocess.Process:
        try:
            return await self._spawn()
        except OSError as error:
            _log.error("the recorder cannot be started: %s", error)
            return child  # which has ended: it is tried again after the same pause

    async def _take_answers(self, child: asyncio.subprocess.Process) -> None:
        """Take answers until the recorder has ended."""
        while True:
            assert child.stdout is not None
            try:
                frame = await _read_frame(child.stdout)
            except (EOFError, ConnectionError):
                return
            self._is_silent = False
            waiting = self._waiting.pop(frame.pop("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)

    def _give_up(self, reason: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result({"error": reason, "is_gone": True})
        self._waiting.clear()

    def notify(self) -> None:
        """Say that an exchange has ended."""
        self._send({"verb": "record"})

    async def ask(self, verb: str, path: Path, seconds: float, **more: Any) -> dict[str, Any]:
        """What the recorder answers about an exchange; `error` says why there is no answer.

        One that is being started again is waited for. One that has not answered a question that can wait for another
        time is not asked such a question again before it has answered something.
        """
        until = asyncio.get_running_loop().time() + seconds
        while True:
            left = until - asyncio.get_running_loop().time()
            answer = await self._ask(verb, path, max(left, 0.0), **more)
            if not answer.get("is_gone") or left <= _PAUSE_SECONDS or verb in _CAN_WAIT:
                return answer
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask(self, verb: str, path: Path, seconds: float, **more: Any) -> dict[str, Any]:
        if self._is_silent and verb in _CAN_WAIT:
            return {"error": "the recorder does not answer"}
        number = next(self._numbers)
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            if not self._send({"id": number, "verb": verb, "path": str(path), **more}):
                return {"error": "the recorder is not there", "is_gone": True}
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            self._is_silent = self._is_silent or verb in _CAN_WAIT
            return {"error": f"no answer from the recorder within {seconds:g} seconds"}
        finally:
            self._waiting.pop(number, None)

    def _send(self, value: dict[str, Any]) -> bool:
        if self._child is None or self._child.stdin is None or self._child.stdin.is_closing():
            return False
        self._child.stdin.write(pack_frame(value))
        return True

    async def stop(self) -> bool:
        """End the recorder when it has recorded everything; whether it has."""
        self._is_stopping = True
        child = self._child
        if child is None:
            return True
        if child.stdin is not None:
            child.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                code = await child.wait()
                if self._keeper is not None:
                    await self._keeper
        except TimeoutError:
            child.kill()
            await child.wait()
            return False
        return code == 0


async def _read_frame(pipe: asyncio.StreamReader) -> dict[str, Any]:
    head = await pipe.readexactly(FRAME.size)
    return dict(msgspec.msgpack.decode(await pipe.readexactly(FRAME.unpack(head)[0])))
