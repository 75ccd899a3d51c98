"""B, with a model: requests that are too long, and answers that are no summary."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor import compact
from tests.evaluation.models import good
from tests.failures.served import (
    DAY,
    DIGEST,
    TARGET,
    WIRES,
    assert_digest,
    body_text,
    outcomes,
    saying,
    says,
    serving,
    small,
    told,
)
from tests.llm.formats import FORMATS
from tests.llm.provider import Reply, failure
from tests.summarize.samples import GOOD

OPENAI = FORMATS["openai"]
TOO_LONG = {
    "openai": failure(
        400,
        OPENAI.error(
            "context_length_exceeded",
            "This model's maximum context length is 8192 tokens. However, you requested 9001.",
        ),
    ),
    "anthropic": failure(
        400, FORMATS["anthropic"].error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
    ),
}
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


@pytest.mark.parametrize("share", [1.0, 1.5, 4.0])
def test_a_transcript_larger_than_the_models_window_is_told_all_the_same(share):
    """Row 17."""
    window = int(DIGEST.report.tokens_before / share)
    with serving(saying(OPENAI, good)) as provider:
        result = compact(DAY, target_tokens=TARGET, summarizer=small(provider, window))
    assert result.report.summarized_by
    shown = "\n".join(map(body_text, provider.bodies))
    folded = [f"turn_{turn:03}" for turn in range(2, 20)]
    assert [turn for turn in folded if f"[{turn} " not in shown] == []
    assert all(len(body_text(body)) // 4 + body["max_tokens"] <= window for body in provider.bodies)


@every_wire
def test_a_request_that_the_provider_finds_too_long_is_asked_in_smaller_parts(wire):
    """Row 18."""
    refused = []

    def once(request):
        if refused:
            return says(wire, good(request))
        refused.append(len(request.messages[-1].text))
        return TOO_LONG[wire.name]

    result, provider = told(wire, once)
    assert result.report.summarized_by
    later = [len(body_text(body)) for body in provider.bodies[4:]]  # up to four are under way at once
    assert later
    assert max(later) < refused[0]


@every_wire
def test_what_is_too_long_again_and_again_is_never_sent_twice_and_gets_smaller(wire):
    """Row 19."""
    result, provider = told(wire, TOO_LONG[wire.name])
    assert_digest(result)
    sizes = [len(body_text(body)) for body in provider.bodies]
    assert len({body_text(body) for body in provider.bodies}) == len(sizes)
    assert min(sizes) < max(sizes) / 2


@every_wire
def test_the_output_limit_is_within_the_models_own(wire):
    """Row 20."""
    with serving(saying(wire, good)) as provider:
        model = wire.client(provider.url)
        compact(DAY, target_tokens=TARGET, summarizer=model)
    limits = [body.get("max_tokens") or body["max_completion_tokens"] for body in provider.bodies]
    assert limits
    assert all(0 < limit <= model.most_output for limit in limits)


@settings(max_examples=10)
@given(window=st.integers(1, 20_000))
def test_no_window_is_so_small_that_a_limit_is_out_of_range(window):
    """Row 20."""
    with serving(says(OPENAI, "")) as provider:
        model = small(provider, window)
        compact(DAY, target_tokens=TARGET, summarizer=model)
    for body in provider.bodies:
        assert 0 < body["max_tokens"] <= model.most_output <= window


@every_wire
@pytest.mark.parametrize("kind", ["reasoning", "reasoning in the text", "empty", "whitespace"])
def test_an_answer_without_a_word_leaves_the_context_as_it_is_without_a_model(wire, kind):
    """Row 31."""
    replies = {
        "reasoning": Reply(pieces=[*wire.thinking("Let me see. "), *wire.end()]),
        "reasoning in the text": says(wire, f"<think>{GOOD}</think>"),
        "empty": says(wire, ""),
        "whitespace": says(wire, " \n\t\n "),
    }
    result, provider = told(wire, replies[kind])
    assert_digest(result)
    assert provider.bodies
    assert set(outcomes(result)) <= {"empty", "reasoning_only"}


@every_wire
def test_no_tools_are_sent_and_a_tool_call_is_asked_again_without(wire):
    """Row 32."""
    calls = []

    def first_a_call(request):
        calls.append(request)
        return Reply(pieces=wire.tool_call()) if len(calls) == 1 else says(wire, good(request))

    result, provider = told(wire, first_a_call)
    assert result.report.summarized_by
    assert "tool_call" in outcomes(result)
    assert not any({"tools", "tool_choice", "functions"} & set(body) for body in provider.bodies)
    assert sum("there are no tools here" in body_text(body) for body in provider.bodies) == 1


@every_wire
def test_a_model_that_only_calls_tools_leaves_the_digest(wire):
    """Row 32."""
    result, provider = told(wire, Reply(pieces=wire.tool_call()))
    assert_digest(result)
    assert set(outcomes(result)) == {"tool_call"}
    assert len(provider.bodies) == len({body_text(body) for body in provider.bodies})


NO_RECORDS = {
    "planning": "Let me first look at what the user wants. I will read the file and then I will write the summary.",
    "without headings": "The agent rotated tokens in src/auth/jwt.ts and the rest is open.",
    "a continued conversation": "User: and now?\nAssistant: now I wire the handler.\n",
}
SPOILED = {
    "tool syntax": '- <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>',
    "a function as JSON": '- {"name": "bash", "arguments": {"command": "ls"}}',
    "a continued conversation": "User: and now?\nAssistant: now I wire the handler.",
    "a role mark": "- <|im_start|>assistant",
}


@every_wire
@pytest.mark.parametrize("said", NO_RECORDS.values(), ids=NO_RECORDS)
def test_plans_and_continued_conversations_are_no_record(wire, said):
    """Row 33."""
    result, _ = told(wire, says(wire, said))
    assert_digest(result)
    assert not any(outcome.startswith("accepted") for outcome in outcomes(result))


@every_wire
@pytest.mark.parametrize("line", SPOILED.values(), ids=SPOILED)
def test_tool_syntax_and_turns_of_a_conversation_are_left_out_of_a_record(wire, line):
    """Row 33."""
    result, _ = told(wire, says(wire, f"{GOOD}## Findings\n{line}\n"))
    assert result.report.summarized_by
    assert result.report.corrections
    assert line.split("\n")[-1].removeprefix("- ") not in "\n".join(str(raw["content"]) for raw in result.messages)


@every_wire
def test_an_answer_that_did_not_come_to_its_end_is_no_record(wire):
    """Row 33."""
    result, _ = told(wire, Reply(pieces=wire.text(GOOD)))
    assert_digest(result)


@every_wire
def test_a_record_that_was_cut_off_is_used_as_far_as_it_goes_and_asked_for_again_when_that_is_too_little(wire):
    """Row 34."""
    result, _ = told(wire, says(wire, GOOD, "length"))
    assert result.report.summarized_by
    result, _ = told(wire, says(wire, GOOD[:40], "length"))
    assert_digest(result)
    assert set(outcomes(result)) == {"cut_off, missing_heading, empty"}
    cut = []

    def first_cut(request):
        cut.append(request)
        return says(wire, good(request)[:40], "length") if len(cut) == 1 else says(wire, good(request))

    result, provider = told(wire, first_cut)
    assert result.report.summarized_by
    assert any(re.search("cut off", body_text(body)) for body in provider.bodies)
