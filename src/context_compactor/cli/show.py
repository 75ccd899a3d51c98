"""`compactor show`: how full a transcript or a stored session is, with what, and how long there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from context_compactor.cli.options import (
    AsJson,
    DialectName,
    FileOrSession,
    StoreUrl,
    System,
    Tools,
    Window,
    find_named,
    is_file,
    refuse_dialect,
    store_url,
)
from context_compactor.cli.output import LineOutput, print_json, print_rows, progress_line, stdout
from context_compactor.cli.sessions import compactions_text, described, moment
from context_compactor.engine.tiers import Tier
from context_compactor.errors import BadSetting
from context_compactor.settings import Level, Settings
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.cli.conversation import TranscriptInput
    from context_compactor.engine.report import Report
    from context_compactor.sessions.views import Totals
    from context_compactor.store.rows import SessionRow
    from context_compactor.tokens.budget import Budget, Sections, Usage


class TranscriptStatus(Struct, frozen=True):
    """Everything that `show` prints."""

    conversation: TranscriptInput
    usage: Usage
    budget: Budget
    turns: int
    tiers: dict[str, int]


def show(
    file: FileOrSession,
    window: Window = None,
    dialect: DialectName = None,
    tools: Tools = None,
    system: System = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show how full a conversation is: usage by section, levels, counters, forecast, turns by tier.

    The tiers are those of a soft compaction made now. A session of the store shows its compactions instead.

    Example: `compactor show session.jsonl --window 200k` or `compactor show run-42`
    """
    if not is_file(file):
        refuse_dialect(file, dialect)
        if any(option is not None for option in (window, tools, system)):
            find_named(file, store)
            raise BadSetting(
                f"--window, --tools, --system: session {file!r:.80} already has these. Try: leave them out."
            )
        show_session(file, store, as_json)
        return
    with progress_line("Measuring", file):
        from context_compactor.cli.conversation import open_conversation

        shown = transcript_status(open_conversation(file, window, dialect=dialect, tools=tools, system=system))
    if as_json:
        print_json(_transcript_json(shown))
    else:
        print_transcript_status(shown, stdout())


def transcript_status(conversation: TranscriptInput) -> TranscriptStatus:
    """Measure a conversation and see what a soft compaction would make of its turns."""
    from context_compactor.cli.conversation import budget_of, measure_conversation
    from context_compactor.dialects.turns import split_turns

    turns = split_turns(conversation.messages)
    budget = budget_of(conversation)
    usage = measure_conversation(conversation, turns, budget)
    return TranscriptStatus(conversation, usage, budget, len(turns), _tiers(conversation, len(turns)))


def print_transcript_status(shown: TranscriptStatus, out: LineOutput) -> None:
    """The whole page."""
    transcript = shown.conversation.transcript
    title = [transcript.source, transcript.dialect, transcript.model, transcript.session_id]
    out.print(one_line(" · ".join(dict.fromkeys(filter(None, title))), 200), style="bold")
    out.print(f"{len(transcript.messages):,} messages, {shown.turns:,} turns")
    out.print()
    print_sections(shown.usage.sections, shown.usage.budget_tokens, out)
    out.print()
    print_rows(_transcript_rows(shown), out)


def print_sections(sections: Sections, budget_tokens: int, out: LineOutput) -> None:
    """Tokens by section, as bars of one scale."""
    from context_compactor.cli.report import BAR_WIDTH, bar

    weights = {name: tokens for name, tokens in msgspec.structs.asdict(sections).items() if tokens}
    most = max(weights.values(), default=1)
    for name, tokens in weights.items():
        share = f"{100 * tokens / budget_tokens:5.1f} %"
        out.print(f"{name.replace('_', ' '):<14}{tokens:>10,} {share} {bar(tokens / most):<{BAR_WIDTH}}")
    total = 100 * sections.total / budget_tokens
    out.print(f"{'in all':<14}{sections.total:>10,} {total:5.1f} % of {budget_tokens:,}", style="bold")


def _tiers(conversation: TranscriptInput, turns: int) -> dict[str, int]:
    """How many turns fall into each tier; a turn is what most of its tokens become."""
    weights: dict[int, Counter[Tier]] = {}
    decisions = conversation.compacted(level=Level.SOFT).decisions
    if not decisions:
        return {tier.value: turns if tier is Tier.KEEP else 0 for tier in Tier}
    for decision in decisions:
        weights.setdefault(decision.turn, Counter())[decision.tier] += max(1, decision.tokens_before)
    tiers = Counter(weight.most_common(1)[0][0] for weight in weights.values())
    return {tier.value: tiers[tier] for tier in Tier}


def _transcript_rows(shown: TranscriptStatus) -> Iterator[tuple[str, str]]:
    usage = shown.usage
    yield counted_row(usage)
    yield "window", str(shown.conversation.window)
    yield "budget", str(shown.budget)
    yield from usage_rows(usage, shown.conversation.settings)
    yield "tiers", " · ".join(f"{count:,} {tier}" for tier, count in shown.tiers.items()) + " (turns, if soft now)"
    for note in shown.conversation.transcript.notes:
        yield "note", one_line(note, 200)


def counted_row(usage: Usage) -> tuple[str, str]:
    """Who counted, and how far that may be off."""
    return "counted", f"{usage.source}; the truth may be up to {100 * usage.margin:.1f} % higher"


def usage_rows(usage: Usage, settings: Settings) -> Iterator[tuple[str, str]]:
    """Request, levels, counters and forecast."""
    yield "request", f"{usage.bytes:,} of {usage.budget_bytes:,} bytes"
    yield "level", str(usage.level) if usage.level else "none reached"
    for rule in settings.levels:
        starts, ends = int(rule.threshold * usage.budget_tokens), int(rule.target * usage.budget_tokens)
        yield "", f"{rule.level}: from {starts:,} down to {ends:,} tokens{_distance(usage, starts)}"
    yield "counters", f"{usage.tool_results:,} tool results{_hint(usage.tool_results, settings.suggest_tool_results)}"
    yield "", f"{usage.files_loaded:,} files loaded{_hint(usage.files_loaded, settings.suggest_files)}"
    if usage.turns_left is not None:
        yield "forecast", f"room for about {usage.turns_left:,} more turns of {usage.growth:,} tokens"


def _distance(usage: Usage, tokens: int) -> str:
    turns = usage.turns_until(tokens)
    return f", in about {turns:,} turns" if turns else ""


def _hint(count: int, threshold: int) -> str:
    return f" (a compaction is suggested from {threshold:,} on)" if 0 < threshold <= count else ""


def _transcript_json(shown: TranscriptStatus) -> dict[str, Any]:
    transcript = shown.conversation.transcript
    window = shown.conversation.window
    return {
        "source": transcript.source,
        "dialect": transcript.dialect,
        "model": transcript.model,
        "session_id": transcript.session_id,
        "messages": len(transcript.messages),
        "turns": shown.turns,
        "usage": msgspec.to_builtins(shown.usage) | {"turns_left": shown.usage.turns_left},
        "window": {"tokens": window.tokens, "source": window.source},
        "budget": {"tokens": shown.budget.tokens, "bytes": shown.budget.bytes},
        "levels": msgspec.to_builtins(shown.conversation.settings.levels),
        "tiers": shown.tiers,
        "notes": transcript.notes,
    }


class SessionFigures(Struct, frozen=True):
    """Everything that `show` prints of a session."""

    known: dict[str, Any]
    usage: Usage
    settings: Settings
    totals: Totals
    last: Report | None


def show_session(name: str, store: str | None, as_json: bool) -> None:
    """Show a session of the store."""
    row = find_named(name, store)
    shown = session_status(row, store_url(store))
    if as_json:
        print_json(_session_json(shown))
    else:
        print_session_status(shown, stdout())


def session_status(row: SessionRow, url: str) -> SessionFigures:
    """Measure a session and look at its compactions."""
    from context_compactor.sessions.session import Session

    with Session.open(row.id, store=url, branch=row.id) as session:
        reports = session.compactions()
        return SessionFigures(
            described(row), session.usage(), session.settings, session.totals(), reports[-1] if reports else None
        )


def print_session_status(shown: SessionFigures, out: LineOutput) -> None:
    """The whole page."""
    known = shown.known
    title = ["session", known["dialect"], known["model"], known["id"]]
    out.print(one_line(" · ".join(filter(None, title)), 200), style="bold")
    out.print(f"{known['messages']:,} messages, last used {moment(known['updated_at'])} UTC")
    out.print()
    print_sections(shown.usage.sections, shown.usage.budget_tokens, out)
    out.print()
    print_rows(_session_rows(shown), out)


def _session_rows(shown: SessionFigures) -> Iterator[tuple[str, str]]:
    yield counted_row(shown.usage)
    yield from usage_rows(shown.usage, shown.settings)
    yield "history", compactions_text(shown.totals)
    spent = shown.totals.spent
    if spent.attempts:
        yield "models", f"{spent.attempts:,} requests, ${spent.dollars:.4f} as far as prices are known"
    if shown.last is not None:
        yield from (("last" if at == 0 else "", line) for at, line in enumerate(_last(shown.last)))


def _last(report: Report) -> list[str]:
    why = f"{report.trigger}, {report.level}" if report.level else report.trigger
    return [f"{moment(report.created_at)} UTC, {report.compaction_id} ({why})", *report.short().splitlines()]


def _session_json(shown: SessionFigures) -> dict[str, Any]:
    return {
        "source": "session",
        **shown.known,
        "usage": msgspec.to_builtins(shown.usage) | {"turns_left": shown.usage.turns_left},
        "levels": msgspec.to_builtins(shown.settings.levels),
        "totals": msgspec.to_builtins(shown.totals),
        "last_compaction": shown.last.to_dict() if shown.last else None,
    }
