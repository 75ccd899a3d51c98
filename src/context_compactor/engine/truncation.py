"""Shortens what is too long by itself: instructions, tool outputs, and what was pasted into the open question."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct, structs

from context_compactor.archive.originals import Original, turn_original
from context_compactor.archive.search.terms import STOP_WORDS
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message, Text, ToolResult
from context_compactor.dialects.record import Record, render_record
from context_compactor.dialects.turns import Turn, reference_id, says_left_out, without_recall
from context_compactor.engine.classify import Verdict, Verdicts, result_original
from context_compactor.engine.digests import digest
from context_compactor.engine.layouts import turn_sizes
from context_compactor.engine.tiers import interjected_turn, unanswered_turns
from context_compactor.facts.failures import failed_mark
from context_compactor.facts.kinds import kind_of
from context_compactor.json_values import copy_containers
from context_compactor.text import beginning, cut_middle
from context_compactor.tokens.counting import MessageCounter

MAX_OUTPUT_TOKENS = 2_000
_OUTPUT_HEAD = 0.6


def truncate_output(text: str, tokens: int, verdict: Verdict, most: int) -> str:
    """The first and last lines of an output within about so many tokens; a failed one begins with its error."""
    error = f"{failed_mark(verdict.failure.error)}\n" if verdict.failure else ""
    room = max(int(len(text) * most / max(tokens, 1)) - len(error), 200)
    head, gone, tail = cut_middle(text, room, _OUTPUT_HEAD)
    left = max(round(tokens * len(gone) / len(text)), 1)
    what = f"{gone.count(chr(10)):,} lines, " if "\n" in gone else ""
    return f'{error}{head}\n[… {what}{left:,} tokens left out: recall("{verdict.ref}")]\n{tail}'


INSTRUCTIONS = reference_id("turn", 0)
# They stay whole while they are short, or leave a third of the target to the conversation; if not, they get a third.
_SHORT = 2000
_MOST = 2 / 3
_SHORTENED = 1 / 3
_INSTRUCTIONS_HEAD = 2 / 3
_SHORT_TEXT = 800
_LEFT_OUT = "characters of these instructions left out"


class FittedTurns(Struct, frozen=True):
    """The turns as they go on; where instructions were shortened, what each weighed before, and their original."""

    turns: list[Turn]
    cut: dict[int, int] = {}
    originals: tuple[Original, ...] = ()


def fit_instructions(
    turns: Sequence[Turn], target: int, counter: MessageCounter, dialect: Dialect, *, can_recall: bool = True
) -> FittedTurns:
    """The turns with their instructions shortened to fit a target; as they were when they do fit.

    Here and below `can_recall` says whether the reader has a tool named `recall`.
    """
    instructions = [turn for turn in turns if turn.is_instruction]
    cut = {turn.number: sum(map(counter.count, turn.messages)) for turn in instructions}
    tokens = sum(cut.values())
    if tokens <= max(_SHORT, _MOST * target):
        return FittedTurns(list(turns))
    share = _SHORTENED * target / tokens
    whole = [copy_containers(message.raw) for turn in instructions for message in turn.messages]
    recovery = f'recall("{INSTRUCTIONS}")'
    original = Original(INSTRUCTIONS, "instructions", "the instructions as they were", tokens, whole, recovery)
    fitted = [
        structs.replace(
            turn, messages=tuple(_short_message(each, share, dialect, can_recall) for each in turn.messages)
        )
        if turn.is_instruction
        else turn
        for turn in turns
    ]
    return FittedTurns(fitted, cut, (original,))


def _short_message(message: Message, share: float, dialect: Dialect, can_recall: bool) -> Message:
    texts = {at: part.text for at, part in enumerate(message.parts) if isinstance(part, Text)}
    edits: dict[int, str | None] = {at: head_and_tail(text, share) for at, text in texts.items()}
    changed = {at: _for_reader(text, can_recall) for at, text in edits.items() if text != texts[at]}
    return (dialect.edit(message, changed) or message) if changed else message


def _for_reader(text: str | None, can_recall: bool) -> str | None:
    return text if can_recall or text is None else without_recall(text)


def head_and_tail(text: str, share: float) -> str:
    """The beginning and the end of a text within a share of its length, with a mark that says what is left out.

    A short text stays, and so does one that was cut before.
    """
    if len(text) < _SHORT_TEXT or _LEFT_OUT in text:
        return text
    head, gone, tail = cut_middle(text, int(len(text) * share), _INSTRUCTIONS_HEAD)
    return f'{head}\n[… {len(gone):,} {_LEFT_OUT}: recall("{INSTRUCTIONS}")]\n{tail}'


# A paste is worth shortening from here on.
LEAST_PASTE = 600
# Nobody types a line as long as this, nor a paragraph of so many lines, nor more prose than this in one message.
_LONGEST_LINE = 4_000
_MOST_LINES = 12
MOST_TYPED = 8_000
# So many sentences inside a run of other lines may have been typed there; where there are more, they belong to it.
_MOST_REMARKS = 5
_PROSE_SHARE = 0.93
_LINE_READ = 400

_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_LISTED = re.compile(r"\s{0,3}(?:[-*+•] |\d{1,3}[.)] )")
_CODE_START = re.compile(
    r"(?: {4}|\t|//|/\*|\* |--|#!|<[\w/!?]|[\[{}\]()]|[\w.]+\(|at |\$ |> ?\w+ |\+\+\+|@@|[-+][^\s]|\|)"
)
_STAMP = re.compile(
    r"\[?(?:\d{4}[-/]\d\d|\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b)"
)
_CODE_END = tuple("{}[];,()\\<=|")
# Letters of any script, spaces, and the signs between words; the later ranges are those of other scripts.
_PLAIN = re.compile(r"[^\W\d_]|[ .,:;!?'\"()\u2010-\u2027\u3000-\u303f\uff00-\uffef-]")
_SENTENCE_END = re.compile(r"[.?!:\u2026\u3002\uff01\uff1a\uff1f]$")


class TextSpan(Struct, frozen=True):
    """A stretch of a text: typed by its user, or pasted in. All pieces of a text together are the text."""

    text: str
    is_pasted: bool


def split_pasted(text: str) -> list[TextSpan]:
    """A text as the pieces that were typed and those that were pasted."""
    return _joined([mark for paragraph in _paragraphs(text) for mark in _marked(paragraph)])


def only_ends_typed(pieces: Sequence[TextSpan]) -> list[TextSpan]:
    """The pieces with the middle of all that counts as typed counted as pasted: what is left is no more than is typed.

    The first and the last words are those with which somebody says what the rest is for.
    """
    text = "".join(piece.text for piece in pieces)
    first = _end_of_opening(text, MOST_TYPED // 2)
    last = max(len(text) - _end_of_opening(text[:-MOST_TYPED:-1], MOST_TYPED // 2), first)
    whole = (TextSpan(text[:first], False), TextSpan(text[first:last], True), TextSpan(text[last:], False))
    return [piece for piece in whole if piece.text]


def _end_of_opening(text: str, most: int) -> int:
    """The end of the last line that ends within so many characters; 0 when the first one is longer."""
    return text.rfind("\n", 0, most) + 1 if len(text) > most else len(text)


def _joined(marked: Sequence[tuple[str, bool]]) -> list[TextSpan]:
    """Neighbours of one sort as one piece; what is too short to be worth it counts as typed."""
    runs = [("".join(line for line, _ in group), pasted) for pasted, group in groupby(marked, key=lambda mark: mark[1])]
    large = [(run, pasted and len(run) >= LEAST_PASTE) for run, pasted in runs]
    return [
        TextSpan("".join(run for run, _ in group), pasted) for pasted, group in groupby(large, key=lambda mark: mark[1])
    ]


class _Paragraph(Struct, frozen=True):
    lines: list[str]
    is_fenced: bool = False


def _paragraphs(text: str) -> Iterator[_Paragraph]:
    """Lines between blank ones, each with its line end; the blank lines belong to the paragraph before them."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        opening = _FENCE.match(line)
        mark = opening.group().strip()[:3] if opening else ""
        if fence:
            lines.append(line)
            if mark == fence and not line.strip().strip("`~"):
                yield _Paragraph(lines, is_fenced=True)
                lines, fence = [], ""
            continue
        if mark or (lines and not lines[-1].strip() and line.strip()):
            if lines:
                yield _Paragraph(lines)
            lines = []
        fence = mark
        lines.append(line)
    if lines:
        yield _Paragraph(lines, is_fenced=bool(fence))


def _marked(paragraph: _Paragraph) -> list[tuple[str, bool]]:
    """Each line of a paragraph, and whether it was pasted."""
    lines = paragraph.lines
    if paragraph.is_fenced:
        return [(line, True) for line in lines]
    prose = [is_prose(line) for line in lines]
    filled = [line for line in lines if line.strip()]
    listed = sum(_LISTED.match(line) is not None for line in filled)
    is_long = len(filled) > _MOST_LINES and listed * 2 < len(filled)
    if not is_long and sum(prose) * 2 > len(lines):
        return [(line, len(line) > _LONGEST_LINE) for line in lines]
    remarks = {at for at, line in enumerate(lines) if prose[at] and _is_sentence(line)}
    remarks = remarks if len(remarks) <= _MOST_REMARKS else set()
    first = next((at for at in range(min(3, len(lines))) if not prose[at]), min(3, len(lines)))
    last = next((at for at in range(min(3, len(lines))) if not prose[-1 - at]), min(3, len(lines)))
    typed = {*remarks, *range(first), *range(len(lines) - last, len(lines))}
    return [(line, at not in typed or len(line) > _LONGEST_LINE) for at, line in enumerate(lines)]


def is_prose(line: str) -> bool:
    """Whether a line reads like something that a person writes to another; a blank one may stand anywhere."""
    text = line[:_LINE_READ].rstrip()
    if not text:
        return True
    if len(line) > _LONGEST_LINE or _CODE_START.match(text) or _STAMP.match(text) or text.endswith(_CODE_END):
        return False
    return len(_PLAIN.findall(text)) >= _PROSE_SHARE * len(text)


def _is_sentence(line: str) -> bool:
    text = line.strip()
    return _SENTENCE_END.search(text) is not None and (len(text.split()) >= 4 or not text.isascii())


# It stays whole while it leaves half of the room to everything before it.
_LARGEST_SHARE = 1 / 2
# What a request and the record's first and last line take, and what a count may be off by.
_FRAME = 300
_ROUNDS = 6
# Of what a paste may take: its digest, and lines that share a rare word with what was typed. Its first and last lines
# take the rest, the last ones more: that is where a log fails.
_DIGEST = 1 / 3
_NAMED = 1 / 4
_HEAD = 0.4
_LEAST_CHARACTERS = 200
_OPENING_WORDS = 100
_LONGEST_SHOWN_LINE = 400
_FEW_LINES = 8
_WORD = re.compile(r"\w[\w./-]{3,60}")
_MOST_WORDS = 60
_RARE = 0.03


class _OpenText(Struct, frozen=True):
    """A text of the open question: where it stands, the id of its original, and its pieces."""

    turn: int
    message: int
    part: int
    ref: str
    pieces: list[TextSpan]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def fit_open_question(
    turns: Sequence[Turn],
    target: int,
    counter: MessageCounter,
    dialect: Dialect,
    verdicts: Verdicts,
    past: Record | None = None,
    kept: Container[int] = (),
    *,
    can_recall: bool = True,
) -> FittedTurns:
    """The turns with what was pasted into the unanswered ones shortened; as they were when they leave enough room.

    `past` is the record before the turns. Those that the user wants to be `kept` are left alone.
    """
    waiting = unanswered_turns(turns)
    beside = interjected_turn(turns)
    asked = [turn for turn in turns if turn.number in (waiting | beside) and turn.number not in kept]
    limit = _limit(turns, target, {turn.number for turn in asked}, counter, past)
    sizes = turn_sizes(asked, counter)
    tokens = sum(size.whole if turn.number in waiting else size.least for turn, size in zip(asked, sizes, strict=True))
    if tokens <= limit:
        return FittedTurns(list(turns))
    places = [place for turn in asked for place in _open_texts(turn, verdicts, with_results=turn.number in waiting)]
    fixed = tokens - sum(counter.texts([place.text for place in places]))
    texts = _shortened(places, limit - fixed, counter)
    changed = {
        (place.turn, place.message, place.part): text if can_recall else without_recall(text)
        for place, text in zip(places, texts, strict=True)
        if text != place.text
    }
    if not changed:
        return FittedTurns(list(turns))
    cut = {turn.number: size.whole for turn, size in zip(asked, sizes, strict=True) if _of(turn.number, changed)}
    originals = [
        original for turn in asked if turn.number in cut for original in _originals(turn, changed, cut, verdicts)
    ]
    fitted = [_with_texts(turn, _of(turn.number, changed), dialect) for turn in turns]
    return FittedTurns(fitted, cut, tuple(originals))


def _limit(
    turns: Sequence[Turn], target: int, asked: Container[int], counter: MessageCounter, past: Record | None
) -> int:
    """Half of what the instructions leave, or more where everything before the question takes less."""
    instructions = [message for turn in turns if turn.is_fixed for message in turn.messages]
    room = max(target - sum(counter.count_many(instructions)), 0)
    before = [message for turn in turns if not turn.is_fixed and turn.number not in asked for message in turn.messages]
    taken = sum(counter.count_many(before)) + (counter.text(render_record(past)) if past else 0)
    return int(max(_LARGEST_SHARE * room, room - taken - _FRAME))


def _open_texts(turn: Turn, verdicts: Verdicts, *, with_results: bool) -> Iterator[_OpenText]:
    refs = {
        exchange.result.call_id: verdicts.exchanges[exchange.number].ref
        for exchange in turn.exchanges
        if exchange.result is not None and exchange.number in verdicts.exchanges
    }
    for at, index, message, part in turn.parts():
        if isinstance(part, Text) and message.role == "user":
            yield _OpenText(turn.number, at, index, reference_id("turn", turn.number), split_pasted(part.text))
        elif isinstance(part, ToolResult) and with_results and part.call_id in refs and not part.media:
            yield _OpenText(turn.number, at, index, refs[part.call_id], [TextSpan(part.text, is_pasted=True)])


def _of(number: int, changed: Mapping[tuple[int, int, int], str]) -> dict[tuple[int, int], str]:
    return {(at, part): text for (turn, at, part), text in changed.items() if turn == number}


def _with_texts(turn: Turn, texts: Mapping[tuple[int, int], str], dialect: Dialect) -> Turn:
    if not texts:
        return turn
    messages = []
    for at, message in enumerate(turn.messages):
        edits: dict[int, str | None] = {part: text for (place, part), text in texts.items() if place == at}
        messages.append((dialect.edit(message, edits) or message) if edits else message)
    results = {result.call_id: result for message in messages for result in message.results}
    exchanges = [
        structs.replace(each, result=results.get(each.result.call_id, each.result)) if each.result else each
        for each in turn.exchanges
    ]
    return structs.replace(turn, messages=tuple(messages), exchanges=tuple(exchanges))


def _originals(
    turn: Turn, changed: Mapping[tuple[int, int, int], str], tokens: Mapping[int, int], verdicts: Verdicts
) -> Iterator[Original]:
    """The turn and its shortened results as they were, but for those that an earlier compaction shortened already."""
    parts = {(at, index): part for at, index, _, part in turn.parts()}
    before = [parts[place] for place in _of(turn.number, changed)]
    words = [part.text for part in before if isinstance(part, Text)]
    if not any(says_left_out(text, reference_id("turn", turn.number)) for text in words):
        yield turn_original(turn, tokens[turn.number])
    cut = {part.call_id for part in before if isinstance(part, ToolResult)}
    for exchange in turn.exchanges:
        if exchange.result is not None and exchange.result.call_id in cut:
            verdict = verdicts.exchanges[exchange.number]
            if not says_left_out(exchange.result.text, verdict.ref):
                yield result_original(exchange, verdict)


def _shortened(places: Sequence[_OpenText], limit: int, counter: MessageCounter) -> list[str]:
    """The texts of all places within a limit, as far as what was typed allows."""
    typed = _typed(places, counter)
    least = typed + sum(
        counter.text(_mark(len(piece.text), len(piece.text), place.ref)) for place, piece in _pastes(places)
    )
    if least > limit:  # more prose than anybody types, or more pastes than can be shown one by one
        places = [
            structs.replace(place, pieces=only_ends_typed(place.pieces)) if len(place.text) > MOST_TYPED else place
            for place in places
        ]
        typed = _typed(places, counter)
    room = limit - typed
    for _ in range(_ROUNDS):
        texts = _written(places, max(room, 0), counter)
        over = sum(counter.texts(texts)) - limit
        if over <= 0 or room <= 0:
            break
        room = min(room - over, int(room * 0.9))
    return texts


def _typed(places: Sequence[_OpenText], counter: MessageCounter) -> int:
    return sum(counter.texts([piece.text for place in places for piece in place.pieces if not piece.is_pasted]))


def _pastes(places: Sequence[_OpenText]) -> list[tuple[_OpenText, TextSpan]]:
    return [(place, piece) for place in places for piece in place.pieces if piece.is_pasted]


def _written(places: Sequence[_OpenText], room: int, counter: MessageCounter) -> list[str]:
    sizes = counter.texts([piece.text for _, piece in _pastes(places)])
    shares = iter(_shared_out(sizes, room))
    words = " ".join(piece.text for place in places for piece in place.pieces if not piece.is_pasted)
    tokens = iter(sizes)
    return [
        "".join(
            _short_paste(piece.text, next(tokens), next(shares), place.ref, words) if piece.is_pasted else piece.text
            for piece in place.pieces
        )
        for place in places
    ]


def _shared_out(sizes: Sequence[int], room: int) -> list[int]:
    """What each may take of the room: small ones all they need, the others the same."""
    shares = [0] * len(sizes)
    left = room
    for done, at in enumerate(sorted(range(len(sizes)), key=lambda at: sizes[at])):
        shares[at] = min(sizes[at], left // (len(sizes) - done))
        left -= shares[at]
    return shares


def _short_paste(text: str, tokens: int, most: int, ref: str, words: str) -> str:
    """A paste within about so many tokens: its first and last lines, a digest, and the lines that the words name."""
    if tokens <= most:
        return text
    end = "\n" if text.endswith("\n") else ""
    body = text[: len(text) - len(end)]
    lines = body.split("\n")
    bare = _mark(len(lines), tokens, ref)
    room = int(len(text) * most / tokens) - len(bare)
    if room < _LEAST_CHARACTERS:  # where nothing was typed, at least how the question begins
        return (bare if words.strip() else f"{beginning(body, _OPENING_WORDS)}\n{bare}") + end
    if len(lines) < _FEW_LINES or max(map(len, lines)) > len(text) // 2:
        return _cut_within(body, tokens, room, ref) + end
    summary = digest(kind_of(None, body), None, body)
    summary = summary if len(summary) <= room * _DIGEST else beginning(summary, int(room * _DIGEST))
    room -= len(summary)
    named = _named_lines(lines, words, int(room * _NAMED))
    room -= sum(len(_clipped(lines[at])) + 4 for at in named)
    first = _fitting(lines, int(room * _HEAD))
    last = _fitting(lines[: first - 1 : -1] if first else lines[::-1], room - int(room * _HEAD))
    chosen = sorted({*range(first), *named, *range(len(lines) - last, len(lines))})
    left = max(round(tokens * (1 - sum(len(lines[at]) + 1 for at in chosen) / len(text))), 1)
    return _laid_out(lines, chosen, _mark(len(lines) - len(chosen), left, ref), summary) + end


def _fitting(lines: Sequence[str], room: int) -> int:
    """How many of the first lines fit."""
    for count, line in enumerate(lines):
        room -= len(_clipped(line)) + 1
        if room < 0:
            return count
    return len(lines)


def _named_lines(lines: Sequence[str], words: str, room: int) -> list[int]:
    """The first lines that share a rare word with what was typed."""
    wanted = [word for word in dict.fromkeys(_WORD.findall(words)) if word.lower() not in STOP_WORDS][-_MOST_WORDS:]
    if not wanted:
        return []
    pattern = re.compile("|".join(re.escape(word) for word in sorted(wanted, key=len, reverse=True)))
    found: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        for word in pattern.findall(line, 0, _LONGEST_SHOWN_LINE):
            found.setdefault(word, []).append(at)
    rare = max(_RARE * len(lines), 3)
    places = sorted({at for hits in found.values() if len(hits) <= rare for at in hits})
    chosen = []
    for at in places:
        room -= len(_clipped(lines[at])) + 5
        if room < 0:
            break
        chosen.append(at)
    return chosen


def _laid_out(lines: Sequence[str], chosen: Sequence[int], mark: str, summary: str) -> str:
    """The chosen lines in order; the first gap says what is left out, the others only that something is."""
    out: list[str] = []
    gap = f"{mark[:-1]}; in short:\n{summary}]" if summary else mark
    before = -1
    for at in (*chosen, len(lines)):
        if at > before + 1:
            out.append(gap)
            gap = "[…]"
        if at < len(lines):
            out.append(_clipped(lines[at]))
        before = at
    return "\n".join(out)


def _cut_within(text: str, tokens: int, room: int, ref: str) -> str:
    """The beginning and the end of a text of few, long lines."""
    head, gone, tail = cut_middle(text, room, _HEAD)
    mark = _mark(gone.count("\n") + 1, max(round(tokens * len(gone) / len(text)), 1), ref)
    return f"{head}\n{mark}\n{tail}"


def _mark(lines: int, tokens: int, ref: str) -> str:
    """What stands where pasted lines are left out."""
    what = "1 pasted line" if lines == 1 else f"{lines:,} pasted lines"
    return f'[… {what}, {tokens:,} tokens left out: recall("{ref}")]'


def _clipped(line: str) -> str:
    return line if len(line) <= _LONGEST_SHOWN_LINE else f"{beginning(line, _LONGEST_SHOWN_LINE)}…"
