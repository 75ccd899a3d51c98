"""What every digest promises, whatever it is given."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests import digest
from context_compactor.facts.kinds import Kind
from tests.apply.digests import outputs
from tests.apply.digests.code_samples import PATHS, sample
from tests.classify.calls_of import bash, tool

EXAMPLES = {name: text for name, text in vars(outputs).items() if isinstance(text, str) and name[0].isupper()}
CALLS = (None, bash("./script"), tool("Read", file_path="src/a.py"), tool("Read", file_path="a.md", offset=7, limit=9))
OWN_WORDS = frozenset(
    "lines line imports exports also more methods files file folder folders match matches items item under headings "
    "title summary status agent tests exit code frames frame all root cause printed before after last error warning "
    "info debug fatal failing test tests FAILED passed failed skipped packages package hunk hunks adds deleted "
    "pytest unittest jest vitest bun mocha node rspec cargo JUnit runner failures errors pass fail result results "
    "JSON off fields found kind kinds cut commit totals output true false null new summary printed".split()
)
_WORD = re.compile(r"[A-Za-z_][\w./-]*\w")


def assert_keeps_its_promises(kind: Kind, call: ToolCall | None, text: str) -> str:
    short = digest(kind, call, text)
    assert digest(kind, call, text) == short
    if short:
        assert len(short) < 0.7 * len(text)
    lines = short.split("\n")
    assert len(lines) <= 40
    assert all(len(line) < 200 for line in lines)
    assert len(short.splitlines()) == (len(lines) if short else 0)
    return short


def invented_words(short: str, call: ToolCall | None, text: str) -> list[str]:
    source = " ".join((text, call.arguments if call else "")).replace("\\/", "/")
    words = [word.rstrip("…") for word in _WORD.findall(short) if len(word) > 2]
    return [word for word in words if word not in source and word not in OWN_WORDS]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_digest_of_every_output_is_shorter_bounded_and_invents_no_name(kind, name):
    for call in CALLS:
        short = assert_keeps_its_promises(kind, call, EXAMPLES[name])
        assert invented_words(short, call, EXAMPLES[name]) == []


@pytest.mark.parametrize("path", PATHS)
def test_an_outline_invents_no_name(path):
    call = tool("Read", file_path=path)
    short = assert_keeps_its_promises(Kind.CODE, call, sample(path))
    assert short
    assert invented_words(short, call, sample(path)) == []


odd_text = st.text() | st.text(
    alphabet=st.characters(codec=None)
    | st.sampled_from('\x00\x1b\r\n\t\u2028\x85\ud800{}[]":,<>/=-_#@+.ExEFAIL 0123456789')
)
shaped_text = st.lists(
    st.sampled_from([line for text in EXAMPLES.values() for line in text.split("\n")]) | st.text(max_size=30),
    max_size=60,
).map("\n".join)


@settings(max_examples=200)
@given(st.sampled_from(Kind), odd_text | shaped_text, st.integers(1, 8))
def test_any_text_of_any_kind_keeps_the_promises(kind, text, times):
    for call in CALLS:
        assert_keeps_its_promises(kind, call, text * times)


@settings(max_examples=100)
@given(shaped_text, st.sampled_from(PATHS))
def test_any_text_has_an_outline_or_none_in_every_language(text, path):
    assert_keeps_its_promises(Kind.CODE, tool("Read", file_path=path), text)
    assert_keeps_its_promises(Kind.CODE, bash(f"cat -n {path} | head -80"), text)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    "text",
    [
        " " * 1_000_000,
        "\n" * 300_000,
        "A" * 5_000_000,
        "{" * 100_000,
        "[1," * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '"' * 200_000,
        "\x1b[" * 200_000,
        "\ud800\udc00\ud801" * 20_000,
        "\x00\x01\x02\xff" * 50_000,
        "a/b.py:1:" + "x" * 1_000_000,
        "  at " * 100_000,
        "def f(" * 50_000,
        "<p>" * 100_000,
        "<h1>" * 100_000,
        "9" * 100_000,
        ("=" * 80 + "\n") * 5_000,
        "\t" * 200_000 + "x",
        "- " * 200_000,
    ],
    ids=lambda text: repr(text[:6]),
)
def test_hostile_text_is_short_work(kind, text):
    for call in (None, tool("Read", file_path="a.go")):
        assert_keeps_its_promises(kind, call, text)


@pytest.mark.parametrize("kind", Kind)
def test_a_text_that_is_short_already_has_no_digest(kind):
    assert digest(kind, None, "exit 0\nall good\n") == ""


def test_talk_is_never_shortened_by_rule():
    assert digest(Kind.TALK, None, "Please never touch legacy/. " * 100) == ""
