"""`/checkpoint`, `/handoff` and `/export`: take along what is needed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.figures import plural
from context_compactor.handoff.messages import PHASES, HandoffRequest
from context_compactor.handoff.summary import count_tokens
from context_compactor.tui.commands.command import Choice, Command, quoted
from context_compactor.tui.commands.doing import cancellable, progress, show
from context_compactor.tui.commands.offering import nearest
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.values import Piece

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

_PHASES = {
    "research": "find something out",
    "write": "make it",
    "validate": "see whether it is right",
    "parallel": "several at once",
}


async def checkpoint(screen: SessionScreen, rest: str) -> None:
    """Write down where the work stands."""
    source = app_of(screen).source
    with progress(screen, "Writing the checkpoint"):
        markdown = await source.checkpoint(screen.session_id, rest)
    where = f"written to {source.checkpoint_file}" if source.checkpoint_file else "kept in the store"
    screen.tell(f"✓ Checkpoint {'kept on the server' if source.is_remote else where}", "done")
    show(screen, "checkpoint", [Piece("", markdown, "checkpoint.md")])


async def handoff(screen: SessionScreen, rest: str) -> None:
    """Write what the next phase is given."""
    phase, _, task = rest.partition(" ")
    if phase not in PHASES:
        near = nearest(phase, PHASES)
        hint = f"Did you mean {near[0]}?" if near else f"Try: /handoff {PHASES[1]}; phases are {', '.join(PHASES)}."
        what = f"{quoted(phase)} is no phase" if phase else "a phase is missing"
        raise BadSetting(f"/handoff: {what}. {hint}")
    async with cancellable(screen, "Writing the handoff"):
        request = await app_of(screen).source.handoff(screen.session_id, phase, task.strip())
    tokens = count_tokens(request.to_json())
    screen.tell(f"✓ Handoff to {phase} of {tokens:,} tokens: {request.task_id}", "done")
    screen.action_reload()
    show(screen, f"handoff to {phase} · {tokens:,} tokens", list(_pieces(request)))


def _pieces(request: HandoffRequest) -> Iterator[Piece]:
    for name, told in request.to_dict().items():
        text = "\n".join(told) if isinstance(told, list) else told
        if text:
            yield Piece(name.replace("_", " "), text, "summary.md" if name == "context_summary" else "")
    yield Piece("as JSON", request.to_json(), "handoff.json")


async def export(screen: SessionScreen, rest: str) -> None:
    """Write the archive as plain files."""
    folder = Path(rest).expanduser() if rest else None
    with progress(screen, "Exporting"):
        done = await app_of(screen).source.export(screen.session_id, folder)
    files = plural(len(done.paths), "file")
    screen.tell(f"✓ {plural(done.count, 'original')} exported to {files} in {done.folder}", "done")


async def _phases(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(phase, _PHASES[phase]) for phase in PHASES] if " " not in rest else []


CHECKPOINT = Command("checkpoint", "Write down where the work stands.", checkpoint, "[note]")
HANDOFF = Command("handoff", "Write what the next phase is given.", handoff, "PHASE [task]", _phases)
EXPORT = Command("export", "Write the archive as plain files.", export, "[folder]")
