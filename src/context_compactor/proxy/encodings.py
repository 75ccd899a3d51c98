"""Bodies as they are on the wire: packed by gzip, deflate, zstd or brotli, and read without that."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_log = logging.getLogger("context_compactor")


MOST_BYTES = 64 << 20
"""What a body may become when it is unpacked: a few bytes may stand for many."""


def unpacked(content: bytes, encoding: str, most: int = MOST_BYTES) -> bytes | None:
    """A body without the encoding of its transfer; None when it cannot be read, or would be larger than `most`."""
    for name in reversed([each.strip().lower() for each in encoding.split(",") if each.strip()]):
        try:
            content = _UNPACKERS[name](content, most)
        except (KeyError, ImportError, ValueError, zlib.error) as error:
            _log.debug("a body could not be read: %s", error)
            return None
        if len(content) > most:
            return None
    return content


def _inflate(content: bytes, most: int, frame: int = 0) -> bytes:
    for bits in (frame or zlib.MAX_WBITS, -zlib.MAX_WBITS):  # some servers leave out the frame that the name asks for
        reader = zlib.decompressobj(bits)
        with suppress(zlib.error):
            return reader.decompress(content, most + 1)
    raise ValueError("not deflated")


def _unzstd(content: bytes, most: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
            return reader.read(most + 1)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _unbrotli(content: bytes, most: int) -> bytes:
    import brotli

    try:
        return bytes(brotli.Decompressor().process(content, output_buffer_limit=most + 1))
    except brotli.error as error:
        raise ValueError(str(error)) from error


_gunzip = partial(_inflate, frame=zlib.MAX_WBITS | 16)
_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "identity": lambda content, _: content,
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "zstd": _unzstd,
    "br": _unbrotli,
}
