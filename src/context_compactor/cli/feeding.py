"""A transcript that becomes a session of the store, or continues one, and is compacted there."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from context_compactor.ask import Ask
from context_compactor.cli.conversation import Conversation
from context_compactor.cli.gauge import budget_of
from context_compactor.figures import Goal, read_goal
from context_compactor.levels import Level
from context_compactor.report import Report
from context_compactor.session.compacting import compact
from context_compactor.session.core import Core, wall_clock
from context_compactor.session.feeding import feed
from context_compactor.session.opening import open_core
from context_compactor.session.project import local_owner
from context_compactor.session.session import Session
from context_compactor.session.values import Profile, check_id
from context_compactor.settings import read_value
from context_compactor.store.connect import connect

if TYPE_CHECKING:
    from context_compactor.story import Teller

Raw = dict[str, Any]


class Fed(Struct, frozen=True):
    """The session's context and the report of its compaction; `appended` messages of `total` were new."""

    messages: list[Raw]
    report: Report
    appended: int
    total: int


class Wish(Struct, frozen=True):
    """What was asked for on the command line. `window` is only what was named there."""

    window: int | None = None
    target: Goal = Goal()
    level: Level | None = None
    focus: str = ""


def read_wish(window: str | None, target: str | None, level: Level | None, focus: str | None) -> Wish:
    """Read it all before anything is written."""
    size = None if window is None else read_value("window", window, "argument")
    return Wish(size, read_goal(target), level, focus or "")


def compact_session(
    conversation: Conversation, session_id: str, url: str, wish: Wish, teller: Teller | None = None
) -> Fed:
    """Append what is new in a transcript to a session, then compact it as asked; nothing happens by itself between."""
    budget_of(conversation)  # a window that leaves no room is refused before anything is written
    _begin(conversation, session_id, url)
    core = open_core(
        session_id,
        window=wish.window,
        store=url,
        dialect="auto",
        model=None,
        settings=None,
        count_tokens=None,
        bus=None,
        clock=wall_clock,
    )
    with Session(core, owns_store=True) as session:
        core.use_teller(teller)
        appended = feed(core, conversation.transcript.messages, conversation.transcript.times)
        report = compact(core, _ask(core, session, conversation, wish))
        total = len(conversation.transcript.messages)
        return Fed(session.context(total), report, appended, total)


def _begin(conversation: Conversation, session_id: str, url: str) -> None:
    """Make the session as what the transcript says of it; one that is there stays what it is."""
    transcript, overhead = conversation.transcript, conversation.settings.overhead_tokens
    profile = Profile(
        window=conversation.window.tokens,
        dialect=transcript.dialect,
        model=transcript.model or None,
        owner=local_owner(url, Path.cwd()),
        settings={"overhead_tokens": overhead} if overhead else {},
    )
    check_id(session_id)
    with closing(connect(url)) as kept:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        kept.open_session(session_id, msgspec.json.encode(profile), now)


def _ask(core: Core, session: Session, conversation: Conversation, wish: Wish) -> Ask:
    """As without a session: a target is for what is in the messages, a level also for what the provider adds."""
    goal = wish.target
    tokens = goal.of(session.usage().tokens) if goal.percent else goal.tokens
    ask = core.ask(level=wish.level, focus=wish.focus, target_tokens=tokens)
    if tokens is not None:
        return ask
    overhead = core.settings.overhead_tokens + conversation.unseen
    return structs.replace(ask, settings=structs.replace(core.settings, overhead_tokens=overhead))
