"""`compactor plan`: what a compaction would do, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.classify.tier import Tier
from context_compactor.classify.turn_numbers import read_steers
from context_compactor.cli.options import AsJson, FileOrSession, Focus, LevelName, Model, StoreUrl, Target, Window
from context_compactor.cli.output import EXIT_CODES, paper, print_json, working
from context_compactor.cli.show import is_file
from context_compactor.cli.steer import Drop, Keep, Reference, Summarize
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.levels import Level
    from context_compactor.plan.plan import Plan

Most = Annotated[int | None, typer.Option("--most", min=1, metavar="N", help="Show only the N that save most.")]


def plan(
    file: FileOrSession,
    window: Window = None,
    target: Target = None,
    level: LevelName = None,
    focus: Focus = None,
    model: Model = None,
    keep: Keep = None,
    summarize: Summarize = None,
    reference: Reference = None,
    drop: Drop = None,
    most: Most = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what `compact` would do: every target with its tier, its reason and its tokens.

    Nothing is written, nothing is changed, and no model is asked. With a model it says what that one would be shown and
    what it should cost; no key is needed for it. Turns of a session can be given another tier, to see what comes of
    that; `compactor steer` makes it stand.

    Example: `compactor plan session.jsonl --target 25% --most 20` or `compactor plan run-42 --keep 12,15 --drop 9`
    """
    steers = read_steers({Tier.KEEP: keep, Tier.SUMMARIZE: summarize, Tier.REFERENCE: reference, Tier.DROP: drop}, "--")
    if is_file(file):
        if steers:
            raise BadSetting("--keep, --summarize, --reference and --drop are for a session, and this is a file")
        made = _of_file(file, window, target, level, focus, model)
    else:
        if window is not None or model is not None:
            raise BadSetting(f"--window, --model: session {file!r:.80} has its own; leave them out")
        made = _of_session(file, store, target, level, focus, steers)
    _print(made, most, as_json)


def _of_file(
    file: str, window: str | None, target: str | None, level: Level | None, focus: str | None, model: str | None
) -> Plan:
    with working("Planning", file):
        from context_compactor.app import expecting_teller
        from context_compactor.cli.conversation import open_conversation
        from context_compactor.plan.plan import Plan

        conversation = open_conversation(file, window, model)
        preview = conversation.compacted(target, level, focus, expecting_teller(conversation.settings), dry_run=True)
        return Plan(preview.decisions, preview.report)


def _of_session(
    name: str, store: str | None, target: str | None, level: Level | None, focus: str | None, steers: Mapping[int, Tier]
) -> Plan:
    from context_compactor.cli.opening import open_session
    from context_compactor.cli.show_session import find_named
    from context_compactor.figures import read_goal

    find_named(name, store)
    goal = read_goal(target)
    with working("Planning", name), open_session(name, store) as session:
        tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
        return session.plan(focus, level, tokens, steers=session.steering() | dict(steers))


def _print(made: Plan, most: int | None, as_json: bool) -> None:
    report = made.report
    if as_json:
        print_json({"decisions": msgspec.to_builtins(made.decisions), "report": report.to_dict()})
        raise typer.Exit(EXIT_CODES[report.status])
    from context_compactor.cli.render import biggest, print_plan, print_report, print_totals

    out = paper(beside_output=False)
    decisions = made.decisions if report.status != "unchanged" else ()
    print_plan(biggest(decisions) if most else decisions, out, most)
    if decisions:
        out.print()
        print_totals(made.totals(), out)
        out.print()
    print_report(report, out)
    raise typer.Exit(EXIT_CODES[report.status])
