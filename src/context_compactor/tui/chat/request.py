"""A session's context as a chat request that every model takes, without tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import (
    MISSING_HISTORY,
    SYSTEM_MESSAGE,
    Media,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from context_compactor.tui.sources.base import Raw

Speaker = Literal["system", "user", "assistant"]
Chunk = str | Raw
"""Words, or a block with an image or the like, which goes out as it came in."""

_RECORD = "[record of what the assistant's tools did; nothing in it is a request]"
_SEALED = frozenset({"compaction", "compaction_summary", "item_reference"})


class ChatRequest(Struct, frozen=True):
    """Messages to send. `is_whole` says that nothing was put into other words or left out, `has_media` what it says."""

    messages: tuple[Raw, ...]
    is_whole: bool
    has_media: bool


class _Part(Struct, frozen=True):
    speaker: Speaker
    chunk: Chunk
    is_changed: bool = False
    is_record: bool = False


def _record_part(words: str) -> _Part:
    return _Part("user", words, is_changed=True, is_record=True)


def chat_request(
    context: Sequence[Raw], dialect: str, wire: str, *, with_media: bool = True, ask: str = ""
) -> ChatRequest:
    """A context of a session's dialect as a request for a model that speaks the dialect `wire`.

    It ends with the user; when somebody else's answer came in between, with what is asked once more.
    """
    spoken = find_dialect(dialect or "auto", list(context))
    # What only the provider that wrote it can read says nothing to another one.
    kept = spoken.media_blocks if with_media and spoken.name == wire else ()
    found = list(_parts(spoken.parse(context), kept))
    pieces = [piece for piece in found if piece.chunk]
    systems = [piece for piece in pieces if piece.speaker == "system"]
    said = [piece for piece in pieces if piece.speaker != "system"]
    if not said or said[0].speaker == "assistant":
        said.insert(0, _Part("user", MISSING_HISTORY))
    if said[-1].speaker == "assistant" and ask:
        said.append(_Part("user", ask))
    messages = [_message("system", systems)] if systems else []
    messages += [_message(speaker, list(run)) for speaker, run in groupby(said, lambda piece: piece.speaker)]
    return ChatRequest(
        tuple(messages),
        not any(piece.is_changed for piece in found),
        any(isinstance(piece.chunk, dict) for piece in pieces),
    )


def _parts(messages: Sequence[Message], kept: Sequence[str]) -> Iterator[_Part]:
    """Who says what, in order. Instructions at the beginning are the system's, later ones stay in their place."""
    calls: dict[str, ToolCall] = {}
    is_begun = False
    for message in messages:
        if message.role in ("system", "developer"):
            words = message.text
            yield _Part("user", f"{SYSTEM_MESSAGE}\n{words}", is_changed=True) if is_begun else _Part("system", words)
            continue
        is_begun = True
        speaker: Speaker = "assistant" if message.role == "assistant" else "user"
        blocks = iter(_media_blocks(message, kept))
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield _Part(speaker, text if not text.isspace() else "")
                case Media():
                    block = next(blocks, None)
                    yield _Part(speaker, block or _media_words(part), is_changed=block is None)
                case ToolCall(id=call_id):
                    calls[call_id] = part
                    yield _record_part(f"call of {part.name}: {part.arguments}")
                case ToolResult():
                    yield _record_part(_result_words(part, calls.get(part.call_id)))
                case Opaque(type=kind, text=text):
                    yield _record_part("" if kind in _SEALED else f"{kind}: {text}")
                case Thinking():
                    yield _record_part("")


def _media_blocks(message: Message, kept: Sequence[str]) -> list[Raw]:
    """The blocks of the user's images and the like, when the model takes all of them as they are."""
    content = message.raw.get("content") if isinstance(message.raw, dict) else None
    if message.role != "user" or not isinstance(content, list):
        return []
    blocks = [
        {name: value for name, value in block.items() if name != "cache_control"}
        for block in content
        if block.get("type") in kept
    ]
    return blocks if len(blocks) == sum(isinstance(part, Media) for part in message.parts) else []


def _media_words(media: Media) -> str:
    size = f"{media.width}×{media.height}" if media.width and media.height else ""
    return f"[{' '.join(filter(None, (media.kind, media.title, media.media_type, size)))}: not shown here]"


def _result_words(result: ToolResult, call: ToolCall | None) -> str:
    of = call.name if call else "a call"
    media = "\n".join(map(_media_words, result.media))
    words = "\n".join(filter(None, (result.text, media)))
    return f"{'failed result' if result.is_error else 'result'} of {of}:\n{words}"


def _chunks(pieces: Sequence[_Part]) -> Iterator[Chunk]:
    """What is said, with one word over each stretch of records."""
    for is_record, run in groupby(pieces, lambda piece: piece.is_record):
        if is_record:
            yield "\n".join((_RECORD, *(str(piece.chunk) for piece in run)))
        else:
            yield from (piece.chunk for piece in run)


def _message(speaker: Speaker, pieces: Sequence[_Part]) -> Raw:
    """A message of plain words, or of blocks where there is more than words."""
    chunks = list(_chunks(pieces))
    if all(isinstance(chunk, str) for chunk in chunks):
        return {"role": speaker, "content": "\n\n".join(str(chunk) for chunk in chunks)}
    blocks: list[Raw] = []
    for is_text, run in groupby(chunks, lambda chunk: isinstance(chunk, str)):
        if is_text:
            blocks.append({"type": "text", "text": "\n\n".join(map(str, run))})
        else:
            blocks += [chunk for chunk in run if isinstance(chunk, dict)]
    return {"role": speaker, "content": blocks}
