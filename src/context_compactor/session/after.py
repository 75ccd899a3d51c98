"""What follows a compaction and can be made again from the store: the readable archive, and what was learned."""

from __future__ import annotations

from context_compactor.apply.digests import digest
from context_compactor.archive.archive import Original
from context_compactor.archive.export import export_folder
from context_compactor.archive.shelve import read_originals
from context_compactor.classify.kinds import Kind
from context_compactor.session.core import Core
from context_compactor.session.project import keep_out_of_commits
from context_compactor.session.values import read_state

EXPORTED = "exported"
_LARGE, _SHARE = 2_000, 20


def export_new(core: Core) -> None:
    """Add what was archived since the last time to the project's readable archive.

    Its files are written whole. So that a long session does not write them for every little, what is less than a
    twentieth of a large archive waits for more; `compactor export` writes all of it.
    """
    if core.project is None or core.settings.archive_dir is None:
        return
    done, count = read_state(core.store.session(core.id).state).notes.get(EXPORTED, (0, 0))
    new = core.store.originals(core.id, after=done)
    if not new or (count > _LARGE and len(new) * _SHARE < count):
        return
    folder = core.project.root / core.settings.archive_dir
    export_folder(folder, core.id, read_originals(new, core.store), core.now(), summarize=summarize)
    keep_out_of_commits(folder)
    core.note(EXPORTED, (new[-1].number, count + len(new)))


def summarize(original: Original) -> str:
    """What a reader of the readable archive is told of a file."""
    known = {kind.value: kind for kind in Kind}
    short = digest(known[original.kind], None, original.text) if original.kind in known else ""
    return f"{original.summary}\n{short}" if short else original.summary
