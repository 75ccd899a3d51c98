"""What happened, exchange by exchange: what can be told of each, and how much of it is told.

An exchange goes from one thing the user says to the next. What can be told of it is the user's words, the agent's
sentences, and what was done with its outcome; each of these is a *unit*. A unit is worth the words that it adds to what
is told already, times who says it, times how recent it is. The best units for their tokens are taken until the room is
used up, and are told in the order in which they happened. So the ladder from one line to all of an exchange is the
order in which its units are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby, pairwise
from math import exp, inf, log2

from msgspec import Struct, structs

from context_compactor.dialects.client_text import task_notices
from context_compactor.dialects.messages import Text
from context_compactor.dialects.record import Record, StoryLine
from context_compactor.dialects.turns import Turn
from context_compactor.engine.actions import StoryStep, cut_words, report_steps, sentences_of, split_sentences, steps_of
from context_compactor.engine.classify import Verdicts
from context_compactor.engine.relevance import decay
from context_compactor.facts.decisions import answered_by
from context_compactor.facts.tasks import is_request
from context_compactor.facts.utterances import Utterance, agent_utterances, is_client_command, user_utterances

# What a sentence is worth by who says it and where; see docs/why/record.md.
_USER, _LAST_WORDS, _AGENT = 6.0, 2.6, 1.6
_CONCLUSION, _INTENTION, _LEAD_IN = 1.5, 1 / 7, 0.3
# How much more the last steps count than others, and after how many turns that is nearly over.
_NEWEST, _NEWEST_TURNS = 3.0, 6.0
# Words of the user from which on each further one is worth less.
_LONG_MESSAGE = 80
# Tokens of distance after which what was said or done is worth clearly less; the user's words do not fade.
_REACH, _BEND = 6000.0, 0.35
# A name is worth two words; a word that was told once already is still worth a little; one that comes back, more.
_NAME, _AGAIN, _COMES_BACK = 2.0, 0.15, 0.35
# What it is worth, in words, that something was done at all, whatever words it adds.
_EVENT = {"edit": 1.0, "run": 0.7, "commit": 3.0, "report": 1.0, "user": 3.0}
# A line is worth less and less the longer it gets: from this share of the story on, half as much, and so on.
_LONG_LINE, _LEAST_LONG = 0.08, 80.0
# Tokens for the turn number and the voice that a line begins with.
_LINE = 4.0
_SHORT_REPLY = 8
_BARE_REPLY = 4
_FEW_WORDS = 3
_STUB = 60
QUOTED_ABOVE = "(quoted above)"
"""Stands for words of the user that are told elsewhere."""
# Instructions that a client adds in the user's name, by how they begin, and what they are called.
_INSTRUCTIONS = {
    "# AGENTS.md instructions": "AGENTS.md",
    "<user_instructions>": "project",
    "Base directory for this": "skill",
}
_COMMAND_NAME = re.compile(r"<command-name>\s*(/?[\w:.-]{1,80})\s*</command-name>")
_INVOKED, _MOST_INSTRUCTIONS = 0.7, 120
_ITEM = re.compile(r"^\s*(\d{1,2})[.)][ \t]+(\S.*)$", re.MULTILINE)
_ITEM_LENGTH = 100
_GAP = " … "
# What a line of an earlier record is worth, by its voice: of each line the best is told already.
_READ_FILE = re.compile(r"Read (\S+)")
_WEIGHT_BEFORE = {"user": _USER, "agent": _LAST_WORDS, "commit": 4.0, "report": 2.0, "edit": 1.6, "look": 0.2}
_HEAD = re.compile(r"[^\s:]{1,200}: |Task [^:]{1,100}: ")
# Characters from which on a sentence that stands in the context already is not told again.
_REPEATED = 8

_WORD = re.compile(r"[A-Za-z0-9_]+(?:[./:-][A-Za-z0-9_]+)*|[^\W\d_A-Za-z]+")
_NAME_SIGN = re.compile(r"[._/:\d-]|[a-z][A-Z]")
_STOP = frozenset(
    "the a an and or of to in on at by for with from is are was were be been it its this that these those as not no "
    "but which what who when where how than then so if into out up down over all any each only also had has have did "
    "do does i we you they he she me my our your can will would should could just now there here let".split()
)
_CONCLUDES = re.compile(
    r"\b(?:found|root cause|because|since|so that|turns? out|turned out|means|confirm(?:s|ed)|caused?|culprit|reason"
    r"|issue (?:is|was)|problem (?:is|was)|bug (?:is|was)|fix(?:ed|es)|implemented|added|updated|removed|created"
    r"|replaced|renamed|moved|pass(?:es|ed|ing)?|fail(?:s|ed|ing)?|works?|verified|done|complete[d]?|decided|chose"
    r"|instead|rejected|recommend(?:ed|ation)?|in summary|summary|result|therefore|only|never|must|cannot|can't"
    r"|doesn't|didn't|wasn't|isn't|no longer|already|still|remaining|left|next)\b",
    re.IGNORECASE,
)
_INTENDS = re.compile(
    r"(?:now |next,? |first,? |then |ok(?:ay)?[,.]? |good[,.!]? |great[,.!]? |perfect[,.!]? |alright,? )*"
    r"(?:let me|let's|let us|i'll|i will|i'm going to|i am going to|i need to|i should|i want to|we need to"
    r"|checking|looking|running|reading|searching|reviewing)\b"
    r"|(?:now|next|then|first|also|and now)[,:]? (?:check|remove|run|add|update|fix|look|read|verify|create|write|apply"
    r"|rename|move|replace|build|commit|push|test|search|find|edit|implement|refactor|clean|handle|see|get|do|make|use"
    r"|for)\b",
    re.IGNORECASE,
)


class StoryUnit(Struct, eq=False, gc=False):
    """One sentence or step that the record can hold."""

    turn: int
    voice: str
    text: str
    weight: float
    head: str = ""
    follows: bool = True
    """Whether nothing stood between it and the unit before it."""
    place: int = 0
    tokens: float = 0.0
    words: tuple[int, ...] = ()

    @property
    def line(self) -> tuple[int, str, str]:
        """Units with one line are told in one line, behind its head."""
        return self.turn, self.voice, self.head


class StoryShare(Struct, frozen=True):
    """Of a text how many units there are, how many of them are told, and in how many tokens.

    `gain` is what the best of them adds for a token; it is infinite where one stands in the record in any case.
    """

    units: int = 0
    chosen: int = 0
    tokens: float = 0.0
    gain: float = 0.0


class Exchange(Struct, frozen=True):
    """From one thing the user says to the next: what was said (None at the beginning) and the turns that followed."""

    asked: Utterance | None
    turns: tuple[Turn, ...]


def split_exchanges(turns: Sequence[Turn], sayings: Sequence[Utterance]) -> list[Exchange]:
    """The exchanges of a conversation, in order."""
    said = {saying.turn: saying for saying in sayings}
    found: list[tuple[Utterance | None, list[Turn]]] = []
    for turn in turns:
        if turn.number in said or not found:
            found.append((said.get(turn.number), []))
        found[-1][1].append(turn)
    return [Exchange(asked, tuple(each)) for asked, each in found]


def story_units(
    turns: Sequence[Turn], verdicts: Verdicts, past: Record | None, folded: Iterable[int]
) -> list[StoryUnit]:
    """All that can be told of the turns that are folded, and of those that an earlier record told, in order."""
    gone = set(folded)
    live = [turn for turn in turns if not turn.is_fixed]
    units = [*_units_of_record(past)]
    said = {saying.turn: saying.text for saying in agent_utterances(live)}
    exchanges = split_exchanges(live, user_utterances(live))
    before = ""
    for exchange in exchanges:
        last = max((turn.number for turn in exchange.turns if turn.number in said), default=0)
        for unit in _units(exchange, said, before, last, verdicts):
            if unit.turn in gone:
                units.append(unit)
        before = said.get(last, before)
    for place, unit in enumerate(units):
        unit.place = place
    return units


def _units_of_record(past: Record | None) -> Iterator[StoryUnit]:
    """What an earlier record told, line by line, so that it can be told again or in fewer words."""
    for line in past.happened if past else ():
        weight = _WEIGHT_BEFORE.get(line.voice, 1.0)
        # The file or the sub-agent's task that the line names first.
        path = _HEAD.match(line.text) if line.voice in ("edit", "report") else None
        head, text = (path[0], line.text[path.end() :]) if path else ("", line.text)
        for piece in text.split(_GAP):
            for at, sentence in enumerate(split_sentences(piece)):
                strength = _strength(sentence) if line.voice == "agent" else 1.0
                yield StoryUnit(line.turn, line.voice, sentence, weight * strength, head, follows=at > 0)


def _units(exchange: Exchange, said: dict[int, str], before: str, last: int, verdicts: Verdicts) -> Iterator[StoryUnit]:
    if exchange.asked is not None:
        yield from _user_units(_as_typed(exchange.asked, exchange.turns[0]), before)
    yield from (unit for turn in exchange.turns if turn.role == "user" for unit in _instruction_units(turn))
    done = {turn.number: list(steps_of(turn, verdicts)) for turn in exchange.turns}
    steps = [(number, step) for number, several in done.items() for step in several]
    repeated = {id(step) for _, step in _attempts(steps)} | _superseded_reads([step for _, step in steps])
    merged = dict(_merged_attempts(steps))
    for turn in exchange.turns:
        if turn.number in said:
            weight = _LAST_WORDS if turn.number == last else _AGENT
            for sentence in sentences_of(said[turn.number]):
                yield StoryUnit(turn.number, "agent", sentence, weight * _strength(sentence))
        for step in (*done[turn.number], *_reported(turn)):
            if id(step) in merged:
                yield merged[id(step)]
            elif id(step) not in repeated:
                yield StoryUnit(turn.number, step.voice, step.text, step.weight, step.head)


def _superseded_reads(steps: Sequence[StoryStep]) -> set[int]:
    """The ids of steps that only read a file which a later one changes, runs or reads again."""
    later = ""
    found = set()
    for step in reversed(steps):
        path = _READ_FILE.fullmatch(step.text) if step.voice == "look" else None
        name = path[1].rpartition("/")[2] if path else ""
        if name and name in later:
            found.add(id(step))
        later = f"{later}\n{step.head}{step.text}"
    return found


def _reported(turn: Turn) -> Iterator[StoryStep]:
    """What sub-agents in the background have reported in a turn."""
    for message in turn.messages:
        for notice in task_notices(message.text) if message.role == "user" else ():
            if notice.report:
                yield from report_steps(f"{notice.title}: ", notice.report)


def _attempts(steps: Sequence[tuple[int, StoryStep]]) -> list[tuple[int, StoryStep]]:
    """The runs of one command that was run more than once."""
    counts: dict[str, int] = {}
    for _, step in steps:
        if step.voice == "run":
            counts[_command(step)] = counts.get(_command(step), 0) + 1
    return [(turn, step) for turn, step in steps if step.voice == "run" and counts[_command(step)] > 1]


def _merged_attempts(steps: Sequence[tuple[int, StoryStep]]) -> Iterator[tuple[int, StoryUnit]]:
    """For each command that was run again its last run, told with how the ones before ended."""
    attempts = sorted(_attempts(steps), key=lambda each: _command(each[1]))
    for command, group in groupby(attempts, key=lambda each: _command(each[1])):
        runs = list(group)
        ends = [step.text.removeprefix(f"{command} → ") for _, step in runs]
        counted = ((end, len(list(same))) for end, same in groupby(ends))
        outcomes = [f"{end} ×{times}" if times > 1 else end for end, times in counted]
        turn, last = runs[-1]
        text = f"{command} (×{len(runs)}) → {'; then '.join(outcomes[-4:])}"
        yield id(last), StoryUnit(turn, "run", text, max(step.weight for _, step in runs))


def _command(step: StoryStep) -> str:
    return step.text.partition(" → ")[0]


def _as_typed(saying: Utterance, turn: Turn) -> Utterance:
    """What the user said, behind the slash command by which it was said."""
    command = next((found[1] for message in turn.messages if (found := _COMMAND_NAME.search(message.text))), "")
    if not command or is_client_command(command) or command in saying.text:
        return saying
    return Utterance(saying.turn, f"{command} {saying.text}")


def _user_units(saying: Utterance, before: str) -> Iterator[StoryUnit]:
    text = saying.text.strip()
    words = len(text.split())
    if words <= _SHORT_REPLY:
        is_clear = words > _BARE_REPLY and is_request(text)
        answered = "" if is_clear else answered_by(text, before)
        yield StoryUnit(saying.turn, "user", f'{text} (to: "{answered}")' if answered else text, _USER)
        return
    weight = _USER * min(1.0, (_LONG_MESSAGE / words) ** 0.5)
    items = dict(_ITEM.findall(before)) if _ITEM.match(text) else {}
    for at, sentence in enumerate(sentences_of(text, is_quote=True)):
        yield StoryUnit(saying.turn, "user", _with_item(sentence, items), weight * (1.5 if at == 0 else 1.0))


def _instruction_units(turn: Turn) -> Iterator[StoryUnit]:
    """What a client put in of instructions in the user's name: a project's rules, a skill, a command's text."""
    command = ""
    for part in (part for message in turn.messages for part in message.parts if isinstance(part, Text)):
        named = _COMMAND_NAME.search(part.text)
        if named:
            command = "" if is_client_command(named[1]) else named[1]
            continue
        source = next((name for opening, name in _INSTRUCTIONS.items() if part.text.lstrip().startswith(opening)), "")
        if command or source:
            for sentence in sentences_of(part.text)[:_MOST_INSTRUCTIONS]:
                yield StoryUnit(turn.number, "rules", sentence, _INVOKED, f"{command or source}: ")


def _with_item(sentence: str, items: dict[str, str]) -> str:
    """A short numbered answer with the point of the agent's list that it answers."""
    numbered = _ITEM.match(sentence)
    if numbered is None or numbered[1] not in items or sentence.count(" ") > _SHORT_REPLY:
        return sentence
    return f'{sentence} (to: "{cut_words(items[numbered[1]].strip("* "), _ITEM_LENGTH)}")'


def _strength(sentence: str) -> float:
    """How much a sentence of the agent says: a conclusion more than others, an intention or a lead-in very little."""
    if _INTENDS.match(sentence):
        return _INTENTION
    if sentence.endswith(":") or sentence.count(" ") < _FEW_WORDS:
        return _LEAD_IN
    return _CONCLUSION if _CONCLUDES.search(sentence) else 1.0


class Story:
    """Chooses units by what they add for their tokens, and writes those chosen as lines in order."""

    def __init__(
        self, units: Sequence[StoryUnit], count: Callable[[Sequence[str]], Sequence[int]], after: dict[int, int]
    ) -> None:
        self.units = units
        self.tokens = 0.0
        self._chosen: list[tuple[int, float]] = []
        self._taken = bytearray(len(units))
        self._gains = [0.0] * len(units)
        self._repeated: set[int] = set()
        self._open: dict[tuple[int, str, str], float] = {}
        self._long_line = _LEAST_LONG
        self._numbers: dict[str, int] = {}
        newest, oldest = max(after, default=0), max(after.values(), default=0)
        for unit, tokens in zip(units, count([unit.text for unit in units]), strict=True):
            unit.tokens = tokens + 1.0
            unit.words = self._words(unit.text)
            if unit.voice != "user":
                unit.weight *= decay(after.get(unit.turn, oldest), _REACH, _BEND)
                unit.weight *= 1.0 + _NEWEST * exp((unit.turn - newest) / _NEWEST_TURNS)
        self._worth = self._word_worth()
        self._seen = bytearray(len(self._numbers))
        self._heap: list[tuple[float, int]] = []

    def cover(self, texts: Sequence[str]) -> None:
        """These texts stand in the context anyway: no unit that repeats one of them is told."""
        standing = " ".join(" ".join(texts).split())
        for at, unit in enumerate(self.units):
            if len(unit.text) > _REPEATED and " ".join(unit.text.split()) in standing:
                self._taken[at] = 1
                self._repeated.add(at)
        for text in texts:
            for word in _words(text):
                number = self._numbers.get(word)
                if number is not None and self._seen[number] < 2:
                    self._seen[number] += 1

    def start(self) -> None:
        """Weigh every unit once; nothing more is covered."""
        self._numbers = {}
        self._heap = [(-self._density(at), at) for at in range(len(self.units))]
        heapify(self._heap)

    def fill(self, tokens: float) -> None:
        """Take the best units that fit until about this many tokens are used."""
        self._long_line = max(self._long_line, _LONG_LINE * tokens)
        heap = self._heap
        skipped: list[tuple[float, int]] = []
        while heap and self.tokens < tokens and len(skipped) < 40:
            old, at = heap[0]
            if self._taken[at]:
                heappop(heap)
                continue
            now = -self._density(at)
            if now > old + 1e-9 and len(heap) > 1:
                heapreplace(heap, (now, at))
                continue
            heappop(heap)
            if now >= 0.0:
                continue
            if self.tokens + self._cost(at) > tokens:
                skipped.append((now, at))
            else:
                self._take(at)
        for entry in skipped:
            heappush(heap, entry)

    def drop_last(self, tokens: float) -> None:
        """Give back the units taken last until about this many tokens are free; they are not taken again."""
        free = 0.0
        while self._chosen and free < tokens:
            at, cost = self._chosen.pop()
            unit = self.units[at]
            self._taken[at] = 0
            self._open[unit.line] -= unit.tokens
            free += cost
            self.tokens -= cost

    @property
    def is_empty(self) -> bool:
        """Whether nothing is told."""
        return not self._chosen

    def taken(self) -> list[StoryUnit]:
        """The units that are told, in order."""
        return [unit for at, unit in enumerate(self.units) if self._taken[at] and at not in self._repeated]

    def lines(self) -> tuple[StoryLine, ...]:
        """What is told, in order; the words of an exchange's user are at least begun."""
        known: set[str] = set()
        last = "", ""
        lines: list[StoryLine] = []
        for (turn, voice, head), group in groupby(self._chosen_units(), key=lambda unit: unit.line):
            # A path that was named before goes by its last part.
            shown = head.rpartition("/")[2] if head in known else head
            known.add(head)
            text = _joined(list(group))
            if lines and head and voice == "edit" and last == (voice, head):
                lines[-1] = structs.replace(lines[-1], text=lines[-1].text + _GAP + text)
            else:
                lines.append(StoryLine(turn, voice, shown + text))
            last = voice, head
        return tuple(lines)

    def shares(self) -> dict[tuple[int, str], StoryShare]:
        """How much is told of each turn: of the user's words, of the agent's, and of what was done."""
        found: dict[tuple[int, str], StoryShare] = {}
        for at, unit in enumerate(self.units):
            key = unit.turn, unit.voice if unit.voice in ("user", "agent") else "step"
            before = found.get(key, StoryShare())
            is_chosen = bool(self._taken[at])
            gain = inf if at in self._repeated else self._gains[at] if is_chosen else self._density(at)
            found[key] = StoryShare(
                before.units + 1,
                before.chosen + is_chosen,
                before.tokens + is_chosen * unit.tokens,
                max(before.gain, gain),
            )
        return found

    def gains(self) -> list[float]:
        """What each unit that is told added for a token when it was chosen."""
        return [self._gains[at] for at, _ in self._chosen]

    def _chosen_units(self) -> Iterator[StoryUnit]:
        """The units that are told; before what an exchange led to, at least how the user's words begin."""
        asked: StoryUnit | None = None
        for at, unit in enumerate(self.units):
            is_chosen = self._taken[at] and at not in self._repeated
            if unit.voice == "user" and not is_chosen:
                asked = unit if asked is None or asked.turn != unit.turn else asked
            elif is_chosen:
                if asked is not None and asked.turn != unit.turn:
                    is_above = asked.place in self._repeated
                    stub = StoryUnit(
                        asked.turn, "user", QUOTED_ABOVE if is_above else cut_words(asked.text, _STUB), 0.0
                    )
                    stub.place = asked.place
                    yield stub
                asked = None
                yield unit

    def _cost(self, at: int) -> float:
        unit = self.units[at]
        return unit.tokens if self._open.get(unit.line) else unit.tokens + _LINE + len(unit.head) / 4

    def _density(self, at: int) -> float:
        seen, worth = self._seen, self._worth
        unit = self.units[at]
        used = self._open.get(unit.line, 0.0)
        value = 0.0 if used else _EVENT.get(unit.voice, 0.0)
        for word in unit.words:
            times = seen[word]
            if times == 0:
                value += worth[word]
            elif times == 1:
                value += worth[word] * _AGAIN
        return unit.weight * value / (self._cost(at) * (1.0 + (used / self._long_line) ** 2))

    def _take(self, at: int) -> None:
        unit = self.units[at]
        cost = self._cost(at)
        self._gains[at] = self._density(at)
        self.tokens += cost
        self._chosen.append((at, cost))
        self._taken[at] = 1
        self._open[unit.line] = self._open.get(unit.line, 0.0) + unit.tokens
        for word in unit.words:
            if self._seen[word] < 2:
                self._seen[word] += 1

    def _words(self, text: str) -> tuple[int, ...]:
        numbers = self._numbers
        return tuple(numbers.setdefault(word, len(numbers)) for word in dict.fromkeys(_words(text)))

    def _word_worth(self) -> list[float]:
        uses = [0] * len(self._numbers)
        for unit in self.units:
            for word in unit.words:
                uses[word] += 1
        names = (bool(_NAME_SIGN.search(word)) for word in self._numbers)
        return [
            (_NAME if is_name else 1.0) * (1.0 + _COMES_BACK * log2(max(count, 1)))
            for is_name, count in zip(names, uses, strict=True)
        ]


def _words(text: str) -> Iterator[str]:
    return filter(None, map(_plain_word, _WORD.findall(text)))


@lru_cache(maxsize=65_536)
def _plain_word(word: str) -> str:
    """A word as it is compared: a name as it is, others in small letters; empty for one that says nothing."""
    plain = word if _NAME_SIGN.search(word) else word.lower()
    return plain if len(plain) > 1 and plain not in _STOP else ""


def _joined(units: Sequence[StoryUnit]) -> str:
    """Units of one line: neighbours follow each other, others with a mark between them."""
    text = units[0].text
    for before, unit in pairwise(units):
        text += (" " if unit.follows and unit.place == before.place + 1 else _GAP) + unit.text
    return text
