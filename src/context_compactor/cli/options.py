"""The arguments that several commands share, and what they mean."""

from __future__ import annotations

from typing import Annotated

import typer

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
Layout = Annotated[
    str | None, typer.Option(metavar="NAME", help="`tail` (record, then the newest turns) or `record` (one message).")
]
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
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output and nothing else there.")]
