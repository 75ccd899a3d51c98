"""The lists of a checkpoint: facts as short lines, the most needed ones first to be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from context_compactor.apply.digests.text import clip
from context_compactor.classify.resolutions import RESOLVED
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_line

_LONGEST = 150
_LONGEST_DETAIL = 110
_MOST_STEPS = 12
_MOST_BLOCKERS = 6
_MOST_DECISIONS = 12
_MOST_RUNNING = 6
_MOST_SKIPPED = 8
# What must be read, with what a line is called and how many there are at most. Newest ones are kept.
_MUST_READ = (
    ("constraint", "rule", 12),
    ("mode", "mode", 1),
    ("denial", "", 4),
    ("approval", "approved", 4),
    ("failure", "", 12),
    ("side_effect", "outside", 6),
    ("error", "error", 3),
)


class Items(Struct, frozen=True):
    """Lines of a list, and how many `more` were left out of it."""

    lines: tuple[str, ...] = ()
    more: int = 0

    @property
    def count(self) -> int:
        """How many there are, shown or not."""
        return len(self.lines) + self.more


def current_task(facts: Sequence[Fact]) -> Fact | None:
    """What the user asked for last, as far as it is not done; else the last request there is."""
    tasks = _of_kinds(facts, "task")
    return next((fact for fact in reversed(tasks) if fact.status == "active"), tasks[-1] if tasks else None)


def completed_steps(facts: Sequence[Fact]) -> Items:
    """Requests and to-dos that are done; the newest are shown."""
    return _newest([fact for fact in _of_kinds(facts, "task", "todo") if fact.status == "done"], _MOST_STEPS)


def remaining_steps(facts: Sequence[Fact]) -> Items:
    """What is under way, then what comes next; the first are shown."""
    left = [fact for fact in _of_kinds(facts, "todo", "next_step") if fact.status not in ("done", "superseded")]
    left.sort(key=lambda fact: fact.status != "active")
    return _shown(left[:_MOST_STEPS], len(left))


def open_blockers(facts: Sequence[Fact]) -> Items:
    """What stands in the way of the work, or waits for an answer."""
    stuck = _of_kinds(facts, "blocker") + [fact for fact in _of_kinds(facts, "todo") if fact.status == "blocked"]
    return _newest([fact for fact in stuck if fact.status not in ("resolved", "done", "superseded")], _MOST_BLOCKERS)


def key_decisions(facts: Sequence[Fact]) -> Items:
    """What was decided and found out, but for what was overtaken; the newest are shown."""
    return _newest([fact for fact in _of_kinds(facts, "decision") if fact.status != "superseded"], _MOST_DECISIONS)


def running_agents(facts: Sequence[Fact]) -> Items:
    """Sub-agents whose answer is not there yet."""
    return _newest([fact for fact in _of_kinds(facts, "subagent") if fact.status == "running"], _MOST_RUNNING)


def must_read(facts: Sequence[Fact]) -> Items:
    """Rules, modes, refusals, failures that are not resolved and what was done outside."""
    known = [fact for fact in facts if (fact.kind, fact.status) != ("failure", RESOLVED)]
    found = [_newest(_of_kinds(known, kind), most, label) for kind, label, most in _MUST_READ]
    return Items(tuple(line for items in found for line in items.lines), sum(items.more for items in found))


def can_skip(facts: Sequence[Fact]) -> Items:
    """What can be looked up when it is needed: files only read, finished sub-agents, runs that passed, packages."""
    known = _of_kinds(facts, "file_state", "subagent", "command", "dependency")
    return _newest([fact for fact in known if _is_idle(fact)], _MOST_SKIPPED)


def _is_idle(fact: Fact) -> bool:
    if fact.kind == "file_state":
        return fact.status == "read"
    return fact.status not in ("running", "failed")


def _of_kinds(facts: Iterable[Fact], *kinds: str) -> list[Fact]:
    return [fact for fact in facts if fact.kind in kinds]


def _newest(facts: Iterable[Fact], most: int, label: str = "") -> Items:
    ordered = sorted(facts, key=lambda fact: fact.last_turn or fact.turn)
    return _shown(ordered[-most:], len(ordered), label)


def _shown(facts: Sequence[Fact], count: int, label: str = "") -> Items:
    return Items(tuple(_line(fact, label) for fact in facts), count - len(facts))


def _line(fact: Fact, label: str) -> str:
    """A fact in one short line. A label says what it is, so that its status is not needed."""
    short = structs.replace(fact, content=clip(fact.content, _LONGEST), detail=clip(fact.detail, _LONGEST_DETAIL))
    return f"{label}: {fact_line(structs.replace(short, status=''))}" if label else fact_line(short)
