"""What the rules of all providers share: how one is refused, how a request is counted, and thinking that is bound to
everything before it."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

from msgspec import Struct

from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent

Body = dict[str, Any]


class RuleError(Exception):
    """A request that a provider answers with 400: the rule's name, what the provider says, and its code if it has one.

    `status` is another one where the provider does not answer with 400.
    """

    def __init__(self, rule: str, message: str, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.code = code
        self.status = status


class StrictProvider(Protocol):
    """One provider's endpoint: what it refuses, what it answers and what its errors look like."""

    name: str

    def takes(self, path: str) -> bool:
        """Whether requests to this path are for this endpoint."""
        ...

    def check(self, path: str, body: Body) -> int:
        """The tokens of a request that is legal; `RuleError` for one that is not."""
        ...

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        """The body of the answer that says this."""
        ...

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        """The answer as a stream; nothing where the request does not ask for one."""
        ...

    def adopt(self, body: Body) -> None:
        """Take what only the provider could have written, such as reasoning and its signature, as written here."""
        ...

    def error(self, error: RuleError) -> Body:
        """The body of an answer that refuses a request."""
        ...


def count_tokens(*values: Any) -> int:
    """A token for every four characters of the JSON; media count as a thousand."""
    return sum(_characters(value) for value in values if value is not None) // 4 + 1


def _characters(value: Any) -> int:
    if isinstance(value, dict):
        if "inlineData" in value or value.get("type") in ("image", "document", "image_url", "input_image"):
            return 4_000
        return sum(len(key) + 6 + _characters(inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return sum(_characters(inner) + 2 for inner in value)
    return len(value) if isinstance(value, str) else 4


def digest(*values: Any) -> str:
    """The same for equal JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def without(value: Any, *names: str) -> Any:
    """A JSON value without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {key: without(inner, *names) for key, inner in value.items() if key not in names}
    if isinstance(value, list):
        return [without(inner, *names) for inner in value]
    return value


def count_fields(value: Any, name: str) -> int:
    """How many objects in a JSON value have this field."""
    if isinstance(value, dict):
        return (name in value) + sum(count_fields(inner, name) for inner in value.values())
    return sum(count_fields(inner, name) for inner in value) if isinstance(value, list) else 0


def objects_at(place: str, value: Any) -> list[Body]:
    """The value when it is a list of objects."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise RuleError("shape", f"{place}: Input should be a valid list of objects")
    return value


def image_sides(encoded: Any) -> tuple[int, int]:
    """Width and height of a PNG in base64; of another image none, since nobody looks into it here."""
    head = base64.b64decode(encoded[:64]) if isinstance(encoded, str) else b""
    return struct.unpack(">II", head[16:24]) if head.startswith(b"\x89PNG") else (0, 0)


def refuse_undeclared(calls: Iterator[str], declared: Collection[str]) -> None:
    """A call of a tool that the request does not declare."""
    for name in calls:
        if name not in declared:
            raise RuleError("undeclared-tool", f"a call of the tool {name!r}, which is not among the request's tools")


class SaidBlock(Struct, frozen=True):
    """One block of a request in the order of the conversation; of thinking the signature and what was thought."""

    place: str
    role: str
    value: Any
    signature: str | None = None


class _Issued(Struct, frozen=True):
    prefix: str
    thought: str


class BoundThinking:
    """The thinking that a server handed out. Each block is valid while everything before it is as it was then.

    Thinking itself is not part of that, so that it may be left out from the start, from the end or altogether; what is
    kept must be an unbroken run.
    """

    def __init__(self) -> None:
        self._issued: dict[str, _Issued] = {}
        self._prefixes: set[str] = set()

    def issue(self, front: Any, said: Sequence[SaidBlock], thought: Any) -> str:
        """The signature of a new block behind all of this."""
        prefix = digest(front)
        for block in said:
            prefix = _behind(prefix, block)
        signature = f"sig_{len(self._issued) + 1:05d}_{prefix[:16]}"
        self._remember(signature, prefix, thought)
        return signature

    def adopt(self, front: Any, said: Sequence[SaidBlock]) -> None:
        """Take signatures that are not known yet as issued here, each behind what stands before it."""
        prefix = digest(front)
        for block in said:
            if block.signature is not None and block.signature not in self._issued:
                self._remember(block.signature, prefix, block.value)
            prefix = _behind(prefix, block)

    def _remember(self, signature: str, prefix: str, thought: Any) -> None:
        self._issued[signature] = _Issued(prefix, digest(thought))
        self._prefixes.add(prefix)

    def check(self, front: Any, said: Sequence[SaidBlock]) -> None:
        """Refuse thinking that is not from here, was edited, stands behind something else, or has a gap."""
        prefix = digest(front)
        places: list[str] = []
        kept: list[tuple[int, str]] = []
        for block in said:
            if prefix in self._prefixes and prefix not in places:
                places.append(prefix)
            if block.signature is not None:
                issued = self._issued.get(block.signature)
                if issued is None or issued.thought != digest(block.value):
                    raise RuleError("thinking", f"{block.place}: Invalid `signature` in `thinking` block")
                if issued.prefix != prefix:
                    raise _bound_elsewhere(block.place)
                kept.append((places.index(prefix), block.place))
            prefix = _behind(prefix, block)
        for (before, _), (after, place) in pairwise(kept):
            if after > before + 1:
                raise _bound_elsewhere(place)


def _behind(prefix: str, block: SaidBlock) -> str:
    return prefix if block.signature is not None else digest(prefix, block.role, block.value)


def _bound_elsewhere(place: str) -> RuleError:
    return RuleError(
        "thinking",
        f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
        "Remove the block.",
    )
