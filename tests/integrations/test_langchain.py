"""The adapter for LangChain and LangGraph, with real agents and chat models against the strict server."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="needs the extra langchain")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import BadRequestError

from context_compactor import Session
from context_compactor.errors import BadMessage, BadSetting, MissingExtra
from context_compactor.integrations.langchain import CompactorMiddleware, compacted
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer, random_replies
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

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/langchain.md"
Invoke = Callable[[Any, Any, RunnableConfig], None]


@pytest.fixture
def compactor(tmp_path: Path) -> Iterator[CompactorMiddleware]:
    with_store = middleware_in(tmp_path)
    yield with_store
    with_store.conversations.close()


def middleware_in(folder: Path) -> CompactorMiddleware:
    return CompactorMiddleware(window=WINDOW, store=f"sqlite:///{folder / 'sessions.db'}")


def chat(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5", base_url=f"{url}/v1", api_key="any", max_retries=0, **options)


def claude(url: str, **options: Any) -> ChatAnthropic:
    return ChatAnthropic(model="claude-sonnet-4-6", base_url=url, api_key="any", max_retries=0, **options)


def engineer(model: Any, *middleware: AgentMiddleware, tools: Sequence[Any] = (), **options: Any) -> Any:
    return create_agent(model, [read_file, *tools], system_prompt=SYSTEM, middleware=middleware, **options)


def thread(name: str = "run") -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def asked(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def texts(answers: int) -> list[ScriptedReply]:
    return [ScriptedReply(f"answer {number}") for number in range(1, answers + 1)]


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    return list(server.requests[at].body["messages"])


def assert_kept_in_the_window(server: StrictServer, session: Session) -> None:
    found, compactions = figures(server), len(session.compactions())
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


def invoke(agent: Any, given: Any, config: RunnableConfig) -> None:
    agent.invoke(given, config)


def ainvoke(agent: Any, given: Any, config: RunnableConfig) -> None:
    asyncio.run(agent.ainvoke(given, config))


def stream(agent: Any, given: Any, config: RunnableConfig) -> None:
    chunks = [chunk for chunk, _ in agent.stream(given, config, stream_mode="messages")]
    assert len(chunks) > 2 * STEPS


def astream(agent: Any, given: Any, config: RunnableConfig) -> None:
    async def read() -> int:
        return len([chunk async for chunk, _ in agent.astream(given, config, stream_mode="messages")])

    assert asyncio.run(read()) > 2 * STEPS


@pytest.mark.parametrize("run", [invoke, ainvoke, stream, astream])
@pytest.mark.parametrize("make", [chat, claude])
def test_sixty_steps_in_a_small_window_overflow_nowhere_and_keep_every_rule(
    compactor: CompactorMiddleware, make: Any, run: Invoke
):
    server = strict_server()
    with server.serve() as url:
        agent = engineer(make(url), compactor, checkpointer=InMemorySaver())
        run(agent, asked(TASK), thread())
        said = agent.get_state(thread()).values["messages"]
    assert (len(said), said[-1].text) == (2 * STEPS + 2, ANSWER)
    session = compactor.session(thread())
    assert_kept_in_the_window(server, session)
    assert session.id == "run"
    if run in (invoke, ainvoke):
        assert session.usage().source == "anchored on the last reply"


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (chat, {"use_responses_api": True, "output_version": "v0"}),
        (chat, {"use_responses_api": True, "output_version": "responses/v1"}),
        (chat, {"use_responses_api": True, "output_version": "v1"}),
        (claude, {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 3000}),
        (claude, {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 3000, "output_version": "v1"}),
    ],
)
def test_thinking_and_several_calls_at_once_stay_legal_in_every_form_of_content(
    compactor: CompactorMiddleware, make: Any, options: dict[str, Any]
):
    server = StrictServer(random_replies(3), window=WINDOW)

    def run_command(command: str) -> str:
        """Run a command."""
        return "\n".join(f"tests/test_{number}.py PASSED" for number in range(100)) + f"\n$ {command}"

    def search_code(query: str) -> str:
        """Search the code."""
        return "\n".join(f"src/{query}.py:{number}: def {query}()" for number in range(60))

    said: list[Any] = []
    with server.serve() as url:
        agent = engineer(make(url, **options), compactor, tools=[run_command, search_code])
        for turn in range(12):
            said.append(HumanMessage(f"Go on with part {turn}." if turn else TASK))
            said = agent.invoke({"messages": said})["messages"]
    found, session = figures(server), compactor.session({}, said)
    assert (found.refused, found.rules) == (0, len(RULES))
    assert found.rewrites <= len(session.compactions())
    assert len(session.compactions()) >= 3


class Watcher(AgentMiddleware):
    """Keeps what the middleware before it hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[list[AnyMessage], list[AnyMessage]]] = []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.requests.append((request.state["messages"], request.messages))
        return handler(request)


def test_messages_that_are_not_shortened_are_the_objects_of_the_state(compactor: CompactorMiddleware):
    server, watcher = strict_server(), Watcher()
    with server.serve() as url:
        engineer(chat(url), compactor, watcher).invoke(asked(TASK), thread())
    for state, request in watcher.requests:
        known = {id(message) for message in state}
        written = [message for message in request if id(message) not in known]
        assert len(written) < len(request)
        assert all(isinstance(message, (HumanMessage, ToolMessage)) for message in written)
    record, *others = [message for message in request if id(message) not in known]
    assert record.text.startswith("[Context record.")
    assert {message.name for message in others} <= {"read_file"}


def test_another_program_goes_on_where_the_thread_ended(tmp_path: Path):
    server, saved = strict_server([*script(), *texts(1)]), InMemorySaver()
    with server.serve() as url:
        for task in (TASK, NEXT_TASK):
            compactor = middleware_in(tmp_path)
            engineer(chat(url), compactor, checkpointer=saved).invoke(asked(task), thread())
            session = compactor.session(thread())
            found = len(session.history()), len(session.compactions()), session.id
            compactor.conversations.close()
    assert found[0] == 2 * STEPS + 3
    assert found[2] == "run"
    assert figures(server).rewrites <= found[1]
    assert figures(server).rules == len(RULES)
    assert sent(server)[-1]["content"] == NEXT_TASK


def test_a_thread_whose_sessions_were_lost_is_compacted_anew_whatever_its_last_reply_reported(tmp_path: Path):
    server, saved = strict_server([*script(), *texts(1)]), InMemorySaver()
    with server.serve() as url:
        for task in (TASK, NEXT_TASK):
            compactor = middleware_in(tmp_path / task[:4])
            engineer(chat(url), compactor, checkpointer=saved).invoke(asked(task), thread())
            compactor.conversations.close()
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))


def test_after_a_rewind_nothing_of_the_left_way_is_sent_and_the_thread_goes_on(compactor: CompactorMiddleware):
    server, left = strict_server([*script(), *texts(2)]), 40
    with server.serve() as url:
        agent = engineer(chat(url), compactor, checkpointer=InMemorySaver())
        agent.invoke(asked(TASK), thread())
        before = next(
            each for each in agent.get_state_history(thread()) if len(each.values["messages"]) == 1 + 2 * left
        )
        agent.invoke(asked("Take another way."), before.config)
        agent.invoke(asked(NEXT_TASK), thread())
    assert figures(server).refused == 0
    for at in (-2, -1):
        request = json.dumps(sent(server, at))
        assert file_path(left) in request
        assert not [step for step in range(left + 1, STEPS + 1) if file_path(step) in request]
        assert ANSWER not in request
        assert all(rule in request for rule in RULES)
    assert [message["content"] for message in sent(server)[-3:]] == ["Take another way.", "answer 1", NEXT_TASK]


def test_a_message_that_is_removed_from_the_state_is_not_sent_again(compactor: CompactorMiddleware):
    server = strict_server(texts(3))
    with server.serve() as url:
        agent = engineer(chat(url), compactor, checkpointer=InMemorySaver())
        for text in ("First.", "Second."):
            agent.invoke(asked(text), thread())
        last = agent.get_state(thread()).values["messages"][-2:]
        agent.update_state(thread(), {"messages": [RemoveMessage(id=message.id) for message in last]})
        agent.invoke(asked("Third."), thread())
    assert [message["content"] for message in sent(server)[1:]] == ["First.", "answer 1", "Third."]


@pytest.mark.parametrize("run", [invoke, ainvoke])
def test_recall_gives_the_original_of_a_file_that_left_the_context(compactor: CompactorMiddleware, run: Invoke):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
    server = strict_server([*script()[:-1], recall, ScriptedReply(ANSWER)])
    with server.serve() as url:
        run(engineer(chat(url), compactor), asked(TASK), {})
    line = "def part_3_7(token, leeway=5): return check(token, 57)"
    assert line in read_file(file_path(3))
    assert line not in json.dumps(sent(server, -2))
    assert line in sent(server)[-1]["content"]
    assert 'recall("id")' in sent(server)[1]["content"]
    assert figures(server).refused == 0


def test_a_wrong_call_of_recall_is_answered_with_what_to_try(compactor: CompactorMiddleware):
    calls = (ScriptedCall("recall", {"id": "file_999"}), ScriptedCall("recall", {"page": 1, "runtime": "x"}))
    server = strict_server([ScriptedReply(calls=calls), *texts(1)])
    with server.serve() as url:
        said = engineer(chat(url), compactor).invoke(asked(TASK))["messages"]
    assert "file_999" in said[2].text
    assert "Try: recall(id, lines, page)" in said[3].text


def test_without_recall_no_tool_is_added_and_no_record_names_one(tmp_path: Path):
    server = strict_server()
    compactor = CompactorMiddleware(window=WINDOW, recall=False, store=f"sqlite:///{tmp_path / 'sessions.db'}")
    with server.serve() as url:
        engineer(chat(url), compactor).invoke(asked(TASK), thread())
    compactor.conversations.close()
    body = server.requests[-1].body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file"]
    assert sent(server)[1]["content"].startswith("[Context record.")
    assert "recall(" not in json.dumps(sent(server))
    assert figures(server).refused == 0


def test_threads_at_once_do_not_mix(compactor: CompactorMiddleware):
    servers = {name: strict_server() for name in ("one", "two")}

    async def talk(name: str) -> None:
        with servers[name].serve() as url:
            await engineer(chat(url), compactor).ainvoke(asked(f"I am {name}. {TASK}"), thread(name))

    async def both() -> None:
        await asyncio.gather(*map(talk, servers))

    asyncio.run(both())
    for name, other in (("one", "two"), ("two", "one")):
        assert_kept_in_the_window(servers[name], compactor.session(thread(name)))
        assert all(f"I am {name}" in json.dumps(sent(servers[name], at)) for at in range(STEPS + 1))
        assert not any(f"I am {other}" in json.dumps(sent(servers[name], at)) for at in range(STEPS + 1))


def test_without_a_thread_runs_are_apart_unless_their_messages_are_passed_on(compactor: CompactorMiddleware):
    server = strict_server([*script(), *texts(2)])
    with server.serve() as url:
        agent = engineer(chat(url), compactor)
        said = agent.invoke(asked(TASK), {})["messages"]
        other = agent.invoke(asked(TASK))["messages"]
        said = agent.invoke({"messages": [*said, HumanMessage(NEXT_TASK)]})["messages"]
    assert [message["content"] for message in sent(server, -2)[1:]] == [TASK]
    assert len(compactor.session({}, other).history()) == 1
    session = compactor.session({}, said)
    assert len(session.history()) == len(said) - 1
    assert sent(server)[: len(sent(server, -3))] == sent(server, -3)


def test_an_agent_inside_of_a_tool_has_a_conversation_of_its_own(compactor: CompactorMiddleware):
    asks = [ScriptedReply(calls=(ScriptedCall("ask_reader", {"task": f"Check part {at}."}),)) for at in range(8)]
    answers = [each for ask in asks for each in (ask, *script(6)[:-1], ScriptedReply("It is fine."))]
    server = strict_server([*answers, ScriptedReply(ANSWER)])
    with server.serve() as url:
        reader = create_agent(chat(url), [read_file], system_prompt="Read.", middleware=[compactor])

        def ask_reader(task: str) -> str:
            """Ask somebody who reads files."""
            return str(reader.invoke(asked(task))["messages"][-1].text)

        agent = engineer(chat(url), compactor, tools=[ask_reader], checkpointer=InMemorySaver())
        agent.invoke(asked(TASK), thread())
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    session = compactor.session(thread())
    assert (session.id, len(session.history())) == ("run", 2 * len(asks) + 1)
    assert [message["role"] for message in sent(server)] == ["system", "user", *["assistant", "tool"] * len(asks)]


def test_a_graph_of_your_own_sends_what_compacted_hands_back(compactor: CompactorMiddleware):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
    server = strict_server([*script()[:-1], recall, ScriptedReply(ANSWER)])
    tools = [read_file, *compactor.tools]
    with server.serve() as url:
        model = chat(url).bind_tools(tools)

        def call_model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            session = compactor.session(config, state["messages"])
            return {"messages": [model.invoke(compacted(state["messages"], session, tools=tools))]}

        graph = StateGraph(MessagesState).add_node("model", call_model).add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
        given = {"messages": [SystemMessage(SYSTEM), HumanMessage(TASK)]}
        graph.compile().invoke(given, {**thread(), "recursion_limit": 3 * STEPS})
    session = compactor.session(thread())
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    assert figures(server).rewrites <= len(session.compactions())
    assert sent(server)[0] == {"role": "system", "content": SYSTEM}
    assert "def part_3_7(" in sent(server)[-1]["content"]


def odd_messages() -> list[AnyMessage]:
    """What agents have in their state beside texts: unreadable calls, failures, pictures, a film, foreign blocks."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    film = {"type": "media", "mime_type": "video/mp4", "data": "AAAA"}
    unreadable = {"name": "read_file", "args": '{"path": ', "id": "call_1", "error": None, "type": "invalid_tool_call"}
    searched = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "clock"}}
    result = {"type": "tool_result", "tool_use_id": "call_3", "content": "fine"}
    return [
        SystemMessage("Be short."),
        HumanMessage(["See here:", picture, {"type": "text", "text": TASK}]),
        AIMessage("", invalid_tool_calls=[unreadable]),
        ToolMessage("could not be read", tool_call_id="call_1", name="read_file", status="error"),
        HumanMessage([film, {"type": "text", "text": "And this?"}], name="ann"),
        AIMessage([searched, "I look.", {"type": "tool_use", "id": "call_2", "name": "read_file", "input": {}}]),
        ToolMessage([{"type": "text", "text": "fine"}], tool_call_id="call_2", artifact={"rows": [1]}),
        AIMessage("", tool_calls=[{"name": "read_file", "args": {}, "id": "call_3"}]),
        HumanMessage([result, {"type": "text", "text": "Go on."}]),
    ]


def test_odd_messages_are_handed_back_as_they_are(compactor: CompactorMiddleware):
    given = odd_messages()
    session = compactor.session(thread())
    *same, results, said = compacted(given, session)
    assert all(one is other for one, other in zip(same, given[:-1], strict=True))
    assert isinstance(results, ToolMessage)
    assert (results.tool_call_id, results.text, said.text) == ("call_3", "fine", "Go on.")
    assert compacted(given, session) == [*same, results, said]
    assert (session.id, len(session.history())) == ("run", 9)


def test_odd_messages_stay_what_they_are_when_they_are_shortened(compactor: CompactorMiddleware):
    odd = odd_messages()
    long = [read_file(file_path(number)) for number in range(1, 4)]
    odd[3] = odd[3].model_copy(update={"content": f"Error: {long[0]}"})
    odd[6] = odd[6].model_copy(update={"content": [{"type": "text", "text": "\n".join(long)}]})
    steps: list[AnyMessage] = []
    rebuilt: set[type] = set()
    session = compactor.session(thread())
    for number in range(STEPS):
        call = {"name": "read_file", "args": '{"path": ', "id": f"step_{number}", "error": None}
        thinking = {"type": "thinking", "thinking": "I look.", "signature": f"signed {number}"}
        steps.append(AIMessage([thinking], invalid_tool_calls=[{**call, "type": "invalid_tool_call"}]))
        failure = f"Error: {read_file(file_path(number))}"
        steps.append(ToolMessage(failure, tool_call_id=f"step_{number}", name="read_file", status="error"))
        found = compacted([*odd, *steps], session)
        ids = [call["id"] for each in found if isinstance(each, AIMessage) for call in each.invalid_tool_calls]
        results = [each for each in found if isinstance(each, ToolMessage) and each.tool_call_id in ids]
        assert [each.tool_call_id for each in results] == ids
        assert all(each.status == "error" for each in results)
        rebuilt |= {type(each) for each in found if each not in steps}
    assert len(session.compactions()) >= 2
    assert {AIMessage, ToolMessage} <= rebuilt


@pytest.mark.parametrize("wrong", [7, b"run", InMemorySaver()])
def test_what_is_not_a_session_is_refused_with_a_word(wrong: Any):
    with pytest.raises(BadSetting, match=f"expected a Session or its id, got {type(wrong).__name__}"):
        CompactorMiddleware(wrong)
    with pytest.raises(BadSetting, match=f"expected a Session, got {type(wrong).__name__}"):
        compacted([HumanMessage("Go on.")], wrong)


def test_a_message_with_an_unknown_role_is_named(compactor: CompactorMiddleware):
    from langchain_core.messages import ChatMessage

    with pytest.raises(BadMessage, match="message 1, field 'role'"):
        compacted([HumanMessage("Hi."), ChatMessage("Hm.", role="narrator")], compactor.session(thread()))


def test_without_langchain_the_extra_is_named_and_an_old_one_is_said_to_be_old(monkeypatch: pytest.MonkeyPatch):
    adapter = "context_compactor.integrations.langchain"
    monkeypatch.delitem(sys.modules, adapter)
    with monkeypatch.context() as old:
        old.delattr("langchain.agents.middleware.ModelRequest")
        with pytest.raises(BadSetting, match=r"langchain>=1\.0 is needed"):
            import_module(adapter)
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(MissingExtra, match="langchain"):
        import_module(adapter)


def compare() -> dict[str, RunFigures]:
    """The sixty steps with the adapter, with nothing, and with each of LangChain's own ways.

    Summaries are written by a function that repeats every rule it reads: no model could write better ones.
    """
    trigger, keep = ("tokens", WINDOW * 3 // 4), ("tokens", WINDOW // 4)

    def summarizing(url: str, **options: Any) -> AgentMiddleware:
        return SummarizationMiddleware(chat(url), trigger=trigger, keep=keep, summarizer=repeat_rules, **options)

    edits = [ClearToolUsesEdit(trigger=trigger[1])]
    return {
        "context-compactor": _with_the_adapter(),
        "nothing": _on_its_own(lambda _: ()),
        "SummarizationMiddleware": _on_its_own(lambda url: [summarizing(url)]),
        "with `trim_tokens_to_summarize=None`": _on_its_own(
            lambda url: [summarizing(url, trim_tokens_to_summarize=None)]
        ),
        "ContextEditingMiddleware": _on_its_own(lambda _: [ContextEditingMiddleware(edits=edits)]),
    }


def repeat_rules(messages: Sequence[AnyMessage]) -> str:
    text = "\n".join(message.text for message in messages)
    return "Find why the login fails. " + " ".join(rule for rule in RULES if rule in text)


def _with_the_adapter() -> RunFigures:
    with tempfile.TemporaryDirectory() as folder:
        compactor = middleware_in(Path(folder))
        found = _on_its_own(lambda _: [compactor])
        compactor.conversations.close()
    return found


def _on_its_own(middleware: Callable[[str], Sequence[AgentMiddleware]]) -> RunFigures:
    server = strict_server()
    with server.serve() as url:
        try:
            engineer(chat(url), *middleware(url)).invoke(asked(TASK), thread())
        except BadRequestError:
            assert server.refusals
    return figures(server)


def test_ours_overflows_nowhere_and_keeps_no_fewer_rules_than_langchains_own_ways():
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
