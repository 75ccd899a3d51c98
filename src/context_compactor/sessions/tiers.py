"""Tiers that the user sets for turns, and the plan that follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from context_compactor.engine.explain import keep_all_decisions
from context_compactor.engine.plan import Plan
from context_compactor.engine.request import CompactionRequest
from context_compactor.engine.tiers import KEPT, Tier, override_refusal, tier_named
from context_compactor.errors import BadSetting
from context_compactor.sessions.compaction import effective_tiers, run_engine, turn_starts
from context_compactor.sessions.core import Core, ParsedSession
from context_compactor.sessions.state import SessionState, TierChoice, read_session_state


def set_tier(core: Core, turn: int, tier: str) -> None:
    """From now on compactions give this turn this tier; refused for what must not be touched."""
    parsed = core.parse_context()
    wanted = _checked_tier(core, parsed, turn, tier)
    chosen = TierChoice(wanted, turn_starts(parsed).get(turn, 0))
    core.change(lambda state: structs.replace(state, tiers={**state.tiers, turn: chosen}))


def _checked_tier(core: Core, parsed: ParsedSession, turn: int, tier: str) -> Tier:
    """The tier, when this turn may have it."""
    if type(turn) is not int:
        raise BadSetting(f"turn {turn!r:.40} is not a turn number. Try: a number such as 12.")
    wanted = tier_named(tier)
    why = override_refusal(parsed.content.turns, turn, wanted)
    if why:
        raise BadSetting(f"session {core.id!r}, {wanted} turn {turn}: {why}")
    return wanted


def clear_tier(core: Core, turn: int | None) -> None:
    """Leave a turn to the engine again, or all of them."""

    def change(state: SessionState) -> SessionState:
        kept = {} if turn is None else {number: one for number, one in state.tiers.items() if number != turn}
        return structs.replace(state, tiers=kept)

    core.change(change)


def current_tiers(core: Core) -> dict[int, Tier]:
    """The user's tiers that count now, by turn."""
    return effective_tiers(core, core.current_context(), read_session_state(core.row().state))


def plan_compaction(core: Core, ask: CompactionRequest, tiers: Mapping[int, str] | None) -> Plan:
    """What a compaction would do now, with the session's tiers or with others; nothing is written.

    Where there is nothing to do, every turn is kept.
    """
    context = core.current_context()
    parsed = core.parse_context(context)
    if tiers is None:
        wanted = current_tiers(core)
    else:
        wanted = {turn: _checked_tier(core, parsed, turn, tier) for turn, tier in tiers.items()}
    made = run_engine(core, structs.replace(ask, tier_overrides=wanted), context, None, dry_run=True)
    decisions = made.decisions
    if not decisions:
        counter, turns = core.counter(parsed.dialect), parsed.content.turns
        tokens = {turn.number: sum(counter.count_many(turn.messages)) for turn in turns}
        decisions = keep_all_decisions(
            turns, tokens, {turn: KEPT for turn, tier in wanted.items() if tier is Tier.KEEP}
        )
    return Plan(decisions, made.report, wanted)
