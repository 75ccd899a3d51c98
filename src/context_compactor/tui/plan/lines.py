"""A plan on the screen: what it comes to, a row for each turn, and what is behind the turn with the cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from context_compactor.classify.tier import Tier
from context_compactor.figures import plural
from context_compactor.plan.plan import Decision, Plan, TierTotal, TurnPlan
from context_compactor.report import Report
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.texts import cut_line, in_width, percent, safe, short_count
from context_compactor.tui.widgets.rows import Cell, Column, Row

COLUMNS = (
    Column("Turn", 6, right=True),
    Column("You", 5),
    Column("Tier", 10),
    Column("Tokens", 17, right=True),
    Column("Kind", 13, from_width=100),
    Column("Words"),
    Column("Why", from_width=100),
)
_MARKS = {Tier.KEEP: "pin", Tier.SUMMARIZE: "sum", Tier.REFERENCE: "ref", Tier.DROP: "drop", None: "free"}
_NOT_KEPT = "*"


def outcome_text(plan: Plan, budget_tokens: int, wish: Wish, is_reckoning: bool) -> Text:
    """What the plan comes to, how its tokens are shared out, and what is not kept yet."""
    text = _outcome(plan.report, budget_tokens)
    if is_reckoning:
        text = Text("reckoning… ", style="bold").append_text(text)
    parts = [_total(total) for total in plan.totals() if total.targets]
    if parts:
        text.append(f"\n{' · '.join(parts)}", style="not bold")
    if wish.changes:
        text.append(f"\n{plural(len(wish.changes), 'steer')} changed, not yet kept", style="bold")
        text.append(": a keeps and compacts, s only keeps", style="not bold")
    return text


def _outcome(report: Report, budget_tokens: int) -> Text:
    if not report.changed:
        used = f", {percent(report.tokens_before / budget_tokens)} of the budget" if budget_tokens else ""
        text = Text("Nothing to do: ", style="bold").append(safe(report.reason), style="not bold")
        return text.append(f"{used}. Another level (l) or target (t) may find more.", style="not bold")
    text = Text(f"{report.tokens_before:,} → {report.tokens_after:,} tokens", style="bold")
    text.append(f" · saves {report.tokens_saved:,} ({report.reduction_percent:.0f} %)", style="not bold")
    if budget_tokens:
        text.append(f" · {percent(report.tokens_after / budget_tokens)} of the budget", style="not bold")
    if report.status == "success":
        return text.append(" · fits", style="not bold")
    return text.append(" · does not fit: ", style="bold").append(safe(report.reason), style="not bold")


def _total(total: TierTotal) -> str:
    """How many targets fall into a tier, and about how many tokens they have before, and after if that is another."""
    before, after = short_count(total.tokens_before), short_count(total.tokens_after)
    return f"{total.tier} {total.targets:,} ({before if after in (before, '0') else f'{before} → {after}'})"


def row_of(turn: TurnPlan, wish: Wish, kept: Mapping[int, Tier], steers: Mapping[int, Tier], is_reckoning: bool) -> Row:
    """A turn in a line. A tier that was chosen and is not reckoned yet has a mark behind it."""
    chosen = steers.get(turn.turn)
    is_waiting = is_reckoning and chosen is not turn.steer
    tier = chosen or turn.tier
    return [
        Cell(f"{turn.turn:,}" if turn.turn > 0 else "instr", "faint"),
        Cell(mark_of(wish, kept, turn.turn), "strong"),
        Cell(f"{tier}…" if is_waiting else turn.tier.value, tier.value if is_waiting else turn.tier.value),
        Cell("…" if is_waiting else _tokens(turn.tokens_before, turn.tokens_after)),
        Cell(_kind(turn.decisions), "faint"),
        Cell(words_of(turn.decisions)),
        Cell(turn.reason, "faint"),
    ]


def _kind(decisions: Sequence[Decision]) -> str:
    """What most of a turn is."""
    return max(decisions, key=lambda decision: decision.tokens_before).kind.value if decisions else ""


def mark_of(wish: Wish, kept: Mapping[int, Tier], turn: int) -> str:
    """What the user has decided about a turn, with a star when that is not kept yet; empty when nothing."""
    if turn in wish.changes:
        return _MARKS[wish.changes[turn]] + _NOT_KEPT
    return _MARKS[kept[turn]] if turn in kept else ""


def words_of(decisions: Sequence[Decision]) -> str:
    """A turn in a few words: its first target, and how many more there are."""
    more = f"(+{len(decisions) - 1}) " if len(decisions) > 1 else ""
    return f"{more}{decisions[0].target}" if decisions else ""


def why_text(turn: TurnPlan, width: int, room: int) -> Text:
    """The reason of a turn in full, and a line for each decision behind it, as many as there is room for."""
    name = f"turn {turn.turn:,}" if turn.turn > 0 else "instructions"
    text = Text(f"{name}: {turn.tier}", style="bold").append(f", {cut_line(turn.reason)}", style="not bold")
    fits = len(turn.decisions) <= room
    shown = turn.decisions if fits else turn.decisions[: max(room - 1, 0)]
    told = [in_width(f"  {_decided(each)}", width) for each in shown]
    if not fits:
        told.append(f"  … {len(turn.decisions) - len(shown):,} more: Enter shows all of them")
    return text.append("".join(f"\n{line}" for line in told), style="not bold")


def _decided(decision: Decision) -> str:
    """A decision in a line: tier, tokens, how, what and why."""
    tokens = _tokens(decision.tokens_before, decision.tokens_after)
    told = cut_line(f"{decision.strategy}: {decision.target} ({decision.reason})")
    return f"{decision.tier:<9} {tokens:>15}  {told}"


def _tokens(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"
