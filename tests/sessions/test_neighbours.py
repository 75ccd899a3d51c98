"""A large tool result: nobody else waits while it is made ready and indexed, and search finds it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from context_compactor.archive import storage
from context_compactor.errors import DamagedContent, StoreError
from context_compactor.sessions import append
from context_compactor.sessions.session import Session
from context_compactor.sessions.transcripts import append_new
from context_compactor.store import contents
from context_compactor.store import originals as runs
from context_compactor.store.connect import connect
from context_compactor.store.sql_store import SqlStore
from context_compactor.store.sqlite import SqliteStore
from tests.postgres import STORES
from tests.sessions.talk import opened
from tests.store.rows import AT
from tests.waiting import wait_for

LINES = 3_000
LAST = "marker_of_the_last_line"


def result(number: int = 1, lines: int = LINES, note: str = "") -> list[dict[str, Any]]:
    """A call and its result, far longer than any context."""
    call = {"name": "bash", "arguments": '{"command": "make"}'}
    shown = [f"step {at} of build {number} wrote object_{at}.o {note}" for at in range(lines)]
    return [
        {"role": "user", "content": f"Build {number}."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "\n".join([*shown, f"{LAST}_{number}"])},
    ]


def found(session: Session, text: str) -> list[str]:
    """The ids of what a search finds."""
    return [hit.id for hit in session.search(text) if text in hit.text]


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new store of either kind."""
    is_file = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/sessions.db" if is_file else request.getfixturevalue("postgres_url")


@pytest.fixture
def session(place: str) -> Iterator[Session]:
    with opened(place, "large", window=1_000_000) as session:
        yield session


# Nobody waits

Step = tuple[object, str, Callable[..., bool]]

# The function that does it, and whether it is called with what is large.
STEPS: dict[str, Step] = {
    "write as JSON": (append, "json_bytes", lambda value: len(str(value)) > 500),
    "hash and pack": (contents, "_ready", lambda _, content: isinstance(content, bytes) and len(content) > 500),
    "cut": (append, "shorten_outputs", lambda *_: True),
    "write the original as JSON": (storage, "json_bytes", lambda _: True),
    "find the terms": (storage, "_terms", lambda _: True),
    "pack the passages": (runs.PassageRuns, "packed", bool),
}


@pytest.mark.parametrize("step", STEPS)
def test_another_session_is_appended_to_in_the_middle_of_each_long_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another connection, which waits for no time at all, would be refused if this one was in a transaction."""
    holder, name, is_large = STEPS[step]
    work = getattr(holder, name)
    with beside(tmp_path) as (store, append_beside), opened(store, "large", window=1_000_000) as session:
        session.append({"role": "user", "content": "Hello."})
        session.append({"role": "assistant", "content": "Hello, what is to be done?"})
        before = append_beside()

        def watched(*given: Any, **options: Any) -> Any:
            if is_large(*given):
                append_beside()
            return work(*given, **options)

        monkeypatch.setattr(holder, name, staticmethod(watched) if isinstance(holder, type) else watched)
        session.append(result())
        assert found(session, f"{LAST}_1") == ["tool_001"]
        monkeypatch.undo()
        assert append_beside() > before + 1


@contextmanager
def beside(folder: Path) -> Iterator[tuple[SqliteStore, Callable[[], int]]]:
    """A store, and an append to another session of the same file; how many there were."""
    file = str(folder / "sessions.db")
    with closing(SqliteStore(file)) as store, closing(SqliteStore(file, busy_seconds=0)) as other:
        other.open_session("small", b"{}", AT)
        yield store, lambda: other.append("small", "message", [b"1"], AT)


def test_tokens_are_counted_while_others_write(tmp_path: Path):
    with beside(tmp_path) as (store, append_beside):

        def count(text: str) -> int:
            return append_beside() + len(text) // 4

        with opened(store, "large", window=1_000_000, count_tokens=count) as session:
            session.append(result())
        assert append_beside() > 1


def test_what_a_compaction_archives_is_indexed_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    terms = storage._terms
    with beside(tmp_path) as (store, append_beside), opened(store, "large", window=1_000_000) as session:

        def watched(texts: Any) -> str:
            append_beside()
            return terms(texts)

        for number in range(1, 13):
            session.append(result(number, lines=60))
        monkeypatch.setattr(storage, "_terms", watched)
        assert session.compact(target_tokens=4_000).changed
        assert append_beside() > 1
        assert store.unindexed("large") == []
        assert found(session, f"{LAST}_1") == ["tool_001"]


def test_whoever_writes_again_and_again_does_not_pass_a_thread_that_waits(tmp_path: Path):
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store, ThreadPoolExecutor(1) as threads:
        for name in ("busy", "patient"):
            store.open_session(name, b"{}", AT)
        with store.writing("busy"):
            waiting = threads.submit(store.append, "patient", "message", [b"1"], AT)
            wait_for(store._database._next.locked)
        with store.writing("busy"):
            assert len(store.entries("patient")) == 1
        waiting.result()


# Search finds it


def test_a_result_is_found_as_soon_as_its_append_returns(session: Session):
    session.append(result())
    assert found(session, f"{LAST}_1") == ["tool_001"]
    assert found(session, "object_1234.o") == ["tool_001"]


def test_several_large_results_in_one_append_are_all_found(session: Session):
    session.append([*result(1), *result(2), *result(3)])
    for number in (1, 2, 3):
        assert found(session, f"{LAST}_{number}") == [f"tool_00{number}"]


def test_another_process_that_searches_indexes_what_is_missing(session: Session, place: str):
    session.append(result())
    with opened(place, "large") as other:
        assert found(other, f"{LAST}_1") == ["tool_001"]
    assert session._core.store.unindexed("large") == []


def test_quiet_time_indexes_what_was_archived(session: Session, monkeypatch: pytest.MonkeyPatch):
    session.append(result())
    assert [each.original.ref for each in session._core.store.unindexed("large")] == ["tool_001"]
    session.prepare()
    assert session._core.store.unindexed("large") == []
    monkeypatch.setattr(storage, "_terms", _must_not_be_called)
    assert found(session, f"{LAST}_1") == ["tool_001"]


def _must_not_be_called(*given: object) -> str:
    raise AssertionError("it is in the index already")


def test_indexing_that_was_broken_off_is_finished_by_the_next_search(session: Session, place: str):
    session.append(result())
    store = session._core.store
    turns = iter([False, False, True])
    storage.index_archived(store, "large", lambda: next(turns))
    (half,) = store.unindexed("large")
    assert half.done > 0
    with opened(place, "large") as other:
        assert found(other, f"{LAST}_1") == ["tool_001"]
        assert found(other, "object_7.o") == ["tool_001"]
        assert other._core.store.unindexed("large") == []
    with opened(place, "whole") as whole:
        whole.append(result())
        storage.index_archived(whole._core.store, "whole")
    assert _passages(store, "large") == _passages(store, "whole")


def _passages(store: Any, session_id: str) -> list[Any]:
    """All passages of the first original in the index."""
    assert isinstance(store, SqlStore)
    (first, *_) = store.originals(session_id)
    return [passage for _, _, body in store._originals.runs.of(first.number) for passage in storage.read_json(body)]


def test_what_cannot_be_indexed_since_nothing_can_be_written_is_found_all_the_same(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    session.append(result(1))
    storage.index_archived(session._core.store, "large")
    session.append(result(2))

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(SqlStore, "index", full)
    assert found(session, f"{LAST}_1") == ["tool_001"]
    assert found(session, f"{LAST}_2") == ["tool_002"]
    assert [hit.id for hit in session.search(f"{LAST}_2", kind="web page") if LAST in hit.text] == []
    assert session.search(f"{LAST}_2", since="2999-01-01") == []


def test_two_that_index_the_same_original_index_it_once(session: Session, place: str, monkeypatch: pytest.MonkeyPatch):
    """Each time one of them has found some terms, the other indexes some and is broken off."""
    session.append(result())
    terms = storage._terms
    seen = 0

    def interrupted(texts: Any) -> str:
        nonlocal seen
        seen += 1
        if seen % 40 == 1:
            monkeypatch.setattr(storage, "_terms", terms)
            turns = iter([False] * (1 + seen % 3))
            storage.index_archived(other, "large", lambda: next(turns, True))
            monkeypatch.setattr(storage, "_terms", interrupted)
        return terms(texts)

    with closing(connect(place)) as other:
        monkeypatch.setattr(storage, "_terms", interrupted)
        monkeypatch.setattr(storage, "_RUNS_AT_ONCE", 30)
        storage.index_archived(session._core.store, "large")
    monkeypatch.undo()
    assert seen > 40
    assert session._core.store.unindexed("large") == []
    with opened(place, "whole") as whole:
        whole.append(result())
        storage.index_archived(whole._core.store, "whole")
    assert _passages(session._core.store, "large") == _passages(session._core.store, "whole")


def test_an_index_that_cannot_be_written_now_is_no_failure_of_the_append_or_of_quiet_work(
    tmp_path: Path,
):
    class Full(SqliteStore):
        is_full = False

        def index(self, *given: Any) -> Any:
            if self.is_full:
                raise StoreError("the disk is full; nothing was written")
            return super().index(*given)

    with closing(Full(str(tmp_path / "sessions.db"))) as store, opened(store, "large", window=1_000_000) as session:
        events: list[Any] = []
        session.bus.subscribe(events.append)
        store.is_full = True
        session.append(result())
        session.prepare()
        assert [event.payload["what"] for event in events if event.type == "job.dropped"] == ["index of the archive"]
        store.is_full = False
        assert found(session, f"{LAST}_1") == ["tool_001"]


def test_an_original_whose_content_is_damaged_does_not_keep_the_others_from_being_found(session: Session):
    session.append([*result(1), *result(2)])
    store = session._core.store
    assert isinstance(store, SqlStore)
    first = store.original("large", "tool_001")
    assert first is not None
    store._database.write("UPDATE contents SET bytes = ? WHERE hash = ?", [b"no", bytes.fromhex(first.content)])
    with pytest.raises(DamagedContent):
        store.get([first.content])
    assert found(session, f"{LAST}_2") == ["tool_002"]


def test_a_secret_in_a_large_result_is_neither_archived_nor_indexed(place: str):
    key = "AKIA" + "IOSFODNN7EXAMPLF"
    with opened(place, "large", window=1_000_000, redact_secrets=True) as session:
        session.append(result(note=f"key={key}", lines=400))
        assert found(session, f"{LAST}_1") == ["tool_001"]
        assert key not in session.recall("tool_001")
        assert all(key not in hit.text for hit in session.search(key))
        assert key not in str(_passages(session._core.store, "large"))


def test_the_original_of_a_result_is_byte_for_byte_what_came(session: Session):
    messages = result(note="ümläut ☃ \x00 \ud800")
    session.append(messages)
    assert session.history() == messages
    assert session.recall("tool_001") == messages[-1]["content"]
    assert session.verify() == []


# What was made ready for a session that has changed since


def test_a_result_keeps_its_number_when_somebody_else_appends_while_it_is_made_ready(
    session: Session, place: str, monkeypatch: pytest.MonkeyPatch
):
    """Also when that happens each time it is made ready anew, so that it is done in the transaction at last."""
    cut, others = append.shorten_outputs, iter(range(10, 13))

    def overtaken(*given: Any, **options: Any) -> Any:
        number = next(others, 0)
        if number and not _is_writing(session):
            with opened(place, "large") as other:
                monkeypatch.setattr(append, "shorten_outputs", cut)
                other.append(result(number, lines=3))
                monkeypatch.setattr(append, "shorten_outputs", overtaken)
        return cut(*given, **options)

    monkeypatch.setattr(append, "shorten_outputs", overtaken)
    session.append(result(1))
    monkeypatch.undo()
    calls = [call["id"] for raw in session.history() for call in raw.get("tool_calls", ())]
    assert calls == ["call_10", "call_11", "call_12", "call_1"]
    assert found(session, f"{LAST}_1") == ["tool_004"]
    assert session.recall("tool_004") == result(1)[-1]["content"]


def _is_writing(session: Session) -> bool:
    store = session._core.store
    assert isinstance(store, SqlStore)
    return store._database.current is not None


def test_what_was_made_ready_is_appended_later(session: Session):
    ready = session.make_ready(result())
    assert session.history() == []
    session.answer(session.record(ready))
    assert session.history() == result()
    assert found(session, f"{LAST}_1") == ["tool_001"]


def test_a_conversation_that_is_fed_is_found(session: Session):
    assert append_new(session._core, result()) == 3
    assert found(session, f"{LAST}_1") == ["tool_001"]
