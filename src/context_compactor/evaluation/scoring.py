"""One method on one sample at one budget: what it kept, whether it is legal, fits and can be restored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.errors import CompactorError
from context_compactor.evaluation.expected import (
    CopiedSpan,
    FailedCall,
    Sample,
    WantedItems,
    found_with_search,
    identifiers,
    is_bound,
    spans_of,
    squeeze,
    without_tags,
)
from context_compactor.evaluation.messages import (
    FlatPart,
    RawMessage,
    count_message,
    count_messages,
    flat_text,
    flatten,
    is_instruction,
    read_message,
    without_line_numbers,
)
from context_compactor.evaluation.methods import MethodResult, ModelUse, budget_tokens, run_method
from context_compactor.evaluation.search import Search, plain_search
from context_compactor.protocols import Model

MEASURES = ("FRR", "BND", "NAS", "CSR", "EDT", "FAIL")


class Retention(Struct, frozen=True):
    """Which of the wanted things a context holds, in the order of `Wanted`."""

    names: tuple[bool, ...]
    bound: tuple[bool, ...]
    calls: tuple[bool, ...]
    spans: tuple[bool, ...]
    edits: tuple[bool, ...]
    failures: tuple[bool, ...]

    def shares(self) -> dict[str, float | None]:
        """The share kept, by measure."""
        groups = (self.names, self.bound, self.calls, self.spans, self.edits, self.failures)
        return {name: share(group) for name, group in zip(MEASURES, groups, strict=True)}


def share(flags: Sequence[bool]) -> float | None:
    """How many of the flags are set, 0 to 1; None of none."""
    return sum(flags) / len(flags) if flags else None


def measure_retention(wanted: WantedItems, context: Sequence[RawMessage]) -> Retention:
    """Look up everything a sample wants in a context's flattened text."""
    return retention_in(wanted, [text for _, text in flatten(context)])


def retention_in(wanted: WantedItems, texts: Sequence[str]) -> Retention:
    """Look up everything a sample wants in some texts."""
    whole = "\n".join(texts)
    present = identifiers(whole)
    names = tuple(name.text in present for name in wanted.names)
    return Retention(
        names=names,
        bound=tuple(there and is_bound(name, whole) for name, there in zip(wanted.names, names, strict=True)),
        calls=tuple(all(names[index] for index in call) for call in wanted.calls),
        spans=_spans(wanted.spans, texts),
        edits=tuple(edit.text in whole for edit in wanted.edits),
        failures=_failures(wanted.failures, whole),
    )


def nothing_kept(wanted: WantedItems) -> Retention:
    """What counts for a context that did not fit."""
    return retention_in(wanted, [])


def _spans(wanted: Sequence[CopiedSpan], texts: Sequence[str]) -> tuple[bool, ...]:
    present = {span for text in texts for span in spans_of(text)} if wanted else set()
    return tuple(span.text in present for span in wanted)


def _failures(wanted: Sequence[FailedCall], text: str) -> tuple[bool, ...]:
    flat = squeeze(without_tags(without_line_numbers(text))) if wanted else ""
    return tuple(failure.command in flat and any(line in flat for line in failure.lines) for failure in wanted)


def problems(messages: Sequence[RawMessage], provider: str) -> list[str]:
    """What is wrong with a context, in words; empty when it is legal."""
    spoken = [message for message in messages if not is_instruction(message)]
    if not spoken:
        return ["no message"]
    found = [] if spoken[0].get("role", "user") == "user" else ["the first message is not the user's"]
    found += _anthropic(spoken) if provider == "anthropic" else _openai(spoken)
    return found + [f"message {index} is empty" for index, message in enumerate(spoken) if _is_empty(message)]


def _is_empty(message: RawMessage) -> bool:
    if message.get("role") == "tool" or "role" not in message:
        return False
    return not any(piece.kind in ("call", "result") or piece.text.strip() for piece in read_message(message))


def _anthropic(messages: Sequence[RawMessage]) -> list[str]:
    found: list[str] = []
    waiting: set[str] = set()
    previous = ""
    for index, message in enumerate(messages):
        role = str(message.get("role"))
        if role == previous:
            found.append(f"message {index} has the role of the one before")
        results = [piece.call_id for piece in read_message(message) if piece.kind == "result"]
        if waiting != set(results) or len(results) != len(set(results)):
            found.append(f"message {index}: results {sorted(set(results) ^ waiting)[:3]} do not match the calls before")
        waiting = {piece.call_id for piece in read_message(message) if piece.kind == "call"}
        previous = role
    return found + (["the last calls have no results"] if waiting else [])


def _openai(messages: Sequence[RawMessage]) -> list[str]:
    found: list[str] = []
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        pieces = read_message(message)
        for piece in pieces:
            if piece.kind == "result" and piece.call_id not in waiting:
                found.append(f"message {index}: result {piece.call_id} without its call")
            waiting.discard(piece.call_id)
        if waiting and not any(piece.kind == "result" for piece in pieces):
            found.append(f"message {index}: calls {sorted(waiting)[:3]} have no result")
            waiting = set()
        waiting |= {piece.call_id for piece in pieces if piece.kind == "call"}
    return found + (["the last calls have no results"] if waiting else [])


_REFERENCE = r"\b(tool|file|agent|turn)_(\d{3,9})\b"
_RANGE = re.compile(_REFERENCE + r"(?: to | ?[-–…] ?|\.\.)" + _REFERENCE)
_MOST = 100_000


def references(text: str) -> list[str]:
    """The references a text shows, and those between the two ends of a range."""
    shown = [f"{kind}_{number}" for kind, number in re.findall(_REFERENCE, text)]
    between = [
        f"{kind}_{number:0{len(first)}d}"
        for kind, first, _, last in _RANGE.findall(text)
        for number in range(int(first), min(int(last), int(first) + _MOST) + 1)
    ]
    return list(dict.fromkeys([*shown, *between]))


def restored(
    history: Sequence[RawMessage], context: Sequence[RawMessage], recall: Callable[[str], Any]
) -> float | None:
    """The share of messages that stand in the context as they were or that recalling what it refers to gives back.

    A message is back when a recalled turn holds an equal one, or when each of its parts equals one in the
    context or a recalled text.
    """
    texts, turns = _recalled(references(flat_text(context)), recall)
    whole = [*context, *turns]
    parts: set[tuple[str, str]] = {(piece.kind, piece.text) for message in whole for piece in read_message(message)}
    back = [
        message in whole or all(_is_back(piece, parts, texts) for piece in read_message(message)) for message in history
    ]
    return sum(back) / len(back) if back else None


def _is_back(piece: FlatPart, parts: set[tuple[str, str]], texts: set[str]) -> bool:
    return (piece.kind, piece.text) in parts or piece.text in texts


def _recalled(shown: Sequence[str], recall: Callable[[str], Any]) -> tuple[set[str], list[RawMessage]]:
    texts: set[str] = set()
    turns: list[RawMessage] = []
    for reference in shown:
        text = _text(reference, recall)
        if reference.startswith("turn_"):
            turns.extend(_messages(text))
        else:
            texts.add(text)
    return texts, turns


def _text(reference: str, recall: Callable[[str], Any]) -> str:
    try:
        return str(recall(reference))
    except (LookupError, CompactorError):
        return ""


def _messages(text: str) -> Iterator[RawMessage]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):  # half a character: no JSON text of ours
        return
    yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))


COLUMNS = (*MEASURES, "1Q", "LEGAL", "RESTOR", "CACHE", "size")


class Score(Struct, frozen=True):
    """What one method did to one sample at one budget.

    `problems` says why a context is not legal, `model_use` what a model had to do with it.
    """

    sample: str
    source: str
    budget: str
    fits: bool
    tokens: int
    limit: int
    shares: dict[str, float | None]
    problems: tuple[str, ...] = ()
    model_use: ModelUse | None = None


class ScoreDetail(Struct, frozen=True):
    """A score, and which of the wanted things were kept; nothing counts as kept where the context does not fit."""

    score: Score
    kept: Retention


def score_sample(
    sample: Sample,
    method: str,
    budget: str,
    summarizer: str | Model | None = None,
    archive: Callable[[], Search] | None = None,
) -> ScoreDetail:
    """Run a method on one sample and look up what it kept; a context over its budget keeps nothing.

    `archive` gives the search for methods that have none of their own.
    """
    made = run_method(method, sample, budget, summarizer)
    limit, size = budget_tokens(sample, budget), count_messages(made.messages)
    fits = size <= limit or method == "everything"
    found = measure_retention(sample.wanted, made.messages) if fits else nothing_kept(sample.wanted)
    wrong = problems(made.messages, sample.conversation.provider)
    shares = found.shares()
    shares["1Q"] = _one_question(sample, made, found.names, archive)
    shares["LEGAL"] = float(not wrong)
    shares["RESTOR"] = restored(sample.history, made.messages, made.recall) if made.recall else None
    shares["CACHE"] = prefix_share(sample.history, made.messages)
    shares["size"] = size / limit if limit else 1.0
    source = sample.conversation.source
    score = Score(sample.id, source, budget, fits, size, limit, shares, tuple(wrong[:3]), made.model_use)
    return ScoreDetail(score, found)


def _one_question(
    sample: Sample, made: MethodResult, names: Sequence[bool], archive: Callable[[], Search] | None
) -> float | None:
    search = made.search or (archive() if archive else plain_search(sample.history))
    texts = [name.text for name in sample.wanted.names]
    return found_with_search(texts, names, sample.wanted.questions, search)


def prefix_share(history: Sequence[RawMessage], context: Sequence[RawMessage]) -> float:
    """The share of the old prompt's tokens that stands unchanged at the start of the new one."""
    same = 0
    for old, new in zip(history, context, strict=False):
        if old != new:
            break
        same += 1
    total = count_messages(history) if same else 0
    return sum(map(count_message, history[:same])) / total if total else 0.0
