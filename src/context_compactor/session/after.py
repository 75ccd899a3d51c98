"""What follows a compaction and can be made again from the store: the readable archive, and what was learned."""

from __future__ import annotations

from pathlib import Path

from context_compactor.apply.digests import digest
from context_compactor.archive.archive import Original
from context_compactor.archive.export import Exported, export_folder, session_folder
from context_compactor.archive.export_read import MANIFEST, read_file
from context_compactor.archive.shelve import read_originals
from context_compactor.classify.kinds import Kind
from context_compactor.errors import BadSetting
from context_compactor.files import keep_out_of_commits
from context_compactor.session.core import Core
from context_compactor.session.values import read_state

EXPORTED = "exported_up_to"
"""A note: the id of the last original in the readable archive, and how many there are."""

_LARGE, _SHARE = 2_000, 20


def export_new(core: Core, *, all_of_it: bool = False) -> None:
    """Add what was archived since the last time to the project's readable archive.

    Its files are written whole. So that a long session does not write them for every little, what is less than a
    twentieth of a large archive waits for more, or until `all_of_it` is wanted at the end.
    """
    if core.project is None or core.settings.archive_dir is None:
        return
    folder = core.project.root / core.settings.archive_dir
    done, count = _exported(core, folder)
    new = core.store.originals(core.id, after=done)
    if not new or (count > _LARGE and len(new) * _SHARE < count and not all_of_it):
        return
    export_folder(folder, core.id, read_originals(new, core.store), core.now(), summarize=summarize)
    keep_out_of_commits(folder)
    core.note(EXPORTED, (new[-1].ref, count + len(new)))


def _exported(core: Core, folder: Path) -> tuple[int, int]:
    """The number of the last original in the readable archive, and how many there are.

    A store may have been copied away from the archive, which then begins anew.
    """
    ref, count = read_state(core.row().state).notes.get(EXPORTED, ("", 0))
    is_there = read_file(session_folder(folder, core.id) / MANIFEST) is not None
    last = core.store.original(core.id, ref) if is_there and ref else None
    return (last.number, count) if last else (0, 0)


def export_all(core: Core, folder: Path | None) -> Exported:
    """Write every archived original below a folder; without one, to the project's readable archive."""
    place = core.project.root / core.settings.archive_dir if core.project and core.settings.archive_dir else None
    if folder is None and place is None:
        raise BadSetting(
            "export: there is no folder for it, since the store is in memory or the setting `archive_dir` is none. "
            "Try: name a folder (`--dir` on the command line)."
        )
    shelved = core.store.originals(core.id)
    originals = read_originals(shelved, core.store) if shelved else []
    exported = export_folder(folder or place or Path(), core.id, originals, core.now(), summarize=summarize)
    if folder is None and shelved:
        core.note(EXPORTED, (shelved[-1].ref, len(shelved)))
    return exported


def summarize(original: Original) -> str:
    """What a reader of the readable archive is told of a file."""
    known = {kind.value: kind for kind in Kind}
    short = digest(known[original.kind], None, original.text) if original.kind in known else ""
    return f"{original.summary}\n{short}" if short else original.summary
