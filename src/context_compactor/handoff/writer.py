"""One writer for all texts that say how a piece of work stands: handoff, brief, checkpoint, resume.

`Material` is what is known: the lines of the ledgers, and what happened turn by turn (`engine/story.py`).
`handover_text` writes it in plain sentences for somebody who takes over; `handover_record` writes it as a record, which
a later compaction of the same session merges line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.record import (
    FAILED,
    FINDINGS,
    RULES,
    SECTIONS,
    STANDING,
    TASK,
    Record,
    StoryLine,
    render_record,
)
from context_compactor.dialects.repair import repair
from context_compactor.dialects.turns import REFERENCE_PATTERN
from context_compactor.engine.actions import CHECK, cut_words, sentences_of
from context_compactor.engine.classify import ParsedContext, parse_context
from context_compactor.engine.required import LEFT_OUT, PROJECT_RULES
from context_compactor.engine.story import Story, StoryUnit, story_units
from context_compactor.errors import BadSetting
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import GIVEN_UP, RESOLVED
from context_compactor.facts.ledgers import (
    FILE_STATUSES,
    LedgerLine,
    cut_failure,
    ended_entry,
    entry_identity,
    ledger_lines,
    merge_entries,
)
from context_compactor.facts.side_effects import reported_ends
from context_compactor.facts.tasks import is_request
from context_compactor.facts.utterances import is_quoted
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.context_summary import Rank, rank_of
from context_compactor.text import clip_line
from context_compactor.tokens.counting import MessageCounter, message_counter_for

_FEWEST = 100
_SO_FAR = "So far:"
_LONGEST_PHASE = 80
# The shares of a plain handover; what happened has what they leave.
_USER_SHARE, _RULES_SHARE, _FAILED_SHARE, _NEXT_SHARE = 0.21, 0.08, 0.1, 0.08
_FILES_SHARE, _CHANGES_SHARE, _OUTSIDE_SHARE, _GIVEN_UP_SHARE = 0.08, 0.04, 0.06, 0.06
# How much more the newest and the first request count than what was asked between them.
_NOW, _FIRST = 4.0, 2.0
# How much more a sentence counts that ends an exchange, and that a ledger has for a decision.
_LAST_WORDS, _DECIDED = 1.2, 1.5
_QUOTED, _FOUND = 6.0, 3.0
# How much more the newest exchange counts, and what is left of that with each exchange before it.
_LATE, _LEFT = 1.0, 0.6
# Characters of the first sentence of a request for each token of the text, and how many sentences it may lead to.
_OPENING = 0.5
_MOST_LED = 3
_MOST_FAILURES = 3
_NEXT = ("doing", "next", "asked", "blocked", "open", "mode", "running")

_ASKED = re.compile(r'"(.*)"(?: · .*)? \((turn_\d+)\)', re.DOTALL)
_TURN = re.compile(r"\(turn_(\d+)\)$")
_SOURCE = re.compile(r" \((?:×(\d+), )?(?:turns \d+-\d+, )?(?:turn|tool|file|agent)_\d+\)$")
_FAILURE = re.compile(r"`(.*)` → (.*?)( \(×\d+\))?$", re.DOTALL)
# A line of code, a heading, or a word by itself in a user's message.
_CODE = re.compile(
    r"[{};,(\\]$|^[\w.]+ :?= |^(?:return|raise|yield|print|echo) \S+$|^[#<{}(\[|]|^\S+$"
    r"|^(?:def|class|var|let|const|import|from|return|func|fn|if|for|while|else)\b.*[:({=]"
)
# What the agent is about to do, and its remarks, which nobody needs who was not there.
_NARRATES = re.compile(
    r"\W*(?:now |next,? |then |first,? )?(?:(?:i['\u2019]m|i am|we['\u2019]re) (?:now |also |just )?\w+ing\b"
    r"|(?:i['\u2019]ll|i will|i['\u2019]m going to|i need to|let me)\b)",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"\W*(?:good|great|perfect|nice|excellent|hmm+|wait|interesting|right|ok(?:ay)?|alright|sure|got it|i see|we need"
    r"|thanks?|you['\u2019]re welcome|if you (?:need|have|would)|feel free|please let me know)\b",
    re.IGNORECASE,
)
_INTENT = re.compile(r"\b(?:let me|let['\u2019]s|i['\u2019]ll|i will|i['\u2019]m)\b", re.IGNORECASE)
# What changed in a file: a definition that was added (+), changed (~) or taken out (-).
_CHANGE = re.compile(
    r"(?:^|[,:] )([+~\u2212-] )(?:(?:async|def|class|func|function|fn|type|struct) ){0,2}(\w{3,60})(?=[(,]|$| \()"
)
_MOST_CHANGES = 2
_STATISTICS = re.compile(r"; \d+ files? changed.*$")
_UNDER_WAY = re.compile(r"still running|no output$")
_WORD = re.compile(r"[\w./-]{3,}")
_VOICES = ("agent", "commit", "report", "plan")
_FEWEST_WORDS = 4

# A brief: its least size, the most that failures take, and what the other ledgers take beside a story.
_FEWEST_BRIEF = 400
_IN_STORY = ("read", "passed", "installed", "sub-agent done")
_FAILURE_SHARE = 0.4
_FAILURE_LENGTHS = (0, 160, 110, 80, 64, 40)
_LEDGER_SHARE = 0.3
# Of a long request so many characters for each token of the brief.
_TASK_SHARE = 1 / 8
_HEADINGS = 60
# What comes first when there is not room for everything, behind the user's rules: how the work stands, what is changed
# and not committed, what was found, and what was done outside.
_STANDING_RANKS = {
    1: (*_NEXT, "phase", "note", "git"),
    2: ("uncommitted",),
    4: ("outside", "allowed by the user", "denied by the user"),
    5: FILE_STATUSES,
}
# In a brief the user's words count so much of what they count in a record: the room is smaller.
_USER_IN_BRIEF = 0.4
_CHARS = 4
_ENDS = (".", "!", "?", "…", "\u3002", "\uff01", "\uff1f", '."', '!"', '?"')


class HandoffMaterial(Struct, frozen=True):
    """What is known of some work: lines of the ledgers, and units of its story."""

    lines: tuple[LedgerLine, ...] = ()
    story: tuple[StoryUnit, ...] = ()
    after: dict[int, int] = {}
    """About how many tokens there are behind each turn."""
    root: str = ""
    """The folder that is left out of paths."""

    @property
    def units(self) -> list[StoryUnit]:
        """The units as copies: whoever chooses from them weighs them anew."""
        return [copy(unit) for unit in self.story]


def material_of(content: ParsedContext, facts: Sequence[Fact] | None = None) -> HandoffMaterial:
    """What is known of a conversation. `facts` are all that are known of it, when these are more than it shows now."""
    fresh = ledger_lines(content.facts if facts is None else facts)
    lines = (*_past_lines(content, fresh, all_known=facts is not None), *fresh)
    live = {turn.number for turn in content.turns}
    earlier = [*(_past_units(content.past) if content.past else ()), *_found_before(lines, live)]
    quoted = {unit.turn for unit in earlier if unit.voice == "user"}
    story = story_units(content.turns, content.verdicts, content.past, [turn.number for turn in content.turns])
    units = [*earlier, *(unit for unit in story if unit.voice != "user" or unit.turn not in quoted)]
    units.sort(key=lambda unit: unit.turn)
    for at, unit in enumerate(units):
        unit.place = at
    after: dict[int, int] = {}
    behind = 0
    for turn in reversed(content.turns):
        after[turn.number] = behind
        behind += sum(len(getattr(part, "text", "")) for *_, part in turn.parts()) // _CHARS
    return HandoffMaterial(lines, tuple(units), after, content.verdicts.root)


def _past_lines(content: ParsedContext, fresh: Sequence[LedgerLine], *, all_known: bool) -> Iterator[LedgerLine]:
    """The lines of an earlier record that nothing newer has overtaken; where all facts are known, its findings."""
    overtaken = {entry_identity(line.section, line.entry) for line in fresh}
    ends, past = reported_ends(content.turns), content.past
    for title in (FINDINGS,) if all_known else SECTIONS:
        known = past.sections.get(title, ()) if past else ()
        for entry in filter(None, (ended_entry(each, ends) for each in known)):
            if entry_identity(title, entry) not in overtaken:
                yield LedgerLine(title, entry.text, 0, True, entry.status)


def _past_units(past: Record) -> Iterator[StoryUnit]:
    """The user's requests that a record quotes beside its lines of what happened."""
    quotes = [(quote.ref, quote.text) for quote in past.quotes if quote.status != PROJECT_RULES]
    asked = [found.groups() for entry in past.sections.get(TASK, ()) if (found := _ASKED.fullmatch(entry.text))]
    for ref, text in (*quotes, *((ref, text) for text, ref in asked)):
        for sentence in sentences_of(text, is_quote=True):
            if LEFT_OUT not in sentence:
                yield StoryUnit(int(ref.partition("_")[2]), "user", sentence, _QUOTED)


def _found_before(lines: Iterable[LedgerLine], live: Container[int]) -> Iterator[StoryUnit]:
    """What was found and decided in turns that are no longer in the context, as units of the story."""
    for line in lines:
        source = _TURN.search(line.text)
        turn = line.turn or (int(source[1]) if source else 0)
        if line.section == FINDINGS and line.status != "superseded" and turn not in live:
            yield StoryUnit(turn, "agent", _bare(line.text), _FOUND)


def handoff_text(
    messages: Sequence[dict[str, Any]], *, tokens: int = 500, phase: str = "", dialect: str = "auto"
) -> str:
    """The text that a sub-agent or the next phase starts with, in at most `tokens` tokens.

    What the user wants, in the user's words; the rules; what was done, found and decided, in the agent's own sentences;
    what was changed, what failed, and what comes next.
    """
    if not is_enough(tokens, _FEWEST):
        raise BadSetting(f"handoff: tokens={tokens!r:.40} is too small; use at least {_FEWEST}, for example 500")
    phase = " ".join(phase.split())[:_LONGEST_PHASE]
    spoken = find_dialect(dialect, messages)
    legal, _ = repair(spoken.parse(messages), spoken)
    counter = message_counter_for(None, spoken.name)
    material = material_of(parse_context(legal, spoken))
    return handover_text(material, tokens, counter, f"# Handoff: {phase}" if phase else "# Handoff")


def is_enough(tokens: object, fewest: int) -> bool:
    """Whether a number of tokens is one, and leaves room for a text."""
    return isinstance(tokens, int) and tokens >= fewest


def handover_text(material: HandoffMaterial, tokens: int, counter: MessageCounter, head: str = "") -> str:
    """What is known as plain lines, in whole sentences and at most so many tokens."""
    text = _HandoffText(material, tokens, counter, head)
    text.fill()
    parts = text.parts()
    while parts and counter.text("\n".join(parts)) > tokens:
        parts.pop()
    return "\n".join(parts)


def happened_lines(material: HandoffMaterial, tokens: int, counter: MessageCounter) -> list[str]:
    """What the user asked for, and what came of it, in at most so many tokens; one line for each exchange."""
    text = handover_text(structs.replace(material, lines=()), tokens, counter)
    return [line.removeprefix("- ") for line in text.split("\n") if line and line != _SO_FAR]


class _HandoffText:
    """A handover in plain sentences: each ledger within its share, and what happened in what they leave."""

    def __init__(self, material: HandoffMaterial, tokens: int, counter: MessageCounter, head: str) -> None:
        self._tokens, self._counter, self._head, self._root = tokens, counter, head, material.root
        self._lines = [structs.replace(line, text=_bare(line.text)) for line in material.lines]
        units = material.units
        users = [unit for unit in units if unit.voice == "user"]
        self._starts = sorted({unit.turn for unit in users})
        self._first = self._starts[0] if self._starts else 0
        requests = [unit.turn for unit in users if is_request(unit.text)]
        self._now = requests[-1] if requests else self._first
        self._requests = self._choose_requests(units, material)
        requested = " ".join(" ".join(unit.text.split()) for unit in self._requests)
        others = (_ended(line.text) for line in self._of(RULES) if line.text.strip('" ') not in requested)
        self._rules = self._fitting(others, _RULES_SHARE)
        self._files = self._changed()
        self._failed = self._fitting(self._failures(lambda status: status not in (RESOLVED, GIVEN_UP)), _FAILED_SHARE)
        self._left = self._fitting(self._failures(lambda status: status == GIVEN_UP), _GIVEN_UP_SHARE)
        self._next = self._fitting(self._coming(), _NEXT_SHARE)
        self._done = self._story(units, material)

    def fill(self) -> None:
        """Tell as much of what happened as there is room for."""
        done = self._done
        done.fill(self._tokens - self._size())
        for _ in range(4):
            left, before = self._tokens - self._size(), done.tokens
            if left > 0:
                done.fill(before + left)
            else:
                done.drop_last(-left + 1)
            if done.tokens == before:
                break
        while not done.is_empty and self._size() > self._tokens:
            done.drop_last(1)

    def parts(self) -> list[str]:
        """The lines of the text, the most important first where they can be chosen."""
        first, now = (self._quote(turn) for turn in (self._first, self._now))
        sections = (
            ("Task", first),
            ("Now", now if self._now != self._first else ""),
            ("Rules", " ".join(self._rules)),
            (_SO_FAR[:-1], "".join(f"\n- {line}" for line in self._so_far())),
            *self._files,
            ("Failed, still open", "; ".join(self._failed)),
            ("Failed and given up", "; ".join(self._left)),
            ("Next", " ".join(self._next)),
        )
        lines = (f"{name}:{text}" if text.startswith("\n") else f"{name}: {text}" for name, text in sections if text)
        return [*filter(None, (self._head,)), *lines]

    def _size(self) -> int:
        return self._counter.text("\n".join(self.parts()))

    # What the user said

    def _choose_requests(self, units: Sequence[StoryUnit], material: HandoffMaterial) -> list[StoryUnit]:
        """The user's sentences that matter most: the newest and the first request, and what the work took up."""
        users = [unit for unit in units if unit.voice == "user"]
        used = {word for unit in units if unit.voice != "user" for word in _WORD.findall(unit.text.lower())}
        # Code, a heading or a log in a user's message says too little by itself.
        kept = [unit for unit in users if not _CODE.search(unit.text) and not is_quoted(unit.text)]
        spoken = {unit.turn for unit in kept}
        kept += [unit for unit in users if unit.turn in (self._first, self._now) and unit.turn not in spoken]
        kept.sort(key=lambda unit: unit.place)
        for unit in kept:
            words = set(_WORD.findall(unit.text.lower()))
            taken_up = len(words & used) / len(words) if words else 0.0
            rank = _NOW if unit.turn == self._now else _FIRST if unit.turn == self._first else 1.0
            unit.weight *= rank * (0.3 + taken_up) * (0.3 if unit.text.endswith(":") else 1.0)
        opening = [next(unit for unit in kept if unit.turn == turn) for turn in {self._first, self._now} if kept]
        opening += [each for unit in opening for each in _led_to(unit, kept) if each not in opening]
        for unit in opening:
            unit.text = cut_words(unit.text, max(int(self._tokens * _OPENING), 40))
        rest = [unit for unit in kept if unit not in opening]
        story = Story(rest, self._counter.texts, material.after)
        story.cover([unit.text for unit in opening])
        story.start()
        story.fill(self._tokens * _USER_SHARE - sum(self._counter.texts([unit.text for unit in opening])))
        return sorted((*opening, *story.taken()), key=lambda unit: unit.place)

    def _quote(self, turn: int) -> str:
        units = [unit for unit in self._requests if unit.turn == turn]
        text = ""
        for before, unit in zip((None, *units), units, strict=False):
            gap = "" if before is None else " " if unit.place == before.place + 1 else " … "
            text += gap + " ".join(unit.text.split())
        return f'"{text}"' if text else ""

    # What happened

    def _story(self, candidates: Sequence[StoryUnit], material: HandoffMaterial) -> Story:
        units = [unit for unit in candidates if tells(unit)]
        decided = {_bare(line.text) for line in self._of(FINDINGS)}
        last = {self._exchange(unit.turn): unit.turn for unit in units if unit.voice == "agent"}
        for unit in units:
            if unit.voice == "agent" and last[self._exchange(unit.turn)] == unit.turn:
                unit.weight *= _LAST_WORDS
            if unit.text in decided:
                unit.weight *= _DECIDED
            unit.weight *= 1 + _LATE * _LEFT ** sum(start > unit.turn for start in self._starts)
        story = Story(units, self._counter.texts, material.after)
        ledgers = (self._rules, [text for _, text in self._files], self._failed, self._left, self._next)
        story.cover([*(unit.text for unit in self._requests), *(text for texts in ledgers for text in texts)])
        story.start()
        return story

    def _exchange(self, turn: int) -> int:
        return max((start for start in self._starts if start <= turn), default=-1)

    def _so_far(self) -> Iterator[str]:
        """One line for each exchange: what the user said, and what was done and found then."""
        by_exchange: dict[int, list[StoryUnit]] = {}
        for unit in self._done.taken():
            by_exchange.setdefault(self._exchange(unit.turn), []).append(unit)
        for turn in sorted({-1, *self._starts}):
            words = "" if turn in (self._first, self._now) else self._quote(turn)
            texts = ((" ".join(unit.text.split()), unit.voice) for unit in by_exchange.get(turn, ()))
            done = " ".join(_ended(_STATISTICS.sub("", text) if voice == "commit" else text) for text, voice in texts)
            if words or done:
                yield " → ".join(filter(None, (words, done)))

    # How things stand

    def _of(self, section: str) -> list[LedgerLine]:
        return sorted((line for line in self._lines if line.section == section), key=lambda line: -line.turn)

    def _changed(self) -> list[tuple[str, str]]:
        """Changed files by what became of them, those that were there before first; then what was done outside."""
        current = self._of(STANDING)
        changed = [line for line in current if line.status in FILE_STATUSES and line.status not in ("read", "deleted")]
        lines = sorted((line for line in changed if " · deleted" not in line.text), key=_is_new)
        files = {line.text.partition(" · ")[0].partition(" (×")[0].removeprefix(self._root): line for line in lines}
        files = {path: files[path] for path in self._fitting(files, _FILES_SHARE)}
        described = self._fitting(filter(None, map(_changes, files.values())), _CHANGES_SHARE)
        groups: dict[str, list[str]] = {}
        for path, line in files.items():
            what = _changes(line)
            groups.setdefault(line.status, []).append(f"{path} ({what})" if what in described else path)
        outside = (line.text for line in current if line.status == "outside" and "git commit" not in line.text)
        by_status = [(status.capitalize(), by_folder(paths)) for status, paths in groups.items()]
        return [*by_status, ("Done outside", "; ".join(self._fitting(outside, _OUTSIDE_SHARE)))]

    def _failures(self, is_meant: Callable[[str], bool]) -> Iterator[str]:
        lines = [line for line in self._of(FAILED) if is_meant(line.status)]
        most = int(self._tokens * _FAILED_SHARE * 3)
        for line in lines[:_MOST_FAILURES]:
            found = _FAILURE.match(line.text)
            command, error, times = found.groups(default="") if found else (line.text, "", "")
            tried = cut_words(command.replace(self._root or "\0", ""), most // 2)
            yield f"`{tried}` → {cut_words(error, most - len(tried))}{times}" if error else tried

    def _coming(self) -> Iterator[str]:
        """What is under way, asked or planned."""
        for line in self._of(STANDING):
            if line.status in _NEXT and len(line.text.split()) >= _FEWEST_WORDS:
                text = _ended(line.text.rstrip(": "))
                if line.status == "next" and _REMARK.match(text) and not _INTENT.search(text):
                    continue
                yield text if line.status in ("next", "doing") else f"{line.status}: {text}"

    def _fitting(self, texts: Iterable[str], share: float) -> list[str]:
        """The first of some texts, as many as have room in their share."""
        room = share * self._tokens
        chosen = []
        for text in dict.fromkeys(texts):
            cost = self._counter.text(text) + 1
            if cost <= room:
                room -= cost
                chosen.append(text)
        return chosen


def _led_to(unit: StoryUnit, units: Sequence[StoryUnit]) -> Iterator[StoryUnit]:
    """What follows a sentence that only leads to it, in the same message."""
    after = (each for each in units if each.turn == unit.turn and each.place > unit.place)
    for each in islice(after, _MOST_LED):
        if not unit.text.rstrip("*_ ").endswith(":"):
            return
        yield each
        unit = each


def _bare(text: str) -> str:
    """A ledger's line without the id of its source."""
    return _SOURCE.sub(lambda found: f" (×{found[1]})" if found[1] else "", text)


def tells(unit: StoryUnit) -> bool:
    """Whether somebody who takes over needs this: conclusions, outcomes and commits, not the steps to them."""
    if unit.voice == "run":
        return unit.weight >= CHECK
    if unit.voice not in _VOICES or unit.text.endswith(":") or " | " in unit.text or _UNDER_WAY.match(unit.text):
        return False
    words = unit.text.split()
    if len(words) < _FEWEST_WORDS or _NARRATES.match(unit.text) or _REMARK.match(unit.text):
        return False
    if unit.text.startswith(">") or unit.text.endswith(("?", "\uff1f")) or _is_heading(unit.text, words):
        return False
    return rank_of(unit.text) is not Rank.OUT


def _ended(text: str) -> str:
    return text if text.endswith(_ENDS) else f"{text}."


def _changes(line: LedgerLine) -> str:
    """What changed in a file that is not committed, by the names of what was added, changed or taken out."""
    how = line.text.partition(" · ")[2] if line.status == "uncommitted" else ""
    return ", ".join("".join(each) for each in _CHANGE.findall(how)[:_MOST_CHANGES])


def by_folder(paths: Iterable[str]) -> str:
    """Files, those of one folder behind its name."""
    folders: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        bare, bracket, what = path.partition(" (")
        folder, _, name = bare.rpartition("/")
        name += bracket + what
        folders.setdefault(folder, []).append(name)
    groups = (
        f"in {folder}: {', '.join(names)}"
        if folder and len(names) > 1
        else ", ".join(f"{folder}/{name}" if folder else name for name in names)
        for folder, names in folders.items()
    )
    return "; ".join(groups)


def _is_heading(text: str, words: Sequence[str]) -> bool:
    return not text.endswith(_ENDS) and len(words) < 8 and sum(word[:1].isupper() for word in words) > len(words) * 0.6


def _is_new(line: LedgerLine) -> bool:
    """A file that the agent made itself is oftener a scratch file than one that it changed."""
    return " · created" in line.text or line.text.startswith("/tmp/")


# As a record


def resume_brief(
    checkpoint: Checkpoint,
    facts: Sequence[Fact],
    tokens: int,
    material: HandoffMaterial | None = None,
    *,
    names_commands: bool = True,
) -> str:
    """What a fresh window is given to start with, in at most so many tokens, the most important first.

    The task and every failure that is not resolved are always there: failures are cut short before they take too much,
    and only they may lift the brief above `tokens`. `material` is what is known of the conversation; of the rest,
    what does not fit is counted and can be looked up. `names_commands` says whether a line tells how.
    """
    if not is_enough(tokens, _FEWEST_BRIEF):
        raise BadSetting(f"resume: tokens={tokens!r:.40} is too small; use at least {_FEWEST_BRIEF}, for example 4000")
    counter = message_counter_for(None)
    known = material or HandoffMaterial(tuple(ledger_lines(facts)))
    units = [unit for unit in known.units if unit.voice != "look"]
    for unit in units:
        unit.weight *= _USER_IN_BRIEF if unit.voice == "user" else 1.0
    story = Story(units, counter.texts, known.after)
    fixed, rest = _always(_without_repeats(known.lines, tokens), tokens, counter)
    rest = [*rest, *_own_lines(checkpoint)]
    counts = _counts(checkpoint, facts)
    way_back = _way_back if names_commands else _no_way_back
    bare = counter.text(render_record(_record([*fixed, *way_back(len(rest))], counts, ()))) + _HEADINGS
    room = tokens - bare
    # The story tells what was looked at, passed or installed.
    ledger = [
        line
        for line in rest
        if not story.units or (line.status not in _IN_STORY and not line.text.startswith("archived: "))
    ]
    chosen = _fitting(ledger, room * (_LEDGER_SHARE if story.units else 1.0), counter)
    story.cover([line.written for line in (*fixed, *chosen)])
    story.start()
    story.fill(room - sum(counter.texts([f"\n- {line.written}" for line in chosen])))
    while True:
        left = way_back(len(rest) - len(chosen))
        text = render_record(_record([*fixed, *chosen, *left], counts, story.lines()))
        beyond = counter.text(text) - tokens
        if beyond <= 0 or (story.is_empty and not chosen):
            return text
        if not story.is_empty:
            story.drop_last(beyond)
        else:
            chosen.pop()


def _without_repeats(lines: Sequence[LedgerLine], tokens: int) -> Iterator[LedgerLine]:
    """The lines, with long requests cut; a command that failed is left to its failure."""
    most = int(tokens * _TASK_SHARE)
    for line in lines:
        if line.section == TASK and len(line.text) > most:
            source = _SOURCE.search(line.text)
            yield structs.replace(line, text=clip_line(_bare(line.text), most) + (source[0] if source else ""))
        elif (line.section, line.status) != (STANDING, "failed"):
            yield line


def _own_lines(checkpoint: Checkpoint) -> Iterator[LedgerLine]:
    """What only the checkpoint knows."""
    own = {"phase": checkpoint.phase, "note": checkpoint.note, "git": checkpoint.git.line() if checkpoint.git else ""}
    yield from (LedgerLine(STANDING, clip_line(text, 400), 0, True, name) for name, text in own.items() if text)
    for at, line in enumerate(checkpoint.archive):
        yield LedgerLine(STANDING, f"archived: {clip_line(line.summary)}, {line.tokens:,} tokens ({line.id})", at)


def _no_way_back(_left_out: int) -> list[LedgerLine]:
    return []


def _way_back(left_out: int) -> list[LedgerLine]:
    more = f", {left_out:,} of which did not fit in here" if left_out else ""
    text = f'originals: `compactor recall ID`, `compactor recall --search "words"`; facts: `compactor facts`{more}'
    return [LedgerLine(STANDING, text, 0, True)]


def _always(
    lines: Iterable[LedgerLine], tokens: int, counter: MessageCounter
) -> tuple[list[LedgerLine], list[LedgerLine]]:
    """The lines that stay whatever the room, and the others: the task as it was first given and as it is now."""
    lines = list(lines)
    failures = [line for line in lines if line.section == FAILED and line.status != RESOLVED]
    tasks = [line for line in lines if line.section == TASK]
    kept = [line for line in tasks if line.must] or tasks[-1:]
    kept = [*(line for line in tasks[:1] if line not in kept), *kept[-1:]]
    rest = [line for line in lines if line not in kept and line not in failures]
    return [*kept, *_short_failures(failures, tokens, counter)], rest


def _short_failures(failures: Sequence[LedgerLine], tokens: int, counter: MessageCounter) -> list[LedgerLine]:
    short = list(failures)
    for most in _FAILURE_LENGTHS:
        short = [structs.replace(line, text=cut_failure(line.text, most)) for line in failures]
        if sum(counter.texts([line.text for line in short])) <= _FAILURE_SHARE * tokens:
            break
    return short


def _rank(line: LedgerLine) -> int:
    if line.section == STANDING:
        return next((rank for rank, statuses in _STANDING_RANKS.items() if line.status in statuses), 7)
    return {RULES: 0, FINDINGS: 3, TASK: 6, FAILED: 6}.get(line.section, 7)


def _fitting(lines: Sequence[LedgerLine], room: float, counter: MessageCounter) -> list[LedgerLine]:
    """As many lines as there is room for: what must be known first, then section by section, the newest first."""
    ordered = sorted(lines, key=lambda line: (not line.must, _rank(line), -line.turn))
    chosen: list[LedgerLine] = []
    for line, cost in zip(ordered, counter.texts([f"\n- {line.written}" for line in ordered]), strict=True):
        if cost <= room:
            chosen.append(line)
            room -= cost
    return chosen


def _counts(checkpoint: Checkpoint, facts: Sequence[Fact]) -> Record:
    """A record of nothing but its size. No id that is known may be given again, even if the history was not counted."""
    known = " ".join((*(fact.ref for fact in facts), *(line.id for line in checkpoint.archive)))
    refs = [ref.partition("_") for ref in REFERENCE_PATTERN.findall(known)]
    span = checkpoint.span
    turns = [*(max(fact.turn, fact.last_turn) for fact in facts), *(int(ref[2]) for ref in refs if ref[0] == "turn")]
    calls = [int(ref[2]) for ref in refs if ref[0] != "turn"]
    return Record(span.messages, span.tokens, max(span.turns, *turns, 0), max(span.calls, *calls, 0))


def _record(lines: Sequence[LedgerLine], counts: Record, happened: tuple[StoryLine, ...]) -> Record:
    ordered = sorted(lines, key=lambda line: line.turn)
    sections = {
        title: tuple(merge_entries(line.entry for line in ordered if line.section == title))
        for title in SECTIONS
        if any(line.section == title for line in lines)
    }
    return structs.replace(counts, sections=sections, happened=happened)
