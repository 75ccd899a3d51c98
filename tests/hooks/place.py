"""A home and a project of their own, an agent's log in them, and hooks called as an agent calls them."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from context_compactor.agents.hook_log import read_hook_log
from context_compactor.agents.hook_state import AgentSessionRow
from context_compactor.agents.project import known_session_rows
from context_compactor.sessions.session import Session
from tests import warm

RECORDED = Path(__file__).with_name("recorded")
_NUMBERS = count(1)

Line = dict[str, Any]


class Place:
    """Where an agent works."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    @property
    def env(self) -> dict[str, str]:
        """The environment of a hook, with nothing of whoever runs the tests."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "CLAUDE_"))}
        return kept | {"HOME": str(self.home), "CLAUDE_PROJECT_DIR": str(self.project)}

    def call(self, event: str, said: object, *, is_started: bool = False, **env: str) -> str:
        """Call a hook, which leaves with 0 and says nothing on standard error; what it prints."""
        ran = self.run(event, said, is_started=is_started, **env)
        assert (ran.returncode, ran.stderr.decode()) == (0, "")
        return ran.stdout.decode()

    def run(
        self, event: str, said: object, *, is_started: bool = False, **env: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Call a hook, whatever comes of it; started as an agent does, or as a copy, which takes less time."""
        given = said if isinstance(said, bytes) else json.dumps(said).encode()
        command, place = ["hook", *event.split()], {"cwd": self.project, "env": self.env | env}
        if not is_started:
            return warm.run(*command, said=given, **place)
        return subprocess.run([warm.COMMAND, *command], input=given, capture_output=True, check=False, **place)

    def hook_log(self) -> list[dict[str, Any]]:
        """What hooks have written down."""
        return list(read_hook_log(str(self.project)))

    def rows(self) -> dict[str, AgentSessionRow]:
        """What is remembered, by session."""
        return {row.key: row for row in known_session_rows(str(self.project))}

    def session(self, name: str) -> Session:
        """A session of the project's store."""
        return Session.open(name, store=f"sqlite:///{self.project}/.compactor/compactor.db")


class Talk:
    """The log of a Claude Code session, written line by line as that one does."""

    def __init__(self, place: Place, session_id: str = "11111111-1111-4111-8111-111111111111") -> None:
        self.place = place
        self.id = session_id
        self.path = place.home / ".claude" / "projects" / "-project" / f"{session_id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._parent: str | None = None
        self.tokens = 10_000
        self.version = "2.1.197"

    def said(self, event: str, **more: Any) -> dict[str, Any]:
        """What an agent says when an event happens."""
        known = {"session_id": self.id, "transcript_path": str(self.path), "cwd": str(self.place.project)}
        return known | {"hook_event_name": event} | more

    def hook(self, event: str, word: str, **more: Any) -> Any:
        """Call a hook about this session; its JSON, or None when it says nothing."""
        out = self.place.call(word, self.said(event, **more))
        return json.loads(out) if out else None

    def write(self, line: Line) -> str:
        """Write a line; its id."""
        uuid = f"00000000-0000-4000-8000-{next(_NUMBERS):012d}"
        known = {"parentUuid": self._parent, "uuid": uuid, "sessionId": self.id, "cwd": str(self.place.project)}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        stamp = {"isSidechain": False, "timestamp": now, "version": self.version}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(known | stamp | line) + "\n")
        self._parent = uuid
        return uuid

    def user(self, text: str) -> str:
        """The user says something."""
        return self.write({"type": "user", "message": {"role": "user", "content": text}})

    def reply(self, *blocks: dict[str, Any]) -> str:
        """The model answers, and the provider says how full its window is."""
        self.tokens += 1_000
        usage = {"input_tokens": 10, "cache_read_input_tokens": self.tokens - 110, "output_tokens": 100}
        message = {"role": "assistant", "id": f"msg_{next(_NUMBERS)}", "model": "claude-sonnet-4-5", "usage": usage}
        return self.write({"type": "assistant", "message": message | {"content": list(blocks)}})

    def answer(self, text: str) -> str:
        """The model says something."""
        return self.reply({"type": "text", "text": text})

    def ask(self, tool: str, given: dict[str, Any], call_id: str = "") -> str:
        """The model calls a tool; the id of the call."""
        call_id = call_id or f"toolu_{next(_NUMBERS):04d}"
        self.reply({"type": "tool_use", "id": call_id, "name": tool, "input": given})
        return call_id

    def result(self, call_id: str, text: str, *, is_error: bool = False) -> str:
        """A tool has answered."""
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        block |= {"is_error": True} if is_error else {}
        return self.write({"type": "user", "message": {"role": "user", "content": [block]}})

    def run(self, command: str, output: str, *, is_error: bool = False) -> str:
        """The model runs a command; the id of the call."""
        call_id = self.ask("Bash", {"command": command})
        self.result(call_id, output, is_error=is_error)
        return call_id

    def compact(self, summary: str, trigger: str = "auto") -> None:
        """The agent compacts by itself."""
        self._parent = None
        facts = {"trigger": trigger, "preTokens": self.tokens}
        self.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": facts, "content": "compacted"})
        text = f"This session is being continued from a previous conversation.\n\nSummary:\n{summary}"
        self.write({"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": text}})
        self.tokens = 12_000

    def digest(self, text: str, *kept: Line) -> None:
        """A plugin compacts in the agent's place, and keeps some rows, which are logged again."""
        self._parent = None
        facts = {"trigger": "auto", "preTokens": self.tokens}
        self.write({"type": "system", "subtype": "compact_boundary", "compactMetadata": facts, "content": "compacted"})
        self.write({"type": "user", "message": {"role": "user", "content": text}})
        for row in kept:
            self.write({"type": row["type"], "message": row["message"]})
        self.tokens = 12_000

    def rows(self) -> list[Line]:
        """The lines that were written."""
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]

    def got(self, text: str) -> None:
        """The agent has given a hook's text to its model."""
        self.write({"type": "attachment", "attachment": {"type": "hook_additional_context", "content": [text]}})

    def rewind(self, uuid: str) -> None:
        """The user goes back to a line and takes another way from there."""
        self._parent = uuid


def worked(talk: Talk, steps: int = 6) -> None:
    """Some work: a task, a rule, commands that pass, and one that fails."""
    talk.user("Fix the login in src/auth/jwt.py. Never touch the file config/secrets.yaml.")
    for step in range(steps):
        talk.run(f"sed -n {step}p src/auth/jwt.py", f"line {step} of jwt.py: def verify_{step}(token): ...")
    talk.run("pytest tests/test_jwt.py", "E   KeyError: 'exp'\n1 failed in 0.10s", is_error=True)
    talk.answer("The token has no `exp`. I decided to reject such tokens instead of giving them a default.")


def recorded(agent: str) -> dict[str, dict[str, Any]]:
    """What an agent really said, by event and case."""
    found: dict[str, dict[str, Any]] = json.loads((RECORDED / f"{agent}.json").read_text(encoding="utf-8"))
    return found
