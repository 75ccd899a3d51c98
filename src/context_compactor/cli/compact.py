"""`compactor compact`: a transcript in, a context that fits out."""

from __future__ import annotations

from typing import Annotated

import typer

from context_compactor.cli.options import AsJson, File, Focus, LevelName, Model, SessionId, Target, Window, refuse_model
from context_compactor.cli.output import EXIT_CODES, console, print_json, working, write_messages

Output = Annotated[str | None, typer.Option("--output", "-o", metavar="OUT", help="File for the messages.")]


def compact(
    file: File,
    window: Window = None,
    target: Target = None,
    level: LevelName = None,
    focus: Focus = None,
    model: Model = None,
    session: SessionId = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Bring a conversation under its target.

    The messages go to OUT or to standard output, in the dialect they came in; the report goes beside them. Below the
    soft threshold nothing is changed, unless a target or a level is given.
    """
    refuse_model(model)
    with working("Compacting"):
        from context_compactor.cli.conversation import open_conversation

        result = open_conversation(file, window).compacted(target, level, focus, session)
    report = result.report
    if output is not None or not as_json:
        write_messages(result.messages, output)
    if as_json:
        print_json({"messages": result.messages, "report": report.to_dict()})
    else:
        from context_compactor.cli.render import print_report

        print_report(report, console(beside_output=output is None or output == "-"))
    raise typer.Exit(EXIT_CODES[report.status])
