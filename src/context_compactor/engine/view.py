"""What strategies and the planner look at: every text of a conversation, cut into lines and weighed."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log

from msgspec import Struct

from context_compactor.dialects.client_text import NOTICE_TAG
from context_compactor.dialects.messages import Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.record import ANSWER, GAP, Excerpt
from context_compactor.dialects.turns import ToolUse, Turn, reference_id
from context_compactor.engine.classify import Verdict, Verdicts
from context_compactor.engine.layouts import Zone, may_clear_thinking, newest_step
from context_compactor.engine.options import Block, Blocks, TextSource, joined_blocks
from context_compactor.engine.relevance import VOICE_WEIGHT, Weights, decay, text_weight
from context_compactor.engine.tiers import Tier, TierOverrides
from context_compactor.facts.calls import call_body
from context_compactor.facts.kinds import KIND_WEIGHT, Kind, Voice
from context_compactor.facts.ledgers import LedgerLine
from context_compactor.facts.names import NameTable
from context_compactor.facts.side_effects import is_launch
from context_compactor.tokens.counting import MessageCounter


class Focus:
    """What the user wants to have in view. `split` takes a text apart into words that can be compared."""

    def __init__(self, text: str, split: Callable[[str], Iterable[str]]) -> None:
        self._wanted = frozenset(split(text))
        self._split = split

    def shares(self, texts: Sequence[str]) -> list[float]:
        """For each text how much of the focus it is about, from 0 to 1; less when many others are about it too."""
        if not self._wanted:
            return [0.0] * len(texts)
        found = [self._wanted.intersection(self._split(text)) for text in texts]
        counts = Counter(word for words in found for word in words)
        most = log(len(texts) + 1)
        rarity = {word: log((len(texts) + 1) / count) / most for word, count in counts.items()}
        whole = sum(rarity.values())
        return [sum(rarity[word] ** 2 for word in words) / whole if words else 0.0 for words in found]


LONG_LINE = 150
_MOST_BLOCKS = 4_000
_LONGEST = 2_000_000
_NUMBERED = re.compile(r"^ {0,8}\d+(?:→|\t)", re.MULTILINE)
_PIECE = re.compile(r".{1,150}(?:[\s,;}\])]|$)|.{1,150}")


_LONE_TAG = re.compile(r"\s*</?[a-z][\w-]{0,40}>\s*")
_OPTION = re.compile(
    r"(?:cwd|workdir|glob|type|output_mode|subagent_type|model|shell|id|taskId|status): \S*"
    r"|(?:description|activeForm|explanation|justification): .*"
    r"|[\w-]+: (?:-?[\d.]+|true|false|null|\[\]|\"\")"
)


def strip_numbers(text: str) -> str:
    """A file as it is, without the line numbers that a reading tool put in front of each line."""
    head = text[:400]
    if "→" not in head and "\t" not in head:
        return text
    lines = head.count("\n") + 1
    if len(_NUMBERED.findall(head)) * 2 < lines:
        return text
    return _NUMBERED.sub("", text)


def cut_blocks(text: str, *, is_call: bool = False) -> Blocks:
    """The lines that say something, each a block of its own; long lines are cut into pieces.

    Of a call the bare options say nothing: nobody asks for the limit or the offset again.
    """
    places = array("I")
    start = 0
    for at, line in enumerate(text.split("\n")):
        end = start + len(line)
        if not line or line.isspace() or _LONE_TAG.fullmatch(line) or (is_call and _OPTION.fullmatch(line)):
            pass
        elif len(line) > LONG_LINE:
            for piece in _PIECE.finditer(line[:_LONGEST]):
                if not piece[0].isspace():
                    places.extend((start + piece.start(), start + piece.end(), at, 1))
        else:
            places.extend((start, end, at, 1))
        start = end + 1
    if len(places) > 4 * _MOST_BLOCKS:
        del places[2 * _MOST_BLOCKS : -2 * _MOST_BLOCKS]
    return Blocks(text, places)


_EXCERPT_LINES = 3
_COUNTED = re.compile(r" · (?:\d+|digest)/(\d+)$")


class PlanningView(Struct, frozen=True):
    """One conversation, ready to be planned."""

    turns: tuple[Turn, ...]
    zones: dict[int, Zone]
    sources: tuple[TextSource, ...]
    verdicts: Verdicts
    names: NameTable
    weights: Weights
    focus: Focus | None = None
    without_media: frozenset[int] = frozenset()
    quoted: str = ""
    """What the record quotes of the user anyway."""
    factors: dict[int, float] = {}
    """By how much a turn is worth more or less than it seems to us, when a model has judged it."""
    tier_overrides: TierOverrides = {}
    """What the user has decided about turns."""
    why: dict[int, str] = {}
    """For each turn whose tier the user set, or that had to follow one, the reason."""

    def zone_of(self, source: TextSource) -> Zone:
        """Where the turn of a source ends up; what belongs to no turn goes into the record."""
        return Zone.FOLDED if source.is_loose else self.zones[source.turn]

    def is_open(self, source: TextSource) -> bool:
        """Whether a source may be shortened."""
        zone = self.zone_of(source)
        return zone is Zone.FOLDED or (zone is Zone.PLACED and source.voice in (Voice.RESULT, Voice.THINKING))

    def kept_turns(self) -> list[int]:
        """The turns that the user wants to keep word for word."""
        return [number for number, tier in self.tier_overrides.items() if tier is Tier.KEEP]

    def open_sources(self) -> Iterator[TextSource]:
        """The sources that may be shortened: what strategies make proposals for."""
        return (source for source in self.sources if self.is_open(source))


class TurnText(Struct, frozen=True):
    """A text of a turn before it is cut and weighed."""

    turn: int
    voice: Voice
    text: str
    tokens: int
    exchange: int
    message: int
    part: int
    is_clearable: bool = True


def turn_texts(turns: Sequence[Turn], counter: MessageCounter) -> Iterator[TurnText]:
    """Every text of the turns in order, with its tokens. Instructions are not among them: they are never touched."""
    newest = newest_step(turns)
    for turn in turns:
        if turn.is_fixed:
            continue
        clears = may_clear_thinking(turn, newest, counter.dialect)
        numbers = _exchange_numbers(turn.exchanges)
        for at, message in enumerate(turn.messages):
            tokens = counter.part_tokens(message)
            for index, part in enumerate(message.parts):
                voice = _voice(part, message.role)
                if voice is not None:
                    number = numbers.get((voice, _call_id(part)), 0)
                    yield TurnText(turn.number, voice, _part_text(part), tokens[index], number, at, index, clears)


def _exchange_numbers(exchanges: Sequence[ToolUse]) -> dict[tuple[Voice, str], int]:
    found: dict[tuple[Voice, str], int] = {}
    for exchange in exchanges:
        if exchange.call:
            found[Voice.CALL, exchange.call.id] = exchange.number
        if exchange.result:
            found[Voice.RESULT, exchange.result.call_id] = exchange.number
    return found


# How a report is called that came as a message in the user's name.
_REPORT = "sub-agent report"
_VOICES = {"assistant": Voice.AGENT, "system": Voice.SYSTEM, "developer": Voice.SYSTEM}


def _voice(part: Part, role: str) -> Voice | None:
    if isinstance(part, Text):
        return _VOICES.get(role, Voice.USER)
    if isinstance(part, Thinking):
        return Voice.THINKING
    if isinstance(part, ToolCall):
        return Voice.CALL
    return Voice.RESULT if isinstance(part, ToolResult) else None


def _call_id(part: Part) -> str:
    if isinstance(part, ToolCall):
        return part.id
    return part.call_id if isinstance(part, ToolResult) else ""


def _part_text(part: Part) -> str:
    if isinstance(part, ToolCall):
        return call_body(part)
    return part.text if isinstance(part, (Text, Thinking, ToolResult)) else ""


def build_sources(
    spoken: Sequence[TurnText],
    excerpts: Sequence[Excerpt],
    ledger: Sequence[LedgerLine],
    verdicts: Verdicts,
    weights: Weights,
) -> tuple[TextSource, ...]:
    """All sources: excerpts of an earlier record, the turns, and the lines of the ledgers that may be left out."""
    after = sum(text.tokens for text in spoken)
    sources = [_excerpt_source(at, excerpt, after, weights) for at, excerpt in enumerate(excerpts)]
    touched = _last_touch(spoken, verdicts, after)
    for text in spoken:
        after -= text.tokens
        verdict = verdicts.exchanges.get(text.exchange)
        since = touched.get(verdict.path, after) if verdict else after
        age = int(since + weights.own_age * (after - since))
        sources.append(_source(len(sources), text, age, verdict, weights))
    for section in dict.fromkeys(line.section for line in ledger):
        lines = [line for line in ledger if line.section == section]
        sources.append(_ledger_source(len(sources), section, lines))
    return tuple(sources)


def _last_touch(spoken: Sequence[TurnText], verdicts: Verdicts, after: int) -> dict[str, int]:
    """The tokens since each file was last read or written: what is under work stays fresh."""
    touched: dict[str, int] = {}
    for text in spoken:
        after -= text.tokens
        verdict = verdicts.exchanges.get(text.exchange)
        if verdict and verdict.path:
            touched[verdict.path] = after
    return touched


def _source(number: int, spoken: TurnText, after: int, verdict: Verdict | None, weights: Weights) -> TextSource:
    voice = spoken.voice
    is_report = voice is Voice.USER and spoken.text.lstrip().startswith(NOTICE_TAG)
    kind = verdict.kind if verdict and voice is Voice.RESULT else Kind.SUBAGENT if is_report else Kind.TALK
    text = strip_numbers(spoken.text) if kind is Kind.CODE else spoken.text
    is_result = voice is Voice.RESULT
    return TextSource(
        number=number,
        turn=spoken.turn,
        voice=voice,
        kind=kind,
        label=verdict.label if verdict else _REPORT if is_report else voice.value,
        ref=verdict.ref if verdict else reference_id("turn", spoken.turn),
        text=text,
        tokens=spoken.tokens,
        blocks=Blocks(text) if voice is Voice.THINKING else cut_blocks(text, is_call=voice is Voice.CALL),
        lines=text.count("\n") + 1,
        exchange=spoken.exchange,
        path=verdict.path if verdict else "",
        weight=text_weight(
            Voice.RESULT if is_report else voice,
            kind,
            after,
            spoken.tokens,
            text.count("\n") + 1,
            # What a client says when a sub-agent starts no longer holds when it has reported.
            is_superseded=bool(verdict and (verdict.superseded_by or verdict.is_outdated))
            or (kind is Kind.SUBAGENT and is_launch(text)),
            is_under_edit=bool(verdict and verdict.is_under_edit),
            is_look=bool(verdict and verdict.is_look),
            weights=weights,
        ),
        is_failure=bool(is_result and verdict and verdict.failure),
        superseded_by=verdict.superseded_by if verdict and is_result else 0,
        duplicate_of=verdict.duplicate_of if verdict and is_result else 0,
        message=spoken.message,
        part=spoken.part,
        is_clearable=spoken.is_clearable,
    )


def _excerpt_source(number: int, excerpt: Excerpt, after: int, weights: Weights) -> TextSource:
    counted = _COUNTED.search(excerpt.label)
    label = excerpt.label[: counted.start()] if counted else excerpt.label
    found = _excerpt_blocks(excerpt.lines)
    text, blocks = joined_blocks(found or (Block(label, 0, 1),))
    voice, kind = _excerpt_voice(excerpt.ref, label)
    return TextSource(
        number=number,
        turn=0,
        voice=voice,
        kind=kind,
        label=label or "call",
        ref=excerpt.ref,
        text=text or label,
        tokens=len(text) // 4 + 1 if found else 1,
        blocks=blocks,
        lines=int(counted[1]) if counted else max(len(excerpt.lines), 1),
        weight=VOICE_WEIGHT[voice] * _excerpt_factor(voice, kind) * decay(after, weights.reach, weights.bend),
        is_loose=True,
    )


def _excerpt_voice(ref: str, label: str) -> tuple[Voice, Kind]:
    """Who speaks in an excerpt, as far as its heading tells."""
    if label in (Voice.USER, Voice.AGENT, Voice.SYSTEM):
        return Voice(label), Kind.TALK
    if ref.startswith("file_"):
        return Voice.RESULT, Kind.CODE
    return (Voice.RESULT, Kind.SUBAGENT) if ref.startswith("agent_") or label == _REPORT else (Voice.CALL, Kind.TALK)


def _excerpt_factor(voice: Voice, kind: Kind) -> float:
    """A call's excerpt may hold its answer as well."""
    return KIND_WEIGHT[kind] if voice is Voice.RESULT else 0.5 if voice is Voice.CALL else 1.0


def _excerpt_blocks(lines: Sequence[str]) -> tuple[Block, ...]:
    """The lines between two marks belong together; the marks tell how they stood, so each gap counts one line."""
    blocks: list[Block] = []
    run: list[str] = []
    at = 0
    for line in (*lines, GAP):
        is_mark = line in (GAP, ANSWER)
        if run and (is_mark or len(run) == _EXCERPT_LINES):
            blocks.append(Block("\n".join(run), at, len(run)))
            at += len(run)
            run = []
        at += is_mark
        if not is_mark:
            run.append(line)
    return tuple(blocks)


def _ledger_source(number: int, section: str, lines: Sequence[LedgerLine]) -> TextSource:
    text, blocks = joined_blocks([Block(line.written, at, 1) for at, line in enumerate(lines)])
    return TextSource(
        number=number,
        turn=0,
        voice=Voice.FACT,
        kind=Kind.TALK,
        label=section,
        ref="",
        text=text,
        tokens=len(text) // 4 + 1,
        blocks=blocks,
        lines=len(lines),
        weight=VOICE_WEIGHT["fact"],
        is_loose=True,
        entries=tuple(line.entry for line in lines),
    )
