"""The record, one user message that stands for the turns that were folded: its headings and lines, written and read
back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field, structs

from context_compactor.dialects.client_text import is_client_block, is_client_text
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Text, is_repair_text
from context_compactor.dialects.turns import Turn, split_turns, without_recall

OPENING = "[Context record."
CLOSING = "[End of record. The conversation continues.]"
_MOST_OPENINGS = 50
GAP = "…"
ANSWER = "=>"
DIGEST = "(digest)"

# What stands in the first column of a line in the place of a blank.
_FIRST_COLUMN = {GAP: "…", ANSWER: ">"}
_MARKS = {"…": GAP, ">": ANSWER}

_SPEAKERS = ("user", "agent")

TASK = "Task"
RULES = "Rules and corrections by the user"
STANDING = "Where things stand"
FINDINGS = "Findings and decisions"
FAILED = "Failed, and what came of it"
SECTIONS = (TASK, RULES, STANDING, FINDINGS, FAILED)
HAPPENED = 'What happened ("/" a line break, … words left out)'
NEWEST = "The newest turns (as they were)"
EXCERPTS = "Exact lines for the work at hand (verbatim; … lines left out, > answer)"

# Headings of earlier versions, with the heading under which their lines stand now.
_EARLIER = {
    "State": STANDING,
    "Decisions": FINDINGS,
    "Failed before, do not repeat": FAILED,
    "Files": STANDING,
    "Done outside, not to be done again": STANDING,
    "Running": STANDING,
    "Other facts": STANDING,
}
# The section that held a model's story, and where its lines stand now: heading and status by the status they had.
_EARLIER_STORY = "Story so far (told by a model; the other parts are exact)"
_STORY_PLACES = {
    "done": (STANDING, "done"),
    "active": (STANDING, "doing"),
    "blocked": (STANDING, "blocked"),
    "next": (STANDING, "next"),
    "state": (STANDING, ""),
    "file": (STANDING, "note"),
    "failed": (FAILED, ""),
}
_EARLIER_EXCERPTS = "Record of earlier turns (verbatim; … lines left out, > answer)"
# Statuses of earlier versions, by the heading they stood under, and what they are now.
_EARLIER_STATUS = {
    ("State", "active"): "doing",
    ("Done outside, not to be done again", "done"): "outside",
    ("Done outside, not to be done again", ""): "allowed by the user",
    ("Other facts", "done"): "sub-agent done",
}

# The statuses that lines of each section can have; one that is not listed is a part of the line's words.
_STATUS = {
    title: re.compile(rf"({words}|): ")
    for title, words in {
        TASK: "active|done|superseded|earlier",
        STANDING: "uncommitted|committed|created|edited|deleted|read|outside|allowed by the user"
        "|denied by the user|running|sub-agent (?:done|failed)|mode|doing|open|done|dropped|blocked|asked|next|passed"
        "|failed|installed|error|phase|note|git",
        FINDINGS: "finding|superseded",
        FAILED: "open|resolved|given up",
        # headings of earlier versions
        _EARLIER_STORY: "(?:earlier )?(?:done|active|blocked|next)|state|decided|file|failed",
        "State": "[a-z_]{3,12}",
        "Decisions": "finding|superseded",
        "Files": "uncommitted|created|edited|deleted|read",
        "Done outside, not to be done again": "done",
        "Running": "running",
        "Other facts": "done|failed|passed",
    }.items()
}


class Excerpt(Struct, frozen=True):
    """Selected lines of one source, under a heading that names it and recalls the rest."""

    ref: str
    label: str
    lines: tuple[str, ...]


class Quote(Struct, frozen=True):
    """A message of the user, verbatim; `status` says what became of what it asks for."""

    ref: str
    text: str
    status: str = ""


class RecordEntry(Struct, frozen=True):
    """One line of a section: its words, and what became of what they say."""

    text: str
    status: str = ""


class StoryLine(Struct, frozen=True):
    """One line of what happened: in which turn, by whom or by what (`user`, `agent`, `edit`, `run`, …), and the words.

    A line of the user begins an exchange. Line breaks in the words are written as " / ".
    """

    turn: int
    voice: str
    text: str


class Record(Struct, frozen=True):
    """What the folded turns left behind."""

    messages: int
    tokens: int
    turns: int
    calls: int
    quotes: tuple[Quote, ...] = ()
    sections: dict[str, tuple[RecordEntry, ...]] = field(default_factory=dict)
    happened: tuple[StoryLine, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    newest: tuple[Excerpt, ...] = ()
    """The newest turns as text, where none of them stands behind the record; read back they are excerpts."""
    behind: tuple[tuple[int, int], ...] = ()
    """Turns up to `turns` that were not folded and stand behind the record, each with the number of its first call."""
    can_recall: bool = True
    """Whether the reader has a tool named `recall`: only then the record names it."""

    def titles(self) -> tuple[str, ...]:
        """The headings in their order; those that a user's own prompt has set come behind ours."""
        return (*SECTIONS, *(title for title in self.sections if title not in SECTIONS))

    def lines(self, title: str) -> tuple[str, ...]:
        """The lines of a section as the model reads them."""
        return tuple(entry_line(title, entry) for entry in self.sections.get(title, ()))


def render_record(record: Record) -> str:
    """The record as the model reads it."""
    text = "\n".join(record_lines(record))
    return text if record.can_recall else without_recall(text)


def record_lines(record: Record) -> Iterator[str]:
    """The record line by line; a quote is several lines in one."""
    yield (
        f"{OPENING} Written by Context Compactor, not by the user: it stands for {record.messages:,} earlier messages "
        f"({record.tokens:,} tokens, turns 1 to {record.turns}, calls 1 to {record.calls}{_without(record)}). "
        f"It is memory, not a request.{_how_to_recall(record)}]"
    )
    for title in record.titles():
        body = record.lines(title)
        quotes = record.quotes if title == TASK else ()
        if body or quotes:
            yield f"\n## {title}"
            for quote in quotes:
                yield from _quote(quote)
            yield from (f"- {line}" for line in body)
    if record.happened:
        yield f"\n## {HAPPENED}"
        yield from map(story_text, record.happened)
    if record.excerpts:
        yield f"\n## {EXCERPTS}"
        for excerpt in record.excerpts:
            yield from _excerpt(excerpt)
    if record.newest:
        yield f"\n## {NEWEST}"
        for excerpt in record.newest:
            yield from _excerpt(excerpt)
    yield f"\n{CLOSING}"


def _how_to_recall(record: Record) -> str:
    if not record.can_recall:
        return ""
    return f' recall("id") returns any original, turn_001 to turn_{record.turns:03d} too.'


def entry_line(title: str, entry: RecordEntry) -> str:
    """An entry as it stands under its heading; where its own words could be read as a status, it says it has none."""
    if entry.status or _status_in(title, entry.text):
        return f"{entry.status}: {entry.text}"
    return entry.text


def story_text(line: StoryLine) -> str:
    """A line of what happened as it stands in the record; what follows the user's words is indented."""
    words = " / ".join(part.strip() for part in line.text.split("\n") if part.strip())
    return f"{line.turn} user: {words}" if line.voice == "user" else f" {line.turn} {line.voice}: {words}"


def _status_in(title: str, line: str) -> re.Match[str] | None:
    """The status at the beginning of a line, which may be none."""
    known = _STATUS.get(title)
    return known.match(line) if known else None


def parse_entry(title: str, line: str) -> RecordEntry:
    """An entry as it stood under its heading; a status that its section does not know is a part of its words."""
    found = _status_in(title, line)
    return RecordEntry(line[found.end() :], found[1]) if found else RecordEntry(line)


def _without(record: Record) -> str:
    """The turns that stand behind the record, so that whoever reads it back can number them."""
    return (
        ", without " + ", ".join(f"turn {turn} from call {call}" for turn, call in record.behind)
        if record.behind
        else ""
    )


def _excerpt(excerpt: Excerpt) -> Iterator[str]:
    """Selected lines under their heading; a single line stands behind the id alone."""
    if len(excerpt.lines) == 1:
        speaker = next((f" {who}" for who in _SPEAKERS if excerpt.label.startswith(who)), "")
        yield f"[{excerpt.ref}{speaker}] {excerpt.lines[0]}"
        return
    yield f"[{excerpt.ref} {excerpt.label}]"
    waiting = ""
    for line in excerpt.lines:
        if line not in _FIRST_COLUMN:
            yield _FIRST_COLUMN.get(waiting, " ") + line
            waiting = ""
            continue
        if waiting:
            yield f" {waiting}"
        waiting = line
    if waiting:
        yield f" {waiting}"


def _quote(quote: Quote) -> Iterator[str]:
    end, status = f"</user {quote.ref}>", f" {quote.status}" if quote.status else ""
    if end in quote.text:
        yield f"[{quote.ref} user{status}]"
        yield from (f" {line}" for line in quote.text.split("\n"))
        return
    yield f"<user {quote.ref}{status}>\n{quote.text}\n{end}"


_COUNTS = re.compile(
    r"it stands for ([\d,]+) earlier messages \(([\d,]+) tokens, turns 1 to (\d+), calls 1 to (\d+)"
    r"(?:, without ([\w, ]+))?\)"
)
_BEHIND = re.compile(r"turn (\d+) from call (\d+)")
_FENCE = re.compile(r"^<user (turn_\d+)(?: ([a-z_]+))?>\n(.*?)\n</user \1>$", re.MULTILINE | re.DOTALL)
_CLOSING = re.compile(rf"^{re.escape(CLOSING)}", re.MULTILINE)
_SINGLE = re.compile(r"^\[((?:turn|tool|file|agent)_\d+)(?: (user|agent))?\] (.*)$")
_STORY_LINE = re.compile(r"^ ?(\d+) ([a-z-]{1,12}): (.*)$", re.MULTILINE)
_HEADING = re.compile(r"^\[((?:turn|tool|file|agent)_\d+) (.*)\]$")


def is_record(text: str) -> bool:
    """Whether a text is a record of ours."""
    return text.startswith(OPENING) and text.rstrip().endswith(CLOSING)


def parse_record(text: str) -> Record | None:
    """Read a record back; None when the text is not one."""
    counts = _COUNTS.search(text.partition("\n")[0]) if is_record(text) else None
    if counts is None:
        return None
    messages, tokens, turns, calls = (int(group.replace(",", "")) for group in counts.groups()[:4])
    behind = tuple((int(turn), int(call)) for turn, call in _BEHIND.findall(counts[5] or ""))
    quotes = tuple(Quote(match[1], match[3], match[2] or "") for match in _FENCE.finditer(text))
    body, excerpts = _split_excerpts(_FENCE.sub("", text))
    body, _, happened = body.partition(f"\n\n## {HAPPENED}\n")
    lines = _parse_excerpts(excerpts)
    sections, stray = _parse_sections(body)
    story = tuple(StoryLine(int(line[1]), line[2], line[3]) for line in _STORY_LINE.finditer(happened))
    return Record(messages, tokens, turns, calls, quotes + stray, sections, story, lines, (), behind)


def _split_excerpts(text: str) -> tuple[str, str]:
    """What stands before the exact lines, and these."""
    for heading in (EXCERPTS, _EARLIER_EXCERPTS, NEWEST):
        body, found, excerpts = text.partition(f"\n\n## {heading}\n")
        if found:
            return body, excerpts
    return text, ""


def _parse_sections(body: str) -> tuple[dict[str, tuple[RecordEntry, ...]], tuple[Quote, ...]]:
    sections: dict[str, list[RecordEntry]] = {}
    quotes: list[Quote] = []
    title = ""
    for line in body.split("\n"):
        heading = _HEADING.match(line)
        if line.startswith("## "):
            title = line[3:]
        elif heading and title == TASK:
            quotes.append(Quote(heading[1], "", heading[2].removeprefix("user").strip()))
        elif line.startswith(" ") and quotes and title == TASK:
            last = quotes[-1]
            quotes[-1] = structs.replace(last, text=(last.text + "\n" + line[1:]).lstrip("\n"))
        elif line.startswith("- ") and title:
            place, entry = _placed_now(title, parse_entry(title, line[2:]))
            sections.setdefault(place, []).append(entry)
    return {title: tuple(lines) for title, lines in sections.items()}, tuple(quotes)


def _placed_now(title: str, entry: RecordEntry) -> tuple[str, RecordEntry]:
    """The heading under which a line stands now, and its status there."""
    if title == _EARLIER_STORY:
        place, status = _STORY_PLACES.get(entry.status.removeprefix("earlier "), (FINDINGS, ""))
        return place, RecordEntry(entry.text, status)
    status = _EARLIER_STATUS.get((title, entry.status), entry.status)
    return _EARLIER.get(title, title), structs.replace(entry, status=status)


def _parse_excerpts(text: str) -> tuple[Excerpt, ...]:
    found: list[tuple[str, str, list[str]]] = []
    for line in text.split("\n"):
        if line[:1] in (" ", *_MARKS) and found:
            found[-1][2].extend((*([_MARKS[line[0]]] if line[0] in _MARKS else ()), line[1:]))
        elif single := _SINGLE.match(line):
            found.append((single[1], single[2] or "", [single[3]]))
        elif heading := _HEADING.match(line):
            found.append((heading[1], heading[2], []))
    return tuple(Excerpt(ref, label, tuple(lines)) for ref, label, lines in found)


def record_span(text: str) -> tuple[int, int] | None:
    """Where in a text a record of ours stands: at its beginning, or behind blocks that a client put before it.

    Behind anybody's own words it is a quotation, and no record.
    """
    start = _record_start(text)
    if start < 0:
        return None
    quoted = [match.span() for match in _FENCE.finditer(text, start)]
    for closing in _CLOSING.finditer(text, start):
        if not any(first <= closing.start() < last for first, last in quoted):
            return start, closing.end()
    return None


def _record_start(text: str) -> int:
    """Where a record begins; -1 for nowhere. A reminder may speak of records, and of its own tag."""
    if not text.lstrip().startswith((OPENING, "<")):
        return -1
    start = -1
    for _ in range(_MOST_OPENINGS):
        start = text.find(OPENING, start + 1)
        if start < 0 or is_client_block(text[:start]):
            return start
    return -1


def open_record(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Message], Record | None]:
    """The messages without the record they carry, and the record read back."""
    opened = _open_history(messages, dialect)
    return [*opened.before, *opened.after], opened.record


def open_turns(messages: Sequence[Message], dialect: Dialect) -> tuple[list[Turn], Record | None]:
    """The turns that a record does not stand for, numbered as it says, and the record read back."""
    opened = _open_history(messages, dialect)
    record = opened.record
    if record is None:
        return split_turns(opened.before), None
    live = [*opened.before, *opened.after]
    return split_turns(live, record.turns + 1, record.calls + 1, record.behind, len(opened.before)), record


class _OpenedHistory(Struct, frozen=True):
    """What stands before a record and behind it. A client may have put something of its own before it."""

    before: list[Message]
    record: Record | None
    after: list[Message]


def _open_history(messages: Sequence[Message], dialect: Dialect) -> _OpenedHistory:
    at = next((at for at, each in enumerate(messages) if each.role not in ("system", "developer")), len(messages))
    while at < len(messages) - 1 and _is_of_client(messages[at]):
        at += 1
    found = _find(messages[at]) if at < len(messages) and messages[at].role == "user" else None
    if found is None:
        return _OpenedHistory(list(messages), None, [])
    message = messages[at]
    number, text, (start, end), record = found
    behind = range(number + 1, len(message.parts))
    words = text[end:].strip("\n") if text[end:].strip() else None
    front = dialect.edit(message, {number: text[:start].strip() or None, **dict.fromkeys(behind)})
    rest = dialect.edit(message, {number: words, **dict.fromkeys(range(number))})
    before = [*messages[:at], *([front] if front else [])]
    return _OpenedHistory(before, record, [*([rest] if rest else []), *messages[at + 1 :]])


def _find(message: Message) -> tuple[int, str, tuple[int, int], Record] | None:
    """Which part of a message holds a record, its text, where in it, and the record. Only a client may speak before."""
    for number, part in enumerate(message.parts):
        if not isinstance(part, Text):
            return None
        span = record_span(part.text)
        record = parse_record(part.text[slice(*span)]) if span else None
        if span and record:
            return number, part.text, span, record
        if not _is_client_text(part.text):
            return None
    return None


def _is_of_client(message: Message) -> bool:
    """Whether nobody but a client speaks in a message, and no record stands in it."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    is_text = message.role == "user" and len(texts) == len(message.parts)
    return is_text and all(_is_client_text(text) and not record_span(text) for text in texts)


def _is_client_text(text: str) -> bool:
    is_opening = is_client_text(text) and not text.lstrip().startswith(OPENING)
    return is_opening or is_client_block(text) or is_repair_text(text)
