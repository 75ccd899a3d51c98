"""What a compaction did: one value that every surface shows in its own way, as JSON, as Markdown or in two lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from context_compactor.json_values import FormerNames
from context_compactor.text import plural

Status = Literal["success", "partial", "unchanged", "failed"]
TriggerName = Literal["threshold", "manual", "pre_handoff"]


class Preserved(Struct, frozen=True):
    """Something kept word for word, and why."""

    summary: str
    tokens: int
    turn: int = 0
    kind: str = ""
    reason: str = ""


class Summarized(Struct, frozen=True):
    """Something that is in the new context in fewer words."""

    id: str
    kind: str
    summary: str
    tokens: int
    tokens_after: int
    reason: str = ""


class Archived(Struct, frozen=True):
    """An original that left the context: where it is stored and how to get it back."""

    id: str
    kind: str
    summary: str
    tokens: int
    location: str
    recovery: str


class Discarded(Struct, frozen=True):
    """Something of which no text is left in the context, for audit. Its original is archived."""

    id: str
    kind: str
    summary: str
    tokens: int
    reason: str


class Missing(Struct, frozen=True):
    """One thing that is neither in the new context nor behind a visible reference."""

    kind: str
    value: str
    source: str = ""


class Fidelity(Struct, frozen=True):
    """What became of the identifiers, failures, constraints and decisions in the text that was removed."""

    retained: int = 0
    reachable: int = 0
    missing: tuple[Missing, ...] = ()

    @property
    def checked(self) -> int:
        """How many were checked."""
        return self.retained + self.reachable + len(self.missing)

    def in_words(self) -> str:
        """The three counts in one line."""
        missing = len(self.missing)
        return f"{self.retained:,} retained, {self.reachable:,} reachable, {missing:,} missing of {self.checked:,}"


class Cache(Struct, frozen=True):
    """How much of the old prompt's prefix a provider's cache can still use."""

    prefix_tokens_kept: int = 0
    prefix_tokens_rewritten: int = 0


class Cost(Struct, frozen=True):
    """What a compaction means for the agent's own bill, in US dollars; `engine/result.py` says how it is worked out.

    `before` and `after` are the context in one request, read from the provider's cache where it has one.
    """

    before: float
    after: float
    rewrite: float = 0.0
    """What the first request costs more than the later ones, because the new part of the context is not cached."""
    spent: float | None = 0.0
    """What the calls of the summarizing model have cost; None when that is not known."""
    break_even_turns: int | None = None
    """Requests until the costs are saved again; None when never, or when unknown."""
    note: str = ""
    """That the provider's cache had expired, so that nothing was lost by rewriting; else empty."""

    def in_words(self) -> str:
        """All of it in one line."""
        each = f"{dollars(self.before)} → {dollars(self.after)} for the context in each request"
        if self.note:
            each = f"{each}; {self.note}"
        if self.note and self.break_even_turns == 0:
            return each
        if self.break_even_turns is not None:
            return f"{each}; paid back after {self.break_even_turns:,} requests"
        return f"{each}; when it is paid back is not known" if self.spent is None else f"{each}; never paid back"


class Expected(Struct, frozen=True):
    """What a model would be asked for a compaction, if every first answer can be used. Nothing was sent."""

    model: str
    calls: int
    tokens_shown: int
    tokens_written: int
    cost: float | None = None
    """US dollars; None when the price is not known."""
    with_prefix: bool = False
    """Whether the conversation's own messages would be sent, which the provider has in its cache."""

    def in_words(self) -> str:
        """All of it in one line."""
        how = ", behind the conversation's own messages" if self.with_prefix else ""
        return (
            f"{self.model} would be asked {self.calls:,} times{how}: {self.tokens_shown:,} tokens shown, "
            f"about {self.tokens_written:,} written, {dollars(self.cost)}"
        )


class ModelCall(Struct, frozen=True):
    """One call of the model that writes the record."""

    model: str
    tokens_shown: int
    tokens_written: int
    attempts: int
    """How often this request was sent: more than once when the server was busy."""
    outcome: str
    cost: float | None = None
    """US dollars; None when the price or the usage is not known."""
    cache_read: int = 0
    """Of the tokens shown, those that the provider says it read from its cache."""
    cache_write: int = 0
    """Of the tokens shown, those that it says it wrote to its cache."""


class FloorPart(Struct, frozen=True):
    """Something that could not be made shorter, when a target was not reached."""

    what: str
    tokens: int
    reason: str = ""


class Metrics(Struct, frozen=True):
    """Five measured numbers. Shares are from 0 to 1; `None` means that there was nothing to measure.

    None of them says that a task was finished well; that cannot be measured here.
    """

    shrink_factor: float | None = None
    """Tokens before for each token after."""

    retained_share: float | None = None
    """Of what was checked in the removed text, the share that can still be read in the context."""

    failures_share: float | None = None
    """Of the failed attempts, the share whose command and error are in the context."""

    recallable_share: float | None = None
    """Of the references in the new context, the share whose original is in the archive, from this compaction or an
    earlier one of the session. Without a session only references that this compaction wrote first can be checked. Ids
    that the conversation's own messages name count only if they are archived."""

    pins_share: float | None = None
    """Of the pinned parts, the share that is unchanged in the context."""


class Report(FormerNames, frozen=True, kw_only=True):
    """What one compaction did. `unchanged` and `partial` are not errors; `reason` says why."""

    status: Status
    reason: str = ""
    trigger: TriggerName = "manual"
    level: str | None = None
    session_id: str = ""
    compaction_id: str = ""
    created_at: str = ""
    duration_ms: float = 0.0
    tokens_before: int
    tokens_after: int
    target_tokens: int | None = None
    messages_before: int
    messages_after: int
    messages_removed: int = 0
    preserved: tuple[Preserved, ...] = ()
    summarized: tuple[Summarized, ...] = ()
    archived: tuple[Archived, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    recovery_instructions: tuple[str, ...] = ()
    facts_added: int = 0
    fidelity: Fidelity = Fidelity()
    cache: Cache = Cache()
    cost: Cost | None = None
    expected: Expected | None = None
    """What a model would be asked; only in a dry run."""
    model_calls: tuple[ModelCall, ...] = ()
    summarized_by: str = ""
    """The model that wrote the record; empty when the engine wrote it alone."""
    corrections: tuple[str, ...] = ()
    """What was changed in that model's text before it was used: each line that was corrected or left out, and why."""
    checkpoint: str = ""
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the caller must know who sends the context, such as that a chain of responses begins anew."""
    metrics: Metrics = Metrics()
    floor: tuple[FloorPart, ...] = ()

    @classmethod
    def unchanged(cls, reason: str, *, tokens: int, messages: int, **more: Any) -> Self:
        """The report of a compaction that changed nothing; `more` sets other fields."""
        return cls(
            status="unchanged",
            reason=reason,
            tokens_before=tokens,
            tokens_after=tokens,
            messages_before=messages,
            messages_after=messages,
            **more,
        )

    @property
    def tokens_saved(self) -> int:
        """Tokens removed from the context."""
        return self.tokens_before - self.tokens_after

    @property
    def reduction_percent(self) -> float:
        """The tokens saved in percent of the tokens before."""
        return round(100 * self.tokens_saved / self.tokens_before, 1) if self.tokens_before > 0 else 0.0

    @property
    def spent_on_models(self) -> float | None:
        """Cost of all model calls in US dollars; None when the cost of one is unknown."""
        costs = [call.cost for call in self.model_calls]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def changed(self) -> bool:
        """Whether there is a new context."""
        return self.status in ("success", "partial") and self.tokens_after != self.tokens_before

    def short(self) -> str:
        """One or two lines, as every interface prints them."""
        shortened = sum(not one.id.startswith("turn_") for one in self.archived)
        if self.messages_removed:
            done = f"{self.messages_removed:,} messages → summary"
        elif shortened:
            done = f"{shortened:,} results shortened in place"
        else:
            done = "the summary of earlier turns shortened"
        return self._outcome(f"Conversation compacted: {done}")

    def answer(self) -> str:
        """The same, as a reply to `/compact`."""
        shortened = sum(not one.id.startswith("turn_") for one in self.archived)
        if self.messages_removed:
            done = f"Compacted {plural(self.messages_removed, 'message')}"
        elif shortened:
            done = f"Shortened {plural(shortened, 'result')} in place"
        else:
            done = "Shortened the summary of earlier turns"
        return self._outcome(f"✓ {done}")

    def _outcome(self, done: str) -> str:
        if self.changed:
            return f"{done}\nTokens: {self.tokens_before:,} → {self.tokens_after:,} (saved {self.tokens_saved:,})"
        begins = {"failed": "Compaction failed", "unchanged": "No compaction needed"}
        return f"{begins.get(self.status, 'Not compacted')}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values, each field under its own name."""
        fields: dict[str, Any] = {}
        for name, value in msgspec.to_builtins(self).items():
            fields[name] = _with_lists(value)
            if name == "tokens_after":
                fields |= {"tokens_saved": self.tokens_saved, "reduction_percent": self.reduction_percent}
        return fields

    def to_json(self) -> str:
        """`to_dict` as indented JSON text."""
        try:
            return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2).decode()
        except UnicodeEncodeError:  # half a character from the conversation: only escapes can carry it
            return json.dumps(self.to_dict(), indent=2)

    def to_markdown(self) -> str:
        """The report as Markdown with fixed headings; an empty section says that it is empty."""
        blocks = ["## Compaction Result", "\n".join(_summary_lines(self))]
        for heading, lines in _sections(self):
            blocks += [f"### {heading}", "\n".join(lines) or "None."]
        return "\n\n".join(blocks) + "\n"


def dollars(amount: float | None) -> str:
    """An amount of money as people read it."""
    return "cost unknown" if amount is None else f"${amount:.4f}"


def _with_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_lists(item) for name, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, tuple) else value


def _summary_lines(report: Report) -> Iterator[str]:
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
    yield from (f"**Note**: {_line(note)}" for note in report.notes)
    yield from (f"**Missing**: {item.kind} `{_line(item.value)}`" for item in report.fidelity.missing)
    yield from (f"**Cannot be shorter**: {_line(part.what)}, {part.tokens:,} tokens" for part in report.floor)


def _sections(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    yield "Preserved (Tier 1)", (_item(item.summary, item.tokens, item.reason) for item in report.preserved)
    yield (
        "Summarized (Tier 2)",
        (
            f"- {one.id}: {_line(one.summary)} ({one.tokens:,} → {one.tokens_after:,} tokens)"
            for one in report.summarized
        ),
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


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
