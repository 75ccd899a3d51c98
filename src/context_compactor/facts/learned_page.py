"""One file of the learned folder as entries among lines of anybody's, and back without changing those."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from context_compactor.facts.lesson import LessonKind, Origin, origin_line, read_origin

_MOST_ENTRIES = 200
_MOST_OLDER = 400
TITLES: dict[LessonKind, str] = {
    "rules": "Rules of the user",
    "decisions": "Decisions",
    "errors": "Errors that came back",
}
_ABOUT: dict[LessonKind, str] = {
    "rules": "What the user wants in every session of this project",
    "decisions": "What was decided in earlier sessions of this project",
    "errors": "What failed in two or more sessions of this project",
}
_HEADING = "## Older"
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM = re.compile(r"[-*+] +(?=\S)")
_LEFT_OUT = re.compile(r"^(\d+) more (?:was|were) left out here, the last of them on (\d{4}-\d\d-\d\d)\.\s*$")


class Entry(Struct, frozen=True):
    """A list item with the lines that belong to it. Without `origin` somebody wrote it by hand."""

    lines: tuple[str, ...]
    text: str
    origin: Origin | None = None

    @property
    def is_struck(self) -> bool:
        """Whether somebody struck it out."""
        return _ITEM.sub("", self.lines[0], count=1).startswith("~~")


Piece = Entry | str


class Page:
    """A file: a main part, and older entries below their heading. Other lines are plain texts between the entries."""

    def __init__(self, kind: LessonKind, main: list[Piece], older: list[Piece]) -> None:
        self._kind = kind
        self._main = main
        self._older = older
        self._break = "\r\n" if any("\r\n" in _text(piece) for piece in main) else "\n"

    @property
    def entries(self) -> list[Entry]:
        """All entries, the older ones last."""
        return _entries_of((*self._main, *self._older))

    @property
    def current(self) -> list[Entry]:
        """The entries of the main part that nobody struck out."""
        return [entry for entry in _entries_of(self._main) if not entry.is_struck]

    def add(self, text: str, origin: Origin) -> None:
        """Put an entry behind the last one of the main part; when there are too many, the least go to the older."""
        lines = (f"- {text}{self._break}", origin_line(origin) + self._break)
        self.insert(Entry(lines, text, origin))

    def replace(self, entry: Entry, origin: Origin) -> None:
        """Write another provenance below an entry, whose own words stay; an older one comes back to the main part."""
        line = next(line for line in entry.lines if read_origin(line) == entry.origin)
        end = line[len(line.rstrip("\r\n")) :]
        lines = tuple(origin_line(origin) + end if each is line else each for each in entry.lines)
        changed = Entry(lines, entry.text, origin)
        if entry in self._main:
            self._main[self._main.index(entry)] = changed
        else:
            self._older.remove(entry)
            self.insert(changed)

    def remove(self, entry: Entry) -> None:
        """Take an entry out, with the lines that belong to it."""
        (self._main if entry in self._main else self._older).remove(entry)

    def render(self) -> str:
        """The file."""
        return "".join(_text(piece) for piece in (*self._main, *self._older))

    def insert(self, entry: Entry) -> None:
        """Put an entry as it is behind the last one of the main part."""
        self._main = self._main or _header(self._kind)
        places = [at + 1 for at, piece in enumerate(self._main) if isinstance(piece, Entry)]
        at = places[-1] if places else len(self._main)
        self._main[at:at] = self._ended(self._main[:at], entry)
        self._make_room()

    def _ended(self, before: list[Piece], entry: Entry) -> list[Piece]:
        """An entry as it may follow those pieces: the last line of a file may lack its break."""
        lacks = bool(before) and not _text(before[-1]).endswith("\n")
        ended = _text(entry).endswith("\n")
        return [*([self._break] if lacks else []), entry, *([] if ended else [self._break])]

    def _make_room(self) -> None:
        for entry in _least(_entries_of(self._main), _MOST_ENTRIES):
            self._main.remove(entry)
            self._older = self._older or [self._break, _HEADING + self._break, self._break]
            self._older += self._ended([*self._main[-1:], *self._older], entry)
        gone = _least(_entries_of(self._older), _MOST_OLDER)
        for entry in gone:
            self._older.remove(entry)
        if gone:
            self._say_left_out(len(gone), max(entry.origin.last for entry in gone if entry.origin))

    def _say_left_out(self, count: int, last: str) -> None:
        """Nothing goes without a word: below the heading stands how many went, and when the last was seen."""
        for at, piece in enumerate(self._older):
            said = _LEFT_OUT.match(piece) if isinstance(piece, str) else None
            if said:
                self._older[at] = _left_out(count + int(said[1]), max(last, said[2])) + self._break
                return
        at = 1 + next(at for at, piece in enumerate(self._older) if _text(piece).rstrip() == _HEADING)
        self._older[at:at] = [self._break, _left_out(count, last) + self._break]


def parse_page(kind: LessonKind, text: str) -> Page:
    """A page from the text of its file."""
    pieces = _pieces(_LINES.findall(text))
    at = next((n for n, piece in enumerate(pieces) if isinstance(piece, str) and piece.rstrip() == _HEADING), None)
    if at is None:
        return Page(kind, pieces, [])
    at -= at > 0 and isinstance(pieces[at - 1], str) and not _text(pieces[at - 1]).strip()
    return Page(kind, pieces[:at], pieces[at:])


def _pieces(lines: list[str]) -> list[Piece]:
    pieces: list[Piece] = []
    at, is_code = 0, False
    while at < len(lines):
        end = at + 1
        is_code ^= lines[at].startswith("```")
        if _ITEM.match(lines[at]) and not is_code:
            while end < len(lines) and lines[end].startswith((" ", "\t")) and lines[end].strip():
                end += 1
            pieces.append(_entry(lines[at:end]))
        else:
            pieces.append(lines[at])
        at = end
    return pieces


def _entry(lines: list[str]) -> Entry:
    origins = [(line, read_origin(line)) for line in lines[1:]]
    origin = next((found for _, found in reversed(origins) if found), None)
    words = [_ITEM.sub("", lines[0], count=1), *(line for line, found in origins if found is None)]
    return Entry(tuple(lines), " ".join(" ".join(words).split()).strip("~"), origin)


def _least(entries: list[Entry], most: int) -> list[Entry]:
    """Those that are too many, the least worth first. Never what somebody wrote or struck out by hand."""
    ours = [(entry.origin.worth, at) for at, entry in enumerate(entries) if entry.origin and not entry.is_struck]
    return [entries[at] for _, at in sorted(ours)[: max(len(entries) - most, 0)]]


def _entries_of(pieces: Iterable[Piece]) -> list[Entry]:
    return [piece for piece in pieces if isinstance(piece, Entry)]


def _header(kind: LessonKind) -> list[Piece]:
    lines = (
        f"# {TITLES[kind]}",
        "",
        f"{_ABOUT[kind]}, noted by Context Compactor. Change or delete what you like: what you write",
        "stays as it is. An entry that is ~~struck out~~ is neither read nor noted again.",
        "",
    )
    return [f"{line}\n" for line in lines]


def _left_out(count: int, last: str) -> str:
    return f"{count} more {'was' if count == 1 else 'were'} left out here, the last of them on {last}."


def _text(piece: Piece) -> str:
    return piece if isinstance(piece, str) else "".join(piece.lines)
