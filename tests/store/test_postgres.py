"""A store in PostgreSQL: what it says when it cannot be used, what it survives, and who waits for whom."""

from __future__ import annotations

import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_compactor.errors import BadSetting, MissingExtra, StoreError, StoreLocked
from context_compactor.store.connect import connect
from context_compactor.store.postgres import PostgresStore
from context_compactor.store.postgres_connection import read_address
from context_compactor.store.rows import FactRow, NewOriginal, PassageRun, hash_of
from context_compactor.store.sqlite import SqliteStore
from context_compactor.store_urls import without_password
from tests.postgres import PASSWORD, QUOTED, Server, new_schema
from tests.store.children import Child, started
from tests.store.rows import AT, LATER, LATEST, bodies, item, texts_of
from tests.waiting import PATIENCE, wait_for


@pytest.fixture
def url(own_postgres: Server) -> str:
    """The address of a store on a server that may be stopped."""
    return own_postgres.url(schema=new_schema())


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """An open store with one message of the session `a` in it."""
    with closing(PostgresStore(url, busy_seconds=5)) as opened:
        opened.open_session("a", b"{}", AT)
        opened.append("a", "message", bodies("before"), AT)
        yield opened


def waiting_for_locks(url: str) -> int:
    """How many on this server wait for somebody else's lock."""
    with psycopg.connect(read_address(url).conninfo) as connection:
        (count,) = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() or (0,)
        return count


def failed_connections(store: PostgresStore) -> int:
    """How often a store has looked for its server in vain."""
    return store._database._pool._begun().get_stats().get("connections_errors", 0)


@contextmanager
def impatient(url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(url, busy_seconds=0.2)) as opened:
        yield opened


# Addresses


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://ann:secret@db.example:5433/work", "postgresql://ann@db.example:5433/work"),
        ("postgres://ann@db.example/work", "postgresql://ann@db.example/work"),
        ("postgresql:///work?host=/run/postgresql", "postgresql:///work?host=/run/postgresql"),
        ("postgresql://h/d?schema=other&connections=3&password=secret", "postgresql://h/d?schema=other"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, name: str):
    address = read_address(url)
    assert address.name == name
    assert "secret" not in repr(address)
    assert "secret" not in without_password(url)


def test_what_is_not_for_the_server_is_ours():
    address = read_address("postgresql://h/d?schema=other&connections=3&sslmode=require&application_name=x")
    assert (address.schema, address.connections) == ("other", 3)
    assert "sslmode=require" in address.conninfo
    assert "schema" not in address.conninfo
    assert (read_address("postgresql://h/d").schema, read_address("postgresql://h/d").connections) == ("compactor", 10)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@host:port/db",
        "postgresql://ann:s3cret/x@host/db",
        "postgresql://ann:s3cret@host/db?nonsense=1",
        "postgresql://ann:s3cret@host/db?schema=No Such!",
        "postgresql://ann:s3cret@host/db?schema=pg_own",
        "postgresql://ann:s3cret@host/db?schema=",
        "postgresql://ann:s3cret@host/db?connections=0",
        "postgresql://ann:s3cret@host/db?connections=many",
        "postgresql://ann:s3cret%zz@host/db",
        "postgresql://ann:s3c@ret@host:5/6/db",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(url: str):
    with pytest.raises(BadSetting, match=r"store: .*Try: ") as refused:
        connect(url)
    assert "s3c" not in "".join(traceback.format_exception(refused.value))


# What it says when it cannot be used


def test_without_the_extra_it_is_said_which_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "context_compactor.store.postgres", None)
    with pytest.raises(MissingExtra, match=r"'\.\[postgres\]'"):
        connect("postgresql://host/db")


def refused_by(open_it: Callable[[], object]) -> str:
    """What an error says, with everything it came from."""
    with pytest.raises(StoreError, match="Try: ") as refused:
        open_it()
    shown = "".join(traceback.format_exception(refused.value))
    assert PASSWORD not in shown
    assert QUOTED not in shown
    return str(refused.value)


def test_a_wrong_password_and_a_missing_one_are_told_and_never_shown(own_postgres: Server):
    for password in ("wrong" + QUOTED, ""):
        url = own_postgres.url(user="guarded", password=password)
        said = refused_by(lambda: PostgresStore(url))  # noqa: B023  it is called at once
        assert "does not accept this user and password" in said
        assert "guarded@127.0.0.1" in said
        assert "wrong" not in said


def test_the_right_password_opens_and_is_shown_nowhere(own_postgres: Server):
    schema = new_schema()
    own_postgres.run(f"CREATE SCHEMA {schema} AUTHORIZATION guarded")
    url = own_postgres.url(user="guarded", password=QUOTED, schema=schema)
    with closing(PostgresStore(url)) as store:
        store.open_session("a", b"{}", AT)
        assert "s3cret" not in store.path + repr(vars(store)) + repr(vars(store._database))
        with pytest.raises(StoreError) as failed:
            store._database.rows("SELECT nonsense")
        assert "s3cret" not in "".join(traceback.format_exception(failed.value))


def test_a_database_that_is_missing_is_told(own_postgres: Server):
    said = refused_by(lambda: PostgresStore(own_postgres.url(database="nowhere")))
    assert "no such database" in said
    assert "createdb" in said


def test_a_server_that_is_not_there_is_told_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"postgresql://ann:{QUOTED}@127.0.0.1:{port}/test"
    with ThreadPoolExecutor(1) as pool:  # it would wait for much longer than we do
        said = pool.submit(refused_by, lambda: PostgresStore(url, busy_seconds=2 * PATIENCE)).result(PATIENCE)
    assert "cannot be reached" in said
    assert "is the server running" in said


def test_a_host_without_an_address_is_told():
    assert "host" in refused_by(lambda: PostgresStore(f"postgresql://ann:{QUOTED}@no.such.host.invalid/test"))


def test_a_database_that_can_only_be_read_is_read_and_refuses_to_be_written(store: PostgresStore, url: str):
    with closing(PostgresStore(f"{url}&options=-cdefault_transaction_read_only%3Don")) as frozen:
        assert texts_of(frozen) == ["before"]
        assert "read-only" in refused_by(lambda: frozen.append("a", "message", bodies("never"), AT))
    assert texts_of(store) == ["before"]


def test_a_store_from_the_future_is_refused_and_left_alone(store: PostgresStore, url: str):
    store._database.write("UPDATE schema_version SET version = 99")
    with pytest.raises(StoreError, match=r"newer version.*99.*update context-compactor"):
        PostgresStore(url)
    assert store._database.row("SELECT version FROM schema_version") == (99,)


def test_a_schema_of_another_program_is_refused_and_left_alone(own_postgres: Server):
    schema = new_schema()
    own_postgres.run(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.sessions (bookmarks TEXT)")
    with pytest.raises(StoreError, match=r"tables of another program.*Try: "):
        PostgresStore(own_postgres.url(schema=schema))
    own_postgres.run(f"INSERT INTO {schema}.sessions VALUES ('still there')")


def test_tables_of_others_in_the_same_database_are_no_hindrance(own_postgres: Server):
    own_postgres.run("CREATE TABLE IF NOT EXISTS public.sessions (theirs TEXT)")
    with closing(PostgresStore(own_postgres.url(schema=new_schema()))) as store:
        assert store.open_session("a", b"{}", AT).head == 0


def test_a_user_who_may_not_make_tables_is_told_who_should(own_postgres: Server):
    said = refused_by(lambda: PostgresStore(own_postgres.url(user="guarded", password=QUOTED, schema=new_schema())))
    assert "compactor migrate" in said


def test_a_database_that_cannot_hold_every_text_is_refused(own_postgres: Server):
    own_postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match=r"LATIN1.*--encoding UTF8"):
        PostgresStore(own_postgres.url(database="latin"))


def test_a_store_that_must_be_there_is_not_made(own_postgres: Server):
    url = own_postgres.url(schema=new_schema())
    with pytest.raises(BadSetting, match="there is no store"):
        connect(url, create=False)
    with closing(connect(url)), closing(connect(url, create=False)) as store:
        assert store.sessions() == []


# Several at once


def test_several_processes_may_make_the_same_store_at_once(url: str):
    def make(number: int) -> None:
        with closing(PostgresStore(url)) as store:
            store.open_session("a", b"{}", AT)
            store.append("a", "message", bodies(f"message {number}"), AT)

    with started(make, range(8)) as children:
        assert [child.wait() for child in children] == [0] * 8
    with closing(PostgresStore(url)) as store:
        assert sorted(texts_of(store)) == [f"message {number}" for number in range(8)]
        assert list(store.verify()) == []


def test_more_threads_than_connections_share_a_store(url: str):
    with closing(PostgresStore(f"{url}&connections=3")) as store:
        store.open_session("a", b"{}", AT)

        def write(thread: int) -> None:
            for number in range(10):
                with store.writing("a") as row:
                    assert store.append("a", "message", bodies(f"{thread} {number}"), AT) == row.head + 1

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        said = texts_of(store)
        for thread in range(8):
            own = [text for text in said if text.startswith(f"{thread} ")]
            assert own == [f"{thread} {number}" for number in range(10)]
        assert list(store.verify()) == []


def test_a_thread_sees_nothing_of_what_another_one_has_not_committed(store: PostgresStore):
    with ThreadPoolExecutor(1) as pool, store.writing("a"):
        store.append("a", "message", bodies("not yet"), AT)
        assert pool.submit(texts_of, store).result() == ["before"]
    assert texts_of(store) == ["before", "not yet"]


def test_who_writes_to_one_session_does_not_keep_others_from_theirs(store: PostgresStore, url: str):
    store.open_session("b", b"{}", AT)
    with impatient(url) as other, store.writing("a"):
        store.append("a", "message", bodies("same"), AT)
        other.append("b", "message", bodies("same"), AT)
        assert texts_of(other, "b") == ["same"]
        with pytest.raises(StoreLocked, match=r"locked by another process for 0\.2 seconds.*nothing was written"):
            other.append("a", "message", bodies("never"), AT)
    assert texts_of(store) == ["before", "same"]
    assert list(store.verify()) == []


def test_the_same_contents_in_opposite_order_keep_nobody_waiting(store: PostgresStore, url: str):
    store.open_session("b", b"{}", AT)
    with impatient(url) as other, store.writing("a"), other.writing("b"):
        store.append("a", "message", bodies("one"), AT)
        other.append("b", "message", bodies("two"), AT)
        store.append("a", "message", bodies("two"), AT)
        other.append("b", "message", bodies("one"), AT)
    assert (texts_of(store)[1:], texts_of(store, "b")) == (["one", "two"], ["two", "one"])
    assert list(store.verify()) == []
    (name,) = store.put(bodies("two"))
    assert store.get([name]) == {name: b"two"}


def test_a_value_that_was_put_twice_at_once_is_archived_once(store: PostgresStore, url: str):
    store.open_session("b", b"{}", AT)
    with impatient(url) as other, store.writing("a"), other.writing("b"):
        other.put([b'"value"'])
        store.archive("a", [item(store, "tool_001", '"value"', terms="word")], AT)
    store.archive("a", [item(store, "tool_002", '"value"', terms="word")], AT)
    assert [each.same_as for each in store.originals("a")] == ["", "tool_001"]


def test_deleting_old_sessions_waits_for_whoever_writes_and_takes_nothing_they_need(store: PostgresStore, url: str):
    store.open_session("new", b"{}", LATEST)
    with ThreadPoolExecutor(1) as pool, closing(PostgresStore(url)) as other:
        with store.writing("new"):
            (name,) = store.put(bodies("before"))  # which only the old session refers to
            other.expire(LATER)
            cleared = pool.submit(other.clear_deleted, bytes.decode)
            wait_for(lambda: waiting_for_locks(url))
            assert not cleared.done()
            store.append("new", "message", bodies("before"), LATEST)
        cleared.result()
    assert texts_of(store, "new") == ["before"]
    assert store.get([name]) == {name: b"before"}
    assert list(store.verify()) == []


# Forks


def test_a_forked_process_and_its_parent_both_go_on_and_nothing_is_lost(store: PostgresStore):
    def work(child: Child) -> None:
        store.append("a", "message", bodies("child 1"), AT)
        child.say()
        child.hear()
        store.append("a", "message", bodies("child 2"), AT)
        store.close()

    with Child(work) as child:
        child.hear()
        store.append("a", "message", bodies("parent"), AT)
        child.say()
        assert child.wait() == 0
    store.append("a", "message", bodies("parent again"), AT)
    assert texts_of(store) == ["before", "child 1", "parent", "child 2", "parent again"]
    assert list(store.verify()) == []


def test_a_process_that_forks_amid_a_write_keeps_it_and_its_child_has_no_part_in_it(store: PostgresStore):
    def work(child: Child) -> None:
        with pytest.raises(StoreError, match="open the session again"):
            store.append("a", "message", bodies("child"), AT)

    with store.writing("a"):
        store.append("a", "message", bodies("parent"), AT)
        with Child(work) as child:
            assert child.wait() == 0
        store.append("a", "message", bodies("parent again"), AT)
    assert texts_of(store) == ["before", "parent", "parent again"]


# What it survives


def test_a_process_that_is_killed_amid_a_transaction_leaves_nothing_and_holds_nobody_up(store: PostgresStore, url: str):
    def work(child: Child) -> None:
        with closing(PostgresStore(url)) as own, own.writing("a"):
            own.append("a", "message", bodies("half"), AT)
            own.archive("a", [item(own, "tool_001", '"half"', terms="half")], AT)
            child.say()
            child.hear()

    with Child(work) as child:
        child.hear()
        child.kill()
        child.wait()
    store.append("a", "message", bodies("after"), AT)
    assert texts_of(store) == ["before", "after"]
    assert store.originals("a") == []
    assert list(store.verify()) == []


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_store_goes_on_after_the_server_was_restarted(store: PostgresStore, own_postgres: Server, mode: str):
    with ThreadPoolExecutor(3) as pool:  # so that there are several connections to lose
        list(pool.map(lambda _: texts_of(store), range(6)))
    own_postgres.restart(mode)
    assert texts_of(store) == ["before"]
    own_postgres.kill_everybody()
    store.append("a", "message", bodies("after"), AT)
    own_postgres.restart(mode)
    with store.writing("a"):
        store.append("a", "message", bodies("again"), AT)
    assert texts_of(store) == ["before", "after", "again"]
    assert list(store.verify()) == []


def test_a_transaction_that_lost_its_server_wrote_nothing_and_says_so(store: PostgresStore, own_postgres: Server):
    def write() -> None:
        with store.writing("a"):
            store.append("a", "message", bodies("never"), AT)
            own_postgres.restart()
            store.append("a", "message", bodies("never either"), AT)

    with pytest.raises(StoreError, match=r"the server went away.*nothing was written"):
        write()
    assert texts_of(store) == ["before"]
    store.append("a", "message", bodies("after"), AT)
    assert list(store.verify()) == []


def test_a_server_that_stays_away_is_told_and_one_that_comes_back_is_used(own_postgres: Server):
    with impatient(own_postgres.url(schema=new_schema())) as store:
        store.open_session("a", b"{}", AT)
        own_postgres.stop()
        try:
            said = refused_by(lambda: store.append("a", "message", bodies("never"), AT))
            assert "is the server running" in said
            refused_by(lambda: store.session("a"))
        finally:
            own_postgres.start()

        def is_written() -> bool:
            try:
                store.append("a", "message", bodies("after"), AT)
            except StoreError:  # the pool may be resting between two attempts
                return False
            return True

        wait_for(is_written)
        assert texts_of(store) == ["after"]


def test_a_server_that_is_restarted_meanwhile_is_waited_for(store: PostgresStore, own_postgres: Server):
    own_postgres.stop()
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(store.append, "a", "message", bodies("after"), AT)
        wait_for(lambda: failed_connections(store))
        own_postgres.start()
        assert written.result() == 2
    assert texts_of(store) == ["before", "after"]


class Relay:
    """Stands between a store and its server, and cuts the connection when `COMMIT` comes: before it, or behind it."""

    def __init__(self, port: int, *, forward: bool) -> None:
        self._port = port
        self._forward = forward
        self.cuts = 0
        self._answered = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pass_back, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while sent := _received(client):
                if b"COMMIT" in sent and not self.cuts:
                    self.cuts += 1
                    if self._forward:
                        server.sendall(sent)
                        assert self._answered.wait(PATIENCE)
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(sent)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        while said := _received(server):
            if self.cuts and self._forward and b"COMMIT" in said:
                self._answered.set()
                continue
            try:
                client.sendall(said)
            except OSError:
                return


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 16)
    except OSError:
        return b""


@pytest.mark.parametrize("forward", [True, False], ids=["behind", "before"])
def test_when_the_connection_is_lost_while_committing_the_server_is_asked(own_postgres: Server, forward: bool):
    schema = new_schema()
    with closing(PostgresStore(own_postgres.url(schema=schema))) as straight:
        straight.open_session("a", b"{}", AT)
    relay = Relay(own_postgres.port, forward=forward)
    url = own_postgres.url(schema=schema).replace(str(own_postgres.port), str(relay.port))
    with closing(relay), closing(PostgresStore(url)) as store:
        if forward:
            assert store.append("a", "message", bodies("kept"), AT) == 1
        else:
            with pytest.raises(StoreError, match="nothing was written"):
                store.append("a", "message", bodies("lost"), AT)
        assert relay.cuts == 1
        assert texts_of(store) == (["kept"] if forward else [])
        assert list(store.verify()) == []


def test_a_statement_that_failed_ends_its_transaction_and_the_rest_of_it_is_not_written(store: PostgresStore):
    def go_on_regardless() -> None:
        with store.writing("a"):
            store.append("a", "message", bodies("in the same block"), AT)
            with pytest.raises(StoreError, match="nonsense"):
                store._database.write("UPDATE nonsense SET x = 1")

    with pytest.raises(StoreError, match=r"earlier error has ended this transaction; nothing was written"):
        go_on_regardless()
    assert texts_of(store) == ["before"]


# The same as in SQLite


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.binary(max_size=60))
def test_any_text_and_any_bytes_come_back_as_they_were(store: PostgresStore, text: str, content: bytes):
    (name,) = store.put([content])
    ref = f"tool_{hash_of(text.encode() + content)}"
    store.archive("a", [NewOriginal(ref, text, text, 1, text, text, text, name)], AT)
    found = store.original("a", ref)
    assert found is not None
    assert (found.kind, found.summary, found.recovery, found.hint, found.target) == (text,) * 5
    store.put_facts("a", [FactRow(text, 1, content, text)], AT)
    assert FactRow(text, 1, content, text, AT) in store.facts("a", text)
    assert not text or store.sessions_with([text]) == {text: {"a"}}
    assert store.get([name]) == {name: content}


WORDS = ["token", "expiry", "Refresh", "größe", "日本", "→", "x1", "AND", "it's", "a:b", "z" * 300]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=40),
    st.lists(st.dictionaries(st.sampled_from([*WORDS, "refresh", "TOKEN"]), st.sampled_from([0.5, 1.0]), max_size=3)),
)
def test_a_search_finds_the_same_as_in_sqlite(store: PostgresStore, runs: list[list[str]], asked: list[dict]):
    session_id = hash_of(repr(runs).encode())
    with closing(SqliteStore()) as other:
        for each in (store, other):
            each.open_session(session_id, b"{}", AT)
            each.archive(session_id, list(items_of(each, runs)), AT)
        for terms in asked:
            for more in ({}, {"kind": "turn"}, {"since": LATER}):
                found = [each.search(session_id, terms, most=40, **more) for each in (store, other)]
                assert found[0] == found[1]


def items_of(store: PostgresStore | SqliteStore, runs: list[list[str]]) -> Iterator[NewOriginal]:
    for at, words in enumerate(runs):
        (name,) = store.put([f'"{at}"'.encode()])
        kind = "turn" if at % 3 else "code"
        yield NewOriginal(
            f"tool_{at}", kind, "", 1, "", "", "", name, (PassageRun(1, 10, " ".join(words), b"%d" % at),)
        )


def test_a_pool_that_is_used_up_says_how_to_have_a_larger_one(url: str):
    with impatient(f"{url}&connections=1") as store, ThreadPoolExecutor(1) as pool:
        store.open_session("a", b"{}", AT)
        with store.writing("a"), pytest.raises(StoreLocked, match=r"connections were in use.*connections=N"):
            pool.submit(store.session, "a").result()
