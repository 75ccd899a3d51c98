"""The plan of the next compaction as the user edits it: what was chosen, planning again, and how the plan is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs
from rich.text import Text

from context_compactor.engine.plan import Decision, Plan, TierTotal, TurnPlan
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.settings import Level
from context_compactor.text import percent, plural, short_count
from context_compactor.tui.formatting import cut_line, in_width, safe_text
from context_compactor.tui.screens.viewer import TextDocument
from context_compactor.tui.sources.base import SessionSource, TextPiece
from context_compactor.tui.widgets.row_list import Cell, Column, Row

_TIERS = tuple(Tier)
_LEVELS = (None, *Level)


class PlanDraft(Struct, frozen=True):
    """A level, a target or both; `changes` are the turns whose tier is another than the one that is saved.

    None in the place of a tier leaves a turn to the engine again.
    """

    level: str | None = None
    target_tokens: int | None = None
    focus: str | None = None
    changes: dict[int, Tier | None] = {}

    def tiers(self, kept: Mapping[int, Tier]) -> dict[int, Tier]:
        """All tiers, as if the changes were kept."""
        merged = {**kept, **self.changes}
        return {turn: tier for turn, tier in sorted(merged.items()) if tier is not None}

    def with_tier(self, kept: Mapping[int, Tier], turn: int, tier: Tier | None) -> PlanDraft:
        """The draft with this tier for a turn; what is kept already is no change."""
        others = {number: each for number, each in self.changes.items() if number != turn}
        return structs.replace(self, changes=others if kept.get(turn) == tier else {**others, turn: tier})

    def freed(self, kept: Mapping[int, Tier]) -> PlanDraft:
        """The draft with every turn left to the engine."""
        return structs.replace(self, changes=dict.fromkeys(kept))

    def settled(self, kept: Mapping[int, Tier]) -> PlanDraft:
        """The draft when these tiers are kept: what is so already is no change."""
        changes = {turn: tier for turn, tier in self.changes.items() if kept.get(turn) != tier}
        return structs.replace(self, changes=changes)

    def without(self, turns: Collection[int]) -> PlanDraft:
        """The draft without what was chosen about these turns."""
        changes = {turn: tier for turn, tier in self.changes.items() if turn not in turns}
        return structs.replace(self, changes=changes)

    def next_level(self) -> PlanDraft:
        """The draft with the next level; behind the last comes none, which is what `/compact` does."""
        known = next((at for at, level in enumerate(_LEVELS) if level == self.level), 0)
        return structs.replace(self, level=_LEVELS[(known + 1) % len(_LEVELS)])


def shift_tier(tier: Tier, by: int) -> Tier | None:
    """The tier so many steps up, or down when that is below 0; None when there is none."""
    at = _TIERS.index(tier) - by
    return _TIERS[at] if 0 <= at < len(_TIERS) else None


_UNLIMITED_TOKENS = 10**11
"""A target that every context is within: then tiers are only looked at, and nothing has to be planned."""


class Planner:
    """Plans again and again, one plan after the other, with the draft as it is by then."""

    def __init__(self, source: SessionSource, session_id: str, draft: PlanDraft) -> None:
        self.draft = draft
        self.kept: dict[int, Tier] = {}
        """The tiers of the session."""
        self.plan: Plan | None = None
        self.turns: list[TurnPlan] = []
        self.budget_tokens = 0
        self.is_automatic = True
        self.is_enabled = True
        self.seconds = 0.0
        """How long the last plan took."""
        self._source, self._id = source, session_id
        self._planned: tuple[PlanDraft, Mapping[int, Tier]] | None = None

    @property
    def is_planning(self) -> bool:
        """Whether the draft is not in the plan yet."""
        return self._planned != (self.draft, self.kept)

    def at(self, turn: int) -> int | None:
        """The place of a turn in the list."""
        return next((at for at, each in enumerate(self.turns) if each.turn == turn), None)

    async def refresh(self) -> None:
        """See how the session stands, and what it keeps."""
        source, name = self._source, self._id
        status, settings, self.kept = await asyncio.gather(
            source.session(name), source.settings(name), source.tiers(name)
        )
        self.draft = self.draft.settled(self.kept)
        self.budget_tokens = status.budget_tokens
        self.is_automatic, self.is_enabled = settings.get("automatic", True), settings.get("enabled", True)
        self._planned = None

    async def replan(self) -> list[str]:
        """Plan the draft as it is now; why some of it cannot be, which is taken out of the draft then."""
        refused: dict[int, str] = {}
        draft, kept, began = self.draft, self.kept, time.monotonic()
        try:
            plan = await self._plan(draft, draft.tiers(kept))
        except BadSetting:
            refused = await self._refused(draft)
            if not refused:
                raise
            meant = {turn for turn in refused if self.draft.changes.get(turn) is draft.changes[turn]}
            self.draft, draft = self.draft.without(meant), draft.without(refused)
            plan = await self._plan(draft, draft.tiers(kept))
        self.plan, self.turns, self._planned = plan, plan.turns(), (draft, kept)
        self.seconds = time.monotonic() - began
        return list(refused.values())

    async def _plan(self, draft: PlanDraft, tiers: Mapping[int, Tier]) -> Plan:
        target = draft.target_tokens
        return await self._source.planned(
            self._id, level=draft.level, target_tokens=target, focus=draft.focus, tiers=tiers
        )

    async def _refused(self, draft: PlanDraft) -> dict[int, str]:
        """Which of the changes cannot be, and why: each is looked at alone."""
        found: dict[int, str] = {}
        for turn, tier in draft.changes.items():
            if tier is not None:
                try:
                    await self._source.planned(self._id, target_tokens=_UNLIMITED_TOKENS, tiers={turn: tier})
                except BadSetting as error:
                    found[turn] = str(error)
        return found


PLAN_COLUMNS = (
    Column("Turn", 6, right=True),
    Column("You", 5),
    Column("Tier", 10),
    Column("Tokens", 17, right=True),
    Column("Kind", 13, min_list_width=100),
    Column("Words"),
    Column("Why", min_list_width=100),
)
_MARKS = {Tier.KEEP: "pin", Tier.SUMMARIZE: "sum", Tier.REFERENCE: "ref", Tier.DROP: "drop", None: "free"}
_UNSAVED = "*"


def outcome_text(plan: Plan, budget_tokens: int, draft: PlanDraft, is_planning: bool) -> Text:
    """What the plan comes to, how its tokens are shared out, and what is not kept yet."""
    text = _outcome(plan.report, budget_tokens)
    if is_planning:
        text = Text("reckoning… ", style="bold").append_text(text)
    parts = [_total(total) for total in plan.totals() if total.targets]
    if parts:
        text.append(f"\n{' · '.join(parts)}", style="not bold")
    if draft.changes:
        text.append(f"\n{plural(len(draft.changes), 'tier')} changed, not saved yet", style="bold")
        text.append(": a keeps and compacts, s only keeps", style="not bold")
    return text


def _outcome(report: Report, budget_tokens: int) -> Text:
    if not report.changed:
        used = f", {percent(report.tokens_before / budget_tokens)} of the budget" if budget_tokens else ""
        text = Text("Nothing to do: ", style="bold").append(safe_text(report.reason), style="not bold")
        return text.append(f"{used}. Another level (l) or target (t) may find more.", style="not bold")
    text = Text(f"{report.tokens_before:,} → {report.tokens_after:,} tokens", style="bold")
    text.append(f" · saves {report.tokens_saved:,} ({report.reduction_percent:.0f} %)", style="not bold")
    if budget_tokens:
        text.append(f" · {percent(report.tokens_after / budget_tokens)} of the budget", style="not bold")
    if report.status == "success":
        return text.append(" · fits", style="not bold")
    return text.append(" · does not fit: ", style="bold").append(safe_text(report.reason), style="not bold")


def _total(total: TierTotal) -> str:
    """How many targets fall into a tier, and about how many tokens they have before, and after if that is another."""
    before, after = short_count(total.tokens_before), short_count(total.tokens_after)
    return f"{total.tier} {total.targets:,} ({before if after in (before, '0') else f'{before} → {after}'})"


def plan_row(
    turn: TurnPlan, draft: PlanDraft, kept: Mapping[int, Tier], tiers: Mapping[int, Tier], is_planning: bool
) -> Row:
    """A turn in a line. A tier that was chosen and is not planned yet has a mark behind it."""
    chosen = tiers.get(turn.turn)
    is_waiting = is_planning and chosen is not turn.set_tier
    tier = chosen or turn.tier
    return [
        Cell(f"{turn.turn:,}" if turn.turn > 0 else "instr", "faint"),
        Cell(tier_mark(draft, kept, turn.turn), "strong"),
        Cell(f"{tier}…" if is_waiting else turn.tier.value, tier.value if is_waiting else turn.tier.value),
        Cell("…" if is_waiting else _token_change(turn.tokens_before, turn.tokens_after)),
        Cell(_main_kind(turn.decisions), "faint"),
        Cell(decisions_text(turn.decisions)),
        Cell(turn.reason, "faint"),
    ]


def _main_kind(decisions: Sequence[Decision]) -> str:
    """What most of a turn is."""
    return max(decisions, key=lambda decision: decision.tokens_before).kind.value if decisions else ""


def tier_mark(draft: PlanDraft, kept: Mapping[int, Tier], turn: int) -> str:
    """What the user has decided about a turn, with a star when that is not kept yet; empty when nothing."""
    if turn in draft.changes:
        return _MARKS[draft.changes[turn]] + _UNSAVED
    return _MARKS[kept[turn]] if turn in kept else ""


def decisions_text(decisions: Sequence[Decision]) -> str:
    """A turn in a few words: its first target, and how many more there are."""
    more = f"(+{len(decisions) - 1}) " if len(decisions) > 1 else ""
    return f"{more}{decisions[0].target}" if decisions else ""


def reason_text(turn: TurnPlan, width: int, room: int) -> Text:
    """The reason of a turn in full, and a line for each decision behind it, as many as there is room for."""
    name = f"turn {turn.turn:,}" if turn.turn > 0 else "instructions"
    text = Text(f"{name}: {turn.tier}", style="bold").append(f", {cut_line(turn.reason)}", style="not bold")
    fits = len(turn.decisions) <= room
    shown = turn.decisions if fits else turn.decisions[: max(room - 1, 0)]
    lines = [in_width(f"  {_decision_line(each)}", width) for each in shown]
    if not fits:
        lines.append(f"  … {len(turn.decisions) - len(shown):,} more: Enter shows all of them")
    return text.append("".join(f"\n{line}" for line in lines), style="not bold")


def _decision_line(decision: Decision) -> str:
    """A decision in a line: tier, tokens, how, what and why."""
    tokens = _token_change(decision.tokens_before, decision.tokens_after)
    words = cut_line(f"{decision.strategy}: {decision.target} ({decision.reason})")
    return f"{decision.tier:<9} {tokens:>15}  {words}"


def _token_change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} → {after:,}"


_MAX_STEPS = 50


def planned_turn_document(source: SessionSource, session_id: str, turn: TurnPlan) -> TextDocument:
    """A turn under the decisions about it."""

    async def read() -> list[TextPiece]:
        decided = TextPiece("what would become of it", "\n\n".join(map(_decision_text, turn.decisions)))
        return [decided, *await _turn_text(source, session_id, turn.turn)]

    title = f"turn {turn.turn:,}: {turn.tier}" if turn.turn > 0 else "instructions"
    return TextDocument(title, read=read)


def _decision_text(decision: Decision) -> str:
    lines = [
        decision.target,
        f"  tier    {decision.tier}, {decision.tokens_before:,} → {decision.tokens_after:,} tokens",
        f"  worth   {decision.relevance:g} of 1",
        f"  how     {decision.strategy}",
        f"  why     {decision.reason}",
    ]
    return "\n".join([*lines, f"  recall  {decision.ref}"] if decision.ref else lines)


async def _turn_text(source: SessionSource, session_id: str, number: int) -> list[TextPiece]:
    try:
        at = await find_turn(source, session_id, number)
        return [] if at is None else await source.turn(session_id, at)
    except CompactorError as error:
        return [TextPiece("what was said cannot be read now", str(error))]


async def find_turn(source: SessionSource, session_id: str, number: int) -> int | None:
    """Where in the history a turn of this number stands; instructions have no number, and stand between the others."""
    if number <= 0:
        return None
    while not (known := await source.turns(session_id, 0, 0)).is_all and known.total <= number:
        pass
    at = min(number, known.total) - 1
    for _ in range(_MAX_STEPS):
        lines = (await source.turns(session_id, max(at, 0), 1)).turns
        if not lines:
            return None
        if lines[0].number == number:
            return at
        at += number - lines[0].number if lines[0].number > 0 else 1
    return None
