"""Bodies as they are on the wire: packed by gzip, deflate, zstd or brotli, and read without that."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable

_log = logging.getLogger("context_compactor")


def unpacked(content: bytes, encoding: str) -> bytes | None:
    """A body without the encoding of its transfer; None when it cannot be read."""
    for name in reversed([each.strip().lower() for each in encoding.split(",") if each.strip()]):
        try:
            content = _UNPACKERS[name](content)
        except (KeyError, ImportError, ValueError, OSError, EOFError, zlib.error) as error:
            _log.debug("a body could not be read: %s", error)
            return None
    return content


def _inflate(content: bytes) -> bytes:
    try:
        return zlib.decompress(content)
    except zlib.error:  # some servers leave out the frame that the name asks for
        return zlib.decompress(content, -zlib.MAX_WBITS)


def _unzstd(content: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _unbrotli(content: bytes) -> bytes:
    import brotli

    try:
        return bytes(brotli.decompress(content))
    except brotli.error as error:
        raise ValueError(str(error)) from error


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.decompress,
    "x-gzip": gzip.decompress,
    "deflate": _inflate,
    "zstd": _unzstd,
    "br": _unbrotli,
}
