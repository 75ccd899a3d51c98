"""Deleting a session for good: from its store, and with it the files that were made from it."""

from __future__ import annotations

from collections.abc import Callable

from context_compactor.archive.export import remove_export
from context_compactor.archive.shelve import terms_of
from context_compactor.errors import BadCheckpoint, CompactorError, DamagedContent, StoreError
from context_compactor.events.bus import Bus
from context_compactor.events.event import make_event
from context_compactor.events.jsonl import JsonlSink
from context_compactor.files import naming_write_errors
from context_compactor.handoff.checkpoint_text import parse_checkpoint
from context_compactor.protocols import Store
from context_compactor.session.core import Clock, wall_clock
from context_compactor.session.project import Project, project_of
from context_compactor.session.values import read_profile
from context_compactor.settings import load_settings
from context_compactor.store.connect import connect
from context_compactor.store.rows import SessionRow


def delete_session(session_id: str, *, store: str | Store | None = None) -> None:
    """Delete the session of this id for good, without opening it; `UnknownSession` when there is none.

    `Session.delete` says what goes.
    """
    address = store if isinstance(store, str) else load_settings().settings.store if store is None else ""
    kept = connect(address, create=False) if store is None or isinstance(store, str) else store
    try:
        try:
            delete_from(kept, session_id, project=project_of(address) if address else None)
        finally:
            clear_deleted(kept)
    finally:
        if address:
            kept.close()


def delete_from(
    store: Store,
    session_id: str,
    *,
    bus: Bus | None = None,
    clock: Clock = wall_clock,
    project: Project | None = None,
    is_it: Callable[[SessionRow], None] = lambda _: None,
) -> None:
    """Delete a session of a store that is open, and tell so. `is_it` may refuse a row that is another session.

    From then on nobody finds it, and its files are gone. What it leaves behind in the store goes with `clear_deleted`.
    """
    bus = bus or Bus()
    with store.writing(session_id) as row:
        is_it(row)
        store.delete(session_id)
        event = make_event("session.deleted", session_id, {"messages": row.messages}, clock())
        bus.keep(event)
    bus.emit(event, is_kept=True)
    if project is not None:
        _remove_files(project, row)


def clear_deleted(store: Store) -> None:
    """Remove every trace of deleted sessions from a store, of one too whose deletion was interrupted.

    All other sessions are looked at, since what one of them needs must stay. Others write meanwhile.
    """
    try:
        store.clear_deleted(terms_of, thorough=True)
    except DamagedContent as error:
        raise StoreError(
            f"the session is deleted, but what it leaves behind stays in {store.path} while another one is damaged, "
            f"since nobody knows what that one needs: {error}. Try: `compactor verify`."
        ) from error


def _remove_files(project: Project, row: SessionRow) -> None:
    """What was made from the session in its project: the readable archive, its lines of the log, its checkpoint."""
    folder = _archive_dir(row)
    if folder is not None:
        remove_export(project.root / folder, row.id)
    JsonlSink(project.log_file).remove(row.id)
    if _is_checkpoint_of(project, row.id):
        with naming_write_errors(project.checkpoint_file):
            project.checkpoint_file.unlink(missing_ok=True)


def _archive_dir(row: SessionRow) -> str | None:
    try:
        return load_settings(read_profile(row.profile).settings).settings.archive_dir
    except CompactorError:  # what it was opened with cannot be read any more
        return load_settings().settings.archive_dir


def _is_checkpoint_of(project: Project, session_id: str) -> bool:
    try:
        text = project.checkpoint_file.read_text(encoding="utf-8", errors="replace")
        return parse_checkpoint(text).session_id == session_id
    except (OSError, BadCheckpoint):  # there is none, or it was cut off and is nobody's
        return False
