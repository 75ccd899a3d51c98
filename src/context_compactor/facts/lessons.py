"""Lessons for later sessions: their text, their provenance, and the Markdown page they stand on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from context_compactor.facts.fact import Fact
from context_compactor.facts.outputs import ERROR_SEPARATOR
from context_compactor.text import clip
from context_compactor.tokens.counting import replace_surrogates

_LONGEST_ERROR = 2_000
_LONGEST_PATTERN = 100
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>)]+")
_PATH = re.compile(r"(?<![\w.@~+-])(?:[a-z]:)?[\w.@~+-]*(?:[/\\][\w.@~+-]+)+[/\\]?")
_HEX = re.compile(r"\b(?:0x[0-9a-f]+|(?=[a-f-]*\d)[0-9a-f]{7,64}(?:-[0-9a-f]{4,16}){0,4})\b")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_TEMPORARY = re.compile(r"\btmp[\w-]{5,}")
_QUOTES = re.compile("[`'\"\u2018\u2019\u201c\u201d\u00ab\u00bb]")
# What says only that something failed, or that a call was written wrongly: it is known by what was tried.
_BARE = re.compile(
    r"(?:process )?(?:exited with )?(?:exit )?(?:code|status) ?#?|fail(?:ed|ure)?|error:?|unknown error|killed|#+"
    r"|timed? ?out|(?:\[[\w:.-]+\] )?error:? task failed|error: found # errors?|[\w.]*(?:error|exception):?"
    r"|(?:file|path|directory) (?:does not exist|not found)\.?"
    r"|no such file or directory\.?|permission denied\.?|command failed\.?"
    r"|[\w.]*(?:syntax|indentation|index|key)error:.*|string to replace not found.*|found # matches of.*"
    r"|file has (?:not been read|been modified).*|apply_patch verification failed.*"
)


def error_pattern(command: str, error: str) -> str:
    """One line of small letters; an error that tells nothing by itself is joined with the command that brought it."""
    whole = _general(error)
    first = _general(error.partition(ERROR_SEPARATOR)[0])
    pattern = first if first and not _BARE.fullmatch(first) else whole
    if not pattern or _BARE.fullmatch(pattern):
        pattern = f"{_general(command)} → {pattern}".strip(" →")
    return pattern[:_LONGEST_PATTERN].rstrip()


def is_bare_error(error: str) -> bool:
    """Whether an error says only that something failed."""
    return all(not part or _BARE.fullmatch(part) for part in map(_general, error.split(ERROR_SEPARATOR)))


def _general(text: str) -> str:
    text = _ESCAPES.sub("", text[:_LONGEST_ERROR]).lower()
    text = _PATH.sub(_last_name, _URL.sub("url", text))
    text = _NUMBER.sub("#", _HEX.sub("#", _TEMPORARY.sub("tmp", text)))
    return " ".join(_QUOTES.sub("", text).split())


def _last_name(path: re.Match[str]) -> str:
    return re.split(r"[/\\]", path[0].rstrip("/\\"))[-1]


Author = Literal["user", "agent", "both", "tool"]
LessonKind = Literal["rules", "decisions", "errors"]

_LONGEST_LESSON = 400
_MOST_SOURCES = 6
_ALIKE = 88
AUTHOR_NAMES: dict[Author, str] = {
    "user": "the user",
    "agent": "the agent",
    "both": "the agent, then the user",
    "tool": "a tool",
}
_AUTHORS: dict[str, Author] = {words: by for by, words in AUTHOR_NAMES.items()}
_PROVENANCE = re.compile(
    rf"^ {{2,}}by ({'|'.join(_AUTHORS)}) · (\d{{4}}-\d\d-\d\d)(?: to (\d{{4}}-\d\d-\d\d))?"
    r" · (\d{1,6}) sessions? · (.*?)\s*$"
)
_NOT_IN_A_NAME = re.compile(r"[^\w.:@+-]+")
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\s]+")
_FAILURE = re.compile(r"^`(.*)` → (.*?)(?: · (?:resolved|given up): .*)?$")
# Turns are those of another session.
_TURN = re.compile(r" in (?:the run of )?turn \d+")
_WORD = re.compile(r"[\w.+#'\u2019]*[\w+#]")
# Words by which two wordings of one decision differ. Without them, the same words in the same order decide the same.
_STOP_WORDS = frozenset(
    "a an the we i it is are was were be been being has have had will would shall should do does did that this these "
    "those our my their its and so then now just also to of in on for by at as with because since use using used over "
    "decided decide decision chose choose chosen go going went opted opt opting settled settle let's lets let we'll "
    "i'll we've i've we're i'm instead rather than key".split()
)


class Lesson(Struct, frozen=True):
    """`text` is one line; `others` are further sessions that taught it, of an error."""

    text: str
    by: Author
    day: str
    session_id: str
    ref: str
    others: tuple[str, ...] = ()


class Provenance(Struct, frozen=True):
    """Where an entry comes from: who said it, its first and last day, in how many sessions, and the newest of them."""

    by: Author
    first: str
    last: str
    sessions: int
    sources: tuple[str, ...]

    @property
    def worth(self) -> tuple[bool, int, str]:
        """What sorts the most valuable last: the user's word, then how often and how lately it was seen."""
        return self.by in ("user", "both"), self.sessions, self.last


def provenance_of(lesson: Lesson) -> Provenance:
    """The provenance of a lesson that is new."""
    others = tuple(_name(each) for each in lesson.others)
    sources = (*others, _source(lesson))[-_MOST_SOURCES:]
    return Provenance(lesson.by, lesson.day, lesson.day, 1 + len(others), sources)


def add_sighting(origin: Provenance, lesson: Lesson) -> Provenance:
    """The provenance after one more lesson of the same content; nothing changes when its session is known already."""
    by: Author = "both" if (origin.by, lesson.by) == ("agent", "user") else origin.by
    known = {source.partition(" ")[0] for source in origin.sources}
    if _name(lesson.session_id) in known:
        return Provenance(by, origin.first, origin.last, origin.sessions, origin.sources)
    sources = (*origin.sources, _source(lesson))[-_MOST_SOURCES:]
    sessions = max(origin.sessions + 1, 1 + len(lesson.others))
    return Provenance(by, min(origin.first, lesson.day), max(origin.last, lesson.day), sessions, sources)


def provenance_line(origin: Provenance) -> str:
    """Provenance as it stands in the file."""
    days = origin.first if origin.first == origin.last else f"{origin.first} to {origin.last}"
    sessions = f"{origin.sessions} session{'s' * (origin.sessions > 1)}"
    return f"  by {AUTHOR_NAMES[origin.by]} · {days} · {sessions} · {', '.join(origin.sources)}"


def read_provenance(line: str) -> Provenance | None:
    """Provenance read back; None when the line is something else."""
    match = _PROVENANCE.match(line)
    if match is None:
        return None
    return Provenance(_AUTHORS[match[1]], match[2], match[3] or match[2], int(match[4]), tuple(match[5].split(", ")))


def _source(lesson: Lesson) -> str:
    return f"{_name(lesson.session_id)} {lesson.ref}".rstrip()


def _name(session_id: str) -> str:
    return _NOT_IN_A_NAME.sub("_", session_id)[:64] or "_"


def one_line(text: str) -> str:
    """A text as one line within bounds, which UTF-8 can hold: nothing in it can begin a line of its own."""
    return clip(_BREAKS.sub(" ", replace_surrogates(text)).strip(), _LONGEST_LESSON)


def error_text(fact: Fact) -> str:
    """An error in one line: what was tried, what it answered, and what came of it."""
    if not fact.detail:
        return one_line(fact.content)
    outcome = _TURN.sub("", fact.outcome) if fact.status in ("resolved", "given up") else ""
    line = f"`{one_line(fact.content)[: _LONGEST_LESSON // 2]}` → {one_line(fact.detail)[: _LONGEST_LESSON // 2]}"
    return one_line(f"{line} · {fact.status}: {outcome}" if outcome else line)


def is_same_lesson(kind: LessonKind, one: str, other: str) -> bool:
    """Whether two texts are one lesson: an error by its pattern, a decision by its words in their order."""
    if kind == "errors":
        return _pattern(one) == _pattern(other)
    mine, theirs = _words(one), _words(other)
    if not mine or not theirs:
        return one == other
    if "".join(mine) == "".join(theirs):
        return True
    return len(mine) == len(theirs) and all(_alike(*pair) for pair in zip(mine, theirs, strict=True))


@lru_cache(maxsize=2_048)
def _pattern(text: str) -> str:
    tried = _FAILURE.match(text)
    return error_pattern(tried[1], tried[2]) if tried else error_pattern("", text)


@lru_cache(maxsize=2_048)
def _words(text: str) -> tuple[str, ...]:
    words = (word.replace("\u2019", "'") for word in _WORD.findall(text.lower().replace("-", " ")))
    return tuple(_stem(word) for word in words if word not in _STOP_WORDS)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word


def _alike(one: str, other: str) -> bool:
    """Equal, or two spellings of one word; a different first letter or digit makes another word of it."""
    if one == other or one[0] != other[0] or not (one + other).isalpha():
        return one == other
    from rapidfuzz.fuzz import ratio

    return ratio(one, other) >= _ALIKE


_MOST_ENTRIES = 200
_MOST_OLDER = 400
PAGE_TITLES: dict[LessonKind, str] = {
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


class LessonEntry(Struct, frozen=True):
    """A list item with the lines that belong to it. Without `origin` somebody wrote it by hand."""

    lines: tuple[str, ...]
    text: str
    origin: Provenance | None = None

    @property
    def is_struck(self) -> bool:
        """Whether somebody struck it out."""
        return _ITEM.sub("", self.lines[0], count=1).startswith("~~")


PagePart = LessonEntry | str


class LessonPage:
    """A file: a main part, and older entries below their heading. Other lines are plain texts between the entries."""

    def __init__(self, kind: LessonKind, main: list[PagePart], older: list[PagePart]) -> None:
        self._kind = kind
        self._main = main
        self._older = older
        self._break = "\r\n" if any("\r\n" in _text(piece) for piece in main) else "\n"

    @property
    def entries(self) -> list[LessonEntry]:
        """All entries, the older ones last."""
        return _entries_of((*self._main, *self._older))

    @property
    def current(self) -> list[LessonEntry]:
        """The entries of the main part that nobody struck out."""
        return [entry for entry in _entries_of(self._main) if not entry.is_struck]

    def add(self, text: str, origin: Provenance) -> None:
        """Put an entry behind the last one of the main part; when there are too many, the least go to the older."""
        lines = (f"- {text}{self._break}", provenance_line(origin) + self._break)
        self.insert(LessonEntry(lines, text, origin))

    def replace(self, entry: LessonEntry, origin: Provenance) -> None:
        """Write another provenance below an entry, whose own words stay; an older one comes back to the main part."""
        line = next(line for line in entry.lines if read_provenance(line) == entry.origin)
        end = line[len(line.rstrip("\r\n")) :]
        lines = tuple(provenance_line(origin) + end if each is line else each for each in entry.lines)
        changed = LessonEntry(lines, entry.text, origin)
        if entry in self._main:
            self._main[self._main.index(entry)] = changed
        else:
            self._older.remove(entry)
            self.insert(changed)

    def remove(self, entry: LessonEntry) -> None:
        """Take an entry out, with the lines that belong to it."""
        (self._main if entry in self._main else self._older).remove(entry)

    def render(self) -> str:
        """The file."""
        return "".join(_text(piece) for piece in (*self._main, *self._older))

    def insert(self, entry: LessonEntry) -> None:
        """Put an entry as it is behind the last one of the main part."""
        self._main = self._main or _header(self._kind)
        places = [at + 1 for at, piece in enumerate(self._main) if isinstance(piece, LessonEntry)]
        at = places[-1] if places else len(self._main)
        self._main[at:at] = self._ended(self._main[:at], entry)
        self._make_room()

    def _ended(self, before: list[PagePart], entry: LessonEntry) -> list[PagePart]:
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


def parse_page(kind: LessonKind, text: str) -> LessonPage:
    """A page from the text of its file."""
    pieces = _pieces(_LINES.findall(text))
    at = next((n for n, piece in enumerate(pieces) if isinstance(piece, str) and piece.rstrip() == _HEADING), None)
    if at is None:
        return LessonPage(kind, pieces, [])
    at -= at > 0 and isinstance(pieces[at - 1], str) and not _text(pieces[at - 1]).strip()
    return LessonPage(kind, pieces[:at], pieces[at:])


def _pieces(lines: list[str]) -> list[PagePart]:
    pieces: list[PagePart] = []
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


def _entry(lines: list[str]) -> LessonEntry:
    origins = [(line, read_provenance(line)) for line in lines[1:]]
    origin = next((found for _, found in reversed(origins) if found), None)
    words = [_ITEM.sub("", lines[0], count=1), *(line for line, found in origins if found is None)]
    return LessonEntry(tuple(lines), " ".join(" ".join(words).split()).strip("~"), origin)


def _least(entries: list[LessonEntry], most: int) -> list[LessonEntry]:
    """Those that are too many, the least worth first. Never what somebody wrote or struck out by hand."""
    ours = [(entry.origin.worth, at) for at, entry in enumerate(entries) if entry.origin and not entry.is_struck]
    return [entries[at] for _, at in sorted(ours)[: max(len(entries) - most, 0)]]


def _entries_of(pieces: Iterable[PagePart]) -> list[LessonEntry]:
    return [piece for piece in pieces if isinstance(piece, LessonEntry)]


def _header(kind: LessonKind) -> list[PagePart]:
    lines = (
        f"# {PAGE_TITLES[kind]}",
        "",
        f"{_ABOUT[kind]}, noted by Context Compactor. Change or delete what you like: what you write",
        "stays as it is. An entry that is ~~struck out~~ is neither read nor noted again.",
        "",
    )
    return [f"{line}\n" for line in lines]


def _left_out(count: int, last: str) -> str:
    return f"{count} more {'was' if count == 1 else 'were'} left out here, the last of them on {last}."


def _text(piece: PagePart) -> str:
    return piece if isinstance(piece, str) else "".join(piece.lines)
