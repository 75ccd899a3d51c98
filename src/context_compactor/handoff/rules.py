"""What belongs into a `context_summary` and what does not, sentence by sentence.

In: findings, decisions, file paths, names of patterns, constraints, and one line for each failed attempt and each
alternative that was not chosen. Out: search queries, thinking aloud, the contents of files, dumps of errors. A
sentence that both tells a step and says what came of it stays.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from context_compactor.apply.digests.grammars import grammar_for
from context_compactor.classify.names import CHUNK, names_in
from context_compactor.classify.shapes import is_test_run, is_trace
from context_compactor.classify.telling import telling_lines
from context_compactor.facts import cues
from context_compactor.facts.constraints import is_rule


class Rank(IntEnum):
    """How dear a sentence is when there is no room for all; what is `OUT` is not shown at all."""

    MUST = 0
    FOUND = 1
    NAMED = 2
    SAID = 3
    OUT = 9


_LEAD = (
    r"\W{0,4}(?:(?:first|then|next|now|also|so|finally|initially|afterwards|after that|okay|ok|great|perfect)\W+){0,3}"
)
_WHO = r"(?:i|we)(?:['\u2019](?:ve|ll|m|d|re)| have| had| will| am| are)?(?: (?:also|then|first|just|now|next)){0,2} "
_TELLS_STEP = re.compile(
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
    words = cues.spaced(sentence)
    if _is_dear(sentence, words):
        return Rank.MUST
    has_result = _RESULT.search(sentence) is not None
    if not has_result and _is_noise(sentence):
        return Rank.OUT
    if _CONCLUDES.search(heading):
        return Rank.MUST
    if has_result or _TELLS.search(heading) or cues.has_any(words, cues.FINDINGS):
        return Rank.FOUND
    return Rank.NAMED if has_name(sentence) else Rank.SAID


def _is_dear(sentence: str, words: str) -> bool:
    """A decision, a failure, a rejected alternative, a constraint or a question."""
    if any(pattern.search(sentence) for pattern in (_VERDICT, _FAILED, _REJECTED)):
        return True
    is_question = sentence.rstrip(" *_`\"')").endswith(("?", "\uff1f"))
    return is_question or cues.has_any(words, cues.DECISIONS) or is_rule(sentence, is_short=False)


def _is_noise(sentence: str) -> bool:
    """A step that was taken, or a thought that names nothing."""
    return bool(_TELLS_STEP.match(sentence)) or (bool(_MUSES.match(sentence)) and not has_name(sentence))


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
        return [f"Output: {telling_lines(block)}"]
    return []


def files_in(text: str) -> list[str]:
    """The files that a text names, each once."""
    chunks = (chunk.rstrip("./-") for chunk in CHUNK.findall(text))
    return list(dict.fromkeys(chunk for chunk in chunks if _is_file(chunk)))


def _is_file(chunk: str) -> bool:
    name = chunk.rpartition("/")[2]
    if chunk.startswith("//") or not name.rpartition(".")[0]:
        return False
    return name.endswith(_TEXT_FILES) or grammar_for(name) is not None
