"""The arguments that several commands share, and what they mean."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.levels import Level

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Transcript in any known format (OpenAI chat or Responses, Anthropic; Claude Code, Codex or pi session "
        "logs; JSON or JSON Lines, gzip too). `-` is standard input.",
    ),
]
Window = Annotated[str | None, typer.Option(metavar="N", help="Tokens the model accepts, such as 200000 or 200k.")]
Target = Annotated[
    str | None, typer.Option(metavar="N|P%", help="Bring it down to N tokens, or to P percent of what there is.")
]
LevelName = Annotated[Level | None, typer.Option(help="How far to go, whatever the fill.")]
Focus = Annotated[str | None, typer.Option(metavar="TEXT", help="What matters most from here on.")]
Model = Annotated[str | None, typer.Option(metavar="M", help="Model that writes summaries, such as openai/NAME.")]
IntoSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Keep it as this session in the store: recall, undo, diff and facts work from then on. One that is there "
        "is continued.",
    ),
]
_SESSION = "A session of the store; without, the one used last."
SessionName = Annotated[str | None, typer.Argument(metavar="[SESSION]", help=_SESSION)]
SessionId = Annotated[str | None, typer.Option("--session", metavar="ID", help=_SESSION)]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where sessions rest, such as sqlite:///.compactor/compactor.db or postgresql://user@host/database; "
        "without, as the setting `store` says.",
    ),
]
FileOrSession = Annotated[
    str,
    typer.Argument(
        metavar="FILE|SESSION",
        help="Transcript in any known format; `-` is standard input. Where there is no such file, a session of the "
        "store.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]


class Goal(Struct, frozen=True):
    """What `--target` asks for: a number of tokens, or a share of those there are."""

    tokens: int | None = None
    percent: float | None = None

    def of(self, tokens: int) -> int | None:
        """The goal as tokens, for a conversation of this many."""
        return self.tokens if self.percent is None else max(1, int(tokens * self.percent / 100))


def read_goal(text: str | None) -> Goal:
    """A target as people write it: `20000`, `20k`, `25%`."""
    if text is None:
        return Goal()
    number = text.strip().lower().replace("_", "").replace(",", "")
    try:
        goal = Goal(percent=float(number[:-1])) if number.endswith("%") else Goal(tokens=_tokens(number))
    except (ValueError, OverflowError) as error:
        raise _bad_target(text) from error
    if not (goal.tokens is None or goal.tokens >= 1) or not (goal.percent is None or 0 < goal.percent <= 100):
        raise _bad_target(text)
    return goal


def _tokens(number: str) -> int:
    unit = {"k": 1_000, "m": 1_000_000}.get(number[-1:], 1)
    return int(float(number[:-1]) * unit) if unit > 1 else int(number)


def _bad_target(text: str) -> BadSetting:
    return BadSetting(f"--target: {text!r} is neither a number of tokens of at least 1 nor a percentage up to 100%")
