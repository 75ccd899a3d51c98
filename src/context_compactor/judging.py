"""A compaction with a model's say in what is kept: it judges every turn that may be shortened, and names facts.

Its opinion only tips the scales. The engine runs again with it, and where the result is worse than the one before in
any way that we can measure, its word counts for less, and at last not at all.
"""

from __future__ import annotations

from collections.abc import Collection
from math import exp, fsum, log
from textwrap import shorten

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.archive.redact import redact
from context_compactor.classify.pins import pinned_turns
from context_compactor.compare import Job, pushed_out, worse
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.plan.zones import Zone
from context_compactor.report import ModelCall
from context_compactor.settle import Settled
from context_compactor.summary.caller import Caller
from context_compactor.summary.judge_turns import Bench, judge_turns
from context_compactor.summary.judged import Judgement
from context_compactor.summary.judged_facts import told_lines
from context_compactor.summary.subject import Limits

# How far a model's word is followed; the next is tried when the one before would make the context worse.
_TRUST = (1.0, 0.5, 0.25)
# The facts it has found may take the place of so many of the names that stand in the context.
_TOLD_SHARE = 0.02
_LAST_WORDS = 200
_REQUEST = 400


class Replanned(Struct, frozen=True):
    """A compaction with a model's say in it, or as it was; `why` tells why its say does not count."""

    made: Settled
    calls: tuple[ModelCall, ...] = ()
    why: str = ""


def replan(job: Job, caller: Caller, limits: Limits) -> Replanned:
    """Ask a model which turns are needed, and plan again. Only a cancelled call raises."""
    bench = bench_of(job)
    judgement = judge_turns(caller, bench, limits.chunk_tokens, limits.parallel)
    made, why = _best(job, bench, judgement, caller.model.name)
    words = f"the plan by {caller.model.name} was not used: {why}" if why else ""
    return Replanned(made, tuple(structs.replace(call, purpose="plan") for call in caller.calls), words)


def _best(job: Job, bench: Bench, judgement: Judgement, model: str) -> tuple[Settled, str]:
    """The result that follows the model furthest without being worse, and why it does not follow it at all."""
    why = "" if judgement.factors or judgement.facts else _why_not(judgement)
    job, judgement = _with_facts(job, judgement)
    for trust in _TRUST if judgement.factors else ():
        made = _planned(job, judgement, bench.protected, trust)
        wrong = worse(made, job.digest, pushed_out(job, made)) or _fewer_names(made, job.digest)
        if not wrong:
            report = structs.replace(made.report, told_by=job.digest.report.told_by, planned_by=model)
            return structs.replace(made, report=report), ""
        why = why or wrong
    return job.digest, why


def _with_facts(job: Job, judgement: Judgement) -> tuple[Job, Judgement]:
    """The job with the facts in it, unless that makes it worse: then neither has them."""
    if not judgement.facts:
        return job, judgement
    kit = structs.replace(job.kit, told=told_lines(judgement.facts))
    made = job.again(kit)
    if worse(made, job.digest, pushed_out(job, made)) or _fewer_names(made, job.digest, _TOLD_SHARE):
        return job, structs.replace(judgement, facts=())
    report = structs.replace(made.report, told_by=job.digest.report.told_by)
    return structs.replace(job, kit=kit, digest=structs.replace(made, report=report, told=judgement.facts)), judgement


def sendable(job: Job) -> Job:
    """The job as a model may be told of it. Secrets are taken out first: half of one would not be known any more."""
    if not job.request.ask.settings.redact_secrets:
        return job
    dialect, raws = job.kit.dialect, [message.raw for message in job.scene.messages]
    scene = flow.read_scene(dialect.parse(redact(raws).value), dialect)
    return structs.replace(job, scene=scene, kit=structs.replace(job.kit, focus=redact(job.kit.focus).value))


def bench_of(job: Job) -> Bench:
    """What there is to judge: every turn of which something may be left out."""
    job = sendable(job)
    scene, view = job.scene, job.digest.outcome.composer.view
    asked = [fact.turn for fact in scene.facts if fact.kind == "task"]
    return Bench(
        turns=[turn for turn in scene.turns if view.zones[turn.number] in (Zone.FOLDED, Zone.PLACED)],
        protected={*pinned_turns(scene.turns, asked), *(failure.turn for failure in scene.verdicts.failures)},
        facts=scene.facts,
        task=_task(job),
        focus=job.kit.focus,
    )


def _task(job: Job) -> str:
    """The latest request, and the agent's last words: without these nobody can say what is still needed."""
    asked, said = user_sayings(job.scene.turns), agent_sayings(job.scene.turns)
    request = shorten(asked[-1].text, _REQUEST, placeholder=" …") if asked else ""
    last = " ".join(said[-1].text[-_LAST_WORDS:].split(" ")[1:]) if said else ""
    return "\n".join(filter(None, (request, last and f"The agent's last words: … {last}")))


def _planned(job: Job, judgement: Judgement, protected: Collection[int], trust: float) -> Settled:
    kit = structs.replace(
        job.kit,
        factors=_relative(judgement.factors, protected, trust),
        reasons=judgement.reasons,
    )
    return structs.replace(job.again(kit), told=judgement.facts)


def _relative(factors: dict[int, float], protected: Collection[int], trust: float) -> dict[int, float]:
    """Factors with a mean of 1: to call everything dear is to say nothing. What is protected stays at 1 at least."""
    mean = exp(fsum(map(log, factors.values())) / len(factors))
    return {turn: max((factor / mean) ** trust, 1.0 if turn in protected else 0.0) for turn, factor in factors.items()}


def _fewer_names(made: Settled, before: Settled, share: float = 0.0) -> str:
    """Whether more than a share of the names that stand in the context would have to go."""
    known = before.report.fidelity.retained
    fewer = known - made.report.fidelity.retained
    return f"{fewer:,} names fewer could be read" if fewer > share * known else ""


def _why_not(judgement: Judgement) -> str:
    codes = dict.fromkeys(objection.code for objection in judgement.objections)
    return ", ".join(codes) or "it named no turn"
