"""The adapter for LiteLLM: its SDK, and its proxy as a program of its own, against the strict server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

# LiteLLM fetches a list of prices when it is imported, unless it is told not to.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm", reason="needs the extra litellm")

import httpx
import openai
from litellm.integrations.custom_logger import CustomLogger
from litellm.utils import trim_messages

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
        made.close()


def options_of(url: str) -> dict[str, Any]:
    return {"model": "openai/gpt-5", "api_base": f"{url}/v1", "api_key": "any", "max_retries": 0, "tools": TOOLS}


def results(message: Any, call: Callable[[str, dict[str, Any]], str] = lambda _, given: read_file(**given)) -> list[Any]:
    """What the calls of a reply give."""
    answers = [(each.id, call(each.function.name, json.loads(each.function.arguments))) for each in message.tool_calls]
    return [{"role": "tool", "tool_call_id": id, "content": text} for id, text in answers]


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
        assert_kept_in_the_window(server, len(made.session("run").compactions()))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_so_do_sixty_asynchronous_steps(tmp_path: Path, streamed: bool):
    server = strict_server()
    with server.serve() as url, handler(tmp_path) as made:
        history = run(atalk(url, [*BEGIN], streamed=streamed))
        assert history[-1].content == ANSWER
        assert_kept_in_the_window(server, len(made.session("run").compactions()))
