"""The plugin for Google's ADK, with its own runner and Gemini client against the strict server."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import Agent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.events import Event
from google.adk.models import Gemini, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import AgentTool
from google.genai import types
from google.genai.errors import ClientError
from pydantic import BaseModel

from context_compactor import Session
from context_compactor.errors import BadSetting
from context_compactor.integrations.adk import CompactorPlugin
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
    figures,
    file_path,
    read_file,
    script,
    strict_server,
)

pytestmark = [
    # Google's client makes a subclass of aiohttp's session.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\] EventsCompactionConfig:UserWarning"),
]

# Nobody closes the sockets of a client whose loop is not ours.
leaves_sockets = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/adk.md"
STREAM = RunConfig(streaming_mode=StreamingMode.SSE)
INSTRUCTION_MARK = "<<<BEGIN_SYSTEM_INSTRUCTION>>>"


def store_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'sessions.db'}"


def plugin_in(folder: Path) -> CompactorPlugin:
    return CompactorPlugin(window=WINDOW, store=store_in(folder))


def opened(folder: Path, name: str = "work/ann/s1/engineer") -> Session:
    return Session.open(name, store=store_in(folder), profile="embedded")


def model_at(url: str, kind: type[Gemini] = Gemini) -> Gemini:
    return kind(model="gemini-3-pro-preview", base_url=url, client_kwargs={"api_key": "any"})


def engineer(model: Gemini, **options: Any) -> Agent:
    return Agent(**{"name": "engineer", "model": model, "instruction": SYSTEM, "tools": [read_file], **options})


@asynccontextmanager
async def running(
    agent: Agent, *plugins: CompactorPlugin, service: Any = None, **options: Any
) -> AsyncIterator[Runner]:
    app = App(name="work", root_agent=agent, plugins=list(plugins), **options)
    helpers = [tool.agent for tool in agent.tools if isinstance(tool, AgentTool)]
    try:
        async with Runner(
            app=app, session_service=service or InMemorySessionService(), auto_create_session=True
        ) as runner:
            yield runner
    finally:
        for each in (agent, *agent.sub_agents, *helpers):
            await each.canonical_model.api_client.aio.aclose()


@pytest.fixture
def collected() -> Iterator[None]:
    """What a test leaves is removed while its filters for warnings count."""
    yield
    gc.collect()


async def ask(runner: Runner, task: str, *, user: str = "ann", session: str = "s1", **options: Any) -> Event:
    """Give the agent a task; its last event."""
    message = types.UserContent(task)
    said = [each async for each in runner.run_async(user_id=user, session_id=session, new_message=message, **options)]
    return said[-1]


def text_of(event: Event) -> str | None:
    return event.content.parts[0].text if event.content and event.content.parts else None


def work(
    url: str, folder: Path, *tasks: str, kind: type[Gemini] = Gemini, run: Any = None, **options: Any
) -> list[Any]:
    """The answers of an agent that is given one task after the other."""

    async def answers() -> list[Any]:
        async with running(engineer(model_at(url, kind), **options), plugin_in(folder)) as runner:
            return [text_of(await ask(runner, task, run_config=run)) for task in tasks]

    return asyncio.run(answers())


def calls(name: str, *arguments: dict[str, Any]) -> ScriptedReply:
    return ScriptedReply(calls=tuple(ScriptedCall(name, each) for each in arguments))


def reads(*paths: str) -> list[ScriptedReply]:
    return [calls("read_file", {"path": path}) for path in paths]


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    return server.requests[at].body["contents"]


def assert_kept_in_the_window(server: StrictServer, folder: Path) -> None:
    found = figures(server)
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    with opened(folder) as session:
        compactions = len(session.compactions())
        assert session.usage().source == "anchored on the last reply"
    assert compactions >= 3
    assert found.rewrites <= compactions


def test_sixty_steps_in_a_small_window_overflow_nowhere_and_keep_every_rule(tmp_path: Path):
    server = strict_server()
    with server.serve() as url:
        assert work(url, tmp_path, TASK) == [ANSWER]
    assert_kept_in_the_window(server, tmp_path)


def test_a_streamed_run_is_kept_in_the_window_too(tmp_path: Path):
    server = strict_server()
    with server.serve() as url:
        assert work(url, tmp_path, TASK, run=STREAM) == [ANSWER]
    assert_kept_in_the_window(server, tmp_path)
    assert all(request.path.endswith(":streamGenerateContent") for request in server.requests)


@leaves_sockets
@pytest.mark.usefixtures("collected")
def test_a_synchronous_run_is_kept_in_the_window_too(tmp_path: Path):
    server = strict_server()
    with server.serve() as url:
        app = App(name="work", root_agent=engineer(model_at(url)), plugins=[plugin_in(tmp_path)])
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        events = list(runner.run(user_id="ann", session_id="s1", new_message=types.UserContent(TASK)))
        asyncio.run(runner.close())
    assert text_of(events[-1]) == ANSWER
    assert_kept_in_the_window(server, tmp_path)


@pytest.mark.parametrize("run", [None, STREAM])
def test_parallel_calls_thoughts_and_signatures_are_sent_back_as_they_came(tmp_path: Path, run: Any):
    paths = [(file_path(at), file_path(at + 1)) for at in range(1, STEPS, 2)]
    replies = [
        ScriptedReply("I look.", "I wonder.", calls=calls("read_file", {"path": one}, {"path": two}).calls)
        for one, two in paths
    ]
    server = strict_server([*replies, ScriptedReply(ANSWER, "I know."), ScriptedReply("Yes.", "I am sure.")])
    with server.serve() as url:
        assert work(url, tmp_path, TASK, NEXT_TASK, run=run)[-1] in ("Yes.", "I am sure.")
    assert figures(server).refused == 0
    with opened(tmp_path) as session:
        assert len(session.compactions()) >= 3
        assert session.id == "work/ann/s1/engineer"
    signed = [part for content in sent(server) for part in content["parts"] if "thoughtSignature" in part]
    assert len(signed) >= 3
    assert all(base64.urlsafe_b64decode(part["thoughtSignature"]).startswith(b"sig_") for part in signed)


class GeminiWithoutIds(Gemini):
    """As earlier models answer: ADK gives their calls ids, and takes them away before each request."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        async for response in super().generate_content_async(llm_request, stream):
            for part in (response.content and response.content.parts) or ():
                if part.function_call:
                    part.function_call.id = None
                    part.thought_signature = base64.urlsafe_b64decode("skip_thought_signature_validator")
            yield response


def test_calls_without_an_id_are_recognized_in_the_next_request(tmp_path: Path):
    server = strict_server()
    with server.serve() as url:
        assert work(url, tmp_path, TASK, kind=GeminiWithoutIds) == [ANSWER]
    assert '"id"' not in json.dumps(sent(server))
    assert_kept_in_the_window(server, tmp_path)


def test_what_is_not_shortened_is_the_object_that_adk_made(tmp_path: Path):
    given: list[types.Content] = []
    received: list[types.Content] = []

    class Watching(CompactorPlugin):
        async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:
            given[:] = llm_request.contents
            await super().before_model_callback(callback_context=callback_context, llm_request=llm_request)
            received[:] = llm_request.contents

    server = strict_server()

    async def talk(url: str) -> None:
        async with running(engineer(model_at(url)), Watching(window=WINDOW, store=store_in(tmp_path))) as runner:
            await ask(runner, TASK)

    with server.serve() as url:
        asyncio.run(talk(url))
    own = [any(content is each for each in given) for content in received]
    assert not own[0]
    assert sum(own) > len(own) / 2


def test_after_a_rewind_nothing_of_the_way_that_was_left_is_sent_and_the_next_run_goes_on(tmp_path: Path):
    left = reads(*(f"src/left_{at}.py" for at in range(30)))
    other = reads("src/right_1.py")
    server = strict_server([*script(), *left, ScriptedReply("It was left."), *other, ScriptedReply("It is right.")])

    async def talk(url: str) -> int:
        async with running(engineer(model_at(url)), plugin_in(tmp_path)) as runner:
            await ask(runner, TASK)
            last = await ask(runner, "Take the first way.")
            assert text_of(last) == "It was left."
            await runner.rewind_async(user_id="ann", session_id="s1", rewind_before_invocation_id=last.invocation_id)
            before = len(server.requests)
            await ask(runner, "Take the second way.")
            await ask(runner, NEXT_TASK)
            return before

    with server.serve() as url:
        before = asyncio.run(talk(url))
    assert figures(server).refused == 0
    for request in server.requests[before:]:
        written = json.dumps(request.body["contents"])
        assert "left" not in re.sub("lines left out|words left out", "", written)
        assert "first way" not in written
        assert all(rule in written for rule in RULES)
    assert "It is right." in json.dumps(sent(server)[-2])
    assert NEXT_TASK in json.dumps(sent(server)[-1])


def test_another_program_goes_on_where_the_conversation_ended(tmp_path: Path):
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    server = strict_server([*script(), ScriptedReply("It exports nothing.")])

    async def talk(url: str, task: str) -> None:
        service = SqliteSessionService(str(tmp_path / "adk.db"))
        async with running(engineer(model_at(url)), plugin_in(tmp_path), service=service) as runner:
            await ask(runner, task)

    with server.serve() as url:
        asyncio.run(talk(url, TASK))
        asyncio.run(talk(url, NEXT_TASK))
    found = figures(server)
    assert (found.refused, found.rules) == (0, len(RULES))
    with opened(tmp_path) as session:
        assert session.id == "work/ann/s1/engineer"
        assert found.rewrites <= len(session.compactions())
        assert len(session.history()) == 2 * STEPS + 3


def test_recall_gives_the_original_of_a_file_that_left_the_context(tmp_path: Path):
    server = strict_server([*script()[:-1], calls("recall", {"id": "file_003"}), ScriptedReply(ANSWER)])
    with server.serve() as url:
        work(url, tmp_path, TASK)
    line = "def part_3_7(token, leeway=5): return check(token, 57)"
    assert line in read_file(file_path(3))
    assert line not in json.dumps(sent(server, -2))
    assert line in json.dumps(sent(server)[-1])
    assert 'recall(\\"file_' in json.dumps(sent(server))
    assert figures(server).refused == 0


def test_two_users_with_the_same_session_id_do_not_mix(tmp_path: Path):
    servers = {name: strict_server() for name in ("ann", "bob")}
    plugin = plugin_in(tmp_path)

    async def talk(user: str) -> None:
        with servers[user].serve() as url:
            async with running(engineer(model_at(url))) as runner:
                runner.plugin_manager.register_plugin(plugin)
                runner.plugin_manager.set_skip_closing_plugins(True)
                await ask(runner, f"I am {user}. {TASK}", user=user)

    async def both() -> None:
        await asyncio.gather(*map(talk, servers))
        await plugin.close()

    asyncio.run(both())
    for user, other in (("ann", "bob"), ("bob", "ann")):
        assert (figures(servers[user]).refused, figures(servers[user]).rules) == (0, len(RULES))
        assert all(f"I am {user}" in str(sent(servers[user], at)) for at in range(STEPS + 1))
        assert not any(f"I am {other}" in str(sent(servers[user], at)) for at in range(STEPS + 1))


def test_names_with_a_slash_do_not_lead_to_the_session_of_somebody_else(tmp_path: Path):
    server = strict_server([ScriptedReply("Done.")])

    async def talk(url: str) -> None:
        async with running(engineer(model_at(url)), plugin_in(tmp_path)) as runner:
            await ask(runner, "First.", user="a/b", session="c")
            await ask(runner, "Second.", user="a", session="b/c")

    with server.serve() as url:
        asyncio.run(talk(url))
    assert [content["parts"][0]["text"] for content in sent(server)] == ["Second."]
    for name in ("work/a%2Fb/c/engineer", "work/a/b%2Fc/engineer"):
        with opened(tmp_path, name) as session:
            assert len(session.history()) == 1


def test_an_agent_that_takes_over_has_a_session_of_its_own_and_both_go_on(tmp_path: Path):
    to_helper, to_lead = (calls("transfer_to_agent", {"agent_name": name}) for name in ("helper", "engineer"))
    steps = reads(*map(file_path, range(1, STEPS + 1)))
    helped = [*steps[:25], to_helper, *steps[25:50], ScriptedReply("I helped.")]
    server = strict_server([*helped, *steps[50:], to_lead, *steps[:10], ScriptedReply(ANSWER)])

    async def talk(url: str) -> list[Any]:
        helper = engineer(model_at(url), name="helper", description="It helps.")
        async with running(engineer(model_at(url), sub_agents=[helper]), plugin_in(tmp_path)) as runner:
            return [(each.author, text_of(each)) for each in [await ask(runner, TASK), await ask(runner, NEXT_TASK)]]

    with server.serve() as url:
        assert asyncio.run(talk(url)) == [("helper", "I helped."), ("engineer", ANSWER)]
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    for name in ("engineer", "helper"):
        with opened(tmp_path, f"work/ann/s1/{name}") as session:
            assert session.id == f"work/ann/s1/{name}"
            assert len(session.compactions()) >= 2


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
def test_agents_that_run_at_once_have_sessions_of_their_own(tmp_path: Path):
    server = strict_server([*script()[:-1], *script()])

    async def talk(url: str) -> None:
        agents = [engineer(model_at(url), name=name) for name in ("one", "two")]
        app = App(name="work", root_agent=ParallelAgent(name="both", sub_agents=agents), plugins=[plugin_in(tmp_path)])
        async with Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True) as runner:
            await ask(runner, TASK)
        for agent in agents:
            await agent.canonical_model.api_client.aio.aclose()

    with server.serve() as url:
        asyncio.run(talk(url))
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    for name in ("one", "two"):
        with opened(tmp_path, f"work/ann/s1/{name}/both.{name}") as session:
            assert len(session.compactions()) >= 2


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning")  # AgentTool uses it
@pytest.mark.parametrize("is_tool", [True, False])
def test_an_agent_that_is_a_tool_does_not_disturb_the_conversation_and_can_recall(tmp_path: Path, is_tool: bool):
    steps = reads(*map(file_path, range(1, 31)))
    helped = [
        calls("helper", {"request": "Look."}),
        *steps,
        calls("recall", {"id": "file_003"}),
        ScriptedReply("Seen."),
    ]
    server = strict_server([*steps[:10], *helped, *helped, *steps[10:], ScriptedReply(ANSWER)])

    async def talk(url: str) -> Any:
        mode = {} if is_tool else {"mode": "single_turn"}
        helper = engineer(model_at(url), name="helper", description="It helps.", **mode)
        own = {"tools": [read_file, AgentTool(helper)]} if is_tool else {"sub_agents": [helper]}
        async with running(engineer(model_at(url), **own), plugin_in(tmp_path)) as runner:
            return text_of(await ask(runner, TASK))

    with server.serve() as url:
        assert asyncio.run(talk(url)) == ANSWER
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    recalled = [
        request for request in server.requests if '"name": "recall"' in json.dumps(request.body["contents"][-1:])
    ]
    assert len(recalled) == 2
    assert all("def part_3_7" in json.dumps(request.body["contents"][-1]) for request in recalled)
    with opened(tmp_path) as session:
        assert session.id == "work/ann/s1/engineer"
        assert len(session.history()) == 2 * 32 + 1


def test_an_instruction_that_stands_at_the_end_of_each_request_is_no_part_of_the_history(tmp_path: Path):
    server = strict_server([*script(), ScriptedReply("It exports nothing.")])
    with server.serve() as url:
        work(url, tmp_path, TASK, NEXT_TASK, static_instruction=SYSTEM, instruction="Be short.")
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
    marked = [[INSTRUCTION_MARK in str(content) for content in request.body["contents"]] for request in server.requests]
    assert all(sum(each) == 1 for each in marked)
    assert all(each[-1] for each in marked[1 : STEPS + 1])
    assert marked[-1][-2]
    with opened(tmp_path) as session:
        assert session.id == "work/ann/s1/engineer"
        assert INSTRUCTION_MARK not in str(session.history())
        said = [[each for each in sent(server, at) if INSTRUCTION_MARK not in str(each)] for at in range(STEPS + 2)]
        assert sum(after[: len(before)] != before for before, after in pairwise(said)) <= len(session.compactions())


def test_an_agent_that_answers_in_a_schema_without_tools_is_given_none(tmp_path: Path):
    class Answer(BaseModel):
        text: str

    server = strict_server([ScriptedReply('{"text": "Done."}')])
    with server.serve() as url:
        work(url, tmp_path, TASK, tools=[], output_schema=Answer)
        work(url, tmp_path, TASK, tools=[])
    first, second = (request.body.get("tools") for request in server.requests)
    assert first is None
    assert [each["name"] for each in second[0]["functionDeclarations"]] == ["recall", "search_archive", "facts"]


def test_a_request_whose_history_is_on_the_providers_side_is_left_as_it_is(tmp_path: Path):
    request = LlmRequest(contents=[types.UserContent(TASK)], previous_interaction_id="interaction")
    plugin: Any = plugin_in(tmp_path)
    asyncio.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    assert (request.contents, request.tools_dict) == ([types.UserContent(TASK)], {})


def test_an_open_session_is_taken_for_an_app_with_one_conversation(tmp_path: Path):
    server = strict_server(script(5))

    async def talk(url: str, session: Session) -> None:
        async with running(engineer(model_at(url)), CompactorPlugin(session)) as runner:
            await ask(runner, TASK)

    with server.serve() as url, Session.open("mine", window=WINDOW, store=store_in(tmp_path)) as session:
        asyncio.run(talk(url, session))
        assert len(session.history()) == 11


def test_what_is_not_a_session_is_refused_with_a_word():
    wrong: Any = InMemorySessionService()
    with pytest.raises(BadSetting, match="session: expected a Session or its id, got InMemorySessionService"):
        CompactorPlugin(wrong)


def test_a_wrong_option_ends_the_run_with_a_word(tmp_path: Path):
    plugin = CompactorPlugin(window="large", store=f"sqlite:///{tmp_path / 'sessions.db'}")

    async def talk() -> None:
        async with running(engineer(model_at("http://127.0.0.1:9")), plugin) as runner:
            await ask(runner, TASK)

    with pytest.raises(RuntimeError, match="'context_compactor' during 'before_model_callback' callback: window"):
        asyncio.run(talk())


class UserSummaries(LlmEventSummarizer):
    """ADK's summarizer, but with a summary that may stand in front of a call: ADK gives it the role of the model."""

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        summary = await super().maybe_summarize_events(events=events)
        if summary and summary.actions.compaction and summary.actions.compaction.compacted_content:
            summary.actions.compaction.compacted_content.role = "user"
        return summary


def compare() -> dict[str, RunFigures]:
    """The sixty steps with the plugin, with nothing, with ADK's compaction, and with the same in a form that the strict
    server takes."""
    return {
        "context-compactor": _with_the_plugin(),
        "nothing": _on_its_own(None),
        "EventsCompactionConfig": _on_its_own(LlmEventSummarizer),
        "EventsCompactionConfig, summary as user": _on_its_own(UserSummaries),
    }


def _with_the_plugin() -> RunFigures:
    server = strict_server()
    with tempfile.TemporaryDirectory() as folder, server.serve() as url:
        work(url, Path(folder), TASK)
    return figures(server)


def _on_its_own(summarizer: type[LlmEventSummarizer] | None) -> RunFigures:
    """ADK alone. Its summaries repeat the task word for word, as by a model that loses nothing."""
    server = strict_server()
    summaries = strict_server(
        [ScriptedReply(f"The user asked: {TASK} Tools used: read_file. Nothing is wrong so far.")]
    )

    async def talk(url: str, other_url: str) -> None:
        writer = model_at(other_url)
        config = summarizer and EventsCompactionConfig(
            token_threshold=WINDOW * 3 // 4, event_retention_size=10, summarizer=summarizer(llm=writer)
        )
        try:
            async with running(engineer(model_at(url)), events_compaction_config=config) as runner:
                await ask(runner, TASK)
        except ClientError:
            assert server.refusals
        await writer.api_client.aio.aclose()

    with server.serve() as url, summaries.serve() as other_url:
        asyncio.run(talk(url, other_url))
    assert not summaries.refusals
    return figures(server)


def test_the_plugin_overflows_less_and_keeps_no_fewer_rules_than_adks_own_compaction():
    found = compare()
    ours = found["context-compactor"]
    assert (ours.refused, ours.requests) == (0, STEPS + 1)
    assert all(ours.rules >= each.rules for each in found.values())
    assert found["nothing"].overflows == 1


@leaves_sockets
@pytest.mark.usefixtures("collected")
def test_the_snippet_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    snippet = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for step in range(1, STEPS + 1):
        Path(file_path(step)).write_text(read_file(file_path(step)))
    server = strict_server()
    with server.serve() as url:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
        monkeypatch.setenv("GOOGLE_API_KEY", "any")
        exec(compile(snippet.replace("200_000", str(WINDOW)), str(PAGE), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip() == ANSWER
    assert (figures(server).requests, figures(server).refused) == (STEPS + 1, 0)
    assert "[Context record" in json.dumps(sent(server))
