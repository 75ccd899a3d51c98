from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadSetting, Hit, compact, render_hits
from context_compactor.archive.originals import Original
from context_compactor.archive.search.passages import cut_originals, original_texts
from context_compactor.archive.search.search import Searcher
from context_compactor.tokens.counting import counter_for
from tests.engine.sessions import sessions

COUNTER = counter_for(None)
CODE = """
def load_config(path):
    return parse_toml(path.read_text())


def refresh_token(store, now):
    if store.expires_at < now:
        store.rotate_signing_key()
    return store.token
"""


def result(ref: str, text: str, kind: str = "code file") -> Original:
    return Original(ref, kind, "", 0, text, "")


def said(ref: str, text: str, role: str = "user") -> Original:
    return Original(ref, "turn", "", 0, [{"role": role, "content": text}], "")


def searcher(*originals: Original, shown: tuple[str, ...] = ()) -> Searcher:
    return Searcher(originals, COUNTER, shown)


def stands(hit: Hit, original: Original) -> bool:
    """Whether each line of a hit is in the original's line of that number."""
    lines = "\n".join(text for _, text in original_texts(original)).split("\n")[hit.first_line - 1 : hit.last_line]
    shown = hit.text.split("\n")
    return len(lines) == len(shown) and all(part in line for part, line in zip(shown, lines, strict=True))


@given(st.lists(st.sampled_from(["", "a word", "x" * 70_000, "y" * 65_535]), max_size=8), st.booleans())
def test_passages_of_a_large_text_have_the_numbers_of_their_lines(lines, ends):
    text = "\n".join(lines) + "\n" * ends
    for passage in cut_originals([result("tool_001", text, "test run")]):
        assert passage.text in text.split("\n")[passage.line - 1]
    whole = "".join(passage.text for passage in cut_originals([result("tool_001", text, "test run")]))
    assert whole == text.replace("\n", "")


def test_a_question_finds_the_lines_that_answer_it():
    hits = searcher(result("file_001", CODE), said("turn_002", "Please keep the docs short.")).search(
        "when does the key rotate?", tokens=60
    )
    assert (hits[0].id, hits[0].kind) == ("file_001", "code file")
    assert "store.rotate_signing_key()" in hits[0].text
    assert CODE.split("\n")[hits[0].first_line - 1 : hits[0].last_line] == hits[0].text.split("\n")


@pytest.mark.parametrize("spelling", ["rotateSigningKey", "rotate signing keys", "ROTATE_SIGNING_KEY", "rotating"])
def test_a_name_is_found_in_any_spelling(spelling):
    assert "rotate_signing_key" in searcher(result("file_001", CODE)).search(spelling)[0].text


def test_the_user_s_form_of_a_word_need_not_be_the_writer_s():
    hits = searcher(said("turn_001", "We went camping."), said("turn_002", "It rains.")).search("Where did they go?")
    assert hits[0].id == "turn_001"


def test_a_general_word_finds_what_it_stands_for():
    hits = searcher(said("turn_001", "I have a puppy now."), said("turn_002", "I have a car.")).search("Which pets?")
    assert hits[0].id == "turn_001"


def test_a_question_that_names_a_speaker_prefers_that_speaker_s_words():
    talk = [f"{name}: I painted a bowl, {other}." for name, other in (("Ann", "Bob"), ("Bob", "Ann"))] * 4
    hits = searcher(*(said(f"turn_{at:03}", line) for at, line in enumerate(talk, 1))).search("What did Bob paint?")
    assert hits[0].text.startswith("Bob:")


def test_the_turn_after_a_matching_question_comes_with_it():
    talk = ["Weather is fine.", "What is the name of the dog?", "Rex!", "Good night.", "See you.", "Bye."]
    found = searcher(*(said(f"turn_{at:03}", line) for at, line in enumerate(talk, 1))).search("name of the dog")
    assert found[0].id == "turn_002"
    assert {hit.id for hit in found[1:3]} == {"turn_001", "turn_003"}


def test_what_the_context_shows_comes_after_what_it_lost():
    lines = [result(f"tool_{at:03}", f"handler_{at:03} rotates the key") for at in range(40)]
    shown = tuple(f"handler_{at:03}" for at in range(40) if at != 25)
    assert [hit.id for hit in searcher(*lines, shown=shown).search("rotate key", tokens=20)] == ["tool_025"]


def test_a_limit_counts_hits_and_lets_each_grow():
    hits = searcher(*(result(f"file_{at:03}", CODE) for at in range(9))).search("refresh the token", limit=2)
    assert len(hits) == 2
    assert all("\n" in hit.text for hit in hits)


def test_numbers_before_the_lines_of_a_file_are_left_out():
    hit = searcher(result("file_001", "     1→import os\n     2→os.abort()\n")).search("abort")[0]
    assert hit.text.split("\n")[-1] == "os.abort()"


def test_a_call_is_found_by_its_arguments():
    call = {"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": '{"command": "make deploy"}'}}
    turn = Original("turn_003", "turn", "", 0, [{"role": "assistant", "content": None, "tool_calls": [call]}], "")
    assert [(hit.id, hit.kind, hit.text) for hit in searcher(turn).search("deployed how?")] == [
        ("turn_003", "call", "Bash make deploy")
    ]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("まずログを確認します。設定は古いです。", "設定"),
        ("การตั้งค่าเก่าเกินไป", "ตั้งค่า"),
        ("Настройки устарели", "настройки"),
        ("deployed 🎉 at last", "🎉"),
        ("to be or not to be", "to be"),
        ("a -> b", "->"),
    ],
)
def test_every_script_and_bare_signs_are_found(text, query):
    assert searcher(said("turn_001", "nothing"), said("turn_002", text)).search(query)[0].text == text


def test_words_that_stand_nowhere_find_nothing():
    assert searcher(result("file_001", CODE)).search("xylophone") == []
    assert searcher().search("anything") == []
    assert render_hits([]) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [({"text": " \n"}, "empty"), ({"tokens": 0}, "tokens=0"), ({"limit": 0}, "limit=0")],
)
def test_what_cannot_be_searched_is_said(given, message):
    with pytest.raises(BadSetting, match=message):
        searcher(result("file_001", CODE)).search(**{"text": "key", **given})


def test_a_line_of_five_megabytes_is_searched():
    line = "lorem ipsum " * 200_000 + "the needle_in_it " + "dolor sit " * 260_000
    hits = searcher(result("tool_001", line, "log")).search("where is the needle?", tokens=100)
    assert "needle_in_it" in hits[0].text
    assert (hits[0].first_line, hits[0].last_line) == (1, 1)
    assert searcher(result("tool_001", "x" * 5_000_000)).search("y") == []


def test_a_rendered_answer_names_each_original_once_and_marks_gaps():
    hits = [
        Hit("turn_008", "user", 1, 1, "The key is lost.", 0.9, position=40),
        Hit("tool_007", "log", 32, 32, "key two", 0.8, position=31),
        Hit("tool_007", "log", 1, 2, "key one\nfiller", 0.7, position=0),
    ]
    assert render_hits(hits) == "tool_007 log:\nkey one\nfiller\n…key two\nturn_008: The key is lost."


@given(sessions("anthropic"), st.sampled_from(["fix the failing test", "refresh_cursor retry", "日本語", "src/auth"]))
def test_every_hit_stands_in_an_original_that_can_be_recalled(session, query):
    found = compact(session.messages, target_tokens=1500)
    hits = found.search(query, tokens=300)
    assert COUNTER.count(render_hits(hits)) <= 300
    assert hits == found.search(query, tokens=300)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert found.recall(hit.id)
        assert stands(hit, found.original(hit.id))


@given(st.lists(st.text(max_size=400), max_size=6), st.text(min_size=1), st.integers(1, 200), st.integers(1, 4))
def test_any_text_and_any_query_stay_within_the_tokens_and_the_limit(texts, query, tokens, limit):
    originals = [result(f"tool_{at:03}", text, "log") for at, text in enumerate(texts)]
    if not query.strip():
        return
    hits = searcher(*originals).search(query, tokens=tokens, limit=limit)
    assert len(hits) <= limit
    assert COUNTER.count(render_hits(hits)) <= tokens
    assert all(stands(hit, originals[int(hit.id[-3:])]) for hit in hits)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": None}, "not str"),
        ({"text": b"x"}, "not str"),
        ({"text": "x", "tokens": "many"}, "tokens is 'many'"),
        ({"text": "x", "tokens": 1.5}, "tokens is 1.5"),
        ({"text": "x", "limit": "a"}, "limit is 'a'"),
    ],
)
def test_a_question_of_the_wrong_type_is_refused(asked, said):
    with pytest.raises(BadSetting, match=said):
        Searcher([], COUNTER).search(**{"tokens": 100, "limit": None} | asked)
