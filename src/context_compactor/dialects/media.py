"""What images, documents and sounds tell about themselves without being decoded."""

from __future__ import annotations

import base64
import binascii
import struct

from context_compactor.dialects.messages import Media, MediaKind

HEADS = (8192, 262_144)
"""How much base64 is decoded to find an image's size; a photo's frame header may sit behind a thumbnail."""

JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def inline_media(kind: MediaKind, media_type: str, encoded: str, title: str = "") -> Media:
    """Media whose bytes are here, as base64."""
    width, height = image_size(encoded) if kind == "image" else (0, 0)
    return Media(kind, media_type, _decoded_size(encoded), width, height, title)


def unencoded_media(kind: MediaKind, media_type: str, content: bytes, title: str = "") -> Media:
    """Media whose bytes are here as they are."""
    try:
        width, height = _size(content[: HEADS[-1]]) if kind == "image" else (0, 0)
    except struct.error:
        width, height = 0, 0
    return Media(kind, media_type, len(content), width, height, title)


def linked_media(kind: MediaKind, url: str, media_type: str = "", title: str = "") -> Media:
    """Media behind a URL; a `data:` URL holds its bytes itself."""
    if not url.startswith("data:"):
        return Media(kind, media_type, title=title)
    head, _, encoded = url.partition(",")
    return inline_media(kind, head[5:].partition(";")[0] or media_type, encoded, title)


def image_size(encoded: str) -> tuple[int, int]:
    """Width and height of a base64 PNG, JPEG, GIF or WebP image, or (0, 0)."""
    for length in HEADS:
        size = _size_in(encoded[: min(length, len(encoded) // 4 * 4)])
        if size != (0, 0) or length >= len(encoded):
            return size
    return 0, 0


def _size_in(encoded: str) -> tuple[int, int]:
    try:
        return _size(base64.b64decode(encoded))
    except (binascii.Error, ValueError, struct.error):
        return 0, 0


def _decoded_size(encoded: str) -> int:
    padding = 2 if encoded.endswith("==") else int(encoded.endswith("="))
    return max(len(encoded) * 3 // 4 - padding, 0)


def _size(head: bytes) -> tuple[int, int]:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _pair(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    return 0, 0


def _pair(layout: str, head: bytes, at: int) -> tuple[int, int]:
    width, height = struct.unpack_from(layout, head, at)
    return int(width), int(height)


def _jpeg_size(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(head):
        if head[at] != 0xFF:
            return 0, 0
        marker = head[at + 1]
        if marker in JPEG_FRAMES:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        at += 1 if marker == 0xFF else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return 0, 0


def _webp_size(head: bytes) -> tuple[int, int]:
    chunk = head[12:16]
    if chunk == b"VP8 ":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return 0, 0
