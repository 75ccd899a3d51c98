"""A conversation that is kept elsewhere, such as a file, becomes a session or continues one."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.errors import OtherConversation
from context_compactor.messages.jsontext import json_bytes, read_json
from context_compactor.session.append import append
from context_compactor.session.core import Core
from context_compactor.session.lens import Raw
from context_compactor.store.rows import MESSAGE


def feed(core: Core, messages: Sequence[Raw], *, shorten: bool = True) -> int:
    """Append the messages that the session does not have yet; how many. Nobody else appends in between.

    Without `shorten` outputs stay whole, however long. `OtherConversation` when those it has are not the first ones of
    these.
    """
    given = core.without_secrets(list(messages))
    with core.writing():
        stored = core.store.entries(core.id, kinds=(MESSAGE,))
        _refuse_other(core.id, [entry.body for entry in stored], given)
        new = messages[len(stored) :]
        if new:
            append(core, new, None, shorten=shorten)
    return len(new)


def _refuse_other(session_id: str, stored: Sequence[bytes], given: Sequence[Raw]) -> None:
    pairs = enumerate(zip(stored, given, strict=False))
    at = next((at for at, (body, raw) in pairs if not _is_same(body, raw)), min(len(stored), len(given)))
    if at == len(stored):
        return
    if at == len(given):
        problem = f"the session has {len(stored):,} messages and the file only the first {len(given):,} of them"
    else:
        problem = f"message {at} of the file is another one than message {at} of the session (counted from 0)"
    raise OtherConversation(f"session {session_id!r} is another conversation: {problem}. Try: another --session.")


def _is_same(body: bytes, raw: Raw) -> bool:
    """Whether a stored message is this one, whatever order its fields are in."""
    return body == json_bytes(raw) or bool(read_json(body) == raw)
