"""Copying sessions from one store to another, every hash checked on the way, with jobs, answers, webhooks and what a
proxy keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice

from msgspec import Struct, structs

from context_compactor.errors import BadInput, DamagedContent
from context_compactor.store.contents import needed_hashes
from context_compactor.store.database import TermsOf
from context_compactor.store.rows import MESSAGE, FactRow, NewOriginal, OriginalRow, PassageRun, SessionRow
from context_compactor.store.service_store import SqlServiceStore
from context_compactor.store.sql_store import SqlStore


class NotCopied(Struct, frozen=True):
    """What a copy leaves behind: events, deliveries of them that webhooks are yet to get, and jobs that are over."""

    events: int
    deliveries: int
    jobs: int


def copy_work(source: SqlStore, target: SqlStore, session_id: str) -> None:
    """A session's jobs, all to be begun anew, what its requests were answered, and its links of a proxy.

    It belongs to the transaction under way.
    """
    old, new = SqlServiceStore(source._database), SqlServiceStore(target._database)
    for job in old.jobs.open(session_id):
        new.jobs.queue(session_id, job.kind, level=job.level, now=job.created_at, due_at=job.due_at)
    for key, kept in old.answers.of(session_id):
        new.answers.take(session_id, key, kept.body_hash, kept.created_at)
        new.answers.keep(session_id, key, kept.answer)
    new.proxied.put_links(old.proxied.links_of(session_id))


def copy_webhooks(source: SqlStore, target: SqlStore) -> int:
    """Copy the webhooks that the target does not have, with their secrets; how many that were."""
    old, new = SqlServiceStore(source._database).webhooks, SqlServiceStore(target._database).webhooks
    with target._database.writing():
        known = {webhook.id for webhook in new.all()}
        missing = [webhook for webhook in old.all() if webhook.id not in known]
        for webhook in missing:
            new.add(webhook)
    return len(missing)


def copy_proxied_requests(source: SqlStore, target: SqlStore) -> int:
    """Copy what a proxy has recorded of requests, each once however often it is copied; how many that are."""
    old, new = SqlServiceStore(source._database).proxied, SqlServiceStore(target._database).proxied
    rows, copied = old.requests(), 0
    while some := list(islice(rows, _AT_ONCE)):
        new.add_requests(some)
        copied += len(some)
    return copied


def left_behind(source: SqlStore) -> NotCopied:
    """What of a store is not copied."""
    counts = (
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM deliveries",
        "SELECT count(*) FROM jobs WHERE state IN ('done', 'dropped')",
    )
    return NotCopied(*(int(source._database.row(statement)[0]) for statement in counts))


_AT_ONCE = 200
_MOST_NAMED = 3


class Copied(Struct, frozen=True):
    """What has become of one session: copied now, or there already and the same."""

    session_id: str
    messages: int
    was_there: bool


class SessionFingerprint(Struct, frozen=True):
    """Everything by which two copies of a session are compared."""

    row: SessionRow
    chain: bytes
    originals: list[OriginalRow]
    facts: list[FactRow]


def copy_sessions(source: SqlStore, target: SqlStore, terms_of: TermsOf) -> Iterator[Copied]:
    """Copy every session of a store that the other one does not have; one after the other."""
    same = _same_in_both(source, target)
    for row in _all(source):
        if row.id in same:
            yield Copied(row.id, row.messages, was_there=True)
        else:
            yield Copied(row.id, _copy(source, target, row.id, terms_of), was_there=False)


def count_messages(store: SqlStore) -> int:
    """How many messages all sessions have together."""
    return int(store._database.row("SELECT coalesce(sum(messages), 0) FROM sessions")[0])


def _same_in_both(source: SqlStore, target: SqlStore) -> set[str]:
    there = {row.id for row in _all(target)}
    both = [row.id for row in _all(source) if row.id in there]
    other = [session_id for session_id in both if _fingerprint(source, session_id) != _fingerprint(target, session_id)]
    if other:
        names = ", ".join(map(repr, other[:_MOST_NAMED])) + (", …" if len(other) > _MOST_NAMED else "")
        raise BadInput(
            f"{target.path} has {len(other):,} sessions of the same name that differ: {names}; nothing was copied. "
            "Try: an empty store."
        )
    return set(both)


def _all(store: SqlStore) -> Iterator[SessionRow]:
    after = ""
    while rows := store.sessions(limit=_AT_ONCE, after=after):
        yield from rows
        after = rows[-1].id


def _copy(source: SqlStore, target: SqlStore, session_id: str, terms_of: TermsOf) -> int:
    """One session with all it needs; how many messages it has. Meanwhile nobody writes to it, here nor there."""
    with source.writing(session_id) as row, target._database.writing():
        if target.open_session(session_id, row.profile, row.created_at).head:
            raise BadInput(f"{target.path}: another process has just created {session_id!r}. Try: run it again.")
        _copy_contents(source, target, session_id)
        _copy_log(source, target, row)
        _copy_originals(source, target, session_id, terms_of)
        for now, facts in groupby(source.facts(session_id), key=lambda fact: fact.updated_at):
            target.put_facts(session_id, facts, now)
        target.save_state(session_id, row.state)
        _prove(source, target, session_id)
        copy_work(source, target, session_id)
        return row.messages


def _copy_contents(source: SqlStore, target: SqlStore, session_id: str) -> None:
    """Every content is unpacked and hashed on its way."""
    names = sorted(needed_hashes(source._database, source._contents, source._sessions.number(session_id)))
    for at in range(0, len(names), _AT_ONCE):
        target._contents.put_packed(source._contents.packed(names[at : at + _AT_ONCE]))


def _copy_log(source: SqlStore, target: SqlStore, row: SessionRow) -> None:
    """The chain is made anew from the contents, so that it can be compared with that of the source."""
    for after in range(0, row.head, _AT_ONCE):
        entries = source.entries(row.id, after=after, until=min(after + _AT_ONCE, row.head))
        for kind, group in groupby(entries, key=lambda entry: entry.kind):
            some = list(group)
            times = [entry.created_at for entry in some]
            target.append(row.id, kind, (entry.body for entry in some), times[-1], times)
    target.append(row.id, MESSAGE, [], row.updated_at)


def _copy_originals(source: SqlStore, target: SqlStore, session_id: str, terms_of: TermsOf) -> None:
    missing = {each.original.number for each in source.unindexed(session_id)}
    for now, some in groupby(source.originals(session_id), key=lambda original: original.created_at):
        items = [_item(source, original, terms_of, is_indexed=original.number not in missing) for original in some]
        for at in range(0, len(items), _AT_ONCE):
            target.archive(session_id, items[at : at + _AT_ONCE], now)


def _item(source: SqlStore, original: OriginalRow, terms_of: TermsOf, *, is_indexed: bool) -> NewOriginal:
    runs = [
        PassageRun(count, size, terms_of(body), body)
        for count, size, body in source._originals.runs.of(original.number)
    ]
    known = structs.asdict(original)
    fields = {name: known[name] for name in NewOriginal.__struct_fields__ if name in known}
    return NewOriginal(**fields, runs=runs, is_indexed=is_indexed)


def _prove(source: SqlStore, target: SqlStore, session_id: str) -> None:
    problems = list(target._log.verify(session_id, target._sessions.number(session_id)))
    if problems or _fingerprint(source, session_id) != _fingerprint(target, session_id):
        raise DamagedContent(
            f"session {session_id!r} would not be the same in {target.path}; it was not copied. "
            f"Try: `compactor verify` on {source.path}."
        )


def _fingerprint(store: SqlStore, session_id: str) -> SessionFingerprint:
    return SessionFingerprint(
        store.session(session_id),
        store._log.end(store._sessions.number(session_id))[1],
        [structs.replace(each, number=0) for each in store.originals(session_id)],
        store.facts(session_id),
    )
