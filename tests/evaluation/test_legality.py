from __future__ import annotations

import pytest

from context_compactor.evaluation.scoring import problems
from tests.evaluation.talks import anthropic_talk, assistant, call, openai_talk, result, user, words


@pytest.mark.parametrize("make", [anthropic_talk, openai_talk])
def test_a_whole_conversation_is_legal(make):
    talk = make()
    assert problems(talk.messages, talk.provider) == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [assistant(words("hi"))],
        [user(words("a")), user(words("b"))],
        [user(words("a")), assistant(call(1, "ls"))],
        [user(words("a")), assistant(call(1, "ls")), user(words("no result"))],
        [user(words("a")), assistant(words("b")), user(result(1, "orphan"))],
        [user(words("a")), assistant(call(1, "ls")), user(result(1, "x"), result(1, "x"))],
        [user(words(" "))],
    ],
)
def test_what_anthropic_refuses_is_a_problem(messages):
    assert problems(messages, "anthropic")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "x"}],
        [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "orphan"}],
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": "{}"}}]},
            {"role": "user", "content": "no result"},
        ],
    ],
)
def test_what_openai_refuses_is_a_problem(messages):
    assert problems(messages, "openai")
