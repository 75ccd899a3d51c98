"""`compactor plan` and `set-tier`: what a compaction would do, and setting the tiers of turns yourself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from context_compactor.cli.options import (
    AsJson,
    DialectName,
    FileOrSession,
    Focus,
    LevelName,
    Model,
    SessionName,
    StoreUrl,
    Summarizer,
    System,
    Target,
    Tools,
    Window,
    find_named,
    is_file,
    open_session,
    refuse_dialect,
)
from context_compactor.cli.output import EXIT_CODES, print_json, progress_line, stdout
from context_compactor.engine.tiers import TURNS_SYNTAX, Tier, read_overrides, read_turns
from context_compactor.errors import BadSetting

if TYPE_CHECKING:
    from context_compactor.cli.conversation import TranscriptInput
    from context_compactor.engine.plan import Plan
    from context_compactor.sessions.session import Session
    from context_compactor.settings import Level


Keep = Annotated[
    str | None, typer.Option("--keep", metavar="TURNS", help=f"Turns to keep word for word: {TURNS_SYNTAX}.")
]
Summarize = Annotated[str | None, typer.Option("--summarize", metavar="TURNS", help="Turns to shorten to a few lines.")]
Reference = Annotated[
    str | None, typer.Option("--reference", metavar="TURNS", help="Turns to replace by a one-line reference.")
]
Drop = Annotated[str | None, typer.Option("--drop", metavar="TURNS", help="Turns to remove from the context.")]
Free = Annotated[
    str | None, typer.Option("--free", metavar="TURNS|all", help="Turns whose tier the engine chooses again, or `all`.")
]


def set_tier(
    session: SessionName = None,
    keep: Keep = None,
    summarize: Summarize = None,
    reference: Reference = None,
    drop: Drop = None,
    free: Free = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set the tier of turns yourself, for every compaction of the session until a turn is freed or folded.

    Whatever tier is set, the original can be recalled, and failures and other facts stay. Without an option the tiers
    that are set are listed. `compactor plan SESSION` shows their effect.

    Example: `compactor set-tier run-42 --keep 12,15 --drop 3-9`
    """
    wanted = read_overrides(
        {Tier.KEEP: keep, Tier.SUMMARIZE: summarize, Tier.REFERENCE: reference, Tier.DROP: drop}, "--"
    )
    with open_session(session, store) as opened:
        if wanted:
            opened.plan(tiers=wanted)  # when one is refused, none is done
        _free(opened, free)
        for turn, tier in wanted.items():
            opened.set_tier(turn, tier)
        name, found = opened.id, opened.tiers()
    if as_json:
        print_json({"session_id": name, "tiers": {str(turn): tier.value for turn, tier in found.items()}})
        return
    out = stdout()
    for turn, tier in found.items():
        out.print(f"turn {turn:<5}{tier}")
    if not found:
        out.print(f"No tier is set for any turn of session {name!r}.")


def _free(session: Session, turns: str | None) -> None:
    if turns == "all":
        session.clear_tier()
    for turn in read_turns("--free", turns) if turns != "all" else ():
        session.clear_tier(turn)


Most = Annotated[int | None, typer.Option("--most", min=1, metavar="N", help="Show only the N that save most.")]


def plan(
    file: FileOrSession,
    window: Window = None,
    target: Target = None,
    level: LevelName = None,
    focus: Focus = None,
    model: Model = None,
    summarizer: Summarizer = None,
    dialect: DialectName = None,
    tools: Tools = None,
    system: System = None,
    keep: Keep = None,
    summarize: Summarize = None,
    reference: Reference = None,
    drop: Drop = None,
    most: Most = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what `compact` would do: every target with its tier, its reason and its tokens.

    Nothing is written, nothing is changed, and no model is asked. With a summarizer it says what that one would be
    shown and what it should cost; no key is needed for it. Turns of a session can be given another tier to see its
    effect; `compactor set-tier` sets it for good.

    Example: `compactor plan session.jsonl --target 25% --most 20` or `compactor plan run-42 --keep 12,15 --drop 9`
    """
    tiers = read_overrides(
        {Tier.KEEP: keep, Tier.SUMMARIZE: summarize, Tier.REFERENCE: reference, Tier.DROP: drop}, "--"
    )
    if is_file(file):
        if tiers:
            raise BadSetting(
                "--keep, --summarize, --reference and --drop need a stored session, and this is a file. "
                "Try: `compactor compact FILE --session ID` first."
            )
        with progress_line("Planning", file):
            from context_compactor.cli.conversation import open_conversation

            conversation = open_conversation(
                file, window, model, summarizer, dialect=dialect, tools=tools, system=system
            )
            made = _of_file(conversation, target, level, focus)
    else:
        refuse_dialect(file, dialect)
        if any(option is not None for option in (window, model, summarizer, tools, system)):
            raise BadSetting(
                f"--window, --model, --summarizer, --tools, --system: session {file!r:.80} already has these. "
                "Try: leave them out."
            )
        made = _of_session(file, store, target, level, focus, tiers)
    _print(made, most, as_json)


def _of_file(conversation: TranscriptInput, target: str | None, level: Level | None, focus: str | None) -> Plan:
    from context_compactor.engine.plan import Plan
    from context_compactor.library import estimating_summarizer

    summarizer = estimating_summarizer(conversation.settings)
    preview = conversation.compacted(target, level, focus, summarizer, dry_run=True)
    return Plan(preview.decisions, preview.report)


def _of_session(
    name: str, store: str | None, target: str | None, level: Level | None, focus: str | None, tiers: Mapping[int, Tier]
) -> Plan:
    from context_compactor.text import parse_target

    find_named(name, store)
    goal = parse_target(target)
    with progress_line("Planning", name), open_session(name, store) as session:
        tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
        return session.plan(focus, level, tokens, tiers=session.tiers() | dict(tiers))


def _print(made: Plan, most: int | None, as_json: bool) -> None:
    report = made.report
    if as_json:
        print_json({"decisions": msgspec.to_builtins(made.decisions), "report": report.to_dict()})
        raise typer.Exit(EXIT_CODES[report.status])
    from context_compactor.cli.report import biggest, print_plan, print_report, print_totals

    out = stdout()
    decisions = made.decisions if report.status != "unchanged" else ()
    print_plan(biggest(decisions) if most else decisions, out, most)
    if decisions:
        out.print()
        print_totals(made.totals(), out)
        out.print()
    print_report(report, out)
    raise typer.Exit(EXIT_CODES[report.status])
