"""`compactor compact SESSION`: a session that is in the store, compacted there as `/compact` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from context_compactor.cli.live import live_teller
from context_compactor.cli.opening import store_url
from context_compactor.cli.output import working
from context_compactor.cli.show_session import find_named
from context_compactor.figures import read_goal
from context_compactor.session.core import wall_clock
from context_compactor.session.opening import open_core
from context_compactor.session.session import Session

if TYPE_CHECKING:
    from context_compactor.levels import Level
    from context_compactor.report import Report


def compact_stored(
    name: str, store: str | None, target: str | None, level: Level | None, focus: str | None, left: str
) -> tuple[list[dict[str, Any]], Report]:
    """Compact a session of the store: its context now, and the report. An interrupt says what is `left`."""
    goal = read_goal(target)
    found = find_named(name, store)
    core = open_core(
        found.id,
        window=None,
        store=store_url(store),
        dialect="auto",
        model=None,
        settings=None,
        count_tokens=None,
        bus=None,
        clock=wall_clock,
    )
    with (
        Session(core, owns_store=True) as session,
        live_teller(core.settings, left) as teller,
        working("Compacting", name, is_quiet=teller is not None),
    ):
        core.use_teller(teller)
        tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
        report = session.compact(focus, level, target_tokens=tokens)
        return session.context(found.messages), report
