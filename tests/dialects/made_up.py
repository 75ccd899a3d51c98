"""A fourth dialect that no provider has: other words for roles, calls and results, and a rule of its own.

    {"who": "rules", "say": "Be brief."}
    {"who": "human", "say": "Fix it."}
    {"who": "bot", "say": "I look.", "ask": [{"ref": "a", "do": "Read", "with": {"file_path": "a.py"}}]}
    {"who": "machine", "ref": "a", "got": "x = 1", "bad": false}

Its provider wants a word from the bot with every call; "-" will do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compactor.dialects.detection import register_dialect
from context_compactor.dialects.dialect import (
    Dialect,
    Overhead,
    Raw,
    ToolDeclaration,
    blocks_at,
    dicts_of,
    id_at,
    role_at,
    text_at,
)
from context_compactor.dialects.legality import (
    Pairing,
    Rule,
    Violation,
    assistant_first,
    assistants_in_a_row,
    blank_messages,
    late_results,
)
from context_compactor.dialects.messages import Message, Part, Role, Text, ToolCall, ToolResult
from context_compactor.dialects.repair import (
    IndexedMessage,
    Repair,
    RepairRule,
    drop_blanks,
    join_assistants,
    rename_repeated,
    results_behind_calls,
    start_with_user,
)
from context_compactor.json_values import json_text

NAME = "made-up"
NO_WORDS = "-"
ROLES: dict[str, Role] = {"rules": "system", "human": "user", "bot": "assistant", "machine": "tool"}


def _silent_calls(messages: Sequence[Message], _pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    for at, message in enumerate(messages):
        if message.calls and not message.raw.get("say"):
            yield Violation(at, "silent-call", "a call without a word")


def _give_words(steps: list[IndexedMessage], _dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    repaired: list[IndexedMessage] = []
    for index, message in steps:
        is_silent = bool(message.calls) and not message.raw.get("say")
        log += [Repair(index, "put a word before a call")] if is_silent else []
        repaired.append((index, _read(0, {**message.raw, "say": NO_WORDS}) if is_silent else message))
    return repaired


class MadeUp:
    """Everything that the package asks of a dialect."""

    name = NAME
    strict_alternation = False
    reply_is_one_message = True
    has_unique_call_ids = True
    can_clear_thinking = True
    recommended_layout = "tail"
    summaries_are_readable = True
    compaction_note = ""
    overhead = Overhead(request=2, message=5, name=0, call=6, result=5, tool=7, tools=3, images="openai")
    request_bytes = 10 * 1024 * 1024
    media_blocks: tuple[str, ...] = ()
    native_models: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = (late_results, blank_messages, assistants_in_a_row, assistant_first, _silent_calls)
    repairs: tuple[RepairRule, ...] = (
        drop_blanks,
        join_assistants,
        rename_repeated,
        results_behind_calls,
        drop_blanks,
        join_assistants,
        start_with_user,
        _give_words,
    )

    def for_model(self, model: str | None) -> Dialect:
        return self

    def recognizes(self, item: Raw) -> bool:
        return "who" in item and "role" not in item

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        return False

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        return False

    def is_blank(self, message: Message, is_last: bool) -> bool:
        return not message.parts

    def has_blank_block(self, message: Message) -> bool:
        return False

    def parse(self, items: Sequence[object]) -> list[Message]:
        return [_read(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        if not edits:
            return message
        if message.role == "tool":
            return None if edits[0] is None else _read(0, {**message.raw, "got": edits[0]})
        return _written(message, [(part, edits.get(at, ...)) for at, part in enumerate(message.parts)])

    def user_text(self, text: str) -> Message:
        return _read(0, {"who": "human", "say": text})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        return [{"tool": tool.name, "takes": tool.parameters} for tool in tools]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        return [*messages]

    def can_join(self, first: Message, second: Message) -> bool:
        return True

    def join(self, first: Message, second: Message) -> Message:
        words = [said for said in (first.text, second.text) if said]
        asked = [*first.raw.get("ask", ()), *second.raw.get("ask", ())]
        raw = {**second.raw, **first.raw, "say": "\n\n".join(words) or (NO_WORDS if asked else "")}
        return _read(0, {**raw, "ask": asked} if asked else raw)

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        kept = [(part, ... if at in order else None) for at, part in enumerate(message.parts)]
        return _written(message, kept) or _read(0, {**message.raw, "say": ""})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message | None:
        return _read(0, {"who": "machine", "ref": call.id, "got": text, "bad": True})

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        return self.user_text(f"{frame}\n{result.text}") if result.text else None

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        if message.role == "tool":
            return _read(0, {**message.raw, "ref": ids[0]})
        first = len(message.parts) - len(message.calls)
        asked = [{**ask, "ref": ids.get(first + at, ask["ref"])} for at, ask in enumerate(message.raw["ask"])]
        return _read(0, {**message.raw, "ask": asked})

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        return [*after]


def _read(index: int, raw: Raw) -> Message:
    role = role_at(index, raw.get("who"), ROLES)
    if role == "tool":
        got = text_at(index, "got", raw.get("got"))
        return Message(role, (ToolResult(id_at(index, "ref", raw.get("ref")), got, bool(raw.get("bad")), got),), raw)
    said = text_at(index, "say", raw.get("say", ""))
    parts: list[Part] = [Text(said)] if said and not (said == NO_WORDS and raw.get("ask")) else []
    for at, ask in enumerate(blocks_at(index, "ask", raw.get("ask") or [])):
        field = f"ask[{at}]"
        name = text_at(index, f"{field}.do", ask.get("do"))
        parts.append(ToolCall(id_at(index, f"{field}.ref", ask.get("ref")), name, json_text(ask.get("with", {}))))
    return Message(role, tuple(parts), raw)


def _written(message: Message, parts: Sequence[tuple[Part, Any]]) -> Message | None:
    """A message with its parts as they are (`...`), with another text, or without (None)."""
    said, asked = "", []
    calls = iter(message.raw.get("ask") or ())
    for part, change in parts:
        ask = next(calls) if isinstance(part, ToolCall) else None
        if ask is None and change is not None:
            said = part.text if change is ... and isinstance(part, Text) else change
        elif ask is not None and change is not None:
            asked.append(ask if change is ... else {**ask, "with": _arguments(change)})
    if not said and not asked:
        return None
    raw = {key: value for key, value in message.raw.items() if key != "ask"}
    return _read(0, {**raw, "say": said or NO_WORDS, **({"ask": asked} if asked else {})})


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"text": text}


register_dialect(MadeUp())
