"""Opening a session, changing its settings, expiring old ones, and deleting one for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from context_compactor.archive.export import remove_export
from context_compactor.archive.storage import terms_of
from context_compactor.dialects.detection import find_dialect
from context_compactor.errors import (
    BadCheckpoint,
    BadMessage,
    BadSetting,
    CompactorError,
    DamagedContent,
    StoreError,
    UnknownSession,
)
from context_compactor.files import naming_write_errors
from context_compactor.handoff.checkpoint_text import parse_checkpoint
from context_compactor.json_values import read_json
from context_compactor.library import summarizer_for
from context_compactor.protocols import Model, Store
from context_compactor.sessions.core import Clock, Core, wall_clock
from context_compactor.sessions.events import Bus, JsonlSink
from context_compactor.sessions.holders import other_holders
from context_compactor.sessions.project import Project, project_of
from context_compactor.sessions.state import OS_USER, Profile, check_id, given_settings, read_profile, refuse_invisible
from context_compactor.settings import Settings, check_agent_model, load_settings, read_value, refuse_password
from context_compactor.store.connect import connect
from context_compactor.store.events import EVENT_TYPES, make_event
from context_compactor.store.rows import MESSAGE, SessionRow, timestamp

if TYPE_CHECKING:
    from context_compactor.sessions.core import Schedule

_MOST_BRANCHES = 10_000


def delete_session(session_id: str, *, store: str | Store | None = None) -> None:
    """Delete a session for good with its branches, without opening it; `UnknownSession` if there is none.

    `Session.delete` says what is deleted.
    """
    address = store if isinstance(store, str) else load_settings().settings.store if store is None else ""
    kept = connect(address, create=False) if store is None or isinstance(store, str) else store
    try:
        try:
            project = project_of(address) if address else None
            for branch in branch_rows(kept, session_id):
                delete_from(kept, branch.id, project=project)
            delete_from(kept, session_id, project=project)
        finally:
            clear_deleted(kept)
    finally:
        if address:
            kept.close()


def branch_rows(store: Store, root: str) -> list[SessionRow]:
    """The branches of a conversation, without the session that has its id."""
    rows = store.sessions(after=f"{root}~", limit=_MOST_BRANCHES)
    named = takewhile(lambda row: row.id.startswith(f"{root}~"), rows)
    return [row for row in named if read_profile(row.profile).root == root]


def delete_from(
    store: Store,
    session_id: str,
    *,
    bus: Bus | None = None,
    clock: Clock = wall_clock,
    project: Project | None = None,
    is_it: Callable[[SessionRow], None] = lambda _: None,
) -> None:
    """Delete a session of a store that is open, and emit that. `is_it` may refuse a row that is another session.

    From then on nobody finds it, and its files are gone. What it leaves behind in the store goes with `clear_deleted`.
    """
    bus = bus or Bus()
    with store.writing(session_id) as row:
        is_it(row)
        store.delete(session_id)
        event = make_event("session.deleted", session_id, {"messages": row.messages}, clock())
        bus.write_within(event)
    bus.emit(event, is_stored=True)
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
            f"the session is deleted, but its contents stay in {store.path} while another one is damaged, "
            f"since it is unknown which of them that session needs: {error}. Try: `compactor verify`."
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


_DAY = 24 * 60 * 60
# Recalls are many and would push the compactions out of the log.
_LOGGED = tuple(kind for kind in EVENT_TYPES if not kind.startswith("item.") and kind != "session.deleted")


def open_core(
    session_id: str,
    *,
    window: int | None = None,
    store: str | Store | None = None,
    dialect: str = "auto",
    model: str | None = None,
    settings: Settings | None = None,
    count_tokens: Callable[[str], int] | None = None,
    bus: Bus | None = None,
    clock: Clock = wall_clock,
    schedule: Schedule | None = None,
    summarizer: str | Model | None = None,
    tools: object = None,
    system: object = None,
    owner: str = "",
    is_embedded: bool = False,
    is_conversation: bool = False,
    branch: str | None = None,
) -> Core:
    """The inside of a session, made when there is none. One that `is_embedded` has no project, and so no files.

    Of what `is_conversation`, `branch` is opened, by default the one used last; without, the session of that very id.
    """
    check_id(session_id)
    check_agent_model(model, summarizer="")  # a session's model may be at an address
    refuse_password("model", model or "")
    refuse_invisible("model", model or "")
    loaded = settings or load_settings().settings
    address = store if isinstance(store, str) else loaded.store if store is None else ""
    kept = connect(address) if store is None or isinstance(store, str) else store
    given = given_settings(settings) if settings else {}
    named = given.pop("model", None)
    own = Profile(
        window=window,
        dialect=dialect,
        is_dialect_named=dialect != "auto",
        model=model or named,
        owner=owner,
        settings=given,
    )
    project = project_of(address) if address and not is_embedded else None
    bus = bus or Bus()
    core = Core(
        kept,
        session_id,
        own,
        loaded,
        bus=bus,
        project=project,
        clock=clock,
        count_tokens=count_tokens,
        schedule=schedule,
    )
    try:
        # what is neither is refused before anything is written
        core.counter(core.dialect([])).prompt_size(tools, system)
        if branch is not None:
            kept.session(session_id)
        _begin(core, own, settings)
        core = _find_branch(core, branch, own, settings) if is_conversation else core
        follow_log(core)
        if tools is not None or system is not None:
            core.set_prompt(tools, system)
        if summarizer is not None:
            core.use_summarizer(summarizer_for(core.settings, summarizer))
    except BaseException:
        if address:
            kept.close()
        raise
    return core


def continue_core(
    session_id: str,
    store: Store,
    bus: Bus,
    *,
    clock: Clock = wall_clock,
    count_tokens: Callable[[str], int] | None = None,
    schedule: Schedule | None = None,
) -> Core:
    """The inside of a session that is there, as it was when it was last open; else `UnknownSession`.

    A server or a worker opens it for somebody else, so no notice is shown here.
    """
    store.session(session_id)
    core = open_core(session_id, store=store, count_tokens=count_tokens, bus=bus, clock=clock, schedule=schedule)
    core.settings = structs.replace(core.settings, notify_on_compact=False)
    return core


def change_settings(session_id: str, store: Store, changes: Mapping[str, Any]) -> Settings:
    """Settings of a session that is there, for whoever opens it from now on; all that are then in force."""
    values = {name: msgspec.to_builtins(read_value(name, value, "session")) for name, value in changes.items()}
    with store.writing(session_id) as row:
        profile = read_profile(row.profile)
        model = values.pop("model", profile.model)
        known = {**profile.settings, **values}
        loaded = load_settings(known).settings  # all of them together must make sense
        store.save_profile(session_id, msgspec.json.encode(structs.replace(profile, model=model, settings=known)))
    return loaded


def _begin(core: Core, own: Profile, settings: Settings | None) -> None:
    core.budget(core.counter(core.dialect([])))  # a window that cannot be is refused before anything is written
    if core.project is not None:
        core.project.prepare()
    row = core.store.open_session(core.id, msgspec.json.encode(own), core.now())
    core.created_at = row.created_at
    stored = read_profile(row.profile)
    if own.dialect not in ("auto", stored.dialect):
        _refuse_other_dialect(core, stored.dialect, own.dialect)
    # Else one owner would get lessons of the other. A user of this machine owns what they begin; one who continues a
    # session leaves it to its owner, or to nobody.
    if stored.owner and own.owner not in ("", stored.owner) and not own.owner.startswith(OS_USER):
        raise BadSetting(
            f"owner: session {core.id!r:.80} belongs to {stored.owner!r:.80}, not to {own.owner!r:.80}. "
            "Try: without an owner, or another session."
        )
    _continue(core, stored, own, settings)
    core.budget(core.counter(core.dialect()))


def follow_log(core: Core) -> None:
    """Write the events of this session to the log of its project, until it is unsubscribed."""
    if core.project is not None:
        core.unsubscribe = core.bus.subscribe(JsonlSink(core.project.log_file), types=_LOGGED, session_id=core.id)


def open_branch(core: Core, session_id: str) -> Core:
    """The inside of another branch, with everything else as in this one; `UnknownSession` when it is not there."""
    row = core.store.session(session_id)
    branch = copy(core)
    branch.id, branch.created_at, branch.profile = session_id, row.created_at, read_profile(row.profile)
    branch.unsubscribe = lambda: None
    branch.reset_reading()
    return branch


def _find_branch(core: Core, name: str | None, own: Profile, settings: Settings | None) -> Core:
    """The branch of a conversation with this id, opened with the same options; by default the one used last."""
    wanted = core.profile.branch if name is None else name
    if core.profile.root and wanted != core.id:
        raise BadSetting(
            f"{core.id!r:.80} is a branch of {core.profile.root!r:.80}. Try: Session.open({core.profile.root!r:.80}, "
            f"branch={core.id!r:.80})."
        )
    if wanted in ("", core.id):
        return core
    try:
        branch = open_branch(core, wanted)
    except UnknownSession:
        if name is None:  # it was deleted
            return core
        raise
    if branch.profile.root != core.id:
        raise BadSetting(f"branch: {wanted!r:.80} is not a branch of session {core.id!r:.80}")
    _continue(branch, branch.profile, own, settings)
    return branch


def _refuse_other_dialect(core: Core, known: str, given: str) -> None:
    """Raise `BadSetting` when messages that are there cannot be read in another dialect. Plain words can, in any."""
    entries = core.store.entries(core.id, kinds=(MESSAGE,))
    try:
        find_dialect(given, ()).parse([read_json(entry.body) for entry in entries])
    except BadMessage as error:
        raise BadSetting(
            f"dialect: the messages of {core.id!r:.80} are {known}, not {given} ({error}). "
            "Try: without a dialect, or another session."
        ) from error


def expire_old(store: Store, settings: Settings, clock: Clock, spare: str = "") -> None:
    """Delete the sessions that nobody has used for as long as the settings say; never one that is open, or `spare`."""
    if settings.retention_days is not None:
        now = clock()
        spared = {spare, *(session_id for session_id, _, _ in other_holders(store, now))}
        for name in [*spared]:  # a conversation is in use as long as one of its branches is
            with suppress(UnknownSession):
                spared.add(read_profile(store.session(name).profile).root)
        store.expire(timestamp(now, -settings.retention_days * _DAY), spared)
        store.clear_deleted(terms_of)


def _continue(core: Core, stored: Profile, own: Profile, settings: Settings | None) -> None:
    """What was not given is as it was."""
    profile = Profile(
        window=own.window or stored.window,
        dialect=own.dialect if own.dialect != "auto" else stored.dialect,
        is_dialect_named=own.is_dialect_named or stored.is_dialect_named,
        model=own.model or stored.model,
        prompt=stored.prompt,
        owner=stored.owner or ("" if own.owner.startswith(OS_USER) else own.owner),
        settings=own.settings if settings else stored.settings,
        largest_prompt=stored.largest_prompt if own.model in (None, stored.model) else 0,
        offers_recall=stored.offers_recall,
        root=stored.root,
        branch=stored.branch,
    )
    if settings is None and stored.settings:
        core.settings = load_settings(stored.settings).settings
    if profile != stored:
        core.save_profile(profile)
    core.profile = profile
