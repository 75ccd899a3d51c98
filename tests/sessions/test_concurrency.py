"""Many at once on one session: no message is lost, each is there once, and one compaction wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Barrier

import pytest

from context_compactor.errors import StoreError
from context_compactor.sessions.async_session import AsyncSession
from context_compactor.sessions.session import Session
from context_compactor.store.connect import connect
from context_compactor.store.rows import SessionRow
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import CALM, WINDOW, Raw, count, illegal, message, messages, opened, references
from tests.store.children import Child, started

EACH = 16


def words(who: object, number: int) -> list[Raw]:
    """A question that says who asks, and its answer."""
    return [
        {"role": "user", "content": f"{who}:{number}: please look at src/part_{who}_{number}.py"},
        {"role": "assistant", "content": f"It holds {number} lines about {who}. " + "There is more to say. " * 12},
    ]


def said_by(who: object, talk: list[Raw]) -> list[int]:
    """The numbers of what somebody said, in the order in which it stands."""
    texts = [raw["content"] for raw in talk if isinstance(raw["content"], str)]
    return [int(text.split(":")[1]) for text in texts if text.startswith(f"{who}:")]


def check_whole(session: Session, speakers: int, each: int = EACH) -> None:
    """Everybody's messages are there once and in order, the context is legal, and nothing is damaged."""
    history = session.history()
    assert len(history) == 2 * speakers * each
    for who in range(speakers):
        assert said_by(who, history) == list(range(each))
    context = session.context()
    assert illegal(context) == []
    for ref in references(context):
        assert session.recall(ref)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new store of either kind."""
    is_file = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/sessions.db" if is_file else request.getfixturevalue("postgres_url")


# Processes


def test_processes_that_append_and_compact_at_once_lose_nothing(place: str):
    def work(who: int) -> None:
        with opened(place) as session:
            for number in range(EACH):
                session.append(words(who, number))
                if number % 8 == 7:
                    assert session.compact().status in ("success", "partial", "unchanged")
                    assert illegal(session.context()) == []

    with started(work, range(4)) as children:
        assert [child.wait() for child in children] == [0] * 4
    with opened(place) as session:
        check_whole(session, 4)
        assert len(session.compactions()) >= 3
    with closing(connect(place)) as store:
        assert list(store.verify()) == []
        assert store.holders("run") == {}


def test_a_process_that_reads_meanwhile_sees_whole_contexts_only(tmp_path: Path):
    def write(child: Child) -> None:
        with opened(tmp_path) as session:
            for first in range(0, 120, 4):
                session.append(messages(first, first + 4))
                if first % 20 == 16:
                    session.undo()
                    session.compact()

    opened(tmp_path).close()
    with Child(write) as child, opened(tmp_path, automatic=False) as session:
        read = 0
        while child.is_running():
            history, context = session.history(), session.context()
            assert len(history) >= read
            assert history == messages(0, len(history))
            assert illegal(context) == []
            read = len(history)
        assert child.wait() == 0
        assert session.history() == messages(0, 120)


def test_twenty_processes_may_open_the_same_new_store_at_once(tmp_path: Path):
    def work(who: int) -> None:
        with opened(tmp_path / "new" / "folder") as session:
            session.append(words(who, 0))

    with started(work, range(20)) as children:
        assert [child.wait() for child in children] == [0] * 20
    with opened(tmp_path / "new" / "folder") as session:
        check_whole(session, 20, each=1)


def test_sessions_in_one_store_do_not_touch_each_other(place: str):
    def work(who: int) -> None:
        with opened(place, f"run-{who}", window=(2_000, 100_000)[who % 2]) as session:
            for number in range(EACH):
                session.append(words(who, number))

    with started(work, range(4)) as children:
        assert [child.wait() for child in children] == [0] * 4
    for who in range(4):
        with opened(place, f"run-{who}", window=(2_000, 100_000)[who % 2]) as session:
            assert said_by(who, session.history()) == list(range(EACH))
            assert len(session.history()) == 2 * EACH
            assert bool(session.compactions()) is (who % 2 == 0)


# Threads and tasks


def test_threads_may_share_a_session(tmp_path: Path):
    together = Barrier(4)

    def work(who: int) -> None:
        together.wait()
        for number in range(EACH):
            session.append(words(who, number))
            if number % 8 == 7:
                session.compact()
            assert illegal(session.context()) == []

    with opened(tmp_path) as session:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        check_whole(session, 4)
        assert session.compactions()
    with opened(tmp_path) as session:
        check_whole(session, 4)


def test_tasks_may_share_an_async_session(place: str):
    async def work(session: AsyncSession, who: int) -> None:
        for number in range(EACH):
            await session.append(words(who, number))
            if number % 8 == 7:
                await session.compact()

    async def main() -> None:
        options = {"window": WINDOW, "store": place, "settings": CALM}
        async with await AsyncSession.open("run", count_tokens=count, **options) as session:
            await asyncio.gather(*(work(session, who) for who in range(4)))
            assert illegal(await session.context()) == []

    asyncio.run(main())
    with opened(place) as session:
        check_whole(session, 4)


def test_a_task_that_is_cancelled_leaves_an_append_whole_or_undone(tmp_path: Path):
    async def main() -> int:
        options = {"window": WINDOW, "store": f"sqlite:///{tmp_path}/sessions.db", "settings": CALM}
        async with await AsyncSession.open("run", count_tokens=count, **options) as session:
            for number in range(30):
                task = asyncio.create_task(session.append(messages(number * 4, number * 4 + 4)))
                await asyncio.sleep(0.001 * (number % 5))
                task.cancel()
                await asyncio.wait([task])
            return len(await session.history())

    there = asyncio.run(main())
    with opened(tmp_path) as session:
        history = session.history()
        assert len(history) == there
        assert len(history) % 4 == 0
        assert illegal(session.context()) == []
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        assert list(store.verify()) == []


def test_work_in_the_background_disturbs_nobody(tmp_path: Path):
    with opened(tmp_path, idle_seconds=0.004) as session:
        for number in range(120):
            session.append(message(number))
            if number % 5 == 0:
                time.sleep(0.008)
            if number % 40 == 39:
                session.compact()
                session.undo()
        assert session.history() == messages(0, 120)
        assert illegal(session.context()) == []
        assert session.facts()
    with closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        assert list(store.verify()) == []


# Forks


def test_an_open_session_lives_through_a_fork_on_both_sides(tmp_path: Path):
    with opened(tmp_path) as session:
        session.append(words(0, 0))

        def work(child: Child) -> None:
            for number in range(EACH):
                session.append(words(1, number))
            child.say()
            child.hear()
            session.append(words(1, EACH))
            session.close()

        with Child(work) as child:
            for number in range(1, EACH + 1):
                session.append(words(0, number))
            child.hear()
            child.say()
            assert child.wait() == 0
        check_whole(session, 2, each=EACH + 1)


def test_a_forked_child_that_closes_its_session_does_not_give_up_that_of_its_parent(tmp_path: Path):
    with opened(tmp_path) as session, closing(SqliteStore(str(tmp_path / "sessions.db"))) as store:
        session.append(messages(0, 1))
        before = store.holders("run")
        with Child(lambda child: session.close()) as child:
            assert child.wait() == 0
        assert store.holders("run") == before
        assert len(before) == 1


# The fence


class Meanwhile(SqliteStore):
    """A store in which something happens just before a transaction of the session begins."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.at: dict[int, Callable[[], object]] = {}
        self.begun = 0

    @contextmanager
    def writing(self, session_id: str) -> Iterator[SessionRow]:
        if self._database.current is None:
            self.begun += 1
            self.at.pop(self.begun, lambda: None)()
        with super().writing(session_id) as row:
            yield row


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Meanwhile, Session, Session]]:
    """A store to look into, a session in it, and the same session as another process has it."""
    store = Meanwhile(str(tmp_path / "sessions.db"))
    with opened(store, automatic=False) as mine, opened(tmp_path, automatic=False) as other:
        mine.append(messages(0, 28))
        yield store, mine, other
    store.close()


def transactions(both: tuple[Meanwhile, Session, Session], verb: Callable[[Session], object]) -> int:
    """How many transactions a verb takes; what it did is undone."""
    store, mine, _ = both
    before = store.begun
    verb(mine)
    took = store.begun - before
    mine.undo()
    return took


def test_messages_that_come_during_a_compaction_stay_once_and_in_order_behind_it(both):
    store, mine, other = both
    steps = transactions(both, Session.compact)
    assert steps >= 3
    there = 28
    for step in range(1, steps + 1):
        late = messages(there, there + 2 * step)
        store.at[store.begun + step] = lambda late=late: [other.append(each) for each in late]
        report = mine.compact(target_tokens=700)
        assert report.status in ("success", "partial")
        there += len(late)
        assert mine.history() == messages(0, there)
        context = mine.context()
        assert illegal(context) == []
        assert context[-len(late) :] == late
        assert [context.count(each) for each in late] == [1] * len(late)
        assert other.context() == context
        mine.undo()
        assert mine.context()[-len(late) :] == late


def test_messages_that_come_while_tokens_are_counted_stay_behind_the_compaction(tmp_path: Path):
    late: list[Raw] = []

    def slow_count(text: str) -> int:
        if late:
            with opened(tmp_path, automatic=False) as other:
                other.append(late.pop())
        return count(text)

    with opened(tmp_path, automatic=False, count_tokens=slow_count) as session:
        session.append(messages(0, 28))
        late += messages(28, 29)
        assert session.compact().changed
        assert session.history() == messages(0, 29)
        assert session.context()[-1] == messages(28, 29)[0]
        assert illegal(session.context()) == []


def test_of_two_compactions_at_once_one_wins_and_the_other_says_so(both):
    store, mine, other = both
    steps = transactions(both, Session.compact)
    events = []
    mine.bus.subscribe(lambda event: events.append((event.type, event.payload.get("reason", ""))))
    won = []
    store.at[store.begun + steps] = lambda: won.append(other.compact(target_tokens=600))
    lost = mine.compact()
    assert won[0].changed
    assert lost.status == "unchanged"
    assert "another process has compacted" in lost.reason
    assert ("compaction.refused", lost.reason) in events
    assert [kind for kind, _ in events if kind in ("summary.applied", "session.compacted")] == []
    assert mine.context() == other.context()
    assert [report.compaction_id for report in mine.compactions()][-1] == won[0].compaction_id
    for ref in references(mine.context()):
        assert mine.recall(ref)


class Failing(SqliteStore):
    """A store that fails once, at the end of a transaction."""

    is_failing = False

    def save_state(self, session_id: str, state: bytes) -> None:
        if self.is_failing:
            self.is_failing = False
            raise StoreError("the disk is full")
        super().save_state(session_id, state)


def test_an_undo_that_failed_is_forgotten_by_the_session_too(tmp_path: Path):
    with (
        closing(Failing(str(tmp_path / "sessions.db"))) as store,
        opened(store, automatic=False) as mine,
        opened(tmp_path, automatic=False) as other,
    ):
        mine.append(messages(0, 28))
        mine.compact()
        mine.append(messages(28, 40))
        before = mine.context()
        store.is_failing = True
        with pytest.raises(StoreError, match="full"):
            mine.undo()
        assert mine.context() == before
        store.is_failing = True
        with pytest.raises(StoreError, match="full"):
            mine.undo()
        assert other.compact(target_tokens=700).changed  # which takes the place in the log that the undo had
        assert mine.context() == other.context()


@pytest.mark.parametrize("verb", [Session.undo, Session.redo, lambda session: session.restore("file_002")])
def test_a_compaction_of_a_context_that_was_changed_meanwhile_is_dropped(both, verb):
    store, mine, other = both
    mine.compact(target_tokens=600)
    mine.append(messages(28, 40))
    steps = transactions(both, Session.compact)
    mine.undo()
    mine.redo()
    if verb is Session.redo:
        mine.undo()
    wanted = []

    def change() -> None:
        verb(other)
        wanted.append(other.context())

    store.at[store.begun + steps] = change
    report = mine.compact()
    assert report.status == "unchanged"
    assert mine.context() == other.context() == wanted[0]
    assert mine.history() == messages(0, 40)


def test_an_undo_keeps_what_others_have_appended_since(both):
    store, mine, other = both
    before = mine.context()
    mine.compact()
    other.append(messages(28, 30))
    store.at[store.begun + 1] = lambda: other.append(messages(30, 32))
    mine.undo()
    assert mine.context() == [*before, *messages(28, 32)]
    mine.redo()
    assert mine.context()[-4:] == messages(28, 32)
    assert other.context() == mine.context()


def test_two_processes_that_compact_at_the_same_moment_leave_one_compaction_each_time(tmp_path: Path):
    with opened(tmp_path, automatic=False) as session:
        session.append(messages(0, 28))

    def work(who: int) -> None:
        with opened(tmp_path, automatic=False) as session:
            session.compact(target_tokens=700)

    with started(work, range(3)) as children:
        assert [child.wait() for child in children] == [0] * 3
    with opened(tmp_path, automatic=False) as session:
        # Whoever came after the winner found nothing more to do.
        assert len(session.compactions()) == 1
        assert session.history() == messages(0, 28)
        assert illegal(session.context()) == []
