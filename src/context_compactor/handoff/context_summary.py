"""A `context_summary`: which sentences belong into it, and at most 500 tokens of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache

from msgspec import Struct

from context_compactor.engine.digests.code import grammar_for
from context_compactor.facts import utterances
from context_compactor.facts.decisions import is_rule
from context_compactor.facts.kinds import is_test_run, is_trace
from context_compactor.facts.names import CHUNK, names_in
from context_compactor.facts.outputs import error_lines
from context_compactor.text import beginning
from context_compactor.tokens.counting import counter_for


class Rank(IntEnum):
    """How important a sentence is when there is no room for all; what is `OUT` is not shown at all."""

    MUST = 0
    FOUND = 1
    NAMED = 2
    SAID = 3
    OUT = 9


_LEAD = (
    r"\W{0,4}(?:(?:first|then|next|now|also|so|finally|initially|afterwards|after that|okay|ok|great|perfect)\W+){0,3}"
)
_WHO = r"(?:i|we)(?:['\u2019](?:ve|ll|m|d|re)| have| had| will| am| are)?(?: (?:also|then|first|just|now|next)){0,2} "
_NARRATES_STEP = re.compile(
    rf"{_LEAD}{_WHO}(?:(?:search|look|grep|check|read|examin|scan|brows|explor|inspect|list|review)\w*"
    r"|went (?:through|over)|ran (?:a search|grep|rg|find)|have enough|(?:start|began)\w* (?:by|with|looking)"
    r"|(?:need|want|try) to (?:look|check|see|find|read))\b"
    rf"|{_LEAD}(?:let me\b|let['\u2019]s (?:see|look|check)\b|hmm+\b|wait[,.! ]|there (?:was|were) (?:also )?mention"
    r"|after (?:analy[sz]|read|look|review|check|search)ing\b|(?:searched|grepped|looked (?:for|through|in|at))\b"
    r"|(?:searching|looking|grepping|digging) (?:for|in|into|at|through)\b)",
    re.IGNORECASE,
)
_MUSES = re.compile(
    rf"{_LEAD}(?:i (?:think|guess|wonder|suppose)|maybe|perhaps|my (?:first )?(?:thought|guess))\b", re.I
)
_QUERY = re.compile(
    r"[\s>*+-]{0,6}[`$]{0,3}\s?(?:(?:git )?grep|rg|ag|ack|ripgrep)\s+[-'\"`]|[\s>*+-]{0,6}[`$]{0,3}\s?find\s+[./~]"
    r"|[\s>*_+-]{0,6}(?:search(?:ed)?|grep(?:ped)?|quer(?:y|ies))(?: (?:quer(?:y|ies)|terms?|patterns?|for))?"
    r"[*_]{0,2}\s?:",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b(?:found (?:that|out|an?|no)|means|turn(?:s|ed) out|root cause|because|conclu\w+|confirm\w*|therefore"
    r"|must|never|always|identified|(?:check|verif)\w+ that)\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\b(?:PROCEED|STOP|CLARIFY)\b|\b[Rr]ecommend|\b[Vv]erdict\b|\b[Dd]ecision\b")
_FAILED = re.compile(
    r"\b(?:tried|failed|error:|\w+(?:Error|Exception):|d(?:id|oes)(?:n['\u2019]t| not) work|blocked|denied"
    r"|exit code [1-9])",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"\b(?:considered|rejected|ruled out|instead of|rather than|decided against|not chosen)\b", re.I)
_CONCLUDES = re.compile(
    r"recommend|conclusion|verdict|assessment|root cause|answer|decision|blocker|constraint|next step|question", re.I
)
_TELLS = re.compile(r"summary|finding|risk|remaining|conflict|pattern|suggest|problem|issue", re.IGNORECASE)
_FRAME = re.compile(
    r"\s*(?:File \"[^\"\n]{1,300}\", line \d|at [\w.$<>\[\]/ @-]{1,200}[(:]|Traceback \(most recent|goroutine \d+ \["
    r"|During handling of the above|The above exception was|\S+\.go:\d+ \+0x)|\s*\d{1,6}(?:→|\t)"
)
_TEXT_FILES = (".md", ".json", ".yaml", ".yml", ".toml", ".sql", ".html", ".css", ".txt", ".cfg", ".ini", ".proto")
_SHORT_BLOCK = 3
_SYMBOL = re.compile(r"_|[a-z][A-Z]|[A-Z]{2}[a-z]|/|\.")
_LETTER = re.compile("[a-zA-Z]")
_LONGEST_NAME = 120


def rank_of(passage: str, heading: str = "") -> Rank:
    """What a passage under a heading is worth to whoever goes on."""
    sentence = " ".join(passage.split())
    if _FRAME.match(passage) or _QUERY.match(sentence):
        return Rank.OUT
    words = utterances.spaced(sentence)
    if _is_important(sentence, words):
        return Rank.MUST
    has_result = _RESULT.search(sentence) is not None
    # A step that was taken, or a thought that names nothing.
    is_musing = _MUSES.match(sentence) and not has_name(sentence)
    if not has_result and (_NARRATES_STEP.match(sentence) or is_musing):
        return Rank.OUT
    if _CONCLUDES.search(heading):
        return Rank.MUST
    if has_result or _TELLS.search(heading) or utterances.has_any(words, utterances.FINDINGS):
        return Rank.FOUND
    return Rank.NAMED if has_name(sentence) else Rank.SAID


def _is_important(sentence: str, words: str) -> bool:
    """A decision, a failure, a rejected alternative, a constraint or a question."""
    if any(pattern.search(sentence) for pattern in (_VERDICT, _FAILED, _REJECTED)):
        return True
    is_question = sentence.rstrip(" *_`\"')").endswith(("?", "\uff1f"))
    return is_question or utterances.has_any(words, utterances.DECISIONS) or is_rule(sentence, is_short=False)


def has_name(text: str) -> bool:
    """Whether a text names something that one can take hold of: a file, a symbol, an expression."""
    return any(_is_name(chunk) for chunk in CHUNK.findall(text))


@lru_cache(maxsize=1 << 13)
def _is_name(chunk: str) -> bool:
    found = (chunk.strip("./~@$-"), *names_in(chunk))
    return any(3 < len(name) <= _LONGEST_NAME and _SYMBOL.search(name) and _LETTER.search(name) for name in found)


def shown_of_block(block: str) -> list[str]:
    """What stays of a block of code or output: a short one as it is, of an error what it says, of a file nothing."""
    lines = [line for line in block.split("\n") if line.strip()]
    if len(lines) <= _SHORT_BLOCK:
        return lines
    head = f"\n{block[:4_000]}"
    if is_trace(head, block) or is_test_run(head, block):
        return [f"Output: {error_lines(block)}"]
    return []


def files_in(text: str) -> list[str]:
    """The files that a text names, each once."""
    chunks = (chunk.rstrip("./-") for chunk in CHUNK.findall(text))
    named = ((chunk, chunk.rpartition("/")[2]) for chunk in chunks if not chunk.startswith("//"))
    with_ending = ((chunk, name) for chunk, name in named if name.rpartition(".")[0])
    files = (chunk for chunk, name in with_ending if name.endswith(_TEXT_FILES) or grammar_for(name) is not None)
    return list(dict.fromkeys(files))


# What ends a text of which not everything could be shown.
MARK = "[… more was left out]"

_FENCE = "```"
_HEADING = re.compile(r"\s{0,3}#{1,6} \S|\s{0,3}\*\*[^*\n]{2,80}\*\*:?\s*$|[^|\n]{2,80}:(?:\*\*)?\s*$")
_BARE = re.compile(r"[\s|:=*_#>-]*$")
_ITEM = re.compile(r"\s*(?:[-*+•|]|\(?\d{1,3}[.)])\s")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+(?=[\"'(`*\[]{0,2}[A-Z0-9])|(?<=[\u3002\uff01\uff1f])(?=.)")
_WRAPPED = 40


class SummaryPassage(Struct, frozen=True):
    """The least that is shown or left out. Passages of one line stand beside each other.

    `at` is its place among all passages; a block is code or output that the text quotes.
    """

    at: int
    line: int
    text: str
    rank: Rank
    heading: str = ""
    is_block: bool = False


class _SummaryLine(Struct, frozen=True):
    text: str
    is_block: bool = False


def passages_of(text: str) -> list[SummaryPassage]:
    """Every passage in order. A heading stands with the passages below it, or by itself when there are none."""
    found: list[SummaryPassage] = []
    heading, is_bare = "", False
    for number, line in enumerate((*_lines(text), None)):
        is_heading = line and not line.is_block and _HEADING.match(line.text) and not _ITEM.match(line.text)
        if line is not None and not is_heading:
            parts = _parts(line, heading)
            for sentence, rank in parts:
                found.append(SummaryPassage(len(found), number, sentence, rank, heading, line.is_block))
            is_bare = is_bare and not parts
            continue
        if is_bare:
            found.append(SummaryPassage(len(found), number, heading, rank_of(heading)))
        heading, is_bare = ("" if line is None else line.text), True
    return found


def _lines(text: str) -> Iterator[_SummaryLine]:
    """Fenced blocks and lines; what was wrapped stays together."""
    fence: list[str] | None = None
    held = ""
    for line in (line for line in text.split("\n") if line != MARK):
        if line.lstrip().startswith(_FENCE):
            yield _SummaryLine(held) if fence is None else _SummaryLine("\n".join(fence), is_block=True)
            fence, held = ([] if fence is None else None), ""
        elif fence is not None:
            fence.append(line)
        elif held and _goes_on(held, line):
            held = f"{held}\n{line}"
        else:
            yield _SummaryLine(held)
            held = line
    yield _SummaryLine(held) if fence is None else _SummaryLine("\n".join(fence), is_block=True)


def _goes_on(before: str, line: str) -> bool:
    """Whether a line goes on with the sentence before it, or shows the code of a stack frame."""
    last = before.rpartition("\n")[2]
    if last.lstrip().startswith('File "'):
        return line.startswith("    ")
    return len(last) >= _WRAPPED and line[:1].islower() and last.rstrip()[-1:] not in ".!?:;|"


def _parts(line: _SummaryLine, heading: str) -> list[tuple[str, Rank]]:
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


class ContextSummary(Struct, frozen=True):
    """What may be handed on, and what was left out of it, in order.

    The text ends with a mark when there was no room for all that the rules let in.
    """

    text: str
    left_out: tuple[str, ...] = ()


def count_tokens(text: str) -> int:
    """Tokens as every limit of a handoff counts them."""
    return counter_for(None).count(text)


def clean_summary(text: str, tokens: int = MOST_TOKENS) -> ContextSummary:
    """What the rules let in of a text, in at most so many tokens; a text that needs no change stays as it is.

    Of a text that the rules would leave nothing of, everything is let in.
    """
    passages = passages_of(text[:_MOST_TEXT])
    beyond = tuple(filter(None, (text[_MOST_TEXT:],)))
    let_in = [passage for passage in passages if passage.rank is not Rank.OUT] or passages
    if len(let_in) == len(passages) and not beyond and count_tokens(text.strip()) <= tokens:
        return ContextSummary(text.strip())
    files = _files_line(passages, let_in)
    whole = _written([*let_in, *files])
    if not beyond and count_tokens(whole) <= tokens:
        return ContextSummary(whole, _left_out(passages, let_in))
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


def _files_line(passages: Sequence[SummaryPassage], let_in: Sequence[SummaryPassage]) -> list[SummaryPassage]:
    """Files that only a passage names which is not shown: the step is noise, where it led is not."""
    shown = _written(let_in)
    hidden = "\n".join(passage.text for passage in passages if passage.rank is Rank.OUT and not passage.is_block)
    files = [name for name in files_in(hidden) if name not in shown][:_MOST_FILES]
    end = len(passages)
    return [SummaryPassage(end, end, f"Files: {', '.join(files)}", Rank.FOUND)] if files else []


def _fitted(
    let_in: list[SummaryPassage], passages: Sequence[SummaryPassage], beyond: tuple[str, ...], tokens: int
) -> ContextSummary:
    """The most important passages in the order of the text, and the mark below them."""
    kept = _choose(let_in, tokens - count_tokens(f"\n{MARK}"))
    while True:
        left = (*_left_out(passages, kept), *beyond)
        text = f"{_written(kept)}\n{MARK}" if kept else _cut(let_in, tokens)
        if not kept or count_tokens(text) <= tokens:
            return ContextSummary(text, left)
        kept.pop()


def _choose(passages: Sequence[SummaryPassage], room: int) -> list[SummaryPassage]:
    """The most important passages that fit, each with its heading."""
    costs = counter_for(None).count_many([f"\n{passage.text}" for passage in passages])
    unpaid = {passage.heading: count_tokens(passage.heading) + 1 for passage in passages} | {"": 0}
    chosen: list[SummaryPassage] = []
    for passage, cost in sorted(zip(passages, costs, strict=True), key=lambda each: (each[0].rank, each[0].at)):
        if cost + unpaid[passage.heading] <= room:
            room -= cost + unpaid[passage.heading]
            unpaid[passage.heading] = 0
            chosen.append(passage)
    return sorted(chosen, key=lambda passage: passage.at)


def _written(passages: Sequence[SummaryPassage]) -> str:
    return "".join(_pieces(passages)).removeprefix("\n")


def _pieces(passages: Sequence[SummaryPassage]) -> Iterator[str]:
    line, heading = -1, ""
    for passage in passages:
        if passage.heading and passage.heading != heading:
            yield f"\n{passage.heading}"
        yield (" " if passage.line == line else "\n") + passage.text
        line, heading = passage.line, passage.heading


def _left_out(passages: Sequence[SummaryPassage], kept: Sequence[SummaryPassage]) -> tuple[str, ...]:
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


def _cut(passages: Sequence[SummaryPassage], tokens: int) -> str:
    """The beginning of the most important passage, cut between words, for when not one fits whole."""
    best = min(passages, key=lambda passage: passage.rank).text if passages else ""
    end = f"…\n{MARK}"
    text = best[: max(tokens, 1) * 8]
    while text and count_tokens(text + end) > tokens:
        text = beginning(text, len(text) * 3 // 4)
    return text + end if text else ""
