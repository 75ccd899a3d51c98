"""The whole evaluation: files in, one `Evaluation` out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor import __version__
from context_compactor.errors import BadInput
from context_compactor.protocols import Model
from context_compactor.quality.choices import with_real
from context_compactor.quality.conversations import Found, Plan, study
from context_compactor.quality.gather import ENDINGS, find_files
from context_compactor.quality.losses import added
from context_compactor.quality.methods import COMPACTOR, HANDOFF, HANDOFF_BUDGET, REAL, SUMMARY, WITH_MODEL
from context_compactor.quality.outcome import Evaluation, Inputs
from context_compactor.quality.pool import spread
from context_compactor.quality.retrieval import ask_dialogues
from context_compactor.quality.summing import (
    cost_rows,
    count_rows,
    illegal,
    misfits,
    sample_rows,
    score_rows,
    told_rows,
)
from context_compactor.quality.survey import Place, Survey, chosen, load, survey
from context_compactor.quality.tables import count
from context_compactor.quality.watch import Watch

AT_ONCE = 8_000_000  # tokens of conversations that are in memory at a time


class Trial(Struct, frozen=True):
    """What to evaluate: files and folders, at which budgets, with which methods, each how-many-th conversation.

    With a `model`, by its name or as an object, our engine is measured once more with it.
    """

    paths: tuple[str, ...]
    budgets: tuple[str, ...]
    methods: tuple[str, ...]
    every: int | None = None
    jobs: int = 1
    model: str | Model | None = None

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods, with ours and the model behind ours, or first."""
        if self.model is None:
            return self.methods
        at = self.methods.index(COMPACTOR) + 1 if COMPACTOR in self.methods else 0
        return (*self.methods[:at], WITH_MODEL, *self.methods[at:])


def evaluate_paths(trial: Trial, watch: Watch) -> Evaluation:
    """Read, choose, cut, run every method and measure. Raises `BadInput` when there is nothing to measure."""
    files = find_files(trial.paths)
    if not files.paths:
        raise BadInput(f"{', '.join(trial.paths)}: no file here ends in {', '.join(ENDINGS)}. Try: another folder.")
    found = survey(files, trial.jobs, watch)
    _refuse_nothing(found)
    places, step = chosen(found, trial.every)
    budgets = with_real(trial.budgets, sum(place.real for place in places))
    if not budgets:
        raise BadInput("--budget: no compaction really happened in these conversations. Try: --budget 25")
    plan = Plan(_pairs(budgets, trial.all_methods), found.common, trial.model)
    watch.start("Evaluating", sum(place.tokens for place in places))
    done = list(_studied(places, plan, trial.jobs, watch))
    scored = [item for one in done for item in one.scores]
    return Evaluation(
        version=__version__,
        budgets=budgets,
        methods=trial.all_methods,
        model=_name_of(trial.model),
        inputs=_inputs(found, places, step, done),
        rows=tuple(score_rows(scored, plan.pairs)),
        told=tuple(told_rows(scored, budgets)),
        losses=tuple(added(loss for one in done for loss in one.losses)),
        costs=tuple(cost_rows([bill for one in done for bill in one.bills])),
        counts=tuple(count_rows([one.errors for one in done if one.errors])),
        dialogues=tuple(ask_dialogues(found.dialogues, trial.methods, trial.jobs, watch)),
        misfits=tuple(misfits(scored)),
        illegal=tuple(illegal(scored)),
        samples=tuple(sample_rows(scored)),
    )


def _name_of(model: str | Model | None) -> str:
    return model if isinstance(model, str) else model.name if model else ""


def _refuse_nothing(found: Survey) -> None:
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


def _studied(places: Sequence[Place], plan: Plan, jobs: int, watch: Watch) -> Iterator[Found]:
    """The conversations in groups that fit into memory, each group spread over the jobs."""
    for group in _groups(places):
        talks = list(load(group))
        for place, found in zip(group, spread(study, (talks, plan), range(len(talks)), jobs), strict=False):
            watch.step(place.tokens)
            yield found


def _groups(places: Sequence[Place]) -> Iterator[list[Place]]:
    group: list[Place] = []
    for place in places:
        if group and sum(item.tokens for item in group) + place.tokens > AT_ONCE:
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _inputs(found: Survey, places: Sequence[Place], step: int, done: Sequence[Found]) -> Inputs:
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
