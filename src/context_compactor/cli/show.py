"""`compactor show`: how full a conversation is, with what, and for how long there is room."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from context_compactor.classify.tier import Tier
from context_compactor.cli.options import AsJson, FileOrSession, StoreUrl, Window
from context_compactor.cli.output import Out, paper, print_json, working
from context_compactor.levels import Level
from context_compactor.messages.printing import one_line
from context_compactor.settings import Settings

if TYPE_CHECKING:
    from context_compactor.cli.conversation import Conversation
    from context_compactor.measure.budget import Budget
    from context_compactor.measure.usage import Sections, Usage


class Shown(Struct, frozen=True):
    """Everything that `show` prints."""

    conversation: Conversation
    usage: Usage
    budget: Budget
    turns: int
    tiers: dict[str, int]


def show(file: FileOrSession, window: Window = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show how full a conversation is: usage by section, levels, counters, forecast, turns by tier.

    The tiers are those of a soft compaction made now. A session of the store shows its compactions instead.

    Example: `compactor show session.jsonl --window 200k` or `compactor show run-42`
    """
    if not is_file(file):
        from context_compactor.cli.show_session import show_session

        show_session(file, window, store, as_json)
        return
    with working("Measuring", file):
        from context_compactor.cli.conversation import open_conversation

        shown = look_at(open_conversation(file, window))
    if as_json:
        print_json(_as_json(shown))
    else:
        print_shown(shown, paper(beside_output=False))


def is_file(name: str) -> bool:
    """Whether a name is that of a file, or of one conversation in it."""
    path, mark, _ = name.rpartition("#")
    return name == "-" or any(os.path.lexists(each) for each in (name, path if mark else ""))


def look_at(conversation: Conversation) -> Shown:
    """Measure a conversation and see what a soft compaction would make of its turns."""
    from context_compactor.cli.gauge import budget_of, measure_conversation
    from context_compactor.messages.turn import split_turns

    turns = split_turns(conversation.messages)
    budget = budget_of(conversation)
    usage = measure_conversation(conversation, turns, budget)
    return Shown(conversation, usage, budget, len(turns), _tiers(conversation, len(turns)))


def print_shown(shown: Shown, out: Out) -> None:
    """The whole page."""
    transcript = shown.conversation.transcript
    title = [transcript.source, transcript.dialect, transcript.model, transcript.session_id]
    out.print(one_line(" · ".join(dict.fromkeys(filter(None, title))), 200), style="bold")
    out.print(f"{len(transcript.messages):,} messages, {shown.turns:,} turns")
    out.print()
    print_sections(shown.usage.sections, shown.usage.budget_tokens, out)
    out.print()
    for name, text in _rows(shown):
        out.print(f"{name:<12}{text}")


def print_sections(sections: Sections, budget_tokens: int, out: Out) -> None:
    """Tokens by section, as bars of one scale."""
    from context_compactor.cli.render import BAR_WIDTH, bar

    weights = {name: tokens for name, tokens in msgspec.structs.asdict(sections).items() if tokens}
    most = max(weights.values(), default=1)
    for name, tokens in weights.items():
        share = f"{100 * tokens / budget_tokens:5.1f} %"
        out.print(f"{name.replace('_', ' '):<14}{tokens:>10,} {share} {bar(tokens / most):<{BAR_WIDTH}}")
    total = 100 * sections.total / budget_tokens
    out.print(f"{'in all':<14}{sections.total:>10,} {total:5.1f} % of {budget_tokens:,}", style="bold")


def _tiers(conversation: Conversation, turns: int) -> dict[str, int]:
    """How many turns fall into each tier; a turn is what most of its tokens become."""
    weights: dict[int, Counter[Tier]] = {}
    decisions = conversation.compacted(level=Level.SOFT).decisions
    if not decisions:
        return {tier.value: turns if tier is Tier.KEEP else 0 for tier in Tier}
    for decision in decisions:
        weights.setdefault(decision.turn, Counter())[decision.tier] += max(1, decision.tokens_before)
    tiers = Counter(weight.most_common(1)[0][0] for weight in weights.values())
    return {tier.value: tiers[tier] for tier in Tier}


def _rows(shown: Shown) -> Iterator[tuple[str, str]]:
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
        yield "", f"{rule.level}: from {starts:,} down to {ends:,} tokens{_away(usage, starts)}"
    yield "counters", f"{usage.tool_results:,} tool results{_hint(usage.tool_results, settings.suggest_tool_results)}"
    yield "", f"{usage.files_loaded:,} files loaded{_hint(usage.files_loaded, settings.suggest_files)}"
    if usage.turns_left is not None:
        yield "forecast", f"room for about {usage.turns_left:,} more turns of {usage.growth:,} tokens"


def _away(usage: Usage, tokens: int) -> str:
    turns = usage.turns_until(tokens)
    return f", in about {turns:,} turns" if turns else ""


def _hint(count: int, threshold: int) -> str:
    return f" (a compaction is suggested from {threshold:,} on)" if 0 < threshold <= count else ""


def _as_json(shown: Shown) -> dict[str, Any]:
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
