"""What is legal, rule by rule, and where a history may be cut."""

from __future__ import annotations

import pytest

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations, legal_cuts
from tests.dialects.shapes import BUILDERS, Chat, Claude, Responses
from tests.dialects.strategies import DIALECT_NAMES, picture

every_dialect = pytest.mark.parametrize("name", DIALECT_NAMES)
in_turn = pytest.mark.parametrize("name", ["openai-chat", "anthropic"])
HI = {"role": "user", "content": "hi"}


def rules(name, items):
    dialect = DIALECTS[name]
    return [(problem.index, problem.rule) for problem in find_violations(dialect.parse(items), dialect)]


@every_dialect
def test_a_call_with_its_result_is_legal(name):
    build = BUILDERS[name]
    assert (
        rules(
            name, [build.user("hi"), *build.calls("a", "b"), *build.results(("a", "1"), ("b", "2")), build.says("done")]
        )
        == []
    )


@every_dialect
def test_calls_of_the_last_step_may_still_be_open(name):
    build = BUILDERS[name]
    assert rules(name, [build.user("hi"), *build.calls("a", "b")]) == []
    assert rules(name, [build.user("hi"), *build.calls("a", "b"), *build.results(("b", "2"))]) == []


@every_dialect
def test_a_call_that_was_passed_over_is_a_problem(name):
    build = BUILDERS[name]
    assert rules(name, [build.user("hi"), *build.calls("a"), build.user("hi")]) == [(1, "missing-result")]


@every_dialect
def test_a_result_without_its_call_is_a_problem(name):
    build = BUILDERS[name]
    found = rules(name, [build.user("hi"), *build.results(("a", "1")), build.user("hi")])
    assert [problem for problem in found if problem[1] != "alternation"] == [(1, "orphan-result")]


@every_dialect
def test_a_second_result_of_a_call_is_a_problem(name):
    build = BUILDERS[name]
    items = [build.user("hi"), *build.calls("a"), *build.results(("a", "1")), *build.results(("a", "2"))]
    assert [problem for problem in rules(name, items) if problem[1] != "alternation"] == [(3, "repeated-result")]


@in_turn
def test_a_late_result_is_a_problem(name):
    build = BUILDERS[name]
    assert (3, "late-result") in rules(name, [HI, *build.calls("a"), HI, *build.results(("a", "1"))])


def test_responses_takes_an_output_anywhere_after_its_call():
    items = [HI, *Responses.calls("a"), HI, *Responses.results(("a", "1"))]
    assert rules("openai-responses", items) == []
    assert rules("openai-responses", [*Responses.results(("a", "1")), HI, *Responses.calls("a")]) == [
        (0, "orphan-result")
    ]


@in_turn
def test_two_assistant_messages_in_a_row_are_a_problem(name):
    build = BUILDERS[name]
    assert rules(name, [HI, build.says("one"), build.says("two")]) == [(2, "alternation")]
    assert rules(name, [HI, HI, build.says("one")]) == []


@in_turn
def test_a_conversation_begins_with_a_user_message(name):
    build = BUILDERS[name]
    assert rules(name, [{"role": "system", "content": "x"}, build.says("one"), HI]) == [(1, "first-user")]
    assert rules(name, [{"role": "system", "content": "x"}, HI]) == []


@every_dialect
def test_one_id_for_two_calls_of_a_step_is_a_problem(name):
    build = BUILDERS[name]
    found = rules(name, [build.user("hi"), *build.calls("a", "a"), *build.results(("a", "1"), ("a", "2"))])
    assert [rule for _, rule in found] == ["repeated-id"]


def test_chat_may_use_an_id_again_in_a_later_step():
    round_trip = [HI, *Chat.calls("a"), *Chat.results(("a", "1"))]
    assert rules("openai-chat", round_trip * 2) == []
    assert rules("anthropic", [HI, *Claude.calls("a"), *Claude.results(("a", "1"))] * 2) == [(4, "repeated-id")]


@pytest.mark.parametrize("content", ["", [], " \n", [{"type": "text", "text": " "}]])
def test_an_anthropic_message_must_say_something(content):
    assert rules("anthropic", [{"role": "user", "content": content}, HI]) == [(0, "empty")]


def test_only_the_last_anthropic_assistant_message_may_be_empty():
    empty = {"role": "assistant", "content": []}
    assert rules("anthropic", [HI, empty]) == []
    assert rules("anthropic", [HI, empty, HI]) == [(1, "empty")]


def test_an_empty_anthropic_text_block_is_a_problem_even_beside_others():
    blocks = [{"type": "text", "text": ""}, {"type": "text", "text": "hi"}]
    assert rules("anthropic", [{"role": "user", "content": blocks}]) == [(0, "empty")]
    assert rules("anthropic", [{"role": "user", "content": [{**blocks[0], "text": " "}, blocks[1]]}]) == [(0, "empty")]


def test_chat_rejects_an_empty_list_of_blocks_and_a_result_without_content():
    call = Chat.calls("a")[0]
    assert rules("openai-chat", [HI, {**call, "content": []}, *Chat.results(("a", "1"))]) == [(1, "empty")]
    for content in ([], None):
        result = {**Chat.results(("a", "1"))[0], "content": content}
        assert rules("openai-chat", [HI, call, result, HI]) == [(2, "empty")]


def test_chat_rejects_no_content_at_all_and_an_empty_list_of_calls():
    assert rules("openai-chat", [HI, {"role": "assistant", "content": None}, HI]) == [(1, "empty")]
    assert rules("openai-chat", [HI, {"role": "assistant", "content": "ok", "tool_calls": []}]) == [(1, "empty")]
    assert rules("openai-chat", [HI, {"role": "assistant", "content": ""}]) == []


def test_anthropic_results_come_before_other_blocks():
    results = Claude.results(("a", "1"), ("b", "2"))[0]["content"]
    mixed = {"role": "user", "content": [results[0], {"type": "text", "text": "and"}, results[1]]}
    assert rules("anthropic", [HI, *Claude.calls("a", "b"), mixed]) == [(2, "block-order")]


def test_system_messages_may_be_anywhere_for_openai():
    system = {"role": "system", "content": "x"}
    assert rules("openai-chat", [HI, system, Chat.says("ok"), system, HI]) == []
    assert rules("openai-responses", [HI, system, system, Responses.says("ok"), system]) == []


def test_an_anthropic_system_message_leads_or_stands_between_user_and_assistant():
    system = {"role": "system", "content": "x"}
    assert rules("anthropic", [system, system, HI, system, Claude.says("ok"), HI, system]) == []
    assert rules("anthropic", [HI, system, HI]) == [(1, "system")]
    assert rules("anthropic", [HI, Claude.says("ok"), system]) == [(2, "system")]
    assert rules("anthropic", [HI, *Claude.calls("a"), system, *Claude.results(("a", "1"))]) == [
        (2, "system"),
        (3, "late-result"),
    ]


def test_reasoning_is_followed_by_its_reply():
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    other = {**thought, "id": "rs_2"}
    assert rules("openai-responses", [HI, thought, other, *Responses.calls("a")]) == []
    assert rules("openai-responses", [HI, thought, thought, *Responses.calls("a")]) == [(1, "repeated-item")]
    assert rules("openai-responses", [HI, thought, HI]) == [(1, "reasoning")]
    assert rules("openai-responses", [HI, thought]) == []


def test_a_server_tool_has_its_result_unless_it_is_still_at_work():
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    assert rules("anthropic", [HI, {"role": "assistant", "content": [use, result]}, HI]) == []
    assert rules("anthropic", [HI, {"role": "assistant", "content": [use]}]) == []
    assert rules("anthropic", [HI, {"role": "assistant", "content": [use]}, HI]) == [(1, "server-tool")]
    assert rules("anthropic", [HI, {"role": "assistant", "content": [result]}]) == [(1, "server-tool")]


def images(*sizes):
    sources = [{"type": "base64", "media_type": "image/png", "data": picture(*size)} for size in sizes]
    return [{"role": "user", "content": [{"type": "image", "source": source}]} for source in sources]


def test_a_large_picture_is_fine_alone_and_not_among_many():
    assert rules("anthropic", images((3000, 10))) == []
    assert rules("anthropic", images((3000, 10), *[(10, 10)] * 19)) == []
    assert rules("anthropic", images((3000, 10), *[(10, 10)] * 20)) == [(0, "media")]


def test_a_huge_picture_a_heavy_one_and_the_hundred_and_first_are_problems():
    assert rules("anthropic", images((10, 8001))) == [(0, "media")]
    assert rules("anthropic", images(*[(10, 10)] * 101)) == [(100, "media")]
    heavy = {"type": "base64", "media_type": "image/png", "data": "A" * (5 * 1024 * 1024 + 4)}
    assert rules("anthropic", [{"role": "user", "content": [{"type": "image", "source": heavy}]}]) == [(0, "media")]


def test_pictures_in_results_count_too():
    source = {"type": "base64", "media_type": "image/png", "data": picture(9000, 10)}
    block = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": source}]}
    assert rules("anthropic", [HI, *Claude.calls("a"), {"role": "user", "content": [block]}]) == [(2, "media")]


@every_dialect
def test_cuts_are_between_turns_only(name):
    build = BUILDERS[name]
    items = [build.user("hi"), *build.calls("a"), *build.results(("a", "1")), build.says("done"), build.user("hi")]
    messages = DIALECTS[name].parse(items)
    assert legal_cuts(messages) == [0, 1, 3, 4, 5]


def test_a_late_output_forbids_the_cuts_before_it():
    items = [HI, *Responses.calls("a"), HI, *Responses.results(("a", "1")), HI]
    assert legal_cuts(DIALECTS["openai-responses"].parse(items)) == [0, 1, 4, 5]
