"""A summary: read from a model's answer, rendered, merged and fitted, or kept for a compaction that is still to
come."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct, field, structs

from context_compactor.dialects.record import (
    EXCERPTS,
    FAILED,
    FINDINGS,
    HAPPENED,
    RULES,
    SECTIONS,
    STANDING,
    TASK,
    Excerpt,
    Record,
    RecordEntry,
    StoryLine,
    entry_line,
    parse_entry,
    render_record,
    story_text,
)
from context_compactor.dialects.turns import REFERENCE_PATTERN, Turn, reference_id
from context_compactor.json_values import json_bytes

# A heading is known by its first words, in whatever way it is written.
_KNOWN = {
    "task": TASK,
    "rules": RULES,
    "where things stand": STANDING,
    "findings": FINDINGS,
    "failed": FAILED,
    "what happened": HAPPENED,
    "exact lines": EXCERPTS,
}
_MARKED = re.compile(
    r"^(?:#{1,6}\s*|\*\*|__)(?:\d{1,2}[.)]\s*)?(?P<title>[^*_#\n]{2,60}?)\s*:?\s*(?:\*\*|__|#+)?\s*:?$"
)
_NUMBERED = re.compile(r"^\d{1,2}[.)]\s*(?:\*\*)?(?P<title>[A-Z][^*_#:\n]{2,60}?)\s*(?::\s*(?:\*\*)?|\*\*:?)$")
_PLAIN = re.compile(r"^(?P<title>[A-Z][^*_#:\n]{2,50}?):?$")
_BULLET = re.compile(r"^(?:[-*+•]|\d{1,2}[.)])\s+")
_FENCE = re.compile(r"^\s*```[\w-]*\s*$")
_NONE = re.compile(r"\W*(?:none|nothing|n/?a|\(none\)|empty)\W*", re.IGNORECASE)
_THOUGHT = re.compile(r"<(think|thinking|reasoning|analysis)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_TURN = re.compile(r"\s*\((?:by )?(?:the )?(?:user,? ?)?turns?[_ ]0*(\d+)(?:[:,] ?now)?\)\s*$", re.IGNORECASE)
_TOLD = re.compile(
    r"^\[?(?:turns?[_ ])?0*(\d+)(?:\s?[-–]\s?\d+)?\]?[.:]?\s+(?:(user|agent)\s*:\s*)?(.*)$", re.IGNORECASE
)
# Behind a quotation: by whom, in which turn, and what else the writer says of it.
_SAID_IN = re.compile(r"\s+\((?:user,? ?)?(?:turns?[_ ])?0*(?P<turn>\d+)\b(?P<beside>(?:[^()]|\([^()]*\))*)\)\s*$")
_ROUND = str.maketrans("()", "[]")
_ARROW = re.compile(r"\s*(?:→|=>|->)\s*")
_SHOWN = re.compile(r"^\[((?:turn|tool|file|agent)_\d+)?[ ,:]*([^\]\n]*)\](?: (.*))?$")
_STATUS = re.compile(r"^(?:\*\*|__)?([a-z][a-z, -]{2,30})(?:\*\*|__)?:(?:\*\*|__)?\s+", re.IGNORECASE)
_JOINERS = "\u200c\u200d"
_UNSEEN = ("Cc", "Cf", "Co", "Cn")
_LONGEST_NONE = 24
_MOST_OWN = 12
# What is left out first where there is too much: exact lines, then what was done, the user's words in it, and so on.
_DROPPED = (EXCERPTS, HAPPENED, "", FINDINGS, FAILED, STANDING, RULES, TASK)


class Summary(Struct, frozen=True):
    """What a model wrote. `strays` are lines under no heading."""

    sections: dict[str, tuple[RecordEntry, ...]] = field(default_factory=dict)
    happened: tuple[StoryLine, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    strays: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """All of it line by line, as it stands in the record, without the headings."""
        listed = [entry_line(title, entry) for title, entries in self.sections.items() for entry in entries]
        shown = [line for excerpt in self.excerpts for line in excerpt.lines]
        return [*listed, *map(story_text, self.happened), *shown]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines())

    @property
    def headings(self) -> int:
        """Under how many headings something stands."""
        return sum(map(bool, (*self.sections.values(), self.happened, self.excerpts)))

    def __bool__(self) -> bool:
        return self.headings > 0


def without_thoughts(text: str) -> str:
    """An answer without the reasoning that some models write into it."""
    return _THOUGHT.sub("", text)


def parse_summary(text: str, *, own_headings: bool = False) -> Summary:
    """Read an answer. With `own_headings` any heading makes a section; else an unknown one belongs to the findings."""
    sections: dict[str, list[RecordEntry]] = {}
    happened: list[StoryLine] = []
    shown: list[tuple[str, str, list[str]]] = []
    strays: list[str] = []
    title = ""
    for raw in without_thoughts(text).split("\n"):
        line = clean(raw)
        heading = _heading(line, own_headings=own_headings and len(sections) < _MOST_OWN)
        if heading:
            title = heading
        elif _FENCE.match(raw) or not line:
            continue
        elif title == EXCERPTS:
            _show(raw.rstrip(), shown)
        elif _is_none(line):
            continue
        elif title == HAPPENED:
            happened.extend(_story_lines(line, happened))
        elif title:
            sections.setdefault(title, []).append(_entry(title, line))
        else:
            strays.append(line)
    found = {title: tuple(dict.fromkeys(sections[title])) for title in (*SECTIONS, *sections) if title in sections}
    excerpts = tuple(Excerpt(ref, label, tuple(lines)) for ref, label, lines in shown if lines)
    return Summary(found, tuple(dict.fromkeys(happened)), excerpts, tuple(strays))


def clean(line: str) -> str:
    """A line without what cannot be seen: control and format characters, half characters, runs of blanks."""
    whole = " ".join(line.encode("utf-8", "replace").decode().split())
    shown = (sign for sign in whole if sign in _JOINERS or unicodedata.category(sign) not in _UNSEEN)
    return " ".join("".join(shown).split())


def _heading(line: str, *, own_headings: bool) -> str:
    found = _MARKED.match(line) or _NUMBERED.match(line) or _PLAIN.match(line)
    if found is None:
        return ""
    title = found["title"].strip()
    small = title.casefold()
    known = next((section for words, section in _KNOWN.items() if small.startswith(words)), "")
    if known and (found.re is _MARKED or len(small.split()) <= len(plain(known).split())):
        return known
    is_marked = found.re is not _PLAIN or (line.endswith(":") and len(title.split()) <= 5) or title.isupper()
    if not is_marked or not any(map(str.isalpha, title)):
        return ""
    if own_headings:
        return title.replace("[", "(").replace("]", ")")
    return FINDINGS if line.startswith("#") else ""


def _is_none(line: str) -> bool:
    body = _BULLET.sub("", line)
    is_empty = not any(map(str.isalnum, body))
    return is_empty or (len(body) <= _LONGEST_NONE and bool(_NONE.fullmatch(body)))


def _entry(title: str, line: str) -> RecordEntry:
    """A line as an entry. What is quoted stands between quotation marks, as the ledgers have it."""
    bare = _BULLET.sub("", line)
    if bare.startswith(">"):
        return RecordEntry(as_quote(bare[1:].strip()))
    body = with_turn_id(bare)
    status = _STATUS.match(body)
    if status and parse_entry(title, f"{status[1].lower()}: ").status:
        body = f"{status[1].lower()}: {body[status.end() :]}"
    return parse_entry(title, body)


def with_turn_id(line: str) -> str:
    """A line whose turn at its end is named by its id."""
    return _TURN.sub(lambda found: f" ({reference_id('turn', int(found[1]))})", line)


def as_quote(words: str) -> str:
    """Words between quotation marks, with what stands beside them and the turn behind them."""
    named = _SAID_IN.search(words)
    said = (words[: named.start()] if named else words).strip().strip('"')
    if named is None:
        return f'"{said}"'
    beside = named["beside"].translate(_ROUND).strip(" ,;:")
    note = f"{beside}; " if beside and beside not in ("now", "done", "latest") else ""
    return f'"{said}" ({note}{reference_id("turn", int(named["turn"]))})'


def _story_lines(line: str, before: Sequence[StoryLine]) -> Iterator[StoryLine]:
    """A line of what happened: the user's words, and what was done upon them as a line of the agent."""
    bare = _BULLET.sub("", line) if not line[:1].isdigit() else line
    found = _TOLD.match(bare)
    if found is None:
        if before:
            yield StoryLine(before[-1].turn, "agent", bare)
        return
    turn, voice, words = int(found[1]), (found[2] or "agent").lower(), found[3]
    if voice == "user":
        said, done = _split(words)
        if said:
            yield StoryLine(turn, "user", said)
        if done:
            yield StoryLine(turn, "agent", done)
    elif words:
        yield StoryLine(turn, "agent", _ARROW.sub("", words, count=1) if _ARROW.match(words) else words)


def _split(words: str) -> tuple[str, str]:
    """What the user said, and what came of it; an arrow within the quotation is a part of it."""
    quoted = re.match(r'^["“„«](.*?)["”“»](?=\s*(?:→|=>|->|$|\())', words)
    if quoted:
        beside = re.match(r"\s*(\([^()]*\))", words[quoted.end() :])
        end = quoted.end() + (beside.end() if beside else 0)
        said = f'"{quoted[1].strip()}" {beside[1]}' if beside else quoted[1].strip()
        return said, _ARROW.sub("", words[end:].strip(), count=1).strip()
    said, _, done = words.partition("→")
    return said.strip().strip('"'), done.strip()


def _show(raw: str, shown: list[tuple[str, str, list[str]]]) -> None:
    """A line of the exact lines: what it is from, or one of them."""
    found = _SHOWN.match(raw.strip()) if raw[:1] in ("[", "-", "*") or raw.strip().startswith("[turn_") else None
    if found and (found[1] or not shown or not raw.startswith(" ")):
        shown.append((found[1] or "", found[2].strip(), [found[3]] if found[3] else []))
    elif shown:
        shown[-1][2].append(raw)


def render_summary(summary: Summary) -> str:
    """A summary as a model writes it, so that it can be shown to one again."""
    lines: list[str] = []
    for title in (*SECTIONS, *(title for title in summary.sections if title not in SECTIONS)):
        if summary.sections.get(title):
            lines += [f"## {title}", *(f"- {entry_line(title, entry)}" for entry in summary.sections[title])]
    if summary.happened:
        lines += [f"## {plain(HAPPENED)}", *(story_text(line).strip() for line in summary.happened)]
    if summary.excerpts:
        lines.append(f"## {plain(EXCERPTS)}")
        for excerpt in summary.excerpts:
            lines += [f"[{excerpt.ref} {excerpt.label}]", *(f" {line}" for line in excerpt.lines)]
    return "\n".join(lines)


def plain(heading: str) -> str:
    """A heading without what the record says of it in brackets."""
    return heading.partition(" (")[0]


def from_record(record: Record | None) -> Summary:
    """What an earlier record carries, the user's task with it, to be shown to a model."""
    if record is None:
        return Summary()
    quotes = tuple(RecordEntry(f'"{" / ".join(quote.text.split(chr(10)))}" ({quote.ref})') for quote in record.quotes)
    sections = {TASK: (*quotes, *record.sections.get(TASK, ()))} if quotes else {}
    return Summary(record.sections | sections, record.happened, record.excerpts)


def merge_summaries(old: Summary, new: Summary) -> Summary:
    """Both in one: of how things stand the newer, of all else first the old and then what is new."""
    sections: dict[str, tuple[RecordEntry, ...]] = {}
    for title in dict.fromkeys((*SECTIONS, *old.sections, *new.sections)):
        before, after = old.sections.get(title, ()), new.sections.get(title, ())
        entries = after if title == STANDING and after else tuple(dict.fromkeys((*before, *after)))
        if entries:
            sections[title] = entries
    happened = sorted(dict.fromkeys((*old.happened, *new.happened)), key=lambda line: line.turn)
    return Summary(sections, tuple(happened), tuple(dict.fromkeys((*old.excerpts, *new.excerpts))))


def fit_summary(summary: Summary, most: int, count: Callable[[str], int]) -> tuple[Summary, int]:
    """The summary within a number of tokens, and how many lines had to go: exact lines first, the task last."""
    costs = {place: count(text) + 1 for place, text in _pieces(summary)}
    used = {title for title, _, _ in costs}
    room = most - sum(costs.values()) - sum(count(title) + 3 for title in used)
    gone: set[tuple[str, int, int]] = set()
    for place in sorted(costs, key=_worth):
        if room >= 0:
            break
        room += costs[place]
        gone.add(place)
    if not gone:
        return summary, 0
    kept = [place for place in costs if place not in gone]
    sections = {
        title: tuple(entry for at, entry in enumerate(entries) if (title, 1, at) in kept)
        for title, entries in summary.sections.items()
    }
    happened = [line for at, line in enumerate(summary.happened) if (HAPPENED, _rank(line), at) in kept]
    excerpts = [excerpt for at, excerpt in enumerate(summary.excerpts) if (EXCERPTS, 1, at) in kept]
    left = {title: lines for title, lines in sections.items() if lines}
    return Summary(left, tuple(happened), tuple(excerpts)), len(gone)


def _rank(line: StoryLine) -> int:
    """The user's words stay longer than what was done upon them."""
    return 2 if line.voice == "user" else 1


def _pieces(summary: Summary) -> Iterator[tuple[tuple[str, int, int], str]]:
    for title, entries in summary.sections.items():
        yield from (((title, 1, at), f"- {entry_line(title, entry)}") for at, entry in enumerate(entries))
    yield from (((HAPPENED, _rank(line), at), story_text(line)) for at, line in enumerate(summary.happened))
    for at, excerpt in enumerate(summary.excerpts):
        yield (EXCERPTS, 1, at), "\n".join((f"[{excerpt.ref} {excerpt.label}]", *excerpt.lines))


def _worth(place: tuple[str, int, int]) -> tuple[int, int, int]:
    """What goes first is smallest: the last of the exact lines, else the oldest lines."""
    title, rank, at = place
    order = _DROPPED.index(title) if title in _DROPPED else _DROPPED.index("")
    return order, rank, -at if title == EXCERPTS else at


def turn_named(text: str) -> int:
    """The number of the turn that a line names at its end; 0 when it names none."""
    found = REFERENCE_PATTERN.findall(text[-24:])
    return int(found[-1][5:]) if found and found[-1].startswith("turn_") and text.endswith(")") else 0


# A summary of less than this share of what is folded cannot stand for it.
_LEAST_COVERED = 0.5
# Statuses that say how things stood at one time.
_OVERTAKEN = (
    "",
    "doing",
    "next",
    "blocked",
    "asked",
    "running",
    "open",
    "uncommitted",
    "mode",
    "phase",
    "git",
)


class PreparedSummary(Struct, frozen=True, kw_only=True):
    """A summary of the turns of these numbers.

    `base` stands for everything it was written from; `tokens` is how large the context was.
    """

    base: str
    turns: tuple[int, ...]
    summary: Summary
    model: str
    tokens: int = 0


def source_fingerprint(turns: Sequence[Turn], numbers: Collection[int], past: Record | None, configuration: str) -> str:
    """The same for the same turns behind the same record, asked for in the same way; "" when one of them is gone."""
    chosen = [turn for turn in turns if turn.number in numbers]
    if len(chosen) != len(numbers):
        return ""
    digest = sha256(configuration.encode("utf-8", "replace"))
    digest.update(render_record(past).encode("utf-8", "replace") if past else b"")
    for turn in chosen:
        digest.update(f"\n{turn.number}\n".encode())
        digest.update(b"\n".join(json_bytes(message.raw) for message in turn.messages))
    return digest.hexdigest()[:32]


def reason_not_to_use(prepared: PreparedSummary, folded: dict[int, int], focus: str) -> str:
    """Why a summary may not stand for these turns, given with their tokens; "" when it may."""
    if focus:
        return "it was written without the focus that is wanted"
    if not folded.keys() >= set(prepared.turns):
        return "it covers turns that stay"
    share = sum(folded[number] for number in prepared.turns) / max(sum(folded.values()), 1)
    return "" if share >= _LEAST_COVERED else f"it covers only {share:.0%} of what is folded"


def without_current_state(summary: Summary) -> Summary:
    """A summary with later turns that it does not cover: how things stood then is left out, what was done stays."""
    lasting = tuple(entry for entry in summary.sections.get(STANDING, ()) if entry.status not in _OVERTAKEN)
    task = tuple(entry for entry in summary.sections.get(TASK, ()) if entry.text.startswith('"'))
    sections = summary.sections | {STANDING: lasting, TASK: task}
    return structs.replace(summary, sections={title: entries for title, entries in sections.items() if entries})
