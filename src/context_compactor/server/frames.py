"""Events as they leave the server: with the session's own name, and nothing of where the server keeps its store."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import structs

from context_compactor.events.event import Event
from context_compactor.server.scope import Scope

RETRY_MILLISECONDS = 1_000
OPENING = f"retry: {RETRY_MILLISECONDS}\n: hello\n\n".encode()
ALIVE = b": alive\n\n"
# Of what events tell, the only text of ours that may name a session or the store.
_REASON = "reason"


def outside(event: Event, scope: Scope, store_path: str) -> bytes:
    """An event as JSON for those who know its session by the name it has in their namespace."""
    payload = event.payload
    reason = payload.get(_REASON)
    if isinstance(reason, str):
        told = scope.told(_without_place(reason, store_path), event.session_id)
        payload = {**payload, _REASON: told}
    shown = structs.replace(event, session_id=scope.outside(event.session_id), payload=payload)
    return msgspec.json.encode(shown)


def _without_place(text: str, store_path: str) -> str:
    """A name such as `job` could be any word; only what leads to a place from anywhere is left out."""
    is_place = Path(store_path).is_absolute() or "://" in store_path
    return text.replace(store_path, "the store") if is_place else text


def frame_of(event: Event, scope: Scope, store_path: str) -> bytes:
    """An event as it stands in a stream."""
    told = outside(event, scope, store_path)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event.id.encode(), event.type.encode(), told)


def place_frame(event_id: str) -> bytes:
    """Tells a new reader behind which event it stands, so that a break before the first one loses nothing."""
    return b"id: %s\n\n" % event_id.encode()


def gap_frame(last_id: str) -> bytes:
    """Tells a reader that it may have missed something."""
    reason = f"the event {last_id[:80]!r} is no longer kept: some that came behind it may be missing here"
    return b"event: gap\ndata: %s\n\n" % msgspec.json.encode({"reason": reason, "last_event_id": last_id[:80]})


def end_frame(reason: str) -> bytes:
    """Tells a reader why nothing more is coming."""
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({"reason": reason})
