"""The commit gate: why a model's answer may not stand in the context. Nothing that it objects to gets in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from context_compactor.llm.model import ModelAnswer
from context_compactor.summary import hostile
from context_compactor.summary.evidence import WORD, Evidence, Objection, flat
from context_compactor.summary.exact import Origin, code_in, references_in, urls_in
from context_compactor.summary.language import NAMES, is_in
from context_compactor.summary.losses import Lost, false_claims
from context_compactor.summary.shape import HEADINGS, NEXT, Prose, clean, parse_prose, without_thoughts
from context_compactor.summary.spans import Count

_QUOTED = re.compile(
    r"[\"\u201c\u201e\u00ab\u300c]([^\"\u201c\u201d\u00bb\u300d\n]{3,600})[\"\u201d\u201c\u00bb\u300d]"
)
# What is called done must be something that can be looked up: a name, a number, a quote, or words in another script.
_DONE = re.compile(r"done\s*[:\u2013\u2014\uff1a-]\s*(.+)", re.IGNORECASE)
_UNDER_WAY = re.compile(r"(?:active|blocked)\b", re.IGNORECASE)
_EXACT = re.compile(r"\d|[`\"'\u201c\u201e\u00ab\u300c]|\w[./_\\-]\w|[a-z][A-Z]|[^\x00-\u024f\u2000-\u206f]")
_RUN = 5
_ECHO_RUN = 12
_ECHO_SHARE = 0.6
_ECHO_LEAST = 12
_FEW_STRAYS = 240
_SAME = 40
_DISTINCT = 0.4
_TOO_LONG = 2.5
_SHOWN = 80
_TRUE_SHARE = 0.75


def judge(answer: ModelAnswer, evidence: Evidence, count: Count) -> list[Objection]:
    """Everything that speaks against an answer; empty when its prose may be used."""
    said = without_thoughts(answer.text)
    return list(_of_call(answer, said)) or [
        *_of_text(said, evidence, count),
        *judge_prose(parse_prose(answer.text), evidence),
    ]


def _of_call(answer: ModelAnswer, said: str) -> Iterator[Objection]:
    """What shows without reading: no text, no end, or something else than a text."""
    if answer.stop == "tool_call" or answer.tool_calls:
        yield Objection("tool_call", "the answer called a tool; there are no tools here")
    elif answer.stop == "refusal":
        yield Objection("refusal", "the answer was a refusal")
    elif answer.stop == "length":
        yield Objection("cut_off", "the answer was cut off before its end; write much less")
    elif answer.stop != "complete":
        yield Objection("not_complete", "the answer did not come to its end")
    elif not said.strip():
        is_thought = bool(answer.reasoning.strip() or answer.text.strip())
        yield Objection("reasoning_only", "the answer was only reasoning") if is_thought else _EMPTY
    elif not any(map(str.isalnum, said)):
        yield _EMPTY


_EMPTY = Objection("empty", "the answer was empty")


def _of_text(said: str, evidence: Evidence, count: Count) -> Iterator[Objection]:
    """What the whole answer shows: its size, its headings, whether it is a summary at all."""
    tokens = count(said)
    prose = parse_prose(said)
    missing = [heading for heading in HEADINGS if heading not in prose.sections]
    if tokens >= evidence.tokens:
        yield Objection("not_smaller", f"the answer has {tokens:,} tokens, its source only {evidence.tokens:,}")
    if tokens > _TOO_LONG * evidence.budget + 150:
        yield Objection("too_long", f"the answer has {tokens:,} tokens instead of {evidence.budget:,}")
    if missing:
        yield Objection("missing_heading", f"these headings are missing: {', '.join(missing)}")
    if sum(map(len, prose.strays)) > _FEW_STRAYS:
        yield Objection("stray_text", "much of the answer stands under none of the headings")
    yield from _of_wording(said.split("\n"), evidence)


def _of_wording(raw: Sequence[str], evidence: Evidence) -> Iterator[Objection]:
    """Marks and syntax that no summary holds, anywhere in the answer."""
    lines = [hostile.as_read(clean(line)) for line in raw]
    text = "\n".join(lines)
    for code, pattern, words in _MARKS:
        found = pattern.search(text)
        if found:
            yield Objection(code, f"{words}: {found[0].strip()[:_SHOWN]!r}")
    bare = [re.sub(r"^(?:[-*+•]|\d{1,2}[.)])\s+", "", line) for line in lines]
    speaker = next((line for line in bare if hostile.SPEAKERS.match(line)), None)
    if speaker is not None:
        yield Objection("continued", f"a line begins like a turn of a conversation: {speaker[:_SHOWN]!r}")
    refusal = next((line for line in bare if hostile.REFUSALS.match(line)), None)
    if refusal is not None and flat(refusal) not in evidence.user:
        yield Objection("refusal", f"the answer refuses: {refusal[:_SHOWN]!r}")


_MARKS = (
    ("tool_syntax", hostile.TOOL_SYNTAX, "the answer holds the syntax of a tool call"),
    ("role_mark", hostile.ROLE_MARKS, "the answer holds a mark of a role"),
    ("frame", hostile.FRAMES, "the answer holds a frame that is ours"),
)


def judge_prose(prose: Prose, evidence: Evidence) -> list[Objection]:
    """What speaks against prose, whoever put it together."""
    if not prose:
        return [Objection("empty", "there is nothing under the headings")]
    return [
        *_of_wording(prose.lines(), evidence),
        *_smuggled(prose, evidence),
        *_repeated(prose, evidence),
        *_untrue(prose, evidence),
    ]


def _smuggled(prose: Prose, evidence: Evidence) -> Iterator[Objection]:
    """Orders to the reader that are not the user's own words."""
    for line in prose.lines():
        read = hostile.as_read(_without_quotes(line, evidence.user))
        if hostile.OVERRIDES.search(read):
            yield Objection("instruction", f"a line orders its reader about: {line[:_SHOWN]!r}")
        elif hostile.ADDRESSED.search(read) and _comes_from(read, evidence.results, evidence.spoken):
            yield Objection("instruction", f"a line repeats an order from a tool's output: {line[:_SHOWN]!r}")
    for line in prose.sections.get(NEXT, ()):
        told = [*urls_in(line), *(code for code in code_in(line) if " " in code)]
        strange = next((each for each in told if flat(each) in evidence.results and each not in evidence.said), None)
        if strange is not None:
            yield Objection("instruction", f"the next step comes from a tool's output alone: {strange[:_SHOWN]!r}")


def _without_quotes(line: str, user: str) -> str:
    """A line without what it quotes of the user's own words."""
    return _QUOTED.sub(lambda quote: " " if flat(quote[1]) in user else quote[0], line)


def _comes_from(read: str, results: str, spoken: str) -> bool:
    """Whether a line has a run of words from a tool's output that neither the user nor the agent has used."""
    words = WORD.findall(read)
    runs = [" ".join(words[at : at + _RUN]) for at in range(max(len(words) - _RUN + 1, 1))]
    return any(run in results and run not in spoken for run in runs if run)


def _repeated(prose: Prose, evidence: Evidence) -> Iterator[Objection]:
    """Text that says nothing of its own: a copy of the source or of the question, or the same again and again."""
    lines, words = prose.lines(), WORD.findall(prose.text.lower())
    hints = {hint for hints in HEADINGS.values() for hint in hints}
    if any(line in hints for line in lines):
        yield Objection("echo", "a line only repeats what its heading asks for")
    source = flat(evidence.source)
    runs = [" ".join(words[at : at + _ECHO_RUN]) for at in range(0, len(words) - _ECHO_RUN + 1, 3)]
    if len(runs) >= _ECHO_LEAST and sum(run in source for run in runs) > _ECHO_SHARE * len(runs):
        yield Objection("echo", "the answer copies its source instead of summing it up")
    triples = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
    if len(triples) >= _SAME and len(set(triples)) < _DISTINCT * len(triples):
        yield Objection("repetitive", "the answer says the same again and again")


def _untrue(prose: Prose, evidence: Evidence) -> Iterator[Objection]:
    """Exact things that the source does not hold, unfinished things called done, another language."""
    origin = Origin(evidence.source)
    for heading, lines in prose.sections.items():
        for line in lines:
            yield from _untrue_line(line, heading, origin, evidence)
    for fact in false_claims(prose, evidence.facts):
        yield Objection("false_claim", f"this is not done: {fact.content[:_SHOWN]!r}")
    if not is_in(prose.text, evidence.language):
        wanted = NAMES.get(evidence.language, evidence.language)
        yield Objection("wrong_language", f"the answer is not in {wanted}")


def _untrue_line(line: str, heading: str, origin: Origin, evidence: Evidence) -> Iterator[Objection]:
    invented = [each[:_SHOWN] for each in origin.invented(line)]
    if invented:
        yield Objection("invented", f"the conversation does not hold {', '.join(map(repr, invented[:5]))}")
    unknown = references_in(line) - evidence.refs
    if unknown:
        yield Objection("unknown_reference", f"there is no {', '.join(sorted(unknown)[:5])}")
    yield from _unspoken(line, heading, evidence)
    done = _DONE.match(line)
    if done and not _EXACT.search(done[1]):
        yield Objection("vague_claim", f"say exactly what is done, by its turn, file or name: {line[:_SHOWN]!r}")


def _unspoken(line: str, heading: str, evidence: Evidence) -> Iterator[Objection]:
    """A permission that the user did not give, or a step to come that cannot be taken back and nobody has spoken of."""
    read = hostile.as_read(_without_quotes(line, evidence.user))
    if hostile.PERMISSIONS.search(read) and not hostile.PERMITTED.search(evidence.user):
        yield Objection("unspoken", f"the user has not allowed this: {line[:_SHOWN]!r}")
    risks = hostile.RISKS if heading == NEXT or _UNDER_WAY.match(line) else ()
    risky = (found[0] for step, spoken in risks if (found := step.search(read)) and not spoken.search(evidence.spoken))
    if (word := next(risky, None)) is not None:
        yield Objection("unspoken", f"nobody in these turns has spoken of {word!r}: {line[:_SHOWN]!r}")


def without_inventions(prose: Prose, evidence: Evidence) -> Prose | None:
    """The prose without the lines that hold something made up; None when these are more than a few."""
    origin = Origin(evidence.source)
    sections = {
        heading: tuple(line for line in lines if not any(_untrue_line(line, heading, origin, evidence)))
        for heading, lines in prose.sections.items()
    }
    kept = Prose(sections, prose.strays)
    return kept if kept and len(kept.lines()) >= _TRUE_SHARE * len(prose.lines()) else None


def loss_objections(losses: Sequence[Lost]) -> list[Objection]:
    """What is said of facts that could not be put back."""
    return [Objection(lost.code, f"this is told nowhere any more: {lost.fact.content[:_SHOWN]!r}") for lost in losses]
