from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.evaluation.expected import identifiers


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see /home/me/src/app/main_view.go:12", "app/main_view.go"),
        ("in src/app/main_view.go.", "app/main_view.go"),
        ("call parseHeader(x)", "parseHeader"),
        ("use `MAX_SIZE`", "MAX_SIZE"),
        ("https://example.com/a?b=1, then", "https://example.com/a?b=1"),
        ("commit e53647ba1f1e", "e53647ba1f1e"),
        ("fails with E501", "E501"),
        ("ENOENT: no file", "ENOENT"),
        ("port 54321", "54321"),
        ("os.path.join", "os.path.join"),
        ("booking JG7FMM", "JG7FMM"),
        ("pricing.yaml", "pricing.yaml"),
    ],
)
def test_identifiers_are_found(text, wanted):
    assert wanted in identifiers(text)


@pytest.mark.parametrize(
    "text", ["and/or", "a plain sentence.", "e.g. this", "timeout 60000", "12 of 5/10", "I'm done-ish"]
)
def test_plain_words_are_not_identifiers(text):
    assert identifiers(text) == set()


def test_a_path_goes_by_its_last_two_names_from_wherever_it_is_written():
    assert identifiers("/home/ann/cli/strategy/hooks.go") & identifiers("strategy/hooks.go") >= {"strategy/hooks.go"}


@given(st.text())
def test_any_text_can_be_searched(text):
    assert all(len(name) >= 4 for name in identifiers(text))


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a/" * 500_000, "_." * 500_000, "A1" * 500_000, " " * 1_000_000])
def test_hostile_text_is_searched_in_one_pass(text):
    assert len(identifiers(text)) < 20
