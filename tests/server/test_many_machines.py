"""Several servers and workers on one store, killed and cut off in the middle of a load: nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from context_compactor.archive.originals import original_text
from context_compactor.client import Client
from context_compactor.protocols import ServiceStore, Store
from context_compactor.sessions.log import COMPACTION, VIEW_KINDS, CompactionNote
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.rows import Job
from context_compactor.store.service_store import service_store_of
from tests.postgres import Server, new_schema
from tests.server.fleet import Fleet
from tests.server.load import THE_END, Follower, Talkers, Turn
from tests.server.streams import event
from tests.sessions.talk import illegal
from tests.waiting import wait_for

WINDOW = 6_000
SOFT = 0.80
SETTINGS = {"idle_seconds": 1, "wait_for_boundary": False, "retry_delay_seconds": 0.2, "retry_attempts": 10}


class Load:
    """Talkers and readers on a fleet, and what they must have found at the end."""

    def __init__(self, fleet: Fleet, store: Store, sessions: int, turns: int) -> None:
        self.store = store
        self.service_store: ServiceStore = service_store_of(store)
        self._fleet = fleet
        self._ids = [f"run-{at}" for at in range(sessions)]
        with Client(fleet.urls[0]) as client:
            for name in self._ids:
                client.create(name, window=WINDOW, settings=SETTINGS)
        self.talkers = Talkers(fleet.urls, self._ids, turns)
        self.followers = [Follower(url, restless=restless) for url in fleet.urls for restless in (False, True)]

    def start(self) -> None:
        for each in (*self.followers, self.talkers):
            each.start()

    def wait_for(self, share: float) -> None:
        """Until so much has been said and answered."""
        wait_for(lambda: self.talkers.share >= share, lambda: self.talkers.share)

    def finish(self) -> None:
        """Until all is said, all jobs are done, and every reader has read all."""
        self.wait_for(1.0)
        wait_for(lambda: not self._open_jobs(), self._open_jobs)
        self.service_store.record_event(event(session_id=THE_END))
        for follower in self.followers:
            wait_for(lambda: not follower.is_alive(), lambda: len(follower.seen))  # noqa: B023
            if follower.failure is not None:
                raise follower.failure

    def _open_jobs(self) -> list[object]:
        return list(self.service_store.jobs.newest(states=["waiting", "running"]))

    def check_begun_again(self, killed: Job) -> None:
        """Somebody else has done the job of one that was killed."""
        again = next((job for job in self.service_store.jobs.newest() if job.id == killed.id), None)
        assert again is not None
        assert (again.state, again.attempts > killed.attempts) == ("done", True)

    def check(self) -> None:
        """Nothing was lost, nothing came twice, and everything is in its order."""
        assert {job.state for job in self.service_store.jobs.newest(limit=10_000)} == {"done"}
        assert list(self.store.verify()) == []
        with Client(self._fleet.urls[-1]) as client:
            for name in self._ids:
                turns = self._check_history(name, client)
                self._check_context(name, client, turns)
        self._check_events()

    def _check_history(self, name: str, client: Client) -> list[Turn]:
        history = client.history(name).messages
        turns = [history[at : at + 4] for at in range(0, len(history), 4)]
        for who in ("a", "b"):
            mine = [each for each in turns if each[0]["content"].startswith(f"Request {name}_{who}_")]
            assert mine == self.talkers.said[name, who]
        assert len(turns) == len(self.talkers.said[name, "a"]) + len(self.talkers.said[name, "b"])
        return turns

    def _check_context(self, name: str, client: Client, turns: list[Turn]) -> None:
        assert client.session(name).share < SOFT
        assert illegal(client.context(name).messages) == []
        reports = client.compactions(name).compactions
        assert [report.compaction_id for report in reports] == [note.id for note in self._notes(name)]
        assert reports
        with Session.open(name, store=self.store) as session:
            for archived in (each for report in reports for each in report.archived):
                assert session.original(archived.id).text == _original(archived.id, turns)

    def _notes(self, name: str) -> list[CompactionNote]:
        """The compactions of a session, each made from what the one before has left."""
        entries = self.store.entries(name, kinds=VIEW_KINDS)
        notes = [msgspec.json.decode(entry.body, type=CompactionNote) for entry in entries]
        assert {entry.kind for entry in entries} == {COMPACTION}
        assert [note.view for note in notes] == [0, *(entry.position for entry in entries)][:-1]
        assert len({note.base for note in notes}) == len(notes)
        return notes

    def _check_events(self) -> None:
        kept = [each.event for each in self.service_store.events.after(0, limit=20_000)]
        made = Counter(note.id for name in self._ids for note in self._notes(name))
        for kind in ("summary.applied", "session.compacted"):
            assert Counter(each.payload["compaction_id"] for each in kept if each.type == kind) == made
        order = [each.id for each in kept]
        until = order.index(next(each.id for each in kept if each.session_id == THE_END)) + 1
        for follower in self.followers:
            assert [each.id for each in follower.seen] == order[:until]
            assert follower.gaps == []


def _original(ref: str, turns: list[Turn]) -> str:
    """What was said under a reference. The three parts of what we call a turn here are turns of their own there."""
    kind, _, digits = ref.partition("_")
    if kind == "file":
        return str(turns[int(digits) - 1][2]["content"])
    said, part = divmod(int(digits) - 1, 3)
    return original_text([turns[said][0:1], turns[said][1:3], turns[said][3:4]][part])


@contextmanager
def loaded(url: str, fleet: Fleet, sessions: int, turns: int) -> Iterator[Load]:
    """A load that has begun."""
    with closing(connect(url)) as store:
        load = Load(fleet, store, sessions, turns)
        load.start()
        try:
            yield load
        finally:
            load.talkers.stop()


@pytest.mark.slow
def test_two_servers_and_three_workers_lose_and_double_nothing_whatever_is_killed_or_restarted(
    tmp_path: Path, own_postgres: Server
):
    url = own_postgres.url(schema=new_schema())
    with Fleet(url, tmp_path) as fleet:
        fleet.start(servers=2, workers=3)
        with loaded(url, fleet, sessions=5, turns=18) as load:
            load.wait_for(0.3)
            killed = fleet.kill_one_at_work(load.service_store.jobs, fleet.workers)
            load.wait_for(0.4)
            own_postgres.restart("fast")
            load.wait_for(0.5)
            fleet.servers[1].kill()
            load.wait_for(0.6)
            fleet.servers[1].start().wait_until_ready()
            load.wait_for(0.75)
            own_postgres.restart("immediate")
            load.finish()
            load.check_begun_again(killed)
            load.check()
        fleet.stop()


@pytest.mark.slow
def test_a_server_and_a_worker_on_one_file_lose_and_double_nothing_when_the_server_is_killed(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/own.db"
    with Fleet(url, tmp_path) as fleet:
        fleet.start(servers=1, workers=1, workers_in_server=2)
        with loaded(url, fleet, sessions=4, turns=16) as load:
            load.wait_for(0.3)
            killed = fleet.kill_one_at_work(load.service_store.jobs, fleet.servers)
            fleet.servers[0].start().wait_until_ready()
            load.finish()
            load.check_begun_again(killed)
            load.check()
        fleet.stop()
