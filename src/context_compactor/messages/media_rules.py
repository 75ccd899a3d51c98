"""Anthropic's limits for images, which bite only once a conversation holds many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from context_compactor.messages.message import Media, Message, ToolResult

MANY_IMAGES = 20
MAX_IMAGES = 100
MAX_SIDE = 8000
MAX_SIDE_OF_MANY = 2000
MAX_ENCODED_BYTES = 5 * 1024 * 1024
"""The provider weighs the base64 text, not the picture."""


def find_media_problems(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """The messages whose images the provider would reject, and why."""
    images = [(at, image) for at, message in enumerate(messages) for image in _images(message)]
    side = MAX_SIDE_OF_MANY if len(images) > MANY_IMAGES else MAX_SIDE
    for number, (at, image) in enumerate(images, start=1):
        if number > MAX_IMAGES:
            yield at, f"image {number} of at most {MAX_IMAGES}"
        if max(image.width, image.height) > side:
            many = f" among {len(images)} images" if side == MAX_SIDE_OF_MANY else ""
            yield at, f"an image of {image.width}x{image.height} pixels{many}; at most {side} per side"
        if (image.byte_size + 2) // 3 * 4 > MAX_ENCODED_BYTES:
            yield at, f"an image of {image.byte_size:,} bytes; at most {MAX_ENCODED_BYTES:,} in base64"


def _images(message: Message) -> Iterator[Media]:
    for part in message.parts:
        held = part.media if isinstance(part, ToolResult) else (part,)
        for media in held:
            if isinstance(media, Media) and media.kind == "image":
                yield media
