"""Facts, extracted without a model: the same history gives the same facts.

Who said it decides what it can be. A rule or a task comes from the user's own words alone; decisions carry the role
of their author; everything taken from calls and results is a record of what happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.dialects.turns import Turn
from context_compactor.facts.calls import calls_in_turns
from context_compactor.facts.decisions import consent_facts, constraint_facts, decision_facts
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import Failure, find_failures, merge_failures
from context_compactor.facts.file_history import FileHistory, file_history
from context_compactor.facts.files import DescribeOutcome, command_facts, dependency_facts, file_facts
from context_compactor.facts.side_effects import running_facts, side_effect_facts, subagent_facts
from context_compactor.facts.tasks import mode_facts, next_facts, task_facts, todo_facts
from context_compactor.facts.utterances import agent_utterances, user_utterances


def extract_facts(
    turns: Sequence[Turn],
    failures: Sequence[Failure] | None = None,
    history: FileHistory | None = None,
    describe_outcome: DescribeOutcome = lambda _use, _kind, _failure: "",
) -> list[Fact]:
    """All that must outlive the text, in the order of the ledgers. Give `failures` and `life` when they are known.

    `describe_outcome` says in one line how a run ended that passed.
    """
    if failures is None:
        failures = find_failures(turns)
    failed = {failure.exchange for failure in failures}
    if history is None:
        history = file_history(turns, failed)
    user, agent, calls = user_utterances(turns), agent_utterances(turns), calls_in_turns(turns)
    todos = todo_facts(calls)
    return [
        *task_facts(user, turns),
        *constraint_facts(user),
        *mode_facts(calls, turns),
        *todos,
        *next_facts(agent, user, turns, todos),
        *decision_facts(user, agent),
        *merge_failures(failures),
        *file_facts(history, calls),
        *side_effect_facts(calls, failed),
        *consent_facts(calls),
        *subagent_facts(calls, turns, failed),
        *dependency_facts(calls, failed),
        *running_facts(calls, turns),
        *command_facts(calls, {failure.exchange: failure.error for failure in failures}, describe_outcome),
    ]
