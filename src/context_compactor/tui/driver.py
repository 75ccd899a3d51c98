"""The terminal driver for Linux and macOS: keys, and pastes as one piece each, whatever is in them."""

from __future__ import annotations

import os
import selectors
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from textual import events
from textual._xterm_parser import XTermParser  # without it the app uses Textual's own driver
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_BEGIN, _END = b"\x1b[200~", b"\x1b[201~"
_STOP = b"\x03"
_CHUNK = 1 << 16
_MAX_TYPED = 1_000
"""Nobody writes so much at once: it is part of something longer."""
_TICK_SECONDS = 0.05
_SILENCE_SECONDS = 1.0
# What terminals send for Enter with Alt or Shift, and what the parser of keys knows as that.
_ENTERS = {
    b"\x1b\r": b"\x1b[13;3u",
    b"\x1b\n": b"\x1b[13;3u",
    b"\x1b[27;3;13~": b"\x1b[13;3u",
    b"\x1b[27;2;13~": b"\x1b[13;2u",
}


class InputDecoder:
    """Takes bytes as they come and gives keys as bytes and pastes as texts."""

    def __init__(self) -> None:
        self._rest = b""
        self._paste: bytearray | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | str]:
        """What these bytes are, behind those that came before."""
        if self._paste is not None and chunk == _STOP:  # the end of the paste was lost
            yield from self.rest()
            self._paste = None
        chunk = self._rest + chunk
        self._rest = b""
        while chunk:
            if self._paste is None:
                keys, begun, chunk = chunk.partition(_BEGIN)
                if begun:
                    self._paste = bytearray()
                else:
                    keys = self._hold_back(keys)
                if keys:
                    yield _plain_enters(keys)
            else:
                searched = max(len(self._paste) - len(_END), 0)
                self._paste += chunk
                chunk = b""
                end = self._paste.find(_END, searched)
                if end >= 0:
                    text, chunk = bytes(self._paste[:end]), bytes(self._paste[end + len(_END) :])
                    self._paste = None
                    yield _decoded(text)

    def rest(self) -> Iterator[bytes | str]:
        """What can wait no longer: nothing more comes."""
        rest, self._rest = self._rest, b""
        if rest:
            yield _plain_enters(rest)
        if self._paste:
            text = bytes(self._paste)
            self._paste = bytearray()
            yield _decoded(text)

    @property
    def is_pasting(self) -> bool:
        """Whether the end of a paste has not come yet."""
        return self._paste is not None

    def _hold_back(self, keys: bytes) -> bytes:
        """Keys without an end that a paste may begin with; the key Escape alone does not wait."""
        shortest = 1 if len(keys) >= _MAX_TYPED else 2
        for size in range(len(_BEGIN) - 1, shortest - 1, -1):
            if keys.endswith(_BEGIN[:size]):
                self._rest = keys[-size:]
                return keys[:-size]
        return keys


def _plain_enters(keys: bytes) -> bytes:
    for sent, known in _ENTERS.items():
        keys = keys.replace(sent, known)
    return keys


def _decoded(pasted: bytes) -> str:
    return pasted.decode("utf-8", "replace").replace("\0", "")


class TerminalOutput:
    """What is drawn goes here. When the terminal has hung up it goes nowhere: nobody waits for room in what is left."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._is_gone = False

    def write(self, text: str) -> None:
        """Write, unless the terminal is gone."""
        self._attempt(lambda: self._file.write(text))

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def _attempt(self, send: Callable[[], object]) -> None:
        try:
            if not self._is_gone:
                send()
        except (OSError, ValueError):  # a file that is closed is a `ValueError`
            self._is_gone = True


class TerminalDriver(LinuxDriver):
    """The driver for terminals on this machine, with its own ways to read, to write, and to go on after a stop."""

    def __init__(self, app: App[Any], **more: Any) -> None:
        super().__init__(app, **more)
        self._shown_app = app
        self._file = cast("Any", TerminalOutput(sys.__stderr__ or sys.stderr))

    def _sigcont_application(self, *_: object) -> None:
        """Go on after a stop. Behind Ctrl-Z everything is begun again; else nothing has ended, and it is only drawn
        anew. With a hang-up this comes as well: whatever was begun then would wait for a terminal that is gone.
        """
        if getattr(self, "_must_signal_resume", True):
            super()._sigcont_application()
        else:
            self._shown_app.call_later(self._shown_app.refresh)

    def run_input_thread(self) -> None:
        """Read until the app ends. What goes wrong here is reported by who calls it."""
        parser, intake = XTermParser(), InputDecoder()
        decode = getincrementaldecoder("utf-8")("replace").decode
        last_input = time.monotonic()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                found: list[bytes | str] = []
                if selector.select(_TICK_SECONDS):
                    chunk = os.read(self.fileno, _CHUNK)
                    if not chunk:
                        raise EOFError("the terminal has hung up")
                    found, last_input = list(intake.feed(chunk)), time.monotonic()
                elif time.monotonic() - last_input > (_SILENCE_SECONDS if intake.is_pasting else _TICK_SECONDS):
                    found = list(intake.rest())
                for each in found:
                    if isinstance(each, str):
                        self.process_message(events.Paste(each))
                    elif keys := decode(each):
                        for event in parser.feed(keys):
                            self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
