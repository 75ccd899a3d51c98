"""Sessions of a server. When it does not answer, that is told, and looked again until it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from context_compactor.archive.export import Exported
from context_compactor.client import AsyncClient
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.events.event import Event
from context_compactor.handoff.messages import HandoffRequest
from context_compactor.plan.plan import Plan
from context_compactor.report import Report
from context_compactor.tui.ending import ended_with_its_task
from context_compactor.tui.remote_look import RemoteLook
from context_compactor.tui.values import (
    Appended,
    Change,
    PutBack,
    Request,
    SessionLine,
)
from context_compactor.tui.watching import changes

T = TypeVar("T")

_LOOK_SECONDS = 2.0
_LAST_SECONDS = 1.0
_TOLD = (
    "session.compacted",
    "compaction.failed",
    "compaction.refused",
    "compaction.undone",
    "item.restored",
    "session.deleted",
)


class RemoteSource(RemoteLook):
    """The sessions that a token may see on one server."""

    is_remote = True
    checkpoint_file = ""

    def __init__(self, url: str, token: str | None = None, *, look_seconds: float = _LOOK_SECONDS) -> None:
        super().__init__(url, token)
        self._url = url
        self._look_seconds = look_seconds
        self._slow = AsyncClient(url, token)
        self._looking: asyncio.Future[list[SessionLine]] | None = None
        self._told: dict[str, set[str]] = {}
        """Per session the compactions whose reports were given to whoever sends requests."""

    @property
    def name(self) -> str:
        """The address of the server."""
        return self._url

    # Doing

    async def planned(
        self,
        session_id: str,
        *,
        level: str | None = None,
        target_tokens: int | None = None,
        focus: str | None = None,
        steers: Mapping[int, str] | None = None,
    ) -> Plan:
        """What a compaction would do now, turn by turn."""
        return await self._slow.plan(session_id, focus, level, target_tokens, steers=steers)

    async def steer(self, session_id: str, turn: int, tier: str) -> None:
        """Decide about a turn."""
        await self._client.steer(session_id, turn, tier)

    async def unsteer(self, session_id: str, turn: int | None = None) -> None:
        """Leave a turn to the engine again, or all of them."""
        await self._client.unsteer(session_id, turn)

    async def compact(
        self, session_id: str, *, level: str | None = None, target_tokens: int | None = None, focus: str | None = None
    ) -> Report:
        """Compact now; a task that is cancelled has the server end it, and then nothing is changed, or it was done."""
        work = self._slow.compact(session_id, focus, level, target_tokens=target_tokens)
        answer = await self._cancellable(session_id, work, is_done=lambda answer: answer.compacted)
        self._tell(session_id, answer.report)
        return answer.report

    async def _cancellable(self, session_id: str, work: Coroutine[Any, Any, T], is_done: Callable[[T], bool]) -> T:
        return await ended_with_its_task(work, lambda: self._client.cancel(session_id), is_done)

    async def undo(self, session_id: str) -> Report | None:
        """Take the last compaction back."""
        return await self._client.undo(session_id)

    async def redo(self, session_id: str) -> Report | None:
        """Take the last undo back."""
        return await self._client.redo(session_id)

    async def restore(self, session_id: str, ref: str) -> PutBack:
        """Put an original back into the context."""
        return PutBack(**structs.asdict(await self._slow.restore(session_id, ref)))

    async def checkpoint(self, session_id: str, note: str = "") -> str:
        """Where the work stands, which the server keeps as well."""
        return (await self._client.write_checkpoint(session_id, note)).markdown

    async def handoff(self, session_id: str, phase: str = "write", task: str = "") -> HandoffRequest:
        """What the next phase is given."""
        return await self._cancellable(session_id, self._slow.handoff(session_id, phase, task), is_done=bool)

    async def create(self, session_id: str, *, window: int, model: str | None = None, dialect: str = "auto") -> None:
        """Make a session, or go on with the one that is there."""
        await self._client.create(session_id, window=window, model=model, dialect=dialect)

    async def delete(self, session_id: str) -> None:
        """Delete a session."""
        await self._slow.delete(session_id)

    async def append(
        self,
        session_id: str,
        messages: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append messages, all or none."""
        done = await self._slow.append(session_id, messages, usage)
        self._tell(session_id, done.report)
        return Appended(done.messages, done.tokens, done.share, done.level, done.report)

    async def request(self, session_id: str) -> Request:
        """The context as it must be sent now. A compaction that a job has made since the last one is told as well."""
        known = self._told.get(session_id)
        if known is None:
            known = {report.compaction_id for report in await self._reports(session_id)}
        messages = (await self._slow.context(session_id)).messages
        made = await self._reports(session_id)
        new = [report for report in made if report.compaction_id not in known]
        self._told[session_id] = known | {report.compaction_id for report in new}
        return Request(messages, new[-1] if new else None)

    def _tell(self, session_id: str, report: Report | None) -> None:
        """What was told already is no news to the next request."""
        if report is not None and session_id in self._told:
            self._told[session_id].add(report.compaction_id)

    async def set_automatic(self, session_id: str, is_on: bool) -> bool:
        """Let the session compact by itself, or not. Where its own settings are as usual, those of the server count."""
        found = await self._client.session(session_id)
        if found.window is None:
            raise BadSetting(f"automatic: {session_id!r:.80} has no window of its own. Try: create it with one.")
        settings = {**found.settings, "automatic": is_on}
        made = await self._client.create(session_id, window=found.window, settings=settings)
        return bool(made.settings.get("automatic", is_on))

    async def export(self, session_id: str, folder: Path | None = None) -> Exported:
        """A server keeps its archive: files can be written where its store is."""
        what = folder or "it"
        raise BadSetting(
            f"export: the archive of {session_id!r:.80} is on the server, so {what} cannot be written from here. "
            "Try: `compactor export` there, or recall originals one by one."
        )

    # Living with it

    async def watch(self) -> AsyncIterator[Change]:
        """Look again and again, and hear events in between: those come at once."""
        told: asyncio.Queue[Change] = asyncio.Queue()
        tasks = [asyncio.create_task(work(told.put)) for work in (self._look, self._hear)]
        try:
            while True:
                yield await told.get()
        finally:
            for task in tasks:
                task.cancel()

    async def _look(self, tell: Callable[[Change], Awaitable[None]]) -> None:
        async def look() -> dict[str, str]:
            self._looking = asyncio.ensure_future(self.sessions())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
            return {line.id: line.mark for line in await asyncio.shield(self._looking)}

        async for change in changes(look, self._look_seconds):
            await tell(change)

    async def _hear(self, tell: Callable[[Change], Awaitable[None]]) -> None:
        while True:
            try:
                async with aclosing(self._client.events(types=_TOLD)) as events:
                    async for event in events:
                        await tell(Change(frozenset({event.session_id}), told=_words(event)))
            except CompactorError:
                pass  # who looks says what is wrong
            await asyncio.sleep(self._look_seconds)

    async def close(self) -> None:
        """Close the connections, behind the look that is under way: a verb that ends later would keep its own."""
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_LAST_SECONDS)
        await self._client.close()
        await self._slow.close()


def _words(event: Event) -> str:
    told = event.payload
    if event.type == "session.compacted":
        return (
            f"{event.session_id}: compacted, {told.get('tokens_before', 0):,} → {told.get('tokens_after', 0):,} tokens"
        )
    if event.type in ("compaction.failed", "compaction.refused"):
        return f"{event.session_id}: not compacted, {told.get('reason', '')}"
    return ""
