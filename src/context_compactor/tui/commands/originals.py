"""`/recall` and `/restore`: read an original from the archive, or put it back into the context."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting, UnknownReference
from context_compactor.tui.commands.command import Choice, Command, quoted
from context_compactor.tui.commands.doing import cancellable
from context_compactor.tui.commands.offering import fitting, nearest
from context_compactor.tui.reading import OriginalReading
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_viewer import ViewerScreen
from context_compactor.tui.texts import cut_line

if TYPE_CHECKING:
    from context_compactor.report import Archived
    from context_compactor.tui.screens.session import SessionScreen

_NEAR = 3
_MOST = 500
_LONGEST_NUMBER = 12


async def recall(screen: SessionScreen, rest: str) -> None:
    """Read an original."""
    ref = await _found(screen, "recall", rest)
    screen.app.push_screen(ViewerScreen(OriginalReading(app_of(screen).source, screen.session_id, ref)))


async def restore(screen: SessionScreen, rest: str) -> None:
    """Put an original back into the context."""
    ref = await _found(screen, "restore", rest)
    async with cancellable(screen, "Restoring"):
        done = await app_of(screen).source.restore(screen.session_id, ref)
    screen.tell(f"✓ {done.in_words()}\nTokens: {done.tokens_after:,} in the context", "done")
    screen.action_reload()


async def _found(screen: SessionScreen, command: str, rest: str) -> str:
    """The id that was entered, if there is such an original."""
    if not rest or " " in rest:
        what = f"{quoted(rest)} is more than one id" if rest else "an id is missing"
        raise BadSetting(f"/{command}: {what}. Try: /{command} turn_003; Tab lists those that are archived.")
    try:
        await app_of(screen).source.original(screen.session_id, rest)
    except UnknownReference as error:
        near = _near(rest, await _archive(screen))
        hint = f". Near: {', '.join(near)}." if near else ""
        raise UnknownReference(f"/{command}: {f'{error}'.rstrip('.')}{hint}") from error
    return rest


async def archived(screen: SessionScreen, rest: str) -> Sequence[Choice]:
    """What has left the context, the newest first."""
    if " " in rest:
        return []
    known = await _archive(screen)
    found = await asyncio.to_thread(fitting, rest, known)  # there may be very many
    return [
        Choice(ref, f"{known[ref].kind} · {known[ref].tokens:,} tokens · {cut_line(known[ref].summary, 100)}")
        for ref in found[:_MOST]
    ]


async def _archive(screen: SessionScreen) -> dict[str, Archived]:
    if screen.archived is None:
        made = await app_of(screen).source.compactions(screen.session_id)
        screen.archived = {each.id: each for line in reversed(made) for each in reversed(line.report.archived)}
    return screen.archived


def _near(ref: str, known: Iterable[str]) -> list[str]:
    """The ids that are most like a wrong one: those of the nearest numbers, where it has one."""
    name, _, number = ref.partition("_")
    if not number.isdecimal() or len(number) > _LONGEST_NUMBER:
        return nearest(ref, list(known)[:_MOST], _NEAR)
    same = [each for each in known if each.startswith(f"{name}_")]
    return nsmallest(_NEAR, same, key=lambda each: abs(int(each.partition("_")[2]) - int(number)))


RECALL = Command("recall", "Read an original from the archive.", recall, "ID", archived, only_looks=True)
RESTORE = Command("restore", "Put an original back into the context.", restore, "ID", archived)
