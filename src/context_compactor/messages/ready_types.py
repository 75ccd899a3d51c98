"""Types made ready for threads: msgspec learns one when it is first read, and not two threads may be the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

import msgspec
from msgspec import Struct

_OURS = __name__.partition(".")[0]
_lock = Lock()


def make_types_ready() -> None:
    """Have every type of this package that is loaded learned now. Call it before threads begin to read.

    A thread that comes upon a type which another one is just learning can bring the whole process down.
    """
    with _lock:
        for kind in set(_below(Struct)):
            if kind.__module__.partition(".")[0] == _OURS:
                with suppress(TypeError, NameError):  # it holds what no text can say, and is never read from one
                    msgspec.json.Decoder(kind)


def _below(kind: type[Struct]) -> Iterator[type[Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
