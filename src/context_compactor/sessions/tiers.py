"""Tiers that the user sets for turns, and the plan that follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from context_compactor.engine.decisions import keep_all_decisions
from context_compactor.engine.plan import Decision, Plan
from context_compactor.engine.request import CompactionRequest
from context_compactor.engine.tiers import KEPT, Tier, override_refusal, tier_named
from context_compactor.errors import BadSetting
from context_compactor.sessions.compaction import effective_tiers, run_engine, turn_starts
from context_compactor.sessions.core import Core, ParsedSession
from context_compactor.sessions.log import SessionContext
from context_compactor.sessions.state import SessionState, TierChoice, read_session_state


def set_tier(core: Core, turn: int, tier: str) -> None:
    """From now on compactions give this turn this tier; refused for what must not be touched."""
    taken = core.parse_context()
    wanted = _checked_tier(core, taken, turn, tier)
    chosen = TierChoice(wanted, turn_starts(taken).get(turn, 0))
    core.change(lambda state: structs.replace(state, steers={**state.steers, turn: chosen}))


def _checked_tier(core: Core, taken: ParsedSession, turn: int, tier: str) -> Tier:
    """The tier, when this turn may have it."""
    if type(turn) is not int:
        raise BadSetting(f"turn {turn!r:.40} is not a turn number. Try: a number such as 12.")
    wanted = tier_named(tier)
    why = override_refusal(taken.scene.turns, turn, wanted)
    if why:
        raise BadSetting(f"session {core.id!r}, {wanted} turn {turn}: {why}")
    return wanted


def clear_tier(core: Core, turn: int | None) -> None:
    """Take a steer back, or all of them."""

    def change(state: SessionState) -> SessionState:
        kept = {} if turn is None else {number: one for number, one in state.steers.items() if number != turn}
        return structs.replace(state, steers=kept)

    core.change(change)


def current_tiers(core: Core) -> dict[int, Tier]:
    """The steers that count now, by turn."""
    return effective_tiers(core, core.seen(), read_session_state(core.row().state))


def plan_compaction(core: Core, ask: CompactionRequest, steers: Mapping[int, str] | None) -> Plan:
    """What a compaction would do now, with the session's steers or with others; nothing is written.

    Where there is nothing to do, every turn is kept.
    """
    seen = core.seen()
    if steers is None:
        wanted = current_tiers(core)
    else:
        taken = core.parse_context(seen)
        wanted = {turn: _checked_tier(core, taken, turn, tier) for turn, tier in steers.items()}
    made = run_engine(core, structs.replace(ask, steers=wanted), seen, None, dry_run=True)
    return Plan(made.decisions or _all_kept(core, seen, wanted), made.report, wanted)


def _all_kept(core: Core, seen: SessionContext, steers: Mapping[int, Tier]) -> tuple[Decision, ...]:
    taken = core.parse_context(seen)
    counter = core.counter(taken.dialect)
    weights = {turn.number: sum(counter.count_many(turn.messages)) for turn in taken.scene.turns}
    return keep_all_decisions(
        taken.scene.turns, weights, {turn: KEPT for turn, tier in steers.items() if tier is Tier.KEEP}
    )
