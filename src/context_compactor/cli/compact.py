"""`compactor compact`: a transcript in, a context that fits out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.options import AsJson, File, Focus, LevelName, Model, SessionId, Target, Window, refuse_model
from context_compactor.cli.output import EXIT_CODES, Paper, paper, print_json, refuse_same_file, working, write_messages

if TYPE_CHECKING:
    from context_compactor.cli.conversation import Conversation

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
    refuse_same_file(file, output)
    with working("Compacting", file):
        from context_compactor.cli.conversation import open_conversation

        conversation = open_conversation(file, window)
        result = conversation.compacted(target, level, focus, session)
    report = result.report
    if output is not None or not as_json:
        write_messages(result.messages, output)
    if as_json:
        print_json({"messages": result.messages, "report": report.to_dict()})
    else:
        from context_compactor.cli.render import print_report

        out = paper(beside_output=output is None or output == "-")
        print_report(report, out)
        _note_unseen(conversation, target, out)
    raise typer.Exit(EXIT_CODES[report.status])


def _note_unseen(conversation: Conversation, target: str | None, out: Paper) -> None:
    """A log without its system prompt and tools weighs more on the wire than it seems: say how much."""
    if target is None and conversation.unseen:
        out.print(
            f"note        counted with {conversation.unseen:,} tokens that the provider saw on top of these messages "
            "(system prompt, tools)",
            style="dim",
        )
