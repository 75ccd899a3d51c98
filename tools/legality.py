"""The table of docs/reference/legality.md: which rule each dialect has, from the cases that its tests run on."""

from __future__ import annotations

from context_compactor.dialects.detection import DIALECTS, dialect_named
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.repair import repair
from tests.dialects.broken_rules import BrokenRule, every_broken_rule

RULES = {
    "missing-result": "a call without a result; calls of the last reply may still be running",
    "orphan-result": "a result whose call is not in the history",
    "repeated-result": "one result too many for a call",
    "repeated-id": "an id that names two calls",
    "repeated-item": "an id that names two items",
    "late-result": "a result that is not directly behind its call",
    "result-order": "results in another order than their calls",
    "block-order": "a result behind other blocks of its message",
    "empty": "a message or a block without content",
    "alternation": "two messages of one side in a row",
    "first-user": "a conversation that does not begin with a user message",
    "system": "a system message where the provider takes none",
    "thinking": "reasoning, or an item that needs it, though something before it has changed",
    "reasoning": "reasoning without the item it belongs to",
    "reasoning-content": "calls without the `reasoning_content` that they came with (DeepSeek, Kimi)",
    "thought-signature": "a call without the signature that it came with",
    "compaction": "a compaction block behind other blocks of its message, or an item between a call and its output",
    "cache-marks": "more cache marks than a request may have",
    "server-tool": "a server tool's call without its result, or the other way round",
    "media": "images that are too many or too large",
    "document": "a document without a text beside it",
}
"""Every rule in the order of the table, and what breaks it."""

INTRODUCTION = """\
Which rules each dialect has. `compactor check` and `context_compactor.dialects.check` report what is broken by the
rule's name; see [how to check a history](../how-to/check-a-history.md). What a compaction writes breaks none of them.

- *repaired*: a history that breaks the rule is made legal with the least change before it is compacted.
- *removed*: a compaction leaves out what breaks the rule.
- *reported*: only reported, since nobody but the caller knows what may go.
- empty: the provider has no such rule.
"""


def legality_page(made: str) -> str:
    """A row for each rule and a column for each dialect; `made` says how the page came about."""
    cases = {(case.rule, case.dialect): case for case in every_broken_rule()}
    unknown = sorted({rule for rule, _ in cases} - set(RULES))
    if unknown:
        raise ValueError(f"tools/legality.py does not say what breaks the rule {unknown[0]!r}")
    dialects = [name for name in DIALECTS if any(dialect == name for _, dialect in cases)]
    rows = [f"| rule | broken by | {' | '.join(dialects)} |", f"|---|---|{'---|' * len(dialects)}"]
    for rule, broken_by in RULES.items():
        cells = [_cell(cases.get((rule, dialect))) for dialect in dialects]
        if any(cells):
            rows.append(f"| `{rule}` | {broken_by} | {' | '.join(cells)} |")
    return "\n".join(["# Provider rules", made, INTRODUCTION, *rows, ""])


def _cell(case: BrokenRule | None) -> str:
    if case is None:
        return ""
    dialect = dialect_named(case.dialect).for_model(case.model)
    repaired, log = repair(dialect.parse(case.messages), dialect)
    if log and not find_violations(repaired, dialect):
        return "repaired"
    return "reported" if case.before is None else "removed"
