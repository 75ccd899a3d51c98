"""The small questions about where a message may stand, asked by the rules and by the repairs alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.messages.dialect import Dialect, Raw
from context_compactor.messages.message import Message, Opaque, Text, Thinking
from context_compactor.messages.pairing import Pairing, Place


def first_speaker(messages: Sequence[Message]) -> int:
    """The index of the first message that is neither system nor developer text."""
    for at, message in enumerate(messages):
        if message.role not in ("system", "developer"):
            return at
    return len(messages)


def misplaced_systems(messages: Sequence[Message], dialect: Dialect) -> Iterator[int]:
    """System messages where the provider takes none.

    OpenAI takes them anywhere. For Anthropic one may lead the list (clients move it into the `system` field),
    or follow a user message and be the last or followed by the assistant.
    """
    if dialect.name != "anthropic":
        return
    for at in range(first_speaker(messages), len(messages)):
        if messages[at].role == "system":
            next_role = messages[at + 1].role if at + 1 < len(messages) else "assistant"
            if messages[at - 1].role != "user" or next_role != "assistant":
                yield at


def is_blank(message: Message, dialect: Dialect, is_last: bool) -> bool:
    """Whether a message holds nothing its provider would take as content."""
    if dialect.name == "openai-chat":
        return not message.parts and not isinstance(message.raw.get("content"), str)
    if dialect.name != "anthropic" or (is_last and message.role == "assistant"):
        return False
    return all(isinstance(part, Text) and (not part.text or part.text.isspace()) for part in message.parts)


def has_blank_block(message: Message, dialect: Dialect) -> bool:
    """Whether a message has an empty block or list that its provider rejects."""
    if dialect.name == "openai-chat":
        return bool(message.raw.get("tool_calls") == [])
    return dialect.name == "anthropic" and any(isinstance(part, Text) and not part.text for part in message.parts)


def lone_server_blocks(messages: Sequence[Message], dialect: Dialect) -> Iterator[Place]:
    """Calls of Anthropic's own tools without their result, and the other way round.

    In the last message a call may still be without: the provider goes on with it when asked again.
    """
    if dialect.name != "anthropic":
        return
    open_calls: dict[str, Place] = {}
    for place, block in _server_blocks(messages):
        if "tool_use_id" in block:
            if open_calls.pop(str(block["tool_use_id"]), None) is None:
                yield place
            continue
        if str(block.get("id")) in open_calls:
            yield open_calls[str(block.get("id"))]
        open_calls[str(block.get("id"))] = place
    yield from (place for place in open_calls.values() if place.message != len(messages) - 1)


def _server_blocks(messages: Sequence[Message]) -> Iterator[tuple[Place, Raw]]:
    for at, message in enumerate(messages):
        for number, part in enumerate(message.parts):
            if isinstance(part, Opaque) and part.type.endswith(("_tool_use", "_tool_result")):
                yield Place(at, number), message.raw["content"][number]


def repeated_calls(pairing: Pairing, dialect: Dialect) -> Iterator[Place]:
    """Calls whose id was used before. Chat pairs by position, so there only one message's ids must differ."""
    seen: set[tuple[int, str]] = set()
    for place, call in pairing.calls.items():
        scope = place.message if dialect.name == "openai-chat" else -1
        if (scope, call.id) in seen:
            yield place
        seen.add((scope, call.id))


def dangling_reasoning(messages: Sequence[Message], dialect: Dialect) -> Iterator[int]:
    """Responses reasoning that no item of the same reply follows. At the very end the reply is under way."""
    if dialect.name != "openai-responses":
        return
    follower = "assistant"
    for at in range(len(messages) - 1, -1, -1):
        if not is_reasoning(messages[at]):
            follower = messages[at].role
        elif follower != "assistant":
            yield at


def is_reasoning(message: Message) -> bool:
    """Whether a message is thinking and nothing else."""
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)
