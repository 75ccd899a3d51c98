"""Requests for a compaction are answered with our record; everything else goes to the provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from context_compactor import Session
from context_compactor.proxy.clients import without_reminders
from context_compactor.testing import ScriptedReply, StrictServer
from tests.proxy.proxies import Place, proxied
from tests.proxy.talking import (
    CLAUDE,
    PATHS,
    asking_for_summary,
    checkpoint_request,
    claude_body,
    claude_history,
    codex_body,
    codex_headers,
    codex_history,
    post,
    read,
)
from tests.waiting import wait_for

MESSAGES, RESPONSES = PATHS["anthropic"], PATHS["openai-responses"]
RECORD = "[Context record."


class Rig:
    """A strict provider, a proxy in front of it, and its store."""

    def __init__(self, server: StrictServer, url: str, place: Place) -> None:
        self.server = server
        self.url = url
        self.place = place

    def claude(self, messages: list[dict[str, Any]], *, is_stream: bool = True, **more: str) -> str:
        """The text of the reply to a request of Claude Code."""
        headers = {**CLAUDE, **{name.replace("_", "-"): value for name, value in more.items()}}
        status, found, content = post(self.url, MESSAGES, claude_body(messages, is_stream=is_stream), headers)
        assert status == 200, content
        reply = read("anthropic", found, content)
        assert reply.is_complete
        return "".join(block.get("text", "") for block in reply.messages[0]["content"])

    def codex(self, items: list[dict[str, Any]], *, tools: bool = True, **more: Any) -> list[dict[str, Any]]:
        """The output items of the reply to a request of Codex."""
        status, found, content = post(self.url, RESPONSES, codex_body(items, tools=tools), codex_headers(**more))
        assert status == 200, content
        return read("openai-responses", found, content).messages

    def settle(self, exchanges: int) -> None:
        """Wait until so many exchanges are recorded."""
        wait_for(lambda: len(self.place.rows()) >= exchanges, self.place.journal)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    server, place = StrictServer([ScriptedReply("Good.")], window=10**6), Place(tmp_path)
    with server.serve() as upstream, proxied(upstream, place) as url:
        yield Rig(server, url, place)


@pytest.mark.parametrize("is_stream", [True, False])
def test_claude_code_gets_our_record_for_its_summary_and_no_model_is_asked(rig: Rig, is_stream: bool):
    history = claude_history(20)
    rig.claude(history)
    text = rig.claude(asking_for_summary(history), is_stream=is_stream)
    assert text.startswith("<summary>\n[Context record.")
    assert text.endswith("</summary>")
    assert "Never touch config/secrets.yaml" in text
    assert "AssertionError" in text
    assert len(rig.server.requests) == 1


def test_a_hint_in_the_headers_is_not_needed_and_does_no_harm(rig: Rig):
    history = claude_history(20)
    rig.claude(history, x_claude_code_request_class="main")
    hints = {"x_claude_code_request_class": "compaction", "x_claude_code_compaction": "auto"}
    assert RECORD in rig.claude(asking_for_summary(history), **hints)


def test_what_the_user_wants_kept_is_the_focus_of_the_record(rig: Rig):
    history = claude_history(60)
    rig.claude(history)
    rig.claude(asking_for_summary(history, "keep test_37 and its failure"))
    rig.settle(2)
    (name,) = rig.place.recorded().histories
    with Session.open(name, store=rig.place.store) as session:
        (report,) = session.compactions()
    assert report.trigger == "manual"


def test_the_record_lacks_a_mention_of_recall_where_nobody_can_call_it(rig: Rig):
    history = claude_history(20)
    rig.claude(history)
    assert "recall(" not in rig.claude(asking_for_summary(history))


def test_it_is_named_where_the_agent_has_our_tools(rig: Rig):
    history, headers = claude_history(20), dict(CLAUDE)
    tools = [{"name": "mcp__compactor__recall", "input_schema": {"type": "object"}}, *claude_body([])["tools"]]
    for messages in (history, asking_for_summary(history)):
        _, found, content = post(rig.url, MESSAGES, {**claude_body(messages), "tools": tools}, headers)
    assert 'recall("' in json.dumps(read("anthropic", found, content).messages).replace('\\"', '"')


def test_a_conversation_goes_on_with_the_record_in_one_session_and_the_next_record_knows_all_of_it(rig: Rig):
    history = claude_history(20)
    rig.claude(history)
    first = rig.claude(asking_for_summary(history))
    text = f"This session is being continued from a previous conversation.\nSummary:\n{first[10:-11]}"
    later = claude_history(25)[41:]  # what came since, with the same ids as in one long history
    goes_on = [{"role": "user", "content": text}, *later]
    rig.claude(goes_on)
    second = rig.claude(asking_for_summary(goes_on))
    assert "Never touch config/secrets.yaml" in second
    assert "stands for 53 earlier messages" in second
    rig.settle(4)
    assert len(rig.place.recorded().histories) == 1


def test_a_client_that_goes_on_without_the_record_has_its_compaction_undone(rig: Rig):
    history = claude_history(20)
    rig.claude(history)
    rig.claude(asking_for_summary(history))
    rig.claude([*history, {"role": "assistant", "content": "Good."}, {"role": "user", "content": "And now?"}])
    rig.claude([*history, {"role": "assistant", "content": "Good."}, {"role": "user", "content": "Really?"}])
    rig.settle(4)
    (name, *_) = sorted(rig.place.recorded().histories)
    with Session.open(name, store=rig.place.store, branch=name) as session:
        assert RECORD not in json.dumps(session.context())
        assert session.totals().undone == 1


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"user-agent": "python/3"}, "another program"),
        ({"x-compactor-mode": "record"}, "it shall only be recorded"),
        ({"x-compactor-mode": "off"}, "it shall only be passed on"),
        ({"x-api-key": "key-2"}, "another key, which the provider has not accepted yet"),
        ({"x-claude-code-request-class": "main"}, "the agent says that it is something else"),
    ],
)
def test_a_summary_request_goes_to_the_provider_where_it_is_not_ours_to_answer(rig: Rig, headers: dict[str, str], why):
    history = claude_history(20)
    rig.claude(history)
    given = {name: value for name, value in {**CLAUDE, **headers}.items() if name != "x-claude-code-session-id"}
    given |= {} if why == "another program" else {"x-claude-code-session-id": CLAUDE["x-claude-code-session-id"]}
    status, found, content = post(rig.url, MESSAGES, claude_body(asking_for_summary(history)), given)
    assert (status, RECORD.encode() in content) == (200, False)
    assert rig.server.requests[-1].body["messages"] == asking_for_summary(history)
    assert read("anthropic", found, content).messages[0]["content"][0]["text"] == "Good."


def test_words_of_a_summary_request_in_the_middle_of_a_conversation_ask_for_nothing(rig: Rig):
    history = claude_history(20)
    rig.claude(history)
    quoted = [*asking_for_summary(history), {"role": "assistant", "content": "No."}, {"role": "user", "content": "Ok."}]
    assert rig.claude(quoted) == "Good."


def test_a_held_out_conversation_is_left_to_its_client_and_counted_as_such(tmp_path: Path):
    server, place, history = StrictServer([ScriptedReply("Good.")], window=10**6), Place(tmp_path), claude_history(20)
    with server.serve() as upstream, proxied(upstream, place, holdout=1.0) as url:
        rig = Rig(server, url, place)
        rig.claude(history)
        assert rig.claude(asking_for_summary(history)) == "Good."
    assert [(row.kind, row.is_held_out) for row in place.rows()] == [("main", True), ("compaction", True)]


def test_codex_gets_its_checkpoint_as_a_text(rig: Rig):
    items = codex_history(20)
    rig.codex(items)
    (message,) = rig.codex([*items, checkpoint_request()], tools=False, compacts=True)
    assert message["content"][0]["text"].startswith(RECORD)
    assert "Never touch config/secrets.yaml" in message["content"][0]["text"]
    assert len(rig.server.requests) == 1


def test_codex_gets_a_compaction_item_that_is_expanded_on_every_later_request_and_across_restarts(tmp_path: Path):
    server, place, items = StrictServer([ScriptedReply("Good.")], window=10**6), Place(tmp_path), codex_history(20)
    with server.serve() as upstream:
        with proxied(upstream, place) as url:
            rig = Rig(server, url, place)
            rig.codex(items)
            (item,) = rig.codex([*items, {"type": "compaction_trigger"}], compacts=True)
            goes_on = [*items[:3], item]
            rig.codex(goes_on, window=1)
        with proxied(upstream, place) as url:
            Rig(server, url, place).codex([*goes_on, *codex_history(21)[-2:]], window=1)
    assert item["type"] == "compaction"
    assert len(item["encrypted_content"]) < 100
    sent = [request.body["input"] for request in server.requests]
    assert [len(each) for each in sent] == [43, 4, 6]
    assert sent[1][3] == sent[2][3]
    assert sent[1][3]["content"][0]["text"].startswith(RECORD)
    assert not server.refusals
    assert len(place.recorded().histories) == 1


def test_a_compaction_item_of_the_provider_passes_as_it_is(rig: Rig):
    items = codex_history(3)
    foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA-not-ours"}
    rig.server.adopt(RESPONSES, {"input": [*items[:3], foreign]})
    rig.codex([*items[:3], foreign, *items[3:]])
    assert rig.server.requests[-1].body["input"][3] == foreign


def test_an_item_of_ours_that_is_lost_or_somebody_elses_breaks_nothing_and_shows_nothing(rig: Rig):
    items = codex_history(20)
    rig.codex(items)
    (item,) = rig.codex([*items, {"type": "compaction_trigger"}], compacts=True)
    headers = {**codex_headers(window=1), "authorization": "Bearer somebody-else"}
    status, _, _ = post(rig.url, RESPONSES, codex_body([*items[:3], item]), headers)
    assert status == 200
    text = rig.server.requests[-1].body["input"][3]["content"][0]["text"]
    assert "is not in this store" in text
    assert RECORD not in text


def test_codex_gets_a_whole_window_where_it_asks_for_one(rig: Rig):
    items = codex_history(20)
    rig.codex(items)
    path = f"{RESPONSES}/compact"
    status, _, content = post(rig.url, path, {"model": "gpt-5.5", "input": items}, codex_headers(compacts=True))
    answer = json.loads(content)
    assert (status, answer["object"]) == (200, "response.compaction")
    assert [item["type"] for item in answer["output"]] == ["message", "message", "compaction"]
    rig.codex([items[0], *answer["output"]], window=1)
    assert rig.server.requests[-1].body["input"][-1]["content"][0]["text"].startswith(RECORD)


def test_another_program_that_asks_for_a_window_gets_its_providers(rig: Rig):
    items = codex_history(3)
    status, _, content = post(rig.url, f"{RESPONSES}/compact", {"model": "gpt-5.5", "input": items})
    assert status == 200
    assert b"compacted_" in content


def test_an_answer_is_counted_as_such_and_has_no_usage_of_a_provider(rig: Rig):
    history = claude_history(20)
    rig.claude(history)
    rig.claude(asking_for_summary(history))
    rig.claude([*history, {"role": "assistant", "content": "Good."}, {"role": "user", "content": "And now?"}])
    rig.settle(3)
    rows = {row.kind: row for row in rig.place.rows()}
    assert (rows["main"].has_usage, rows["answered"].has_usage) == (True, False)


def test_what_a_client_has_had_summarized_by_its_own_model_is_recorded_to_the_last_result(tmp_path: Path):
    server, place, items = (
        StrictServer([ScriptedReply("My summary.")], window=10**6),
        Place(tmp_path),
        codex_history(20),
    )
    summary = "Another language model started to solve this problem. Here is the summary: My summary."
    goes_on = [*items[:3], {"type": "message", "role": "user", "content": [{"type": "input_text", "text": summary}]}]
    with server.serve() as upstream, proxied(upstream, place, mode="record") as url:
        rig = Rig(server, url, place)
        said = rig.codex(items[:-2])
        rig.codex([*items[:-2], *said, *items[-2:], checkpoint_request()], compacts=True)
        said = rig.codex(goes_on, window=1)
        rig.codex([*goes_on, *said, *codex_history(21)[-2:]], window=1)
    history = json.dumps(place.recorded().only)
    assert "test_19.py::test_login" in history
    assert "test_20.py::test_login" in history
    assert history.count("Here is the summary") == 1
    assert [row.kind for row in place.rows()] == ["main", "compaction", "main", "main"]


def test_what_claude_code_adds_to_a_result_is_not_taken_for_the_tools_answer():
    count = "\n\n<system-reminder>\n<total_tokens>14972128 tokens left</total_tokens>\n</system-reminder>"
    skills = "\n<system-reminder>\nThe following skills are available\n</system-reminder>"
    own = "a file that ends so: <system-reminder>x</system-reminder>"

    def result(content: Any) -> Any:
        block = {"type": "tool_result", "tool_use_id": "t", "content": content}
        (kept,) = without_reminders({"role": "user", "content": [block]})["content"]
        return kept["content"]

    assert result(f"2 passed{count}") == "2 passed"
    assert result(f"2 passed{skills}{count}{skills}") == "2 passed"
    assert result(own) == own
    assert result([{"type": "text", "text": "2 passed"}, {"type": "text", "text": count}]) == [
        {"type": "text", "text": "2 passed"}
    ]
    assert result([{"type": "text", "text": f"2 passed{count}"}]) == [{"type": "text", "text": "2 passed"}]


def test_a_record_keeps_its_size_however_much_the_agent_sends_beside_what_was_said(rig: Rig):
    attached = "\n<system-reminder>\n" + "a line of a file that is attached again\n" * 800 + "</system-reminder>"
    count = "\n<system-reminder>\n<total_tokens>14972128 tokens left</total_tokens>\n</system-reminder>"
    history = claude_history(120)
    for message in history[2::2]:
        message["content"][0]["content"] += attached + count
    first = rig.claude(history[:161])
    record = rig.claude(asking_for_summary(history[:161]))[10:-11]
    goes_on = [{"role": "user", "content": f"This session is being continued.\n{record}"}, *history[161:]]
    assert first == "Good."
    rig.claude(goes_on)
    assert len(rig.claude(asking_for_summary(goes_on))) > len(record) / 2 > 5_000


def test_a_short_conversation_beside_many_tools_gets_its_record_too(rig: Rig):
    history = claude_history(6)
    tools = [{"name": f"tool_{at}", "input_schema": {"description": "word " * 400}} for at in range(60)]
    for messages in (history, asking_for_summary(history)):
        body = {**claude_body(messages), "tools": [*claude_body([])["tools"], *tools]}
        _, _, content = post(rig.url, MESSAGES, body, CLAUDE)
    assert RECORD.encode() in content
