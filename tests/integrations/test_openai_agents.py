"""The adapter for the OpenAI Agents SDK, with its own runner and models against the strict server."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs the extra openai-agents")

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions import ToolOutputTrimmer
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI, BadRequestError

from context_compactor import Session
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.integrations.openai_agents import CompactorSession, compactor_filter, recall_tools
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from tests.integrations.scenario import (
    ANSWER,
    NEXT_TASK,
    RULES,
    STEPS,
    SYSTEM,
    TASK,
    WINDOW,
    RunFigures,
    assert_no_worse,
    figures,
    file_path,
    read_file,
    script,
    snippet_of,
    strict_server,
    write_files,
)

set_tracing_disabled(True)

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/openai-agents.md"
MODELS = [OpenAIResponsesModel, OpenAIChatCompletionsModel]
TURNS = 2 * STEPS


def opened(folder: Path, name: str = "run") -> Session:
    return Session.open(name, window=WINDOW, store=f"sqlite:///{folder / 'sessions.db'}", profile="embedded")


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def engineer(model: Any, session: Session, **options: Any) -> Agent[None]:
    tools = [function_tool(read_file), *recall_tools(session)]
    return Agent("engineer", instructions=SYSTEM, model=model, tools=tools, **options)


async def run(agent: Agent[None], task: Any, session: Session, /, *, streamed: bool = False, **options: Any) -> Any:
    """One run with everything that the adapter has; the result."""
    config = RunConfig(call_model_input_filter=compactor_filter(session))
    options = {"session": CompactorSession(session), "run_config": config, "max_turns": TURNS, **options}
    if not streamed:
        return await Runner.run(agent, task, **options)
    result = Runner.run_streamed(agent, task, **options)
    async for _ in result.stream_events():
        pass
    return result


def work(
    url: str, session: Session, *tasks: Any, kind: Any = OpenAIResponsesModel, streamed: bool = False
) -> list[str]:
    """The answers of an agent that is given one task after the other."""

    async def answers() -> list[str]:
        async with client_of(url) as client:
            agent = engineer(kind("gpt-5", client), session)
            return [(await run(agent, task, session, streamed=streamed)).final_output for task in tasks]

    return asyncio.run(answers())


def texts(answers: int) -> list[ScriptedReply]:
    return [ScriptedReply(f"answer {number}") for number in range(1, answers + 1)]


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    body = server.requests[at].body
    return body.get("input") or body["messages"]


def assert_kept_in_the_window(server: StrictServer, session: Session) -> None:
    found, compactions = figures(server), len(session.compactions())
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


@pytest.mark.parametrize("kind", MODELS)
def test_sixty_steps_in_a_small_window_overflow_nowhere_and_keep_every_rule(tmp_path: Path, kind: Any):
    server = strict_server()
    with server.serve() as url, opened(tmp_path) as session:
        assert work(url, session, TASK, kind=kind) == [ANSWER]
        assert_kept_in_the_window(server, session)
        assert session.id == "run"
        assert session.usage().source == "anchored on the last reply"


@pytest.mark.parametrize("kind", MODELS)
def test_a_streamed_run_is_kept_in_the_window_too(tmp_path: Path, kind: Any):
    server = strict_server()
    with server.serve() as url, opened(tmp_path) as session:
        assert work(url, session, TASK, kind=kind, streamed=True) == [ANSWER]
        assert_kept_in_the_window(server, session)


def test_a_synchronous_run_is_kept_in_the_window_too(tmp_path: Path):
    server = strict_server()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # the SDK takes it and leaves it open
    try:
        with server.serve() as url, opened(tmp_path) as session:
            client = client_of(url)
            result = Runner.run_sync(
                engineer(OpenAIResponsesModel("gpt-5", client), session),
                TASK,
                session=CompactorSession(session),
                run_config=RunConfig(call_model_input_filter=compactor_filter(session)),
                max_turns=TURNS,
            )
            loop.run_until_complete(client.close())
            assert result.final_output == ANSWER
            assert_kept_in_the_window(server, session)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_the_filter_alone_follows_a_history_that_the_program_keeps(tmp_path: Path):
    server = strict_server()

    async def talk(url: str, session: Session) -> None:
        async with client_of(url) as client:
            agent = engineer(OpenAIResponsesModel("gpt-5", client), session)
            rule = {"role": "developer", "content": "Answer in one sentence."}
            result = await run(agent, [rule, {"role": "user", "content": TASK}], session, session=None)
            history = [*result.to_input_list(), {"role": "user", "content": NEXT_TASK}]
            await run(agent, history, session, session=None)

    with server.serve() as url, opened(tmp_path) as session:
        asyncio.run(talk(url, session))
        assert (figures(server).refused, session.id) == (0, "run")
        assert sent(server)[0] == {"role": "developer", "content": "Answer in one sentence."}
        assert NEXT_TASK in str(sent(server)[-1])


def test_items_that_are_not_shortened_are_sent_as_the_sdk_made_them(tmp_path: Path):
    replies = [ScriptedReply(thinking="I look.", calls=each.calls) if each.calls else each for each in script()]
    server = strict_server(replies)
    with server.serve() as url, opened(tmp_path) as session:
        work(url, session, TASK)
        assert figures(server).refused == 0
        assert len(session.compactions()) >= 3
        last = [item for item in sent(server) if item.get("type") == "reasoning"]
        assert last
        assert all(item["id"].startswith("rs_") and item["encrypted_content"] for item in last)


@pytest.mark.parametrize("kind", MODELS)
def test_another_program_goes_on_where_the_conversation_ended(tmp_path: Path, kind: Any):
    server = strict_server([*script(), *texts(1)])
    with server.serve() as url:
        with opened(tmp_path) as session:
            work(url, session, TASK, kind=kind)
            said = session.history()
        with opened(tmp_path) as session:
            work(url, session, NEXT_TASK, kind=kind)
            assert session.history()[: len(said)] == said
            assert len(session.history()) == len(said) + 2
    assert figures(server).refused == 0
    assert all(rule in str(sent(server)) for rule in RULES)
    assert sent(server)[-1]["content"] == NEXT_TASK


@pytest.mark.parametrize("kind", MODELS)
def test_equal_answers_stay_as_many_as_they_were(tmp_path: Path, kind: Any):
    server = strict_server([ScriptedReply("Done.")])
    with server.serve() as url, opened(tmp_path) as session:
        work(url, session, *["Go on."] * 5, kind=kind)
        roles = [item["role"] for item in sent(server) if item["role"] != "system"]
        assert roles == ["user", "assistant"] * 4 + ["user"]


@pytest.mark.parametrize("kind", MODELS)
def test_long_answers_are_compacted_and_the_rest_can_still_be_sent(tmp_path: Path, kind: Any):
    replies = [ScriptedReply(f"Answer {number}.\n" + read_file(file_path(number))) for number in range(50)]
    server = strict_server(replies)
    with server.serve() as url, opened(tmp_path) as session:
        work(url, session, *(f"Question {number}?" for number in range(50)), kind=kind)
        assert figures(server).refused == 0
        assert len(session.compactions()) >= 2
        assert "Question 49?" in str(sent(server)[-1])


@pytest.mark.parametrize("kind", MODELS)
def test_after_items_are_popped_nothing_of_them_is_sent_and_the_conversation_goes_on(tmp_path: Path, kind: Any):
    server = strict_server([*script(), *texts(2)])

    async def talk(url: str, session: Session) -> None:
        async with client_of(url) as client:
            agent, stored = engineer(kind("gpt-5", client), session), CompactorSession(session)
            await run(agent, TASK, session, session=stored)
            last = await stored.get_items(limit=3)
            popped = [await stored.pop_item() for _ in range(3)]
            assert popped[::-1] == last
            assert len(await stored.get_items()) == 2 * STEPS - 1
            await run(agent, "Take another way.", session, session=stored)
            await run(agent, NEXT_TASK, session, session=stored)

    with server.serve() as url, opened(tmp_path) as session:
        asyncio.run(talk(url, session))
        assert figures(server).refused == 0
        for at in (-2, -1):
            assert file_path(STEPS) not in str(sent(server, at))
            assert ANSWER not in str(sent(server, at))
            assert all(rule in str(sent(server, at)) for rule in RULES)
        assert "answer 1" in str(sent(server)[-2])
        assert NEXT_TASK in str(sent(server)[-1])


def test_a_cleared_session_begins_anew_also_for_another_program(tmp_path: Path):
    server = strict_server(texts(3))
    with server.serve() as url:
        with opened(tmp_path) as session:
            work(url, session, "First.", "Second.")
            stored = CompactorSession(session)
            asyncio.run(stored.clear_session())
            assert asyncio.run(stored.get_items()) == []
            assert asyncio.run(stored.pop_item()) is None
        with opened(tmp_path) as session:
            work(url, session, "Third.")
    assert [item["content"] for item in sent(server)] == ["Third."]


def test_get_items_gives_the_last_ones_in_their_order(tmp_path: Path):
    said = [{"role": "user", "content": text} for text in "abc"]
    with opened(tmp_path) as session:
        stored = CompactorSession(session)
        asyncio.run(stored.add_items(said))
        for limit, wanted in ((None, said), (2, said[1:]), (9, said), (0, [])):
            assert asyncio.run(stored.get_items(limit)) == wanted


def test_recall_gives_the_original_of_a_file_that_left_the_context(tmp_path: Path):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
    server = strict_server([*script()[:-1], recall, ScriptedReply(ANSWER)])
    with server.serve() as url, opened(tmp_path) as session:
        work(url, session, TASK)
        line = "def part_3_7(token, leeway=5): return check(token, 57)"
        assert line in read_file(file_path(3))
        assert line not in json.dumps(sent(server, -2))
        assert line in json.dumps(sent(server)[-1])
        assert 'recall("id")' in str(sent(server)[0])
        assert figures(server).refused == 0


def test_two_conversations_at_once_do_not_mix(tmp_path: Path):
    servers = {name: strict_server() for name in ("one", "two")}

    async def talk(name: str) -> None:
        with servers[name].serve() as url, opened(tmp_path, name) as session:
            async with client_of(url) as client:
                await run(engineer(OpenAIResponsesModel("gpt-5", client), session), f"I am {name}. {TASK}", session)
            assert_kept_in_the_window(servers[name], session)

    async def both() -> None:
        await asyncio.gather(*map(talk, servers))

    asyncio.run(both())
    for name, other in (("one", "two"), ("two", "one")):
        assert all(f"I am {name}" in str(sent(servers[name], at)) for at in range(STEPS + 1))
        assert not any(f"I am {other}" in str(sent(servers[name], at)) for at in range(STEPS + 1))


@pytest.mark.parametrize("kind", MODELS)
def test_calls_in_parallel_and_a_run_that_stopped_for_approval_stay_in_one_branch(tmp_path: Path, kind: Any):
    calls = tuple(ScriptedCall(name, {"path": file_path(1)}) for name in ("risky", "read_file", "read_file"))
    server = strict_server([ScriptedReply("I read.", calls=calls), *texts(2)])

    async def talk(url: str, session: Session) -> None:
        async with client_of(url) as client:
            agent = engineer(kind("gpt-5", client), session)
            agent.tools.append(function_tool(read_file, name_override="risky", needs_approval=True))
            stopped = (await run(agent, TASK, session)).to_state()
            stopped.approve(stopped.get_interruptions()[0])
            for given in (stopped, NEXT_TASK):
                await run(agent, given, session)

    with server.serve() as url, opened(tmp_path) as session:
        asyncio.run(talk(url, session))
        assert (figures(server).refused, figures(server).rewrites, session.id) == (0, 0, "run")
        assert len(session.history()) == 11


def test_a_handoff_that_changes_the_history_leaves_the_stored_one_whole(tmp_path: Path):
    to_fixer = ScriptedReply(calls=(ScriptedCall("transfer_to_fixer", {}),))
    server = strict_server([*script(4)[:-1], to_fixer, *script(30), *texts(1)])

    async def talk(url: str, session: Session) -> None:
        async with client_of(url) as client:
            model = OpenAIResponsesModel("gpt-5", client)
            agent = engineer(model, session, handoffs=[engineer(model, session).clone(name="fixer")])
            config = RunConfig(call_model_input_filter=compactor_filter(session), nest_handoff_history=True)
            for task in (TASK, NEXT_TASK):
                await run(agent, task, session, run_config=config)

    with server.serve() as url, opened(tmp_path) as session:
        asyncio.run(talk(url, session))
        assert figures(server).refused == 0
        said = session.history()
        assert [item["content"] for item in said if item.get("role") == "user"] == [TASK, NEXT_TASK]
        assert sum(item.get("type") == "function_call" for item in said) == 35


def test_an_agent_that_is_a_tool_does_not_disturb_the_conversation(tmp_path: Path):
    asks = [ScriptedReply(calls=(ScriptedCall("reader", {"input": f"part {at}"}),)) for at in range(10)]
    server = strict_server([reply for ask in asks for reply in (ask, *script(5)[:-1], ScriptedReply("It is fine."))])

    async def talk(url: str, session: Session) -> None:
        async with client_of(url) as client:
            model = OpenAIResponsesModel("gpt-5", client)
            reader = Agent("reader", instructions="Read.", model=model, tools=[function_tool(read_file)])
            agent = engineer(model, session)
            agent.tools.append(reader.as_tool("reader", "Reads files."))
            await run(agent, TASK, session)

    with server.serve() as url, opened(tmp_path) as session:
        asyncio.run(talk(url, session))
        assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
        kinds = [item.get("type") or item["role"] for item in session.history()]
        assert kinds == ["user", *["function_call", "function_call_output"] * 10, "message"]


@pytest.mark.parametrize("use", [CompactorSession, compactor_filter, recall_tools])
@pytest.mark.parametrize("wrong", [None, "run", SQLiteSession("run")])
def test_what_is_not_a_session_of_ours_is_refused_with_a_word(use: Any, wrong: Any):
    with pytest.raises(BadSetting, match=f"expected a Session of context_compactor, got {type(wrong).__name__}"):
        use(wrong)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    adapter = "context_compactor.integrations.openai_agents"
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, adapter)
    with pytest.raises(MissingExtra, match="openai-agents"):
        import_module(adapter)


def test_the_filter_and_the_tools_take_the_sdks_session_as_well(tmp_path: Path):
    with opened(tmp_path) as session:
        stored = CompactorSession(session)
        assert callable(compactor_filter(stored))
        assert [tool.name for tool in recall_tools(stored)] == ["recall", "search_archive", "facts"]


def test_a_stored_conversation_may_not_begin_with_instructions(tmp_path: Path):
    items = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": TASK}]
    with opened(tmp_path) as session, pytest.raises(BadSetting, match="Agent\\(instructions=…\\)"):
        work("http://127.0.0.1:9", session, items)


def compare() -> dict[str, RunFigures]:
    """The sixty steps in one run with the adapter, with nothing, and with each of the SDK's own ways."""
    trimmer = RunConfig(call_model_input_filter=ToolOutputTrimmer(recent_turns=1))
    on_servers = ModelSettings(context_management=[{"type": "compaction", "compact_threshold": WINDOW * 5 // 8}])

    def compacting(client: AsyncOpenAI) -> OpenAIResponsesCompactionSession:
        return OpenAIResponsesCompactionSession("run", SQLiteSession("run"), client=client, model="gpt-5")

    return {
        "context-compactor": _with_the_adapter(),
        "nothing": _on_its_own(),
        "ToolOutputTrimmer": _on_its_own(run_config=trimmer),
        "OpenAIResponsesCompactionSession": _on_its_own(compacting),
        "ModelSettings(context_management)": _on_its_own(settings=on_servers),
    }


def _with_the_adapter() -> RunFigures:
    server = strict_server()
    with tempfile.TemporaryDirectory() as folder, server.serve() as url, opened(Path(folder)) as session:
        work(url, session, TASK)
    return figures(server)


def _on_its_own(
    make_session: Any = lambda _: None, settings: ModelSettings | None = None, **options: Any
) -> RunFigures:
    server = strict_server()

    async def talk(url: str) -> None:
        async with client_of(url) as client:
            model, tools = OpenAIResponsesModel("gpt-5", client), [function_tool(read_file)]
            agent: Agent[None] = Agent("engineer", instructions=SYSTEM, model=model, tools=tools)
            agent.model_settings = settings or ModelSettings()
            session = make_session(client)
            try:
                await Runner.run(agent, TASK, session=session, max_turns=TURNS, **options)
            except BadRequestError:
                assert server.refusals

    with server.serve() as url:
        asyncio.run(talk(url))
    return figures(server)


def test_ours_overflows_nowhere_and_keeps_no_fewer_rules_than_the_sdks_own_ways():
    assert_no_worse(compare(), PAGE)


def test_the_snippet_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    server = strict_server()
    write_files(tmp_path)
    snippet = snippet_of(PAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with server.serve() as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        exec(compile(snippet, str(PAGE), "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out == f"{ANSWER}\n"
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
