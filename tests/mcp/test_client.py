"""The real client library against the real command, over standard input and output."""

from __future__ import annotations

import anyio
import pytest
from jsonschema import validate

from context_compactor.agents.project import ancestor_processes
from context_compactor.sessions.session import Session
from tests.mcp.agent import NEEDLE, Agent, connected, said, talk, text_of

NAMES = ["recall", "search_archive", "list_turns", "facts", "context_status", "compact_plan", "checkpoint", "handoff"]
CALLS = [
    ("recall", {"id": "file_002", "page": 2}),
    ("search_archive", {"text": "port of the lamp"}),
    ("list_turns", {"first": 1, "last": 3}),
    ("facts", {}),
    ("context_status", {}),
    ("compact_plan", {"target_tokens": 1_000, "focus": "lamp"}),
    ("checkpoint", {"note": "the lamp is hot"}),
    ("handoff", {"phase": "validate", "task": "Look at the lamp."}),
]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_every_tool_is_described_and_answers_what_its_schema_says_in_both_eras(agent: Agent, mode):
    async def story():
        async with connected(agent.root, mode=mode) as client:
            assert client.server_info.name == "context-compactor"
            assert "recall(id)" in (client.instructions or "")
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == NAMES
            for tool in tools:
                assert tool.title
                assert tool.annotations is not None
                assert tool.annotations.read_only_hint is (tool.name != "checkpoint")
                assert len(tool.description or "") < 2_000  # Claude Code cuts what is longer
            schemas = {tool.name: tool.output_schema for tool in tools}
            for name, given in CALLS:
                got = await client.call_tool(name, given)
                assert not got.is_error, text_of(got)
                assert got.structured_content is not None
                validate(got.structured_content, schemas[name])
                assert got.structured_content["session"] == "lamp"
                if name == "compact_plan":
                    assert all(0 <= each["relevance"] <= 1 for each in got.structured_content["decisions"])
                assert ("note" in got.structured_content) is (name in ("compact_plan", "search_archive"))

    anyio.run(story)


def test_an_original_comes_back_whole_page_by_page_as_each_answer_says(agent: Agent):
    async def story():
        async with connected(agent.root) as client:
            page, pieces = 1, []
            while page:
                got = (await client.call_tool("recall", {"id": "file_002", "page": page})).structured_content
                pieces.append(got["text"])
                assert got["page"] == page
                page = page + 1 if got.get("next") == f'recall(id="file_002", page={page + 1})' else 0
            assert len(pieces) == got["pages"] > 1
            return "".join(pieces)

    lines = anyio.run(story).split("\n")
    assert len(lines) == 1_199
    assert lines[600] == f"lamp: {NEEDLE}"


def test_a_turn_is_recalled_as_a_conversation_and_found_in_the_list(agent: Agent):
    async def story():
        async with connected(agent.root) as client:
            turns = (await client.call_tool("list_turns", {})).structured_content["turns"]
            read = (await client.call_tool("recall", {"id": turns[0]["id"]})).structured_content["text"]
            return turns, read

    turns, read = anyio.run(story)
    assert turns[0]["who"] == "user"
    assert f"user: {turns[0]['text'][:40]}" in read
    assert f"after: {turns[1]['id']}" in read.split("\n")[0]


def test_many_calls_at_once_are_all_answered(agent: Agent):
    async def story():
        answers: list[str] = []
        async with connected(agent.root) as client:

            async def ask(name, given):
                got = await client.call_tool(name, given)
                assert not got.is_error, text_of(got)
                answers.append(name)

            async with anyio.create_task_group() as group:
                for name, given in CALLS * 4:
                    group.start_soon(ask, name, given)
        return answers

    assert sorted(anyio.run(story)) == sorted(name for name, _ in CALLS * 4)


def test_what_the_agent_writes_while_the_server_runs_is_found_at_once(agent: Agent):
    async def story():
        async with connected(agent.root) as client:
            before = (await client.call_tool("facts", {"kind": "constraint"})).structured_content
            agent.write([said("Never use the red paint."), *talk("nothing new")[1:4]])
            after = (await client.call_tool("facts", {"kind": "constraint"})).structured_content
        return [fact["line"] for fact in before["facts"]], [fact["line"] for fact in after["facts"]]

    before, after = anyio.run(story)
    assert "Never use the red paint." in str(after)
    assert len(after) == len(before) + 1


def test_a_session_that_is_begun_while_the_server_runs_is_the_one_that_is_meant(agent: Agent):
    async def story():
        async with connected(agent.root) as client:
            first = (await client.call_tool("context_status", {})).structured_content["session"]
            fresh = Agent(agent.root, "fresh")
            fresh.write(talk("the port of the radio is 3"))
            fresh.is_run_by(*ancestor_processes())
            second = (await client.call_tool("search_archive", {"text": "port of the"})).structured_content
        return first, second

    first, second = anyio.run(story)
    assert first == "lamp"
    assert second["session"] == "fresh"
    assert "48151" not in str(second)


def test_without_any_session_a_tool_says_what_to_do(tmp_path):
    async def story():
        async with connected(tmp_path) as client:
            return [await client.call_tool(name, given) for name, given in CALLS]

    for got in anyio.run(story):
        assert got.is_error
        assert "compactor install claude-code" in text_of(got)
        assert "compactor import" in text_of(got)
    assert not (tmp_path / ".compactor" / "compactor.db").exists()


def test_a_handoff_tells_what_earlier_phases_have_reported_and_what_they_work_on(agent: Agent):
    with Session.open("lamp", store=agent.store) as session:
        asked = session.handoff("research", spec_path="specs/lamp/requirements.md")
        found = {"status": "complete", "decision": "PROCEED", "findings": {"files_changed": ["lamp.cfg"]}}
        session.receive({"task_id": asked.task_id, "phase": "research", "context_summary": "Use dim_lamp().", **found})

    async def story():
        async with connected(agent.root) as client:
            result = await client.call_tool("handoff", {"phase": "write"})
            other = await client.call_tool("handoff", {"phase": "write", "feature": "bell"})
            return result.structured_content, other.structured_content, text_of(result)

    result, other, text = anyio.run(story)
    assert "# research\nUse dim_lamp()." in result["context_summary"]
    assert "lamp.cfg" in result["files"]
    assert (result["feature"], result["spec_path"]) == ("lamp", "specs/lamp/requirements.md")
    assert (other["feature"], other["spec_path"]) == ("bell", "")
    assert "Specification: specs/lamp/requirements.md" in text
