"""Compacts a session of the store for `compactor compact`, with live progress; loaded only when it is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from context_compactor.cli.conversation import TranscriptInput, budget_of
from context_compactor.cli.options import find_named, store_url
from context_compactor.cli.output import printable, progress_line, stderr
from context_compactor.dialects.detection import dialect_named, foreign_message
from context_compactor.engine.report import Report
from context_compactor.engine.request import CompactionRequest
from context_compactor.library import summarizer_for
from context_compactor.sessions.compaction import compact
from context_compactor.sessions.core import Core, wall_clock
from context_compactor.sessions.lifecycle import open_core
from context_compactor.sessions.project import local_owner
from context_compactor.sessions.session import Session
from context_compactor.sessions.state import Profile, check_id
from context_compactor.sessions.transcripts import append_new
from context_compactor.settings import Level, read_value
from context_compactor.store.connect import connect
from context_compactor.text import TargetSize, one_line, parse_target

if TYPE_CHECKING:
    from context_compactor.dialects.transcripts.transcript import Transcript
    from context_compactor.settings import Settings
    from context_compactor.summarize.model import ModelStep
    from context_compactor.summarize.summarizer import ModelSummarizer


_STEP_NAMES = {"asked": "asking", "answered": "answered", "retried": "again"}


class LiveProgress:
    """Shows each call, each retry and the text as it is written, line by line. Safe to call from any thread."""

    def __init__(self) -> None:
        self._out = stderr()
        self._lock = Lock()
        self._is_amid_line = False

    def line(self, name: str, text: str) -> None:
        """One line of its own."""
        with self._lock:
            if self._is_amid_line:
                self._out.print()
                self._is_amid_line = False
            self._out.print(f"{name:<12}{one_line(text, 300)}", style="dim")
            sys.stderr.flush()

    def step(self, step: ModelStep) -> None:
        """A call that begins, ends, or is made again."""
        noun = "attempt" if step.kind == "retried" else "call"
        reason = f": {step.reason}" if step.reason else ""
        self.line(_STEP_NAMES[step.kind], f"{noun} {step.number:,} of {step.of:,}{reason}")

    def text(self, piece: str) -> None:
        """A piece of what the model writes."""
        with self._lock:
            shown = printable(piece)
            encoding = sys.stderr.encoding or "utf-8"
            sys.stderr.write(shown.encode(encoding, "replace").decode(encoding))
            sys.stderr.flush()
            self._is_amid_line = not shown.endswith("\n") if shown else self._is_amid_line

    def end(self) -> None:
        """Leave the cursor at the beginning of a line."""
        if self._is_amid_line:
            self._out.print()
            self._is_amid_line = False


@contextmanager
def live_summarizer(settings: Settings, left: str) -> Iterator[ModelSummarizer | None]:
    """The summarizer of the settings, with its progress on a terminal. `left` is what an interrupt is answered with."""
    live = LiveProgress() if sys.stderr.isatty() else None
    summarizer = summarizer_for(settings, on_text=live.text if live else None, on_step=live.step if live else None)
    if summarizer is not None and live is not None:
        describe = getattr(summarizer.model, "describe", None)
        live.line("model", describe() if describe else summarizer.model.name)
    try:
        yield summarizer
    except KeyboardInterrupt:
        if live is not None:
            live.end()
        stderr().print(f"interrupted: {left}")
        raise
    if live is not None:
        live.end()


class CompactedSession(Struct, frozen=True):
    """The session's context and the report of its compaction; `appended` messages of `total` were new."""

    messages: list[dict[str, Any]]
    report: Report
    appended: int
    total: int


class CompactOptions(Struct, frozen=True):
    """What was asked for on the command line. `window` is only what was named there."""

    window: int | None = None
    target: TargetSize = TargetSize()
    level: Level | None = None
    focus: str = ""


def read_compact_options(
    window: str | None, target: str | None, level: Level | None, focus: str | None
) -> CompactOptions:
    """Read it all before anything is written."""
    size = None if window is None else read_value("window", window, "argument")
    return CompactOptions(size, parse_target(target), level, focus or "")


def compact_session(
    conversation: TranscriptInput,
    session_id: str,
    url: str,
    options: CompactOptions,
    summarizer: ModelSummarizer | None = None,
) -> CompactedSession:
    """Append what is new in a transcript to a session, then compact it as asked; nothing happens by itself between."""
    budget_of(conversation)  # a window that leaves no room is refused before anything is written
    _open_or_create(conversation, session_id, url)
    core = _open(session_id, url, options.window, conversation.transcript)
    with Session(core, owns_store=True) as session:
        core.use_summarizer(summarizer)
        appended = append_new(core, conversation.transcript.messages, conversation.transcript.times)
        report = compact(core, _request(core, session, conversation, options))
        total = len(conversation.transcript.messages)
        return CompactedSession(session.context(total), report, appended, total)


def _open(session_id: str, url: str, window: int | None = None, transcript: Transcript | None = None) -> Core:
    return open_core(
        session_id,
        window=window,
        store=url,
        dialect="auto",
        model=None,
        settings=None,
        count_tokens=None,
        bus=None,
        clock=wall_clock,
        tools=transcript.tools if transcript else None,
        system=transcript.system if transcript else None,
    )


def _open_or_create(conversation: TranscriptInput, session_id: str, url: str) -> None:
    transcript, overhead = conversation.transcript, conversation.settings.overhead_tokens
    profile = Profile(
        window=conversation.window.tokens,
        dialect=transcript.dialect,
        is_dialect_named=foreign_message(dialect_named(transcript.dialect), transcript.messages) is not None,
        model=transcript.model or None,
        owner=local_owner(url, Path.cwd()),
        settings={"overhead_tokens": overhead} if overhead else {},
    )
    check_id(session_id)
    with closing(connect(url)) as opened:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        opened.open_session(session_id, msgspec.json.encode(profile), now)


def _request(core: Core, session: Session, conversation: TranscriptInput, options: CompactOptions) -> CompactionRequest:
    """As without a session: a target is for what is in the messages, a level also for what the provider adds."""
    goal = options.target
    tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
    ask = core.ask(level=options.level, focus=options.focus, target_tokens=tokens)
    if tokens is not None:
        return ask
    overhead = core.settings.overhead_tokens + conversation.unseen
    return structs.replace(ask, settings=structs.replace(core.settings, overhead_tokens=overhead))


def compact_stored(
    name: str, store: str | None, target: str | None, level: Level | None, focus: str | None, left: str
) -> tuple[list[dict[str, Any]], Report]:
    """Compact a session of the store: its context now, and the report. An interrupt says what is `left`."""
    goal = parse_target(target)
    found = find_named(name, store)
    core = _open(found.id, store_url(store))
    with (
        Session(core, owns_store=True) as session,
        live_summarizer(core.settings, left) as summarizer,
        progress_line("Compacting", name, is_quiet=summarizer is not None),
    ):
        core.use_summarizer(summarizer)
        tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
        report = session.compact(focus, level, target_tokens=tokens)
        return session.context(found.messages), report
