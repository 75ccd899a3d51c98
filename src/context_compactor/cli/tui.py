"""`compactor tui`: sessions on a terminal, to look at and to steer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.options import StoreUrl, store_url
from context_compactor.errors import BadSetting, MissingExtra

if TYPE_CHECKING:
    from context_compactor.tui.chat.chats import Chats
    from context_compactor.tui.sources.base import SessionSource

Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Sessions of a server instead of a store, such as http://127.0.0.1:8377."),
]
Token = Annotated[str | None, typer.Option(metavar="TOKEN", help="The server's token; other users may see it.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="A file whose first line is the server's token.")
]
Which = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Begin with this session; with a model it need not be there yet."),
]
Talker = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Chat with this model: openai/NAME, http://HOST/v1#NAME and so on."),
]
Accepts = Annotated[
    str | None,
    typer.Option("--window", metavar="TOKENS", help="How much the model accepts, for sessions begun here."),
]

_LOOK_SECONDS = 5.0


def tui(
    store: StoreUrl = None,
    server: Server = None,
    token: Token = None,
    token_file: TokenFile = None,
    session: Which = None,
    model: Talker = None,
    window: Accepts = None,
) -> None:
    """Show sessions on the terminal, live: how full they are, their turns by tier, compactions, facts and archive.

    The last line shows the most important keys, ? explains all of them. Without --server it uses the store of this
    folder. With --model you can chat with a model in a session, which is compacted as it grows.

    Example: `compactor tui`, `compactor tui --server http://127.0.0.1:8377 --token-file token.txt`, or
    `compactor tui --session talk --model http://127.0.0.1:11434/v1#llama3.2 --window 32k`
    """
    try:
        from context_compactor.sessions.state import check_id
        from context_compactor.tui.app import CompactorApp
        from context_compactor.tui.runtime import check_terminal, run_app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("textual", "textual_plotext", "plotext", "pygments"):
            raise
        raise MissingExtra("the terminal UI", "tui") from error
    chats = _chats(model, window)
    if session is not None:
        look = _is_there(_source(store, server, token, token_file), check_id(session), chats)
        if not asyncio.run(look):
            chats.expect(session)
    source = _source(store, server, token, token_file)
    check_terminal()
    run_app(CompactorApp(source, session or "", chats=chats))


def _chats(model: str | None, window: str | None) -> Chats:
    """With whom one talks. A name that cannot be one is an error before anything is drawn."""
    from context_compactor.settings import Settings, read_value
    from context_compactor.summarize.clients.names import describe_model
    from context_compactor.tui.chat.chats import Chats
    from context_compactor.tui.chat.models import ModelChoice, full_name

    if model is None:
        if window is not None:
            raise BadSetting("--window needs --model. Try: add --model NAME.")
        return Chats()
    accepts = read_value("window", window, "--window") if window is not None else None
    name = full_name(model.strip()) or model.strip()
    describe_model(name, Settings())
    return Chats(ModelChoice(name, accepts, "--model"))


async def _is_there(source: SessionSource, session_id: str, chats: Chats) -> bool:
    """Whether a session is there; one that is not is an error unless there is a model to begin it with."""
    from context_compactor.errors import CompactorError, ServerError, UnknownSession

    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await source.history(session_id, None, 1)
    except (ServerError, TimeoutError):
        return True  # it may come back, and until then the screen says so
    except CompactorError as error:
        if chats.model is not None:
            return False
        if isinstance(error, UnknownSession):
            raise UnknownSession(f"{error} To create it and chat in it, add --model NAME.") from error
        raise
    finally:
        await source.close()
    return True


def _source(store: str | None, server: str | None, token: str | None, token_file: Path | None) -> SessionSource:
    if server is None:
        if token is not None or token_file is not None:
            raise BadSetting("--token and --token-file need --server. Try: add --server URL.")
        from context_compactor.tui.sources.local import LocalSource

        return LocalSource(store_url(store))
    if store is not None:
        raise BadSetting("--store and --server exclude each other. Try: one of them.")
    if token is not None and token_file is not None:
        raise BadSetting("--token and --token-file exclude each other. Try: one of them.")
    from context_compactor.tui.sources.remote import RemoteSource

    return RemoteSource(server, _read(token_file) if token_file else token)


def _read(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8").split("\n", 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"--token-file: {file} cannot be read: {error}") from error
    if not lines[0].strip():
        raise BadSetting(f"--token-file: the first line of {file} is empty. Try: what `compactor token add` printed.")
    return lines[0].strip()
