"""The adapter for Pydantic AI, with its own agents and models against the strict server."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra pydantic-ai")

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RunContext,
    Tool,
    ToolReturn,
    UsageLimits,
)
from pydantic_ai import messages as parts
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from context_compactor import Session
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.integrations.pydantic_ai import CompactorCapability
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

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/pydantic-ai.md"
ADAPTER = "context_compactor.integrations.pydantic_ai"
ALWAYS = UsageLimits(request_limit=None)
PIXEL = parts.BinaryContent.from_data_uri(
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def chat(url: str) -> Model:
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any"))


def responses(url: str) -> Model:
    return OpenAIResponsesModel("gpt-5", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="any"))


def claude(url: str) -> Model:
    return AnthropicModel("claude-opus-5", provider=AnthropicProvider(base_url=url, api_key="any"))


MODELS = [chat, responses, claude]
every_model = pytest.mark.parametrize("model_at", MODELS)


@pytest.fixture
def compactor(tmp_path: Path) -> Any:
    capability = CompactorCapability(window=WINDOW, store=f"sqlite:///{tmp_path / 'sessions.db'}")
    yield capability
    capability.conversations.close()


def engineer(model: Model, *capabilities: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(model, **{"instructions": SYSTEM, "tools": [read_file], "capabilities": capabilities, **options})


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    """The messages of a request."""
    body = server.requests[at].body
    return list(body.get("messages") or body["input"])


def texts(count: int) -> list[ScriptedReply]:
    return [ScriptedReply(f"answer {number}") for number in range(1, count + 1)]


def assert_kept_in_the_window(server: StrictServer, session: Session) -> None:
    found, compactions = figures(server), len(session.compactions())
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


async def run(agent: Agent[Any, Any], task: str, **options: Any) -> Any:
    return await agent.run(task, usage_limits=ALWAYS, **options)


async def stream(agent: Agent[Any, Any], task: str, **options: Any) -> Any:
    async with agent.run_stream(task, usage_limits=ALWAYS, **options) as result:
        assert "".join([piece async for piece in result.stream_text(delta=True)]) == ANSWER
        return result


def work(agent: Agent[Any, Any], *tasks: Any, way: Any = run, history: Any = None) -> list[Any]:
    """The results of an agent that is given one task after the other in one conversation."""

    async def results() -> list[Any]:
        found: list[Any] = []
        async with agent:
            for task in tasks:
                found.append(await way(agent, task, message_history=found[-1].all_messages() if found else history))
        return found

    return asyncio.run(results())


@contextmanager
def loop_of(agent: Callable[[], Any]) -> Iterator[None]:
    """A loop for `run_sync`, which leaves it and the model's connections open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
        loop.run_until_complete(_closed(agent()))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _closed(agent: Agent[Any, Any]) -> None:
    async with agent:
        pass


@every_model
@pytest.mark.parametrize("way", [run, stream])
def test_sixty_steps_stay_in_the_window(way: Any, model_at: Any, compactor: CompactorCapability):
    server = strict_server()
    with server.serve() as url:
        (result,) = work(engineer(model_at(url), compactor), TASK, way=way)
    session = compactor.conversations.session(result.conversation_id)
    assert_kept_in_the_window(server, session)
    assert session.usage().source == "anchored on the last reply"
    assert way is not stream or server.requests[-1].body["stream"]
    assert [type(message) for message in result.all_messages()] == [ModelRequest, ModelResponse] * (STEPS + 1)
    assert result.all_messages()[2].parts[0].content == read_file(file_path(1))


@every_model
def test_a_synchronous_run_stays_in_the_window(model_at: Any, compactor: CompactorCapability):
    server = strict_server()
    with server.serve() as url:
        agent = engineer(model_at(url), compactor)
        with loop_of(lambda: agent):
            result = agent.run_sync(TASK, usage_limits=ALWAYS)
    assert result.output == ANSWER
    assert_kept_in_the_window(server, compactor.conversations.session(result.conversation_id))


@every_model
def test_thinking_is_sent_back_as_its_provider_takes_it(model_at: Any, compactor: CompactorCapability):
    replies = [ScriptedReply(thinking="I look.", calls=each.calls) if each.calls else each for each in script()]
    server = strict_server(replies)
    settings: dict[Any, Any] = {
        claude: AnthropicModelSettings(max_tokens=4_000, anthropic_thinking={"type": "adaptive"}),
        responses: OpenAIResponsesModelSettings(openai_reasoning_effort="low"),
    }
    with server.serve() as url:
        (result,) = work(engineer(model_at(url), compactor, model_settings=settings.get(model_at)), TASK)
    assert_kept_in_the_window(server, compactor.conversations.session(result.conversation_id))
    field = {chat: "reasoning_content", responses: "encrypted_content", claude: "signature"}[model_at]
    assert field in json.dumps(sent(server)[-4:])


@every_model
def test_a_conversation_goes_on_in_the_next_run_and_in_another_program(
    model_at: Any, compactor: CompactorCapability, tmp_path: Path
):
    server = strict_server([*script(), *texts(2)])
    with server.serve() as url:
        first, second = work(engineer(model_at(url), compactor), TASK, NEXT_TASK)
        compactor.conversations.close()
        stored = parts.ModelMessagesTypeAdapter.validate_json(second.all_messages_json())
        (third,) = work(engineer(model_at(url), compactor), "And now?", history=stored)
    session = compactor.conversations.session(third.conversation_id)
    assert (session.id, figures(server).refused) == (first.conversation_id, 0)
    assert len(session.history()) == 2 * STEPS + 5  # the last reply comes with the next request
    assert all(rule in str(sent(server)) for rule in RULES)
    assert figures(server).rewrites <= len(session.compactions())


@every_model
def test_after_a_rewind_nothing_of_the_way_that_was_left_is_sent(model_at: Any, compactor: CompactorCapability):
    server = strict_server([*script(), *texts(2)])
    with server.serve() as url:
        agent = engineer(model_at(url), compactor)
        (left,) = work(agent, TASK)
        other, last = work(agent, "Take another way.", NEXT_TASK, history=left.all_messages()[:-3])
    assert other.conversation_id == last.conversation_id == left.conversation_id
    assert figures(server).refused == 0
    for at in (-2, -1):
        assert file_path(STEPS) not in str(sent(server, at))
        assert ANSWER not in str(sent(server, at))
        assert all(rule in str(sent(server, at)) for rule in RULES)
    assert "Take another way." in str(sent(server, -1))
    assert sent(server)[: len(sent(server, -2))] == sent(server, -2)
    session = compactor.conversations.session(last.conversation_id)
    assert session.id == f"{left.conversation_id}~2"
    assert len(session.history()) == 2 * STEPS + 1


def test_recall_gives_the_original_of_a_file_that_left_the_context(compactor: CompactorCapability):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
    server = strict_server([*script()[:-1], recall, ScriptedReply(ANSWER)])
    with server.serve() as url:
        work(engineer(chat(url), compactor), TASK)
    line = "def part_3_7(token, leeway=5): return check(token, 57)"
    assert line in read_file(file_path(3))
    assert line not in json.dumps(sent(server, -2))
    assert line in json.dumps(sent(server)[-1])
    assert 'recall("id")' in str(sent(server))
    assert figures(server).refused == 0


def test_without_the_tools_no_record_names_recall(tmp_path: Path):
    server = strict_server()
    capability = CompactorCapability(window=WINDOW, store=f"sqlite:///{tmp_path / 'sessions.db'}", recall=False)
    with server.serve() as url, closing(capability.conversations):
        work(engineer(chat(url), capability), TASK)
    assert [tool["function"]["name"] for tool in server.requests[-1].body["tools"]] == ["read_file"]
    assert "Context record" in str(sent(server))
    assert "recall" not in str(sent(server))
    assert figures(server).refused == 0


def test_two_conversations_at_once_do_not_mix(compactor: CompactorCapability):
    servers = {name: strict_server() for name in ("one", "two")}
    agent = engineer(chat("http://127.0.0.1:9"), compactor)

    async def talk(name: str) -> None:
        with servers[name].serve() as url:
            async with chat(url) as model:
                result = await run(agent, f"I am {name}. {TASK}", model=model, conversation_id=name)
            assert result.conversation_id == name
        assert_kept_in_the_window(servers[name], compactor.conversations.session(name))

    async def both() -> None:
        await asyncio.gather(*map(talk, servers))

    asyncio.run(both())
    for name, other in (("one", "two"), ("two", "one")):
        assert all(f"I am {name}" in str(sent(servers[name], at)) for at in range(STEPS + 1))
        assert not any(f"I am {other}" in str(sent(servers[name], at)) for at in range(STEPS + 1))


def test_a_session_of_the_caller_is_used_for_every_run_and_stays_open(tmp_path: Path):
    server = strict_server()
    with server.serve() as url, Session.open("mine", window=WINDOW, store=f"sqlite:///{tmp_path}/s.db") as session:
        capability = CompactorCapability(session)
        work(engineer(chat(url), capability), TASK)
        capability.conversations.close()
        assert_kept_in_the_window(server, session)
        assert session.id == "mine"


@every_model
def test_a_system_prompt_is_always_sent_and_counted(model_at: Any, compactor: CompactorCapability):
    server = strict_server()
    long = "Be careful. " * 1_000
    with server.serve() as url:
        (result,) = work(engineer(model_at(url), compactor, instructions=None, system_prompt=(SYSTEM, long)), TASK)
    assert_kept_in_the_window(server, compactor.conversations.session(result.conversation_id))
    for request in server.requests:
        body = json.dumps(request.body)
        assert (body.count(SYSTEM), body.count(long)) == (1, 1)


class Finding(BaseModel):
    cause: str


def test_answers_with_a_schema_failed_calls_and_calls_in_parallel_are_followed(compactor: CompactorCapability):
    reads = [ScriptedCall("read_file", {"path": file_path(step)}) for step in range(1, 61)]
    wrong = ScriptedReply(calls=(ScriptedCall("final_result", {"reason": "?"}),))
    right = ScriptedReply(calls=(ScriptedCall("final_result", {"cause": ANSWER}),))
    flaky = ScriptedReply("I try.", calls=(ScriptedCall("flaky", {}), ScriptedCall("picture", {}), reads[0]))
    rounds = [ScriptedReply(calls=tuple(reads[at : at + 3])) for at in range(0, 60, 3)]
    server = strict_server([flaky, ScriptedReply("No tool."), *rounds, wrong, right])

    def fail() -> str:
        raise ModelRetry("try another one")

    def picture() -> ToolReturn[str]:
        return ToolReturn("a picture", content=["It shows:", PIXEL])

    tools = [read_file, Tool(fail, name="flaky", max_retries=3), picture]
    with server.serve() as url:
        agent = engineer(chat(url), compactor, tools=tools, output_type=Finding, retries=3)
        (result,) = work(agent, ["Look at this.", PIXEL, TASK])
    assert result.output == Finding(cause=ANSWER)
    session = compactor.conversations.session(result.conversation_id)
    assert (figures(server).refused, figures(server).rules, session.id) == (0, len(RULES), result.conversation_id)
    assert figures(server).rewrites <= len(session.compactions())


class Watcher(AbstractCapability[object]):
    """Notes what is sent, after the other capabilities."""

    def __init__(self) -> None:
        self.sent: list[ModelMessage] = []

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.sent = [*request_context.messages]
        self.history = [*ctx.messages]
        return request_context


def test_messages_that_are_not_shortened_are_the_same_objects_as_in_the_history(compactor: CompactorCapability):
    server, watcher = strict_server(), Watcher()
    with server.serve() as url:
        work(engineer(chat(url), compactor, watcher), TASK)
    own = {id(message) for message in watcher.history}
    built = [message for message in watcher.sent if id(message) not in own]
    assert len(watcher.sent) < len(watcher.history) / 2
    assert len(built) < len(watcher.sent) / 2
    assert watcher.sent[-1] is watcher.history[-1]
    assert isinstance(built[0].parts[0], parts.UserPromptPart)
    assert str(built[0].parts[0].content).startswith("[Context record.")
    assert all(type(part) in (parts.UserPromptPart, parts.ToolReturnPart) for each in built for part in each.parts)


def test_what_a_cut_history_no_longer_has_is_sent_from_the_session_with_every_kind_of_part(
    compactor: CompactorCapability,
):
    thought = parts.ThinkingPart("Hm.", signature="sealed", provider_name="anthropic", id="rs_1")
    native = [
        parts.NativeToolCallPart("web_search", {"query": "clock"}, "native_1", provider_name="anthropic"),
        parts.NativeToolReturnPart("web_search", {"found": ["a clock"]}, "native_1", provider_name="anthropic"),
    ]
    calls = [parts.ToolCallPart("look", {"at": number}, f"look_{number}", id=f"fc_{number}") for number in range(3)]
    plain = parts.ThinkingPart("So.", id="reasoning_content", provider_name="openai")
    answered = ModelResponse([thought, plain, parts.TextPart("I look."), *native, parts.FilePart(PIXEL), *calls])
    results = [
        parts.ToolReturnPart("look", {"clock": [1, 2]}, "look_0", metadata={"own": 1}),
        parts.ToolReturnPart("look", ["a picture", PIXEL], "look_1"),
        parts.ToolReturnPart("look", "no such file", "look_2", outcome="failed"),
    ]
    said = ["See:", PIXEL, parts.ImageUrl("https://example.org/a"), parts.UploadedFile("file-1", "openai")]
    more = [parts.CachePoint(), parts.TextContent("and this", metadata=1)]
    again = parts.RetryFeedbackPart("Once more.", retry=parts.RetryInfo("model_retry"))
    asked = ModelRequest([*results, parts.UserPromptPart([*said, *more]), again])
    history = [ModelRequest([parts.UserPromptPart(TASK)]), answered, asked, ModelResponse([parts.TextPart("Done.")])]
    got: list[list[Any]] = []

    def answer(given: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        got.append(given)
        return ModelResponse([parts.TextPart(ANSWER)])

    agent = engineer(FunctionModel(answer), compactor)
    (whole,) = work(agent, NEXT_TASK, history=history)
    work(agent, "And now?", history=whole.all_messages()[-2:])
    assert got[0][1] is answered
    _, reply, request, *_ = got[1]
    assert (len(got[1]), reply is answered, request is asked) == (7, False, False)
    for part in calls:
        part.id = None
    assert reply.parts == answered.parts
    found = [(part.tool_name, part.tool_call_id, part.outcome, part.content) for part in request.parts[:3]]
    assert found[0] == ("look", "look_0", "success", '{"clock":[1,2]}')
    assert found[1] == ("look", "look_1", "success", ["a picture", PIXEL])
    assert found[2] == ("look", "look_2", "failed", "no such file")
    contents = [part.content for part in request.parts[3:]]
    assert contents == ["See:", *([item] for item in said[1:]), "and this", again.model_response()]


def test_a_run_may_have_no_prompt_but_its_instructions_and_empty_replies(compactor: CompactorCapability):
    got: list[list[ModelMessage]] = []

    def answer(given: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        got.append(given)
        return ModelResponse([parts.TextPart(" " if len(got) == 1 else ANSWER)])

    agent = engineer(FunctionModel(answer), compactor)
    first, second = work(agent, None, NEXT_TASK)
    assert (first.output, second.output) == (" ", ANSWER)
    assert [type(message) for message in got[1]] == [ModelRequest, ModelResponse, ModelRequest]
    assert got[1][:2] == first.all_messages()


def test_a_reply_that_the_provider_has_not_finished_goes_back_as_it_is(compactor: CompactorCapability):
    got: list[list[ModelMessage]] = []

    def answer(given: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        got.append(given)
        return ModelResponse([parts.TextPart(ANSWER)])

    paused = ModelResponse([parts.TextPart("I look")], state="suspended")
    agent = engineer(FunctionModel(answer), compactor)
    (result,) = work(agent, None, history=[ModelRequest([parts.UserPromptPart(TASK)]), paused])
    assert result.output.endswith(ANSWER)
    assert got[0][-1] is paused
    assert len(compactor.conversations.session(result.conversation_id).history()) == 1


def compare() -> dict[str, RunFigures]:
    """The sixty steps in one run with the adapter, with nothing, and with history processors.

    One is that of Pydantic AI's documentation, with a number for this window. The other one keeps the task too.
    """

    def last_thirty(given: list[ModelMessage]) -> list[ModelMessage]:
        return given[-30:]

    def first_and_last_thirty(given: list[ModelMessage]) -> list[ModelMessage]:
        return [given[0], *given[-30:]] if len(given) > 31 else given

    with tempfile.TemporaryDirectory() as folder:
        ours = CompactorCapability(window=WINDOW, store=f"sqlite:///{folder}/sessions.db")
        with closing(ours.conversations):
            return {
                "context-compactor": _run_with(ours),
                "nothing": _run_with(),
                "ProcessHistory: last 30": _run_with(ProcessHistory(last_thirty)),
                "ProcessHistory: first and last 30": _run_with(ProcessHistory(first_and_last_thirty)),
            }


def _run_with(*capabilities: Any) -> RunFigures:
    server = strict_server()
    with server.serve() as url, suppress(ModelHTTPError):
        work(engineer(chat(url), *capabilities), TASK)
    return figures(server)


def test_ours_overflows_nowhere_and_keeps_no_fewer_rules_than_their_own_way():
    assert_no_worse(compare(), PAGE)


def test_it_runs_behind_a_history_processor_whose_result_becomes_the_history(compactor: CompactorCapability):
    server, watcher = strict_server(), Watcher()
    with server.serve() as url:
        agent = engineer(chat(url), compactor, ProcessHistory(lambda given: given), watcher)
        (result,) = work(agent, TASK)
    assert_kept_in_the_window(server, compactor.conversations.session(result.conversation_id))
    assert len(result.all_messages()) == 2 * STEPS + 2


@pytest.mark.parametrize("wrong", [42, chat, SYSTEM.encode()])
def test_what_is_no_session_is_refused_with_a_word(wrong: Any):
    with pytest.raises(BadSetting, match=f"expected a Session or its id, got {type(wrong).__name__}"):
        CompactorCapability(wrong)


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.delitem(sys.modules, ADAPTER)
    with pytest.raises(MissingExtra, match="pydantic-ai"):
        import_module(ADAPTER)


def test_an_old_pydantic_ai_is_refused_with_a_word(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(parts, "ERROR_OUTCOMES")
    monkeypatch.delitem(sys.modules, ADAPTER)
    with pytest.raises(BadSetting, match=r"pydantic-ai-slim>=2\.60 is needed"):
        import_module(ADAPTER)


def test_the_snippet_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    server = strict_server()
    write_files(tmp_path)
    snippet = snippet_of(PAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    names: dict[str, Any] = {"__name__": "snippet"}
    with server.serve() as url, loop_of(lambda: names["agent"]):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        exec(compile(snippet, str(PAGE), "exec"), names)
    assert capsys.readouterr().out == f"{ANSWER}\n"
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
