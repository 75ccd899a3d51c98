"""What happened to each file: reads, changes, commits, and which read shows it as it is now."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from context_compactor.dialects.turns import ToolUse, Turn
from context_compactor.facts.calls import ParsedCall, parse_call
from context_compactor.facts.failures import find_failures
from context_compactor.facts.outputs import unwrap
from context_compactor.facts.shell import ShellStep, is_script_run, paths_in_script, paths_written

_FOLDER = re.compile(r"<cwd>\s{0,4}([^<\n]{1,400}?)\s{0,4}</cwd>|\b[Ww]orking directory: (/[^\n]{1,400})")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_MOST_TEXT = 40_000


def working_folder(turns: Sequence[Turn]) -> str:
    """The folder that is named in the text before an agent's first steps; empty when none is."""
    for turn in turns[:8]:
        for message in turn.messages:
            text = message.text[:_MOST_TEXT] if message.role != "assistant" else ""
            found = _FOLDER.search(text) if "cwd>" in text or "orking directory" in text else None
            if found:
                return (found[1] or found[2]).strip()
    return ""


def folder_of_call(parsed: ParsedCall, folder: str) -> str:
    """The folder a call works in, when the one before it worked in `folder`."""
    named = parsed.arguments.get("workdir") or parsed.arguments.get("cwd")
    if isinstance(named, str) and named.startswith("/"):
        folder = named
    first = parsed.steps[0].words if parsed.steps else ()
    return absolute_path(first[1], folder) if len(first) == 2 and first[0] == "cd" else folder


def absolute_path(path: str, folder: str) -> str:
    """A path without dots, joined to its folder when it is relative."""
    if _DRIVE.match(path):
        path = path.replace("\\", "/")
    elif folder and not path.startswith(("/", "~")):
        path = posixpath.join(folder, path)
    return posixpath.normpath(path) if path else path


def full_paths(paths: Iterable[str]) -> dict[str, str]:
    """For each path the one absolute path that ends in it, or itself when there is none or more than one."""
    known = dict.fromkeys(paths)
    by_name: dict[str, list[str]] = {}
    for path in known:
        if path.startswith("/"):
            by_name.setdefault(posixpath.basename(path), []).append(path)
    found = dict(zip(known, known, strict=True))
    for path in known:
        fitting = [each for each in by_name.get(posixpath.basename(path), ()) if each.endswith(f"/{path}")]
        if len(fitting) == 1 and not path.startswith(("/", "~")):
            found[path] = fitting[0]
    return found


def common_root(paths: Sequence[str], share: float = 0.6) -> str:
    """The deepest folder that holds most of the paths, with its slash; empty when there is none below two levels."""
    counts: dict[str, int] = {}
    for path in paths:
        folders = path.split("/")[:-1]
        for depth in range(3, len(folders) + 1):
            folder = "/".join(folders[:depth]) + "/"
            counts[folder] = counts.get(folder, 0) + 1
    common = [folder for folder, count in counts.items() if count >= share * len(paths)]
    return max(common, key=len) if common else ""


def label_root(paths: Sequence[str]) -> str:
    """The folder that need not be repeated with every path: above the common one, so that a folder stays in sight."""
    root = common_root(paths)
    return root[: root.rstrip("/").rfind("/") + 1] if root.count("/") > _SHALLOW else ""


_SHALLOW = 3


_COMMITTED = re.compile(r"^\[[^\]\n]{1,200} [0-9a-f]{7,40}\]", re.MULTILINE)
_SHORT_STATUS = re.compile(r"^(?:([ MADRCUT?]{2}) )(?:.{1,300} -> )?\"?([^\n\"]{1,300})\"?$", re.MULTILINE)
_LONG_STATUS = re.compile(
    r"^\t((?:modified|new file|deleted|renamed|both modified|typechange): +)?([^\n:]{1,300})$", re.MULTILINE
)
_DIFF = re.compile(r"^diff --git a/\S{1,300} b/(\S{1,300})$", re.MULTILINE)
_STAT = re.compile(r"^ (\S{1,300}) +\| +\d+ [+-]", re.MULTILINE)
_CLEAN = re.compile(r"nothing to commit, working (?:tree|directory) clean")
_COMMIT_ALL = re.compile(r"-[a-z]*a[a-z]*|--all")
_ADD_ALL = frozenset(("-A", "--all", "-u", "--update", ".", ":/", "-p", "--patch", "*"))
_CONTINUES = frozenset(("rebase", "merge", "cherry-pick", "revert"))
_MOST_GIT_OUTPUT = 20_000


class Commit(Struct, frozen=True):
    """A commit in a folder. `paths` are the files that it took in; None: whatever was changed there."""

    exchange: int
    folder: str
    paths: tuple[str, ...] | None = None

    def takes(self, path: str, root: str) -> bool:
        """Whether a file that was changed before is in this commit. `root` is the folder the session began in."""
        if self.paths is not None:
            return any(_is_within(path, each) for each in self.paths)
        if not path.startswith("/") or not self.folder:
            return True
        is_below_root = bool(root) and all(f"{each}/".startswith(f"{root}/") for each in (path, self.folder))
        return path.startswith(f"{self.folder.rstrip('/')}/") or is_below_root


class GitListing(Struct, frozen=True):
    """That git names a file as changed. `diff` is the exchange that shows how, 0 when none does."""

    is_tracked: bool = True
    diff: int = 0


class WorkingTree:
    """Follows a session's git commands, one exchange after the other."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.commits: list[Commit] = []
        self.clean: list[Commit] = []
        """Where git said that nothing was uncommitted."""
        self.resets: list[Commit] = []
        """Where all that was uncommitted was undone."""
        self.listed: dict[str, GitListing] = {}
        """Files that git has named as changed since."""
        self._staged: list[str] | None = []
        self._patches: set[str] = set()

    def follow(self, exchange: ToolUse, parsed: ParsedCall, folder: str, failed: bool) -> None:
        """Take in what a command did, and what it showed."""
        text = exchange.result.text if exchange.result else ""
        for step in parsed.steps:
            if step.program == "git":
                self._follow_git(exchange.number, step, folder, text, failed)
        if (
            self._patches
            and parsed.reads
            and not self._patches.isdisjoint(absolute_path(path, folder) for path in parsed.paths)
        ):
            self._list(_DIFF.findall(text[:_MOST_GIT_OUTPUT]), folder, GitListing(diff=exchange.number))

    def _follow_git(self, number: int, step: ShellStep, folder: str, text: str, failed: bool) -> None:
        words, folder = _in_folder(step.words, folder)
        action = words[0] if words else ""
        if action == "add":
            self._stage(words[1:], folder)
        elif action == "commit" or (action in _CONTINUES and "--continue" in words):
            if "--dry-run" not in words and (not failed or _COMMITTED.search(text[:_MOST_GIT_OUTPUT])):
                self._commit(number, words, folder)
        elif (action == "reset" and "--hard" in words) or (action == "checkout" and words[1:] in ((".",), ("--", "."))):
            self.resets.append(Commit(number, folder))
            self._unlist(self.resets[-1])
        elif action in ("checkout", "restore") and self.listed:
            for path in paths_written((step,)):
                self.listed.pop(absolute_path(path, folder), None)
        elif action in ("status", "diff") and not failed:
            self._read(number, action, step, words, folder, text)

    def _stage(self, words: Iterable[str], folder: str) -> None:
        named = [word for word in words if not word.startswith("-") or word in _ADD_ALL]
        if self._staged is None or not _ADD_ALL.isdisjoint(named) or any("$" in word or "*" in word for word in named):
            self._staged = None
        else:
            self._staged += [absolute_path(word.rstrip("/"), folder) for word in named]

    def _commit(self, number: int, words: tuple[str, ...], folder: str) -> None:
        takes_all = any(_COMMIT_ALL.fullmatch(word) for word in words[1:4])
        named = words[words.index("--") + 1 :] if "--" in words else ()
        # Nothing was seen to be staged: it was before, or elsewhere.
        paths = None if takes_all or not self._staged else tuple(self._staged)
        paths = tuple(absolute_path(word, folder) for word in named) or paths
        commit = Commit(number, folder, paths)
        self.commits.append(commit)
        self._staged = []
        self._unlist(commit)

    def _unlist(self, commit: Commit) -> None:
        self.listed = {path: listing for path, listing in self.listed.items() if not commit.takes(path, self.root)}

    def _read(self, number: int, action: str, step: ShellStep, words: tuple[str, ...], folder: str, text: str) -> None:
        if step.writes:
            self._patches.add(absolute_path(step.writes, folder))
            return
        if action == "diff" and any(_is_revision(word) for word in words[1:]):
            return
        body = unwrap(text[:_MOST_GIT_OUTPUT]).body
        if action == "diff":
            self._list(_STAT.findall(body), folder, GitListing())
            self._list(_DIFF.findall(body), folder, GitListing(diff=number))
        elif _CLEAN.search(body):
            self.clean.append(Commit(number, folder))
            self._unlist(self.clean[-1])
        else:
            for path, is_tracked in _status_paths(body):
                self._list((path,), folder, GitListing(is_tracked))

    def _list(self, paths: Iterable[str], folder: str, listing: GitListing) -> None:
        for named in paths:
            path = absolute_path(named, folder)
            before = self.listed.get(path)
            self.listed[path] = before if before and before.diff and not listing.diff else listing


def _is_within(path: str, named: str) -> bool:
    """Whether a path is the named one or below it. One that is not absolute may begin anywhere in the path."""
    if named.startswith("/") == path.startswith("/"):
        return path == named or path.startswith(f"{named}/")
    return f"/{named}/" in f"/{path}/"


def _in_folder(words: tuple[str, ...], folder: str) -> tuple[tuple[str, ...], str]:
    """A git command's own words, and the folder it works in."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-C" and at + 1 < len(words):
            folder = absolute_path(words[at + 1], folder)
        at += 2 if words[at] in ("-C", "-c") else 1
    return words[at:], folder


def _is_revision(word: str) -> bool:
    """Whether a word of `git diff` compares with something else than the newest commit."""
    if word.startswith("-") or word == "HEAD":
        return False
    is_name = "." not in word and "/" not in word
    return is_name or word.startswith("origin/") or any(sign in word for sign in ("..", "~", "^"))


def _status_paths(body: str) -> Iterator[tuple[str, bool]]:
    """The paths that `git status` lists, and whether git tracks them."""
    for status, path in _SHORT_STATUS.findall(body):
        if status.strip():
            yield path, "?" not in status
    for label, path in _LONG_STATUS.findall(body) if "\n\t" in body else ():
        yield path.strip().rpartition(" -> ")[2], bool(label)


_WHOLE_FILE_TOOLS = frozenset("write writefile writetofile createfile savefile filewrite fswrite create".split())
_WRITING_PROGRAMS = frozenset("cat tee echo printf".split())
_SCRATCH = ("/tmp/", "/private/tmp/", "/var/folders/", "/private/var/folders/", "/dev/")
# Folders of tools: what is in them belongs to no project, or to git itself.
_APART = re.compile(r"/\.git/|^(?:~|/root|/(?:home|Users)/[^/]+)/\.")
_PATCHED = re.compile(r"\*\*\* (Add|Delete) File: ([^\n\\]{1,400})")
_SCRIPTS = (".py", ".js", ".mjs", ".ts", ".rb")
_VARIABLE = re.compile(r"[$*`{}\n]")


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

    `kept_writes` are its changes that were not undone and, where it has uncommitted ones, only these; `diff` is the
    exchange in which git showed them, 0 when it did not.
    """

    path: str
    reads: tuple[FileRead, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    kept_writes: tuple[FileWrite, ...] = ()
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
        if not self.kept_writes:
            return "edited" if self.is_uncommitted else "read"
        if self.kept_writes[-1].action == "deleted":
            return "deleted"
        return "created" if self.kept_writes[0].action == "created" else "edited"

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of the file that matters: it was made and removed again, or a scratch file."""
        if not self.writes or self.writes[-1].action != "deleted" or self.is_committed:
            return False
        return self.writes[0].action == "created" or not self.is_uncommitted


class FileHistory(Struct, frozen=True):
    """The files of a session by path, in the order in which they were met. Exchanges are named by number.

    `superseded` maps a read to a later exchange that shows the same lines again (or replaced the file).
    """

    files: dict[str, FileRecord]
    superseded: dict[int, int]

    @property
    def latest(self) -> dict[str, int]:
        """For each path the exchange that shows its newest state."""
        return {path: record.latest for path, record in self.files.items()}

    @property
    def loaded(self) -> int:
        """How many files have been read."""
        return sum(1 for record in self.files.values() if record.reads)


FileTouch = FileRead | FileWrite


def file_history(turns: Sequence[Turn], failed: Collection[int] | None = None) -> FileHistory:
    """What happened to each file. `failed` names the exchanges that did not do what they were asked to do."""
    if failed is None:
        failed = {failure.exchange for failure in find_failures(turns)}
    touched: dict[str, list[FileTouch]] = {}
    folder = working_folder(turns)
    tree = WorkingTree(folder)
    scripts: dict[str, tuple[str, ...]] = {}
    for turn in turns:
        for exchange in turn.exchanges:
            if exchange.call is None:
                continue
            parsed = parse_call(exchange.call)
            here = folder_of_call(parsed, folder)
            # An agent that goes to a scratch folder for a moment is elsewhere with its next command.
            folder = folder if f"{here}/".startswith(_SCRATCH) else here
            is_undone = exchange.number in failed or exchange.is_lost
            if parsed.steps:
                tree.follow(exchange, parsed, here, is_undone)
            # A command that failed may have written its files before it did; a failed edit has not.
            may_have_written = parsed.writes and parsed.command is not None
            answer = exchange.result.text[:200] if exchange.result else ""
            if (is_undone and not may_have_written) or answer.startswith("File unchanged since last read"):
                continue
            for path, touch in _touches(exchange, turn.number, parsed, here, touched, scripts):
                touched.setdefault(path, []).append(touch)
    return _gather(touched, tree)


def _touches(
    exchange: ToolUse,
    turn: int,
    parsed: ParsedCall,
    folder: str,
    touched: dict[str, list[FileTouch]],
    scripts: dict[str, tuple[str, ...]],
) -> Iterator[tuple[str, FileTouch]]:
    """What a call does to each of its files, and to those that a script it runs writes."""
    actions = paths_written(parsed.steps) if parsed.writes else {}
    for named in parsed.paths if parsed.reads or parsed.writes else ():
        if _VARIABLE.search(named):
            continue
        path = absolute_path(named, folder)
        if actions.get(named) == "restored" and path not in touched:
            continue
        yield path, _touch(exchange, turn, parsed, path, path in touched, actions.get(named, ""))
        if actions.get(named) == "deleted":
            below = [each for each in touched if each.startswith(f"{path}/")]
            yield from ((each, FileWrite(exchange.number, turn, "deleted")) for each in below)
        if parsed.writes and path.endswith(_SCRIPTS):
            text = parsed.command or parsed.arguments.get("content") or parsed.arguments.get("file_text")
            scripts[path] = paths_in_script(text) if isinstance(text, str) else ()
    for step in parsed.steps if scripts else ():
        if is_script_run(step):
            run = (absolute_path(word, folder) for word in step.words[1:3])
            written = [path for each in run for path in scripts.get(each, ()) if not _VARIABLE.search(path)]
            yield from ((absolute_path(path, folder), FileWrite(exchange.number, turn)) for path in written)


def _touch(exchange: ToolUse, turn: int, parsed: ParsedCall, path: str, known: bool, done: str) -> FileTouch:
    if parsed.writes:
        whole = _is_whole(parsed, path)
        is_new = not known and (whole or done == "written")
        return FileWrite(exchange.number, turn, _action(exchange, path, done, is_new), whole)
    first, last = parsed.lines or (1, None)
    # With several files in one command it is not known which lines are whose; line 0 means that the place is unknown.
    is_known = first > 0 and (len(parsed.paths) == 1 or parsed.lines is None)
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


def _is_whole(parsed: ParsedCall, path: str) -> bool:
    if parsed.tool in _WHOLE_FILE_TOOLS or parsed.arguments.get("command") == "create":
        return True
    name = posixpath.basename(path)
    writers = (step for step in parsed.steps if step.words and step.program in _WRITING_PROGRAMS)
    return any(posixpath.basename(step.writes) == name for step in writers)


def _gather(touched: dict[str, list[FileTouch]], tree: WorkingTree) -> FileHistory:
    names = full_paths((*touched, *tree.listed))
    joined: dict[str, list[FileTouch]] = {}
    for path, touches in touched.items():
        joined.setdefault(names[path], []).extend(touches)
    listed = {names[path]: listing for path, listing in tree.listed.items()}
    files = {path: _record(path, touches, tree, listed.get(path)) for path, touches in joined.items()}
    return FileHistory(files, _superseded_reads(files))


def _record(path: str, touches: list[FileTouch], tree: WorkingTree, listing: GitListing | None) -> FileRecord:
    """What happened to a file; `listing` is what git said of it last."""
    ordered = sorted(touches, key=lambda touch: touch.exchange)
    reads = tuple(touch for touch in ordered if isinstance(touch, FileRead))
    writes = tuple(touch for touch in ordered if isinstance(touch, FileWrite))
    is_listed = listing is not None and (listing.is_tracked or bool(writes))
    if not writes and not is_listed:
        return FileRecord(path, reads)
    taken, clean, resets = (
        [commit.exchange for commit in commits if commit.takes(path, tree.root)]
        for commits in (tree.commits, tree.clean, tree.resets)
    )
    undone = max((*resets, *(write.exchange for write in writes if write.action == "restored")), default=0)
    settled = max((*taken, *clean, undone), default=0)
    committed = tuple(write for write in writes if any(write.exchange <= number for number in taken))
    pending = tuple(write for write in writes if write.exchange > settled)
    if path.startswith(_SCRATCH) or _APART.search(path):
        return FileRecord(path, reads, writes, writes)
    kept = committed if undone or committed else writes
    diff = listing.diff if listing and is_listed else 0
    return FileRecord(path, reads, writes, pending or kept, bool(pending) or is_listed, bool(committed), diff)


def _superseded(record: FileRecord) -> Iterator[tuple[int, int]]:
    """The reads of a file that a later exchange supersedes, each with that exchange."""
    replaced = [write.exchange for write in record.writes if write.whole or write.action == "deleted"]
    for at, read in enumerate(record.reads):
        covering = [later.exchange for later in record.reads[at + 1 : at + 40] if later.covers(read)]
        later = [*covering[-1:], *(number for number in replaced[-1:] if number > read.exchange)]
        if later:
            yield read.exchange, max(later)


def _superseded_reads(files: dict[str, FileRecord]) -> dict[int, int]:
    """A command that showed several files is superseded only when each of them is."""
    shown = Counter(number for record in files.values() for number in {read.exchange for read in record.reads})
    later: dict[int, list[int]] = {}
    for record in files.values():
        for number, by in dict(_superseded(record)).items():
            later.setdefault(number, []).append(by)
    return {number: max(by) for number, by in sorted(later.items()) if len(by) == shown[number]}
