"""What git commands did to the working tree, and what git said of it: which changes are committed, which are undone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from context_compactor.classify.calls import Reading
from context_compactor.classify.envelope import unwrap
from context_compactor.classify.paths import absolute
from context_compactor.classify.shell import Step
from context_compactor.classify.shell_files import paths_written
from context_compactor.messages.turn import ToolUse

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
_MOST_TEXT = 20_000


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


class Listing(Struct, frozen=True):
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
        self.listed: dict[str, Listing] = {}
        """Files that git has named as changed since."""
        self._staged: list[str] | None = []
        self._patches: set[str] = set()

    def follow(self, exchange: ToolUse, reading: Reading, folder: str, failed: bool) -> None:
        """Take in what a command did, and what it showed."""
        text = exchange.result.text if exchange.result else ""
        for step in reading.steps:
            if step.program == "git":
                self._follow_git(exchange.number, step, folder, text, failed)
        if (
            self._patches
            and reading.reads
            and not self._patches.isdisjoint(absolute(path, folder) for path in reading.paths)
        ):
            self._list(_DIFF.findall(text[:_MOST_TEXT]), folder, Listing(diff=exchange.number))

    def _follow_git(self, number: int, step: Step, folder: str, text: str, failed: bool) -> None:
        words, folder = _in_folder(step.words, folder)
        action = words[0] if words else ""
        if action == "add":
            self._stage(words[1:], folder)
        elif action == "commit" or (action in _CONTINUES and "--continue" in words):
            if "--dry-run" not in words and (not failed or _COMMITTED.search(text[:_MOST_TEXT])):
                self._commit(number, words, folder)
        elif (action == "reset" and "--hard" in words) or (action == "checkout" and words[1:] in ((".",), ("--", "."))):
            self.resets.append(Commit(number, folder))
            self._unlist(self.resets[-1])
        elif action in ("checkout", "restore") and self.listed:
            for path in paths_written((step,)):
                self.listed.pop(absolute(path, folder), None)
        elif action in ("status", "diff") and not failed:
            self._read(number, action, step, words, folder, text)

    def _stage(self, words: Iterable[str], folder: str) -> None:
        named = [word for word in words if not word.startswith("-") or word in _ADD_ALL]
        if self._staged is None or not _ADD_ALL.isdisjoint(named) or any("$" in word or "*" in word for word in named):
            self._staged = None
        else:
            self._staged += [absolute(word.rstrip("/"), folder) for word in named]

    def _commit(self, number: int, words: tuple[str, ...], folder: str) -> None:
        takes_all = any(_COMMIT_ALL.fullmatch(word) for word in words[1:4])
        named = words[words.index("--") + 1 :] if "--" in words else ()
        # Nothing was seen to be staged: it was before, or elsewhere.
        paths = None if takes_all or not self._staged else tuple(self._staged)
        paths = tuple(absolute(word, folder) for word in named) or paths
        commit = Commit(number, folder, paths)
        self.commits.append(commit)
        self._staged = []
        self._unlist(commit)

    def _unlist(self, commit: Commit) -> None:
        self.listed = {path: listing for path, listing in self.listed.items() if not commit.takes(path, self.root)}

    def _read(self, number: int, action: str, step: Step, words: tuple[str, ...], folder: str, text: str) -> None:
        if step.writes:
            self._patches.add(absolute(step.writes, folder))
            return
        if action == "diff" and any(_is_revision(word) for word in words[1:]):
            return
        body = unwrap(text[:_MOST_TEXT]).body
        if action == "diff":
            self._list(_STAT.findall(body), folder, Listing())
            self._list(_DIFF.findall(body), folder, Listing(diff=number))
        elif _CLEAN.search(body):
            self.clean.append(Commit(number, folder))
            self._unlist(self.clean[-1])
        else:
            for path, is_tracked in _status_paths(body):
                self._list((path,), folder, Listing(is_tracked))

    def _list(self, paths: Iterable[str], folder: str, listing: Listing) -> None:
        for named in paths:
            path = absolute(named, folder)
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
            folder = absolute(words[at + 1], folder)
        at += 2 if words[at] in ("-C", "-c") else 1
    return words[at:], folder


def _is_revision(word: str) -> bool:
    """Whether a word of `git diff` compares with something else than the newest commit."""
    if word.startswith("-") or word == "HEAD":
        return False
    return (
        ".." in word
        or "~" in word
        or "^" in word
        or ("." not in word and "/" not in word)
        or word.startswith("origin/")
    )


def _status_paths(body: str) -> Iterator[tuple[str, bool]]:
    """The paths that `git status` lists, and whether git tracks them."""
    for status, path in _SHORT_STATUS.findall(body):
        if status.strip():
            yield path, "?" not in status
    for label, path in _LONG_STATUS.findall(body) if "\n\t" in body else ():
        yield path.strip().rpartition(" -> ")[2], bool(label)
