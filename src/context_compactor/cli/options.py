"""The arguments that several commands share, and how the file, the session or the store they name is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.output import stderr
from context_compactor.errors import BadSetting, BadTranscript, UnknownSession
from context_compactor.settings import Level

if TYPE_CHECKING:
    from context_compactor.sessions.session import Session
    from context_compactor.store.rows import SessionRow
    from context_compactor.store.sql_store import SqlStore


File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Transcript in any known format (OpenAI chat or Responses, Anthropic, Gemini, Bedrock; Claude Code, Codex "
        "or pi session logs; JSON or JSON Lines, gzip too). `-` is standard input.",
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
DialectName = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="Dialect of the messages in FILE, such as openai-chat or anthropic; by default they are looked at.",
    ),
]
Focus = Annotated[str | None, typer.Option(metavar="TEXT", help="What matters most from here on.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="M", help="Model that runs the agent, for its window and prices; without, what FILE says."),
]
Summarizer = Annotated[str | None, typer.Option(metavar="M", help="Model that writes summaries, such as openai/NAME.")]
Tools = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="FILE",
        help="JSON file with the tool definitions that are sent with every request, to count them; without, those of "
        "a request body in FILE.",
    ),
]
System = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="FILE",
        help="File with the system prompt that is sent beside the messages, to count it: a text, or blocks in a .json "
        "file; without, that of a request body in FILE.",
    ),
]
IntoSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Keep it as this session in the store: recall, undo, diff and facts work from then on. An existing "
        "session is continued.",
    ),
]
_SESSION = "A session of the store; by default the one used last."
SessionName = Annotated[str | None, typer.Argument(metavar="[SESSION]", help=_SESSION)]
SessionId = Annotated[str | None, typer.Option("--session", metavar="ID", help=_SESSION)]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Store of the sessions, such as sqlite:///.compactor/compactor.db or postgresql://user@host/database; "
        "by default the setting `store`.",
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


_MOST_NAMED = 3


def store_url(store: str | None) -> str:
    """The address of the store: what was given, else the setting."""
    from context_compactor.settings import load_settings

    return load_settings({"store": store}).settings.store


@contextmanager
def open_store(store: str | None) -> Iterator[SqlStore]:
    """The store, which must be there."""
    from context_compactor.store.connect import connect

    with closing(connect(store_url(store), create=False)) as opened:
        yield opened


@contextmanager
def open_session(session_id: str | None, store: str | None) -> Iterator[Session]:
    """The session of this id, or the one used last; it must be there."""
    found = find_session(session_id, store)
    from context_compactor.sessions.session import Session

    with Session.open(found.id, store=store_url(store), branch=found.id) as session:
        yield session


def find_session(session_id: str | None, store: str | None) -> SessionRow:
    """The session of this id as the store knows it, or the one used last, which is then named on standard error."""
    with open_store(store) as opened:
        if session_id is not None:
            return opened.session(session_id)
        rows, path = sorted(opened.sessions(), key=lambda row: row.updated_at, reverse=True), opened.path
    if not rows:
        raise UnknownSession(f"there is no session in {path} yet. Try: `compactor compact FILE --session ID`.")
    newest = [row.id for row in rows if row.updated_at == rows[0].updated_at]
    if len(newest) > 1:
        names = ", ".join(map(repr, newest[:_MOST_NAMED])) + (", …" if len(newest) > _MOST_NAMED else "")
        raise UnknownSession(
            f"{path} has several sessions with the same last use: {names}. Try: --session {newest[0]!r}."
        )
    which = f"the one used last of {len(rows):,}; --session chooses" if len(rows) > 1 else "the only one"
    stderr().print(f"session {rows[0].id!r}: {which}", style="dim")
    return rows[0]


def is_file(name: str) -> bool:
    """Whether a name is that of a file, or of one conversation in it."""
    path, mark, _ = name.rpartition("#")
    return name == "-" or any(os.path.lexists(each) for each in (name, path if mark else ""))


def refuse_dialect(name: str, dialect: str | None) -> None:
    """A stored session has its dialect."""
    if dialect is not None:
        raise BadSetting(
            f"--dialect: there is no file {name!r:.80}, and a stored session already has its dialect. "
            "Try: leave it out, or give the path of a file."
        )


def find_named(name: str, store: str | None) -> SessionRow:
    """The session, or an error that says that there is neither a file nor a session of this name."""
    try:
        with open_store(store) as opened:
            return opened.session(name)
    except UnknownSession as error:
        raise UnknownSession(f"there is no file {name!r:.80}, and {error}") from None
    except BadSetting as error:
        if store is not None:
            raise
        raise BadTranscript(f"{name}: there is no such file, and {error}") from None
