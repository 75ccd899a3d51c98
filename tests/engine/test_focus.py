"""`/compact focus text`: what it is about survives where it would not without it, with a model and without."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import Compaction, compact
from context_compactor.archive.search.terms import terms
from context_compactor.dialects.turns import split_turns
from context_compactor.engine.view import Focus
from context_compactor.summarize.request import quote_turns
from tests.engine import promises
from tests.engine.talks import bash, edit, read, talk_in
from tests.engine.test_corpus import CORPUS, conversations

SHARE = 0.08


def day() -> list:
    """A long day on many things; the mail queue was talked about once, near the beginning."""
    talk = talk_in("openai-chat").system("Be brief.").user("Make the shop ready for the summer sale.")
    for step in range(40):
        code = "\n".join(f"export const price_{step}_{n} = round(base_{n} * {step})" for n in range(30))
        talk.step(read(f"shop/prices_{step}.ts", code), text=f"Now the prices of shelf {step}.")
        talk.step(edit(f"shop/prices_{step}.ts", f"round(base_{step})", f"floor(base_{step})"))
        if step == 4:
            talk.step(
                bash("journalctl -u outbox", "\n".join(f"{n} letters wait behind a slow relay" for n in range(9, 14))),
                text="It seems that confirmation letters pile up whenever the relay is slow, so customers wait.",
            )
    return talk.user("Go on.").messages


DAY = day()
LETTERS = [
    "It seems that confirmation letters pile up whenever the relay is slow, so customers wait.",
    *(f"{n} letters wait behind a slow relay" for n in range(9, 14)),
]


def kept(result: Compaction, lines: list[str], dialect: str) -> int:
    text = promises.words(promises.parsed(result.messages, dialect))
    return sum(" ".join(line.split()) in text for line in lines)


def focused(messages: list, dialect: str, share: float, focus: str | None) -> Compaction:
    target = int(promises.tokens_of(messages, dialect) * share)
    return compact(messages, target_tokens=target, focus=focus, dialect=dialect)


def test_lines_that_the_focus_is_about_survive_where_they_do_not_without_it():
    plain, leaning = (focused(DAY, "openai-chat", SHARE, wish) for wish in (None, "the letters behind the relay"))
    assert kept(plain, LETTERS, "openai-chat") <= 1
    assert kept(leaning, LETTERS, "openai-chat") == len(LETTERS)
    assert leaning.report.status == plain.report.status == "success"


def test_common_words_steer_nothing():
    assert (
        focused(DAY, "openai-chat", SHARE, "the of and for it").messages
        == focused(DAY, "openai-chat", SHARE, None).messages
    )


def shares(wish: str, lines: list[str]) -> list[float]:
    return Focus(wish, terms).shares(lines)


def wishes(lines: list[str]) -> list[str]:
    """Words that stand in a few lines each, taken from all over a conversation."""
    counts = Counter(word for line in lines for word in set(re.findall(r"[a-z]{6,}", line.lower())))
    rare = sorted(word for word, count in counts.items() if 4 <= count <= 12)
    return rare[:: max(len(rare) // 4, 1)][:4]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not at hand")
@pytest.mark.parametrize("name", ["claude_code_entireio", "codex_agentv", "mini_swe_deepseek_chat"])
def test_it_does_so_in_real_conversations(name):
    transcript = conversations(CORPUS / f"{name}.jsonl.gz")[2]
    messages, dialect = transcript.messages, transcript.dialect
    lines = sorted({_NUMBER.sub("", line).strip() for text in texts(messages, dialect) for line in text.split("\n")})
    plain = focused(messages, dialect, 0.1, None)
    gains = []
    for wish in wishes(lines):
        wanted = [line for line in lines if wish in line.lower() and len(line) < 200]
        leaning = focused(messages, dialect, 0.1, f"what was said about {wish}")
        assert leaning.report.status == "success"
        assert leaning.report.metrics.failures_share == plain.report.metrics.failures_share
        gains.append((kept(leaning, wanted, dialect), kept(plain, wanted, dialect)))
    assert all(leaning >= without for leaning, without in gains)
    assert sum(leaning for leaning, _ in gains) > 1.2 * sum(without for _, without in gains)


_NUMBER = re.compile(r"^\s*\d+\u2192")


def texts(messages: list, dialect: str) -> list[str]:
    return [found.body for found in quote_turns(split_turns(promises.parsed(messages, dialect)))]


@pytest.mark.parametrize(
    ("wish", "line", "is_about"),
    [
        ("tokens", "const refreshToken = sign(payload)", True),
        ("expiry of tokens", "the expiries are wrong", True),
        ("src/auth/jwt.ts", "edited jwt.ts again", True),
        ("id", "the valid one", False),
        ("id", "the user id is wrong", True),
        ("令牌过期", "刷新令牌的时间", True),
        ("", "anything", False),
        ("   ", "anything", False),
    ],
)
def test_a_word_is_found_in_its_forms(wish, line, is_about):
    other = "nothing of that kind"
    share, none = shares(wish, [line, other])
    assert (share > 0) == is_about
    assert none == 0


def test_a_rare_word_says_more_than_a_common_one():
    found = shares("slow relay", ["slow queue", "slow cache", "slow list", "a relay", "slow relay"])
    assert found[0] < found[3] < found[4] <= 1


def test_the_longer_a_focus_is_the_more_of_it_a_line_must_be_about():
    lines = ["a relay", "a queue", "a relay with a queue"]
    one, other, both = shares("relay queue", lines)
    assert both > one == other > 0


@given(st.text(max_size=200), st.lists(st.text(max_size=60), max_size=8))
def test_any_wish_gives_shares(wish, lines):
    found = shares(wish, lines)
    assert len(found) == len(lines)
    assert all(0 <= share <= 1 for share in found)


@given(st.text(max_size=60), st.sampled_from([0.4, 0.15, 0.05]))
def test_no_focus_breaks_a_promise(wish, share):
    result = focused(DAY[:40], "openai-chat", share, wish)
    target = int(promises.tokens_of(DAY[:40], "openai-chat") * share)
    assert promises.illegal(result, "openai-chat") == []
    assert promises.misfit(DAY[:40], result, target, "openai-chat") == []
    assert promises.lost_pins(DAY[:40], result, "openai-chat") == []
    assert result.messages == focused(DAY[:40], "openai-chat", share, wish).messages
