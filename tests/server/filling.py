"""Sessions over HTTP that are filled to a share of their budget, jobs that can be held, and what readers were told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from typing import Any

from context_compactor.store.rows import Job
from tests.server.running import Got, Running
from tests.server.streams import event, following
from tests.waiting import PATIENCE, wait_for

Raw = dict[str, Any]

WINDOW = 12_000
WIDE = 24_000
"""A window of which a turn is so small a share that several do not lead from one level to the next."""
CALM: dict[str, Any] = {"idle_seconds": 0, "retry_delay_seconds": 0.01}


class Talk:
    """A conversation with a server: `fill` says as many turns at once as bring it to a share of its budget."""

    def __init__(self, server: Running, name: str = "run", window: int = WINDOW, **settings: Any) -> None:
        self.server = server
        self.name = name
        self.path = server.made(name, window, settings={**CALM, **settings})
        self.said: list[Raw] = []
        self._weight = 0.0

    def say(self, *messages: Raw) -> Any:
        """Append, and what is answered."""
        got = self.server.post(f"{self.path}/messages", {"messages": list(messages)})
        assert got.status == 200, got.raw
        self.said += messages
        return got.json

    def turns(self, count: int, words: int = 10) -> Any:
        """So many turns in one request."""
        first = len(self.said)
        return self.say(*(message for at in range(count) for message in turn(first + 2 * at, words)))

    def fill(self, share: float) -> Any:
        """One request that brings the context from where it is to about this share of the budget."""
        if not self._weight:
            before = self.turns(1)["tokens"]
            self._weight = (self.turns(2)["tokens"] - before) / 2
        usage = self.seen["usage"]
        missing = share * usage["budget_tokens"] - usage["tokens"]
        return self.turns(max(round(missing / self._weight), 1))

    @property
    def seen(self) -> Any:
        """The session as it is told."""
        return self.server.get(self.path).json

    @property
    def share(self) -> float:
        """How full it is."""
        share: float = self.seen["share"]
        return share

    @property
    def context(self) -> list[Raw]:
        """What would be sent next."""
        messages: list[Raw] = self.server.get(f"{self.path}/context").json["messages"]
        return messages

    @property
    def history(self) -> list[Raw]:
        """Everything that was said."""
        messages: list[Raw] = self.server.get(f"{self.path}/history").json["messages"]
        return messages

    @property
    def compactions(self) -> list[Any]:
        """The report of each compaction."""
        reports: list[Any] = self.server.get(f"{self.path}/compactions").json["compactions"]
        return reports

    @property
    def jobs(self) -> list[Job]:
        """All jobs of the session, oldest first."""
        return self.server.service.service_store.jobs.newest(session_id=self.name)[::-1]

    @property
    def levels(self) -> list[tuple[str, str]]:
        """The level and the state of each job."""
        return [(job.level, job.state) for job in self.jobs]

    def compact(self, **body: Any) -> Got:
        """Ask for a compaction."""
        return self.server.post(f"{self.path}/compact", body)

    def told(self, *types: str) -> list[Any]:
        """All events of the session so far, as a reader gets them."""
        return [each for each in told(self.server, *types) if each["session_id"] == self.name]

    def types(self) -> list[str]:
        """Their types."""
        return [each["type"] for each in self.told()]


def turn(number: int, words: int = 10) -> list[Raw]:
    """A question and its answer; no two are the same, and all weigh the same."""
    name = f"{number:05}"
    answer = " ".join(f"It returns value_{name} of part_{at:03}." for at in range(words))
    return [
        {"role": "user", "content": f"Request {name}: what does compute_{name} in src/part_{name}.py do?"},
        {"role": "assistant", "content": answer},
    ]


def told(server: Running, *types: str) -> list[Any]:
    """All events that a reader who asks for everything is sent until now."""
    mark = event("item.recalled", "the mark")
    server.service.bus.emit(mark)
    found: list[Any] = []
    with following(server, "?last_event_id=0") as stream:
        while (each := stream.told()[0].json)["id"] != mark.id:
            found.append(each)
    return [each for each in found if each["session_id"] != "the mark" and (not types or each["type"] in types)]


def idle(server: Running) -> None:
    """Wait until no job runs and none is due, nor due again soon."""
    assert server.service.engine is not None
    wait_for(lambda: not [job for job in open_jobs(server) if job.kind == "compact"])
    assert server.service.engine.wait_idle(PATIENCE)


def open_jobs(server: Running) -> list[Job]:
    """The jobs that wait or run."""
    return server.service.service_store.jobs.newest(states=["waiting", "running"])


@contextmanager
def before_jobs(
    server: Running, before: Callable[[Job], None], after: Callable[[Job], None] = lambda job: None
) -> Iterator[None]:
    """While the block runs, this comes before every job that the server does; what it raises is the job's failure."""
    assert server.service.engine is not None
    work = server.service.engine._work
    do = work.do

    def scripted(job: Job) -> None:
        before(job)
        try:
            do(job)
        finally:
            after(job)

    work.do = scripted
    try:
        yield
    finally:
        work.do = do
        if isinstance(before, Held):
            before.go_on.set()


class Held:
    """Holds jobs, or those of one session only: each says that it has begun and goes on when it may."""

    def __init__(self, only: str = "") -> None:
        self.begun, self.go_on = Flag(), Flag()
        self.jobs: list[Job] = []
        self._only = only

    def __call__(self, job: Job) -> None:
        if self._only not in ("", job.session_id):
            return
        self.jobs.append(job)
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
