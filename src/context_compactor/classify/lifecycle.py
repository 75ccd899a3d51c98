"""The life of files: which reads are outdated, which exchange shows a file as it is now, what is not committed."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from context_compactor.classify.calls import Reading, read_call
from context_compactor.classify.failures import find_failures
from context_compactor.classify.paths import absolute, first_folder, folder_of, full_names
from context_compactor.classify.scripts import is_script_run, paths_in_script
from context_compactor.classify.shell_files import paths_written
from context_compactor.classify.working_tree import Commit, Listing, WorkingTree
from context_compactor.messages.turn import ToolUse, Turn

_WHOLE_FILE_TOOLS = frozenset("write writefile writetofile createfile savefile filewrite fswrite create".split())
_WRITING_PROGRAMS = frozenset("cat tee echo printf".split())
_SCRATCH = ("/tmp/", "/private/tmp/", "/var/folders/", "/private/var/folders/", "/dev/")
# Folders of tools: what is in them belongs to no project, or to git itself.
_APART = re.compile(r"/\.git/|^(?:~|/root|/(?:home|Users)/[^/]+)/\.")
_PATCHED = re.compile(r"\*\*\* (Add|Delete) File: ([^\n\\]{1,400})")
_SCRIPTS = (".py", ".js", ".mjs", ".ts", ".rb")
_VARIABLE = re.compile(r"[$*`{}\n]")
_MOST_TEXT = 40_000


class FileRead(Struct, frozen=True):
    """One look at a file, from line `first` to `last`; `last` is None when it goes to the end."""

    exchange: int
    turn: int
    first: int = 1
    last: int | None = None
    ranged: bool = True

    def covers(self, other: FileRead) -> bool:
        """Whether this read is known to show every line of the other."""
        if not self.ranged:
            return False
        if not other.ranged:
            return self.first == 1 and self.last is None
        ends_after = self.last is None or (other.last is not None and other.last <= self.last)
        return self.first <= other.first and ends_after


class FileWrite(Struct, frozen=True):
    """One change of a file: `created`, `edited`, `deleted` or `restored` to what was committed.

    `whole`: the call holds the new content in full.
    """

    exchange: int
    turn: int
    action: str = "edited"
    whole: bool = False


class FileRecord(Struct, frozen=True):
    """All that happened to one file, in order.

    `standing` are its changes that were not undone and, where it has uncommitted ones, only these; `diff` is the
    exchange in which git showed them, 0 when it did not.
    """

    path: str
    reads: tuple[FileRead, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    standing: tuple[FileWrite, ...] = ()
    is_uncommitted: bool = False
    is_committed: bool = False
    diff: int = 0

    @property
    def latest(self) -> int:
        """The exchange that shows the newest state: the last read or the last full write, whichever came later."""
        shown = [read.exchange for read in self.reads] + [write.exchange for write in self.writes if write.whole]
        return max(shown or [write.exchange for write in self.writes])

    @property
    def turns(self) -> tuple[int, int]:
        """The turns in which the file was first and last touched."""
        ends = [touches[at].turn for touches in (self.reads, self.writes) if touches for at in (0, -1)]
        return min(ends), max(ends)

    @property
    def status(self) -> str:
        """What became of the file in this session: `created`, `edited`, `deleted` or only `read`."""
        if not self.standing:
            return "edited" if self.is_uncommitted else "read"
        if self.standing[-1].action == "deleted":
            return "deleted"
        return "created" if self.standing[0].action == "created" else "edited"

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of the file that matters: it was made and removed again, or a scratch file."""
        if not self.writes or self.writes[-1].action != "deleted" or self.is_committed:
            return False
        return self.writes[0].action == "created" or not self.is_uncommitted


class FileLife(Struct, frozen=True):
    """The files of a session by path, in the order in which they were met. Exchanges are named by number.

    `superseded` maps a read to a later exchange that shows the same lines again (or replaced the file);
    `stale` maps a read to the first change of its file after it.
    """

    files: dict[str, FileRecord]
    superseded: dict[int, int]
    stale: dict[int, int]

    @property
    def latest(self) -> dict[str, int]:
        """For each path the exchange that shows its newest state."""
        return {path: record.latest for path, record in self.files.items()}

    @property
    def uncommitted(self) -> tuple[str, ...]:
        """Files changed since the last commit that was seen."""
        return tuple(path for path, record in self.files.items() if record.is_uncommitted)

    @property
    def loaded(self) -> int:
        """How many files have been read."""
        return sum(1 for record in self.files.values() if record.reads)


Touch = FileRead | FileWrite


def file_life(turns: Sequence[Turn], failed: Collection[int] | None = None) -> FileLife:
    """What happened to each file. `failed` names the exchanges that did not do what they were asked to do."""
    if failed is None:
        failed = {failure.exchange for failure in find_failures(turns)}
    touched: dict[str, list[Touch]] = {}
    folder = first_folder(turns)
    tree = WorkingTree(folder)
    scripts: dict[str, tuple[str, ...]] = {}
    for turn in turns:
        for exchange in turn.exchanges:
            if exchange.call is None:
                continue
            reading = read_call(exchange.call)
            here = folder_of(reading, folder)
            # An agent that goes to a scratch folder for a moment is elsewhere with its next command.
            folder = folder if f"{here}/".startswith(_SCRATCH) else here
            is_undone = exchange.number in failed or exchange.is_lost
            if reading.steps:
                tree.follow(exchange, reading, here, is_undone)
            if (is_undone and not _may_have_written(reading)) or _shows_nothing(exchange):
                continue
            for path, touch in _touches(exchange, turn.number, reading, here, touched, scripts):
                touched.setdefault(path, []).append(touch)
    return _gather(touched, tree)


def _touches(
    exchange: ToolUse,
    turn: int,
    reading: Reading,
    folder: str,
    touched: dict[str, list[Touch]],
    scripts: dict[str, tuple[str, ...]],
) -> Iterator[tuple[str, Touch]]:
    """What a call does to each of its files, and to those that a script it runs writes."""
    actions = paths_written(reading.steps) if reading.writes else {}
    for named in reading.paths if reading.reads or reading.writes else ():
        if _VARIABLE.search(named):
            continue
        path = absolute(named, folder)
        if actions.get(named) == "restored" and path not in touched:
            continue
        yield path, _touch(exchange, turn, reading, path, path in touched, actions.get(named, ""))
        if actions.get(named) == "deleted":
            below = [each for each in touched if each.startswith(f"{path}/")]
            yield from ((each, FileWrite(exchange.number, turn, "deleted")) for each in below)
        if reading.writes and path.endswith(_SCRIPTS):
            text = reading.command or reading.arguments.get("content") or reading.arguments.get("file_text")
            scripts[path] = paths_in_script(text) if isinstance(text, str) else ()
    for step in reading.steps if scripts else ():
        if is_script_run(step):
            run = (absolute(word, folder) for word in step.words[1:3])
            written = [path for each in run for path in scripts.get(each, ()) if not _VARIABLE.search(path)]
            yield from ((absolute(path, folder), FileWrite(exchange.number, turn)) for path in written)


def _shows_nothing(exchange: ToolUse) -> bool:
    """Whether a read was answered with a hint that the file is as it was."""
    answer = exchange.result.text[:200] if exchange.result else ""
    return answer.startswith("File unchanged since last read")


def _may_have_written(reading: Reading) -> bool:
    """A command that failed may have written its files before it did; a failed edit has not."""
    return reading.writes and reading.command is not None


def _touch(exchange: ToolUse, turn: int, reading: Reading, path: str, known: bool, done: str) -> Touch:
    if reading.writes:
        whole = _is_whole(reading, path)
        is_new = not known and (whole or done == "written")
        return FileWrite(exchange.number, turn, _action(exchange, path, done, is_new), whole)
    first, last = reading.lines or (1, None)
    # With several files in one command it is not known which lines are whose; line 0 means that the place is unknown.
    is_known = first > 0 and (len(reading.paths) == 1 or reading.lines is None)
    return FileRead(exchange.number, turn, first, last, is_known)


def _action(exchange: ToolUse, path: str, done: str, is_new: bool) -> str:
    if done in ("deleted", "restored"):
        return done
    arguments = exchange.call.arguments[:_MOST_TEXT] if exchange.call else ""
    for action, named in _PATCHED.findall(arguments) if "*** " in arguments else ():
        if posixpath.basename(named.strip()) == posixpath.basename(path):
            return "created" if action == "Add" else "deleted"
    answer = exchange.result.text[:120] if exchange.result else ""
    return "created" if is_new or "File created" in answer else "edited"


def _is_whole(reading: Reading, path: str) -> bool:
    if reading.tool in _WHOLE_FILE_TOOLS or reading.arguments.get("command") == "create":
        return True
    name = posixpath.basename(path)
    writers = (step for step in reading.steps if step.words and step.program in _WRITING_PROGRAMS)
    return any(posixpath.basename(step.writes) == name for step in writers)


def _gather(touched: dict[str, list[Touch]], tree: WorkingTree) -> FileLife:
    names = full_names((*touched, *tree.listed))
    joined: dict[str, list[Touch]] = {}
    for path, touches in touched.items():
        joined.setdefault(names[path], []).extend(touches)
    listed = {names[path]: listing for path, listing in tree.listed.items()}
    files = {path: _record(path, touches, tree, listed.get(path)) for path, touches in joined.items()}
    superseded: list[dict[int, int]] = [_superseded(record) for record in files.values()]
    stale = [_stale(record) for record in files.values()]
    return FileLife(files, _for_all_files(superseded, files), _for_any_file(stale))


def _record(path: str, touches: list[Touch], tree: WorkingTree, listing: Listing | None) -> FileRecord:
    """What happened to a file; `listing` is what git said of it last."""
    ordered = sorted(touches, key=lambda touch: touch.exchange)
    reads = tuple(touch for touch in ordered if isinstance(touch, FileRead))
    writes = tuple(touch for touch in ordered if isinstance(touch, FileWrite))
    is_listed = listing is not None and (listing.is_tracked or bool(writes))
    if not writes and not is_listed:
        return FileRecord(path, reads)
    taken, clean, resets = (_taking(path, each, tree.root) for each in (tree.commits, tree.clean, tree.resets))
    undone = max((*resets, *(write.exchange for write in writes if write.action == "restored")), default=0)
    settled = max((*taken, *clean, undone), default=0)
    committed = tuple(write for write in writes if any(write.exchange <= number for number in taken))
    pending = tuple(write for write in writes if write.exchange > settled)
    if path.startswith(_SCRATCH) or _APART.search(path):
        return FileRecord(path, reads, writes, writes)
    kept = committed if undone or committed else writes
    diff = listing.diff if listing and is_listed else 0
    return FileRecord(path, reads, writes, pending or kept, bool(pending) or is_listed, bool(committed), diff)


def _taking(path: str, commits: Sequence[Commit], root: str) -> list[int]:
    return [commit.exchange for commit in commits if commit.takes(path, root)]


def _superseded(record: FileRecord) -> dict[int, int]:
    found: dict[int, int] = {}
    replaced = [write.exchange for write in record.writes if write.whole or write.action == "deleted"]
    for at, read in enumerate(record.reads):
        covering = [later.exchange for later in record.reads[at + 1 : at + 40] if later.covers(read)]
        later = [*covering[-1:], *(number for number in replaced[-1:] if number > read.exchange)]
        if later:
            found[read.exchange] = max(later)
    return found


def _stale(record: FileRecord) -> dict[int, int]:
    changes = [write.exchange for write in record.writes]
    first_after = ((read.exchange, bisect_right(changes, read.exchange)) for read in record.reads)
    return {number: changes[at] for number, at in first_after if at < len(changes)}


def _for_all_files(found: list[dict[int, int]], files: dict[str, FileRecord]) -> dict[int, int]:
    """A command that showed several files is superseded only when each of them is."""
    shown: dict[int, int] = {}
    for record in files.values():
        for number in {read.exchange for read in record.reads}:
            shown[number] = shown.get(number, 0) + 1
    later: dict[int, list[int]] = {}
    for each in found:
        for number, by in each.items():
            later.setdefault(number, []).append(by)
    return {number: max(by) for number, by in sorted(later.items()) if len(by) == shown[number]}


def _for_any_file(found: list[dict[int, int]]) -> dict[int, int]:
    merged: dict[int, int] = {}
    for each in found:
        for number, by in each.items():
            merged[number] = min(by, merged.get(number, by))
    return dict(sorted(merged.items()))
