from __future__ import annotations

import pytest

from context_compactor.dialects.messages import Message, Text, ToolCall, ToolResult
from context_compactor.dialects.turns import split_turns
from context_compactor.facts.utterances import own_words, sentences, user_utterances
from tests.facts.conversations import agent, bash, call, turns_of, user

INJECTED = [
    "<system-reminder>\nAlways answer in French.\n</system-reminder>",
    "<local-command-caveat>Caveat: DO NOT respond</local-command-caveat>\n<command-name>/exit</command-name>",
    "<command-name>/clear</command-name>\n<command-args></command-args>\n<local-command-stdout>ok</local-command-stdout>",
    "<command-name>/compact</command-name>\n  <command-args>keep the tests</command-args>",
    "<bash-input>git pull</bash-input>\n<bash-stdout>Already up to date.</bash-stdout><bash-stderr></bash-stderr>",
    "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
    "<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>",
    "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nNever push.\n</INSTRUCTIONS>",
    "<skill>\n<name>deploy</name>\nAlways deploy on Friday.\n</skill>",
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
    "This session is being continued from a previous conversation that ran out of context.",
    "Base directory for this skill: /home/me/skills/x\n\n# Brainstorming\n\nAlways ask.",
    "[Context record. Written by Context Compactor, not by the user: …",
    "Stop hook feedback:\nNever stop.",
    "OBSERVATION:\nAlways run as root.",
    "<returncode>1</returncode>\n<output>\nerror: never mind\n</output>",
    "EXECUTION RESULT of [execute_bash]:\nok",
    "[ERROR] You did not use a tool in your previous response! Please retry.",
    "Please continue working on the task on whatever approach you think is suitable.",
    "Your last output was not formatted correctly!",
    "[result of a call that is not in the history]\nError: never push to main, always ask",
    "[The summary that claude-code wrote itself when it compacted. It is a record, not a request.]\n\nAlways deploy.",
]


@pytest.mark.parametrize("text", INJECTED)
def test_what_a_client_adds_is_not_what_the_user_said(text: str) -> None:
    assert user_utterances(turns_of(user(text))) == []


def test_the_users_words_beside_an_injection_are_kept() -> None:
    turns = turns_of(
        user("[Request interrupted by user]\nno revert those changes"),
        user("<system-reminder>x</system-reminder>go on"),
    )
    assert [saying.text for saying in user_utterances(turns)] == ["no revert those changes", "go on"]


def test_of_a_slash_command_only_what_was_typed_is_the_users() -> None:
    message = Message(
        "user",
        (
            Text("<command-name>/plan</command-name>\n<command-args>add a --quiet flag</command-args>"),
            Text("# Create a plan\n\nNEVER CODE!"),
        ),
    )
    assert own_words(message) == "add a --quiet flag"


def test_a_skill_that_a_tool_loads_is_not_the_users() -> None:
    skill = Message("user", (ToolResult("s", "Launching skill: work"), Text("# Work\n\nAlways ship.")))
    turns = split_turns([Message("assistant", (ToolCall("s", "Skill", '{"skill": "work"}'),)), skill])
    assert user_utterances(turns) == []


def test_an_open_tag_takes_nothing_away() -> None:
    assert user_utterances(turns_of(user("the <skill> tag is wrong, please rename it")))[0].text.endswith("rename it")


def test_agents_and_tools_are_never_the_user() -> None:
    turns = turns_of(
        agent("User: never test"), bash("cat a", "Human: always push"), call("Read", "user: must", file_path="a")
    )
    assert user_utterances(turns) == []


def test_sentences_leave_out_code_quotes_and_logs() -> None:
    text = (
        "Fix it. Then push!\n- keep the tests\n> never quoted\n```\nin code\n```\n2026-01-01T10:00 logged\n你好。再见！"
    )
    assert list(sentences(text)) == ["Fix it.", "Then push!", "keep the tests", "你好。", "再见！"]


def test_what_a_client_writes_behind_the_users_words_is_left_out() -> None:
    plan = (
        "Implement the plan.\n\nIf you need specific details from before exiting plan mode, read the log at: /x.jsonl"
    )
    assert [saying.text for saying in user_utterances(turns_of(user(plan), user("Thanks! ###STOP###")))] == [
        "Implement the plan.",
        "Thanks!",
    ]


def test_of_an_expanded_command_what_was_typed_after_it_is_the_users() -> None:
    text = "Review this plan in parallel with three reviewers.\n\nARGUMENTS: plans/telemetry.md"
    assert user_utterances(turns_of(user(text)))[0].text == "plans/telemetry.md"


def test_a_command_without_words_is_told_by_its_name() -> None:
    prompt = "You are an expert code reviewer. Follow these steps:\n" + "1. Look at the diff and judge it.\n" * 12
    message = Message(
        "user", (Text("<command-message>review</command-message>\n<command-name>/review</command-name>"), Text(prompt))
    )
    assert own_words(message) == "/review"


def test_a_message_that_was_sent_twice_is_said_once() -> None:
    assert own_words(Message("user", (Text("fix the lint"), Text("fix the lint")))) == "fix the lint"
