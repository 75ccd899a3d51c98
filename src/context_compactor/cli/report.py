"""Reports, plans and progress bars for people at a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from context_compactor.cli.output import LineOutput, columns, print_rows
from context_compactor.engine.report import dollars
from context_compactor.engine.tiers import Tier
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.engine.plan import Decision, TierTotal
    from context_compactor.engine.report import Report


BAR_WIDTH = 32
TIER_STYLES = {Tier.KEEP: "green", Tier.SUMMARIZE: "yellow", Tier.REFERENCE: "cyan", Tier.DROP: "red"}
STATUS_STYLES = {"success": "bold green", "unchanged": "bold", "partial": "bold yellow", "failed": "bold red"}
MOST_LISTED = 5
IN_INPUT = "the input still holds them"
IN_STORE = "`compactor recall ID` prints them"


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A share from 0 to 1 as a bar; anything above nothing shows at least a sliver."""
    eighths = min(width * 8, max(int(share * width * 8 + 0.5), 1 if share > 0 else 0))
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def print_report(report: Report, out: LineOutput, originals: str = IN_INPUT) -> None:
    """What happened, in the words every surface uses, then the numbers behind it; `originals` says where they are."""
    out.print(report.short(), style=STATUS_STYLES[report.status])
    if report.changed:
        _print_bars(report, out)
    print_rows(_rows(report, originals), out)


def print_plan(decisions: Sequence[Decision], out: LineOutput, most: int | None = None) -> None:
    """What becomes of every target and why."""
    for decision in decisions[:most]:
        change = f"{decision.tokens_before:>7,} → {decision.tokens_after:<7,}"
        target = one_line(decision.target, 90)
        out.print(f"turn {decision.turn:<4} {decision.tier:<9} {change} {target}", style=TIER_STYLES[decision.tier])
        out.print(f"{'':37}{one_line(decision.reason, 120)}", style="dim")
    if most is not None and len(decisions) > most:
        out.print(f"… and {len(decisions) - most:,} more")


def biggest(decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions that save most, the largest first."""
    saving = [decision for decision in decisions if decision.tier is not Tier.KEEP]
    return sorted(saving, key=lambda decision: decision.tokens_after - decision.tokens_before)


def print_totals(totals: Sequence[TierTotal], out: LineOutput) -> None:
    """How many targets fall into each tier, and what that saves."""
    for total in totals:
        words = f"{total.targets:>5,} targets {total.tokens_before:>9,} → {total.tokens_after:,} tokens"
        out.print(f"{total.tier:<12}{words}", style=TIER_STYLES[total.tier])


def _print_bars(report: Report, out: LineOutput) -> None:
    most = max(report.tokens_before, report.tokens_after, 1)
    target = f"  (target {report.target_tokens:,})" if report.target_tokens is not None else ""
    out.print(f"{'before':<12}{bar(report.tokens_before / most):<{BAR_WIDTH}} {report.tokens_before:,}", style="dim")
    after = f"{bar(report.tokens_after / most):<{BAR_WIDTH}} {report.tokens_after:,}"
    out.print(f"{'after':<12}{after}, {report.reduction_percent:g} % less{target}", style="green")


def _rows(report: Report, originals: str) -> Iterator[tuple[str, str]]:
    if report.status == "partial" and report.changed:
        yield "partial", one_line(report.reason, 300)
    if report.changed:
        yield "kept", f"{len(report.preserved):,} items, {sum(item.tokens for item in report.preserved):,} tokens"
        before, after = (sum(getattr(item, name) for item in report.summarized) for name in ("tokens", "tokens_after"))
        yield "shortened", f"{len(report.summarized):,} items, {before:,} → {after:,} tokens"
        yield "archived", f"{len(report.archived):,} originals left the context; {originals}"
        yield "discarded", f"{len(report.discarded):,} items, {sum(item.tokens for item in report.discarded):,} tokens"
        yield "fidelity", report.fidelity.in_words()
        yield from _summarizer_rows(report)
        yield "cache", f"{report.cache.prefix_tokens_kept:,} tokens of the old prefix stay valid"
        if report.expected is not None:
            yield "model", one_line(report.expected.in_words(), 300)
        if report.cost is not None:
            yield "cost", report.cost.in_words()
    yield from _listed("repaired", report.repairs)
    yield from _listed("note", report.notes)
    yield from _listed("missing", [f"{item.kind} {item.value}" for item in report.fidelity.missing])
    yield from _listed("floor", [f"{part.what}, {part.tokens:,} tokens" for part in report.floor])


def _summarizer_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Which model wrote the summary, or why none did, and its calls."""
    calls = report.model_calls
    if report.summarized_by:
        yield "summary by", one_line(report.summarized_by, 200)
    elif report.reason and report.status == "success":
        yield "note", one_line(report.reason, 300)
    if calls:
        shown, written = sum(call.tokens_shown for call in calls), sum(call.tokens_written for call in calls)
        read = sum(call.cache_read for call in calls)
        cached = f" ({read:,} from the cache)" if read else ""
        again = sum(call.attempts for call in calls) - len(calls)
        retries = f" and {again:,} retries" if again > 0 else ""
        paid = dollars(report.spent_on_models)
        yield "model", f"{len(calls):,} calls{retries}, {shown:,} tokens shown{cached}, {written:,} written, {paid}"


def _listed(name: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines[:MOST_LISTED]:
        yield name, one_line(line, 200)
    if len(lines) > MOST_LISTED:
        yield name, f"… and {len(lines) - MOST_LISTED:,} more (in the JSON report)"


WIDTH = 24
_PAUSE = 0.1
_CLEAR = "\r\x1b[K"


class ProgressBar:
    """One line on a terminal, drawn over again; nothing where nobody looks."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.is_shown = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._what, self._total, self._done, self._note = "", 0, 0, ""
        self._began = self._drawn = 0.0

    def start(self, what: str, total: int) -> None:
        """Begin a stretch of work of so many steps."""
        self._what, self._total, self._done, self._note = what, max(1, total), 0, ""
        self._began, self._drawn = time.monotonic(), 0.0
        self._draw()

    def step(self, amount: int = 1, note: str = "") -> None:
        """So many steps are done; the note is shown behind the bar."""
        self._done += amount
        self._note = note
        self._draw()

    def clear(self) -> None:
        """Take the line away."""
        if self.is_shown and self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _draw(self) -> None:
        now = time.monotonic()
        if not self.is_shown or (now - self._drawn < _PAUSE and self._done < self._total):
            return
        self._drawn = now
        share = min(1.0, self._done / self._total)
        line = f"{self._what:<11}{bar(share, WIDTH):<{WIDTH}} {100 * share:3.0f} %{_left(share, now - self._began)}"
        line = f"{line}  {self._note}"[: columns()].rstrip()
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(_CLEAR + line.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


def _left(share: float, gone: float) -> str:
    if share <= 0.02 or gone < 2 or share >= 1:
        return ""
    left = gone / share - gone
    return f"  about {left / 60:.0f} min left" if left >= 90 else f"  about {left:.0f} s left"
