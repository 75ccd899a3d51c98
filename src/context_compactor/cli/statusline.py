"""`compactor statusline`: how full Claude Code's window is, in one line."""

from __future__ import annotations

import typer

from context_compactor.hooks.statusline import main


def statusline() -> None:
    """Print one line for Claude Code: gauge, level, tokens, forecast, last compaction.

    Claude Code runs it after every answer, with JSON on standard input, and shows the line under the prompt. The
    percentage is that of the window; levels begin at their share of the budget, which is the window less the room for
    the answer. A narrow terminal (COLUMNS) loses the last compaction first, then the tokens; NO_COLOR is respected.

    `compactor install claude-code` registers it. By hand, in `.claude/settings.json`:
    `{"statusLine": {"type": "command", "command": "compactor statusline"}}`

    Example: `compactor statusline < input.json`
    """
    raise typer.Exit(main())
