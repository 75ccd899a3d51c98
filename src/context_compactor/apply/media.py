"""Images and documents that leave the context: each is replaced by a line that says what it was."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.classify.pins import last_words
from context_compactor.classify.steer import Steers
from context_compactor.classify.tier import Tier
from context_compactor.measure.count import message_bytes
from context_compactor.messages.message import Media, ToolResult
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.zones import Zone


def media_line(media: Media, ref: str) -> str:
    """The line that stands for a picture or document."""
    size = f", {media.width}x{media.height}" if media.width and media.height else ""
    title = f" {media.title!r}" if media.title else ""
    what = f"{media.kind}{title} ({media.media_type or 'unknown type'}{size}, {media.byte_size:,} bytes)"
    return f'[archived {ref}: {what}. recall("{ref}")]'


def turns_without_media(
    turns: Sequence[Turn], zones: dict[int, Zone], most_bytes: int, steers: Steers
) -> frozenset[int]:
    """The turns that give up their media: all that are shortened, then the oldest until the request is small enough.

    What nobody has answered yet keeps them, and so does what the user wants to keep.
    """
    with_media = [turn for turn in turns if has_media(turn) and not turn.is_instruction]
    cleared = {turn.number for turn in with_media if zones[turn.number] is Zone.PLACED}
    kept = [turn for turn in turns if zones[turn.number] is not Zone.FOLDED and turn.number not in cleared]
    size = sum(message_bytes(message) for turn in kept for message in turn.messages)
    pinned = {*last_words(turns), *(number for number, tier in steers.items() if tier is Tier.KEEP)}
    for turn in with_media:
        if size <= most_bytes:
            break
        if zones[turn.number] is Zone.VERBATIM and turn.number not in pinned:
            cleared.add(turn.number)
            size -= sum(map(message_bytes, turn.messages))
    return frozenset(cleared)


def has_media(turn: Turn) -> bool:
    """Whether a turn shows a picture or document."""
    return any(
        isinstance(part, Media) or (isinstance(part, ToolResult) and part.media)
        for message in turn.messages
        for part in message.parts
    )


def media_edits(turn: Turn) -> dict[tuple[int, int], dict[int, str | None]]:
    """The edits that replace every picture and document of a turn, by turn and message, then by part."""
    ref = reference_id("turn", turn.number)
    edits: dict[tuple[int, int], dict[int, str | None]] = {}
    for at, index, _, part in turn.parts():
        if isinstance(part, Media):
            edits.setdefault((turn.number, at), {})[index] = media_line(part, ref)
        elif isinstance(part, ToolResult) and part.media:
            lines = [part.text, *(media_line(media, ref) for media in part.media)]
            edits.setdefault((turn.number, at), {})[index] = "\n".join(filter(None, lines))
    return edits
