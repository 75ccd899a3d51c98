"""Recognizes a history that is given again: what each message says as a digest, and all up to it as a chain of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import structs

from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Media, Message, Opaque, Part, ToolCall, ToolResult
from context_compactor.errors import BadMessage
from context_compactor.json_values import copy_containers, json_text, read_json
from context_compactor.sessions.core import Core
from context_compactor.sessions.log import Raw, logged_bodies
from context_compactor.store.rows import LineageEntry

_SIZE = 16
_UNSAID = frozenset({"cache_control", "cachePoint"})


def message_digest(message: Message) -> bytes:
    """The digest of what a message says. A text and one block with it are the same, and marks for a cache are nothing.

    What only its provider can read is compared as it is.
    """
    has_more = any(isinstance(part, (Media, Opaque)) or getattr(part, "media", ()) for part in message.parts)
    said = _without_marks(message.raw) if has_more else [_said(part) for part in message.parts]
    name = message.raw.get("name") if message.role in ("user", "assistant") and isinstance(message.raw, dict) else None
    return blake2b(json_text([message.role, said, *([name] if name else [])]).encode(), digest_size=_SIZE).digest()


def _said(part: Part) -> Any:
    if isinstance(part, ToolCall):
        return ["call", part.id, part.name, _arguments(part.arguments)]
    if isinstance(part, ToolResult):
        return ["result", part.call_id, part.text, part.is_error]
    return [type(part).__name__, part.text] if not isinstance(part, Media) else structs.asdict(part)


def _arguments(text: str) -> str:
    """The arguments of a call, however they were written."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(value[key]) for key in sorted(value) if key not in _UNSAID}
    return [_without_marks(inner) for inner in value] if isinstance(value, list) else value


def next_link(link: bytes, digest: bytes) -> bytes:
    """The link behind another one."""
    return blake2b(link + digest, digest_size=_SIZE).digest()


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many values two lists begin with in common; slices are compared, which is many times faster than a loop."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class GivenHistory:
    """The history that was given last, with its digests and links. Of the next one only what differs is read."""

    def __init__(self) -> None:
        self.raws: list[Raw] = []
        self.digests: list[bytes] = []
        self.links: list[bytes] = []

    def read(self, raws: Sequence[Raw], digest_of: Callable[[int, Raw], bytes]) -> None:
        """Take a history in the place of the last one."""
        known, same = len(self.raws), common_length(raws, self.raws)
        digests = self.digests[:same]
        for at in range(same, len(raws)):
            is_known = at < known and raws[at] == self.raws[at]
            digests.append(self.digests[at] if is_known else digest_of(at, raws[at]))
        links = self.links[:same]
        for digest in digests[same:]:
            links.append(next_link(links[-1] if links else b"", digest))
        # A caller may change a message in its place: what is remembered is a copy.
        self.raws = [*self.raws[:same], *(copy_containers(raw) for raw in raws[same:])]
        self.digests, self.links = digests, links


def digest_reader(core: Core, dialect: Dialect, indexes: Sequence[int]) -> Callable[[int, Raw], bytes]:
    """What digests the messages of a history; `indexes` say which of the caller's messages each is, for errors."""

    def read(at: int, raw: Raw) -> bytes:
        try:
            return message_digest(dialect.parse([core.without_secrets(raw)])[0])
        except BadMessage as error:
            raise BadMessage(indexes[at], error.field, error.problem) from None

    return read


def complete_lineage(core: Core) -> tuple[LineageEntry, LineageEntry] | None:
    """Note the lineage of messages that were appended without; the entries of the first and the last message.

    Instructions that the log begins with are not part of it. None when there is nothing else yet.
    """
    messages, ends = core.row().messages, core.store.lineage_ends(core.id)
    if messages == (ends[1].number if ends else 0):
        return ends
    with core.writing():
        ends = core.store.lineage_ends(core.id)
        number, link = (ends[1].number, ends[1].link) if ends else (0, b"")
        after = core.store.message_position(core.id, number) if number else 0
        bodies = logged_bodies(core.store, core.id, core.context_reader.log_state(), after=after or 0)
        raws = [read_json(bodies[position]) for position in sorted(bodies)]
        entries: list[LineageEntry] = []
        for message in core.dialect(raws).parse(raws) if raws else ():
            number += 1
            if ends is None and not entries and message.role in ("system", "developer"):
                continue
            digest = message_digest(message)
            link = next_link(link, digest)
            entries.append(LineageEntry(number, digest, link))
        core.store.add_lineage(core.id, entries)
    return core.store.lineage_ends(core.id)
