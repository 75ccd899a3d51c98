"""`/compact`, `/plan`, `/undo` and `/redo`, with the options behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from context_compactor.errors import BadSetting
from context_compactor.library import parse_level
from context_compactor.settings import Level
from context_compactor.text import parse_target
from context_compactor.tui.commands.command import Choice, Command, quoted, refuse_arguments
from context_compactor.tui.commands.execution import cancellable, report_compaction
from context_compactor.tui.panes.plan import PlanPane
from context_compactor.tui.plan_editor import PlanDraft
from context_compactor.tui.screens.base import app_of

if TYPE_CHECKING:
    from context_compactor.engine.report import Report
    from context_compactor.tui.screens.session import SessionScreen


OPTION_ARGUMENTS = "[focus]"
OPTION_HELP = f"Before the focus: --level {'|'.join(Level)}, --target N (tokens, such as 40k) or P% (of what there is)."
_OPTION = re.compile(r"--(\S*?)(?:=|\s+|$)(\S*)\s*")
_MISPLACED_OPTION = re.compile(r"(?:^|\s)--(level|target)\b")
_NAMES = ("--level", "--target")
_LEVELS = {
    Level.SOFT: "the recent turns stay, older ones get shorter",
    Level.AGGRESSIVE: "more gets shorter",
    Level.EMERGENCY: "as small as it goes",
}


async def parse_draft(screen: SessionScreen, command: str, rest: str) -> PlanDraft:
    """Options, then the focus. `BadSetting` says what is wrong with them."""
    given: dict[str, str] = {}
    while rest.startswith("--") and (found := _OPTION.match(rest)):
        name, value = f"--{found[1]}", found[2]
        if name not in _NAMES:
            raise BadSetting(
                f"/{command}: {quoted(name)} is not an option. Try: {' or '.join(_NAMES)}, then the focus."
            )
        if name in given:
            raise BadSetting(f"/{command}: {name} is given twice. Try: once.")
        if not value:
            example = "--level emergency" if name == "--level" else "--target 40000 or --target 25%"
            raise BadSetting(f"/{command}: {name} needs a value. Try: {example}.")
        given[name] = value
        rest = rest[found.end() :]
    if late := _MISPLACED_OPTION.search(rest):
        raise BadSetting(f"/{command}: --{late[1]} stands behind the focus. Try: /{command} --{late[1]} … {rest[:20]}…")
    level = parse_level(given.get("--level"))
    target = await _target_tokens(screen, given.get("--target"))
    return PlanDraft(level.value if level else None, target, rest.strip() or None)


async def _target_tokens(screen: SessionScreen, target: str | None) -> int | None:
    goal = parse_target(target)
    if goal.percent is None:
        return goal.tokens
    return goal.of((await app_of(screen).source.session(screen.session_id)).line.tokens)


async def option_choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
    """Levels behind `--level`, options where an option is begun."""
    words = rest.split(" ")
    if len(words) > 1 and words[-2] == "--level":
        return [Choice(level.value, meaning) for level, meaning in _LEVELS.items()]
    if len(words) > 1 and words[-2] == "--target":
        return [Choice("25%", "of the tokens there are"), Choice("40k", "tokens")]
    if not words[-1] or words[-1].startswith("-"):
        meanings = {
            "--level": "how far to go, whatever the fill",
            "--target": "tokens to get down to, such as 40k or 25%",
        }
        return [Choice(name, meanings[name]) for name in _NAMES if name not in words]
    return []


async def compact(screen: SessionScreen, rest: str) -> None:
    """Compact now, and say what that has done."""
    draft = await parse_draft(screen, "compact", rest)
    source = app_of(screen).source
    summarizer = (await source.settings(screen.session_id)).get("summarizer")
    async with cancellable(screen, f"Compacting with {summarizer}" if summarizer else "Compacting"):
        report = await source.compact(
            screen.session_id, level=draft.level, target_tokens=draft.target_tokens, focus=draft.focus
        )
    report_compaction(screen, report)
    screen.action_reload()


async def plan(screen: SessionScreen, rest: str) -> None:
    """Show what a compaction would do."""
    draft = await parse_draft(screen, "plan", rest)
    pane = screen.show_pane("plan")
    if isinstance(pane, PlanPane):
        pane.preview(draft.level, draft.target_tokens, draft.focus)
        pane.rows.focus()  # its keys are what one wants next


COMPACT = Command(
    "compact",
    "Make the context smaller now; a focus says what matters.",
    compact,
    OPTION_ARGUMENTS,
    option_choices,
    OPTION_HELP,
)
PLAN = Command(
    "plan",
    "See what that would do, and change it.",
    plan,
    OPTION_ARGUMENTS,
    option_choices,
    OPTION_HELP,
    is_read_only=True,
)


async def undo(screen: SessionScreen, rest: str) -> None:
    """Take the last compaction back."""
    refuse_arguments("undo", rest)
    before = await _current_tokens(screen)
    report = await app_of(screen).source.undo(screen.session_id)
    await _report_undo(screen, report, before, "was taken back", "There is no compaction to take back.")


async def redo(screen: SessionScreen, rest: str) -> None:
    """Take the last undo back."""
    refuse_arguments("redo", rest)
    before = await _current_tokens(screen)
    report = await app_of(screen).source.redo(screen.session_id)
    await _report_undo(screen, report, before, "counts again", "There is no undo to take back.")


async def _report_undo(screen: SessionScreen, report: Report | None, before: int, done: str, nothing: str) -> None:
    if report is None:
        screen.show_message(nothing)
        return
    screen.show_message(
        f"✓ {report.compaction_id} {done}\nTokens: {before:,} → {await _current_tokens(screen):,}", "done"
    )
    screen.action_reload()


async def _current_tokens(screen: SessionScreen) -> int:
    return (await app_of(screen).source.session(screen.session_id)).line.tokens


UNDO = Command("undo", "Take the last compaction back.", undo)
REDO = Command("redo", "Take the last undo back.", redo)
