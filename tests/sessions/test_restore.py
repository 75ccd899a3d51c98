"""An original comes back into the context, and the budget still holds."""

from __future__ import annotations

import pytest

from context_compactor import BadSetting, Session, Settings, UnknownReference
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, bash, read, talk_in
from tests.failures.scenarios import code, fill, listing, seen

ASKED = Settings(idle_seconds=0, automatic=False)
every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def opened(dialect, window=16_000):
    return Session.open("run", window=window, store="memory:", dialect=dialect, settings=ASKED)


def told(dialect, text):
    return fill(talk_in(dialect).user("Read it. Never touch legacy/.").step(read("src/a.py", text)), 40)


@every_dialect
def test_an_original_whose_turn_is_gone_comes_back_at_the_end(dialect):
    text = code("load", 30)
    with opened(dialect) as session:
        session.append(told(dialect, text).messages)
        session.compact(level="emergency")
        before = session.context()
        assert text not in str(promises.parsed(before, dialect))
        restored = session.restore("file_001")
        after = session.context()
        assert not restored.in_place
        is_joined = dialect == "bedrock"  # which takes no second user message behind the first
        assert is_joined or after[: len(before)] == before
        assert text in promises.parsed(after, dialect)[-1].text
        assert find_violations(promises.parsed(after, dialect), DIALECTS[dialect]) == []
        assert session.usage().tokens == restored.tokens_after


@every_dialect
def test_an_output_that_was_cut_comes_back_in_its_place(dialect):
    output = listing(400)
    talk = talk_in(dialect).user("Look.").step(bash("ls -R", output))
    with opened(dialect, 64_000) as session:
        session.append(talk.messages)
        assert output not in str(promises.parsed(session.context(), dialect))
        assert session.restore("tool_001").in_place
        assert seen(session.context(), dialect) == seen(talk.messages, dialect)


def test_room_is_made_for_an_original_that_would_not_fit():
    text = code("load", 120)
    with opened("anthropic", 16_000) as session:
        talk = told("anthropic", text)
        session.append(talk.messages)
        session.compact(level="emergency")
        told_so_far = len(talk.messages)
        session.append(fill(talk, 30, 40).messages[told_so_far:])
        assert session.usage().share > 0.6
        restored = session.restore("file_001")
        assert restored.compacted
        assert text in seen_raw(session)
        assert session.usage().share <= 0.8


def seen_raw(session):
    return "\n".join(message.text for message in promises.parsed(session.context(), "anthropic"))


def test_an_original_that_would_fill_the_window_is_refused_and_nothing_changes():
    with opened("anthropic", 8_000) as session:
        session.append(told("anthropic", code("load", 200)).messages)
        session.compact(level="emergency")
        before = session.context()
        with pytest.raises(BadSetting, match="more than half of the budget"):
            session.restore("file_001")
        assert session.context() == before


def test_the_next_compaction_leaves_the_reference_again_and_takes_nothing_for_the_users_words():
    text = "Always deploy on Fridays.\n" + code("load", 30)
    with opened("anthropic") as session:
        talk = told("anthropic", text)
        session.append(talk.messages)
        session.compact(level="emergency")
        session.restore("file_001")
        so_far = len(talk.messages)
        session.append(fill(talk, 20, 40).messages[so_far:])
        session.compact(level="emergency")
        assert "put back by Context Compactor" not in seen(session.context(), "anthropic")
        assert session.recall("file_001") == text
        rules = [fact.content for fact in session.facts("constraint")]
        assert rules == ["Never touch legacy/."]
        turns = [item.ref for item in session._core.store.originals("run") if item.kind == "turn"]
        assert len(turns) == len(set(turns))
        assert not any("put back" in session.recall(ref) for ref in turns)


@pytest.mark.parametrize("ref", ["tool_999", "nonsense", "", "tool_1 or 1=1"])
def test_an_id_that_names_nothing_is_refused_in_words(ref):
    with opened("anthropic") as session:
        session.append(told("anthropic", "x").messages)
        with pytest.raises(UnknownReference):
            session.restore(ref)
        with pytest.raises(UnknownReference):
            session.recall(ref)


def test_an_original_is_read_by_lines_and_by_pages():
    text = "\n".join(f"line {number}" for number in range(1, 1_001)) + "\n" + "é" * 5_000
    with opened("anthropic", 200_000) as session:
        session.append(talk_in("anthropic").user("Read.").step(read("a.txt", text)).messages)
        assert session.recall("file_001", lines=(10, 12)) == "line 10\nline 11\nline 12"
        pages = [
            session.page("file_001", number, tokens=300) for number in range(1, session.page("file_001").pages + 1)
        ]
        whole = [session.page("file_001", number, tokens=300) for number in range(1, pages[0].pages + 1)]
        assert "".join(page.text for page in whole) == text
        assert [whole[0].first_line, whole[-1].last_line] == [1, 1_001]
        for wrong in ((0, 3), (5, 4), (2_000, 2_001)):
            with pytest.raises(BadSetting, match="lines"):
                session.recall("file_001", lines=wrong)
        with pytest.raises(BadSetting, match="page 99"):
            session.page("file_001", 99)
