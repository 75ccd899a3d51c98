"""One session seen from three places: the command line, a server, and the terminal UI. Each is used as its users do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from textual.pilot import Pilot

from context_compactor.tui.sources.base import SessionSource
from context_compactor.tui.sources.local import LocalSource
from context_compactor.tui.sources.remote import RemoteSource
from context_compactor.tui.widgets.bars import Gauge
from tests import warm
from tests.server.filling import idle
from tests.server.running import Running
from tests.tui.places import WIDE, play, screen_text, settle, until

Raw = dict[str, Any]
Turn = tuple[str, str]
"""What the user says, and what the assistant answers."""

NAME = "run"
WINDOW = 30_000


def raws(turns: Iterable[Turn]) -> list[Raw]:
    """Turns as messages."""
    return [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]


class Surface(Protocol):
    """Where somebody talks and compacts."""

    def say(self, *turns: Turn) -> None:
        """Talk on."""
        ...

    def compact(self) -> str:
        """The command, and what it tells."""
        ...

    def context(self) -> list[Raw]:
        """What the model is shown now."""
        ...

    def history(self) -> list[Raw]:
        """Everything that was said."""
        ...

    def compactions(self) -> list[Raw]:
        """The reports that are kept with the session."""
        ...

    def shown_compactions(self) -> str:
        """What somebody who asks for the compactions gets to read."""
        ...

    def looked_on(self) -> tuple[str, str]:
        """What a UI that is open all the while shows before a compaction, and by itself after it."""
        ...


class CommandLine:
    """`compactor` as a program in a folder, each time a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: list[Raw] = []

    def run(self, *arguments: str) -> str:
        """What a command prints; it must leave with 0."""
        ran = warm.run(*arguments, cwd=self._folder, env=os.environ)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode()

    def say(self, *turns: Turn) -> None:
        """An agent that keeps its conversation in a file tells us of it from time to time."""
        self._said += raws(turns)
        (self._folder / "talk.json").write_text(json.dumps(self._said), encoding="utf-8")
        self.run("compact", "talk.json", "--window", str(WINDOW), "--session", NAME, "-o", "context.json")

    def compact(self) -> str:
        """`compactor compact SESSION`."""
        return self.run("compact", NAME)

    def context(self) -> list[Raw]:
        """`compactor context SESSION`."""
        return _messages(self.run("context", NAME, "--json"))

    def history(self) -> list[Raw]:
        """`compactor history SESSION`."""
        return _messages(self.run("history", NAME, "--json"))

    def compactions(self) -> list[Raw]:
        """`compactor history SESSION --reports`."""
        reports: list[Raw] = json.loads(self.run("history", NAME, "--reports", "--json"))["compactions"]
        return reports

    def shown_compactions(self) -> str:
        """The same for people."""
        return self.run("history", NAME, "--reports")

    def looked_on(self) -> tuple[str, str]:
        """A terminal UI on the same store."""
        return looked_on(LocalSource("sqlite:///.compactor/compactor.db", look_seconds=0.05), self.compact)


def looked_on(source: SessionSource, compact: Callable[[], str]) -> tuple[str, str]:
    """The screen of a session before and after somebody else compacts it."""
    shown: list[str] = []

    async def story(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "tokens" in screen_text(pilot))
        shown.append(screen_text(pilot))
        gauge = pilot.app.screen.query_one(Gauge)
        status = gauge.status
        await asyncio.to_thread(compact)
        await until(pilot, lambda: gauge.status is not status)
        await settle(pilot)
        shown.append(screen_text(pilot))

    play(story, size=WIDE, source=source, session_id=NAME)
    before, after = shown
    return before, after


def _messages(printed: str) -> list[Raw]:
    messages: list[Raw] = json.loads(printed)["messages"]
    return messages


class OverHttp:
    """The server's API."""

    def __init__(self, server: Running) -> None:
        self._server = server
        self._path = server.made(NAME, WINDOW)

    def say(self, *turns: Turn) -> None:
        """Turn by turn, as an agent does."""
        for turn in turns:
            got = self._server.post(f"{self._path}/messages", {"messages": raws([turn])})
            assert got.status == 200, got.raw
        idle(self._server)

    def compact(self) -> str:
        """The route, in the words of its answer."""
        got = self._server.post(f"{self._path}/compact", {})
        assert got.status == 200, got.raw
        found = got.json
        if not found["compacted"]:
            return f"No compaction needed: {found['reason']}"
        return (
            f"Compacted {found['messages_removed']} messages\n"
            f"Tokens: {found['tokens_before']:,} → {found['tokens_after']:,} (saved {found['tokens_saved']:,})"
        )

    def context(self) -> list[Raw]:
        """What is to be sent next."""
        messages: list[Raw] = self._server.get(f"{self._path}/context").json["messages"]
        return messages

    def history(self) -> list[Raw]:
        """The whole history."""
        messages: list[Raw] = self._server.get(f"{self._path}/history").json["messages"]
        return messages

    def compactions(self) -> list[Raw]:
        """The reports."""
        reports: list[Raw] = self._server.get(f"{self._path}/compactions").json["compactions"]
        return reports

    def shown_compactions(self) -> str:
        """The pane of the dashboard."""
        got = self._server.get(f"/sessions/{NAME}/compactions")
        assert got.status == 200, got.raw
        return got.raw.decode()

    def looked_on(self) -> tuple[str, str]:
        """A terminal UI on the server, which is told of it as an event."""
        return looked_on(RemoteSource(self._server.url, look_seconds=3_600), self.compact)
