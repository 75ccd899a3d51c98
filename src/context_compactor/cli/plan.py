"""`compactor plan`: what a compaction would do, without doing it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from context_compactor.cli.options import AsJson, File, Focus, LevelName, Model, Target, Window
from context_compactor.cli.output import EXIT_CODES, paper, print_json, working

Most = Annotated[int | None, typer.Option("--most", min=1, metavar="N", help="Show only the N that save most.")]


def plan(
    file: File,
    window: Window = None,
    target: Target = None,
    level: LevelName = None,
    focus: Focus = None,
    model: Model = None,
    most: Most = None,
    as_json: AsJson = False,
) -> None:
    """Show what `compact` would do: every target with its tier, its reason and its tokens.

    Nothing is written, nothing is changed, and no model is asked. With a model it says what that one would be shown and
    what it should cost; no key is needed for it.

    Example: `compactor plan session.jsonl --target 25% --most 20`
    """
    with working("Planning", file):
        from context_compactor.app import expecting_teller
        from context_compactor.cli.conversation import open_conversation

        conversation = open_conversation(file, window, model)
        preview = conversation.compacted(target, level, focus, expecting_teller(conversation.settings), dry_run=True)
    if as_json:
        print_json({"decisions": msgspec.to_builtins(preview.decisions), "report": preview.report.to_dict()})
        raise typer.Exit(EXIT_CODES[preview.report.status])
    from context_compactor.cli.render import biggest, print_plan, print_report, print_totals

    out = paper(beside_output=False)
    print_plan(biggest(preview.decisions) if most else preview.decisions, out, most)
    if preview.decisions:
        out.print()
        print_totals(preview.decisions, out)
        out.print()
    print_report(preview.report, out)
    raise typer.Exit(EXIT_CODES[preview.report.status])
