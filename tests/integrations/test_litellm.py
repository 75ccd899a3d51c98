"""The adapter for LiteLLM: its SDK, and its proxy as a program of its own, against the strict server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else LiteLLM fetches a list of prices when it is imported

import httpx
import litellm
import openai
from litellm.integrations.custom_logger import CustomLogger
from litellm.utils import trim_messages

from context_compactor import Session
from context_compactor.errors import BadSetting
from context_compactor.integrations.litellm import CompactorHandler
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
    write_files,
)
from tests.waiting import PATIENCE, until, wait_for

pytestmark = [
    # Pydantic says so of LiteLLM's own types, the first time that they are used.
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class .* using the `ReadOnly` qualifier:UserWarning"),
]
PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/litellm.md"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]
CALLBACKS = (
    "callbacks",
    "input_callback",
    "success_callback",
    "failure_callback",
    "_async_success_callback",
    "_async_failure_callback",
)
BEGIN = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]


@pytest.fixture(autouse=True)
def _event_loop() -> Iterator[None]:
    """`litellm.completion` takes the thread's event loop, or makes one that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@contextmanager
def handler(folder: Path, **options: Any) -> Iterator[CompactorHandler]:
    """A handler that LiteLLM calls while the block runs."""
    made = CompactorHandler(window=WINDOW, store=f"sqlite:///{folder / 'sessions.db'}", **options)
    before = {name: getattr(litellm, name)[:] for name in CALLBACKS}
    litellm.callbacks.append(made)
    try:
        yield made
    finally:
        for name, value in before.items():
            setattr(litellm, name, value)
        made.conversations.close()


def options_of(url: str) -> dict[str, Any]:
    return {"model": "openai/gpt-5", "api_base": f"{url}/v1", "api_key": "any", "max_retries": 0, "tools": TOOLS}


def results(
    message: Any, call: Callable[[str, dict[str, Any]], str] = lambda _, given: read_file(**given)
) -> list[Any]:
    """What the calls of a reply give."""
    answers = [(each.id, call(each.function.name, json.loads(each.function.arguments))) for each in message.tool_calls]
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in answers]


def talk(url: str, history: list[Any], conversation: str = "run", *, streamed: bool = False) -> list[Any]:
    """Go on with a conversation to its answer, with `litellm.completion`."""
    variables: dict[str, Any] = {"session_id": conversation, "tools": TOOLS}
    while True:
        asked = {"messages": history, "prompt_id": "compactor", "prompt_variables": variables, **options_of(url)}
        reply = litellm.completion(**asked, stream=streamed)
        reply = litellm.stream_chunk_builder(list(reply)) if streamed else reply
        history.append(reply.choices[0].message)
        variables["usage"] = reply.usage
        if not history[-1].tool_calls:
            return history
        history += results(history[-1])


async def atalk(url: str, history: list[Any], conversation: str = "run", *, streamed: bool = False, **more: Any) -> Any:
    """The same with `litellm.acompletion`."""
    while True:
        asked = {**options_of(url), "messages": history, "litellm_session_id": conversation, **more}
        reply = await litellm.acompletion(**asked, stream=streamed)
        if streamed:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply])
        history.append(reply.choices[0].message)
        if not history[-1].tool_calls:
            return history
        history += results(history[-1])


def run(work: Any) -> Any:
    """Run to the end, and close what LiteLLM keeps open for this event loop."""

    async def all_of_it() -> Any:
        try:
            return await work
        finally:
            await litellm.close_litellm_async_clients()

    return asyncio.run(all_of_it())


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    body = server.requests[at].body
    return body.get("input") or body["messages"]


def assert_kept_in_the_window(server: StrictServer, compactions: int) -> None:
    found = figures(server)
    assert (found.requests, found.refused, found.rules) == (STEPS + 1, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_sixty_steps_in_a_small_window_overflow_nowhere_and_keep_every_rule(tmp_path: Path, streamed: bool):
    server = strict_server()
    with server.serve() as url, handler(tmp_path) as made:
        history = talk(url, [*BEGIN], streamed=streamed)
        assert history[-1].content == ANSWER
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_so_do_sixty_asynchronous_steps(tmp_path: Path, streamed: bool):
    server = strict_server()
    with server.serve() as url, handler(tmp_path) as made:
        history = run(atalk(url, [*BEGIN], streamed=streamed))
        assert history[-1].content == ANSWER
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))


@pytest.mark.parametrize(
    "how",
    [
        {"model": "openai/responses/gpt-5"},
        {"model": "openai/gone", "api_base": "http://127.0.0.1:9/v1", "fallbacks": [{"model": "openai/gpt-5"}]},
        {"prompt_id": "compactor", "prompt_variables": {"session_id": "run"}},
    ],
    ids=["bridged to Responses", "with a fallback", "as the synchronous call is made"],
)
def test_a_call_that_litellm_makes_within_another_one_is_not_fitted_twice(tmp_path: Path, how: dict[str, Any]):
    server = strict_server()
    with server.serve() as url, handler(tmp_path) as made:
        for fallback in how.get("fallbacks", ()):
            fallback["api_base"] = f"{url}/v1"
        run(atalk(url, [*BEGIN], **how))
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))
        assert made.conversations.session("run").id == "run"


def test_a_router_that_falls_back_sends_what_fits(tmp_path: Path):
    server = strict_server()

    async def work(url: str) -> None:
        places = {"gone": "http://127.0.0.1:9/v1", "gpt-5": f"{url}/v1"}
        models = [
            {"model_name": name, "litellm_params": {"model": "openai/gpt-5", "api_base": place, "api_key": "any"}}
            for name, place in places.items()
        ]
        router = litellm.Router(model_list=models, fallbacks=[{"gone": ["gpt-5"]}], num_retries=0)
        history: list[Any] = [*BEGIN]
        while history[-1]["role"] != "assistant":
            asked = {"model": "gone", "messages": history, "tools": TOOLS, "metadata": {"session_id": "run"}}
            history.append((await router.acompletion(**asked)).choices[0].message)
            history += results(history[-1]) if history[-1].tool_calls else []

    with server.serve() as url, handler(tmp_path) as made:
        run(work(url))
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))


def test_the_responses_api_is_fitted_too(tmp_path: Path):
    server = strict_server()
    tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA}]

    async def work(url: str) -> None:
        history: list[Any] = [{"role": "user", "content": TASK}]
        asked = {**options_of(url), "tools": tools, "instructions": SYSTEM, "litellm_session_id": "run"}
        while True:
            reply = await litellm.aresponses(**asked, input=history)
            history += reply.output
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return
            history += [_output(call.call_id, json.loads(call.arguments)) for call in calls]

    with server.serve() as url, handler(tmp_path) as made:
        run(work(url))
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))


def _output(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": read_file(**arguments)}


def test_messages_that_are_not_shortened_keep_their_signed_thinking(tmp_path: Path):
    server = strict_server([ScriptedReply(each.text, "I look.", calls=each.calls) for each in script()])
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with server.serve() as url, handler(tmp_path) as made:
        claude = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "thinking": thinking, "max_tokens": 2000}
        run(atalk(url, [*BEGIN], **claude))
        assert_kept_in_the_window(server, len(made.conversations.session("run").compactions()))
        assert '"signature": "sig_' in json.dumps(sent(server)[-2])


class Recorder(CustomLogger):
    """Counts the replies that LiteLLM has told its callbacks of."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = 0

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.replies += 1


def test_what_the_provider_counted_is_used_with_the_next_request_of_the_same_history(tmp_path: Path):
    server = strict_server(script(2))
    recorder = Recorder()

    async def work(url: str, made: CompactorHandler) -> list[str]:
        sources: list[str] = []
        history: list[Any] = [*BEGIN]
        asked = {**options_of(url), "litellm_session_id": "run"}
        for replies in (1, 2):
            history.append((await litellm.acompletion(**asked, messages=history)).choices[0].message)
            history += results(history[-1])
            await until(lambda replies=replies: recorder.replies == replies)
            sources.append(made.conversations.session("run").usage().source)
        await litellm.acompletion(**asked, messages=[{"role": "user", "content": "Write a title."}])
        await until(lambda: recorder.replies == 3)
        reply = await litellm.acompletion(**asked, messages=history)
        assert made.conversations.session("run").usage().tokens > 0.8 * reply.usage.prompt_tokens
        return sources

    with server.serve() as url, handler(tmp_path) as made:
        litellm.callbacks.append(recorder)
        assert run(work(url, made)) == ["counted", "anchored on the last reply"]


def test_a_synchronous_call_is_told_the_usage_with_its_variables(tmp_path: Path):
    server = strict_server(script(3))
    with server.serve() as url, handler(tmp_path) as made:
        talk(url, [*BEGIN])
        assert made.conversations.session("run").usage().source == "anchored on the last reply"


@pytest.mark.parametrize("go_on", [talk, lambda *given: run(atalk(*given))], ids=["synchronous", "asynchronous"])
def test_after_a_rewind_nothing_of_the_left_way_is_sent_and_the_conversation_goes_on(tmp_path: Path, go_on: Any):
    server = strict_server([*script(), ScriptedReply("Another way."), ScriptedReply("It exports one function.")])
    with server.serve() as url, handler(tmp_path):
        history = go_on(url, [*BEGIN])
        history = go_on(url, [*history[:-3], {"role": "user", "content": "Take another way."}])
        go_on(url, [*history, {"role": "user", "content": NEXT_TASK}])
        assert figures(server).refused == 0
        for at in (-2, -1):
            assert file_path(STEPS) not in str(sent(server, at))
            assert ANSWER not in str(sent(server, at))
            assert all(rule in str(sent(server, at)) for rule in RULES)
        assert sent(server)[-2]["content"] == "Another way."
        assert sent(server)[-1]["content"] == NEXT_TASK


def test_recall_gives_the_original_of_a_file_that_left_the_context(tmp_path: Path):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_003"}),))
    server = strict_server([*script()[:-1], recall, ScriptedReply(ANSWER)])

    async def work(url: str, made: CompactorHandler) -> None:
        session, history = made.conversations.session("run"), [*BEGIN]
        asked = {**options_of(url), "tools": [*TOOLS, *session.tools("openai")], "litellm_session_id": "run"}

        def call(name: str, given: dict[str, Any]) -> str:
            return read_file(**given) if name == "read_file" else session.call(name, given)

        while history[-1]["role"] != "assistant":
            history.append((await litellm.acompletion(**asked, messages=history)).choices[0].message)
            history += results(history[-1], call) if history[-1].tool_calls else []

    with server.serve() as url, handler(tmp_path) as made:
        run(work(url, made))
        line = "def part_3_7(token, leeway=5): return check(token, 57)"
        assert line in read_file(file_path(3))
        assert line not in json.dumps(sent(server, -2))
        assert line in json.dumps(sent(server)[-1])
        assert 'recall(\\"file_' in json.dumps(sent(server))
        assert figures(server).refused == 0


def test_a_record_names_no_tool_that_is_not_offered(tmp_path: Path):
    server = strict_server()
    with server.serve() as url, handler(tmp_path):
        run(atalk(url, [*BEGIN]))
    assert "recall(" not in json.dumps(sent(server))


def test_two_conversations_at_once_do_not_mix(tmp_path: Path):
    servers = {name: strict_server() for name in ("one", "two")}

    async def one_of_them(name: str) -> None:
        with servers[name].serve() as url:
            await atalk(url, [{"role": "user", "content": f"I am {name}. {TASK}"}], name)

    async def both() -> None:
        await asyncio.gather(*map(one_of_them, servers))

    with handler(tmp_path) as made:
        run(both())
        for name, other in (("one", "two"), ("two", "one")):
            assert_kept_in_the_window(servers[name], len(made.conversations.session(name).compactions()))
            assert all(f"I am {name}" in str(sent(servers[name], at)) for at in range(STEPS + 1))
            assert not any(f"I am {other}" in str(sent(servers[name], at)) for at in range(STEPS + 1))


def test_a_call_without_a_conversation_is_left_alone_and_that_is_said_once(tmp_path: Path):
    server = strict_server([ScriptedReply("Done.")])
    history = [*BEGIN, *({"role": "user", "content": f"Question {number}?"} for number in range(100))]

    async def work(url: str) -> None:
        asked = options_of(url)
        for _ in range(2):
            await litellm.acompletion(**asked, messages=history)
        await litellm.acompletion(asked.pop("model"), history, **asked, litellm_session_id="run")

    with server.serve() as url, handler(tmp_path), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        run(work(url))
        litellm.completion(**options_of(url), messages=history)
    assert [sent(server, at) for at in range(4)] == [history] * 4
    assert not (tmp_path / "sessions.db").exists()
    assert sum("litellm_session_id" in str(warning.message) for warning in said) == 1


def test_a_history_that_the_provider_keeps_is_left_to_it(tmp_path: Path):
    server = strict_server([ScriptedReply("Done.")])

    async def work(url: str) -> None:
        asked = {**options_of(url), "tools": [], "litellm_session_id": "run"}
        reply = await litellm.aresponses(**asked, input=TASK)
        await litellm.aresponses(**asked, input=[{"role": "user", "content": NEXT_TASK}], previous_response_id=reply.id)

    with server.serve() as url, handler(tmp_path):
        run(work(url))
    assert not (tmp_path / "sessions.db").exists()


def test_what_a_handler_cannot_use_is_refused_with_a_word(tmp_path: Path):
    with pytest.raises(BadSetting, match="session: a handler has many conversations"):
        CompactorHandler(session="run")
    with handler(tmp_path), pytest.raises(BadSetting, match="needs prompt_variables"):
        litellm.completion(**options_of("http://127.0.0.1:9"), messages=[*BEGIN], prompt_id="compactor")
    with pytest.raises(BadSetting, match="window is 'many'"):
        CompactorHandler(window="many", store=f"sqlite:///{tmp_path / 'sessions.db'}").conversations.session("run")


def compare() -> dict[str, RunFigures]:
    """The sixty steps with the handler, with nothing, and with each of LiteLLM's own ways, at three quarters of the
    window as `trim_messages` has it by default."""
    return {name: figures(server) for name, server in _compared().items()}


def _compared() -> dict[str, StrictServer]:
    most = WINDOW * 3 // 4

    def compress(history: list[Any]) -> tuple[list[Any], list[Any]]:
        found = litellm.compress(messages=history, model="gpt-5", compression_trigger=most)
        return found["messages"], found["tools"]

    return {
        "context-compactor": _with_the_handler(),
        "nothing": _on_its_own(lambda history: (history, [])),
        "trim_messages": _on_its_own(lambda history: (trim_messages(history, max_tokens=most), [])),
        "compress": _on_its_own(compress),
    }


def _with_the_handler() -> StrictServer:
    server = strict_server()
    with tempfile.TemporaryDirectory() as folder, server.serve() as url, handler(Path(folder)):
        run(atalk(url, [*BEGIN]))
    return server


def _on_its_own(fit: Callable[[list[Any]], tuple[list[Any], list[Any]]]) -> StrictServer:
    server = strict_server()

    async def work(url: str) -> None:
        history: list[Any] = [*BEGIN]
        while history[-1]["role"] != "assistant":
            messages, tools = fit(history)
            asked = {**options_of(url), "messages": messages, "tools": [*TOOLS, *tools]}
            try:
                reply = (await litellm.acompletion(**asked)).choices[0].message
            except litellm.BadRequestError:
                assert server.refusals
                return
            history.append(reply.model_dump(exclude_none=True))
            history += results(reply) if reply.tool_calls else []

    with server.serve() as url:
        run(work(url))
    return server


def test_ours_overflows_nowhere_and_keeps_no_fewer_rules_than_litellms_own_ways():
    servers = _compared()
    found = {name: figures(server) for name, server in servers.items()}
    ours, page = found["context-compactor"], PAGE.read_text()
    assert (ours.overflows, ours.refused, ours.requests) == (0, 0, STEPS + 1)
    assert all(ours.rules >= other.rules for other in found.values())
    assert [each.line(name) for name, each in found.items() if each.line(name) not in page] == []
    bodies = [request.body for request in servers["compress"].requests]
    asked_for = enumerate((body["messages"][-1]["content"] for body in bodies[1:]), 1)
    stubs = sum(shown != read_file(file_path(step)) for step, shown in asked_for)
    changes = sum(before["tools"] != after["tools"] for before, after in pairwise(bodies))
    assert f"stub for {stubs} of {STEPS} results" in page.replace("\n", " ")
    assert f"changed {changes} times" in page


def blocks(language: str) -> list[str]:
    """The blocks of a language on the page, for the window of these tests."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [block.replace("200_000", f"{WINDOW:_}") for block in found]


def test_the_snippet_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    server = strict_server()
    write_files(tmp_path)
    for name in CALLBACKS:
        monkeypatch.setattr(litellm, name, [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with server.serve() as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        snippet = blocks("python")[0].replace("Find out why the login fails.", TASK)
        exec(compile(snippet, str(PAGE), "exec"), {"__name__": "snippet"})
    litellm.callbacks[0].conversations.close()
    assert capsys.readouterr().out == f"{ANSWER}\n"
    assert (figures(server).requests, figures(server).refused, figures(server).rules) == (STEPS + 1, 0, len(RULES))


KEYS = """
from litellm.proxy._types import UserAPIKeyAuth

async def check(request, api_key):
    return UserAPIKeyAuth(api_key=api_key)
"""
CLAUDE = "{model_name: claude, litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: any}}"
GENERAL = "general_settings: {custom_auth: keys.check, missing_session_id: generate}\n"


def _is_free(port: int) -> bool:
    """Whether a port can be used. Those that the system gives to anybody are higher, so nobody takes it meanwhile."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


class Proxy:
    """A LiteLLM proxy with the configuration of the page. Its provider is a strict server that gets a script for each
    test, since the proxy keeps its connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._replies: deque[ScriptedReply] = deque()
        done = ScriptedReply("Done.")
        self.server = strict_server(iter(lambda: self._replies.popleft() if self._replies else done, None))
        self.url = f"http://127.0.0.1:{next(filter(_is_free, range(20_000 + os.getpid() % 10_000, 32_000)))}"

    @contextmanager
    def started(self) -> Iterator[None]:
        (config,) = blocks("yaml")
        assert config.count("}}]") == 1
        (self.folder / "config.yaml").write_text(config.replace("}}]", f"}}}}, {CLAUDE}]") + GENERAL)
        (self.folder / "compactor_handler.py").write_text(blocks("python")[1])
        (self.folder / "keys.py").write_text(KEYS)
        command = [Path(sys.executable).parent / "litellm", "--config", "config.yaml", "--host", "127.0.0.1"]
        with self.server.serve() as url, (self.folder / "log").open("w") as log:
            given = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "ANTHROPIC_BASE_URL": url}
            environment = {**os.environ, **given, "LITELLM_MASTER_KEY": "sk-" + "0123456789abcdef" * 3}
            command += ["--port", self.url.rsplit(":", 1)[1]]
            running = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
            try:
                wait_for(lambda: running.poll() is not None or self._is_ready(), self._said, pause=0.1)
                assert running.poll() is None, self._said()
                yield
            finally:
                running.terminate()
                running.wait(PATIENCE)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health/readiness").is_success
        except httpx.TransportError:
            return False

    def _said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def begin(self, replies: Sequence[ScriptedReply]) -> StrictServer:
        """The server with a new script, and without what it saw before."""
        self._replies = deque(replies)
        self.server.requests.clear()
        self.server.refusals.clear()
        return self.server

    def post(self, path: str, body: dict[str, Any], conversation: str | None, key: str = "sk-one") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} | ({"x-litellm-session-id": conversation} if conversation else {})
        return httpx.post(self.url + path, json=body, headers=headers, timeout=PATIENCE)

    def sessions(self, conversation: str = "") -> list[str]:
        """The ids of the stored sessions of a conversation: one for each key."""
        with closing(sqlite3.connect(self.folder / ".compactor/compactor.db")) as store:
            found = [name for (name,) in store.execute("SELECT id FROM sessions")]
        return [name for name in found if name.endswith(conversation)]

    def compactions(self, conversation: str) -> int:
        (name,) = self.sessions(f"-{conversation}")
        store = f"sqlite:///{self.folder / '.compactor/compactor.db'}"
        with Session.open(name, store=store, profile="embedded") as session:
            return len(session.compactions())


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    made = Proxy(tmp_path_factory.mktemp("proxy"))
    with made.started():
        yield made


def ask_openai(
    proxy: Proxy, history: list[Any], conversation: str, key: str = "sk-one", *, streamed: bool = False
) -> list[Any]:
    """Go on with a conversation to its answer, with the OpenAI SDK as a client of the proxy."""
    headers = {"x-litellm-session-id": conversation}
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=key, max_retries=0, default_headers=headers) as client:
        while True:
            reply: Any = client.chat.completions.create(
                model="gpt-5", messages=history, tools=TOOLS, stream=streamed, timeout=PATIENCE
            )
            if streamed:
                reply = litellm.stream_chunk_builder(
                    [litellm.ModelResponseStream(**each.model_dump()) for each in reply]
                )
            message = reply.choices[0].message
            history.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return history
            history += results(message)


def ask_anthropic(proxy: Proxy, conversation: str, model: str) -> None:
    history: list[Any] = [{"role": "user", "content": TASK}]
    tools = [{"name": "read_file", "description": "Read a file.", "input_schema": SCHEMA}]
    while history[-1]["role"] != "assistant":
        body = {"model": model, "max_tokens": 500, "system": SYSTEM, "messages": history, "tools": tools}
        answer = proxy.post("/v1/messages", body, conversation)
        assert answer.status_code == 200, answer.text
        history.append({"role": "assistant", "content": answer.json()["content"]})
        if calls := [block for block in history[-1]["content"] if block["type"] == "tool_use"]:
            history.append({"role": "user", "content": [_result(call["id"], call["input"]) for call in calls]})


def _result(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": read_file(**arguments)}


def ask_responses(proxy: Proxy, conversation: str, model: str) -> None:
    history: list[Any] = [{"role": "user", "content": TASK}]
    tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA}]
    calls: list[Any] | None = None
    while calls is None or calls:
        body = {"model": model, "instructions": SYSTEM, "input": history, "tools": tools}
        answer = proxy.post("/v1/responses", body, conversation)
        assert answer.status_code == 200, answer.text
        calls = [item for item in answer.json()["output"] if item["type"] == "function_call"]
        history += answer.json()["output"]
        history += [_output(call["call_id"], json.loads(call["arguments"])) for call in calls]


WAYS: dict[str, Callable[[Proxy, str], object]] = {
    "chat": lambda proxy, name: ask_openai(proxy, [*BEGIN], name),
    "chat-streamed": lambda proxy, name: ask_openai(proxy, [*BEGIN], name, streamed=True),
    "messages": lambda proxy, name: ask_anthropic(proxy, name, "claude"),
    "messages-of-openai": lambda proxy, name: ask_anthropic(proxy, name, "gpt-5"),
    "responses": lambda proxy, name: ask_responses(proxy, name, "gpt-5"),
    "responses-of-claude": lambda proxy, name: ask_responses(proxy, name, "claude"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_client_of_the_proxy_is_kept_in_the_window_by_every_route(proxy: Proxy, way: str):
    server = proxy.begin(script())
    WAYS[way](proxy, way)
    assert_kept_in_the_window(server, proxy.compactions(way))
    assert "recall(" not in json.dumps(sent(server))


def test_a_client_of_the_proxy_may_rewind(proxy: Proxy):
    server = proxy.begin([*script(40), ScriptedReply("Another way."), ScriptedReply("It exports one function.")])
    history = ask_openai(proxy, [*BEGIN], "rewound")
    history = ask_openai(proxy, [*history[:-3], {"role": "user", "content": "Take another way."}], "rewound")
    ask_openai(proxy, [*history, {"role": "user", "content": NEXT_TASK}], "rewound")
    assert figures(server).refused == 0
    for at in (-2, -1):
        assert file_path(40) not in str(sent(server, at))
        assert all(rule in str(sent(server, at)) for rule in RULES)
    assert sent(server)[-2]["content"] == "Another way."


def test_clients_at_once_do_not_mix_and_another_key_shares_nothing(proxy: Proxy):
    server = proxy.begin([*script(30)[:-1], *script(30)[:-1], *script(30)[:-1]])
    given = [("sk-one", "shared"), ("sk-two", "shared"), ("sk-two", "other")]

    def ask(key: str, conversation: str) -> None:
        ask_openai(proxy, [{"role": "user", "content": f"I am {key}/{conversation}. {TASK}"}], conversation, key)

    with ThreadPoolExecutor(len(given)) as pool:
        list(pool.map(lambda each: ask(*each), given))
    assert figures(server).refused == 0
    assert len(set(proxy.sessions("-shared"))) == 2
    for request in server.requests:
        assert len(set(re.findall(r"I am sk-\w+/\w+", json.dumps(request.body)))) == 1


def test_a_client_cannot_name_the_session_of_another_key(proxy: Proxy):
    server = proxy.begin([ScriptedReply("Done.")] * 4)
    ask_openai(proxy, [{"role": "user", "content": "The secret is 42."}], "private")
    (private,) = proxy.sessions("-private")
    before = proxy.sessions()
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "Which secret?"}]}
    tricks = [
        {"prompt_id": "compactor", "prompt_variables": {"session_id": private}},
        {"metadata": {"session_id": private}},
        {"litellm_session_id": private},
    ]
    for trick in tricks:
        assert proxy.post("/v1/chat/completions", body | trick, None, "sk-two").status_code == 200
        assert sent(server) == body["messages"]
    assert [name for name in proxy.sessions() if name not in before] == [f"{_owner('sk-two')}-{private}"]
    assert private.startswith(f"{_owner('sk-one')}-")


def _owner(key: str) -> str:
    hashed = sha256(key.encode()).hexdigest()
    return sha256(json.dumps([hashed, None, None]).encode()).hexdigest()[:24]


def test_a_client_of_the_proxy_without_a_conversation_is_left_alone(proxy: Proxy):
    server = proxy.begin([])
    ask_openai(proxy, [*BEGIN], "known")
    before = proxy.sessions()
    messages = [*BEGIN, *({"role": "user", "content": f"Question {number}?"} for number in range(100))]
    assert proxy.post("/v1/chat/completions", {"model": "gpt-5", "messages": messages}, None).status_code == 200
    assert sent(server) == messages
    assert proxy.sessions() == before


@pytest.mark.parametrize(
    ("conversation", "role", "said"),
    [("run", "usr", "message 0, field 'role': unknown role 'usr'"), ("x" * 400, "user", "300 is the limit")],
)
def test_what_a_client_of_the_proxy_did_wrong_is_its_error(proxy: Proxy, conversation: str, role: str, said: str):
    server = proxy.begin([])
    body = {"model": "gpt-5", "messages": [{"role": role, "content": "Hello."}]}
    answer = proxy.post("/v1/chat/completions", body, conversation)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert server.requests == []
