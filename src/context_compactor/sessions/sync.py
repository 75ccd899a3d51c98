"""A conversation that a framework keeps: its whole history is given before each request, and becomes a session.

Only what is new is appended. Where the history has become another one (a regenerated answer, a rewind, an edit), it
goes on in a branch.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.dialect import indexed_messages
from context_compactor.engine.report import Report
from context_compactor.errors import BadMessage, StaleBase
from context_compactor.json_values import copy_containers
from context_compactor.sessions.append import AppendOutcome
from context_compactor.sessions.branches import branch_ids, fork
from context_compactor.sessions.core import Core
from context_compactor.sessions.lifecycle import open_branch
from context_compactor.sessions.lineage import (
    GivenHistory,
    common_length,
    complete_lineage,
    digest_reader,
    message_digest,
    next_link,
)
from context_compactor.sessions.log import VIEW_KINDS, Raw
from context_compactor.sessions.views import sent_messages
from context_compactor.store.rows import LineageEntry

_log = logging.getLogger("context_compactor")
_INSTRUCTIONS = ("system", "developer")
# From so many branches in one program on, something edits the history before each request.
_MANY_BRANCHES = 5


class SyncedMessages(list[Any]):
    """What to send next: a list of messages, with where each comes from.

    `sources` has for each message the index in the given history of the message that it is, or None for one that was
    written or shortened. `report` is that of the compaction that came with it, if any. `session_id` is the branch that
    the history belongs to.
    """

    def __init__(
        self,
        messages: Sequence[Raw] = (),
        sources: Sequence[int | None] = (),
        session_id: str = "",
        report: Report | None = None,
    ) -> None:
        super().__init__(messages)
        self.sources = tuple(sources)
        self.session_id = session_id
        self.report = report


class PlaceInHistory(Struct, frozen=True):
    """Where a given history goes on: the branch, how many messages it has, and how many of these are instructions.

    `shift` is the index in the given history of the branch's first message behind the instructions; below 0 when the
    history begins later, as behind a sliding window.
    """

    core: Core
    messages: int
    leading: int
    link: bytes
    shift: int = 0

    @property
    def new(self) -> int:
        """The index in the history of the first message that the branch does not have."""
        return self.messages - self.leading + self.shift


class HistorySync:
    """Follows the histories that are given for one conversation. It remembers the last one, so that the next costs what
    is new in it."""

    def __init__(self) -> None:
        self._given = GivenHistory()
        self._instructions: list[Raw] = []
        self._had_instructions = False
        self._indexes: list[int] = []
        self._branches = 0
        self._is_alone = False
        self._other_entries: tuple[str, int, list[int]] = ("", -1, [])

    def read(self, core: Core, history: object) -> None:
        """Take a history in; `BadMessage` with its index for what is no message."""
        known = [*self._instructions, *self._given.raws] if len(set(self._indexes)) == len(self._indexes) else []
        given = list(history) if isinstance(history, (list, tuple)) else []
        same = common_length(given, known)  # what was given before in the same place needs not be read again
        new, indexes = indexed_messages(history, same)
        raws, indexes = [*known[:same], *new], [*range(same), *indexes]
        dialect = core.dialect(new or raws[:1])
        leading = sum(1 for _ in takewhile(lambda raw: dialect.parse([raw])[0].role in _INSTRUCTIONS, raws))
        self._had_instructions = bool(self._instructions)
        self._instructions, self._indexes = [copy_containers(raw) for raw in raws[:leading]], indexes
        self._given.read(raws[leading:], digest_reader(core, dialect, indexes[leading:]))

    def prompt(self, system: object) -> object:
        """The system prompt: what was given beside the history and the instructions it begins with; None for neither.

        Instructions are the caller's: they are sent as they are given, and counted, but not stored.
        """
        if self._instructions:
            return [*([system] if system else []), *self._instructions]
        return "" if system is None and self._had_instructions else system

    def find_place(self, core: Core) -> PlaceInHistory:
        """The branch that the history continues, the longest of them, or a new one from where it differs from all.

        A history that begins with later messages of a branch, as behind a sliding window, continues it as well.
        """
        given, current = self._given, _place(core)
        is_next = _continues(current, given)
        if is_next and (self._is_alone or len(given.raws) - current.new < 2):
            return current
        others = [_place(open_branch(core, name)) for name in branch_ids(core) if name != core.id]
        self._is_alone = not others
        places = [place for place in (current, *others) if place.messages > place.leading]
        if continued := [place for place in places if _continues(place, given)]:
            return max(continued, key=lambda place: place.messages)
        if is_next or not places:
            return current
        matches = [match for place in places for match in _matches(place, given.digests)]
        best = max(matches, key=lambda match: match.count, default=_Match(places[0], 0, 0))
        if best.is_whole:
            return best.continued()
        self._is_alone = False
        self._warn_of_many(core)
        return best.forked()

    def _warn_of_many(self, core: Core) -> None:
        self._branches += 1
        if self._branches == _MANY_BRANCHES:
            _log.warning(
                "session %r: the given history differed from the one before %d times. If something shortens or edits "
                "it before each request, give it as it was before that.",
                core.id,
                self._branches,
            )

    def append(self, place: PlaceInHistory, usage: Any, record: Callable[..., AppendOutcome]) -> AppendOutcome:
        """Append what is new with `Session.record`, its lineage in the same transaction.

        `StaleBase` when somebody else has appended to the branch since it was looked at.
        """
        core, number, link = place.core, place.messages, place.link
        entries = []
        for digest in self._given.digests[place.new :]:
            number, link = number + 1, next_link(link, digest)
            entries.append(LineageEntry(number, digest, link))

        def note() -> None:
            if core.row().messages != place.messages:
                raise StaleBase(f"another process has appended to session {core.id!r:.80} meanwhile")
            core.store.add_lineage(core.id, entries)

        new = self._given.raws[place.new :]
        try:
            return record(new, usage if _is_own_reply(place, new) else None, within=note)
        except BadMessage as error:
            index = self._indexes[len(self._instructions) + place.new + error.index]
            raise BadMessage(index, error.field, error.problem) from None

    def is_whole(self, place: PlaceInHistory) -> bool:
        """Whether the branch ends with the history that was appended to it."""
        return place.core.row().messages == place.messages + len(self._given.raws[place.new :])

    def to_send(self, place: PlaceInHistory, report: Report | None) -> SyncedMessages:
        """What to send: the context, with the messages of the history wherever it has them unchanged."""
        core, leading = place.core, len(self._instructions)
        context = core.current_context()
        messages = [copy_containers(raw) for raw in self._instructions]
        sources: list[int | None] = list(self._indexes[:leading])
        for at, raw in sent_messages(core, context):
            number = self._number(core, context.view, context.items[at].position)
            if leading and 0 < number <= place.leading:
                continue  # instructions that were appended before: those that are given take their place
            found = self._find_given(place, number, raw) if number else None
            messages.append(copy_containers(raw if found is None else self._given.raws[found]))
            sources.append(None if found is None else self._indexes[leading + found])
        return SyncedMessages(messages, sources, core.id, report)

    def _find_given(self, place: PlaceInHistory, number: int, raw: Raw) -> int | None:
        """The index of a message of the branch in the history, when it says the same as what is sent."""
        at = number - place.leading - 1 + place.shift
        if not 0 <= at < len(self._given.raws):
            return None
        same = self._given.raws[at] == raw or _digest(place.core, self._given.raws[at]) == _digest(place.core, raw)
        return at if same else None

    def _number(self, core: Core, view: int, position: int) -> int:
        """The number among the messages of the one at a position of the log; 0 for none."""
        if self._other_entries[:2] != (core.id, view):
            entries = core.store.entries(core.id, kinds=VIEW_KINDS)
            self._other_entries = core.id, view, [entry.position for entry in entries]
        return position - bisect_left(self._other_entries[2], position) if position else 0


def _is_own_reply(place: PlaceInHistory, new: Sequence[Raw]) -> bool:
    """Whether what is new holds one reply, and that is the answer to what was sent from here.

    If not, its usage says nothing of what stands before it now: somebody else has sent the request.
    """
    replies = [message.role == "assistant" for message in place.core.dialect(new).parse(new)] if new else []
    first = sum(1 for _ in takewhile(bool, replies))
    return place.messages > place.leading and 0 < first == sum(replies)


def _place(core: Core) -> PlaceInHistory:
    ends, messages = complete_lineage(core), core.row().messages
    return PlaceInHistory(core, messages, *((ends[0].number - 1, ends[1].link) if ends else (messages, b"")))


def _digest(core: Core, raw: Raw) -> bytes:
    return message_digest(core.dialect([raw]).parse([raw])[0])


def _continues(place: PlaceInHistory, given: GivenHistory) -> bool:
    count = place.messages - place.leading
    return not count or (count <= len(given.links) and given.links[count - 1] == place.link)


class _Match(Struct, frozen=True):
    """So many messages of a branch, from the one at `start` behind its instructions, with which a history begins."""

    place: PlaceInHistory
    start: int
    count: int

    @property
    def is_whole(self) -> bool:
        """Whether they are the last ones of the branch."""
        return bool(self.count) and self.start + self.count == self.place.messages - self.place.leading

    def continued(self) -> PlaceInHistory:
        """The branch, with the history behind what they are."""
        return structs.replace(self.place, shift=-self.start)

    def forked(self) -> PlaceInHistory:
        """A branch that ends with them."""
        new = _place(fork(self.place.core, self.place.leading + self.start + self.count))
        return structs.replace(new, shift=-self.start)


def _matches(place: PlaceInHistory, given: Sequence[bytes]) -> Iterator[_Match]:
    """Where a branch has what the history begins with: at its beginning, or later as behind a sliding window.

    One message may be the same by chance; it counts as a window only where it is the last one and was answered since.
    """
    stored = [entry.digest for entry in place.core.store.lineage(place.core.id)]
    for start in (at for at, digest in enumerate(stored) if given and digest == given[0]):
        count = common_length(stored[start:], given)
        if start == 0 or count > 1 or (start + 1 == len(stored) and len(given) > 1):
            yield _Match(place, start, count)
