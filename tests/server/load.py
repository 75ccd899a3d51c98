"""Many who talk to several servers at once and insist until they are answered, and readers who miss nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from threading import Lock, Thread
from typing import Any

from context_compactor.client import Client
from context_compactor.errors import ServerUnavailable
from context_compactor.store.events import Event
from tests.waiting import PATIENCE

Raw = dict[str, Any]
Turn = list[Raw]

THE_END = "the-end"
"""The session of the event behind which a reader reads no further."""


def turn(session_id: str, who: str, number: int) -> Turn:
    """One turn of a conversation, which nobody else says: a request, a call, its output, an answer."""
    name = f"{session_id}_{who}_{number}"
    call = {
        "id": f"call_{name}",
        "type": "function",
        "function": {"name": "read", "arguments": f'{{"path": "{name}"}}'},
    }
    return [
        {"role": "user", "content": f"Request {name}: what does compute_{name} do?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": _lines(name, 12, "line {at} of {name}: value {value}")},
        {"role": "assistant", "content": _lines(name, 4, "It returns value {value} for part {at}.")},
    ]


def _lines(name: str, count: int, words: str) -> str:
    seed = sum(map(ord, name))
    return "\n".join(words.format(at=at, name=name, value=seed * 31 + at * 7) for at in range(count))


class Talkers:
    """Two in each session, each saying its turns in its order, every one to the next server in the row.

    What is not answered is said again, with the same key, to the server after that, for as long as it takes.
    """

    def __init__(self, urls: Sequence[str], session_ids: Sequence[str], turns: int) -> None:
        self.said: dict[tuple[str, str], list[Turn]] = {}
        self.repeated = 0
        self._wanted = turns
        self._urls = urls
        self._failures: list[BaseException] = []
        self._is_over = False
        self._lock = Lock()
        speakers = [(session_id, who, at) for session_id in session_ids for at, who in enumerate(("a", "b"))]
        self._threads = [Thread(target=self._guarded, args=each, daemon=True) for each in speakers]
        self._all = len(speakers) * turns

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def share(self) -> float:
        """How much of it all has been answered."""
        self._check()
        return sum(len(turns) for turns in list(self.said.values())) / self._all

    def stop(self) -> None:
        """Insist no longer."""
        self._is_over = True

    def _check(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _guarded(self, session_id: str, who: str, first: int) -> None:
        clients = [Client(url, timeout=PATIENCE, retry_seconds=0.5) for url in self._urls]
        try:
            self._talk(session_id, who, islice(cycle(clients), first, None))
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            self._failures.append(error)
        finally:
            for client in clients:
                client.close()

    def _talk(self, session_id: str, who: str, clients: Iterator[Client]) -> None:
        mine = self.said.setdefault((session_id, who), [])
        for number in range(self._wanted):
            said = turn(session_id, who, number)
            while not self._say(next(clients), session_id, said, f"{who}-{number}"):
                if self._is_over:
                    return
                with self._lock:
                    self.repeated += 1
            mine.append(said)

    def _say(self, client: Client, session_id: str, said: Turn, key: str) -> bool:
        try:
            client.append(session_id, said, key=key)
        except ServerUnavailable:
            return False
        return True


class Follower(Thread):
    """Reads all events of a server, until the last. One that is `restless` goes away and comes again now and then."""

    def __init__(self, url: str, *, restless: bool = False) -> None:
        super().__init__(daemon=True)
        self.seen: list[Event] = []
        self.gaps: list[str] = []
        self.failure: BaseException | None = None
        self._url = url
        self._stay = 7 if restless else None

    def run(self) -> None:
        try:
            with Client(self._url, retry_seconds=math.inf) as client:  # it may be long until a server is there again
                while not self._is_over:
                    self._read(client)
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            self.failure = error

    @property
    def _is_over(self) -> bool:
        return bool(self.seen) and self.seen[-1].session_id == THE_END

    def _read(self, client: Client) -> None:
        events = client.events(after=self.seen[-1].id if self.seen else "0", on_gap=self.gaps.append)
        for event in islice(events, self._stay):
            self.seen.append(event)
            if self._is_over:
                break
        events.close()
