"""`/checkpoint`, `/handoff`, `/export`, `/delete`, `/sessions`, `/help` and `/quit`: hand a session on, delete it, or
leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.handoff.context_summary import count_tokens
from context_compactor.handoff.protocol import PHASES, HandoffRequest
from context_compactor.text import plural
from context_compactor.tui.commands.command import Choice, Command, did_you_mean, quoted, refuse_arguments
from context_compactor.tui.commands.execution import cancellable, show_pieces, show_progress
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.screens.base import app_of
from context_compactor.tui.screens.dialogs import ask_and_delete
from context_compactor.tui.sources.base import TextPiece

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
    with show_progress(screen, "Writing the checkpoint"):
        markdown = await source.checkpoint(screen.session_id, rest)
    where = f"written to {source.checkpoint_file}" if source.checkpoint_file else "kept in the store"
    screen.show_message(f"✓ Checkpoint {'kept on the server' if source.is_remote else where}", "done")
    show_pieces(screen, "checkpoint", [TextPiece("", markdown, "checkpoint.md")])


async def handoff(screen: SessionScreen, rest: str) -> None:
    """Write what the next phase is given."""
    phase, _, task = rest.partition(" ")
    if phase not in PHASES:
        hint = did_you_mean(phase, PHASES, f"Try: /handoff {PHASES[1]}; phases are {', '.join(PHASES)}.")
        what = f"{quoted(phase)} is not a phase" if phase else "a phase is missing"
        raise BadSetting(f"/handoff: {what}. {hint}")
    async with cancellable(screen, "Writing the handoff"):
        request = await app_of(screen).source.handoff(screen.session_id, phase, task.strip())
    tokens = count_tokens(request.to_json())
    screen.show_message(f"✓ Handoff to {phase} of {tokens:,} tokens: {request.task_id}", "done")
    screen.action_reload()
    show_pieces(screen, f"handoff to {phase} · {tokens:,} tokens", list(_pieces(request)))


def _pieces(request: HandoffRequest) -> Iterator[TextPiece]:
    for name, value in request.to_dict().items():
        text = "\n".join(value) if isinstance(value, list) else value
        if text:
            yield TextPiece(name.replace("_", " "), text, "summary.md" if name == "context_summary" else "")
    yield TextPiece("as JSON", request.to_json(), "handoff.json")


async def export(screen: SessionScreen, rest: str) -> None:
    """Write the archive as plain files."""
    folder = Path(rest).expanduser() if rest else None
    with show_progress(screen, "Exporting"):
        done = await app_of(screen).source.export(screen.session_id, folder)
    files = plural(len(done.paths), "file")
    screen.show_message(f"✓ {plural(done.count, 'original')} exported to {files} in {done.folder}", "done")


async def _phases(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(phase, _PHASES[phase]) for phase in PHASES] if " " not in rest else []


CHECKPOINT = Command("checkpoint", "Write down where the work stands.", checkpoint, "[note]")
HANDOFF = Command("handoff", "Write what the next phase is given.", handoff, "PHASE [task]", _phases)
EXPORT = Command("export", "Write the archive as plain files.", export, "[folder]")


_MAX_NAME = 60


def help_command(commands: Callable[[], Mapping[str, Command]]) -> Command:
    """`/help`, which has to know all commands, itself among them."""

    async def run(screen: SessionScreen, rest: str) -> None:
        name = rest.removeprefix("/")
        if not name:
            app_of(screen).action_help()
            return
        command = commands().get(name)
        if command is None:
            hint = did_you_mean(name, commands(), "Try: /help lists all of them.", "/")
            raise BadSetting(f"/help: {quoted('/' + name)} is not a command. {hint}")
        screen.show_message("\n".join(filter(None, (command.usage, command.words, command.more))))

    async def choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
        known = commands().values()
        return [Choice(each.name, each.words) for each in known] if " " not in rest else []

    return Command("help", "Words, keys and commands, or one command.", run, "[command]", choices, is_read_only=True)


async def sessions(screen: SessionScreen, rest: str) -> None:
    """Back to the list."""
    refuse_arguments("sessions", rest)
    app_of(screen).show_sessions()


async def delete(screen: SessionScreen, rest: str) -> None:
    """Delete the session, if that is really wanted, and back to the list."""
    refuse_arguments("delete", rest)
    app, session_id = app_of(screen), screen.session_id
    if await ask_and_delete(app, session_id):
        if app.screen_of(session_id) is not None:
            app.show_sessions()
        app.notify(f"{cut_line(session_id, _MAX_NAME)} is deleted.", markup=False)


async def quit_app(screen: SessionScreen, rest: str) -> None:
    """Out."""
    refuse_arguments("quit", rest)
    app_of(screen).exit()


SESSIONS = Command("sessions", "Back to all sessions.", sessions, is_read_only=True)
DELETE = Command("delete", "Delete this session for good; it is asked first.", delete)
QUIT = Command("quit", "Leave.", quit_app, is_read_only=True)
