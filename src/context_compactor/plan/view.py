"""What strategies and the planner look at: every text of a conversation, cut and weighed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.classify.kinds import KIND_WEIGHT, Kind, Voice
from context_compactor.classify.names import NameTable
from context_compactor.classify.relevance import VOICE_WEIGHT, Weights, fade, text_weight
from context_compactor.classify.rules import Verdict, Verdicts
from context_compactor.classify.steer import Steers
from context_compactor.classify.tier import Tier
from context_compactor.facts.ledgers import LedgerLine
from context_compactor.measure.count import MessageCounter
from context_compactor.messages.message import Part, Text, Thinking, ToolCall, ToolResult
from context_compactor.messages.record import ANSWER, GAP, Excerpt
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import ToolUse, Turn
from context_compactor.plan.focus import Focus
from context_compactor.plan.options import Block, Source
from context_compactor.plan.sources import call_body, cut_blocks, strip_numbers
from context_compactor.plan.zones import Zone, may_clear_thinking, newest_step

_EXCERPT_LINES = 3
_COUNTED = re.compile(r" · (?:\d+|digest)/(\d+)$")


class View(Struct, frozen=True):
    """One conversation, ready to be planned."""

    turns: tuple[Turn, ...]
    zones: dict[int, Zone]
    sources: tuple[Source, ...]
    verdicts: Verdicts
    names: NameTable
    weights: Weights
    focus: Focus | None = None
    without_media: frozenset[int] = frozenset()
    quoted: str = ""
    """What the record quotes of the user anyway."""
    factors: dict[int, float] = {}
    """By how much a turn is worth more or less than it seems to us, when a model has judged it."""
    """Why, in the model's words."""
    steers: Steers = {}
    """What the user has decided about turns."""
    why: dict[int, str] = {}
    """For each turn that was steered, or had to follow one, the reason."""

    def zone_of(self, source: Source) -> Zone:
        """Where the turn of a source ends up; what belongs to no turn goes into the record."""
        return Zone.FOLDED if source.is_loose else self.zones[source.turn]

    def is_open(self, source: Source) -> bool:
        """Whether a source may be shortened."""
        zone = self.zone_of(source)
        return zone is Zone.FOLDED or (zone is Zone.PLACED and source.voice in (Voice.RESULT, Voice.THINKING))

    def kept_turns(self) -> list[int]:
        """The turns that the user wants to keep word for word."""
        return [number for number, tier in self.steers.items() if tier is Tier.KEEP]

    def open_sources(self) -> Iterator[Source]:
        """The sources that may be shortened: what strategies make proposals for."""
        return (source for source in self.sources if self.is_open(source))


class Spoken(Struct, frozen=True):
    """A text of a turn before it is cut and weighed."""

    turn: int
    voice: Voice
    text: str
    tokens: int
    exchange: int
    message: int
    part: int
    is_clearable: bool = True


def spoken_in(turns: Sequence[Turn], counter: MessageCounter) -> Iterator[Spoken]:
    """Every text of the turns in order, with its tokens. Instructions are not among them: they are never touched."""
    newest = newest_step(turns)
    for turn in turns:
        if turn.is_instruction:
            continue
        clears = may_clear_thinking(turn, newest, counter.dialect_name)
        numbers = _exchange_numbers(turn.exchanges)
        for at, message in enumerate(turn.messages):
            tokens = counter.part_tokens(message)
            for index, part in enumerate(message.parts):
                voice = _voice(part, message.role)
                if voice is not None:
                    number = numbers.get((voice, _call_id(part)), 0)
                    yield Spoken(turn.number, voice, _words(part), tokens[index], number, at, index, clears)


def _exchange_numbers(exchanges: Sequence[ToolUse]) -> dict[tuple[Voice, str], int]:
    found: dict[tuple[Voice, str], int] = {}
    for exchange in exchanges:
        if exchange.call:
            found[Voice.CALL, exchange.call.id] = exchange.number
        if exchange.result:
            found[Voice.RESULT, exchange.result.call_id] = exchange.number
    return found


def _voice(part: Part, role: str) -> Voice | None:
    if isinstance(part, Text):
        return Voice.AGENT if role == "assistant" else Voice.USER
    if isinstance(part, Thinking):
        return Voice.THINKING
    if isinstance(part, ToolCall):
        return Voice.CALL
    return Voice.RESULT if isinstance(part, ToolResult) else None


def _call_id(part: Part) -> str:
    if isinstance(part, ToolCall):
        return part.id
    return part.call_id if isinstance(part, ToolResult) else ""


def _words(part: Part) -> str:
    if isinstance(part, ToolCall):
        return call_body(part)
    return part.text if isinstance(part, (Text, Thinking, ToolResult)) else ""


def build_sources(
    spoken: Sequence[Spoken],
    excerpts: Sequence[Excerpt],
    ledger: Sequence[LedgerLine],
    verdicts: Verdicts,
    weights: Weights,
) -> tuple[Source, ...]:
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


def _last_touch(spoken: Sequence[Spoken], verdicts: Verdicts, after: int) -> dict[str, int]:
    """The tokens since each file was last read or written: what is under work stays fresh."""
    touched: dict[str, int] = {}
    for text in spoken:
        after -= text.tokens
        verdict = verdicts.exchanges.get(text.exchange)
        if verdict and verdict.path:
            touched[verdict.path] = after
    return touched


def _source(number: int, spoken: Spoken, after: int, verdict: Verdict | None, weights: Weights) -> Source:
    voice = spoken.voice
    kind = verdict.kind if verdict and voice is Voice.RESULT else Kind.TALK
    text = strip_numbers(spoken.text) if kind is Kind.CODE else spoken.text
    is_result = voice is Voice.RESULT
    return Source(
        number=number,
        turn=spoken.turn,
        voice=voice,
        kind=kind,
        label=verdict.label if verdict else voice.value,
        ref=verdict.ref if verdict else reference_id("turn", spoken.turn),
        text=text,
        tokens=spoken.tokens,
        blocks=() if voice is Voice.THINKING else cut_blocks(text, is_call=voice is Voice.CALL),
        lines=text.count("\n") + 1,
        exchange=spoken.exchange,
        path=verdict.path if verdict else "",
        weight=text_weight(
            voice,
            kind,
            after,
            spoken.tokens,
            text.count("\n") + 1,
            is_superseded=bool(verdict and (verdict.superseded_by or verdict.is_outdated)),
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


def _excerpt_source(number: int, excerpt: Excerpt, after: int, weights: Weights) -> Source:
    counted = _COUNTED.search(excerpt.label)
    label = excerpt.label[: counted.start()] if counted else excerpt.label
    blocks = _excerpt_blocks(excerpt.lines)
    text = "\n".join(block.text for block in blocks)
    voice, kind = _excerpt_voice(excerpt.ref, label)
    return Source(
        number=number,
        turn=0,
        voice=voice,
        kind=kind,
        label=label or "call",
        ref=excerpt.ref,
        text=text or label,
        tokens=len(text) // 4 + 1,
        blocks=blocks or (Block(label, 0, 1),),
        lines=int(counted[1]) if counted else max(len(excerpt.lines), 1),
        weight=VOICE_WEIGHT[voice] * _excerpt_factor(voice, kind) * fade(after, weights.reach, weights.bend),
        is_loose=True,
    )


def _excerpt_voice(ref: str, label: str) -> tuple[Voice, Kind]:
    """Who speaks in an excerpt, as far as its heading tells."""
    if label in (Voice.USER, Voice.AGENT):
        return Voice(label), Kind.TALK
    if ref.startswith("file_"):
        return Voice.RESULT, Kind.CODE
    return (Voice.RESULT, Kind.SUBAGENT) if ref.startswith("agent_") else (Voice.CALL, Kind.TALK)


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


def _ledger_source(number: int, section: str, lines: Sequence[LedgerLine]) -> Source:
    blocks = tuple(Block(line.written, at, 1) for at, line in enumerate(lines))
    text = "\n".join(block.text for block in blocks)
    return Source(
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
