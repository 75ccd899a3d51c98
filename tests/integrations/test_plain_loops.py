"""The loops of `examples/`, with the providers' SDKs against the strict server."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from context_compactor import Session, compact
from context_compactor.testing import ScriptedCall, ScriptedReply
from tests.integrations.scenario import (
    ANSWER,
    NEXT_TASK,
    RULES,
    TASK,
    WINDOW,
    figures,
    read_file,
    script,
    strict_server,
)

EXAMPLES = Path(__file__).parents[2] / "examples"


def _openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def _anthropic(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="any", max_retries=0)


LOOPS: dict[str, Callable[[str], Any]] = {
    "openai_chat_loop": _openai,
    "openai_responses_loop": _openai,
    "anthropic_loop": _anthropic,
}


def _example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "read_file", read_file)
    return module


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs one of the loops on a task; with a session of its own, and a client of the server."""
    example, client = _example(request.param, monkeypatch), LOOPS[request.param]

    def run(server, tasks=(TASK,)):
        store = f"sqlite:///{tmp_path / 'sessions.db'}"
        with server.serve() as url, Session.open("run", window=WINDOW, store=store, profile="embedded") as session:
            with client(url) as opened:
                answers = [example.run(task, session, opened) for task in tasks]
            return answers, len(session.compactions())

    return run


def test_sixty_steps_fit_a_small_window_without_a_refusal(loop):
    server = strict_server()
    answers, compactions = loop(server)
    found = figures(server)
    assert answers == [ANSWER]
    assert (found.requests, found.refused, found.rules) == (61, 0, len(RULES))
    assert compactions >= 3
    assert found.rewrites <= compactions


def test_the_next_task_goes_on_in_the_same_session(loop):
    server = strict_server([*script(20), *script(20)])
    answers, _ = loop(server, (TASK, NEXT_TASK))
    assert answers == [ANSWER, ANSWER]
    assert server.refusals == []
    assert NEXT_TASK in json.dumps(server.requests[-1].body)


def test_the_agent_gets_back_what_left_its_context(loop):
    recall = ScriptedReply(calls=(ScriptedCall("recall", {"id": "file_002"}),))
    server = strict_server([*script(40)[:-1], recall, ScriptedReply(ANSWER)])
    loop(server)
    assert server.refusals == []
    assert "part_2_0(token" not in json.dumps(server.requests[-2].body)
    assert "part_2_0(token" in json.dumps(server.requests[-1].body)


def test_compacting_before_every_request_rewrites_the_prefix_each_time():
    """Why a living conversation belongs in a session: `compact` starts from the whole history every time."""
    history: list[Any] = [{"role": "user", "content": TASK}]
    sent = []
    for step in range(40):
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": call["id"], "content": read_file(f"src/part_{step}.py")})
        result = compact(history, window=WINDOW)
        if result.report.changed:
            sent.append(result.messages)
    rewrites = sum(after[: len(before)] != before for before, after in pairwise(sent))
    assert len(sent) > 15
    assert rewrites == len(sent) - 1
