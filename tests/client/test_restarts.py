"""Those who use the client do not notice a restart: nothing fails, and nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import pytest

from context_compactor.client import AsyncClient, Client
from context_compactor.errors import ServerUnavailable
from tests.server.running import free_port, running, serving
from tests.server.streams import tell
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.slow

WRITERS = 5
RESTARTS = 3
BETWEEN = 4
"""How many messages each writer appends between two restarts, at least."""


class Writer(threading.Thread):
    """Appends messages to a session of its own, one after the other, until it is told to stop."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(name=name)
        self.count = 0
        self.failed: Exception | None = None
        self.is_over = threading.Event()
        self._client = client

    def run(self) -> None:
        try:
            self._client.create(self.name, window=200_000)
            while not self.is_over.is_set():
                self._client.append(self.name, {"role": "user", "content": f"{self.name} {self.count}"})
                self.count += 1
        except Exception as error:  # noqa: BLE001  the test says what it was
            self.failed = error


def test_nobody_who_appends_notices_that_a_server_is_restarted_again_and_again(tmp_path):
    port = free_port()
    with Client(f"http://127.0.0.1:{port}", retry_seconds=PATIENCE) as client, ExitStack() as stack:
        writers = [Writer(client, f"run-{number}") for number in range(WRITERS)]
        for writer in writers:
            stack.callback(writer.is_over.set)
            writer.start()  # before there is a server at all

        for _ in range(RESTARTS + 1):
            before = {writer: writer.count for writer in writers}

            def have_written() -> bool:
                return all(each.failed or each.count >= before[each] + BETWEEN for each in writers)  # noqa: B023

            with serving(tmp_path, port):
                wait_for(have_written, lambda: [writer.count for writer in writers])
                assert [writer.failed for writer in writers] == [None] * WRITERS
        with serving(tmp_path, port):
            for writer in writers:
                writer.is_over.set()
                writer.join(PATIENCE)
            assert [writer.failed for writer in writers] == [None] * WRITERS
            for writer in writers:
                messages = [message["content"] for message in client.history(writer.name).messages]
                assert messages == [f"{writer.name} {number}" for number in range(writer.count)]


def test_an_async_caller_does_not_notice_it_either(tmp_path):
    port = free_port()

    async def live() -> list[str]:
        async with AsyncClient(f"http://127.0.0.1:{port}", retry_seconds=PATIENCE) as client:
            call = asyncio.create_task(client.create("run", window=200_000))
            for number in range(RESTARTS):
                with serving(tmp_path, port):
                    await call
                call = asyncio.create_task(client.append("run", {"role": "user", "content": f"{number}"}))
            with serving(tmp_path, port):
                await call
                return [message["content"] for message in (await client.history("run")).messages]

    assert asyncio.run(live()) == [f"{number}" for number in range(RESTARTS)]


def test_a_stream_goes_on_behind_a_restart_and_gives_up_when_the_server_stays_away(tmp_path):
    with running(tmp_path) as server:
        client = Client(server.url, retry_seconds=PATIENCE)
        events = client.events(after="0", types=["job.queued"])
        tell(server, 1)
        assert next(events).payload == {"number": 1}
        port = server.port
    with running(tmp_path, port=port) as server:
        tell(server, 2)
        assert next(events).payload == {"number": 2}
    now = [0.0]

    def clock() -> float:
        now[0] += PATIENCE / 3
        return now[0]

    client._transport._clock = clock
    with client, pytest.raises(ServerUnavailable, match=r"tried \d+ times in .* seconds: .*refused.*Try:"):
        next(client.events(after="0"))
