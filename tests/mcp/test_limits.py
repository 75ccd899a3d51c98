"""Whatever is asked of whatever was said: an answer that fits, in characters that every client can read."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate
from mcp_types import CallToolResult

from context_compactor.agents.project import ancestor_processes
from context_compactor.handoff.context_summary import count_tokens
from context_compactor.mcp.server import call_tool_safely
from context_compactor.mcp.tools import TOOLS, ToolContext
from context_compactor.sessions.tool_schemas import schema_of
from tests.mcp.agent import Agent, asking, connected, ran, replied, said, talk

pytestmark = pytest.mark.slow

MOST_TOKENS = 25_000
SCHEMAS = {tool.name: schema_of(tool.output) for tool in TOOLS}


def checked(tool_name: str, root: Path, arguments: dict[str, Any]) -> CallToolResult:
    """An answer as it is sent, within all limits."""
    tool = next(tool for tool in TOOLS if tool.name == tool_name)
    got = call_tool_safely(tool, ToolContext(str(root)), arguments)
    sent = got.model_dump_json(by_alias=True, exclude_none=True)
    assert count_tokens(sent) < MOST_TOKENS
    (block,) = json.loads(sent)["content"]
    assert block["text"].strip()
    assert "fault of Context Compactor" not in block["text"]
    assert bool(got.is_error) is (got.structured_content is None)
    if got.structured_content is not None:
        validate(got.structured_content, SCHEMAS[tool_name])
    return got


@pytest.mark.parametrize(
    "output",
    ["x" * 5_000_000, "😀" * 100_000, "漢字" * 100_000, "\n" * 30_000, 'a"\\\n' * 50_000, "\x00\x1b[31m" * 20_000],
    ids=["one line of 5 MB", "emoji", "characters of three bytes", "empty lines", "quotes", "control characters"],
)
def test_a_huge_output_comes_in_pages_that_join_to_it(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    agent = Agent(tmp_path, "huge")
    agent.write([said("Run it."), *ran("produce", output, 1), replied("It ran.", 2), said("Go on.")])
    agent.follow()
    agent.is_run_by(*ancestor_processes())
    first = checked("recall", tmp_path, {"id": "tool_001"}).structured_content
    pages = first["pages"]
    wanted = {1, 2, pages // 2, pages} if pages > 50 else range(1, pages + 1)
    texts = {
        page: checked("recall", tmp_path, {"id": "tool_001", "page": page}).structured_content["text"]
        for page in wanted
    }
    if pages <= 50:
        assert "".join(texts[page] for page in sorted(texts)) == output
    else:
        assert output.startswith(texts[1] + texts[2])
        assert output.endswith(texts[pages])
    for name in SCHEMAS:
        checked(
            name, tmp_path, {"id": "tool_001"} if name == "recall" else {"text": "produce"} if "search" in name else {}
        )


def test_half_a_character_is_shown_as_a_mark_and_said_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Agent(tmp_path, "half")
    agent.write(
        [said("Run it \ud83d."), *ran("echo \ude00", "one \ud83d two 😀 three", 1), replied("Ran.", 2), said("?")]
    )
    agent.follow()
    agent.is_run_by(*ancestor_processes())

    async def story():
        async with connected(tmp_path) as client:
            found = await client.call_tool("recall", {"id": "tool_001"})
            turn = await client.call_tool("recall", {"id": "turn_001"})
            rest = [await client.call_tool(name, {}) for name in ("facts", "checkpoint", "handoff", "compact_plan")]
            return found.structured_content, [each.is_error for each in (turn, *rest)]

    found, errors = anyio.run(story)
    assert found["text"] == "one \ufffd two 😀 three"
    assert "\ufffd" in found["note"]
    assert not any(errors)


def test_a_session_of_many_facts_and_decisions_is_told_page_by_page_without_loss(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = Agent(tmp_path, "long")
    agent.write([said("Begin.")])
    for number in range(1, 120):
        error = f"FAILED tests/test_{number}.py::test_it - AssertionError: {number} " + "and so on " * 80
        agent.write([*ran(f"pytest tests/test_{number}.py", error, number), said(f"Never use approach {number}.")])
    agent.follow()
    agent.is_run_by(*ancestor_processes())
    for name, key in (("facts", "facts"), ("compact_plan", "decisions")):
        more = {"target_tokens": 2_000} if name == "compact_plan" else {}
        first = asking(tmp_path, name, **more)
        pages = [checked(name, tmp_path, {"page": page, **more}) for page in range(1, first.pages + 1)]
        every = [json.dumps(row) for page in pages for row in page.structured_content[key]]
        assert first.pages > 1
        assert len(every) > 100
        assert pages[-1].structured_content.get("next") is None
    assert len(asking(tmp_path, "facts", kind="failure").facts) > 1


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A project that many questions are asked about."""
    agent = Agent(tmp_path_factory.mktemp("project"), "small")
    agent.write(talk())
    agent.follow()
    agent.is_run_by(*ancestor_processes())
    return agent.root


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(
        ["tool_001", "file_002", "turn_003", "tool_1", "1-2", "5-", "soft", "write", "failure", "small", "3"]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = sorted({name for tool in TOOLS for name in tool.input.__struct_fields__} | {"other"})


@given(st.sampled_from(sorted(SCHEMAS)), st.dictionaries(st.sampled_from(NAMES), ODD, max_size=4))
def test_any_arguments_get_an_answer_that_fits_its_schema_or_says_what_is_wrong(small, name, arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(small)
        checked(name, small, arguments)


@given(st.text(st.characters(), max_size=300), st.integers(1, 3))
def test_any_output_is_recalled_as_it_was(text, page):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        agent = Agent(Path(folder), "any")
        agent.write([said("Run it."), *ran("produce", text, 1), replied("It ran.", 2), said("Go on.")])
        agent.follow()
        agent.is_run_by(*ancestor_processes())
        got = checked("recall", Path(folder), {"id": "tool_001", "page": page})
        if page == 1:
            sendable = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            assert got.structured_content["text"] == sendable
        else:
            assert got.is_error
