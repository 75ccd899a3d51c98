"""A huge open question: what was typed stays, what was pasted is shortened, and the target is met."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor import Settings, compact
from context_compactor.engine.truncation import split_pasted
from tests.dialects.strategies import LINES
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, Call, Talk, bash, talk_in
from tests.failures.scenarios import code, fill, seen

every_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)
TARGET = 8_700
LOG = "\n".join(
    f"2024-05-01T12:{number % 60:02d}:03Z {'ERROR' if number == 431 else 'INFO'} worker-{number} job {number} "
    f"{'could not reach billing-cache' if number == 431 else f'finished in {number} ms'}"
    for number in range(900)
)
PASTES = {
    "a log": LOG,
    "a trace": "Traceback (most recent call last):\n"
    + "\n".join(f'  File "src/deep.py", line {n}, in step_{n}\n    return step_{n + 1}(value)' for n in range(700)),
    "code": "```python\n" + code("area", 500) + "\n```",
    "json": json.dumps([{"id": n, "state": "ok", "name": f"item {n}"} for n in range(1_500)], indent=1),
    "one line": "lorem ipsum dolor " * 9_000,
    "one line without spaces": "aGVsbG8gd29ybGQ" * 8_000,
    "emoji": "👩‍👩‍👧‍👦🇩🇪e\u0301" * 4_000,
}  # fmt: skip
WORDS = "Why does the deploy fail since yesterday?"


def asked(dialect: str, text: str, system: str = "Be brief.") -> Talk:
    return fill(talk_in(dialect).system(system).user("Find the folder that matters."), 14).answer("Done.").user(text)


def last_text(messages: list[dict[str, Any]], dialect: str) -> str:
    return promises.parsed(messages, dialect)[-1].text


def whole_turn(result: Any, message: dict[str, Any]) -> bool:
    return any(json.loads(result.recall(one.id)) == [message] for one in result.report.archived if "turn" in one.id)


@every_dialect
@pytest.mark.parametrize("kind", PASTES)
@pytest.mark.parametrize("form", ["{words}\n\n{paste}", "{paste}\n\n{words}", "{words}\n{paste}\nIs it the cache?"])
def test_a_target_is_met_though_the_paste_in_the_question_exceeds_it(dialect, kind, form):
    talk = asked(dialect, form.format(words=WORDS, paste=PASTES[kind]))
    result = compact(talk.messages, target_tokens=TARGET, dialect=dialect)
    assert result.report.status == "success"
    assert result.report.tokens_after <= TARGET
    assert promises.illegal(result, dialect) == []
    text = last_text(result.messages, dialect)
    assert WORDS in text
    assert ("Is it the cache?" in text) == ("cache?" in form)
    assert "pasted line" in text
    assert whole_turn(result, talk.messages[-1])


def test_the_line_that_the_question_names_is_kept_from_the_middle_of_a_log():
    talk = asked("openai-chat", f"Is billing-cache to blame?\n\n{LOG}")
    text = last_text(compact(talk.messages, target_tokens=TARGET).messages, "openai-chat")
    assert "could not reach billing-cache" in text
    assert "worker-0 " in text
    assert "worker-899 " in text


@every_dialect
def test_words_between_two_pastes_stay(dialect):
    talk = asked(dialect, f"First the log:\n{LOG}\nand this is what I changed in the worker:\n{PASTES['code']}\nHelp!")
    result = compact(talk.messages, target_tokens=TARGET, dialect=dialect)
    text = last_text(result.messages, dialect)
    assert result.report.tokens_after <= TARGET
    assert "First the log:" in text
    assert "and this is what I changed in the worker:" in text
    assert text.endswith("Help!")


def test_a_question_that_leaves_room_stays_byte_for_byte():
    talk = asked("openai-chat", f"{WORDS}\n\n{LOG[:9_000]}")
    result = compact(talk.messages, target_tokens=TARGET)
    assert result.messages[-1] == talk.messages[-1]
    assert result.report.reason == ""


def test_a_question_with_little_before_it_may_take_most_of_the_target():
    result = compact([{"role": "user", "content": f"{WORDS}\n\n{LOG}"}], target_tokens=TARGET)
    assert 0.8 * TARGET < result.report.tokens_after <= TARGET


def test_a_question_that_the_user_typed_is_never_shortened():
    words = "\n\n".join(f"Then look at area {name}, since it was changed last week." for name in "abcdefgh" * 12)
    talk = asked("openai-chat", words)
    result = compact(talk.messages, target_tokens=3_000)
    assert result.messages[-1] == talk.messages[-1]


def test_a_question_on_one_long_line_keeps_its_first_words_however_small_the_target():
    result = compact(talk_in("openai-chat").user("Read this. " + "Rule. " * 3_000).messages, target_tokens=100)
    assert result.messages[-1]["content"].startswith("Read this. Rule.")
    assert "left out: turn_001]" in result.messages[-1]["content"]
    assert result.report.tokens_after <= 100


def test_the_report_says_what_was_shortened_and_where_it_is_whole():
    result = compact(asked("openai-chat", f"{WORDS}\n\n{LOG}").messages, target_tokens=TARGET)
    (shortened,) = [one for one in result.report.summarized if "would leave no room" in one.reason]
    assert "pasted into the open question" in result.report.reason
    assert f'recall("{shortened.id}")' in result.report.reason
    assert shortened.tokens > shortened.tokens_after


@every_dialect
def test_several_messages_in_a_row_share_the_room(dialect):
    talk = asked(dialect, f"{WORDS}\n\n{LOG}").user(f"And here?\n\n{PASTES['json']}")
    result = compact(talk.messages, target_tokens=TARGET, dialect=dialect)
    assert result.report.tokens_after <= TARGET
    assert WORDS in seen(result.messages, dialect)
    assert "And here?" in seen(result.messages, dialect)


def test_a_paste_beside_results_in_the_last_message_is_shortened_as_well():
    talk = fill(talk_in("anthropic").user("Find the folder that matters."), 14)
    talk.step(bash("make deploy", LOG), text="Deploying.", after=f"{WORDS}\n\n{PASTES['code']}")
    result = compact(talk.messages, target_tokens=TARGET)
    assert result.report.tokens_after <= TARGET
    assert promises.illegal(result, "anthropic") == []
    assert WORDS in last_text(result.messages, "anthropic")


@every_dialect
def test_a_long_result_beside_a_call_that_still_runs_is_shortened(dialect):
    talk = fill(talk_in(dialect).user("Find the folder that matters."), 14)
    talk.step(bash("make deploy", LOG), Call("Bash", {"command": "make watch"}, None), text="Deploying.")
    result = compact(talk.messages, target_tokens=TARGET, dialect=dialect)
    assert result.report.tokens_after <= TARGET
    assert any(one.id.startswith("tool_") and result.recall(one.id) == LOG for one in result.report.archived)


def test_a_question_of_five_megabytes_on_one_line_fits():
    talk = asked("openai-chat", "Explain this: " + "abc123 " * 750_000 + "thanks")
    result = compact(talk.messages, target_tokens=TARGET)
    text = last_text(result.messages, "openai-chat")
    assert result.report.tokens_after <= TARGET
    assert text.startswith("Explain this:")
    assert text.endswith("thanks")
    assert whole_turn(result, talk.messages[-1])


def test_a_long_pasted_document_keeps_its_first_and_last_words():
    document = "\n\n".join(f"The area {'x' * (n % 7 + 1)} is described in this paragraph of prose." for n in range(900))
    talk = asked("openai-chat", f"Turn this into a plan.\n\n{document}\n\nBegin with the last area.")
    result = compact(talk.messages, target_tokens=6_000)
    text = last_text(result.messages, "openai-chat")
    assert result.report.tokens_after <= 6_000
    assert text.startswith("Turn this into a plan.")
    assert text.endswith("Begin with the last area.")


def test_a_context_of_record_and_question_alone_is_compacted_for_a_question_that_is_too_long():
    first = compact(asked("openai-chat", "What now?").messages, target_tokens=2_000)
    messages = [*first.messages[:-1], {"role": "user", "content": f"{WORDS}\n\n{LOG}"}]
    result = compact(messages, target_tokens=TARGET)
    assert result.report.tokens_after <= TARGET


def test_a_question_that_was_shortened_before_keeps_the_id_of_its_first_original():
    talk = asked("openai-chat", f"{WORDS}\n\n{LOG}")
    first = compact(talk.messages, target_tokens=TARGET)
    second = compact(first.messages, target_tokens=3_500, settings=Settings(min_gain_percent=0))
    (ref,) = [one.id for one in first.report.archived if "Why does the deploy" in one.summary]
    assert second.report.tokens_after <= 3_500
    assert f"left out: {ref}" in last_text(second.messages, "openai-chat")
    assert ref not in second.archive


def test_only_pasted_lines_count_as_pasted():
    typed = "Please fix this.\nIt broke at 10:30, see below.\n\n- first the parser\n- then the server\n\n"
    pieces = split_pasted(f"{typed}{LOG}\n\nThanks a lot for looking into it!")
    assert [piece.is_pasted for piece in pieces] == [False, True, False]
    assert pieces[0].text == typed


# A text and how often it comes: written out they would be too long to be shown.
paragraphs = st.one_of(
    st.tuples(st.sampled_from((WORDS, "日本語のコメントも残してください。", "continue 👍🏽", "")), st.just(1)),
    st.tuples(st.lists(st.sampled_from(LINES), min_size=1, max_size=6).map(lambda lines: "\n".join((*lines, ""))),
              st.integers(1, 600)),
    st.tuples(st.text(min_size=1, max_size=12), st.integers(1, 8_000)),
    st.tuples(st.text(max_size=500).map(lambda text: f"```\n{text}\n```\n"), st.integers(1, 30)),
)  # fmt: skip


@given(st.lists(paragraphs, max_size=8), st.sampled_from(("\n", "\n\n", "\r\n", " ")))
@settings(deadline=None, max_examples=200)
def test_the_pieces_of_a_text_are_the_text(parts, joint):
    text = joint.join(part * times for part, times in parts)
    assert "".join(piece.text for piece in split_pasted(text)) == text


@given(
    st.sampled_from(DIALECT_NAMES),
    st.lists(paragraphs, min_size=1, max_size=8),
    st.sampled_from(("\n", "\n\n", " ")),
    st.booleans(),
    st.integers(5_000, 12_000),
)
@settings(deadline=None, max_examples=60)
def test_whatever_is_asked_the_result_fits_is_legal_and_can_be_recalled(dialect, parts, joint, in_blocks, target):
    text = f"{WORDS}\n\n{joint.join(part * times for part, times in parts)}"
    talk = asked(dialect, text)
    if in_blocks:
        kind = "input_text" if dialect == "openai-responses" else "text"
        talk.messages[-1]["content"] = [{"type": kind, "text": WORDS}, {"type": kind, "text": text}]
    before = json.loads(json.dumps(talk.messages[-1]))
    result = compact(talk.messages, target_tokens=target, dialect=dialect)
    assert result.report.tokens_after <= target
    assert promises.illegal(result, dialect) == []
    assert WORDS in last_text(result.messages, dialect)
    assert "tokens left out: recall" not in last_text(result.messages, dialect) or whole_turn(result, before)
    assert talk.messages[-1] == before
