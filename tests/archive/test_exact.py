"""A token that a question spells out in full is found where it stands, whatever else is asked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Hit
from context_compactor.archive.originals import Original
from context_compactor.archive.search import stored
from context_compactor.archive.search.query import exact_tokens
from context_compactor.archive.search.search import Searcher
from context_compactor.archive.search.stored import search_stored
from context_compactor.store.sqlite import SqliteStore
from context_compactor.tokens.counting import counter_for
from tests.archive.test_search import result, said
from tests.archive.test_stored_search import MARCH, archive_originals

COUNTER = counter_for(None)
# Words that stand everywhere, of which unique tokens are made, so that no part of a token tells it.
WORDS = ("retry", "cursor", "session", "timeout", "index", "token", "error", "config", "cache", "build")
KINDS = ("code file", "log", "test run", "command output", "search result")
SENTENCES = (
    "What is {} for?",
    "why does the build fail when {} is set, and what did we do about the retry timeout",
    "the session cache and {}: where was the config of the index changed?",
)

words = st.sampled_from(WORDS)
lines = st.lists(words, min_size=2, max_size=9).map(" ".join)
texts = st.lists(lines, min_size=1, max_size=12).map("\n".join)
pairs = st.lists(words, min_size=2, max_size=3)
tokens = st.one_of(
    pairs.map(lambda parts: "_".join((*parts, "q")).upper()),
    pairs.map(lambda parts: "/".join(("src", *parts)) + ".ts"),
    pairs.map("-".join),
    pairs.map(".".join),
    pairs.map(lambda parts: f"{parts[0]}{parts[1].title()}"),
    st.integers(1000, 9999).map(lambda number: f"E{number}"),
    st.text("0123456789abcdef", min_size=8, max_size=40).map(lambda text: f"{text}7f"),
)
original = st.one_of(
    st.tuples(texts, st.sampled_from(KINDS)),
    st.tuples(texts, st.sampled_from(["user", "assistant"])),
)


def made(at: int, text: str, kind: str) -> Original:
    return said(f"turn_{at:03}", text, kind) if kind in ("user", "assistant") else result(f"tool_{at:03}", text, kind)


def archive(contents: Sequence[tuple[str, str]], token: str, where: int) -> list[Original]:
    """Originals of which one has a line with the token in it."""
    where %= len(contents)
    hidden = [
        (f"{text}\nwe saw {token} in the {WORDS[at % len(WORDS)]} there" if at == where else text, kind)
        for at, (text, kind) in enumerate(contents)
    ]
    return [made(at, text, kind) for at, (text, kind) in enumerate(hidden, 1)]


def questions(token: str) -> list[str]:
    return [token, *(sentence.format(token) for sentence in SENTENCES)]


@given(st.lists(original, min_size=1, max_size=12), tokens, st.integers(0, 99))
def test_the_passage_of_a_unique_token_comes_first(contents, token, where):
    searcher = Searcher(archive(contents, token, where), COUNTER)
    for question in questions(token):
        assert token in searcher.search(question)[0].text
        assert token in searcher.search(question, limit=1)[0].text


@given(st.lists(original, min_size=1, max_size=12), tokens, st.integers(0, 99))
def test_the_passage_of_a_unique_token_comes_first_from_a_large_archive(contents, token, where):
    store = SqliteStore()
    store.open_session("a", b"{}", MARCH)
    archive_originals(store, archive(contents, token, where))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_LEAST", 4_000)
        patch.setattr(stored, "_PER_TOKEN", 0)
        for question in questions(token):
            assert token in search_stored(store, "a", question, COUNTER)[0].text
    store.close()


def search(text: str, *originals: Original) -> list[Hit]:
    return Searcher(originals, COUNTER).search(text)


def test_the_newest_statement_of_a_token_comes_before_its_uses():
    hits = search(
        "what is CACHE_TTL_SECONDS?",
        result("file_001", "CACHE_TTL_SECONDS = 60"),
        result("tool_002", "reading CACHE_TTL_SECONDS from the environment", "log"),
        said("turn_003", "Set CACHE_TTL_SECONDS to 900 from now on."),
        result("tool_004", "warning about CACHE_TTL_SECONDS in a worker", "log"),
    )
    assert [hit.id for hit in hits] == ["turn_003", "file_001", "tool_004", "tool_002"]


def test_the_same_line_in_many_reads_is_named_where_it_is_newest():
    reads = [result(f"file_{at:03}", f"API_ROOT_URL = x\nother_{at}") for at in range(1, 6)]
    assert search("API_ROOT_URL", *reads)[0].id == "file_005"


def test_a_token_is_found_as_it_is_spelled_and_not_inside_a_longer_one():
    hits = search(
        "who reads jwt.ts", result("file_001", "import my_jwt.tsx"), result("file_002", "see src/auth/jwt.ts for it")
    )
    assert hits[0].id == "file_002"


def test_quoted_words_are_looked_for_as_they_stand():
    hits = search(
        'where did we see "not the owner of it"?',
        said("turn_001", "The owner of it is not the problem, owner of not it."),
        result("tool_002", "EPERM: not the owner of it", "log"),
    )
    assert hits[0].id == "tool_002"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("why is APP_ROOT set?", ("APP_ROOT",)),
        ("look at ./src/a.ts, then b/c.py.", ("src/a.ts", "b/c.py")),
        ("what is in .env and @scope/pkg?", (".env", "@scope/pkg")),
        ("error TS2345 (again)", ("TS2345",)),
        ("commit 9f86d08 or v1.2.3", ("9f86d08", "v1.2.3")),
        ("what did the user want", ()),
        ("refreshToken and `the two words`", ("the two words", "refreshToken")),
    ],
)
def test_names_are_told_from_words(text, found):
    assert set(exact_tokens(text)) == set(found)


@given(st.text(max_size=300))
def test_any_text_is_read_for_tokens(text):
    assert all(token and token in text for token in exact_tokens(text))
