"""Plans and steers over HTTP: what a compaction would do, and what the user has decided about turns."""

from __future__ import annotations

from collections.abc import Mapping

from context_compactor.api import NoQuery, PlanAnswer, PlanQuery, SteerBody, SteeringAnswer, TurnSteer
from context_compactor.classify.tier import Tier
from context_compactor.errors import BadSetting
from context_compactor.server.asked import Asked
from context_compactor.server.reports import outside
from context_compactor.server.sending import Sent, sent
from context_compactor.session.session import Session


async def plan(asked: Asked[None, PlanQuery]) -> Sent[PlanAnswer]:
    """Tell what a compaction would do now, target by target; nothing is changed, and no model is asked.

    With turns for tiers, such as `keep=12,15&drop=9`, it tells what would come of deciding so.
    """
    query = asked.query

    def work(session: Session) -> Sent[PlanAnswer]:
        made = session.plan(query.focus, query.level, query.target_tokens, steers=query.steers())
        report = outside(made.report, asked.id)
        return sent(PlanAnswer(decisions=list(made.decisions), report=report, steers=_listed(made.steers)))

    return await asked.beside(work)


async def steering(asked: Asked[None, NoQuery]) -> SteeringAnswer:
    """List what was decided about turns that stand in the context."""
    return SteeringAnswer(session_id=asked.id, steers=_listed(await asked.session(Session.steering)))


async def steer(asked: Asked[SteerBody, NoQuery]) -> SteeringAnswer:
    """Give a turn a tier, which every compaction follows, or leave it to the engine again."""
    body = asked.body
    if body.turn is None and body.tier is not None:
        raise BadSetting(f"a tier, {body.tier}, and no turn. Try: both, or neither to leave all turns to the engine.")

    def work(session: Session) -> dict[int, Tier]:
        if body.turn is not None and body.tier is not None:
            session.steer(body.turn, body.tier)
        else:
            session.unsteer(body.turn)
        return session.steering()

    return SteeringAnswer(session_id=asked.id, steers=_listed(await asked.session(work)))


def _listed(steers: Mapping[int, Tier]) -> list[TurnSteer]:
    return [TurnSteer(turn=turn, tier=tier) for turn, tier in steers.items()]
