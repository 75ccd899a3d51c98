"""`compactor steer`: decide about turns yourself, for every compaction of a session to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.classify.tier import Tier
from context_compactor.classify.turn_numbers import TURNS, read_steers, read_turns
from context_compactor.cli.opening import open_session
from context_compactor.cli.options import AsJson, SessionName, StoreUrl
from context_compactor.cli.output import paper, print_json

if TYPE_CHECKING:
    from context_compactor.session.session import Session

Keep = Annotated[str | None, typer.Option("--keep", metavar="TURNS", help=f"Turns to keep word for word: {TURNS}.")]
Summarize = Annotated[str | None, typer.Option("--summarize", metavar="TURNS", help="Turns to have in a few lines.")]
Reference = Annotated[str | None, typer.Option("--reference", metavar="TURNS", help="Turns to leave one line of.")]
Drop = Annotated[str | None, typer.Option("--drop", metavar="TURNS", help="Turns to leave no text of.")]
Free = Annotated[
    str | None, typer.Option("--free", metavar="TURNS|all", help="Turns to leave to the engine again, or `all`.")
]


def steer(
    session: SessionName = None,
    keep: Keep = None,
    summarize: Summarize = None,
    reference: Reference = None,
    drop: Drop = None,
    free: Free = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Decide about turns yourself: every compaction of the session follows, until a turn is freed or folded.

    Whatever is lowered, its original can be recalled, and failures and other facts stay. Without an option it shows
    what was decided. `compactor plan SESSION` shows what comes of it.

    Example: `compactor steer run-42 --keep 12,15 --drop 3-9`
    """
    wanted = read_steers({Tier.KEEP: keep, Tier.SUMMARIZE: summarize, Tier.REFERENCE: reference, Tier.DROP: drop}, "--")
    with open_session(session, store) as opened:
        if wanted:
            opened.plan(steers=wanted)  # when one is refused, none is done
        _free(opened, free)
        for turn, tier in wanted.items():
            opened.steer(turn, tier)
        name, found = opened.id, opened.steering()
    if as_json:
        print_json({"session_id": name, "steering": {str(turn): tier.value for turn, tier in found.items()}})
        return
    out = paper(beside_output=False)
    for turn, tier in found.items():
        out.print(f"turn {turn:<5}{tier}")
    if not found:
        out.print(f"Nothing is decided about turns of session {name!r}.")


def _free(session: Session, turns: str | None) -> None:
    if turns == "all":
        session.unsteer()
    for turn in read_turns("--free", turns) if turns != "all" else ():
        session.unsteer(turn)
