"""The lessons of one owner: `rules.md`, `decisions.md` and `errors.md` in a folder, which people may read and change.

Whatever stands in a file that is not ours stays byte for byte: notes, headings, rewritten entries, entries without a
line of provenance. An entry that was struck out is neither read nor noted again, and one that was deleted does not
come back from the sessions it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import CompactorError
from context_compactor.facts.learned_page import TITLES, Entry, Page, parse_page
from context_compactor.facts.lesson import WHO, Lesson, LessonKind, is_same, one_line, origin_of, seen_again
from context_compactor.files import make_private_folder, one_writer, remove_scraps, write_atomically
from context_compactor.measure.tokens import counter_for
from context_compactor.messages import record

OPENING = "[Learned in earlier sessions."
CLOSING = "[End of what was learned.]"
KINDS: tuple[LessonKind, ...] = ("rules", "decisions", "errors")
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

    def add(page: Page) -> None:
        promoted = _promoted(folder)
        new.extend(lesson for lesson in lessons if _mark(kind, lesson) not in promoted and _add(page, kind, lesson))

    change_page(folder, kind, add, then=lambda: _remember(folder, [_mark(kind, lesson) for lesson in lessons]))
    return new


def read_page(folder: Path, kind: LessonKind) -> Page:
    """The page of a kind of lessons; an empty one when there is no file."""
    return parse_page(kind, read_regular(folder / f"{kind}.md").decode("utf-8", "surrogateescape"))


def change_page(
    folder: Path, kind: LessonKind, change: Callable[[Page], None], then: Callable[[], None] = lambda: None
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


class _Line(Struct, frozen=True):
    kind: LessonKind
    place: int
    text: str
    worth: tuple[bool, int, str]


def load_learned(folder: Path, tokens: int, count: Callable[[str], int] | None = None) -> str:
    """What was learned, as a new session reads it: at most so many tokens, and empty when there is nothing.

    What the user decided and what was seen most often comes in first; the order is that of the files, so that what
    is read stays the same as long as nothing is added. Nothing in it can end the frame or begin a line of its own.
    """
    count = count or counter_for(None).count
    lines = [line for kind in KINDS for line in _lines(folder, kind)]
    chosen: list[_Line] = []
    room = tokens - count(_framed([], lines)) if lines else 0
    for line in sorted(lines, key=lambda line: line.worth, reverse=True):
        cost = count(line.text + "\n")
        if cost <= room:
            chosen.append(line)
            room -= cost
    while chosen and count(_framed(chosen, lines)) > tokens:
        chosen.pop()
    return _framed(chosen, lines) if chosen else ""


def _lines(folder: Path, kind: LessonKind) -> list[_Line]:
    return [_line(kind, place, entry) for place, entry in enumerate(read_page(folder, kind).current)]


def _line(kind: LessonKind, place: int, entry: Entry) -> _Line:
    text, origin = _quoted(entry.text), entry.origin
    if origin is None:
        return _Line(kind, place, f"- noted by hand: {text}", (True, 1, ""))
    said = f'"{text}"' if origin.by == "user" else text
    who = f"in {origin.sessions} sessions" if kind == "errors" else WHO[origin.by]
    return _Line(kind, place, f"- {who}, {origin.last}: {said}", origin.worth)


def _quoted(text: str) -> str:
    line = one_line(text)
    for frame in _FRAMES:
        line = line.replace(frame, f"({frame[1:]}")
    return line


def _framed(chosen: Sequence[_Line], lines: Sequence[_Line]) -> str:
    parts = [f"{OPENING} {_ABOUT}"]
    for kind in KINDS:
        shown = sorted((line.place, line.text) for line in chosen if line.kind == kind)
        hidden = sum(line.kind == kind for line in lines) - len(shown)
        if shown or hidden:
            parts += [f"\n## {TITLES[kind]}", *(text for _, text in shown)]
            parts += [f"- … {hidden:,} more in {kind}.md"] if hidden else []
    return "\n".join((*parts, f"\n{CLOSING}"))


def _add(page: Page, kind: LessonKind, lesson: Lesson) -> bool:
    text = one_line(lesson.text).lstrip("~ ")  # which would strike it out
    for entry in page.entries:
        if is_same(kind, entry.text, text):
            if entry.origin and not entry.is_struck:
                page.replace(entry, seen_again(entry.origin, lesson))
            return False
    if text:
        page.add(text, origin_of(lesson))
    return bool(text)


def read_regular(path: Path) -> bytes:
    """What a file holds. A link is refused: whoever made the folder may have aimed it at a file of yours."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise CompactorError(
            f"{path} is not a file of its own; nothing is read from it or written to it. Move it away."
        )
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CompactorError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > _LARGEST_FILE:
        raise CompactorError(f"{path} has more than {_LARGEST_FILE >> 20} MB; move what is not needed elsewhere")
    return content


def _mark(kind: LessonKind, lesson: Lesson) -> str:
    told = "\0".join((kind, lesson.by, lesson.session_id, lesson.text))
    return sha256(told.encode("utf-8", "replace")).hexdigest()[:16]


def _promoted(folder: Path) -> dict[str, None]:
    return dict.fromkeys(read_regular(folder / _PROMOTED).decode("ascii", "replace").split())


def _remember(folder: Path, marks: list[str]) -> None:
    promoted = _promoted(folder)
    kept = list(promoted | dict.fromkeys(marks))[-_MOST_PROMOTED:]
    if kept != list(promoted):
        write_atomically(folder / _PROMOTED, ("\n".join(kept) + "\n").encode(), private=True)
