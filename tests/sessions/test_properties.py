"""Whatever is appended, in any dialect and however broken: nothing is lost, and what is sent is legal."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.errors import CompactorError
from context_compactor.json_values import read_json
from context_compactor.sessions import state as gauging
from context_compactor.sessions.core import Core
from context_compactor.sessions.recall import find_original
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import read_session_state
from context_compactor.store.sqlite import SqliteStore
from tests.dialects.strategies import DIALECT_NAMES, ODD_TEXTS, histories, mangled_histories
from tests.sessions.talk import Raw, illegal, opened, plain, references

operations = st.lists(
    st.sampled_from(("append", "append", "append", "append all", "compact", "compact hard", "undo", "redo", "restore")),
    min_size=2,
    max_size=14,
)


def do(session: Session, operation: str, waiting: list[Raw]) -> list[Raw]:
    """One operation; the messages that are still to be appended."""
    if operation.startswith("append"):
        some = waiting if operation == "append all" else waiting[:2]
        session.append(some)
        return waiting[len(some) :]
    if operation.startswith("compact"):
        session.compact(level="emergency" if operation == "compact hard" else None)
    elif operation == "restore":
        _restore(session)
    else:
        session.undo() if operation == "undo" else session.redo()
    return waiting


def _restore(session: Session) -> None:
    shown = [ref for ref in references(session.context()) if not ref.startswith("turn")]
    if shown:
        try:
            session.restore(shown[0])
        except CompactorError as error:
            assert "tokens" in str(error) or "no original" in str(error)


def check(session: Session, store: SqliteStore, appended: list[Raw], dialect: str) -> None:
    """Everything that must hold at any moment."""
    assert session.history() == appended
    assert illegal(session.context(), dialect) == []
    assert gauge_error(session._core) == {}
    for original in store.originals("run"):
        assert isinstance(session.recall(original.ref), str)
    assert wrongly_cut(session._core) == []


def wrongly_cut(core: Core) -> list[str]:
    """Outputs that were cut when they came, and whose reference leads to something else."""
    seen = core.current_context()
    spoken = core.dialect(seen.raws)
    found = []
    for shown in seen.items:
        if shown.ref and shown.position:
            (entry,) = core.store.entries(core.id, after=shown.position - 1, until=shown.position)
            results = spoken.parse([read_json(entry.body)])[0].results
            outputs = [part.text if part.content is None else part.content for part in results]
            if find_original(core, shown.ref).value not in outputs:
                found.append(shown.ref)
    return found


def gauge_error(core: Core) -> dict[str, tuple[object, object]]:
    """Where the gauge that is kept up to date message by message differs from one that is made anew."""
    row = core.store.session(core.id)
    kept, seen = read_session_state(row.state).gauge, core.current_context(row)
    if not row.messages:
        return {}
    dialect = core.dialect(seen.raws)
    anew = gauging.measure_messages(dialect.parse(seen.raws), core.counter(dialect))
    names = ("tokens", "bytes", "tool_results", "open_calls")
    values = {name: (getattr(kept, name), getattr(anew, name)) for name in names}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(data=st.data())
def test_whatever_is_appended_compacted_and_undone_nothing_is_lost_and_all_is_legal(dialect: str, data: st.DataObject):
    waiting = data.draw(histories(dialect, min_rounds=2, max_rounds=6))
    appended: list[Raw] = []
    options = {"dialect": dialect, "window": data.draw(st.sampled_from((900, 1_500, 3_000))), "max_output_tokens": 300}
    with closing(SqliteStore()) as store, opened(store, **options) as session:
        for operation in data.draw(operations):
            left = do(session, operation, waiting)
            appended += waiting[: len(waiting) - len(left)]
            waiting = left
            check(session, store, appended, dialect)
        assert list(store.verify()) == []
        with opened(store, **options, automatic=False) as again:
            assert again.history() == appended
            assert again.context() == session.context()


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(data=st.data())
def test_any_number_of_undos_leads_back_to_what_was_appended(dialect: str, data: st.DataObject):
    said = data.draw(histories(dialect, min_rounds=3, max_rounds=8))
    options = {"dialect": dialect, "automatic": False, "max_output_tokens": 100_000}
    with closing(SqliteStore()) as store, opened(store, **options) as session:
        for first in range(0, len(said), 5):
            session.append(said[first : first + 5])
            session.compact(level="emergency")
        contexts = [session.context()]
        while session.undo():
            contexts.append(session.context())
        with opened(store, "plain", **options) as plain:
            plain.append(said)
            assert contexts[-1] == plain.context()
        for context in reversed(contexts[:-1]):
            assert session.redo() is not None
            assert session.context() == context
        assert session.redo() is None


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(data=st.data())
def test_a_message_that_is_none_is_refused_and_leaves_everything_as_it_was(dialect: str, data: st.DataObject):
    said = data.draw(histories(dialect, max_rounds=2))
    strange = data.draw(mangled_histories(dialect))
    with closing(SqliteStore()) as store, opened(store, dialect=dialect) as session:
        session.append(said)
        before = store.session("run"), session.context()
        try:
            session.append(strange)
        except CompactorError:
            assert (store.session("run"), session.context()) == before
            assert session.history() == said
        else:
            assert session.history() == [*said, *strange]
            session.compact(level="emergency")
            assert illegal(session.context(), dialect) == []


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_odd_texts_come_back_as_they_were(dialect: str, text: str):
    message = DIALECTS[dialect].user_text(text).raw if text.strip() else plain("user", text, dialect)
    with closing(SqliteStore()) as store, opened(store, dialect=dialect) as session:
        words = [message, plain("assistant", f"said: {text}", dialect)] * 3
        session.append(words)
        session.compact(level="emergency")
        assert session.history() == words
        assert illegal(session.context(), dialect) == []
        for original in store.originals("run"):
            session.recall(original.ref)


@settings(max_examples=10)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists))
def test_what_json_can_hold_comes_back_equal(value: object):
    message = {"role": "user", "content": "look at this", "metadata": {"of": value}}
    with closing(SqliteStore()) as store, opened(store, dialect="openai-chat") as session:
        session.append(message)
        assert session.history() == [message]
        assert session.context() == [message]
