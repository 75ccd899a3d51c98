"""Facts, extracted without a model: the same history gives the same facts.

Who said it decides what it can be. A rule or a task comes from the user's own words alone; decisions carry the role
of their author; everything taken from calls and results is a record of what happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.classify.failures import Failure, find_failures, merge_failures
from context_compactor.classify.lifecycle import FileLife, file_life
from context_compactor.facts.consent import consent_facts
from context_compactor.facts.constraints import constraint_facts
from context_compactor.facts.decisions import decision_facts
from context_compactor.facts.exchanges import calls_of
from context_compactor.facts.fact import Fact
from context_compactor.facts.files import DescribeOutcome, command_facts, dependency_facts, file_facts
from context_compactor.facts.processes import running_facts
from context_compactor.facts.requests import task_facts
from context_compactor.facts.side_effects import side_effect_facts
from context_compactor.facts.speech import agent_sayings, user_sayings
from context_compactor.facts.state import mode_facts, next_facts, todo_facts
from context_compactor.facts.subagents import subagent_facts
from context_compactor.messages.turn import Turn


def extract_facts(
    turns: Sequence[Turn],
    failures: Sequence[Failure] | None = None,
    life: FileLife | None = None,
    describe_outcome: DescribeOutcome = lambda _use, _kind, _failure: "",
) -> list[Fact]:
    """All that must outlive the text, in the order of the ledgers. Give `failures` and `life` when they are known.

    `describe_outcome` says in one line how a run ended that passed.
    """
    if failures is None:
        failures = find_failures(turns)
    failed = {failure.exchange for failure in failures}
    if life is None:
        life = file_life(turns, failed)
    user, agent, called = user_sayings(turns), agent_sayings(turns), calls_of(turns)
    todos = todo_facts(called)
    return [
        *task_facts(user, turns),
        *constraint_facts(user),
        *mode_facts(called, turns),
        *todos,
        *next_facts(agent, user, turns, todos),
        *decision_facts(user, agent),
        *merge_failures(failures),
        *file_facts(life, called),
        *side_effect_facts(called, failed),
        *consent_facts(called),
        *subagent_facts(called, turns, failed),
        *dependency_facts(called, failed),
        *running_facts(called, turns),
        *command_facts(called, {failure.exchange: failure.error for failure in failures}, describe_outcome),
    ]
