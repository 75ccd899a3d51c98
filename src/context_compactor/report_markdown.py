"""A report as Markdown, under headings whose names and order never change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from context_compactor.report import Report


def render(report: Report) -> str:
    """The whole document. A heading with nothing under it says so."""
    blocks = ["## Compaction Result", "\n".join(_facts(report))]
    for heading, lines in _sections(report):
        blocks += [f"### {heading}", "\n".join(lines) or "None."]
    return "\n\n".join(blocks) + "\n"


def _facts(report: Report) -> Iterator[str]:
    yield f"**Status**: {report.status}"
    if report.reason:
        yield f"**Reason**: {_line(report.reason)}"
    yield f"**Tokens Before**: {report.tokens_before:,}"
    yield f"**Tokens After**: {report.tokens_after:,}"
    yield f"**Reduction**: {report.reduction_percent:g}%"
    if report.target_tokens is not None:
        yield f"**Target**: {report.target_tokens:,}"
    if report.changed:
        yield f"**Fidelity**: {report.fidelity.in_words()}"
    if report.cost is not None:
        yield f"**Cost per request**: {report.cost.in_words()}"
    if report.expected is not None:
        yield f"**Model**: {_line(report.expected.in_words())}"
    yield from (f"**Repaired**: {_line(repair)}" for repair in report.repairs)
    yield from (f"**Missing**: {item.kind} `{_line(item.value)}`" for item in report.fidelity.missing)
    yield from (f"**Cannot be shorter**: {_line(part.what)}, {part.tokens:,} tokens" for part in report.floor)


def _sections(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    yield "Preserved (Tier 1)", (_item(item.summary, item.tokens, item.reason) for item in report.preserved)
    yield (
        "Summarized (Tier 2)",
        (_change(item.id, item.summary, item.tokens, item.tokens_after) for item in report.summarized),
    )
    yield "Archived (Tier 3)", _archive_table(report)
    yield (
        "Discarded (Tier 4)",
        (_item(f"{item.id}: {item.summary}", item.tokens, item.reason) for item in report.discarded),
    )
    yield "Recovery Instructions", _recovery(report)
    yield "Checkpoint Update", [report.checkpoint or "None: this compaction belongs to no stored session."]


def _archive_table(report: Report) -> Iterator[str]:
    if report.archived:
        yield "| Content | Archive Location | Recovery Reference |"
        yield "|---------|------------------|-------------------|"
    for item in report.archived:
        yield f"| {_cell(item.id)}: {_cell(item.summary)} | {_cell(item.location)} | {_cell(item.recovery)} |"


def _recovery(report: Report) -> Iterator[str]:
    if report.recovery_instructions:
        yield "If archived content is needed:\n"
    for number, instruction in enumerate(report.recovery_instructions, 1):
        yield f"{number}. {_line(instruction)}"


def _item(summary: str, tokens: int, reason: str) -> str:
    return f"- {_line(summary)} ({tokens:,} tokens)" + (f": {_line(reason)}" if reason else "")


def _change(ref: str, summary: str, before: int, after: int) -> str:
    return f"- {ref}: {_line(summary)} ({before:,} → {after:,} tokens)"


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
