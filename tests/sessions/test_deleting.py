"""Deleting a session: everything of it goes, others stay as they were, and whoever has it open is told so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from context_compactor import AsyncSession, DeletedSession, UnknownSession, delete_session
from context_compactor.errors import StoreError
from context_compactor.protocols import Store
from context_compactor.sessions.events import Bus
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest
from context_compactor.testing import ScriptedModel
from tests.postgres import STORES
from tests.sessions import summarizing
from tests.sessions.summarizing import PLAIN
from tests.sessions.talk import messages, opened

READABLE = Path(".tmp", "context-archive")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'sessions.db'}"
    return str(request.getfixturevalue("postgres_url"))


def all_of(session: Session) -> tuple[object, ...]:
    """What a session has and shows."""
    return session.history(), session.context(), session.facts(), session.compactions(), session.search("compute")


def files(folder: Path) -> set[str]:
    """The files below a folder that hold more than nothing, but for locks and what keeps git away."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {str(path.relative_to(folder)) for path in found if path.name not in (".lock", ".gitignore")}


def test_what_two_sessions_have_in_common_stays_for_the_other(url: str):
    for name in ("gone", "stays"):
        with opened(url, name) as session:
            session.append(messages(0, 60))
            session.compact()
            session.checkpoint("soon")
    with opened(url, "stays") as other:
        before = all_of(other)
        with opened(url, "gone") as session:
            session.delete()
        assert all_of(other) == before
        assert other.verify() == []
        other.append(messages(60, 80))
    with opened(url, "gone") as again:
        assert (again.history(), again.context(), again.facts(), again.compactions()) == ([], [], [], [])
        assert again.undo() is None


def test_a_session_is_deleted_by_its_id_without_opening_it(url: str):
    with opened(url) as session:
        session.append(messages(0, 8))
    delete_session("run", store=url)
    with closing(connect(url)) as store:
        assert store.sessions() == []
        assert all(not store._database.rows(f"SELECT 1 FROM {table}") for table in ("contents", "entries", "facts"))
    with pytest.raises(UnknownSession, match="no session 'run'"):
        delete_session("run", store=url)


def test_deleting_an_id_that_never_was_makes_no_store(tmp_path: Path):
    with pytest.raises(UnknownSession, match="no session 'nobody'"):
        delete_session("nobody", store=SqliteStore())
    with pytest.raises(Exception, match="there is no store"):
        delete_session("nobody", store=f"sqlite:///{tmp_path / 'none.db'}")
    assert list(tmp_path.iterdir()) == []


# Others have it open

CHANGES: dict[str, Callable[[Session], Any]] = {
    "append": lambda session: session.append(messages(60, 62)),
    "compact": lambda session: session.compact(),
    "undo": lambda session: session.undo(),
    "set_tier": lambda session: session.set_tier(1, "keep"),
    "unsteer": lambda session: session.clear_tier(),
    "restore": lambda session: session.restore("turn_001"),
    "checkpoint": lambda session: session.checkpoint(),
    "handoff": lambda session: session.handoff(),
    "context": lambda session: session.context(),
    "usage": lambda session: session.usage(),
    "delete": lambda session: session.delete(),
}


@pytest.mark.parametrize("is_made_again", [False, True], ids=["gone", "made again"])
@pytest.mark.parametrize("has_written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("verb", CHANGES)
def test_whoever_has_a_deleted_session_open_is_told_so_and_changes_nothing(
    url: str, verb: str, has_written: bool, is_made_again: bool
):
    with opened(url) as session:
        session.append(messages(0, 40))
        session.compact()
    with opened(url) as mine:
        if has_written:
            mine.append(messages(40, 60))
        mine.context()
        delete_session("run", store=url)
        if is_made_again:
            with opened(url) as other:
                other.append({"role": "user", "content": "a new beginning"})
        with pytest.raises(UnknownSession if verb == "restore" else DeletedSession, match="'run'"):
            CHANGES[verb](mine)
    with closing(connect(url)) as store:
        assert [row.messages for row in store.sessions()] == ([1] if is_made_again else [])
        assert list(store.verify()) == []


def test_a_twin_of_a_deleted_session_is_told_too(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 8))
        twin = session.clone()
        session.delete()
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        twin._core.store = store
        with pytest.raises(DeletedSession):
            twin.append(messages(8, 10))


class Deleting(ScriptedModel):
    """A model during whose work somebody deletes the session."""

    def __init__(self, delete: Callable[[], None]) -> None:
        super().__init__([PLAIN] * 8)
        self.delete = delete

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """Its answer, which comes too late."""
        self.delete()
        self.delete = lambda: None
        return super().write(request, control)


def test_a_compaction_of_a_session_that_is_deleted_meanwhile_writes_nothing_and_tells_nothing(url: str):
    heard: list[str] = []
    held: list[Session] = []

    def delete() -> None:
        delete_session("run", store=url)
        held[0].bus.subscribe(lambda event: heard.append(event.type))

    with closing(connect(url)) as store, summarizing.opened(Deleting(delete), store) as session:
        held.append(session)
        session.append([*summarizing.FIRST, *summarizing.steps(0, 34)])
        with pytest.raises(DeletedSession, match="was deleted while it was open"):
            session.compact()
    with closing(connect(url)) as store:
        assert store.sessions() == []
        assert all(not store._database.rows(f"SELECT 1 FROM {table}") for table in ("entries", "originals", "facts"))
    assert heard == []


def test_a_compaction_under_way_here_is_ended_by_deleting_the_session(tmp_path: Path):
    held: list[Session] = []
    model = Deleting(lambda: held[0].clone().delete())
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        with summarizing.opened(model, store) as session:
            held.append(session)
            session.append([*summarizing.FIRST, *summarizing.steps(0, 34)])
            with pytest.raises(Exception, match=r"cancelled|deleted"):
                session.compact()
        assert store.sessions() == []


# Events and files


def test_that_a_session_was_deleted_is_told_with_what_it_was(tmp_path: Path):
    bus, heard = Bus(), []
    bus.subscribe(heard.append, types=("session.deleted",))
    with opened(tmp_path, bus=bus) as session:
        session.append(messages(0, 8))
        session.delete()
    assert [(event.session_id, event.payload) for event in heard] == [("run", {"messages": 8})]


def test_files_that_were_made_from_the_session_go_and_those_of_others_stay(tmp_path: Path):
    for name in ("stays", "gone"):
        with opened(tmp_path, name) as session:
            session.append(messages(0, 80))
            session.compact()
            session.checkpoint("soon")
    log = tmp_path / ".compactor" / "logs" / "compaction.json"
    own = tmp_path / READABLE / "gone" / "my-notes.md"
    own.write_text("of somebody else")
    delete_session("gone", store=f"sqlite:///{tmp_path / 'sessions.db'}")
    assert {json.loads(line)["session_id"] for line in log.read_text().splitlines()} == {"stays"}
    assert not (tmp_path / ".compactor" / "progress-checkpoint.md").exists()
    assert [path.name for path in (tmp_path / READABLE / "gone").iterdir()] == ["my-notes.md"]
    assert (tmp_path / READABLE / "stays" / "manifest.json").is_file()


def test_the_checkpoint_of_another_session_stays(tmp_path: Path):
    for name in ("gone", "stays"):
        with opened(tmp_path, name) as session:
            session.append(messages(0, 8))
            session.checkpoint(f"of {name}")
    delete_session("gone", store=f"sqlite:///{tmp_path / 'sessions.db'}")
    assert "of stays" in (tmp_path / ".compactor" / "progress-checkpoint.md").read_text()


def test_of_the_only_session_no_file_is_left_but_the_store(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 80))
        session.compact()
        session.checkpoint("soon")
        assert len(files(tmp_path)) > 5
        session.delete()
    assert files(tmp_path) == {"sessions.db"}


def test_what_a_killed_deletion_has_left_goes_with_the_next_even_when_that_finds_no_session(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(messages(0, 8))
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        store.delete("run")  # and killed here
        assert store._database.rows("SELECT 1 FROM entries")
        with pytest.raises(UnknownSession):
            delete_session("run", store=store)
        assert not store._database.rows("SELECT 1 FROM entries")


def test_a_session_is_deleted_though_another_one_is_damaged_and_that_is_said(tmp_path: Path):
    for name in ("gone", "damaged"):
        with opened(tmp_path, name) as session:
            session.append([{"role": "user", "content": f"of {name}"}, *messages(0, 40)])
            session.compact()
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        damage(store, "damaged")
        with pytest.raises(StoreError, match=r"is deleted, but .* `compactor verify`"):
            delete_session("gone", store=store)
        assert [row.id for row in store.sessions()] == ["damaged"]
        delete_session("damaged", store=store)
        assert not store._database.rows("SELECT 1 FROM contents")


def damage(store: SqlStore, session_id: str) -> None:
    """Change the note of a compaction behind the store's back."""
    entry = store.entries(session_id, kinds=("compaction",))[0]
    store._database.write("UPDATE contents SET size = 0, bytes = x'00' WHERE hash = ?", [bytes.fromhex(entry.hash)])


def test_an_async_session_is_deleted_as_well():
    async def talk(store: Store) -> None:
        async with await AsyncSession.open("run", window=3_000, store=store) as session:
            await session.append(messages(0, 8))
            await session.delete()

    with closing(SqliteStore()) as store:
        asyncio.run(talk(store))
        assert store.sessions() == []
