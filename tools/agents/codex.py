"""Codex in a live check: the settings it begins with, how its models call tools, and what it writes down."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.settings import AgentCompaction
from tools.agents.home import Home
from tools.agents.responses import Responses
from tools.agents.scripted import Api, Call, Script
from tools.agents.story import PROMPT, main_story

_CONFIG = """\
# Mine.
model = "{model}"
{provider}
approval_policy = "never"
sandbox_mode = "danger-full-access"
model_auto_compact_token_limit = 50000
{table}
[features]
multi_agent_v2 = true

[projects."{project}"]
trust_level = "trusted"
"""
_PROVIDER = """
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
_KEY = "no-key-is-needed"
_FAILED = re.compile(r".*hook.*(?:fail|error|block).*", re.IGNORECASE)


class Codex(Struct, frozen=True):
    """The agent that a program is. Newer models call tools `in_scripts` only, where no hook can shorten an output.

    `remote` is how it works with OpenAI itself, which compacts for it; `unset` leaves the address out of its settings.
    """

    program: Path
    model: str = "gpt-5.5"
    in_scripts: bool = False
    remote: bool = False
    unset: bool = False
    name: str = "codex"
    hears_all: bool = False
    compaction: AgentCompaction = "beside"
    has_extension: bool = False
    summary_request: int = 0
    api: Api = Responses()

    @property
    def title(self) -> str:
        """What it is called in a report."""
        return f"Codex, tools called {'in scripts' if self.in_scripts else 'directly'}"

    @property
    def story(self) -> Script:
        """What its model does."""
        return main_story(self)

    @property
    def shortens(self) -> bool:
        """Whether a hook can put a shorter text in the place of an output."""
        return not self.in_scripts

    def settings(self, home: Home) -> list[Path]:
        """The files that an install changes."""
        return [home.folder / ".codex" / "hooks.json", home.folder / ".codex" / "config.toml"]

    def prepare(self, home: Home, address: str) -> None:
        """Settings as a user has them who has worked here before."""
        config = self.settings(home)[1]
        config.parent.mkdir()
        provider = f'openai_base_url = "{address}/v1"' if self.remote else 'model_provider = "scripted"'
        table = "" if self.remote else _PROVIDER.format(address=address)
        given = {"provider": "" if self.unset else provider, "table": "" if self.unset else table}
        config.write_text(_CONFIG.format(model=self.model, project=home.project, **given))

    def review(self, home: Home) -> None:
        """Agree to the hooks, as Codex writes it down when its user does: it names each of them, and its hash."""
        asked = [
            {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "check", "version": "1"}}},
            {"id": 2, "method": "hooks/list", "params": {"cwds": [str(home.project)]}},
        ]
        hooks = [hook for place in self._ask(home, asked)["data"] for hook in place["hooks"]]
        tables = (f'\n[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n' for hook in hooks)
        with self.settings(home)[1].open("a") as config:
            config.write("".join(tables))

    def _ask(self, home: Home, asked: list[dict[str, Any]]) -> Any:
        """What the app server of Codex answers to the last of these."""
        with subprocess.Popen(
            [self.program, "app-server"],
            cwd=home.project,
            env=home.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            for question in asked:
                server.stdin.write(json.dumps(question) + "\n")
                server.stdin.flush()
            answers = (json.loads(line) for line in server.stdout)
            found = next(answer["result"] for answer in answers if answer.get("id") == asked[-1]["id"])
            server.terminate()
        return found

    def work(self, home: Home, address: str) -> subprocess.CompletedProcess[str]:  # noqa: ARG002
        """One prompt, to its end."""
        return self.ask(home, PROMPT)

    def ask(self, home: Home, prompt: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A prompt, to its end."""
        return home.run([self.program, "exec", *options, prompt], **self.env())

    def env(self) -> dict[str, str]:
        """What it is told in the environment: OpenAI wants a key."""
        return {"CODEX_API_KEY": _KEY} if self.remote or self.unset else {}

    def logs(self, home: Home) -> list[Path]:
        """What it has written down of its sessions."""
        return sorted((home.folder / ".codex" / "sessions").glob("*/*/*/rollout-*.jsonl"))

    def complaints(self, home: Home, printed: str) -> Iterator[str]:  # noqa: ARG002
        """What it says about hooks that failed."""
        yield from _FAILED.findall(printed)

    def shell(self, label: str, command: str) -> Call:
        """A command in a shell."""
        if self.in_scripts:
            return Call(label, "exec", f"const ran = await tools.exec_command({_given(cmd=command)}); text(ran.output)")
        return Call(label, "exec_command", {"cmd": command})

    def ours(self, label: str, tool: str, arguments: dict[str, Any]) -> Call:
        """A tool of our MCP server."""
        if self.in_scripts:
            return Call(label, "exec", f"text(await tools.mcp__compactor__{tool}({_given(**arguments)}))")
        return Call(label, tool, arguments, "mcp__compactor")

    def delegate(self, task: str) -> list[Call]:
        """A sub-agent for a task, until it is done."""
        asked = {"task_name": "find_callers", "message": task, "fork_turns": "none"}
        return [
            Call("sub-agent", "spawn_agent", asked, "collaboration"),
            Call("waiting", "wait_agent", {"timeout_ms": 60_000}, "collaboration"),
        ]


def _given(**arguments: Any) -> str:
    return json.dumps(arguments)
