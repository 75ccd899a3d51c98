"""The ends of a text that is cut: between lines or words, and never inside what a reader takes for one character."""

from __future__ import annotations

import pytest

from context_compactor.text import beginning, ending

FAMILY, FLAG, ACCENT, THUMB = "👩‍👩‍👧‍👦", "🇩🇪", "e\u0301", "👍🏽"


@pytest.mark.parametrize("one", [FAMILY, FLAG, ACCENT, THUMB, "각", "\ud83d\udc4d"])
@pytest.mark.parametrize("most", range(20, 40))
def test_no_cut_falls_inside_a_character_of_several_parts(one, most):
    text = one * 50
    assert len(beginning(text, most)) % len(one) == 0
    assert len(ending(text, most)) % len(one) == 0


def test_a_text_is_cut_between_lines_where_it_has_any():
    text = "\n".join(f"line {number}" for number in range(50))
    assert beginning(text, 40).splitlines()[-1] == "line 4"
    assert ending(text, 40).splitlines()[0] == "line 45"


def test_a_text_of_one_line_is_cut_between_words():
    assert beginning("one two three four", 9) == "one two"
    assert ending("one two three four", 12) == "three four"


def test_a_short_text_stays():
    assert beginning("short", 10) == ending("short", 10) == "short"
