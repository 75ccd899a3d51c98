"""The adapter for agno, with its own agents and models against the strict server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agno", reason="needs the extra agno")

from agno.agent import Agent
from agno.compaction import Compaction
from agno.compression.manager import CompressionManager
from agno.db.in_memory import InMemoryDb
from agno.media import File, Image
from agno.models.anthropic import Claude
from agno.models.deepseek import DeepSeek
from agno.models.message import Message
from agno.models.openai import OpenAIChat, OpenAIResponses
from agno.run.base import RunStatus
from agno.team import Team
from agno.utils import tokens
from msgspec import structs

from context_compactor import Session
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.integrations import agno as adapter
from context_compactor.integrations.agno import recall_tools, with_compactor
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from tests.integrations.scenario import (
    ANSWER,
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

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/agno.md"
RECALL = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
LINE = "def part_3_7(token, leeway=5): return check(token, 57)"
LIKE_OPENAI: dict[str, Any] = {"api_key": "any", "max_retries": 0}


def chat(url: str, kind: Any = OpenAIChat, name: str = "gpt-5") -> Any:
    return kind(id=name, base_url=f"{url}/v1", **LIKE_OPENAI)


def responses(url: str) -> OpenAIResponses:
    return chat(url, OpenAIResponses)


def claude(url: str) -> Claude:
    return Claude(id="claude-opus-5-1", api_key="any", client_params={"base_url": url, "max_retries": 0})


def thinking_claude(url: str) -> Claude:
    return Claude(**{**vars(claude(url)), "thinking": {"type": "adaptive"}})


def deepseek(url: str) -> DeepSeek:
    return chat(url, DeepSeek, "deepseek-reasoner")


MODELS = [chat, responses, claude]
THINKING_MODELS = [deepseek, responses, thinking_claude]


@contextmanager
def compacted(model: Any, **options: Any) -> Iterator[Any]:
    made = with_compactor(model, **{"window": WINDOW, "store": "sqlite:///sessions.db", **options})
    try:
        yield made
    finally:
        made.conversations.close()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def engineer(model: Any, **options: Any) -> Agent:
    tools = [read_file, *recall_tools(model)]
    given = {"model": model, "tools": tools, "instructions": SYSTEM, "session_id": "run", "telemetry": False}
    return Agent(**{**given, **options})


async def closing(model: Any, work: Awaitable[Any]) -> Any:
    """The result of some work; agno leaves the connections of a model open."""
    try:
        return await work
    finally:
        await model.async_client.close()


def reads(*paths: str, answer: str) -> list[ScriptedReply]:
    calls = (ScriptedCall("read_file", {"path": path}) for path in paths)
    return [*(ScriptedReply(calls=(call,)) for call in calls), ScriptedReply(answer)]


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    body = server.requests[at].body
    return body.get("messages") or body["input"]


def assert_kept_in_the_window(server: StrictServer, session: Session) -> None:
    found, compactions = figures(server), len(session.compactions())
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


@pytest.mark.parametrize("make", MODELS)
def test_sixty_steps_in_a_small_window_overflow_nowhere_and_keep_every_rule(make: Callable[[str], Any]):
    server = strict_server()
    with server.serve() as url, compacted(make(url)) as model:
        assert engineer(model).run(TASK).content == ANSWER
        session = model.conversations.session("run")
        assert_kept_in_the_window(server, session)
        assert session.id == "run"
        assert session.usage().source == "anchored on the last reply"


@pytest.mark.parametrize("make", MODELS)
def test_an_asynchronous_run_is_kept_in_the_window_too(make: Callable[[str], Any]):
    server = strict_server()
    with server.serve() as url, compacted(make(url)) as model:
        assert asyncio.run(closing(model, engineer(model).arun(TASK))).content == ANSWER
        assert_kept_in_the_window(server, model.conversations.session("run"))


@pytest.mark.parametrize("make", MODELS)
def test_a_streamed_run_is_kept_in_the_window_too(make: Callable[[str], Any]):
    server = strict_server()
    with server.serve() as url, compacted(make(url)) as model:
        *_, last = engineer(model).run(TASK, stream=True, yield_run_output=True)
        assert last.content == ANSWER
        assert_kept_in_the_window(server, model.conversations.session("run"))


def test_an_asynchronous_streamed_run_is_kept_in_the_window_too():
    server = strict_server()

    async def last_of(model: Any) -> Any:
        return [each async for each in engineer(model).arun(TASK, stream=True, yield_run_output=True)][-1]

    with server.serve() as url, compacted(chat(url)) as model:
        assert asyncio.run(closing(model, last_of(model))).content == ANSWER
        assert_kept_in_the_window(server, model.conversations.session("run"))


@pytest.mark.parametrize("make", THINKING_MODELS)
def test_a_model_that_thinks_gets_back_what_its_provider_takes(make: Callable[[str], Any]):
    server = strict_server([structs.replace(reply, thinking="Which file is next?") for reply in script()])
    with server.serve() as url, compacted(make(url)) as model:
        assert engineer(model).run(TASK).content == ANSWER
        assert_kept_in_the_window(server, model.conversations.session("run"))


def test_the_model_stays_what_it_is_and_the_given_one_is_left_alone():
    given = responses("http://127.0.0.1:9")
    with compacted(given, window=None) as model:
        assert isinstance(model, OpenAIResponses)
        assert type(model).__name__ == "OpenAIResponses"
        assert (model.id, model.base_url, model.get_provider()) == (given.id, given.base_url, given.get_provider())
        assert (given.use_previous_response_id, model.use_previous_response_id) == (True, False)
        assert model.__deepcopy__({}).conversations is model.conversations
        assert model.conversations.session("any").usage().budget_tokens > 200_000


def test_messages_that_are_not_shortened_are_agnos_own():
    given: list[Message] = []

    class Chat(OpenAIChat):
        def invoke(self, messages: list[Message], **request: Any) -> Any:
            given[:] = messages
            return super().invoke(messages=messages, **request)

    server = strict_server()
    with server.serve() as url, compacted(chat(url, Chat)) as model:
        run = engineer(model).run(TASK)
        ids = {message.id for message in run.messages or []}
        assert [message.id in ids for message in given] == [True, False] + [True] * (len(given) - 2)
        assert len(run.messages or []) == 3 + 2 * STEPS


def test_a_session_remembers_more_than_the_last_runs_that_agno_gives():
    runs = [reads(*(f"run_{run}/{step}.py" for step in range(6)), answer=f"Answer {run}.") for run in range(7)]
    server = strict_server([reply for run in runs for reply in run])
    with server.serve() as url, compacted(chat(url)) as model:
        agent = engineer(model, db=InMemoryDb(), add_history_to_context=True, num_history_runs=2)
        for run in range(7):
            found = agent.run("Go on." if run else TASK)
            assert found.content == f"Answer {run}."
        assert not any(message.content == TASK for message in found.messages or [])
        text, session = json.dumps(sent(server)), model.conversations.session("run")
        assert (figures(server).refused, figures(server).rules, session.id) == (0, len(RULES), "run")
        assert all(f"run_{run}" in text for run in range(7))
        assert figures(server).rewrites == len(session.compactions()) == 2


def test_after_a_rewind_nothing_of_the_way_that_was_left_is_sent_and_the_next_run_goes_on():
    other = reads(*(f"other/way_{step}.py" for step in range(30)), answer="The other way.")
    server = strict_server([*script(), *other, ScriptedReply("And on.")])
    with server.serve() as url, compacted(chat(url)) as model:
        agent = engineer(model, db=InMemoryDb())
        run = agent.run(TASK)
        before = len(server.requests)
        run = agent.continue_run(run_id=run.run_id, continue_from=42, input="Take another way.", session_id="run")
        assert run.content == "The other way."
        run = agent.continue_run(run_id=run.run_id, input="Go on.", session_id="run")
        assert run.content == "And on."
        for at in range(before, len(server.requests)):
            text = json.dumps(sent(server, at))
            assert [step for step in range(1, STEPS + 1) if file_path(step) in text] == [*range(1, 21)]
            assert ANSWER not in text
        assert "Take another way." in text
        assert "other/way_29.py" in text
        found = figures(server)
        assert (found.refused, found.rules, model.conversations.session("run").id) == (0, len(RULES), "run~2")


def test_a_regenerated_answer_takes_the_place_of_the_first_one():
    server = strict_server([*script(3), ScriptedReply("Another answer."), ScriptedReply("And on.")])
    with server.serve() as url, compacted(chat(url)) as model:
        agent = engineer(model, db=InMemoryDb())
        run = agent.run(TASK)
        run = agent.continue_run(run_id=run.run_id, regenerate=True, session_id="run")
        agent.continue_run(run_id=run.run_id, input="Go on.", session_id="run")
        text = json.dumps(sent(server))
        assert (ANSWER in text, "Another answer." in text, figures(server).refused) == (False, True, 0)


@pytest.mark.parametrize("name", [None, "Engineer"])
def test_recall_gives_the_original_of_a_file_that_left_the_context(name: str | None):
    server = strict_server([*script()[:-1], RECALL, ScriptedReply(ANSWER)])
    with server.serve() as url, compacted(chat(url)) as model:
        engineer(model, name=name).run(TASK)
        assert LINE in read_file(file_path(3))
        assert LINE not in json.dumps(sent(server, -2))
        assert LINE in sent(server)[-1]["content"]
        assert 'recall("id")' in str(sent(server)[1])
        assert figures(server).refused == 0


def test_recall_answers_in_an_asynchronous_run_too():
    server = strict_server([*script()[:-1], RECALL, ScriptedReply(ANSWER)])
    with server.serve() as url, compacted(chat(url)) as model:
        asyncio.run(closing(model, engineer(model).arun(TASK)))
        assert LINE in sent(server)[-1]["content"]


def test_without_the_tools_the_record_does_not_name_recall():
    server = strict_server()
    with server.serve() as url, compacted(chat(url)) as model:
        assert engineer(model, tools=[read_file]).run(TASK).content == ANSWER
        assert_kept_in_the_window(server, model.conversations.session("run"))
        assert "recall" not in json.dumps(server.requests[-1].body)


def test_two_conversations_at_once_do_not_mix():
    server = strict_server([reply for reply in script() for _ in range(2)])

    async def talk(agent: Agent) -> None:
        await asyncio.gather(*(agent.arun(f"I am {name}. {TASK}", session_id=name) for name in ("one", "two")))

    with server.serve() as url, compacted(chat(url)) as model:
        asyncio.run(closing(model, talk(engineer(model, session_id=None))))
        sessions = [model.conversations.session(name) for name in ("one", "two")]
        assert [session.id for session in sessions] == ["one", "two"]
        assert all(len(session.compactions()) >= 3 for session in sessions)
    assert figures(server).refused == 0
    for at in range(len(server.requests)):
        assert sum(f"I am {name}" in str(sent(server, at)) for name in ("one", "two")) == 1


def test_agents_of_a_team_share_its_session_and_have_conversations_of_their_own():
    task = {"member_id": "reader", "task": "Read the files."}
    delegate = ScriptedReply(calls=(ScriptedCall("delegate_task_to_member", task),))
    recalled = [*script(40)[:-1], RECALL, ScriptedReply("Read.")]
    server = strict_server([delegate, *recalled, ScriptedReply("The team is done.")])
    with server.serve() as url, compacted(chat(url)) as model:
        reader = engineer(model, name="reader", session_id=None)
        team = Team(members=[reader], model=model, session_id="run", telemetry=False)
        assert team.run(TASK).content == "The team is done."
        own, shared = (model.conversations.session(name) for name in ("run/reader", "run"))
        assert (len(own.compactions()) >= 2, len(shared.compactions()), shared.id) == (True, 0, "run")
    assert figures(server).refused == 0
    assert LINE in sent(server, -2)[-1]["content"]
    assert [message["role"] for message in sent(server)[-3:]] == ["user", "assistant", "tool"]


def test_what_agno_asks_a_model_on_the_side_is_left_alone():
    server = strict_server([*script(1), ScriptedReply("Login fails")])
    with server.serve() as url, compacted(chat(url), session="run") as model:
        agent = engineer(model, db=InMemoryDb())
        agent.run(TASK)
        agent.set_session_name(session_id="run", autogenerate=True)
        assert len(sent(server)) == 2
        assert model.conversations.session().id == "run"
        assert len(model.conversations.session().history()) == 3


def test_images_and_files_are_part_of_the_conversation():
    server = strict_server()
    picture = Image(content=b"\x89PNG\r\n\x1a\n" + b"0" * 300, mime_type="image/png")
    with server.serve() as url, compacted(chat(url)) as model:
        run = engineer(model).run(TASK, images=[picture], files=[File(content=b"Notes", filename="notes.txt")])
        assert run.content == ANSWER
        kinds = [block["type"] for block in model.conversations.session("run").history()[0]["content"]]
        assert kinds == ["text", "image_url", "file"]
        assert figures(server).refused == 0


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
@pytest.mark.parametrize("make", MODELS)
def test_what_agno_no_longer_gives_is_sent_as_text(make: Callable[[str], Any]):
    server = strict_server([ScriptedReply(f"Answer {number}.") for number in range(3)])
    with server.serve() as url, compacted(make(url)) as model:
        agent = engineer(model, db=InMemoryDb(), add_history_to_context=True, num_history_runs=1)
        agent.run("What is this?", images=[Image(url="https://example.org/one.png")])
        agent.run("Go on.")
        agent.run("Go on.")
        assert "What is this?\\n\\n[image_url]" in json.dumps(sent(server))
        assert figures(server).refused == 0


@pytest.mark.parametrize("kind", [chat, claude])
def test_cached_tokens_are_counted_once(kind: Callable[[str], Any]):
    with compacted(kind("http://127.0.0.1:9")) as model:
        reply = Message(role="assistant", content="Yes.")
        reply.metrics.input_tokens, reply.metrics.cache_read_tokens, reply.metrics.output_tokens = 900, 600, 5
        apart = kind is claude
        assert model._usage([reply]) == {
            "input": 900 if apart else 300,
            "cache_read": 600,
            "cache_write": 0,
            "output": 5,
        }


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [("gpt-5", "got str"), (None, "got NoneType"), (OpenAIChat, "got ABCMeta"), (object(), "got object")],
)
def test_what_is_not_a_model_is_refused_with_a_word(wrong: Any, problem: str):
    with pytest.raises(BadSetting, match=problem):
        with_compactor(wrong)
    with pytest.raises(BadSetting, match=r"from with_compactor\(…\), " + problem):
        recall_tools(wrong)


def test_a_model_has_one_compactor():
    with (
        compacted(chat("http://127.0.0.1:9")) as model,
        pytest.raises(BadSetting, match="that has no compactor yet, got OpenAIChat"),
    ):
        with_compactor(model)
    with pytest.raises(BadSetting, match="expected a Session or its id, got int"):
        with_compactor(chat("http://127.0.0.1:9"), session=3)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="got OpenAIChat"):
        recall_tools(chat("http://127.0.0.1:9"))


def test_without_agno_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "agno.models.base", None)
    monkeypatch.delitem(sys.modules, adapter.__name__)
    with pytest.raises(MissingExtra, match=r"agno>=3\.1.*\[agno\]"):
        import_module(adapter.__name__)


def compare() -> dict[str, RunFigures]:
    """The sixty steps in one run with the adapter, with nothing, and with each of agno's own ways."""

    def compression(side: Any, **limits: int) -> dict[str, Any]:
        return {"compress_tool_results": True, "compression_manager": CompressionManager(model=side, **limits)}

    def compaction(side: Any) -> dict[str, Any]:
        return {"compaction": Compaction(model=side, on_context_overflow=True)}

    return {
        "context-compactor": _with_the_adapter(),
        "nothing": _on_its_own(lambda _: {}),
        "compaction": _on_its_own(compaction),
        "compress_tool_results": _on_its_own(compression),
        "compress_token_limit": _on_its_own(lambda side: compression(side, compress_token_limit=WINDOW * 3 // 4)),
    }


def _with_the_adapter() -> RunFigures:
    server = strict_server()
    with server.serve() as url, compacted(chat(url), store="sqlite:///:memory:") as model:
        engineer(model).run(TASK)
    return figures(server)


def _on_its_own(options: Callable[[Any], dict[str, Any]]) -> RunFigures:
    """A model of its own writes the summaries, so that the script stays that of the agent; its requests count too."""
    server, writer = strict_server(), strict_server([ScriptedReply("34 functions that call check(token, n).")])
    with server.serve() as url, writer.serve() as other, pytest.MonkeyPatch.context() as patch:
        # agno would fetch tiktoken's tables; without them it counts characters, as the server does.
        patch.setattr(tokens, "_select_tokenizer", lambda _: ("none", None))
        given = {"tools": [read_file], "instructions": SYSTEM, "telemetry": False, **options(chat(other))}
        found = Agent(model=chat(url), **given).run(TASK)
    assert (found.status == RunStatus.completed) == (not server.refusals)
    assert not writer.refusals
    own = figures(server)
    return structs.replace(own, requests=own.requests + len(writer.requests))


def test_ours_overflows_nowhere_and_keeps_no_fewer_rules_than_agnos_own_ways():
    assert_no_worse(compare(), PAGE)


def test_the_snippet_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    server = strict_server()
    write_files(tmp_path)
    snippet = snippet_of(PAGE)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("AGNO_TELEMETRY", "false")
    names: dict[str, Any] = {"__name__": "snippet"}
    with server.serve() as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        exec(compile(snippet, str(PAGE), "exec"), names)
    names["model"].conversations.close()
    assert capsys.readouterr().out == f"{ANSWER}\n"
    assert (figures(server).refused, figures(server).rules) == (0, len(RULES))
