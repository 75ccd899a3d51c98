"""The search over a store finds what the search in memory finds, and stays within its session whatever is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, Hit, UnknownSession, render_hits
from context_compactor.archive.originals import Original
from context_compactor.archive.search import stored
from context_compactor.archive.search.passages import cut_originals
from context_compactor.archive.search.search import Searcher
from context_compactor.archive.search.stored import search_stored
from context_compactor.archive.storage import prepare_and_store_items
from context_compactor.dialects.openai_chat import OpenAIChat
from context_compactor.store.sqlite import SqliteStore
from context_compactor.tokens.counting import counter_for
from tests.archive.test_search import CODE, result, said, stands

COUNTER = counter_for(None)
MARCH, APRIL, MAY = (f"2026-0{month}-01T00:00:00.000+00:00" for month in (3, 4, 5))


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore()
    for session_id in ("a", "b"):
        opened.open_session(session_id, b"{}", MARCH)
    yield opened
    opened.close()


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little may be read that the index of the store must choose."""
    monkeypatch.setattr(stored, "_LEAST", 5_000)
    monkeypatch.setattr(stored, "_PER_TOKEN", 0)


def archive_originals(
    store: SqliteStore, originals: Sequence[Original], session_id: str = "a", now: str = MARCH
) -> None:
    store.archive(session_id, prepare_and_store_items(originals, store), now)


def search(store: SqliteStore, text: str, session_id: str = "a", **wanted) -> list[Hit]:
    return search_stored(store, session_id, text, COUNTER, **wanted)


def in_memory(originals: Sequence[Original], text: str, **wanted) -> list[Hit]:
    return Searcher(originals, COUNTER).search(text, **wanted)


def haystack(count: int = 120) -> list[Original]:
    """Talk and files about nothing, with a few words of their own in each."""
    straw = "We looked at the weather again and nothing came of it that anybody would want to know later."
    return [
        said(f"turn_{at:03}", f"{straw} Day{at}.")
        if at % 2
        else result(f"file_{at:03}", "\n".join(f"value_{at}_{line} = straw" for line in range(20)))
        for at in range(count)
    ]


def archive_with_needle(store: SqliteStore, needle: Original, at: int = 60) -> None:
    straw = haystack()
    archive_originals(store, [*straw[:at], needle, *straw[at:]])


# While there is little


QUESTIONS = ("when does the key rotate?", "straw", "Day7", "rotateSigningKey", "value_4_3", "→", "to be", "日本語", "!")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_small_archive_gives_what_the_search_in_memory_gives(store, question):
    originals = [*haystack(20), result("file_900", CODE), said("turn_900", "to be → or not 日本語! 🎉")]
    archive_originals(store, originals)
    for wanted in ({}, {"tokens": 60}, {"limit": 2}, {"tokens": 300, "limit": 1}):
        assert search(store, question, **wanted) == in_memory(originals, question, **wanted)


@given(
    st.lists(st.text(max_size=300), max_size=5, unique=True),
    st.text(min_size=1, max_size=60).filter(str.strip),
    st.integers(1, 200),
)
def test_any_texts_give_what_the_search_in_memory_gives(texts, question, tokens):
    originals = [result(f"tool_{at:03}", text, "log") for at, text in enumerate(texts)]
    store = SqliteStore()
    store.open_session("a", b"{}", MARCH)
    archive_originals(store, originals)
    assert search(store, question, tokens=tokens) == in_memory(originals, question, tokens=tokens)
    store.close()


def test_what_is_archived_twice_is_found_once(store):
    archive_originals(store, [result("file_001", CODE), result("file_002", CODE)])
    assert {hit.id for hit in search(store, "rotate the key")} == {"file_001"}


def test_what_the_reader_has_comes_after_what_was_lost(store):
    archive_originals(store, [result(f"tool_{at:03}", f"handler_{at:03} rotates the key") for at in range(40)])
    shown = OpenAIChat().parse([{"role": "user", "content": f"handler_{at:03}"} for at in range(40) if at != 25])
    assert [hit.id for hit in search(store, "rotate key", shown=shown, tokens=20)] == ["tool_025"]


# When there is much


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("store.rotate_signing_key()", "rotateSigningKey"),
        ("store.rotate_signing_key()", "when do we rotate the signing key?"),
        ("まずログを確認します。設定は古いです。", "設定"),
        ("การตั้งค่าเก่าเกินไป", "ตั้งค่า"),
        ("Настройки устарели", "настройки"),
        ("İstanbul değişti", "İSTANBUL DEĞİŞTİ"),
        ("deployed 🎉 at last", "🎉"),
        ("a → b", "→"),
        ("I have a puppy now.", "Which pets?"),
        ("sha 9f86d081884c7d65", "9f86d081884c7d65"),
        ("x² + y²", "x²"),
    ],
)
@pytest.mark.usefixtures("narrow")
def test_a_needle_of_any_script_is_found_in_a_large_archive(store, text, question):
    archive_with_needle(store, said("turn_900", text))
    assert search(store, question)[0].text == text


@pytest.mark.usefixtures("narrow")
def test_signs_that_no_index_holds_are_found_among_the_newest_originals(store):
    archive_with_needle(store, said("turn_900", "it -> them"), at=119)
    assert [hit.id for hit in search(store, "->")] == ["turn_900"]


@pytest.mark.usefixtures("narrow")
def test_the_turns_beside_a_hit_come_with_it_and_others_do_not(store):
    archive_with_needle(store, said("turn_900", "What is the name of the dog?"))
    ids = [hit.id for hit in search(store, "name of the dog")]
    assert ids[0] == "turn_900"
    assert {"turn_059", "file_060"} & set(ids)
    assert set(ids) <= {"turn_900", *(f"{kind}_{at:03}" for kind in ("turn", "file") for at in range(55, 65))}


@pytest.mark.usefixtures("narrow")
def test_lines_of_runs_that_do_not_follow_each_other_are_never_joined(store):
    lines = [f"filler {at} of no interest whatever to anybody who reads it" for at in range(400)]
    lines[10] = lines[390] = "the needle_in_it"
    log = result("tool_900", "\n".join(lines), "log")
    archive_originals(store, [log])
    hits = search(store, "needle_in_it", limit=9)
    assert {hit.first_line <= 11 <= hit.last_line for hit in hits} == {True, False}
    for hit in hits:
        assert stands(hit, log)
        assert hit.last_line - hit.first_line < 100


@pytest.mark.usefixtures("narrow")
def test_positions_are_those_of_the_whole_archive(store):
    originals = [*haystack(), said("turn_900", "the needle"), result("file_901", "last = 1")]
    archive_originals(store, originals)
    places = {(passage.id, passage.line): passage.position for passage in cut_originals(originals)}
    hits = search(store, "needle")
    assert hits
    assert {(hit.id, hit.first_line): hit.position for hit in hits}.items() <= places.items()


@pytest.mark.usefixtures("narrow")
def test_an_original_of_five_megabytes_is_read_only_where_it_answers(store, monkeypatch):
    line = "lorem ipsum " * 200_000 + "the needle_in_it " + "dolor sit " * 260_000
    archive_originals(store, [result("tool_001", line, "log")])
    read: list[int] = []
    monkeypatch.setattr(
        stored, "LineSelector", lambda passages, *rest: read.append(len(passages)) or Lines(passages, *rest)
    )
    hits = search(store, "where is the needle?", tokens=100)
    assert "needle_in_it" in hits[0].text
    assert (hits[0].first_line, hits[0].last_line) == (1, 1)
    assert read[0] < 50


Lines = stored.LineSelector


# Questions that mean harm


HOSTILE = (
    '"', '""', "'", "NEAR(needle straw, 2)", "needle*", "terms : needle", "terms:needle", "needle AND", "OR",
    "NOT needle", "^needle", "{terms} : needle", "-needle", "needle + straw", "(needle", "needle)", "*", "%", "?", "\0",
    "a\0b", "\ud800", "kind:needle", "words", "rowid", "; DROP TABLE words; --", "\\", "needle\n\nOR\n\nstraw",
    "\ufdfd", "🎉" * 100, "\u202eneedle",
)  # fmt: skip


@pytest.mark.parametrize("question", HOSTILE, ids=ascii)
@pytest.mark.usefixtures("narrow")
def test_a_question_is_never_read_as_a_command_of_the_index(store, question):
    archive_with_needle(store, said("turn_900", "the needle"))
    hits = search(store, question)
    assert COUNTER.count(render_hits(hits)) <= 2000
    if "needle" in question:
        assert "turn_900" in {hit.id for hit in hits}


@pytest.mark.usefixtures("narrow")
def test_a_question_of_many_thousand_characters_is_answered(store):
    archive_with_needle(store, said("turn_900", "the needle_in_it"))
    question = " ".join(f"word{at}" for at in range(2_000)) + " needle_in_it needle_in_it " + "x" * 3_000
    assert "turn_900" in {hit.id for hit in search(store, question)}
    assert "turn_900" in {hit.id for hit in search(store, "needle_in_it " * 2_000)}


@given(st.text(min_size=1, max_size=80).filter(str.strip), st.integers(1, 300), st.integers(1, 4))
def test_any_question_to_a_large_archive_stays_within_its_tokens_its_limit_and_its_session(question, tokens, limit):
    store = SqliteStore()
    for session_id in ("a", "b"):
        store.open_session(session_id, b"{}", MARCH)
    originals = {each.id: each for each in haystack(60)}
    archive_originals(store, list(originals.values()))
    archive_originals(store, [said("turn_500", f"of another session {question}")], "b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_LEAST", 1_000)
        patch.setattr(stored, "_PER_TOKEN", 0)
        hits = search(store, question, tokens=tokens, limit=limit)
    store.close()
    assert len(hits) <= limit
    assert COUNTER.count(render_hits(hits)) <= tokens
    assert all(stands(hit, originals[hit.id]) for hit in hits)


# Session, kind and time


@pytest.mark.usefixtures("narrow")
def test_a_search_never_leaves_its_session(store):
    archive_originals(store, haystack())
    archive_originals(store, [said("turn_900", "the needle of b")], "b")
    assert search(store, "the needle of b") == []
    assert [hit.text for hit in search(store, "needle", "b")] == ["the needle of b"]
    archive_originals(store, [said("turn_901", "the needle of a")])
    assert "turn_900" not in {hit.id for hit in search(store, "needle")}
    with pytest.raises(UnknownSession):
        search(store, "needle", "c")


def calling(ref: str, command: str) -> Original:
    call = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": f'{{"command": "{command}"}}'}}
    said_too = {"role": "assistant", "content": "I run the needle.", "tool_calls": [call]}
    return Original(ref, "turn", "", 0, [said_too], "")


def test_a_kind_is_that_of_the_original_or_that_of_the_hit(store):
    archive_originals(
        store, [said("turn_001", "Find the needle."), calling("turn_002", "needle"), result("file_003", "needle = 1")]
    )

    def found(kind: str) -> list[tuple[str, str]]:
        return sorted((hit.id, hit.kind) for hit in search(store, "needle", kind=kind))

    assert found("code file") == [("file_003", "code file")]
    assert found("turn") == [("turn_001", "user"), ("turn_002", "agent"), ("turn_002", "call")]
    assert found("user") == [("turn_001", "user")]
    assert found("agent") == [("turn_002", "agent")]
    assert found("call") == [("turn_002", "call")]
    assert found("test run") == []


@pytest.mark.usefixtures("narrow")
def test_a_kind_is_kept_to_in_a_large_archive(store):
    archive_with_needle(store, result("file_900", "needle = 1", "log"))
    archive_originals(store, [said("turn_901", "the needle")])
    assert {hit.kind for hit in search(store, "needle", kind="log")} == {"log"}
    assert {hit.kind for hit in search(store, "straw", kind="code file")} == {"code file"}
    assert {hit.kind for hit in search(store, "needle weather", kind="user")} == {"user"}


@pytest.mark.usefixtures("narrow")
def test_times_are_those_of_archiving(store):
    for at, now in enumerate((MARCH, APRIL, MAY)):
        archive_originals(store, [said(f"turn_90{at}", f"needle number {at}")], now=now)
        archive_originals(
            store, [result(f"tool_{at}{more:02}", f"straw {at}{more} " * 9, "log") for more in range(40)], now=now
        )

    def found(**times: str) -> set[str]:
        return {hit.id for hit in search(store, "needle", **times) if hit.id.startswith("turn")}

    assert found() == {"turn_900", "turn_901", "turn_902"}
    assert found(since=APRIL) == {"turn_901", "turn_902"}
    assert found(until=APRIL) == {"turn_900"}
    assert found(since=APRIL, until=MAY) == {"turn_901"}
    assert found(since="2026-04-01T02:00:00+02:00", until="2026-04-01T00:00:01Z") == {"turn_901"}
    assert found(since="2030-01-01") == set()
    assert found(until="2020-01-01") == set()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": ""}, "empty"),
        ({"text": " \n"}, "empty"),
        ({"text": None}, "not str"),
        ({"tokens": 0}, "tokens=0"),
        ({"limit": 0}, "limit=0"),
        ({"limit": "a"}, "limit is 'a'"),
        ({"kind": "novel"}, "kind='novel'.*turn, user"),
        ({"since": "yesterday"}, "since='yesterday'.*2026"),
        ({"until": 5}, "until=5"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(store, asked, said):
    with pytest.raises(BadSetting, match=said):
        search(store, **{"text": "key"} | asked)
