"""Parses a context (turns, earlier record, facts) and classifies it: what each exchange is, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from msgspec import Struct

from context_compactor.archive.originals import Original
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import Record, open_turns
from context_compactor.dialects.turns import ToolUse, Turn, turn_spans
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.engine.required import record_root
from context_compactor.engine.tiers import finished_turns
from context_compactor.facts.calls import describe_call, parse_call, target_of
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import Failure, find_failures
from context_compactor.facts.file_history import FileHistory, file_history, label_root
from context_compactor.facts.kinds import Kind, kind_of, reference_of, restore_hint
from context_compactor.facts.ledgers import extract_facts
from context_compactor.json_values import copy_containers
from context_compactor.tracing import traced

_SHORT = 200
_LIKENESS = 0.9
_MOST_LINES = 4_000
_MOST_CANDIDATES = 3


class Repeats(Struct, frozen=True):
    """Earlier exchanges with the later one that says the same word for word, or nearly the same."""

    equal: dict[int, int]
    alike: dict[int, int]


def find_repeats(exchanges: Iterable[ToolUse]) -> Repeats:
    """Each result that a later one repeats."""
    repeats = Repeats({}, {})
    newest: dict[str, int] = {}
    sketches: dict[int, list[tuple[int, frozenset[int]]]] = {}
    for exchange in exchanges:
        text = exchange.result.text if exchange.result else ""
        if len(text) < _SHORT:
            continue
        if text in newest:
            repeats.equal[newest[text]] = exchange.number
        newest[text] = exchange.number
        # As numbers, but not by `hash`: that differs from run to run, and so would the plan.
        lines = frozenset(map(crc32, filter(None, text.encode("utf-8", "replace").split(b"\n", _MOST_LINES))))
        bucket = sketches.setdefault(min(lines), [])
        for known, earlier in bucket[-_MOST_CANDIDATES:]:
            if known not in repeats.equal and _likeness(lines, earlier) >= _LIKENESS:
                repeats.alike[known] = exchange.number
        bucket.append((exchange.number, lines))
    return repeats


def _likeness(one: frozenset[int], other: frozenset[int]) -> float:
    if min(len(one), len(other)) < _LIKENESS * max(len(one), len(other)):
        return 0.0
    return len(one & other) / len(one | other)


class Verdict(Struct, frozen=True):
    """What is known of one exchange. `superseded_by` and `duplicate_of` name a later exchange, or 0.

    It is outdated when a later one says nearly the same: only the lines that differ are worth keeping.
    """

    kind: Kind
    label: str
    ref: str
    path: str = ""
    is_look: bool = False
    is_under_edit: bool = False
    superseded_by: int = 0
    duplicate_of: int = 0
    is_outdated: bool = False
    failure: Failure | None = None


class Verdicts(Struct, frozen=True):
    """The verdicts by exchange number, with the failures and the files behind them."""

    exchanges: dict[int, Verdict]
    failures: tuple[Failure, ...]
    files: FileHistory
    root: str = ""
    """The folder that labels leave out of paths."""


def classify(turns: Sequence[Turn], root: str | None = None) -> Verdicts:
    """Look at every exchange of a conversation. `root` is the folder that paths are shown from, when it is known."""
    exchanges = [exchange for turn in turns for exchange in turn.exchanges]
    failures = find_failures(turns)
    files = file_history(finished_turns(turns), {failure.exchange for failure in failures})
    by_number = {failure.exchange: failure for failure in failures}
    repeats = find_repeats(exchanges)
    edited = {path for path, record in files.files.items() if record.writes}
    paths = _shown_paths(files)
    if root is None:
        root = label_root([path for path in files.files if path.startswith("/")])
    verdicts = {}
    for exchange in exchanges:
        number = exchange.number
        path = paths.get(number, "")
        kind = kind_of(exchange.call, exchange.result.text if exchange.result else "")
        verdicts[number] = Verdict(
            kind=kind,
            label=describe_call(exchange.call, root),
            ref=reference_of(exchange),
            path=path,
            is_look=_is_look(exchange, kind),
            is_under_edit=path in edited,
            superseded_by=files.superseded.get(number, 0),
            duplicate_of=repeats.equal.get(number, 0),
            is_outdated=number in repeats.alike,
            failure=by_number.get(number),
        )
    return Verdicts(verdicts, tuple(failures), files, root)


_LOOKS = (Kind.SEARCH_RESULT, Kind.LISTING, Kind.WEB_PAGE, Kind.SUBAGENT)


def _is_look(exchange: ToolUse, kind: Kind) -> bool:
    """Whether a call only asks for something: its arguments say no more than its label."""
    if exchange.call is None:
        return True
    reading = parse_call(exchange.call)
    return reading.command is None and not reading.writes and (reading.reads or kind in _LOOKS)


def _shown_paths(files: FileHistory) -> dict[int, str]:
    found: dict[int, str] = {}
    for path, record in files.files.items():
        found.update((read.exchange, path) for read in record.reads)
        found.update((write.exchange, path) for write in record.writes)
    return found


def result_original(exchange: ToolUse, verdict: Verdict) -> Original:
    """The original of one result."""
    result = exchange.result
    content = result.content if result is not None and result.content is not None else result.text if result else ""
    tokens = len(result.text) // 4 if result else 0
    hint = restore_hint(verdict.kind)
    target = verdict.path or (target_of(exchange.call) if exchange.call else "") or verdict.label
    recovery = f'recall("{verdict.ref}")' + (f", or {hint}: {verdict.path or verdict.label}" if hint else "")
    value = copy_containers(content)
    return Original(
        verdict.ref, verdict.kind.value, verdict.label, tokens, value, recovery, hint, target if hint else ""
    )


class ParsedContext(Struct, frozen=True):
    """A context taken apart: its turns, what an earlier compaction left, and what is known of both."""

    messages: list[Message]
    turns: list[Turn]
    past: Record | None
    verdicts: Verdicts
    facts: list[Fact]
    redacted_turns: list[Turn] | None = None
    """The turns with their secrets replaced, where the record may hold none; turns that stay are as they were."""

    @property
    def readable_turns(self) -> list[Turn]:
        """The turns as the record may quote them."""
        return self.turns if self.redacted_turns is None else self.redacted_turns


@traced("classify")
def parse_context(messages: Sequence[Message], dialect: Dialect, *, with_secrets: bool = True) -> ParsedContext:
    """Take a context apart and classify what is in it.

    Where the record may hold no secrets they are replaced first: half of one would not be recognized any more.
    """
    turns, past = open_turns(messages, dialect)
    redacted = None if with_secrets else open_turns(_without_secrets(messages, dialect), dialect)[0]
    readable = turns if redacted is None else redacted
    verdicts = classify(readable, record_root(past))
    facts = extract_facts(finished_turns(readable), verdicts.failures, verdicts.files, outcome_of)
    return ParsedContext(list(messages), turns, past, verdicts, facts, redacted)


def _without_secrets(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    from context_compactor.archive.redaction import redact  # its patterns take time to build

    return dialect.parse(redact([message.raw for message in messages]).value)


def turn_positions(
    parsed: ParsedContext, steps: Sequence[tuple[int, Message]], given: int
) -> dict[int, tuple[int, int]]:
    """For each turn where its messages stand among those that were given, before `steps` repaired them."""
    known = {id(message) for _, message in steps}
    # A message that stood behind the record in one and the same message has that message's position.
    rest = next((message for turn in parsed.turns for message in turn.messages if id(message) not in known), None)
    first = next((at for at, message in steps if message.role not in ("system", "developer")), 0)
    return turn_spans(parsed.turns, [*steps, *([(first, rest)] if rest is not None else [])], given)
