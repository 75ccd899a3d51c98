"""The options for the Claude Agent SDK: the Claude Code that it starts, against the strict server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="needs the extra claude-agent-sdk")

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, SystemMessage, query

from context_compactor.agents.hook_log import read_hook_log
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.integrations import claude_agent_sdk as adapter
from context_compactor.integrations.claude_agent_sdk import compactor_options
from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer
from tests.integrations.scenario import ANSWER, RULES, STEPS, TASK, RunFigures, figures, file_path, read_file

PAGE = Path(__file__).parents[2] / "docs/how-to/frameworks/claude-agent-sdk.md"
MODEL = "claude-sonnet-4-6"
SUMMARY_REQUEST = "Your task is to create a detailed summary"
OPENING = "[Context record."
LINE = "def part_3_7(token, leeway=5): return check(token, 57)"
RECALL = ScriptedReply(calls=(ScriptedCall("mcp__compactor__recall", {"id": "file_003"}),))
# What Claude Code says itself is 17,000 tokens, and it does not compact before 100,000.
WINDOW = 200_000
PARTS = 3

_OWN = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
# The wheels of the SDK for some systems have no Claude Code in them.
CLI = _OWN if _OWN.exists() else Path(os.environ.get("CLAUDE", ""))
needs_claude_code = pytest.mark.skipif(not CLI.is_file(), reason="no Claude Code in the SDK. Try: CLAUDE=/its/path")


@contextmanager
def at_home(home: Path) -> Iterator[Path]:
    """Stand in the project of a home in which nobody has worked before."""
    for step in range(1, STEPS + 1):
        place = home / "project" / file_path(step)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(read_file(file_path(step)))
    env = {"HOME": str(home), "ANTHROPIC_API_KEY": "any", "DISABLE_AUTOUPDATER": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("CLAUDE_", "ANTHROPIC_", "COMPACTOR_"))]:
            patch.delenv(name)
        for name, value in {**env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}.items():
            patch.setenv(name, value)
        patch.chdir(home / "project")
        yield home


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with at_home(tmp_path):
        yield tmp_path


@contextmanager
def serving(replies: Iterable[ScriptedReply]) -> Iterator[StrictServer]:
    server = StrictServer(replies, window=WINDOW)
    with server.serve() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", url)
        yield server


def reads(*paths: str, answer: str = ANSWER) -> list[ScriptedReply]:
    commands = ({"command": f"cat {path}", "description": "Read a file"} for path in paths)
    return [*(ScriptedReply(calls=(ScriptedCall("Bash", each),)) for each in commands), ScriptedReply(answer)]


def steps(first: int, last: int) -> list[ScriptedReply]:
    return reads(*map(file_path, range(first, last + 1)))


def ours(**options: Any) -> ClaudeAgentOptions:
    return compactor_options(**{"model": MODEL, "allowed_tools": ["Bash"], "cli_path": CLI, **options})


async def talk(options: ClaudeAgentOptions, *prompts: str) -> list[Any]:
    """All messages of a conversation."""
    found = []
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            found += [message async for message in client.receive_response()]
    return found


def work(options: ClaudeAgentOptions, *prompts: str) -> list[Any]:
    return asyncio.run(talk(options, *prompts))


def results(messages: Iterable[Any]) -> list[Any]:
    return [message.result for message in messages if isinstance(message, ResultMessage)]


def compactions(messages: Iterable[Any]) -> int:
    return sum(isinstance(message, SystemMessage) and message.subtype == "compact_boundary" for message in messages)


def session_of(messages: Iterable[Any]) -> str:
    (found,) = {message.session_id for message in messages if isinstance(message, ResultMessage)}
    return str(found)


def sent(server: StrictServer, at: int = -1) -> list[Any]:
    return server.requests[at].body["messages"]


def summary_requests(server: StrictServer) -> int:
    return sum(SUMMARY_REQUEST in json.dumps(request.body["messages"][-1]) for request in server.requests)


@needs_claude_code
def test_a_compaction_is_answered_with_our_record_and_recall_gives_back_what_left_the_context():
    with serving([*steps(1, 20), RECALL, ScriptedReply("On.")]) as server:
        messages = work(ours(), TASK, "/compact", "Go on.")
    assert (results(messages)[0], results(messages)[-1], compactions(messages)) == (ANSWER, "On.", 1)
    assert (figures(server).refused, summary_requests(server)) == (0, 0)
    after = json.dumps(sent(server, -2))
    assert OPENING in after
    assert LINE not in after
    assert all(rule in after for rule in RULES)
    (recalled,) = [block for block in sent(server)[-1]["content"] if block["type"] == "tool_result"]
    answer, _ = json.JSONDecoder().raw_decode(recalled["content"])  # Claude Code adds how many tokens are left
    assert (answer["text"], answer["session"]) == (read_file(file_path(3)), session_of(messages))
    assert "note" not in answer  # a hook has told the server whose session it is
    assert [line for line in read_hook_log(str(Path.cwd())) if line["what"] == "failed"] == []


@needs_claude_code
def test_sixty_steps_that_fill_the_window_are_compacted_on_the_way_and_keep_every_rule():
    files = [file_path(step) for step in range(1, STEPS + 1)]
    replies = reads(*(" ".join([*files, *files][first : first + 6]) for first in range(STEPS)))
    with serving(replies) as server:
        messages = work(ours(extra_args={"autocompact": "100000"}), TASK)
    found = figures(server)
    assert results(messages) == [ANSWER]
    assert (found.requests, found.refused, found.rules, summary_requests(server)) == (STEPS + 1, 0, len(RULES), 0)
    assert found.rewrites == compactions(messages) >= 3


@needs_claude_code
def test_one_prompt_is_enough_and_another_program_goes_on_behind_a_compaction():
    async def ask(prompt: str, **options: Any) -> list[Any]:
        return [message async for message in query(prompt=prompt, options=ours(**options))]

    with serving([*steps(1, 10), ScriptedReply("On."), RECALL, ScriptedReply("Still on.")]) as server:
        first = asyncio.run(ask(TASK))
        asyncio.run(ask("/compact", resume=session_of(first)))
        asyncio.run(ask("Go on.", resume=session_of(first)))
        last = asyncio.run(ask("Read it again.", resume=session_of(first)))
    assert (results(first), results(last), summary_requests(server)) == ([ANSWER], ["Still on."], 0)
    assert (figures(server).refused, figures(server).rules, OPENING in json.dumps(sent(server))) == (
        0,
        len(RULES),
        True,
    )
    assert LINE in json.dumps(sent(server)[-1])


@needs_claude_code
def test_after_a_rewind_nothing_of_the_way_that_was_left_is_in_the_record():
    left, other = (
        reads(*map(file_path, range(11, 16)), answer="Left."),
        reads("src/part_41.py", answer="The other way."),
    )
    with serving([*steps(1, 10), *left, *other, ScriptedReply("On.")]) as server:
        first = work(ours(), TASK, "Go on.")
        answered = next(message for message in first if str(getattr(message, "content", "")).find(ANSWER) >= 0)
        back = ours(resume=session_of(first), resume_session_at=answered.uuid, fork_session=True)
        messages = work(back, "Take another way.", "/compact", "Go on.")
    assert (results(messages)[-1], compactions(messages)) == ("On.", 1)
    text = json.dumps(sent(server))
    assert [step for step in range(1, STEPS + 1) if f"part_{step}.py" in text] == [*range(1, 11), 41]
    assert (OPENING in text, "Left." in text, "Take another way." in text) == (True, False, True)
    assert (figures(server).refused, figures(server).rules, summary_requests(server)) == (0, len(RULES), 0)


@needs_claude_code
def test_two_conversations_at_once_in_one_project_do_not_mix():
    recalls = ScriptedReply(calls=(ScriptedCall("mcp__compactor__recall", {"id": "turn_001"}),))
    servers = {
        name: StrictServer([*steps(1, 6), recalls, ScriptedReply("On.")], window=WINDOW) for name in ("one", "two")
    }

    async def speak(name: str) -> list[Any]:
        with servers[name].serve() as url:
            options = ours(env={"ANTHROPIC_BASE_URL": url})
            return await talk(options, f"I am {name}. {TASK}", "/compact", "Go on.")

    async def both() -> list[list[Any]]:
        return await asyncio.gather(*map(speak, servers))

    assert [compactions(messages) for messages in asyncio.run(both())] == [1, 1]
    for (name, server), other in zip(servers.items(), ("two", "one"), strict=True):
        assert (figures(server).refused, summary_requests(server)) == (0, 0)
        recalled = json.dumps(sent(server)[-1])
        assert (f"I am {name}" in recalled, f"I am {other}" in json.dumps(sent(server))) == (True, False)


@needs_claude_code
def test_a_setting_in_the_environment_gives_claude_code_its_own_summary_back():
    summary = ScriptedReply("<summary>The clock is wrong.</summary>")
    with serving([*steps(1, 3), summary, ScriptedReply("On.")]) as server:
        work(ours(env={"COMPACTOR_AGENT_COMPACTION": "beside"}), TASK, "/compact", "Go on.")
    assert (summary_requests(server), OPENING in json.dumps(sent(server)), figures(server).refused) == (1, False, 0)


def test_the_options_of_the_caller_stay_and_ours_come_to_them():
    other = {"type": "local", "path": "/other"}
    server = {"type": "stdio", "command": "other"}
    made = compactor_options(
        "/tmp", plugins=[other], mcp_servers={"other": server}, allowed_tools=["Read"], max_turns=3, env={"A": "b"}
    )
    assert (made.cwd, made.max_turns, made.env, made.hooks, made.settings) == ("/tmp", 3, {"A": "b"}, None, None)
    assert made.allowed_tools == ["Read", "mcp__compactor"]
    assert made.plugins[0] == other
    assert isinstance(made.mcp_servers, dict)
    assert made.mcp_servers["other"] == server
    assert made.mcp_servers["compactor"] == {"type": "stdio", "command": program(), "args": ["mcp"]}


def program() -> str:
    return str(Path(sys.executable).parent / "compactor")


def test_everything_that_runs_is_named_by_its_whole_path(home: Path):
    (plugin,) = compactor_options().plugins
    folder = Path(plugin["path"])
    assert folder.is_relative_to(home / ".local/state/compactor")
    groups = json.loads((folder / "hooks/hooks.json").read_text())
    commands = [shlex.split(each["command"]) for [group] in groups["hooks"].values() for each in group["hooks"]]
    assert len(commands) == 9
    assert {words[0] for words in commands} == {program()}
    assert groups["modules"] == ["./register.js"]
    assert (folder / "hooks/command.js").read_text() == f'export const COMMAND = ["{program()}"]\n'
    assert json.loads((folder / ".claude-plugin/plugin.json").read_text())["name"] == "compactor"
    assert not (folder / ".mcp.json").exists()


def test_the_plugin_is_written_once_and_mended_when_a_file_is_gone():
    (plugin,) = compactor_options().plugins
    files = sorted(path for path in Path(plugin["path"]).rglob("*") if path.is_file())
    times = [path.stat().st_mtime_ns for path in files]
    assert compactor_options().plugins == [plugin]
    assert [path.stat().st_mtime_ns for path in files] == times
    files[0].unlink()
    assert compactor_options().plugins == [plugin]
    assert files[0].is_file()


@pytest.mark.parametrize("place", ["user", "project"])
def test_where_an_install_has_brought_the_plugin_it_is_not_there_twice(home: Path, place: str):
    module = (home if place == "user" else Path.cwd()) / ".claude/skills/compactor/hooks/register.js"
    module.parent.mkdir(parents=True)
    module.write_text("")
    other = {"user": "project", "project": "user"}[place]
    assert compactor_options().plugins == []
    assert compactor_options(setting_sources=[place]).plugins == []
    assert len(compactor_options(setting_sources=[other]).plugins) == 1
    assert len(compactor_options(setting_sources=[]).plugins) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"window": 200_000}, "window: not an option of Claude Code.*env={'COMPACTOR_WINDOW'"),
        ({"mcp_servers": "servers.json"}, "mcp_servers: expected a dictionary.*got str"),
        ({"mcp_servers": Path("servers.json")}, "mcp_servers: expected a dictionary.*got PosixPath"),
        ({"env": {"HOME": "/nowhere"}}, "HOME is '/nowhere', which is not a folder"),
    ],
)
def test_wrong_options_are_refused_with_a_word(options: dict[str, Any], problem: str):
    with pytest.raises(BadSetting, match=problem):
        compactor_options(**options)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    monkeypatch.delitem(sys.modules, adapter.__name__)
    with pytest.raises(MissingExtra, match=r"claude-agent-sdk>=0\.2.*\[claude-agent-sdk\]"):
        import_module(adapter.__name__)


def compare() -> dict[str, RunFigures]:
    """The sixty steps with a compaction after each third: with our options, and as the SDK does it alone."""
    own = ScriptedReply(f"<summary>{TASK} The files were read.</summary>")
    return {"context-compactor": _sixty_steps(ours), "Claude Code's own summary": _sixty_steps(_plain, own)}


def _plain(**options: Any) -> ClaudeAgentOptions:
    return ClaudeAgentOptions(model=MODEL, allowed_tools=["Bash"], cli_path=CLI, **options)


def _sixty_steps(make: Any, *summary: ScriptedReply) -> RunFigures:
    size = STEPS // PARTS
    firsts = range(1, STEPS, size)
    replies = [reply for first in firsts for reply in (*steps(first, first + size - 1), *summary)]
    prompts = [prompt for first in firsts for prompt in (TASK if first == 1 else "Go on.", "/compact")]
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # a process that ends may still write
    with temporary as folder, at_home(Path(folder)), serving([*replies, ScriptedReply("On.")]) as server:
        messages = work(make(), *prompts, "Go on.")
    assert (results(messages)[-1], compactions(messages)) == ("On.", PARTS)
    assert summary_requests(server) == PARTS * len(summary)
    return figures(server)


@needs_claude_code
def test_ours_asks_for_no_summary_and_keeps_no_fewer_rules_than_claude_code_alone():
    found = compare()
    first, second = found.values()
    assert (first.refused, second.refused, first.rules) == (0, 0, len(RULES))
    assert first.rules >= second.rules
    assert second.requests - first.requests == PARTS
    page = PAGE.read_text()
    assert [each.line(name) for name, each in found.items() if each.line(name) not in page] == []


@needs_claude_code
def test_the_snippet_of_the_page_works(capsys: Any):
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    with serving(steps(1, 5)) as server:
        exec(compile(found[1], str(PAGE), "exec"), {"__name__": "snippet"})
    assert capsys.readouterr().out == f"{ANSWER}\n"
    assert figures(server).refused == 0
    assert LINE in json.dumps(sent(server))
