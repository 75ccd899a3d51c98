"""A `context_summary` made or cleaned: what the rules let in, in at most 500 tokens, on whole sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.handoff.rules import Rank, files_in, rank_of, shown_of_block
from context_compactor.measure.tokens import counter_for
from context_compactor.messages.ends import beginning

# What ends a text of which not everything could be shown.
MARK = "[… more was left out]"

_FENCE = "```"
_HEADING = re.compile(r"\s{0,3}#{1,6} \S|\s{0,3}\*\*[^*\n]{2,80}\*\*:?\s*$|[^|\n]{2,80}:(?:\*\*)?\s*$")
_BARE = re.compile(r"[\s|:=*_#>-]*$")
_ITEM = re.compile(r"\s*(?:[-*+•|]|\(?\d{1,3}[.)])\s")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+(?=[\"'(`*\[]{0,2}[A-Z0-9])|(?<=[\u3002\uff01\uff1f])(?=.)")
_WRAPPED = 40


class Passage(Struct, frozen=True):
    """The least that is shown or left out. Passages of one line stand beside each other.

    `at` is its place among all passages; a block is code or output that the text quotes.
    """

    at: int
    line: int
    text: str
    rank: Rank
    heading: str = ""
    is_block: bool = False


class _Line(Struct, frozen=True):
    text: str
    is_block: bool = False


def passages_of(text: str) -> list[Passage]:
    """Every passage in order. A heading stands with the passages below it, or by itself when there are none."""
    found: list[Passage] = []
    heading, is_bare = "", False
    for number, line in enumerate((*_lines(text), None)):
        if line is not None and not _is_heading(line):
            parts = _parts(line, heading)
            for sentence, rank in parts:
                found.append(Passage(len(found), number, sentence, rank, heading, line.is_block))
            is_bare = is_bare and not parts
            continue
        if is_bare:
            found.append(Passage(len(found), number, heading, rank_of(heading)))
        heading, is_bare = ("" if line is None else line.text), True
    return found


def _lines(text: str) -> Iterator[_Line]:
    """Fenced blocks and lines; what was wrapped stays together."""
    fence: list[str] | None = None
    held = ""
    for line in (line for line in text.split("\n") if line != MARK):
        if line.lstrip().startswith(_FENCE):
            yield _Line(held) if fence is None else _Line("\n".join(fence), is_block=True)
            fence, held = ([] if fence is None else None), ""
        elif fence is not None:
            fence.append(line)
        elif held and _goes_on(held, line):
            held = f"{held}\n{line}"
        else:
            yield _Line(held)
            held = line
    yield _Line(held) if fence is None else _Line("\n".join(fence), is_block=True)


def _goes_on(before: str, line: str) -> bool:
    """Whether a line goes on with the sentence before it, or shows the code of a stack frame."""
    last = before.rpartition("\n")[2]
    if last.lstrip().startswith('File "'):
        return line.startswith("    ")
    return len(last) >= _WRAPPED and line[:1].islower() and last.rstrip()[-1:] not in ".!?:;|"


def _is_heading(line: _Line) -> bool:
    return not line.is_block and bool(_HEADING.match(line.text)) and not _ITEM.match(line.text)


def _parts(line: _Line, heading: str) -> list[tuple[str, Rank]]:
    if line.is_block:
        shown = shown_of_block(line.text)
        gone = [] if "\n".join(shown) == line.text else [(line.text, Rank.OUT)]
        return [*((each, Rank.NAMED) for each in shown), *gone]
    if _BARE.match(line.text):
        return []
    sentences = [line.text] if _ITEM.match(line.text) else _SENTENCE.split(line.text)
    return [(each, rank_of(each, heading)) for each in sentences if each.strip()]


MOST_TOKENS = 500

_MOST_TEXT = 200_000
_MOST_FILES = 12
_MOST_PARTS = 12


class Summary(Struct, frozen=True):
    """What may be handed on, and what was left out of it, in order.

    The text ends with a mark when there was no room for all that the rules let in.
    """

    text: str
    left_out: tuple[str, ...] = ()


def count_tokens(text: str) -> int:
    """Tokens as every limit of a handoff counts them."""
    return counter_for(None).count(text)


def clean_summary(text: str, tokens: int = MOST_TOKENS) -> Summary:
    """What the rules let in of a text, in at most so many tokens; a text that needs no change stays as it is.

    Of a text that the rules would leave nothing of, everything is let in.
    """
    passages = passages_of(text[:_MOST_TEXT])
    beyond = tuple(filter(None, (text[_MOST_TEXT:],)))
    let_in = [passage for passage in passages if passage.rank is not Rank.OUT] or passages
    if len(let_in) == len(passages) and not beyond and count_tokens(text.strip()) <= tokens:
        return Summary(text.strip())
    files = _files_line(passages, let_in)
    whole = _written([*let_in, *files])
    if not beyond and count_tokens(whole) <= tokens:
        return Summary(whole, _left_out(passages, let_in))
    return _fitted([*let_in, *files], passages, beyond, tokens)


def join_summaries(parts: Sequence[str], tokens: int = MOST_TOKENS) -> str:
    """Several summaries as one: each has an equal share, and what a short one leaves over goes to the longer ones.

    Of very many the oldest are left out, since a share of a few tokens says nothing.
    """
    shown = dict(enumerate(parts[-_MOST_PARTS:]))
    room = tokens
    for done, at in enumerate(sorted(shown, key=lambda at: count_tokens(shown[at]))):
        shown[at] = clean_summary(shown[at], room // (len(shown) - done) - 1).text
        room -= count_tokens(shown[at]) + 1
    return clean_summary("\n".join(filter(None, shown.values())), tokens).text


def _files_line(passages: Sequence[Passage], let_in: Sequence[Passage]) -> list[Passage]:
    """Files that only a passage names which is not shown: the step is noise, where it led is not."""
    shown = _written(let_in)
    told = "\n".join(passage.text for passage in passages if passage.rank is Rank.OUT and not passage.is_block)
    files = [name for name in files_in(told) if name not in shown][:_MOST_FILES]
    end = len(passages)
    return [Passage(end, end, f"Files: {', '.join(files)}", Rank.FOUND)] if files else []


def _fitted(let_in: list[Passage], passages: Sequence[Passage], beyond: tuple[str, ...], tokens: int) -> Summary:
    """The dearest passages in the order of the text, and the mark below them."""
    kept = _choose(let_in, tokens - count_tokens(f"\n{MARK}"))
    while True:
        left = (*_left_out(passages, kept), *beyond)
        text = f"{_written(kept)}\n{MARK}" if kept else _cut(let_in, tokens)
        if not kept or count_tokens(text) <= tokens:
            return Summary(text, left)
        kept.pop()


def _choose(passages: Sequence[Passage], room: int) -> list[Passage]:
    """The dearest passages that fit, each with its heading."""
    costs = counter_for(None).count_many([f"\n{passage.text}" for passage in passages])
    unpaid = {passage.heading: count_tokens(passage.heading) + 1 for passage in passages} | {"": 0}
    chosen: list[Passage] = []
    for passage, cost in sorted(zip(passages, costs, strict=True), key=lambda each: (each[0].rank, each[0].at)):
        if cost + unpaid[passage.heading] <= room:
            room -= cost + unpaid[passage.heading]
            unpaid[passage.heading] = 0
            chosen.append(passage)
    return sorted(chosen, key=lambda passage: passage.at)


def _written(passages: Sequence[Passage]) -> str:
    return "".join(_pieces(passages)).removeprefix("\n")


def _pieces(passages: Sequence[Passage]) -> Iterator[str]:
    line, heading = -1, ""
    for passage in passages:
        if passage.heading and passage.heading != heading:
            yield f"\n{passage.heading}"
        yield (" " if passage.line == line else "\n") + passage.text
        line, heading = passage.line, passage.heading


def _left_out(passages: Sequence[Passage], kept: Sequence[Passage]) -> tuple[str, ...]:
    """What is not shown, and each heading of which nothing is."""
    shown = {passage.at for passage in kept}
    above = {passage.heading for passage in kept} | {""}
    left: list[str] = []
    for passage in (passage for passage in passages if passage.at not in shown):
        if passage.heading not in above:
            above.add(passage.heading)
            left.append(passage.heading)
        left.append(passage.text)
    return tuple(left)


def _cut(passages: Sequence[Passage], tokens: int) -> str:
    """The beginning of the dearest passage, cut between words: what there is room for when not one fits whole."""
    dearest = min(passages, key=lambda passage: passage.rank).text if passages else ""
    end = f"…\n{MARK}"
    text = dearest[: max(tokens, 1) * 8]
    while text and count_tokens(text + end) > tokens:
        text = beginning(text, len(text) * 3 // 4)
    return text + end if text else ""
