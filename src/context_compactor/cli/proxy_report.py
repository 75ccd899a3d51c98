"""What a proxy's requests cost, for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_compactor.cli.output import LineOutput, stdout, wrap_text
from context_compactor.proxy.bills import bill_lines, client_name, money, side_dollars
from context_compactor.text import one_line, plural

if TYPE_CHECKING:
    from context_compactor.proxy.bills import BillGroup, BillSide, ProxyReport

_NAME, _SIDE = 32, 20
_MOST_MODELS = 12
_DAY = len("2026-01-31")


def print_report(report: ProxyReport, out: LineOutput | None = None) -> None:
    """A table of both sides for each client, with its models, the comparisons, and what is missing."""
    out = out or stdout()
    if not report.clients:
        out.print("No request went through the proxy yet. Try: compactor proxy.")
        return
    out.print(_heading(report), style="bold")
    for group, comparison in zip(report.clients, report.comparisons, strict=True):
        _print_client(group, [each for each in report.models if each.client == group.client], out)
        out.print(wrap_text(comparison.text, "  "), style="bold" if comparison.ratio is not None else None)
    if report.notes:
        out.print()
    for note in report.notes:
        out.print(wrap_text(note, indent=2), style="yellow")


def _heading(report: ProxyReport) -> str:
    sides = (report.total.with_us, report.total.without_us)
    requests, talks = sum(side.requests for side in sides), sum(side.conversations for side in sides)
    days = f"{report.first_at[:_DAY]} to {report.last_at[:_DAY]}"
    return f"{plural(requests, 'request')} in {plural(talks, 'conversation')}, {days}"


def _print_client(group: BillGroup, models: list[BillGroup], out: LineOutput) -> None:
    out.print()
    out.print(_row(client_name(group.client or ""), "with us", "held out"), style="bold")
    for line in bill_lines(group):
        out.print(_row(f"  {line.name}", line.with_us, line.without_us))
    out.print("  Dollars by model (per request)", style="dim")
    for each in models[:_MOST_MODELS]:
        name = one_line(each.model or "no name", _NAME - 5)
        out.print(_row(f"    {name}", _model_cell(each.with_us), _model_cell(each.without_us)))
    if len(models) > _MOST_MODELS:
        out.print(f"    … and {len(models) - _MOST_MODELS:,} more (in --json)", style="dim")


def _model_cell(side: BillSide) -> str:
    rate = "" if side.dollars_per_request is None else f" ({money(side.dollars_per_request)})"
    return side_dollars(side) + rate


def _row(name: str, with_us: str, without_us: str) -> str:
    return f"{name:<{_NAME}}{with_us:>{_SIDE}}{without_us:>{_SIDE}}"
