"""A store in a file: who may read it, what it survives, and what it says when it cannot be used."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from context_compactor.errors import BadSetting, StoreError, StoreLocked
from context_compactor.store.connect import connect, sqlite_path
from context_compactor.store.sqlite import SqliteStore
from tests.store.children import Child, started
from tests.store.rows import AT, bodies, item, texts_of
from tests.waiting import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """An open store with one message of the session `a` in it."""
    with closing(SqliteStore(str(path), busy_seconds=0.2)) as opened:
        opened.open_session("a", b"{}", AT)
        opened.append("a", "message", bodies("before"), AT)
        yield opened


# Who may read it


def test_the_file_and_the_folders_made_for_it_are_their_owners_alone(tmp_path: Path):
    path = tmp_path / "one" / "two" / "sessions.db"
    with closing(SqliteStore(str(path))) as store:
        store.open_session("a", b"{}", AT)
        made = [path.parent, path.parent.parent, *path.parent.iterdir()]
        assert {each.stat().st_mode & 0o077 for each in made} == {0}


def test_a_file_that_is_there_keeps_its_mode(path: Path):
    path.touch(mode=0o640)
    path.chmod(0o640)
    SqliteStore(str(path)).close()
    assert path.stat().st_mode & 0o777 == 0o640


# What it survives


def test_what_was_written_is_there_when_it_is_opened_again(store: SqliteStore, path: Path):
    store.archive("a", [item(store, "tool_001", '"value"', terms="needle")], AT)
    store.close()
    with closing(SqliteStore(str(path))) as again:
        assert texts_of(again) == ["before"]
        assert [each.ref for each in again.originals("a")] == ["tool_001"]
        assert list(again.verify()) == []


def test_what_append_has_accepted_is_in_the_files_before_anything_is_closed(store: SqliteStore, tmp_path: Path):
    copies = tmp_path / "copies"
    copies.mkdir()
    for number in range(5):
        store.append("a", "message", bodies(f"message {number}"), AT)
        copy = copies / f"{number}.db"
        shutil.copy(store.path, copy)
        shutil.copy(f"{store.path}-wal", f"{copy}-wal")
        with closing(SqliteStore(str(copy))) as found:
            assert texts_of(found)[-1] == f"message {number}"
            assert list(found.verify()) == []


def test_an_empty_file_becomes_a_store(path: Path):
    path.touch()
    with closing(SqliteStore(str(path))) as store:
        assert store.sessions() == []


def test_several_processes_may_make_the_same_store_at_once(path: Path):
    def make(number: int) -> None:
        with closing(SqliteStore(str(path))) as store:
            store.open_session("a", b"{}", AT)
            store.append("a", "message", bodies(f"message {number}"), AT)

    with started(make, range(8)) as children:
        assert [child.wait() for child in children] == [0] * 8
    with closing(SqliteStore(str(path))) as store:
        assert sorted(texts_of(store)) == [f"message {number}" for number in range(8)]
        assert list(store.verify()) == []


def test_threads_may_share_a_store(store: SqliteStore):
    def write(thread: int) -> None:
        for number in range(20):
            with store.writing("a") as row:
                assert store.append("a", "message", bodies(f"{thread} {number}"), AT) == row.head + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    said = texts_of(store)[1:]
    assert sorted(said) == sorted(f"{thread} {number}" for thread in range(8) for number in range(20))
    for thread in range(8):
        own = [text for text in said if text.startswith(f"{thread} ")]
        assert own == [f"{thread} {number}" for number in range(20)]
    assert list(store.verify()) == []


def test_a_forked_process_and_its_parent_both_go_on_and_nothing_is_lost(store: SqliteStore, path: Path):
    def work(child: Child) -> None:
        store.append("a", "message", bodies("child 1"), AT)
        child.say()
        child.hear()
        store.append("a", "message", bodies("child 2"), AT)

    with Child(work) as child:
        child.hear()
        store.append("a", "message", bodies("parent"), AT)
        store.close()  # the last of the parent's: were the child's lock not its own, the log would go with it
        with closing(SqliteStore(str(path))) as other:
            child.say()
            assert child.wait() == 0
            assert texts_of(other) == ["before", "child 1", "parent", "child 2"]
            assert list(other.verify()) == []


def test_a_store_in_memory_is_copied_when_the_process_forks():
    def work(child: Child) -> None:
        store.append("a", "message", bodies("child"), AT)
        assert texts_of(store) == ["before", "child"]

    with closing(SqliteStore()) as store:
        store.open_session("a", b"{}", AT)
        store.append("a", "message", bodies("before"), AT)
        with Child(work) as child:
            assert child.wait() == 0
        assert texts_of(store) == ["before"]


def test_a_process_that_forks_amid_a_write_keeps_it_and_its_child_has_no_part_in_it(store: SqliteStore):
    def work(child: Child) -> None:
        with pytest.raises(StoreError, match="open the session again"):
            store.append("a", "message", bodies("child"), AT)

    with store.writing("a"):
        store.append("a", "message", bodies("parent"), AT)
        with Child(work) as child:
            assert child.wait() == 0
        store.append("a", "message", bodies("parent again"), AT)
    assert texts_of(store) == ["before", "parent", "parent again"]
    assert list(store.verify()) == []


def test_a_fork_while_another_thread_writes_disturbs_neither(path: Path):
    store = SqliteStore(str(path))
    store.open_session("a", b"{}", AT)

    def write() -> None:
        for number in range(60):
            store.append("a", "message", bodies(f"thread {number}"), AT)

    def work(number: int) -> None:
        store.append("a", "message", bodies(f"child {number}"), AT)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        for number in range(4):
            with started(work, [number]) as children:
                assert children[0].wait() == 0
        written.result()
    said = texts_of(store)
    assert [text for text in said if "child" in text] == [f"child {number}" for number in range(4)]
    assert [text for text in said if "thread" in text] == [f"thread {number}" for number in range(60)]
    assert list(store.verify()) == []
    store.close()


def test_a_store_with_a_relative_path_stays_the_same_file_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with closing(SqliteStore("sessions.db")) as store:
        store.open_session("a", b"{}", AT)
        monkeypatch.chdir(tmp_path / "elsewhere")
        with Child(lambda child: store.append("a", "message", bodies("child"), AT)) as child:
            assert child.wait() == 0
        assert texts_of(store) == ["child"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


# What it says when it cannot be used


def test_a_database_from_the_future_is_refused_and_left_alone(store: SqliteStore, path: Path):
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer version.*99.*update context-compactor") as refused:
        SqliteStore(str(path))
    assert str(path) in str(refused.value)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path):
    path.write_text("these are the notes of somebody else\n" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"not a database.*Try: ") as refused:
        SqliteStore(str(path))
    assert str(path) in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_database_of_another_program_is_refused_and_left_alone(path: Path, version: int):
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
        database.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="database of another program"):
        SqliteStore(str(path))
    assert path.read_bytes() == before


def test_a_file_whose_middle_was_overwritten_is_told(store: SqliteStore, path: Path):
    store.append("a", "message", [os.urandom(200_000)], AT)
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=str(path)), closing(SqliteStore(str(path))) as found:
        found.entries("a")


def test_a_folder_that_cannot_be_written_is_named(locked: Path):
    for path in (locked / "sessions.db", locked / "below" / "sessions.db", locked.parent / "sessions.db"):
        with pytest.raises(StoreError, match=r"[Pp]ermission") as refused:
            SqliteStore(str(path))
        assert str(path) in str(refused.value)
        assert "Try: " in str(refused.value)


def test_a_path_below_a_file_and_a_path_that_is_a_folder_are_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "sessions.db", tmp_path):
        with pytest.raises(StoreError, match=str(path)):
            SqliteStore(str(path))


@pytest.fixture
def held(store: SqliteStore) -> Iterator[Child]:
    """Another process that writes to the store and does not come to an end until it is told."""

    def hold(child: Child) -> None:
        with closing(sqlite3.connect(store.path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            child.say()
            child.hear()

    with Child(hold) as other:
        other.hear()
        yield other


def test_a_store_that_another_process_holds_for_too_long_says_so(store: SqliteStore, held: Child):
    for write in (
        lambda: store.append("a", "message", bodies("never"), AT),
        lambda: store.save_state("a", b"{}"),
        lambda: store.writing("a").__enter__(),
    ):
        with pytest.raises(StoreLocked, match=r"locked by another process for 0\.2 seconds.*nothing was written"):
            write()
    assert texts_of(store) == ["before"]
    held.say()
    held.wait()
    store.append("a", "message", bodies("after"), AT)
    assert texts_of(store) == ["before", "after"]


def test_a_store_that_is_held_can_still_be_opened_and_read(store: SqliteStore, held: Child):
    with closing(SqliteStore(store.path, busy_seconds=0.2)) as other:
        assert texts_of(other) == ["before"]
        assert list(other.verify()) == []


def test_a_full_disk_is_named_and_what_was_there_stays(store: SqliteStore):
    def limit(pages: int) -> None:
        store._database._live().execute(f"PRAGMA max_page_count = {pages}")

    limit(store._database.row("PRAGMA page_count")[0] + 2)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"the disk is full; nothing was written"):
            store.append("a", "message", [os.urandom(100_000)], AT)
    assert texts_of(store) == ["before"]
    assert list(store.verify()) == []
    limit(100_000)
    store.append("a", "message", bodies("after"), AT)
    assert texts_of(store) == ["before", "after"]


def test_a_transaction_that_a_full_disk_has_ended_writes_nothing_more(store: SqliteStore):
    store._database._live().execute(f"PRAGMA max_page_count = {store._database.row('PRAGMA page_count')[0] + 2}")

    def go_on_regardless() -> None:
        with store.writing("a"):
            store.append("a", "message", bodies("in the same block"), AT)
            with pytest.raises(StoreError, match="full"):
                store.append("a", "message", [os.urandom(100_000)], AT)
            store.save_state("a", b'{"half":1}')

    try:
        go_on_regardless()
    except StoreError:
        assert (texts_of(store), store.session("a").state) == (["before"], b"{}")
    else:
        assert texts_of(store) == ["before", "in the same block"]
    assert list(store.verify()) == []


def test_a_disk_that_refuses_to_write_leaves_what_was_there(store: SqliteStore, path: Path):
    def work(child: Child) -> None:
        size = path.stat().st_size + 40_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        with pytest.raises(StoreError, match=str(path)):
            store.append("a", "message", [os.urandom(1_000_000)], AT)

    with Child(work) as child:
        assert child.wait() == 0
    assert texts_of(store) == ["before"]
    assert list(store.verify()) == []


# Addresses


def test_an_address_leads_to_a_file_or_to_memory(tmp_path: Path):
    assert sqlite_path("memory:") is None
    assert sqlite_path("sqlite:///:memory:") is None
    assert sqlite_path("sqlite:///.compactor/compactor.db") == Path(".compactor/compactor.db")
    assert sqlite_path("sqlite:////var/lib/sessions.db") == Path("/var/lib/sessions.db")
    assert sqlite_path("sqlite:///~/sessions.db") == Path("~/sessions.db").expanduser()
    with closing(connect(f"sqlite:///{tmp_path}/sessions.db")) as store:
        assert store.path == str(tmp_path / "sessions.db")


@pytest.mark.parametrize("address", ["", "sessions.db", "sqlite:///", "sqlite:/x.db", "mysql://host/db", "a\0b", 7])
def test_what_is_no_address_is_refused_with_one_that_is(address: str):
    with pytest.raises(BadSetting, match=r"not a store URL.*sqlite:///"):
        connect(address)


def test_a_store_that_must_be_there_is_not_made(tmp_path: Path):
    with pytest.raises(BadSetting, match="there is no store"):
        connect(f"sqlite:///{tmp_path}/sessions.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_deleted_or_replaced_is_not_written_to_any_more(tmp_path: Path):
    """What is written to it would be gone with the process."""
    file = tmp_path / "kept.db"
    with closing(SqliteStore(str(file))) as store:
        store.open_session("a", b"{}", AT)
        aside = file.rename(tmp_path / "aside.db")
        for use in (lambda: store.append("a", "message", [b"{}"], AT), lambda: store.session("a")):
            with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
                use()
        file.write_bytes(b"")
        with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
            store.append("a", "message", [b"{}"], AT)
        aside.replace(file)
        assert store.append("a", "message", [b"{}"], AT) == 1


def test_who_reads_does_not_wait_for_who_writes_and_sees_what_is_committed(tmp_path: Path):
    with closing(SqliteStore(str(tmp_path / "kept.db"))) as store, ThreadPoolExecutor(1) as other:
        store.open_session("a", b"{}", AT)
        with store.writing("a"):
            store.append("a", "message", [b"{}"], AT)
            assert store.session("a").messages == 1
            assert other.submit(store.session, "a").result(PATIENCE).messages == 0
        assert other.submit(store.session, "a").result(PATIENCE).messages == 1


def test_after_a_fork_all_threads_find_the_same_connection(store: SqliteStore):
    """It is opened anew by whoever comes first; one that only reads must not take the place of who writes."""
    together = Barrier(4)

    def work(who: int) -> None:
        together.wait(PATIENCE)
        store.append("a", "message", bodies(f"{who}"), AT) if who % 2 else store.session("a")

    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            store._database.before_fork()
            store._database.after_fork()
            list(pool.map(work, range(4)))
    assert store.session("a").messages == 1 + 50 * 2
    assert list(store.verify()) == []
