"""Recorded conversations and the development corpus they come from."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.quality.reading import RawMessage

AGENT_SOURCES = ("claude_code_entireio", "codex_agentv", "mini_swe_deepseek_chat")
DIALOGUES = "locomo_dev"


class Event(Struct, frozen=True):
    """A compaction that really happened before message `at`."""

    at: int
    summary: str = ""
    trigger: str = ""


class Conversation(Struct, frozen=True):
    """One recorded conversation. `usages` holds what the provider billed, by message index."""

    id: str
    source: str
    project: str
    provider: str
    messages: list[RawMessage]
    events: tuple[Event, ...] = ()
    usages: dict[int, dict[str, int]] = {}


def default_corpus() -> Path:
    """The corpus folder beside the repository."""
    return Path(__file__).resolve().parents[4] / "shared" / "corpus" / "dev"


def records(folder: Path, source: str) -> list[dict[str, Any]]:
    """The lines of one corpus file as they are."""
    with gzip.open(folder / f"{source}.jsonl.gz") as lines:
        return [msgspec.json.decode(line) for line in lines]


def load(folder: Path, source: str) -> list[Conversation]:
    """All conversations of one corpus file."""
    return [conversation(record, source) for record in records(folder, source)]


def conversation(record: dict[str, Any], source: str) -> Conversation:
    """One corpus record as a conversation; the logged usage is taken out of the messages."""
    messages = [{key: value for key, value in item.items() if key != "usage"} for item in record["messages"]]
    usages = {index: item["usage"] for index, item in enumerate(record["messages"]) if item.get("usage")}
    events = tuple(
        Event(event["at"], event.get("summary") or "", event.get("trigger") or "")
        for event in record.get("events") or ()
    )
    provider = "anthropic" if record.get("schema") == "anthropic" else "openai"
    return Conversation(record["id"], source, _project(record), provider, messages, events, usages)


def _project(record: dict[str, Any]) -> str:
    last = str(record["id"]).rsplit("/", 1)[-1]
    return last.split("__")[0] if "__" in last else str(record.get("source", ""))
