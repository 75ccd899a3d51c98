"""Appending: check, write, weigh, see whether a level was reached, queue jobs for it. All is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.shelve import make_items
from context_compactor.errors import BadMessage, BadSetting
from context_compactor.measure.count import MessageCounter, message_bytes
from context_compactor.messages.depth import refuse_depth
from context_compactor.messages.detect import find_dialect, telling_dialect
from context_compactor.messages.dialect import Dialect, dicts_of
from context_compactor.messages.jsontext import json_bytes
from context_compactor.messages.message import Message
from context_compactor.messages.usage import ReportedUsage, read_usage
from context_compactor.session import gauge as gauging
from context_compactor.session.core import Core
from context_compactor.session.lens import Raw
from context_compactor.session.log import REVISION, Revision
from context_compactor.session.memory import learned
from context_compactor.session.shorten import cut_outputs, is_too_long
from context_compactor.session.values import Gauge, State, read_profile, read_state
from context_compactor.session.watch import Watched, is_urgent, share_now, unanswered, watch
from context_compactor.store.rows import MESSAGE, SessionRow

# A session that long has facts worth keeping even if nothing was compacted.
_EXTRACT_SECONDS = 30 * 60


class Given(Struct, frozen=True):
    """Messages that may be appended: as they are stored and as they are read."""

    raws: list[Raw]
    bodies: list[bytes]
    messages: list[Message]
    dialect: Dialect


def append(
    core: Core,
    message: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    usage: object,
    within: Callable[[], None] = lambda: None,
    *,
    shorten: bool = True,
) -> Watched:
    """Append one message or several, all or none of them. `within` is called in the transaction and may refuse it.

    Without `shorten` outputs stay whole, however long: somebody else decides what the model sees.
    """
    raws, reported = _plain(core, message), _reported(usage)
    if not raws:
        return Watched()
    given = _read(core, raws)
    with core.writing() as row:
        within()
        given = _in_its_dialect(core, given, row)
        counter = core.counter(given.dialect)
        state = read_state(row.state)
        gauge = core.gauge(row, state, counter)
        head = core.store.append(core.id, MESSAGE, given.bodies, core.now())
        weights = counter.count_many(given.messages)
        after = gauging.add(gauge, given.messages, counter, weights)
        answered = _answered(gauge, given, counter) if reported else 0
        state = _learn(state, gauge, after, answered, reported)
        state = structs.replace(state, gauge=structs.replace(state.gauge, head=head, view=row.view))
        state = _remind(core, given, state, counter, head - len(given.raws))
        state = _shorten(core, given, state, counter) if shorten else state
        state = structs.replace(
            state,
            tool_calls=state.tool_calls + sum(len(message.calls) for message in given.messages),
            appended_tokens=state.appended_tokens + sum(weights),
        )
        is_at_rest = gauging.comes_to_rest(gauge, given.messages)
        before, (state, watched) = state, watch(core, state, counter, is_at_rest=is_at_rest)
        core.save(unanswered(before, state) if is_urgent(core, watched) else state)
        is_due = core.settings.extract_facts and _age(core, state.extracted_at or row.created_at) >= _EXTRACT_SECONDS
        watched = structs.replace(
            watched,
            is_extraction_due=is_due,
            messages=row.messages + len(given.raws),
            tokens=state.gauge.tokens,
            share=share_now(core, state) if state.gauge.open_calls else state.share,
            fired=state.fired,
        )
        return core.schedule(core, watched) if core.schedule else watched


def _age(core: Core, since: str) -> float:
    return core.seconds() - datetime.fromisoformat(since).timestamp()


def _remind(core: Core, given: Given, state: State, counter: MessageCounter, before: int) -> State:
    """A new session begins with what others have learned, behind its instructions."""
    told = [at for at, message in enumerate(given.messages) if message.role not in ("system", "developer")]
    if state.is_reminded or not told or not core.settings.enabled:
        return state
    text = learned(core)
    state = structs.replace(state, is_reminded=True)
    if not text:
        return state
    message = given.dialect.user_text(text)
    (name,) = core.store.put([json_bytes(message.raw)])
    revision = Revision(why="memory", hash=name, after=before + told[0])
    head = core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
    gauge = gauging.add(state.gauge, [message], counter)
    return structs.replace(state, gauge=structs.replace(gauge, head=head, view=head))


def _plain(core: Core, message: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Raw]:
    given = dicts_of([message] if isinstance(message, Mapping) else message)
    refuse_depth(given)
    raws: list[Raw] = core.without_secrets(given)
    return raws


def _read(core: Core, raws: list[Raw]) -> Given:
    """Refuse what is no message before anything is written."""
    told = telling_dialect(raws) if core.profile.dialect == "auto" else ""
    dialect = find_dialect(told, raws) if told else core.dialect(raws)
    messages = dialect.parse(raws)
    return Given(raws, [_body(raw, at) for at, raw in enumerate(raws)], messages, dialect)


def _in_its_dialect(core: Core, given: Given, row: SessionRow) -> Given:
    """The messages as the session speaks. The first that tell settle it, perhaps those of another process."""
    stored = read_profile(row.profile)
    if stored.dialect == "auto":
        told = telling_dialect(given.raws)
        if told:
            core.keep_profile(structs.replace(core.profile, dialect=told))
        return given
    if core.profile.dialect != stored.dialect:
        core.profile = structs.replace(core.profile, dialect=stored.dialect)
    return given if given.dialect.name == stored.dialect else _read(core, given.raws)


def _body(raw: Raw, at: int) -> bytes:
    try:
        return json_bytes(raw)
    except ValueError as error:
        raise BadMessage(at, "message", f"{error}; a message must be what JSON can hold") from error


def _answered(before: Gauge, given: Given, counter: MessageCounter) -> int:
    """Our count up to and with the reply: what a provider reports ends there, whatever came with it."""
    replies = [at for at, message in enumerate(given.messages) if message.role == "assistant"]
    return gauging.add(before, given.messages[: replies[-1] + 1], counter).tokens if replies else before.tokens


def _learn(state: State, before: Gauge, after: Gauge, answered: int, reported: ReportedUsage | None) -> State:
    if reported is None:
        return structs.replace(state, gauge=after, held=False)
    calibration = state.calibration.learn(before.tokens, reported.prompt)
    anchored = structs.replace(after, anchor=(reported.total, answered))
    return structs.replace(state, gauge=anchored, calibration=calibration, held=False)


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


def _shorten(core: Core, given: Given, state: State, counter: MessageCounter) -> State:
    """Cut outputs that are too long, the original archived in the same transaction."""
    most = core.settings.max_output_tokens
    long = [at for at, message in enumerate(given.messages) if is_too_long(message, counter, most)]
    if not long or not core.settings.enabled:
        return state
    seen = core.seen(core.row())
    parsed = given.dialect.parse(seen.raws)
    own = [at for at, shown in enumerate(seen.shown) if not shown.added]
    first = len(parsed) - len(given.raws)
    places = [own.index(first + at) for at in long]
    for cut in cut_outputs([parsed[at] for at in own], places, given.dialect, counter, most):
        place = own[cut.at]
        core.store.archive(core.id, make_items(cut.originals, core.store), core.now())
        (name,) = core.store.put([json_bytes(cut.raw)])
        revision = Revision(why="shortened", hash=name, position=seen.shown[place].position, ref=cut.originals[0].id)
        head = core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())
        lighter = _lighter(state.gauge, parsed[place], given.dialect.parse([cut.raw])[0], counter)
        state = structs.replace(state, gauge=structs.replace(lighter, head=head, view=head))
    return state


def _lighter(gauge: Gauge, old: Message, new: Message, counter: MessageCounter) -> Gauge:
    tokens = gauge.tokens - counter.count(old) + counter.count(new)
    return structs.replace(gauge, tokens=tokens, bytes=gauge.bytes - message_bytes(old) + message_bytes(new))
