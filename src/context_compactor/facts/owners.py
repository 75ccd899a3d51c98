"""Whose lessons are whose: every owner has a folder of their own below the learned folder.

An owner is any text, so the folder is named by a hash of it, and the file `.owner` in it says whose it is. What lies
in the learned folder itself was written before lessons had owners: it is listed, and nobody is told it until it is
claimed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import BadInput, CompactorError
from context_compactor.facts.learned import KINDS, change_page, read_page, read_regular
from context_compactor.facts.learned_page import Entry, Page
from context_compactor.facts.lesson import By, LessonKind, one_line
from context_compactor.files import make_private_folder, write_atomically

_OWNER_FILE = ".owner"
_NOT_IN_A_FOLDER = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_SHOWN = 40
_MOST_NAMED = 5


class OwnedLesson(Struct, frozen=True):
    """A lesson as it is listed. Without `owner` nobody is told it; without `by` somebody wrote it by hand."""

    id: str
    owner: str | None
    kind: LessonKind
    text: str
    is_read: bool
    """Whether new sessions of its owner are told it: it has an owner, is not struck out, and not among the older."""
    by: By | None
    first: str
    last: str
    sessions: int
    sources: tuple[str, ...]
    file: str


def owner_folder(learned: Path, owner: str) -> Path:
    """Where the lessons of an owner are. Whatever the owner is called, it is a folder right below the learned one."""
    shown = _NOT_IN_A_FOLDER.sub("_", owner)[:_LONGEST_SHOWN]
    folder = learned / f"{shown}-{sha256(owner.encode()).hexdigest()[:16]}"
    if folder.is_symlink():
        raise CompactorError(f"{folder} is a link, which is not followed. Move it away.")
    return folder


def make_owner_folder(learned: Path, owner: str) -> Path:
    """The folder of an owner, which is made and says whose it is."""
    folder = owner_folder(learned, owner)
    make_private_folder(folder)
    if not (folder / _OWNER_FILE).exists():
        write_atomically(folder / _OWNER_FILE, owner.encode(), private=True)
    return folder


def list_lessons(learned: Path) -> list[OwnedLesson]:
    """Every lesson of a learned folder, whoever owns it; those without an owner last."""
    found = [_listed(*place, kind, entry) for place, kind, entry in _entries(learned)]
    return sorted(found, key=lambda lesson: (lesson.owner is None, lesson.owner or ""))


def remove_lessons(learned: Path, ids: Collection[str]) -> list[OwnedLesson]:
    """Take lessons out of their files; `BadInput` for an id that there is not, and then nothing is removed.

    One that is removed does not come back from the sessions it came from.
    """
    chosen = _chosen(learned, ids)
    _take_out(chosen)
    return chosen


def remove_owner(learned: Path, owner: str | None) -> list[OwnedLesson]:
    """Take all lessons of an owner out of their files, or all that have none."""
    found = [lesson for lesson in list_lessons(learned) if lesson.owner == owner]
    if owner is not None and not found:
        raise BadInput(f"owner: {owner[:80]!r} has no lessons; those who have: {_named(_owners(learned))}")
    _take_out(found)
    return found


def claim_lessons(learned: Path, owner: str, ids: Collection[str] = ()) -> list[OwnedLesson]:
    """Give lessons that have no owner to one, all of them or those of these ids; they are moved as they are."""
    chosen = _chosen(learned, ids) if ids else [lesson for lesson in list_lessons(learned) if lesson.owner is None]
    owned = [lesson for lesson in chosen if lesson.owner is not None]
    if owned:
        raise BadInput(f"lesson {owned[0].id} belongs to {owned[0].owner!r:.80}; only one without an owner is claimed")
    if chosen:
        folder = make_owner_folder(learned, owner)
        for kind in KINDS:
            entries = [entry for lesson in chosen if lesson.kind == kind for entry in _entries_of(lesson)]
            change_page(folder, kind, partial(_insert, entries))
        _take_out(chosen)
    return chosen


def _insert(entries: Sequence[Entry], page: Page) -> None:
    for entry in entries:
        if entry not in page.entries:
            page.insert(entry)


def _chosen(learned: Path, ids: Collection[str]) -> list[OwnedLesson]:
    found = list_lessons(learned)
    known = {lesson.id for lesson in found}
    for each in ids:
        if each not in known:
            raise BadInput(
                f"there is no lesson {each[:40]!r} in {learned}. Try: `compactor lessons`, which lists them."
            )
    return [lesson for lesson in found if lesson.id in set(ids)]


def _take_out(lessons: Sequence[OwnedLesson]) -> None:
    """Remove the entries behind lessons, file by file."""
    for file, group in groupby(sorted(lessons, key=lambda lesson: lesson.file), key=lambda lesson: lesson.file):
        members = list(group)
        change_page(Path(file).parent, members[0].kind, partial(_remove, Path(file).parent, members))


def _remove(folder: Path, lessons: Sequence[OwnedLesson], page: Page) -> None:
    ids = {lesson.id for lesson in lessons}
    for entry in page.entries:
        if _id(folder, lessons[0].kind, entry) in ids:
            page.remove(entry)


def _entries_of(lesson: OwnedLesson) -> list[Entry]:
    folder = Path(lesson.file).parent
    page = read_page(folder, lesson.kind)
    return [entry for entry in page.entries if _id(folder, lesson.kind, entry) == lesson.id]


def _entries(learned: Path) -> Iterator[tuple[tuple[Path, str | None, bool], LessonKind, Entry]]:
    for folder, owner in _folders(learned):
        for kind in KINDS:
            page = read_page(folder, kind)
            current = page.current
            for entry in page.entries:
                yield (folder, owner, owner is not None and entry in current), kind, entry


def _folders(learned: Path) -> Iterator[tuple[Path, str | None]]:
    """The folders that may hold lessons, with their owners; None where nobody is known to own them."""
    if not learned.is_dir():
        return
    yield learned, None
    for folder in sorted(learned.iterdir()):
        if folder.is_dir() and not folder.is_symlink():
            owner = read_regular(folder / _OWNER_FILE).decode("utf-8", "replace")
            yield folder, owner if owner and owner_folder(learned, owner) == folder else None


def _owners(learned: Path) -> list[str]:
    return [owner for _, owner in _folders(learned) if owner is not None]


def _named(owners: Sequence[str]) -> str:
    shown = ", ".join(f"{owner!r:.80}" for owner in owners[:_MOST_NAMED])
    return shown + (", …" if len(owners) > _MOST_NAMED else "") or "nobody"


def _listed(folder: Path, owner: str | None, is_read: bool, kind: LessonKind, entry: Entry) -> OwnedLesson:
    origin = entry.origin
    return OwnedLesson(
        id=_id(folder, kind, entry),
        owner=owner,
        kind=kind,
        text=one_line(entry.text),
        is_read=is_read,
        by=origin.by if origin else None,
        first=origin.first if origin else "",
        last=origin.last if origin else "",
        sessions=origin.sessions if origin else 0,
        sources=origin.sources if origin else (),
        file=str(folder / f"{kind}.md"),
    )


def _id(folder: Path, kind: LessonKind, entry: Entry) -> str:
    """What a lesson is called: the same as long as it stands in the same file with the same words."""
    told = "\0".join((folder.name, kind, entry.text))
    return sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:10]
