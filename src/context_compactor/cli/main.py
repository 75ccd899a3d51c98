"""`compactor`: the commands, and what an error looks like."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from context_compactor import __version__
from context_compactor.cli.compact import compact
from context_compactor.cli.config import config
from context_compactor.cli.eval import evaluate
from context_compactor.cli.plan import plan
from context_compactor.cli.show import show
from context_compactor.errors import BadInput, CompactorError, MissingExtra

DONE, FAILED, BAD_USAGE, DOES_NOT_FIT, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    name="compactor",
    help="Keeps an agent's conversation inside its context window, and loses nothing.",
    epilog="Exit codes: 0 done or nothing to do, 1 failed, 2 wrong usage or bad input, 3 could not fit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (compact, plan, show, config):
    app.command()(command)
app.command("eval")(evaluate)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"compactor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    _open_streams()
    try:
        app(args=arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()
    except OSError as error:
        sys.exit(_fail(CompactorError(f"cannot write to standard output: {error.strerror}"), FAILED))
    except (BadInput, MissingExtra) as error:
        sys.exit(_fail(error, BAD_USAGE))
    except CompactorError as error:
        sys.exit(_fail(error, FAILED))


def _open_streams() -> None:
    """A stream that was closed before we began is nowhere to write to, not a reason to fail."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


def _leave_quietly() -> None:
    """Nobody reads on: that is how `| head` ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(DONE)


def _fail(error: CompactorError, code: int) -> int:
    from context_compactor.cli.output import one_line

    sys.stderr.write(f"error: {one_line(str(error), 2_000)}\n")
    for note in getattr(error, "__notes__", ()):
        sys.stderr.write(f"hint: {note}\n")
    return code
