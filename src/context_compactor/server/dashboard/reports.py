"""What a compaction did, or would do: its numbers, and every target by tier with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from context_compactor.figures import count, percent
from context_compactor.markup import Markup, element, join
from context_compactor.report import Report
from context_compactor.server.dashboard.pieces import empty, grid, numbers, text
from context_compactor.server.dashboard.words import path

_MOST_ROWS = 100
_WORDS = 400
TIERS = {
    "keep": "kept word for word",
    "summarize": "stands in fewer words",
    "reference": "behind a reference",
    "drop": "left no text behind",
}


def outcome(report: Report) -> Markup:
    """The numbers of a report: from how much to how much, and what became of what was in it."""
    fidelity, metrics = report.fidelity, report.metrics
    return numbers(
        (
            ("Tokens", _from_to(report)),
            ("Saved", join((count(report.tokens_saved), element("small", f" {report.reduction_percent:.0f} %")))),
            ("Messages", f"{report.messages_before:,} → {report.messages_after:,}"),
            (
                "Readable still",
                join((percent(_share(fidelity.retained, report)), element("small", f" of {fidelity.checked:,} names"))),
            ),
            ("Reachable", percent(_share(fidelity.retained + fidelity.reachable, report))),
            ("Failures kept", percent(metrics.failures_share)),
        )
    )


def _from_to(report: Report) -> Markup:
    return element("span", f"{report.tokens_before:,} → {report.tokens_after:,}", class_="from-to")


def _share(part: int, report: Report) -> float | None:
    return part / report.fidelity.checked if report.fidelity.checked else None


def tier_mark(tier: str) -> Markup:
    """A tier by its name."""
    return element("span", tier, class_=f"tier tier-{tier}", title=TIERS[tier])


def targets(report: Report, session_id: str) -> Markup:
    """Every target with its tier and reason: what is dropped or shortened first, since that is what one looks for."""
    rows = list(_rows(report, session_id))
    if not rows:
        return empty("Nothing would change.", report.reason or "There is nothing to shorten.")
    counts = element(
        "ul",
        *(
            element("li", tier_mark(tier), " ", element("b", count(_count(report, tier))), f" {words}")
            for tier, words in TIERS.items()
        ),
        class_="summary",
        aria_label="Targets by tier",
    )
    table = grid("Targets by tier, with reasons", ("Tier", "Id", "What", "Tokens", "Why"), rows, "targets")
    return join((counts, element("div", table, class_="card flush")))


def _count(report: Report, tier: str) -> int:
    lists: dict[str, Sequence[object]] = {
        "keep": report.preserved,
        "summarize": report.summarized,
        "reference": _referenced(report),
        "drop": report.discarded,
    }
    return len(lists[tier])


def _referenced(report: Report) -> list[object]:
    """Originals that nothing else in the report speaks of."""
    told = {each.id for each in report.summarized} | {each.id for each in report.discarded}
    return [each for each in report.archived if each.id not in told]


def _rows(report: Report, session_id: str) -> Iterable[tuple[str, ...]]:
    yield from _limited(
        [
            _row("drop", _recall(session_id, each.id), each.kind, each.summary, count(each.tokens), each.reason)
            for each in report.discarded[:_MOST_ROWS]
        ],
        len(report.discarded),
        "drop",
    )
    yield from _limited(
        [
            _row(
                "summarize",
                _recall(session_id, each.id),
                each.kind,
                each.summary,
                f"{each.tokens:,} → {each.tokens_after:,}",
                each.reason,
            )
            for each in report.summarized[:_MOST_ROWS]
        ],
        len(report.summarized),
        "summarize",
    )
    referenced = _referenced(report)
    yield from _limited(
        [
            _row("reference", _recall(session_id, each.id), each.kind, each.summary, count(each.tokens), each.recovery)  # type: ignore[attr-defined]
            for each in referenced[:_MOST_ROWS]
        ],
        len(referenced),
        "reference",
    )
    yield from _limited(
        [
            _row(
                "keep",
                f"turn {each.turn}" if each.turn else "",
                each.kind,
                each.summary,
                count(each.tokens),
                each.reason,
            )
            for each in report.preserved[:_MOST_ROWS]
        ],
        len(report.preserved),
        "keep",
    )


def _row(tier: str, ref: str, kind: str, summary: str, tokens: str, reason: str) -> tuple[str, ...]:
    what = join((text(summary, _WORDS), element("span", kind, class_="faint under")))
    return tier_mark(tier), ref, what, tokens, text(reason, _WORDS)


def _limited(rows: list[tuple[str, ...]], total: int, tier: str) -> list[tuple[str, ...]]:
    rest = total - len(rows)
    return [*rows, (tier_mark(tier), "", f"and {rest:,} more", "", "")] if rest > 0 else rows


def _recall(session_id: str, ref: str) -> Markup:
    return element("a", ref, href=path("sessions", session_id, "archive", ref), class_="ref")
