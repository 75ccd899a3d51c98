from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.handoff.context_summary import (
    MARK,
    MOST_TOKENS,
    Rank,
    clean_summary,
    count_tokens,
    files_in,
    rank_of,
)
from tests.dialects.strategies import LINES, SENTENCES

GOOD = """Auth utilities exist in src/lib/auth.ts using JWT with httpOnly cookies.
Extend with loginUser/logoutUser. Follow existing validateToken pattern.
No conflicts found. Recommend: add tests to auth.test.ts."""

BAD = """I searched for 'auth' and found several files. First I looked at
src/lib/auth.ts which contains 150 lines of code including imports
from jsonwebtoken and cookie packages. The file exports validateToken
which takes a token string parameter and returns a boolean. I also
checked src/hooks/useAuth.ts but that's just a React hook wrapper.
There was also mention of auth in the README but that's documentation.
After analyzing all this, I think we should..."""

TRACE = """Traceback (most recent call last):
  File "app/jobs.py", line 41, in run
    total = ledger.book(invoice)
ValueError: invoice 8812 has no rate"""


def test_a_summary_that_follows_the_rules_stays_as_it_is():
    assert clean_summary(GOOD).text == GOOD
    assert clean_summary(GOOD).left_out == ()


def test_of_a_told_search_what_was_found_stays_and_the_files_it_led_to():
    summary = clean_summary(BAD)
    assert summary.text == (
        "The file exports validateToken\nwhich takes a token string parameter and returns a boolean.\n"
        "Files: src/lib/auth.ts, src/hooks/useAuth.ts"
    )
    assert len(summary.left_out) == 5


@pytest.mark.parametrize(
    "noise",
    [
        "I searched for 'auth' in the whole project.",
        "Now I'll read the test file.",
        "Let me check the other callers.",
        "grep -rn 'expires_at' src",
        "- `rg -n validateToken src/`",
        "Search queries: auth, token, cookie",
        "Hmm, that is odd.",
        "I think we should look elsewhere...",
        "After reading everything, there is more to read.",
        '  File "app/jobs.py", line 41, in run',
        "    at Object.run (/app/jobs.js:3:1)",
        "   12\tdef book(self, invoice):",
    ],
)
def test_queries_thinking_and_pieces_of_files_and_traces_are_out(noise):
    assert rank_of(noise) is Rank.OUT
    assert clean_summary(f"{GOOD}\n{noise}").text.partition("\nFiles: ")[0] == GOOD
    assert clean_summary(f"{GOOD}\n{noise}").left_out == (noise,)


@pytest.mark.parametrize(
    "line",
    [
        "Tried a cache in front of it: failed with KeyError: 'exp'.",
        "I checked the migration and it failed with exit code 1.",
        "Considered Redis, chose SQLite because there is one machine.",
        "Decided against a second table.",
        "Never touch the migrations folder.",
        "Decision: PROCEED",
        "Should tokens expire after 15 or 60 minutes?",
        "We must keep the old endpoint until v3.",
    ],
)
def test_failures_alternatives_decisions_constraints_and_questions_are_dearest(line):
    assert rank_of(line) is Rank.MUST


def test_a_step_that_says_what_came_of_it_stays():
    assert rank_of("I checked both callers and found that parse_dates drops the zone.") is Rank.FOUND


def test_a_dump_of_an_error_becomes_one_line():
    for dump in (TRACE, f"```\n{TRACE}\n```"):
        text = clean_summary(f"The import job is broken.\n{dump}\nFix ledger.book first.").text
        assert "ValueError: invoice 8812 has no rate" in text
        assert "line 41" not in text
        assert "The import job is broken." in text
        assert "Fix ledger.book first." in text


def test_the_contents_of_a_file_are_out_and_a_short_command_stays():
    code = "\n".join(f"const step_{at} = run({at});" for at in range(30))
    summary = clean_summary(f"Run it:\n```bash\nmake seed\n```\nThe steps:\n```ts\n{code}\n```\n")
    assert summary.text == "Run it:\nmake seed"
    assert summary.left_out == ("The steps:", code)


def test_a_text_that_is_all_noise_is_not_emptied():
    assert clean_summary("Let me look at it.").text == "Let me look at it."


def test_when_there_is_no_room_the_dearest_stay_in_their_order_under_their_headings():
    filler = "\n".join(f"- step {at} of the import was run and took a while to finish" for at in range(80))
    text = f"## Steps\n{filler}\n## Recommendation\nUse one transaction.\n## Notes\nTried two: failed with a deadlock."
    summary = clean_summary(text, 100)
    *lines, mark = summary.text.split("\n")
    assert mark == MARK
    assert lines[0] == "## Steps"
    assert lines[-4:] == ["## Recommendation", "Use one transaction.", "## Notes", "Tried two: failed with a deadlock."]
    assert count_tokens(summary.text) <= 100


def test_a_single_sentence_that_is_too_long_is_cut_between_words():
    words = " ".join(f"word{at}" for at in range(2_000))
    summary = clean_summary(words)
    shown = summary.text.removesuffix(f"…\n{MARK}")
    assert words.startswith(f"{shown} ")
    assert count_tokens(summary.text) <= MOST_TOKENS
    assert summary.left_out == (words,)


def test_files_are_told_from_words_with_dots():
    text = "See src/a.py, b.test.ts, docs/why.md and https://example.com/x.html, e.g. node.js v1.2.3 or self.name."
    assert files_in(text) == ["src/a.py", "b.test.ts", "docs/why.md", "node.js"]


TEXTS = st.lists(
    st.sampled_from(
        (*SENTENCES, *LINES, *GOOD.split("\n"), *BAD.split("\n"), *TRACE.split("\n"), "```", "## Notes", "a:")
    )
    | st.text(max_size=60),
    max_size=60,
).map("\n".join)


@given(TEXTS, st.integers(0, 600))
def test_any_text_fits_its_limit_and_what_is_not_shown_is_returned(text, tokens):
    summary = clean_summary(text, tokens)
    assert count_tokens(summary.text) <= tokens
    everything = "".join((summary.text, *summary.left_out))
    words = (word for word in text.replace("```", " ").split() if any(map(str.isalnum, word)))
    assert [word for word in words if word not in everything] == []
