"""Appending: make messages ready, then write them, see whether a level was reached, queue jobs for it.

All that is written is one transaction, and what takes long is done before it: on SQLite everybody else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.shelve import ReadyItem, keep_items, ready_items
from context_compactor.errors import BadMessage, BadSetting
from context_compactor.measure.count import MessageCounter, message_bytes
from context_compactor.messages.depth import refuse_depth
from context_compactor.messages.detect import find_dialect, telling_dialect
from context_compactor.messages.dialect import Dialect, dicts_of
from context_compactor.messages.jsontext import json_bytes
from context_compactor.messages.message import Message
from context_compactor.messages.usage import ReportedUsage, read_usage
from context_compactor.session import gauge as gauging
from context_compactor.session.core import Core, raws_of
from context_compactor.session.lens import Raw
from context_compactor.session.log import REVISION, Revision
from context_compactor.session.memory import learned
from context_compactor.session.shorten import cut_outputs, is_too_long
from context_compactor.session.values import Gauge, Replaced, State, read_profile, read_state
from context_compactor.session.watch import Watched, is_urgent, share_now, unanswered, watch
from context_compactor.store.contents import Kept
from context_compactor.store.rows import MESSAGE, SessionRow

# A session that long has facts worth keeping even if nothing was compacted.
_EXTRACT_SECONDS = 30 * 60
# How often messages are made ready: others may write to the same session meanwhile.
_ATTEMPTS = 3


class ReadyCut(Struct, frozen=True):
    """A message with a shorter output, ready to be written; `at` is its place among those that are appended."""

    at: int
    body: Kept
    ref: str
    items: list[ReadyItem]
    tokens: int
    bytes: int
    """How much less it is than the whole message."""


class Ready(Struct, frozen=True):
    """Messages ready to be appended: as they are stored, as they are read, and what each weighs.

    `cuts` are those whose outputs are too long. They are numbered by all that was said before, so they are right as
    long as the session is as it was at `base`, its head and view.
    """

    raws: list[Raw]
    bodies: list[Kept]
    messages: list[Message]
    dialect: Dialect
    counter: MessageCounter
    tokens: list[int]
    sizes: list[int]
    shorten: bool
    times: list[str] = []
    """When each was written, where that is known of any of them."""
    cuts: list[ReadyCut] = []
    base: tuple[int, int] | None = None

    def fits(self, row: SessionRow) -> bool:
        """Whether it is right for a session as it is."""
        return self.base in (None, (row.head, row.view))


def append(
    core: Core,
    message: Mapping[str, Any] | Sequence[Mapping[str, Any]] | Ready,
    usage: object,
    within: Callable[[], None] = lambda: None,
    *,
    shorten: bool = True,
    times: Sequence[str] = (),
) -> Watched:
    """Append one message or several, all or none of them. `within` is called in the transaction and may refuse it.

    Without `shorten` outputs stay whole, however long: somebody else decides what the model sees. The original of one
    that is cut is put into the index in quiet time, or by the first search. `times` say when each was written, those
    that are empty now.
    """
    reported = _reported(usage)
    ready = message if isinstance(message, Ready) else make_ready(core, message, shorten=shorten)
    if any(times):
        ready = structs.replace(ready, times=[at or core.now() for at in times])
    if not ready.raws:
        return Watched()
    for _ in range(_ATTEMPTS - 1):
        with core.writing() as row:
            if ready.fits(row):
                return _write(core, ready, row, reported, within)
        ready = _with_cuts(core, ready)  # somebody else has written meanwhile: do it again, while nobody waits for it
    with core.writing() as row:
        return _write(core, ready if ready.fits(row) else _with_cuts(core, ready, row), row, reported, within)


def make_ready(core: Core, message: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, shorten: bool = True) -> Ready:
    """Read, count, pack and shorten messages: all that takes long and needs no transaction. What is none is refused."""
    return _with_cuts(core, _read(core, _plain(core, message), shorten))


def _write(
    core: Core, ready: Ready, row: SessionRow, reported: ReportedUsage | None, within: Callable[[], None]
) -> Watched:
    within()
    ready = _in_its_dialect(core, ready, row)
    counter, state = ready.counter, read_state(row.state)
    gauge = core.gauge(row, state, counter)
    head = core.store.append(core.id, MESSAGE, ready.bodies, core.now(), ready.times)
    first = head - len(ready.raws) + 1
    after = gauging.add(gauge, ready.messages, counter, ready.tokens, ready.sizes)
    answered = _answered(gauge, ready) if reported else 0
    state = _learn(state, gauge, after, answered, reported)
    state = structs.replace(state, gauge=structs.replace(state.gauge, head=head, view=row.view))
    state = _remind(core, ready, state, first - 1)
    state = _shorten(core, ready.cuts, state, first)
    state = structs.replace(
        state,
        tool_calls=state.tool_calls + sum(len(message.calls) for message in ready.messages),
        appended_tokens=state.appended_tokens + sum(ready.tokens),
    )
    is_at_rest = gauging.comes_to_rest(gauge, ready.messages)
    before, (state, watched) = state, watch(core, state, counter, is_at_rest=is_at_rest)
    core.save(unanswered(before, state) if is_urgent(core, watched) else state)
    is_due = core.settings.extract_facts and _age(core, state.extracted_at or row.created_at) >= _EXTRACT_SECONDS
    watched = structs.replace(
        watched,
        is_extraction_due=is_due,
        messages=row.messages + len(ready.raws),
        tokens=state.gauge.tokens,
        share=share_now(core, state) if state.gauge.open_calls else state.share,
        fired=state.fired,
    )
    return core.schedule(core, watched) if core.schedule else watched


def _age(core: Core, since: str) -> float:
    return core.seconds() - datetime.fromisoformat(since).timestamp()


def _remind(core: Core, ready: Ready, state: State, before: int) -> State:
    """A new session begins with what others have learned, behind its instructions."""
    told = [at for at, message in enumerate(ready.messages) if message.role not in ("system", "developer")]
    if state.is_reminded or not told or not core.settings.enabled:
        return state
    text = learned(core)
    state = structs.replace(state, is_reminded=True)
    if not text:
        return state
    message = ready.dialect.user_text(text)
    (name,) = core.store.put([json_bytes(message.raw)])
    revision = Revision(why="memory", hash=name, after=before + told[0])
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
    gauge = gauging.add(state.gauge, [message], ready.counter)
    return structs.replace(state, gauge=structs.replace(gauge, head=head, view=head))


def _plain(core: Core, message: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Raw]:
    given = dicts_of([message] if isinstance(message, Mapping) else message)
    refuse_depth(given)
    raws: list[Raw] = core.without_secrets(given)
    return raws


def _read(core: Core, raws: list[Raw], shorten: bool) -> Ready:
    """Refuse what is no message before anything is written."""
    told = telling_dialect(raws) if core.profile.dialect == "auto" else ""
    dialect = find_dialect(told, raws) if told else core.dialect(raws)
    messages, counter = dialect.parse(raws), core.counter(dialect)
    bodies = core.store.ready([_body(raw, at) for at, raw in enumerate(raws)])
    sizes = [message_bytes(message) for message in messages]
    return Ready(raws, bodies, messages, dialect, counter, counter.count_many(messages), sizes, shorten)


def _in_its_dialect(core: Core, ready: Ready, row: SessionRow) -> Ready:
    """The messages as the session speaks. The first that tell settle it, perhaps those of another process."""
    stored = read_profile(row.profile)
    if stored.dialect == "auto":
        told = telling_dialect(ready.raws)
        if told:
            core.keep_profile(structs.replace(core.profile, dialect=told))
        return ready
    if core.profile.dialect != stored.dialect:
        core.profile = structs.replace(core.profile, dialect=stored.dialect)
    if ready.dialect.name == stored.dialect:
        return ready
    again = structs.replace(_read(core, ready.raws, ready.shorten), times=ready.times)
    return _with_cuts(core, again, row)


def _body(raw: Raw, at: int) -> bytes:
    try:
        return json_bytes(raw)
    except ValueError as error:
        raise BadMessage(at, "message", f"{error}; a message must be what JSON can hold") from error


def _answered(before: Gauge, ready: Ready) -> int:
    """Our count up to and with the reply: what a provider reports ends there, whatever came with it."""
    replies = [at for at, message in enumerate(ready.messages) if message.role == "assistant"]
    if not replies:
        return before.tokens
    end = replies[-1] + 1
    return gauging.add(before, ready.messages[:end], ready.counter, ready.tokens[:end], ready.sizes[:end]).tokens


def _learn(state: State, before: Gauge, after: Gauge, answered: int, reported: ReportedUsage | None) -> State:
    state = structs.replace(state, gauge=after, held=False)
    if reported is None or not reported.prompt:
        return state
    if gauging.is_late(state, before.tokens, reported.prompt):
        left = structs.replace(state.replaced, reports=state.replaced.reports - 1)
        return structs.replace(state, replaced=left)
    calibration = state.calibration.learn(before.tokens, reported.prompt)
    anchored = structs.replace(after, anchor=(reported.total, answered))
    return structs.replace(state, gauge=anchored, calibration=calibration, replaced=Replaced())


def _reported(usage: object) -> ReportedUsage | None:
    """What a provider reported, as its dictionary or as the object of its library."""
    if usage is None:
        return None
    plain = usage.model_dump() if hasattr(usage, "model_dump") else usage
    if isinstance(plain, Struct):
        plain = msgspec.to_builtins(plain)
    if not isinstance(plain, Mapping):
        raise BadSetting(
            f"usage: {usage!r:.60} is not what a provider reports. Try: the `usage` of its answer as it is."
        )
    return read_usage(plain)


def _with_cuts(core: Core, ready: Ready, row: SessionRow | None = None) -> Ready:
    """Cut outputs that are too long, for the session as it is."""
    if not ready.shorten or not core.settings.enabled:
        return ready
    counter, most = ready.counter, core.settings.max_output_tokens
    long = [at for at, message in enumerate(ready.messages) if is_too_long(message, counter, most)]
    if not long:
        return ready
    row = row or core.row()
    before = raws_of(core.seen(row))
    messages = ready.dialect.parse([*before, *ready.raws])
    places = [len(before) + at for at in long]
    cuts = []
    for cut in cut_outputs(messages, places, ready.dialect, counter, most):
        at, shorter = cut.at - len(before), ready.dialect.parse([cut.raw])[0]
        (body,) = core.store.ready([json_bytes(cut.raw)])
        tokens, size = ready.tokens[at] - counter.count(shorter), ready.sizes[at] - message_bytes(shorter)
        cuts.append(ReadyCut(at, body, cut.originals[0].id, ready_items(cut.originals, core.store), tokens, size))
    return structs.replace(ready, cuts=cuts, base=(row.head, row.view))


def _shorten(core: Core, cuts: Sequence[ReadyCut], state: State, first: int) -> State:
    """Show shorter outputs in the place of long ones, the originals archived in the same transaction."""
    if not cuts:
        return state
    items = keep_items([item for cut in cuts for item in cut.items], core.store)
    core.store.archive(core.id, items, core.now())
    core.store.put([cut.body for cut in cuts])
    revisions = [Revision(why="shortened", hash=cut.body.hash, position=first + cut.at, ref=cut.ref) for cut in cuts]
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(each) for each in revisions], core.now())
    gauge = structs.replace(
        state.gauge,
        tokens=state.gauge.tokens - sum(cut.tokens for cut in cuts),
        bytes=state.gauge.bytes - sum(cut.bytes for cut in cuts),
        head=head,
        view=head,
    )
    return structs.replace(state, gauge=gauge)
