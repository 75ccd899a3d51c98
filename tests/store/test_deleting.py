"""Deleting: a session is gone at once and whole, what others need stays, and what is interrupted is finished later."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_compactor.errors import DamagedContent, UnknownSession
from context_compactor.protocols import Store
from context_compactor.store import deletion
from context_compactor.store.database import kind_word
from context_compactor.store.events import make_event
from context_compactor.store.rows import FactRow, Webhook, hash_of
from context_compactor.store.service_store import service_store_of
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.store.rows import AT, LATER, LATEST, bodies, item, put_list, texts_of
from tests.store.test_expire import fill

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
SESSION_TABLES = ("entries", "originals", "facts", "holders")


@pytest.fixture
def two(store: SqlStore) -> SqlStore:
    """A store with the sessions `old` and `new`, which have some contents in common, and nothing else."""
    for session_id in ("a", "b"):
        store.delete(session_id)
    store.clear_deleted(bytes.decode)
    fill(store, "old", AT)
    fill(store, "new", LATEST)
    return store


def remove(store: Store, *session_ids: str) -> None:
    """Delete sessions with all they leave behind."""
    for session_id in session_ids:
        store.delete(session_id)
    store.clear_deleted(bytes.decode, thorough=True)


def count(store: SqlStore, table: str) -> int:
    is_index = table == "words" and isinstance(store, SqliteStore)  # whose rows cannot be counted but by a word
    where = f" WHERE words MATCH '\"{kind_word('test run')}\"'" if is_index else ""
    return int(store._database.row(f"SELECT count(*) FROM {table}{where}")[0])


def test_a_deleted_session_is_unknown_at_once_and_all_others_are_as_they_were(two: SqlStore):
    before = everything(two, "new")
    two.delete("old")
    assert [row.id for row in two.sessions()] == ["new"]
    for verb in (two.session, two.entries, two.originals, two.facts, two.holders, two.delete):
        with pytest.raises(UnknownSession, match="'old'"):
            verb("old")
    assert two.sessions_with(["pattern"]) == {"pattern": {"new"}}
    assert list(two.verify()) == []
    two.clear_deleted(bytes.decode)
    assert everything(two, "new") == before
    assert list(two.verify()) == []


def test_no_row_of_a_deleted_session_is_left_in_any_table(two: SqlStore):
    remove(two, "old")
    for table in SESSION_TABLES:
        assert {number for (number,) in two._database.rows(f"SELECT session FROM {table}")} == {number_of(two, "new")}
    first, last = two._originals.runs.span(number_of(two, "new"))
    assert count(two, "passages") == count(two, "words") == 1
    assert two._database.row("SELECT number FROM passages")[0] in range(first, last)
    assert count(two, "deleted_sessions") == count(two, "unneeded_contents") == 0


def number_of(store: SqlStore, session_id: str) -> int:
    return store._sessions.number(session_id)


def test_what_another_session_needs_stays_and_what_nobody_needs_goes(two: SqlStore):
    two.put([b"a checkpoint that another one has replaced"])
    remove(two, "old")
    kept = [b"items of new", b"shared items", b'"value new"', b"shared"]
    assert list(two.get([hash_of(content) for content in kept]).values()) == kept
    for content in (b"items of old", b'"value old"', b"only old", b"a checkpoint that another one has replaced"):
        with pytest.raises(DamagedContent):
            two.get([hash_of(content)])


def test_when_the_last_session_is_deleted_nothing_is_left(two: SqlStore):
    remove(two, "old", "new")
    for table in (*SESSION_TABLES, "sessions", "contents", "passages", "words", "deleted_sessions"):
        assert count(two, table) == 0, table


def test_events_jobs_and_kept_answers_go_with_their_session_and_webhooks_are_told_nothing_of_it(two: SqlStore):
    service_store = service_store_of(two)
    service_store.webhooks.add(Webhook("wh_1", "", "https://example.com", "s", (), AT))
    for session_id in ("old", "new"):
        service_store.record_event(make_event("fact.promoted", session_id, {"fact": f"of {session_id}"}, NOW))
        service_store.jobs.queue(session_id, "extract", now=AT)
        service_store.answers.take(session_id, "key", "hash", AT)
    two.delete("old")
    assert [kept.event.session_id for kept in service_store.events.after(0)] == ["new"]
    assert [each.kept.event.session_id for each in service_store.webhooks.waiting("wh_1")] == ["new"]
    assert [job.session_id for job in service_store.jobs.newest()] == ["new"]
    assert (service_store.answers.of("old"), len(service_store.answers.of("new"))) == ([], 1)


def test_a_job_that_is_being_done_is_lost_to_whoever_is_at_it(two: SqlStore):
    service_store = service_store_of(two)
    service_store.jobs.queue("old", "extract", now=AT)
    job = service_store.jobs.claim("worker", AT, LATER)
    assert job is not None
    two.delete("old")
    assert service_store.jobs.extend([job], LATEST) == set()
    assert service_store.jobs.finish(job, LATER) is None
    assert service_store.jobs.drop(job, LATER, "") is None


def test_a_session_of_the_same_name_begins_empty(two: SqlStore):
    service_store = service_store_of(two)
    service_store.answers.take("old", "key", "hash", AT)
    two.delete("old")
    two.open_session("old", b"{}", LATEST)
    row = two.session("old")
    assert (row.head, row.messages, row.state, row.created_at) == (0, 0, b"{}", LATEST)
    assert (two.originals("old"), two.facts("old"), two.holders("old"), service_store.answers.of("old")) == (
        [],
        [],
        {},
        [],
    )
    assert two.search("old", {"needle": 1.0}, most=100) == []
    assert two.append("old", "message", bodies("first"), LATEST) == 1
    two.clear_deleted(bytes.decode)
    assert texts_of(two, "old") == ["first"]
    assert list(two.verify()) == []


def test_within_a_transaction_nothing_goes_when_it_fails(two: SqlStore):
    before = everything(two, "old")
    with pytest.raises(UnknownSession), two.together():
        list(map(two.delete, ("old", "old")))
    two.clear_deleted(bytes.decode)
    assert everything(two, "old") == before


def test_in_the_transaction_that_deletes_it_a_session_can_be_made_anew(two: SqlStore):
    with two.together():
        two.append("old", "message", bodies("last words"), LATER)
        two.delete("old")
        with pytest.raises(UnknownSession):
            two.session("old")
        two.open_session("old", b"{}", LATEST)
        two.append("old", "message", bodies("first words"), LATEST)
    two.clear_deleted(bytes.decode)
    assert texts_of(two, "old") == ["first words"]


# Others write meanwhile


def test_a_content_that_is_used_again_while_it_is_about_to_be_removed_stays(two: SqlStore, monkeypatch):
    two.delete("old")
    looks = 0

    def look(*given: object) -> bytearray:
        """As always; but while everything is looked at for the second time, somebody uses what is listed by then."""
        nonlocal looks
        looks += 1
        marks = needed(*given)
        if looks == 2:
            two.append("new", "message", bodies("only old"), LATEST)
            put_list(two, [b'"value old"', b"items of old"])
            two.append("new", "revision", [json.dumps({"hash": hash_of(b"[items of old]")}).encode()], LATEST)
            two.archive("new", [item(two, "tool_002", '"value old"')], LATEST)
        return marks

    needed = deletion.needed
    monkeypatch.setattr(deletion, "needed", look)
    two.clear_deleted(bytes.decode)
    assert looks == 2
    assert texts_of(two, "new")[-2] == "only old"
    assert two.get([hash_of(b'"value old"')]) == {hash_of(b'"value old"'): b'"value old"'}
    assert list(two.verify()) == []
    assert count(two, "unneeded_contents") == 0


def test_a_content_that_is_first_used_by_another_while_everything_is_looked_at_stays(two: SqlStore, monkeypatch):
    two.delete("old")

    def look(*given: object) -> bytearray:
        marks = needed(*given)
        two.append("new", "message", bodies("only old"), LATEST)
        return marks

    needed = deletion.needed
    monkeypatch.setattr(deletion, "needed", look)
    two.clear_deleted(bytes.decode)
    assert texts_of(two, "new")[-2:] == ["only old", "only old"]
    assert list(two.verify()) == []


def test_two_who_remove_the_same_at_once_do_not_disturb_each_other(two: SqlStore, monkeypatch):
    two.delete("old")

    def look(*given: object) -> bytearray:
        monkeypatch.undo()
        two.clear_deleted(bytes.decode)
        fill(two, "later", LATEST)
        return needed(*given)

    needed = deletion.needed
    monkeypatch.setattr(deletion, "needed", look)
    two.clear_deleted(bytes.decode)
    assert texts_of(two, "later", kinds=("message",)) == ["shared", "only later"]
    assert [each.body for each in two.search("later", {"needle": 1.0}, most=100)] == [b"needle wordlater"]
    assert list(two.verify()) == []
    assert count(two, "deleted_sessions") == 0


def test_a_damaged_session_keeps_its_own_contents_and_stands_in_nobodys_way(two: SqlStore, hand):
    hand.change_content(hash_of(json.dumps({"items": [hash_of(b"items of new"), hash_of(b"shared items")]}).encode()))
    two.delete("old")
    with pytest.raises(DamagedContent):
        two.clear_deleted(bytes.decode)
    assert two.get([hash_of(b"items of new")]) == {hash_of(b"items of new"): b"items of new"}
    two.delete("new")
    two.clear_deleted(bytes.decode)
    assert count(two, "contents") == 0


# Being killed


def killed_in(folder: Path, step: str) -> SqliteStore:
    """A store in which somebody was killed while deleting `old`, when it came to a step."""
    path = str(folder / "sessions.db")
    pid = os.fork()
    if pid == 0:
        store = SqliteStore(path)
        fill(store, "old", AT)
        fill(store, "new", LATEST)
        setattr(deletion, step, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        if step == "IdempotencyTable":  # within the transaction
            store.delete("old")
        store.delete("old")
        store.clear_deleted(bytes.decode)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return SqliteStore(path)


def test_who_is_killed_before_the_session_is_gone_has_done_nothing(tmp_path: Path):
    with closing(killed_in(tmp_path, "IdempotencyTable")) as store:
        assert texts_of(store, "old", kinds=("message",)) == ["shared", "only old"]
        store.clear_deleted(bytes.decode)
        assert texts_of(store, "old", kinds=("message",)) == ["shared", "only old"]
        assert list(store.verify()) == []


@pytest.mark.parametrize("step", ["_remove_rows", "_remove_contents", "needed", "_list", "_batches"])
def test_what_somebody_was_killed_over_is_finished_by_the_next_one(tmp_path: Path, step: str):
    with closing(killed_in(tmp_path, step)) as store:
        assert [row.id for row in store.sessions()] == ["new"]
        assert list(store.verify()) == []
        fill(store, "old", LATEST)
        store.clear_deleted(bytes.decode)
        assert texts_of(store, "old", kinds=("message",)) == ["shared", "only old"]
        assert [each.body for each in store.search("old", {"needle": 1.0}, most=100)] == [b"needle wordold"]
        assert count(store, "deleted_sessions") == count(store, "unneeded_contents") == 0
        assert count(store, "passages") == count(store, "words") == 2
        assert list(store.verify()) == []


# The file


SECRET = "sk-live-" + "4eC39HqLyjWDarjtT1zdp7dc"


def leak(store: Store) -> None:
    """A session with a secret in everything, beside a long one."""
    for name in ("leak", "stays"):
        store.open_session(name, b"{}", AT)
    found = SECRET.replace("-", " ")
    for n in range(300):
        store.archive("stays", [item(store, f"tool_{n}", f'"{os.urandom(300).hex()}"', terms=f"word{n}")], AT)
        store.append("leak", "message", bodies(f"{SECRET} {n}"), AT)
        store.archive("leak", [item(store, f"tool_{n}", f'"{SECRET}{n}"', terms=f"{found} word{n}")], AT)
        store.put_facts("leak", [FactRow("error", n, f'"{SECRET}"'.encode(), SECRET)], AT)
    store.save_state("leak", f'{{"notes":"{SECRET}"}}'.encode())
    for name in ("stays", "leak", "stays"):  # so that there is more on the same page of the file
        service_store_of(store).record_event(
            make_event("fact.promoted", name, {"fact": SECRET if name == "leak" else ""}, NOW)
        )


def test_no_byte_of_a_deleted_session_is_left_in_the_files(tmp_path: Path):
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        leak(store)
        assert traces(tmp_path)
        remove(store, "leak")
        assert traces(tmp_path) == []
        assert len(store.originals("stays")) == 300
        assert b"word7" in [each.body for each in store.search("stays", {"word7": 1.0}, most=100)]


def test_a_file_becomes_smaller_when_a_session_is_deleted_and_its_log_is_begun_anew(tmp_path: Path):
    path = tmp_path / "sessions.db"
    with closing(SqliteStore(str(path))) as store:
        fill(store, "small", AT)
        remove(store)
        small = sum(file.stat().st_size for file in tmp_path.iterdir())
        store.open_session("large", b"{}", AT)
        store.append("large", "message", [os.urandom(20_000) for _ in range(300)], AT)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 6_000_000
        remove(store, "large")
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= small + 100_000
        assert texts_of(store, "small", kinds=("message",)) == ["shared", "only small"]


def test_a_file_from_before_sessions_could_be_deleted_becomes_smaller_too(tmp_path: Path):
    path = tmp_path / "sessions.db"
    with closing(SqliteStore(str(path))) as store:
        store.open_session("large", b"{}", AT)
        store.append("large", "message", [os.urandom(20_000) for _ in range(300)], AT)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("VACUUM")
    with closing(SqliteStore(str(path))) as store:
        remove(store, "large")
        assert path.stat().st_size < 1_000_000


def traces(folder: Path) -> list[str]:
    """The files in which a secret, or a word of it that the index knows, can be read."""
    words = (SECRET.encode(), b"4eC39HqLyjWDarjtT1zdp7dc", b"4ec39hqlyjwdarjtt1zdp7dc")
    return [file.name for file in folder.iterdir() if any(word in file.read_bytes() for word in words)]


# Any sessions


CONTENTS = st.sampled_from([f"content {n}" for n in range(8)] + ["long " * 60, "x" * 200])
SESSIONS = st.lists(
    st.tuples(st.lists(CONTENTS, max_size=5), st.lists(CONTENTS, max_size=3), st.lists(CONTENTS, max_size=3)),
    min_size=1,
    max_size=6,
)


def everything(store: SqlStore, session_id: str) -> object:
    """All that a store says of a session."""
    row = store.session(session_id)
    originals = store.originals(session_id)
    found = [json.loads(entry.body)["hash"] for entry in store.entries(session_id, kinds=("revision",)) if entry.body]
    return (
        row,
        store.entries(session_id),
        originals,
        store.get([each.content for each in originals]),
        store.get(found),
        store.facts(session_id),
        store.search(session_id, {"content": 1.0}, most=10_000),
    )


def make(store: SqlStore, session_id: str, given: tuple[list[str], list[str], list[str]]) -> None:
    messages, originals, revisions = given
    store.open_session(session_id, b"{}", AT)
    store.append(session_id, "message", bodies(*messages), AT)
    with store.writing(session_id):
        for n, text in enumerate(originals):
            found = item(store, f"tool_{n}", json.dumps(text), terms=text)
            listed = put_list(store, [json.dumps(each).encode() for each in (text, *messages)])
            store.archive(session_id, [found], AT)
            store.append(session_id, "revision", [json.dumps({"hash": listed}).encode()], AT)
        (state,) = store.put(bodies(*(revisions or ["nothing"]))[:1])
        store.save_state(session_id, json.dumps({"notes": {"checkpoint": state}}).encode())
    store.put_facts(
        session_id, [FactRow("error", n, json.dumps(text).encode()) for n, text in enumerate(revisions)], AT
    )


@pytest.fixture
def emptied(store: SqlStore) -> SqlStore:
    for session_id in ("a", "b"):
        store.delete(session_id)
    return store


@given(made=SESSIONS, chosen=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_sessions_share_deleting_some_leaves_the_others_as_they_were(emptied: SqlStore, made, chosen):
    names = [f"s{n}" for n in range(len(made))]
    for name, given_ in zip(names, made, strict=True):
        make(emptied, name, given_)
    gone = chosen.draw(st.lists(st.sampled_from(names), unique=True))
    before = {name: everything(emptied, name) for name in names if name not in gone}
    for name in gone:
        emptied.delete(name)
    emptied.clear_deleted(bytes.decode)
    assert {name: everything(emptied, name) for name in before} == before
    assert list(emptied.verify()) == []
    remove(emptied, *before)
    assert count(emptied, "contents") == count(emptied, "entries") == count(emptied, "words") == 0
