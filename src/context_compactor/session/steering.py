"""The user steers the next compactions: a tier of their own for a turn, until they take it back.

A steer is kept in the session's state, so every process follows it. It counts while its turn stands in the context:
when the turn is folded there is nothing left to steer, and when the compaction is undone it counts again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from context_compactor.apply.decisions import keep_all
from context_compactor.ask import Ask
from context_compactor.classify.steer import KEPT, refusal
from context_compactor.classify.tier import Tier, tier_named
from context_compactor.errors import BadSetting
from context_compactor.plan.plan import Decision, Plan
from context_compactor.session.compacting import run_engine
from context_compactor.session.core import Core, TakenApart
from context_compactor.session.following import followed, turn_starts
from context_compactor.session.lens import Seen
from context_compactor.session.values import State, Steer, read_state


def steer(core: Core, turn: int, tier: str) -> None:
    """From now on compactions give this turn this tier; refused for what must not be touched."""
    taken = core.take_apart()
    wanted = _sound(core, taken, turn, tier)
    chosen = Steer(wanted, turn_starts(taken).get(turn, 0))
    core.change(lambda state: structs.replace(state, steers={**state.steers, turn: chosen}))


def _sound(core: Core, taken: TakenApart, turn: int, tier: str) -> Tier:
    """The tier, when this turn may have it."""
    if type(turn) is not int:
        raise BadSetting(f"turn {turn!r:.40} is no number. Try: one like 12.")
    wanted = tier_named(tier)
    why = refusal(taken.scene.turns, turn, wanted)
    if why:
        raise BadSetting(f"session {core.id!r}, {wanted} turn {turn}: {why}")
    return wanted


def unsteer(core: Core, turn: int | None) -> None:
    """Take a steer back, or all of them."""

    def change(state: State) -> State:
        kept = {} if turn is None else {number: one for number, one in state.steers.items() if number != turn}
        return structs.replace(state, steers=kept)

    core.change(change)


def steering(core: Core) -> dict[int, Tier]:
    """The steers that count now, by turn."""
    return followed(core, core.seen(), read_state(core.row().state))


def plan(core: Core, ask: Ask, steers: Mapping[int, str] | None) -> Plan:
    """What a compaction would do now, with the session's steers or with others; nothing is written.

    Where there is nothing to do, every turn is kept.
    """
    seen = core.seen()
    if steers is None:
        wanted = steering(core)
    else:
        taken = core.take_apart(seen)
        wanted = {turn: _sound(core, taken, turn, tier) for turn, tier in steers.items()}
    made = run_engine(core, structs.replace(ask, steers=wanted), seen, None, dry_run=True)
    return Plan(made.decisions or _all_kept(core, seen, wanted), made.report, wanted)


def _all_kept(core: Core, seen: Seen, steers: Mapping[int, Tier]) -> tuple[Decision, ...]:
    taken = core.take_apart(seen)
    counter = core.counter(taken.dialect)
    weights = {turn.number: sum(counter.count_many(turn.messages)) for turn in taken.scene.turns}
    return keep_all(taken.scene.turns, weights, {turn: KEPT for turn, tier in steers.items() if tier is Tier.KEEP})
