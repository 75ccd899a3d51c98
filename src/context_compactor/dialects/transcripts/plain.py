"""Plain messages: a list, a request body, or a recorded conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compactor.dialects.detection import (
    DIALECTS,
    detect,
    dialect_named,
    dialect_of_request,
    distinctive_dialect,
)
from context_compactor.dialects.dialect import kind_of_value
from context_compactor.dialects.messages import ReportedUsage, read_usage
from context_compactor.dialects.transcripts.json_lines import FORMATS, JsonFile, NumberedValue
from context_compactor.dialects.transcripts.transcript import PastCompaction, RawMessage, Transcript, utc_time
from context_compactor.errors import BadMessage, BadTranscript

_MESSAGE_FIELDS = ("messages", "contents", "input", "turns")
# What stands beside the messages, by the names that OpenAI and Anthropic, Gemini and Bedrock give it.
_SYSTEM_FIELDS = ("system", "instructions", "systemInstruction", "system_instruction")
_TOOL_FIELDS = ("tools", "toolConfig")
_MODEL_FIELDS = ("model", "modelId")
_USAGE_FIELDS = ("usage", "usageMetadata", "usage_metadata")
# Recorded conversations name a provider where they mean its older dialect.
_OLD_SCHEMAS = {"openai": "openai-chat"}
_KNOWN_FIELDS = (*_MESSAGE_FIELDS, *_SYSTEM_FIELDS, *_TOOL_FIELDS, *_MODEL_FIELDS, "events", "window")


def is_conversation(value: object) -> bool:
    """Whether a JSON value is a whole conversation: a request body, or a recorded one."""
    return isinstance(value, dict) and "role" not in value and any(key in value for key in _MESSAGE_FIELDS)


def is_message(value: object) -> bool:
    """Whether a JSON value can be one message or item."""
    if not isinstance(value, dict):
        return False
    return "role" in value or isinstance(value.get("type"), str) or bool(distinctive_dialect([value]))


def read_messages(entries: Sequence[NumberedValue], source: JsonFile, named: str = "auto") -> Transcript:
    """A list of messages, one per entry, in the dialect that is named; `auto` looks at them."""
    for number, value in entries:
        if not is_message(value):
            what = kind_of_value(value) if not isinstance(value, dict) else "an object without 'role' and 'type'"
            raise source.error(number, f"this is {what}, not a message", f"give {FORMATS}")
    messages = [value for _, value in entries]
    dialect = _dialect({}, messages, source, named)
    return Transcript(
        messages=messages, dialect=dialect, source=dialect, usages=_usages(messages), times=_times(messages)
    )


def read_conversation(entry: NumberedValue, source: JsonFile, named: str = "auto") -> Transcript:
    """A request body, or a conversation with what was recorded about it."""
    number, record = entry
    if not is_conversation(record):
        what = kind_of_value(record) if not isinstance(record, dict) else "an object without 'messages'"
        raise source.error(number, f"this is {what}, not a conversation like those before", "remove it")
    messages = _messages(record, number, source)
    usages = _usages(messages)
    if "events" in record or "schema" in record:
        messages = [{key: value for key, value in message.items() if key != "usage"} for message in messages]
    dialect = _dialect(record, messages, source, named)
    window = record.get("window")
    return Transcript(
        messages=messages,
        dialect=dialect,
        source=dialect,
        session_id=str(record.get("id") or ""),
        model=str(_first(record, _MODEL_FIELDS) or ""),
        window=window if isinstance(window, int) else None,
        system=_held(_first(record, _SYSTEM_FIELDS), "parts"),
        tools=_tools(record),
        usages=usages,
        times=_times(messages),
        compactions=_compactions(record.get("events")),
        extra={key: value for key, value in record.items() if key not in _KNOWN_FIELDS},
    )


def _first(record: dict[str, Any], fields: Sequence[str]) -> Any:
    return next((record[field] for field in fields if record.get(field) is not None), None)


def _held(value: Any, field: str) -> Any:
    """What an object holds in this field, where it has it; anything else as it is."""
    return value[field] if isinstance(value, dict) and field in value else value


def _tools(record: dict[str, Any]) -> list[Any] | None:
    """The tools of a request; Bedrock has them within its `toolConfig`, and Gemini has one beside its tools."""
    return next((held for field in _TOOL_FIELDS if isinstance(held := _held(record.get(field), "tools"), list)), None)


def _times(messages: Sequence[RawMessage]) -> dict[int, str]:
    """When messages were written, where they say so."""
    found = {at: utc_time(raw.get("timestamp", raw.get("created_at"))) for at, raw in enumerate(messages)}
    return {at: time for at, time in found.items() if time}


def _messages(record: dict[str, Any], number: int, source: JsonFile) -> list[RawMessage]:
    field = next(key for key in _MESSAGE_FIELDS if key in record)
    items = record[field]
    if field == "input" and isinstance(items, str) and items:
        return [{"type": "message", "role": "user", "content": items}]
    if not isinstance(items, list):
        raise source.error(number, f"{field!r} is {kind_of_value(items)}, not a list", "give a list of messages")
    if not items:
        raise source.error(number, f"{field!r} is empty", "give at least one message")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            what = f"{field}[{index}] is {kind_of_value(item)}, not an object"
            raise source.error(number, what, "correct or remove it")
    return _dialogue_messages(items, record) if field == "turns" else items


def _dialogue_messages(turns: list[dict[str, Any]], record: dict[str, Any]) -> list[RawMessage]:
    """A talk between people: the first speaker is the user, and each line says who speaks and when."""
    speakers = record.get("speakers")
    first = speakers[0] if isinstance(speakers, list) and speakers else turns[0].get("speaker")
    messages = []
    for turn in turns:
        date = f"[{turn['date']}] " if turn.get("date") else ""
        role = "user" if turn.get("speaker") == first else "assistant"
        messages.append({"role": role, "content": f"{date}{turn.get('speaker') or ''}: {turn.get('text') or ''}"})
    return messages


def _dialect(record: dict[str, Any], messages: list[RawMessage], source: JsonFile, named: str) -> str:
    if named != "auto":
        return dialect_named(named).name
    schema = record.get("schema")
    if isinstance(schema, str) and (known := _OLD_SCHEMAS.get(schema, schema)) in DIALECTS:
        return known
    try:
        return (dialect_of_request(record) or detect(messages)).name
    except BadMessage as error:
        raise BadTranscript(f"{source.name}: {error}") from None


def _usages(messages: list[RawMessage]) -> dict[int, ReportedUsage]:
    found = ((index, read_usage(_first(message, _USAGE_FIELDS))) for index, message in enumerate(messages))
    return {index: usage for index, usage in found if usage}


def _compactions(events: object) -> list[PastCompaction]:
    found = []
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("type") == "compaction" and isinstance(event.get("at"), int):
            tokens = event.get("pre_tokens")
            trigger, summary = str(event.get("trigger") or ""), str(event.get("summary") or "")
            found.append(PastCompaction(event["at"], trigger, tokens if isinstance(tokens, int) else None, summary))
    return found
