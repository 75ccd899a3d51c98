"""A conversation that is kept elsewhere, such as a file, becomes a session or continues one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from context_compactor.dialects.transcripts.transcript import as_blocks
from context_compactor.errors import OtherConversation, StaleBase
from context_compactor.json_values import json_bytes, read_json
from context_compactor.sessions.append import append
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import GROWN, REVISION, Raw, Revision, logged_bodies
from context_compactor.sessions.state import read_session_state

# So many messages are written at once: whoever is killed in the middle of a long log has not done nothing.
_AT_ONCE = 1_000


def append_new(core: Core, messages: Sequence[Raw], times: Mapping[int, str] | None = None) -> int:
    """Append the messages that the session does not have yet; how many. Nobody else appends in between.

    `OtherConversation` when those it has are not exactly the first ones of these. `times` say by the index of a message
    when it was written.
    """
    with core.writing():
        stored = [*_stored(core).values()]
        given = core.without_secrets(list(messages))
        _refuse_other(core.id, stored, given)
        new = messages[len(stored) :]
        if new:
            append(core, new, None, times=_times(times, len(stored), len(new)))
    return len(new)


def append_transcript(core: Core, messages: Sequence[Raw], times: Mapping[int, str] | None = None) -> int:
    """The same from a log that may still be written: messages may have grown, and outputs stay as long as they are.

    A log that ends before the session does, such as an older copy, adds nothing.
    """
    with core.writing() as row:
        stored = _stored(core)
        for position, raw in _grown(core, stored, messages):
            _grow(core, position, read_json(stored[position]), raw)
        _append(core, messages[len(stored) : len(stored) + _AT_ONCE], times, len(stored))
    for start in range(len(stored) + _AT_ONCE, len(messages), _AT_ONCE):
        with core.writing() as now:
            if now.messages != start:
                raise StaleBase(f"another process has appended to session {core.id!r} meanwhile")
            _append(core, messages[start : start + _AT_ONCE], times, start)
    return max(len(messages) - row.messages, 0)


def _append(core: Core, new: Sequence[Raw], times: Mapping[int, str] | None, first: int) -> None:
    if new:
        append(core, new, None, shorten=False, times=_times(times, first, len(new)))


def _times(times: Mapping[int, str] | None, first: int, count: int) -> list[str]:
    return [times.get(at, "") for at in range(first, first + count)] if times else []


def _stored(core: Core) -> dict[int, bytes]:
    return logged_bodies(core.store, core.id, core.context_reader.log_state())


def _grown(core: Core, stored: dict[int, bytes], given: Sequence[Raw]) -> Iterator[tuple[int, Raw]]:
    """The messages of which there is more now; `OtherConversation` when one is another."""
    for at, ((position, body), raw) in enumerate(zip(stored.items(), given, strict=False)):
        if _is_same(body, raw):
            continue
        before = read_json(body)
        kept = core.without_secrets(raw)
        if before == kept:
            continue
        if _holds(kept, before):
            yield position, raw
        elif not (_holds(before, kept) or _differs_by_secrets(before, raw)):
            raise OtherConversation(f"message {at} of the log differs from message {at} of {core.id!r}", at)


def _holds(whole: Raw, part: Raw) -> bool:
    """Whether all of a message stands in another one, in the same order."""
    if {**whole, "content": None} != {**part, "content": None} or "content" not in part:
        return False
    blocks = iter(as_blocks(whole.get("content")))
    return all(any(block == other for other in blocks) for block in as_blocks(part["content"]))


def _differs_by_secrets(before: Raw, raw: Raw) -> bool:
    """Whether two messages are one, stored while secrets were replaced in another way than now, or not at all."""
    from context_compactor.archive.redaction import redact

    return bool(redact(before).value == redact(raw).value)


def _grow(core: Core, position: int, before: Raw, raw: Raw) -> None:
    """Let the history have a message whole."""
    kept = core.without_secrets(raw)
    (name,) = core.store.put([json_bytes(kept)])
    revision = Revision(why=GROWN, hash=name, position=position)
    core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
    dialect = core.dialect()
    old, new = dialect.parse([before])[0], dialect.parse([kept])[0]
    counter = core.counter(dialect)
    tokens = counter.count(new) - counter.count(old)
    state = read_session_state(core.row().state)
    calls = state.tool_calls + len(new.calls) - len(old.calls)
    core.save(structs.replace(state, tool_calls=calls, appended_tokens=state.appended_tokens + max(tokens, 0)))


def _refuse_other(session_id: str, stored: Sequence[bytes], given: Sequence[Any]) -> None:
    pairs = enumerate(zip(stored, given, strict=False))
    at = next((at for at, (body, raw) in pairs if not _is_same(body, raw)), min(len(stored), len(given)))
    if at == len(stored):
        return
    if at == len(given):
        problem = f"the session has {len(stored):,} messages and the file only the first {len(given):,} of them"
    else:
        problem = f"message {at} of the file is another one than message {at} of the session (counted from 0)"
    raise OtherConversation(
        f"session {session_id!r} holds a different conversation: {problem}. Try: another --session.", at
    )


def _is_same(body: bytes, raw: Raw) -> bool:
    """Whether a stored message is this one, whatever order its fields are in."""
    return body == json_bytes(raw) or bool(read_json(body) == raw)
