"""What images, documents and sounds weigh in tokens, by each provider's published rule."""

from __future__ import annotations

from math import ceil

from context_compactor.messages.message import Media

# A size nobody told us is taken as a full screenshot: too high is safe, too low overflows.
_UNKNOWN_IMAGE = {
    "anthropic": 1_600,
    "anthropic-large": 2_800,
    "openai": 1_105,
    "openai-patches": 2_500,
    "gemini": 1_120,
}

# Longest edge in pixels and most tokens of one image, before which it is scaled down.
_ANTHROPIC_LIMITS = {"anthropic": (1_568, 1_600), "anthropic-large": (2_576, 4_784)}
_ANTHROPIC_PIXELS_PER_TOKEN = 750

_OPENAI_FIT, _OPENAI_SHORT_EDGE, _OPENAI_TILE = 2_048, 768, 512
_OPENAI_BASE, _OPENAI_PER_TILE = 85, 170
_OPENAI_PATCH, _OPENAI_PER_PATCH, _OPENAI_MOST_PATCHES = 32, 1.2, 10_000

# A page of a document is read as text and as a picture: 1,500 to 3,000 tokens in some 50 KB of PDF.
_BYTES_PER_DOCUMENT_TOKEN = 20
_BYTES_PER_AUDIO_TOKEN = 400
_SMALLEST_DOCUMENT = 500


def media_tokens(media: Media, rule: str, detail: str = "auto") -> int:
    """The tokens one picture, document or sound costs; `rule` names a provider's way to count images."""
    if media.kind == "image":
        return image_tokens(media.width, media.height, rule, detail)
    per_token = _BYTES_PER_AUDIO_TOKEN if media.kind == "audio" else _BYTES_PER_DOCUMENT_TOKEN
    return max(_SMALLEST_DOCUMENT, media.byte_size // per_token)


def image_tokens(width: int, height: int, rule: str, detail: str = "auto") -> int:
    """The tokens of an image of this size; a size that is not known counts as a large one."""
    if detail == "low" and rule.startswith("openai"):
        return _OPENAI_BASE
    if width <= 0 or height <= 0 or rule == "gemini":
        return _UNKNOWN_IMAGE[rule]
    if rule in _ANTHROPIC_LIMITS:
        return _anthropic_image(width, height, *_ANTHROPIC_LIMITS[rule])
    return _openai_patches(width, height) if rule == "openai-patches" else _openai_tiles(width, height)


def _anthropic_image(width: int, height: int, long_edge: int, most: int) -> int:
    shrink = min(1.0, long_edge / max(width, height))
    pixels = width * shrink * height * shrink
    return max(1, min(most, ceil(pixels / _ANTHROPIC_PIXELS_PER_TOKEN)))


def _openai_tiles(width: int, height: int) -> int:
    shrink = min(1.0, _OPENAI_FIT / max(width, height))
    shrink *= min(1.0, _OPENAI_SHORT_EDGE / (min(width, height) * shrink))
    tiles = ceil(width * shrink / _OPENAI_TILE) * ceil(height * shrink / _OPENAI_TILE)
    return _OPENAI_BASE + _OPENAI_PER_TILE * tiles


def _openai_patches(width: int, height: int) -> int:
    patches = ceil(width / _OPENAI_PATCH) * ceil(height / _OPENAI_PATCH)
    return ceil(min(patches, _OPENAI_MOST_PATCHES) * _OPENAI_PER_PATCH)
