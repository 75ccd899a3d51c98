"""What the integrations share: a session for each conversation of an agent, and errors that say what to install."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from threading import Lock
from typing import Any, TypeVar

from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.protocols import Store
from context_compactor.sessions.session import Session
from context_compactor.sessions.sync import SyncedMessages
from context_compactor.sessions.tool_schemas import schema_of
from context_compactor.sessions.tools import TOOLS
from context_compactor.settings import load_settings
from context_compactor.store.connect import connect

T = TypeVar("T")

# As many sessions stay open; one that is closed is opened again when needed. They share one store, so that whoever is
# still using one that was closed here can go on.
_MOST_OPEN = 200


@contextmanager
def importing(extra: str, needs: str) -> Iterator[None]:
    """A block that imports a framework: `MissingExtra` when it is not installed, `BadSetting` when it is too old."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(f"context_compactor.integrations for {needs}", extra) from error
    except ImportError as error:
        raise BadSetting(f"{needs} is needed, and what is installed is too old: {error}. Try: update it.") from error


def own_messages(given: Sequence[T], sent: SyncedMessages, build: Callable[[dict[str, Any]], T]) -> list[T]:
    """The framework's own messages wherever they are sent as they were given; the others are built."""
    return [build(raw) if at is None else given[at] for raw, at in zip(sent, sent.sources, strict=True)]


def archive_tools() -> list[dict[str, Any]]:
    """Name, description and parameters of `recall`, `search_archive` and `facts`, which `Session.call` answers."""
    tools = [tool for tool, _ in TOOLS.values()]
    return [
        {"name": tool.name, "description": tool.description, "parameters": schema_of(tool.arguments)} for tool in tools
    ]


class Conversations:
    """The sessions of one agent by its conversations, opened when they are first needed.

    `session` is for an agent that has one conversation: an open session, or its id. Otherwise each conversation has a
    session under its own id. `options` are those of `Session.open`, such as `window`, `model` and `store`. Nothing is
    written but the store.
    """

    def __init__(self, session: Session | str | None = None, **options: Any) -> None:
        if session is not None and not isinstance(session, (Session, str)):
            raise BadSetting(f"session: expected a Session or its id, got {type(session).__name__}")
        if unknown := options.keys() - signature(Session.open).parameters.keys():
            raise BadSetting(f"{min(unknown)}: not an option of Session.open. Try: window, model, store or settings.")
        self._given = session
        self._options = {"profile": "embedded", **options}
        self._address: str | Store | None = self._options.pop("store", None)
        self._store: Store | None = None
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._lock = Lock()

    def session(self, conversation: object = None) -> Session:
        """The session of a conversation, by the id that the framework has for it."""
        if isinstance(self._given, Session):
            return self._given
        name = self._given or str(conversation or "default")
        with self._lock:
            if name not in self._open:
                self._open[name] = Session.open(name, **self._options, store=self._shared_store())
            self._open.move_to_end(name)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            return self._open[name]

    def _shared_store(self) -> Store:
        if self._store is None:
            settings = self._options.get("settings") or load_settings().settings
            address = settings.store if self._address is None else self._address
            self._store = connect(address) if isinstance(address, str) else address
        return self._store

    def close(self) -> None:
        """Close the sessions that were opened here; the next request of a conversation opens it again."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()
            if self._store is not None and self._store is not self._address:
                self._store.close()
            self._store = None
