"""How far a compaction is to go, as it is written behind `/compact` and `/plan`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from context_compactor.app import level_of
from context_compactor.errors import BadSetting
from context_compactor.figures import read_goal
from context_compactor.levels import Level
from context_compactor.tui.commands.command import Choice, quoted
from context_compactor.tui.plan.wish import Wish
from context_compactor.tui.screens.live import app_of

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

ARGUMENTS = "[focus]"
MORE = f"Before the focus: --level {'|'.join(Level)}, --target N (tokens, such as 40k) or P% (of what there is)."
_OPTION = re.compile(r"--(\S*?)(?:=|\s+|$)(\S*)\s*")
_LATER = re.compile(r"(?:^|\s)--(level|target)\b")
_NAMES = ("--level", "--target")
_LEVELS = {
    Level.SOFT: "the recent turns stay, older ones get shorter",
    Level.AGGRESSIVE: "more gets shorter",
    Level.EMERGENCY: "as small as it goes",
}


async def read_wish(screen: SessionScreen, command: str, rest: str) -> Wish:
    """Options, then the focus. `BadSetting` says what is wrong with them."""
    given: dict[str, str] = {}
    while rest.startswith("--") and (found := _OPTION.match(rest)):
        name, value = f"--{found[1]}", found[2]
        if name not in _NAMES:
            raise BadSetting(f"/{command}: {quoted(name)} is no option. Try: {' or '.join(_NAMES)}, then the focus.")
        if name in given:
            raise BadSetting(f"/{command}: {name} is given twice. Try: once.")
        if not value:
            example = "--level emergency" if name == "--level" else "--target 40000 or --target 25%"
            raise BadSetting(f"/{command}: {name} needs a value. Try: {example}.")
        given[name] = value
        rest = rest[found.end() :]
    if late := _LATER.search(rest):
        raise BadSetting(f"/{command}: --{late[1]} stands behind the focus. Try: /{command} --{late[1]} … {rest[:20]}…")
    level = level_of(given.get("--level"))
    target = await _tokens(screen, given.get("--target"))
    return Wish(level.value if level else None, target, rest.strip() or None)


async def _tokens(screen: SessionScreen, target: str | None) -> int | None:
    goal = read_goal(target)
    if goal.percent is None:
        return goal.tokens
    return goal.of((await app_of(screen).source.session(screen.session_id)).line.tokens)


async def choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
    """Levels behind `--level`, options where an option is begun."""
    words = rest.split(" ")
    if len(words) > 1 and words[-2] == "--level":
        return [Choice(level.value, meaning) for level, meaning in _LEVELS.items()]
    if len(words) > 1 and words[-2] == "--target":
        return [Choice("25%", "of the tokens there are"), Choice("40k", "tokens")]
    if not words[-1] or words[-1].startswith("-"):
        told = {"--level": "how far to go, whatever the fill", "--target": "tokens to get down to, such as 40k or 25%"}
        return [Choice(name, told[name]) for name in _NAMES if name not in words]
    return []
