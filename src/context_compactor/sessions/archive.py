"""The session's archive: archiving everything said so far, and the readable export in the project."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from context_compactor.archive.export import MANIFEST, Exported, export_folder, read_file, session_folder
from context_compactor.archive.originals import Original, turn_original
from context_compactor.archive.storage import load_originals
from context_compactor.dialects.turns import Turn
from context_compactor.engine.classify import Verdicts, result_original
from context_compactor.engine.digests import digest
from context_compactor.errors import BadSetting
from context_compactor.facts.calls import is_own_tool
from context_compactor.facts.kinds import Kind
from context_compactor.files import keep_out_of_commits
from context_compactor.sessions.append import share_now
from context_compactor.sessions.commit import archive, as_logged
from context_compactor.sessions.core import Core, ParsedSession
from context_compactor.sessions.state import read_session_state
from context_compactor.summarize.model import Control
from context_compactor.tokens.counting import MessageCounter

# So many are written at once: an agent that gives up on a hook takes back no more than these.
_AT_ONCE = 1_000


class ArchiveScan(Struct, frozen=True):
    """A parsed context, and what of it was not archived yet."""

    parsed: ParsedSession
    new: list[Original]


def scan_unarchived(core: Core, *, is_closed: bool, is_gone: bool = False) -> ArchiveScan:
    """What is to be archived. A turn that may still grow waits: the last one, unless the conversation `is_closed`.

    So does one whose calls have no results yet, unless all of it `is_gone` from the agent's window.
    """
    parsed = core.parse_context()
    turns = [turn for turn in parsed.content.turns if not turn.is_fixed]
    growing = set() if is_closed else {turn.number for turn in turns[-1:]}
    if not is_gone:
        growing |= {turn.number for turn in turns if any(each.result is None for each in turn.exchanges)}
    known = {each.ref for each in core.store.originals(core.id)}
    found = _originals(turns, parsed.content.verdicts, core.counter(parsed.dialect), growing)
    new = [original for original in found if original.id not in known]
    return ArchiveScan(parsed, as_logged(new, parsed.spans(), parsed.context, core.store, core.id))


def archive_history(core: Core, *, is_closed: bool = False, is_gone: bool = False) -> ArchiveScan:
    """Archive what is not archived yet, on the disk when it returns."""
    scan = scan_unarchived(core, is_closed=is_closed, is_gone=is_gone)
    for start in range(0, len(scan.new), _AT_ONCE):
        archive(core, scan.new[start : start + _AT_ONCE])
    return scan


def archive_early(core: Core, control: Control | None = None) -> int:
    """Archive and index ahead of a compaction that is near, which then has a third less to do; how many originals.

    Nothing is done for a session that does not compact by itself, or that has less than a compaction would leave.
    """
    settings = core.settings
    if not (settings.enabled and settings.automatic):
        return 0
    if share_now(core, read_session_state(core.row().state)) < min(rule.target for rule in settings.levels):
        return 0
    new = archive_history(core).new
    core.index(control)
    return len(new)


def _originals(
    turns: Sequence[Turn], verdicts: Verdicts, counter: MessageCounter, growing: Collection[int]
) -> Iterator[Original]:
    for turn in turns:
        if turn.number not in growing:
            yield turn_original(turn, sum(counter.count_many(turn.messages)))
        for exchange in turn.exchanges:
            if exchange.result is not None and not is_own_tool(exchange.call):  # what it returned is archived already
                yield result_original(exchange, verdicts.exchanges[exchange.number])


EXPORTED = "exported_up_to"
"""A note: the id of the last original in the readable archive, and how many there are."""

_LARGE_ARCHIVE, _EXPORT_FRACTION = 2_000, 20


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
    if not new or (count > _LARGE_ARCHIVE and len(new) * _EXPORT_FRACTION < count and not all_of_it):
        return
    export_folder(folder, core.id, load_originals(new, core.store), core.now(), summarize=describe_original)
    keep_out_of_commits(folder)
    core.note(EXPORTED, (new[-1].ref, count + len(new)))


def _exported(core: Core, folder: Path) -> tuple[int, int]:
    """The number of the last original in the readable archive, and how many there are.

    A store may have been copied away from the archive, which then begins anew.
    """
    ref, count = read_session_state(core.row().state).notes.get(EXPORTED, ("", 0))
    is_there = read_file(session_folder(folder, core.id) / MANIFEST) is not None
    last = core.store.original(core.id, ref) if is_there and ref else None
    return (last.number, count) if last else (0, 0)


def export_all(core: Core, folder: Path | None) -> Exported:
    """Write every archived original below a folder; without one, to the project's readable archive."""
    place = core.project.root / core.settings.archive_dir if core.project and core.settings.archive_dir else None
    if folder is None and place is None:
        raise BadSetting(
            "export: no folder is set: the store is in memory, or the setting `archive_dir` is empty. "
            "Try: give a folder (`--dir` on the command line)."
        )
    rows = core.store.originals(core.id)
    originals = load_originals(rows, core.store) if rows else []
    exported = export_folder(folder or place or Path(), core.id, originals, core.now(), summarize=describe_original)
    if folder is None and rows:
        core.note(EXPORTED, (rows[-1].ref, len(rows)))
    return exported


def describe_original(original: Original) -> str:
    """What a reader of the readable archive gets to know of a file."""
    known = {kind.value: kind for kind in Kind}
    short = digest(known[original.kind], None, original.text) if original.kind in known else ""
    return f"{original.summary}\n{short}" if short else original.summary
