"""The whole evaluation: files in, every conversation in all measures, one `Evaluation` out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from msgspec import Struct

from context_compactor import __version__
from context_compactor.errors import BadInput, CompactorError
from context_compactor.evaluation.corpus import RecordedConversation
from context_compactor.evaluation.counting import CountErrors, count_errors
from context_compactor.evaluation.dialogues import ask_dialogues
from context_compactor.evaluation.expected import Sample, identifiers, samples_of
from context_compactor.evaluation.inputs import (
    ENDINGS,
    ConversationLocation,
    GatheredConversation,
    InputSurvey,
    find_files,
    load,
    sampled,
    survey_files,
)
from context_compactor.evaluation.losses import Loss, losses, sum_losses
from context_compactor.evaluation.messages import count_messages, is_instruction
from context_compactor.evaluation.methods import (
    COMPACTOR,
    HANDOFF,
    HANDOFF_BUDGET,
    REAL,
    SUMMARY,
    WITH_MODEL,
    BadMethod,
    budget_tokens,
    suits,
    with_real,
)
from context_compactor.evaluation.output import ProgressListener, count
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.replay import EVERY_TURN, Rates, ReplayResult, rates_of, replay
from context_compactor.evaluation.results import (
    Evaluation,
    Inputs,
    MethodScore,
    cost_rows,
    count_rows,
    illegal,
    misfits,
    model_use_rows,
    sample_rows,
    score_rows,
)
from context_compactor.evaluation.scoring import COLUMNS, Retention, Score, nothing_kept, score_sample
from context_compactor.evaluation.search import Search, plain_search
from context_compactor.protocols import Model

# A replay compacts again and again: with a model its bill would be the model's, which is shown by itself.
NOT_REPLAYED = (SUMMARY, WITH_MODEL, "everything", "nothing")


class EvaluationPlan(Struct, frozen=True):
    """Which methods run at which budgets, and the identifiers that are common to many projects.

    `summarizer` is the one that `compactor+model` asks.
    """

    pairs: tuple[tuple[str, str], ...]
    common: frozenset[str] = frozenset()
    summarizer: str | Model | None = None

    @property
    def replayed(self) -> tuple[str, ...]:
        """The methods whose cost is replayed, and one that is known to be expensive."""
        methods = (method for method, budget in self.pairs if budget != HANDOFF_BUDGET and method not in NOT_REPLAYED)
        return (*dict.fromkeys(methods), EVERY_TURN)


class ConversationResult(Struct, frozen=True):
    """What one conversation gave."""

    samples: int
    real: int
    scores: list[MethodScore]
    losses: list[Loss]
    bills: list[tuple[str, ReplayResult]]
    errors: CountErrors | None


def evaluate_conversation(
    shared: tuple[Sequence[GatheredConversation], EvaluationPlan], index: int
) -> ConversationResult:
    """Everything about one of the conversations."""
    gathered, plan = shared[0][index], shared[1]
    conversation = gathered.conversation
    found = samples_of(conversation, plan.common | identifiers(gathered.system))
    samples = [sample for sample in found if sample.cut.group != "short"]
    scores: list[MethodScore] = []
    lost: list[Loss] = []
    for sample in samples:
        archive = cache(lambda history=sample.history: plain_search(history))
        for method, budget in plan.pairs:
            if suits(sample, budget):
                score, kept = _run(sample, method, budget, plan.summarizer, archive)
                scores.append(score)
                lost.extend(losses(method, budget, sample, kept))
    return ConversationResult(
        samples=sum(sample.cut.group != REAL for sample in samples),
        real=sum(sample.cut.group == REAL for sample in samples),
        scores=scores,
        losses=sum_losses(lost),
        bills=list(_bills(conversation, plan.replayed, rates_of(gathered.transcript.model))),
        errors=count_errors(gathered.transcript, conversation.source),
    )


def _run(
    sample: Sample, method: str, budget: str, model: str | Model | None, archive: Callable[[], Search]
) -> tuple[MethodScore, Retention]:
    """The score of a method; one that refused to make a context kept nothing."""
    try:
        found = score_sample(sample, method, budget, model, archive)
    except BadMethod:
        raise
    except CompactorError as error:
        nothing = nothing_kept(sample.wanted)
        shares = dict.fromkeys(COLUMNS, None) | nothing.shares()
        limit = budget_tokens(sample, budget)
        score = Score(sample.id, sample.conversation.source, budget, False, 0, limit, shares)
        return MethodScore(method, score, refusal=str(error)), nothing
    instructions = 0 if found.score.fits else count_messages(filter(is_instruction, sample.history))
    return MethodScore(method, found.score, instructions), found.kept


def _bills(
    conversation: RecordedConversation, methods: Sequence[str], rates: Rates
) -> Iterator[tuple[str, ReplayResult]]:
    for method in methods:
        try:
            bill = replay(conversation, method, rates=rates)
        except BadMethod:
            raise
        except CompactorError:
            continue
        if bill is None:
            return
        yield method, bill


AT_ONCE = 8_000_000  # tokens of conversations that are in memory at a time


class EvaluationRequest(Struct, frozen=True):
    """What to evaluate: files and folders, at which budgets, with which methods, each how-many-th conversation.

    With a `summarizer`, by its name or as an object, our engine is measured once more with it.
    """

    paths: tuple[str, ...]
    budgets: tuple[str, ...]
    methods: tuple[str, ...]
    every: int | None = None
    jobs: int = 1
    summarizer: str | Model | None = None

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods, with ours and the model behind ours, or first."""
        if self.summarizer is None:
            return self.methods
        at = self.methods.index(COMPACTOR) + 1 if COMPACTOR in self.methods else 0
        return (*self.methods[:at], WITH_MODEL, *self.methods[at:])


def evaluate_paths(request: EvaluationRequest, watch: ProgressListener) -> Evaluation:
    """Read, choose, cut, run every method and measure. Raises `BadInput` when there is nothing to measure."""
    files = find_files(request.paths)
    if not files.paths:
        raise BadInput(f"{', '.join(request.paths)}: no file here ends in {', '.join(ENDINGS)}. Try: another folder.")
    found = survey_files(files, request.jobs, watch)
    _refuse_nothing(found)
    places, step = sampled(found, request.every)
    budgets = with_real(request.budgets, sum(place.real for place in places))
    if not budgets:
        raise BadInput("--budget: these conversations contain no compaction made by an agent. Try: --budget 25")
    plan = EvaluationPlan(_pairs(budgets, request.all_methods), found.common, request.summarizer)
    watch.start("Evaluating", sum(place.tokens for place in places))
    done = list(_evaluated(places, plan, request.jobs, watch))
    scored = [item for one in done for item in one.scores]
    return Evaluation(
        version=__version__,
        budgets=budgets,
        methods=request.all_methods,
        model=_name_of(request.summarizer),
        inputs=_inputs(found, places, step, done),
        rows=tuple(score_rows(scored, plan.pairs)),
        model_use=tuple(model_use_rows(scored, budgets)),
        losses=tuple(sum_losses(loss for one in done for loss in one.losses)),
        costs=tuple(cost_rows([bill for one in done for bill in one.bills])),
        counts=tuple(count_rows([one.errors for one in done if one.errors])),
        dialogues=tuple(ask_dialogues(found.dialogues, request.methods, request.jobs, watch)),
        misfits=tuple(misfits(scored)),
        illegal=tuple(illegal(scored)),
        samples=tuple(sample_rows(scored)),
    )


def _name_of(model: str | Model | None) -> str:
    return model if isinstance(model, str) else model.name if model else ""


def _refuse_nothing(found: InputSurvey) -> None:
    if found.usable or found.dialogues:
        return
    if found.places:
        what = f"{count(len(found.places), 'conversation')} read, but none is long enough"
        why = "a cut needs 4,000 tokens before it and a reply of the agent after it"
        error = BadInput(f"{what}: {why}. Try: longer sessions.")
    else:
        error = BadInput(f"{count(found.files, 'file')} read, but none holds a conversation of a known format")
    for skipped in found.skipped[:5]:
        error.add_note(f"{skipped.path}: {skipped.reason}")
    raise error


def _pairs(budgets: Sequence[str], methods: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Which methods run at which budgets, in the order in which they are shown."""
    pairs = [(method, budget) for budget in budgets for method in methods]
    if REAL in budgets:
        pairs.append((SUMMARY, REAL))
    if COMPACTOR in methods:
        pairs += [(HANDOFF, HANDOFF_BUDGET), ("name-list", HANDOFF_BUDGET)]
    return tuple(dict.fromkeys(pairs))


def _evaluated(
    places: Sequence[ConversationLocation], plan: EvaluationPlan, jobs: int, watch: ProgressListener
) -> Iterator[ConversationResult]:
    """The conversations in groups that fit into memory, each group spread over the jobs."""
    for group in _groups(places):
        conversations = list(load(group))
        for place, found in zip(
            group, spread(evaluate_conversation, (conversations, plan), range(len(conversations)), jobs), strict=False
        ):
            watch.step(place.tokens)
            yield found


def _groups(places: Sequence[ConversationLocation]) -> Iterator[list[ConversationLocation]]:
    group: list[ConversationLocation] = []
    for place in places:
        if group and sum(item.tokens for item in group) + place.tokens > AT_ONCE:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _inputs(
    found: InputSurvey, places: Sequence[ConversationLocation], step: int, done: Sequence[ConversationResult]
) -> Inputs:
    return Inputs(
        files=found.files,
        conversations=len(found.places),
        too_short=len(found.places) - len(found.usable),
        every=step,
        taken=len(places),
        samples=sum(one.samples for one in done),
        real=sum(one.real for one in done),
        projects=found.projects,
        common_names=len(found.common),
        skipped=found.skipped,
    )
