"""`compactor`: the commands, and what an error looks like."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from context_compactor import __version__
from context_compactor.cli.check import check
from context_compactor.cli.compact import compact
from context_compactor.cli.doctor import config, doctor
from context_compactor.cli.eval import evaluate
from context_compactor.cli.facts import facts, lessons
from context_compactor.cli.handoff import checkpoint, handoff, resume
from context_compactor.cli.imports import import_logs
from context_compactor.cli.install import hook, install, statusline, uninstall
from context_compactor.cli.output import BAD_USAGE, DONE, FAILED
from context_compactor.cli.plan import plan, set_tier
from context_compactor.cli.proxy import proxy, wrap
from context_compactor.cli.recall import recall
from context_compactor.cli.serve import mcp, serve, token, worker
from context_compactor.cli.sessions import context, delete, diff, history, redo, restore, sessions, undo
from context_compactor.cli.show import show
from context_compactor.cli.store import copy, export, migrate, verify
from context_compactor.cli.tui import tui
from context_compactor.errors import BadInput, CompactorError, MissingExtra

# Old names of commands, which still work.
_RENAMED = {"steer": "set-tier"}

_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Conversations": {"compact": compact, "plan": plan, "show": show, "check": check, "eval": evaluate},
    "Sessions": {
        "sessions": sessions,
        "context": context,
        "history": history,
        "diff": diff,
        "undo": undo,
        "redo": redo,
        "set-tier": set_tier,
        "delete": delete,
        "tui": tui,
    },
    "Archive and facts": {
        "recall": recall,
        "restore": restore,
        "facts": facts,
        "lessons": lessons,
        "export": export,
        "verify": verify,
    },
    "Going on elsewhere": {"checkpoint": checkpoint, "resume": resume, "handoff": handoff},
    "Coding agents": {
        "install": install,
        "uninstall": uninstall,
        "doctor": doctor,
        "import": import_logs,
        "mcp": mcp,
        "statusline": statusline,
        "hook": hook,
    },
    "Between agent and provider": {"proxy": proxy, "wrap": wrap},
    "Server": {"serve": serve, "worker": worker, "token": token},
    "Stores and settings": {"migrate": migrate, "copy": copy, "config": config},
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"compactor {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def make_app(only: str | None = None) -> typer.Typer:
    """The program with all its commands, or with one of them: describing each takes a millisecond."""
    made = typer.Typer(
        name="compactor",
        help="Keeps an agent's conversation inside its context window, and loses nothing.",
        epilog="Exit codes: 0 done or nothing to do, 1 failed, 2 wrong usage or bad input, 3 could not fit.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    named = [(panel, *each) for panel, commands in _PANELS.items() for each in commands.items()]
    is_known = any(name == only for _, name, _ in named)
    for panel, name, command in named:
        if name == only or not is_known:
            # What stands behind the name of a wrapped agent is the agent's.
            context = {"allow_interspersed_args": False} if name == "wrap" else None
            made.command(name, rich_help_panel=panel, context_settings=context)(command)
    return made


app = make_app()


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    _open_streams()
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        _drop_output()  # nobody reads on: that is how `| head` ends
        sys.exit(DONE)
    except OSError as error:
        sys.exit(_fail(_named_error(error), FAILED))
    except (BadInput, MissingExtra) as error:
        sys.exit(_fail(error, BAD_USAGE))
    except CompactorError as error:
        sys.exit(_fail(error, FAILED))


def _run(arguments: list[str]) -> None:
    if arguments and arguments[0] in _RENAMED:
        old, new = arguments[0], _RENAMED[arguments[0]]
        sys.stderr.write(f"note: `compactor {old}` is deprecated. Try: `compactor {new}`.\n")
        arguments = [new, *arguments[1:]]
    try:
        make_app(arguments[0] if arguments else None)(args=arguments)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # typer would call it a failure
            raise left.__context__ from None
        raise
    finally:
        sys.stdout.flush()


def _named_error(error: OSError) -> CompactorError:
    if error.filename:
        return CompactorError(f"{error.filename}: {error.strerror or error}")
    _drop_output()
    return CompactorError(f"cannot write to standard output: {error.strerror or error}")


def _open_streams() -> None:
    """Replace a stream that was closed before the start by the null device."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _drop_output() -> None:
    """What could not be written is not tried again when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: CompactorError, code: int) -> int:
    from context_compactor.text import one_line

    sys.stderr.write(f"error: {one_line(str(error), 2_000)}\n")
    for note in getattr(error, "__notes__", ()):
        sys.stderr.write(f"hint: {note}\n")
    return code
