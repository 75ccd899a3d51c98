"""What a model is to be told of a compaction: the subject, how much it may take, and by which way it costs least.

There are two ways to show it the turns. A copy works with any model. When the model is the agent's own and it
is known what the agent sends beside its messages, the conversation itself can be sent with our question behind it: the
provider has most of that in its cache. The cheaper way is taken; docs/why/models.md has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from context_compactor import flow
from context_compactor.archive.redact import redact
from context_compactor.levels import Level
from context_compactor.messages.boundaries import find_problems
from context_compactor.messages.turn import Turn
from context_compactor.placing import Job
from context_compactor.prompts.prompt import Prompt
from context_compactor.protocols import Model
from context_compactor.settings import Settings
from context_compactor.settle import Request
from context_compactor.summarize.expect import Effort, as_copy, with_prefix
from context_compactor.summarize.subject import Limits, Subject
from context_compactor.summarize.summary import Summary, from_record

# Which client takes the messages of a dialect as they are.
_SPEAKS = {"openai-chat": ("openai/", "http://", "https://"), "anthropic": ("anthropic/",)}
# Our counts may be a tenth too low.
_FILLED = 0.9


class Briefing(Struct, frozen=True):
    """What is asked for, within which limits, and what that should take."""

    subject: Subject
    limits: Limits
    effort: Effort


def brief(job: Job, model: Model, settings: Settings, prompt: Prompt, *, may_send_own: bool = True) -> Briefing:
    """Brief a model on a compaction. The conversation's own messages are used where they may be and are cheaper."""
    count = job.kit.counter.text
    subject, limits = subject_of(job), limits_for(settings, job.asked_tokens)
    copied = as_copy(model, subject, count, limits, prompt)
    prefix = own_messages(job, model, settings) if may_send_own else ()
    if not prefix:
        return Briefing(subject, limits, copied)
    spoken = job.kit.counter.count_many(job.kit.dialect.parse(prefix))
    beside = count(str(settings.agent_request))
    sent = with_prefix(model, subject, count, limits, prompt, sum(spoken) + beside)
    if sent.shown + 2 * sent.written > _FILLED * model.window or not _is_cheaper(sent, copied, model.name, settings):
        return Briefing(subject, limits, copied)
    own = structs.replace(subject, prefix=prefix, beside=settings.agent_request)
    return Briefing(own, limits, sent)


def subject_of(job: Job, turns: Sequence[Turn] | None = None, previous: Summary | None = None) -> Subject:
    """The turns that leave the context, what is known of them, and what stands before them.

    Only some of the `turns` can be told, behind what is told of those before.
    """
    told = sendable(job)
    numbers = {turn.number for turn in (job.folded if turns is None else turns)}
    earlier = from_record(told.scene.past) if previous is None else previous
    instructions = [message.text for turn in told.scene.turns if turn.is_instruction for message in turn.messages]
    return Subject(
        turns=[turn for turn in told.scene.turns if turn.number in numbers],
        facts=told.facts,
        previous=earlier if told is job else redact(earlier).value,
        system="\n".join(instructions),
        focus=told.kit.focus,
    )


def sendable(job: Job) -> Job:
    """The job as a model may be told of it. Secrets are taken out first: half of one would not be known any more."""
    if not job.request.ask.settings.redact_secrets:
        return job
    dialect, raws = job.kit.dialect, [message.raw for message in job.scene.messages]
    scene = flow.read_scene(dialect.parse(redact(raws).value), dialect)
    return structs.replace(job, scene=scene, kit=structs.replace(job.kit, focus=redact(job.kit.focus).value))


def limits_for(settings: Settings, tokens: int) -> Limits:
    """What the settings allow a summary of so many tokens to take."""
    return Limits(
        tokens=tokens,
        chunk_tokens=settings.model_input_tokens,
        parallel=settings.model_parallel_calls,
        calls=settings.attempt_limit,
        prices=settings.prices,
    )


def reason_to_skip(job: Job) -> str:
    """Why a model is not asked; empty when it is."""
    if not is_told(job.request):
        return "an emergency cannot wait for one"
    if job.digest.report.status != "success":
        return "the context does not fit even without one"
    if not job.folded:
        return "no turn was folded, so there is nothing to tell"
    if not job.asked_tokens:
        return f"a target of {job.goal.target:,} tokens leaves no room for a record by a model"
    return ""


def is_told(request: Request) -> bool:
    """Whether a model is asked in such a compaction: at the soft and aggressive levels, and when somebody asked."""
    return request.trigger.level in (Level.SOFT, Level.AGGRESSIVE) or request.ask.is_wanted


def own_messages(job: Job, model: Model, settings: Settings) -> tuple[dict[str, Any], ...]:
    """The conversation up to the last turn that leaves it, as the agent sends it; empty when it cannot be sent.

    A cache is read as long as a request begins the same, and what the agent sends first are its tools and its system
    prompt. So without `agent_request` there is nothing to gain, and neither where secrets are to be left out.
    """
    ask, dialect = job.request.ask, job.kit.dialect
    if ask.settings.redact_secrets or not settings.agent_request or not job.folded:
        return ()
    if not is_agents_model(model.name, ask.model, dialect.name):
        return ()
    last = job.folded[-1].messages[-1].raw
    sent = list(ask.sent) or [message.raw for message in job.scene.messages]
    end = next((at for at, raw in enumerate(sent, 1) if raw is last or raw == last), 0)
    prefix = sent[:end]
    return () if find_problems(dialect.parse(prefix), dialect) else tuple(prefix)


def is_agents_model(name: str, agents: str | None, dialect: str) -> bool:
    """Whether a model is the one the agent works with, and takes messages of this dialect as they are."""
    if not agents or not name.startswith(_SPEAKS.get(dialect, ())):
        return False
    return name == agents or ("/" not in agents and re.split(r"[/#]", name)[-1] == agents)


def _is_cheaper(sent: Effort, copied: Effort, name: str, settings: Settings) -> bool:
    """Where no price is known one call that a cache serves is taken for cheaper than copies."""
    own, copies = sent.cost(name, settings.prices), copied.cost(name, settings.prices)
    return not copied.calls or own is None or copies is None or own <= copies
