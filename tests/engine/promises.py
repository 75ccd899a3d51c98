"""What every compaction must keep, each as a function that finds what is broken.

They look at the plain messages that went in and came out, and at the report; each returns what is wrong, in words, so
that a test is one line and its failure can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from context_compactor import Compaction
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations, first_speaker, pair_results
from context_compactor.dialects.messages import Message, Opaque, Text, ToolCall, ToolResult
from context_compactor.dialects.record import Record, open_record
from context_compactor.dialects.repair import repair
from context_compactor.facts.failures import call_text
from context_compactor.tokens.counting import MessageCounter, counter_for

Raw = dict[str, Any]

_ID = re.compile(r"\b(?:turn|tool|file|agent)_\d{3,}\b")
_THOUGHTS = ("reasoning", "reasoning_content", "reasoning_details", "thinking_blocks")


def parsed(messages: Sequence[Raw], dialect: str) -> list[Message]:
    """Messages as the engine reads them."""
    return DIALECTS[dialect].parse(messages)


def legal(messages: Sequence[Raw], dialect: str) -> list[Message]:
    """The same after illegal ones were repaired: what a compaction starts from."""
    return repair(parsed(messages, dialect), DIALECTS[dialect])[0]


def record_of(messages: Sequence[Message], dialect: str) -> Record | None:
    """The record that stands in a context."""
    return open_record(messages, DIALECTS[dialect])[1]


def words(messages: Sequence[Message]) -> str:
    """All that a model reads in a context, with single spaces."""
    return " ".join(" ".join(_texts(messages)).split())


def _texts(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield f"{part.name} {part.arguments}"
                yield call_text(part)
            elif isinstance(part, Text | ToolResult | Opaque):
                yield part.text


def tokens_of(messages: Sequence[Raw], dialect: str) -> int:
    """The tokens of a request, counted afresh."""
    counter = MessageCounter(counter_for(None), dialect)
    return counter.request_tokens(parsed(messages, dialect))


def broken(**promises: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Of what was found wrong about several promises, by their names: the beginning of it, where there is any."""
    return {promise: wrong[:3] for promise, wrong in promises.items() if wrong}


# The promises -------------------------------------------------------------------------------------------------


def illegal(result: Compaction, dialect: str) -> list[str]:
    """What a provider would reject in the output."""
    problems = find_violations(parsed(result.messages, dialect), DIALECTS[dialect])
    return [f"message {problem.index}: {problem.rule}: {problem.what}" for problem in problems]


def misfit(before: Sequence[Raw], result: Compaction, target: int, dialect: str) -> list[str]:
    """Where the sizes do not hold: above the target without saying so, not smaller, or wrongly counted."""
    report = result.report
    found = []
    if report.tokens_after != tokens_of(result.messages, dialect):
        found.append(f"the report counts {report.tokens_after}, a recount {tokens_of(result.messages, dialect)}")
    if report.status not in ("success", "partial", "unchanged"):
        found.append(f"{report.status}: {report.reason}")
    if report.status != "partial" and report.tokens_after > target:
        found.append(f"{report.status} with {report.tokens_after} tokens for a target of {target}")
    if report.status == "partial" and not (report.floor and report.reason):
        found.append("partial without a floor or a reason")
    if report.tokens_after > report.tokens_before:
        found.append(f"larger: {report.tokens_before} to {report.tokens_after}")
    if report.tokens_after == report.tokens_before and parsed(result.messages, dialect) != legal(before, dialect):
        found.append("changed and not smaller")
    return found


def lost_pins(before: Sequence[Raw], result: Compaction, dialect: str) -> list[str]:
    """Instructions and unanswered words of the user that are not byte for byte where they must be."""
    old, new = legal(before, dialect), parsed(result.messages, dialect)
    messages = [message.raw for message in old[: first_speaker(old)]]
    found = []
    if messages != [message.raw for message in new[: first_speaker(new)]]:
        found.append("the instructions changed")
    asked = unanswered(open_record(old, DIALECTS[dialect])[0])
    if asked and not _ends_with(new, asked):
        found.append(f"the unanswered words are not last: {[message.text[:60] for message in new[-len(asked) :]]}")
    return found


def unanswered(messages: Sequence[Message]) -> list[Message]:
    """The user's messages at the end."""
    at = len(messages)
    while at and messages[at - 1].role == "user" and not messages[at - 1].results:
        at -= 1
    return list(messages[at:])


def _ends_with(new: Sequence[Message], asked: Sequence[Message]) -> bool:
    """The first of them may stand behind the record, in one message with it."""
    last = new[-len(asked) :]
    if len(last) < len(asked) or [message.raw for message in last[1:]] != [message.raw for message in asked[1:]]:
        return False
    parts = asked[0].parts
    return last[0].raw == asked[0].raw or (last[0].role == "user" and last[0].parts[-len(parts) :] == parts)


def resolved(result: Compaction) -> list[tuple[str, str]]:
    """Failed attempts of which the messages that went in showed what resolved them, or that the user refused them."""
    over = [fact for fact in result.facts if fact.kind == "failure" and fact.status in ("resolved", "denied")]
    return [(_start(fact.content, 60), " ".join(fact.detail.split())) for fact in over]


def forgotten(
    failures: Sequence[tuple[str, str]],
    result: Compaction,
    dialect: str,
    over: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Failed attempts whose command or error can no longer be read in the context, but for those that are over."""
    text = words(parsed(result.messages, dialect))
    gone = [*over, *resolved(result)]
    found = []
    for command, error in failures:
        if any(_start(command, 60) in known and _start(error, 30) in output for known, output in gone):
            continue
        if _start(command, 60) not in text:
            found.append(f"command: {command}")
        if _start(error, 60) not in text:
            found.append(f"error: {error}")
    return found


def _start(text: str, length: int) -> str:
    return " ".join(text.split())[:length].rstrip()


def edited_thinking(before: Sequence[Raw], result: Compaction, dialect: str) -> list[str]:
    """Signed or sealed reasoning that is neither absent nor equal, or stands behind something that has changed."""
    known = {json.dumps(sealed, sort_keys=True) for sealed in _sealed(before)}
    edited = [json.dumps(each, sort_keys=True) for each in _sealed(result.messages)]
    new, old = parsed(result.messages, dialect), parsed(before, dialect)
    outdated = [each for each in find_violations(new, DIALECTS[dialect], before=old) if each.rule == "thinking"]
    return [*(sealed for sealed in edited if sealed not in known), *map(str, outdated)]


def _sealed(messages: Sequence[Raw]) -> Iterator[Any]:
    for raw in messages:
        if _is_thought(raw):
            yield raw
        thought = {key: raw[key] for key in _THOUGHTS if key in raw}
        if thought:
            yield thought
        content = raw.get("parts", raw.get("content"))
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and _is_thought(block):
                yield block


def originals(before: Sequence[Raw], dialect: str) -> dict[str, Any]:
    """What each number of a call must recall: the result as the provider had it, by the call's place in the session.

    The prefix is the engine's choice; the number is not.
    """
    messages, record = open_record(legal(before, dialect), DIALECTS[dialect])
    first = record.calls + 1 if record else 1
    paired = pair_results(messages)
    results = [paired.results.get(paired.answers.get(place, place)) for place in paired.calls]
    contents = (
        (at, result.text if result.content is None else result.content) for at, result in enumerate(results) if result
    )
    return {f"{first + at:03d}": content for at, content in contents}


def not_recalled(before: Sequence[Raw], result: Compaction, dialect: str, earlier: Collection[str] = ()) -> list[str]:
    """Archived ids that do not give back the original, and ids in the context that nothing is archived under.

    `earlier` are the ids that compactions before this one have archived.
    """
    expected, runs = originals(before, dialect), _Runs(before, dialect)
    found = []
    for archived in result.report.archived:
        value = result.original(archived.id).value
        if archived.id.startswith("turn_"):
            found += [] if runs.hold(value) else [f"{archived.id} is not a run of the input"]
        elif value != expected.get(archived.id.partition("_")[2]):
            found.append(f"{archived.id} has another content")
        if _as_value(result.recall(archived.id), value) != value:
            found.append(f"{archived.id} is shown in other words")
    known = {archived.id for archived in result.report.archived}.union(earlier)
    return found + [f"{ref} is visible and not archived" for ref in sorted(new_ids(before, result, dialect) - known)]


class _Runs:
    """The messages of a context but its instructions, which are never archived, to look for runs of them."""

    def __init__(self, before: Sequence[Raw], dialect: str) -> None:
        messages = open_record(legal(before, dialect), DIALECTS[dialect])[0]
        self._raws = [message.raw for message in messages[first_speaker(messages) :]]
        self._places: dict[str, list[int]] = {}
        for at, raw in enumerate(self._raws):
            self._places.setdefault(repr(raw), []).append(at)

    def hold(self, value: list[Raw]) -> bool:
        """Whether these messages stand in a row."""
        places = self._places.get(repr(value[0]), ()) if value else ()
        return any(self._raws[at : at + len(value)] == value for at in places)


def _as_value(text: str, value: Any) -> Any:
    if isinstance(value, str):
        return text
    if isinstance(value, list) and len(value) == 1 and value[0].get("text") == text:
        return value
    return json.loads(text)


def new_ids(before: Sequence[Raw], result: Compaction, dialect: str) -> set[str]:
    """The ids that this compaction put into the context, with the turns that its record now stands for."""
    old, new = legal(before, dialect), parsed(result.messages, dialect)
    seen, shown = (set(_ID.findall(" ".join(_texts(messages)))) for messages in (old, new))
    past, record = record_of(old, dialect), record_of(new, dialect)
    folded = range((past.turns if past else 0) + 1, (record.turns if record else 0) + 1)
    return (shown - seen) | {f"turn_{number:03d}" for number in folded}


def reused(archives: Sequence[Compaction]) -> list[str]:
    """Ids that mean one thing in an earlier compaction and another in a later one.

    A later compaction may know a turn as an earlier one left it: without reasoning, and with marks that lead back.
    Where a provider takes no two messages of the user in a row, words added before an answer become part of the turn.
    """
    known: dict[str, Any] = {}
    found = []
    for result in archives:
        for archived in result.report.archived:
            value = _plain(result.original(archived.id).value)
            if not _is_same(known.setdefault(archived.id, value), value):
                found.append(f"{archived.id} meant {str(known[archived.id])[:80]!r}, now {str(value)[:80]!r}")
    return found


def _is_same(first: Any, later: Any) -> bool:
    if isinstance(first, dict) and isinstance(later, dict) and first.keys() == later.keys():
        return all(_is_same(first[key], later[key]) for key in first)
    if isinstance(first, list) and isinstance(later, list) and len(first) <= len(later):
        return all(map(_is_same, first, later)) and all(map(_is_words, later[len(first) :]))
    return first == later or any(mark in str(later) for mark in ("[archived ", "left out"))


def _is_words(block: Any) -> bool:
    return isinstance(block, dict) and set(block) == {"text"}


def _plain(value: Any) -> Any:
    """Without reasoning, and with one block of text as that text: so it stands behind the record in one message."""
    if isinstance(value, list):
        kept = [_plain(each) for each in value if not (isinstance(each, dict) and _is_thought(each))]
        return kept[0]["text"] if len(kept) == 1 and set(kept[0]) == {"type", "text"} else kept
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in _THOUGHTS}
    return value


def _is_thought(value: Raw) -> bool:
    return (
        value.get("type") in ("reasoning", "thinking", "redacted_thinking")
        or value.get("thought") is True
        or "reasoningContent" in value
    )
