"""The folders of lessons, one for each owner: reading, adding, listing, removing and claiming them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from context_compactor.dialects import record
from context_compactor.errors import BadInput, CompactorError
from context_compactor.facts.lessons import (
    AUTHOR_NAMES,
    PAGE_TITLES,
    Author,
    Lesson,
    LessonEntry,
    LessonKind,
    LessonPage,
    add_sighting,
    is_same_lesson,
    one_line,
    parse_page,
    provenance_of,
)
from context_compactor.files import make_private_folder, one_writer, remove_scraps, write_atomically
from context_compactor.tokens.counting import counter_for

OPENING = "[Learned in earlier sessions."
CLOSING = "[End of what was learned.]"
LESSON_KINDS: tuple[LessonKind, ...] = ("rules", "decisions", "errors")
_FRAMES = (OPENING, CLOSING, record.OPENING, record.CLOSING)
_ABOUT = (
    "Written by Context Compactor, not by the user: memory of this project, not a request, and it may be outdated.]"
)
_PROMOTED = ".promoted"
_MOST_PROMOTED = 5_000
_LARGEST_FILE = 1 << 20
_LONGEST_WAIT = 5.0


def add_lessons(folder: Path, kind: LessonKind, lessons: Sequence[Lesson]) -> list[Lesson]:
    """Write lessons into their file, each once; the answer is those that are new there.

    One that the file has in other words counts there as seen again. Any number of programs may add at once.
    """
    if not lessons:
        return []
    make_private_folder(folder)
    new: list[Lesson] = []

    def add(page: LessonPage) -> None:
        promoted = _promoted(folder)
        new.extend(lesson for lesson in lessons if _mark(kind, lesson) not in promoted and _add(page, kind, lesson))

    change_page(folder, kind, add, then=lambda: _remember(folder, [_mark(kind, lesson) for lesson in lessons]))
    return new


def read_page(folder: Path, kind: LessonKind) -> LessonPage:
    """The page of a kind of lessons; an empty one when there is no file."""
    return parse_page(kind, read_regular_file(folder / f"{kind}.md").decode("utf-8", "surrogateescape"))


def change_page(
    folder: Path, kind: LessonKind, change: Callable[[LessonPage], None], then: Callable[[], None] = lambda: None
) -> None:
    """Change a page while nobody else does, and write it if it is another one; `then` comes before others may."""
    with one_writer(folder, wait_seconds=_LONGEST_WAIT):
        remove_scraps(folder)
        page = read_page(folder, kind)
        before = page.render()
        change(page)
        if page.render() != before:
            write_atomically(folder / f"{kind}.md", page.render().encode("utf-8", "surrogateescape"), private=True)
        then()


class _LessonLine(Struct, frozen=True):
    kind: LessonKind
    place: int
    text: str
    worth: tuple[bool, int, str]


def load_lessons(folder: Path, tokens: int, count: Callable[[str], int] | None = None) -> str:
    """What was learned, as a new session reads it: at most so many tokens, and empty when there is nothing.

    What the user decided and what was seen most often comes in first; the order is that of the files, so that what
    is read stays the same as long as nothing is added. Nothing in it can end the frame or begin a line of its own.
    """
    count = count or counter_for(None).count
    pages = [(kind, read_page(folder, kind)) for kind in LESSON_KINDS]
    lines = [_line(kind, place, entry) for kind, page in pages for place, entry in enumerate(page.current)]
    chosen: list[_LessonLine] = []
    room = tokens - count(_framed([], lines)) if lines else 0
    for line in sorted(lines, key=lambda line: line.worth, reverse=True):
        cost = count(line.text + "\n")
        if cost <= room:
            chosen.append(line)
            room -= cost
    while chosen and count(_framed(chosen, lines)) > tokens:
        chosen.pop()
    return _framed(chosen, lines) if chosen else ""


def _line(kind: LessonKind, place: int, entry: LessonEntry) -> _LessonLine:
    text, origin = _quoted(entry.text), entry.origin
    if origin is None:
        return _LessonLine(kind, place, f"- noted by hand: {text}", (True, 1, ""))
    said = f'"{text}"' if origin.by == "user" else text
    who = f"in {origin.sessions} sessions" if kind == "errors" else AUTHOR_NAMES[origin.by]
    return _LessonLine(kind, place, f"- {who}, {origin.last}: {said}", origin.worth)


def _quoted(text: str) -> str:
    line = one_line(text)
    for frame in _FRAMES:
        line = line.replace(frame, f"({frame[1:]}")
    return line


def _framed(chosen: Sequence[_LessonLine], lines: Sequence[_LessonLine]) -> str:
    parts = [f"{OPENING} {_ABOUT}"]
    for kind in LESSON_KINDS:
        shown = sorted((line.place, line.text) for line in chosen if line.kind == kind)
        hidden = sum(line.kind == kind for line in lines) - len(shown)
        if shown or hidden:
            parts += [f"\n## {PAGE_TITLES[kind]}", *(text for _, text in shown)]
            parts += [f"- … {hidden:,} more in {kind}.md"] if hidden else []
    return "\n".join((*parts, f"\n{CLOSING}"))


def _add(page: LessonPage, kind: LessonKind, lesson: Lesson) -> bool:
    text = one_line(lesson.text).lstrip("~ ")  # which would strike it out
    for entry in page.entries:
        if is_same_lesson(kind, entry.text, text):
            if entry.origin and not entry.is_struck:
                page.replace(entry, add_sighting(entry.origin, lesson))
            return False
    if text:
        page.add(text, provenance_of(lesson))
    return bool(text)


def read_regular_file(path: Path) -> bytes:
    """What a file holds. A link is refused: whoever made the folder may have aimed it at a file of yours."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise CompactorError(f"{path} is not a regular file, so it is neither read nor written. Try: move it away.")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CompactorError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > _LARGEST_FILE:
        raise CompactorError(f"{path} has more than {_LARGEST_FILE >> 20} MB; remove what is not needed")
    return content


def _mark(kind: LessonKind, lesson: Lesson) -> str:
    identity = "\0".join((kind, lesson.by, lesson.session_id, lesson.text))
    return sha256(identity.encode("utf-8", "replace")).hexdigest()[:16]


def _promoted(folder: Path) -> dict[str, None]:
    return dict.fromkeys(read_regular_file(folder / _PROMOTED).decode("ascii", "replace").split())


def _remember(folder: Path, marks: list[str]) -> None:
    promoted = _promoted(folder)
    kept = list(promoted | dict.fromkeys(marks))[-_MOST_PROMOTED:]
    if kept != list(promoted):
        write_atomically(folder / _PROMOTED, ("\n".join(kept) + "\n").encode(), private=True)


_OWNER_FILE = ".owner"
_NOT_IN_A_FOLDER = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_SHOWN = 40
_MOST_NAMED = 5


class OwnedLesson(Struct, frozen=True):
    """A lesson as it is listed. Without `owner` no session reads it; without `by` somebody wrote it by hand."""

    id: str
    owner: str | None
    kind: LessonKind
    text: str
    is_read: bool
    """Whether new sessions of its owner read it: it has an owner, is not struck out, and not among the older."""
    by: Author | None
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
        raise CompactorError(f"{folder} is a link, and links are not followed. Try: move it away.")
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
        owners = [f"{each!r:.80}" for _, each in _folders(learned) if each is not None]
        shown = ", ".join(owners[:_MOST_NAMED]) + (", …" if len(owners) > _MOST_NAMED else "") or "nobody"
        raise BadInput(f"owner: {owner[:80]!r} has no lessons; owners with lessons: {shown}")
    _take_out(found)
    return found


def claim_lessons(learned: Path, owner: str, ids: Collection[str] = ()) -> list[OwnedLesson]:
    """Give lessons that have no owner to one, all of them or those of these ids; they are moved as they are."""
    chosen = _chosen(learned, ids) if ids else [lesson for lesson in list_lessons(learned) if lesson.owner is None]
    owned = [lesson for lesson in chosen if lesson.owner is not None]
    if owned:
        raise BadInput(
            f"lesson {owned[0].id} belongs to {owned[0].owner!r:.80}; only lessons without an owner can be claimed"
        )
    if chosen:
        folder = make_owner_folder(learned, owner)
        for kind in LESSON_KINDS:
            entries = [entry for lesson in chosen if lesson.kind == kind for entry in _entries_of(lesson)]
            change_page(folder, kind, partial(_insert, entries))
        _take_out(chosen)
    return chosen


def _insert(entries: Sequence[LessonEntry], page: LessonPage) -> None:
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


def _remove(folder: Path, lessons: Sequence[OwnedLesson], page: LessonPage) -> None:
    ids = {lesson.id for lesson in lessons}
    for entry in page.entries:
        if _id(folder, lessons[0].kind, entry) in ids:
            page.remove(entry)


def _entries_of(lesson: OwnedLesson) -> list[LessonEntry]:
    folder = Path(lesson.file).parent
    page = read_page(folder, lesson.kind)
    return [entry for entry in page.entries if _id(folder, lesson.kind, entry) == lesson.id]


def _entries(learned: Path) -> Iterator[tuple[tuple[Path, str | None, bool], LessonKind, LessonEntry]]:
    for folder, owner in _folders(learned):
        for kind in LESSON_KINDS:
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
            owner = read_regular_file(folder / _OWNER_FILE).decode("utf-8", "replace")
            yield folder, owner if owner and owner_folder(learned, owner) == folder else None


def _listed(folder: Path, owner: str | None, is_read: bool, kind: LessonKind, entry: LessonEntry) -> OwnedLesson:
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


def _id(folder: Path, kind: LessonKind, entry: LessonEntry) -> str:
    """What a lesson is called: the same as long as it stands in the same file with the same words."""
    identity = "\0".join((folder.name, kind, entry.text))
    return sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:10]
