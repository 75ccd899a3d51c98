"""Session logs (rollouts) of Codex: Responses items between records about them."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from context_compactor.dialects.messages import ReportedUsage, read_usage
from context_compactor.dialects.transcripts.transcript import (
    PastCompaction,
    RawMessage,
    Transcript,
    count_note,
    utc_time,
)

_RECORDS = ("session_meta", "response_item", "turn_context", "event_msg", "compacted")
_NOT_MESSAGES = ("ghost_snapshot", "compaction", "context_compaction", "compaction_trigger", "other")


def is_line(value: object) -> bool:
    """Whether a JSON value is a line of a rollout."""
    return isinstance(value, dict) and value.get("type") in _RECORDS and isinstance(value.get("payload"), dict)


def is_old_header(value: object) -> bool:
    """Whether a JSON value opens a rollout of the first versions, whose items stand bare behind it."""
    return isinstance(value, dict) and "instructions" in value and "id" in value and not {"role", "type"} & set(value)


def read(lines: list[dict[str, Any]]) -> Transcript:
    """The items as they stand, with encrypted reasoning; what a rollback took back is left out."""
    rollout = _CodexReader()
    for line in lines:
        rollout.add(line)
    meta = rollout.meta
    return Transcript(
        messages=rollout.items,
        dialect="openai-responses",
        source="codex",
        session_id=str(meta.get("id") or meta.get("session_id") or ""),
        model=rollout.model,
        window=rollout.window,
        system=_instructions(meta),
        cwd=str(meta.get("cwd") or ""),
        usages=rollout.usages,
        times=rollout.times,
        compactions=rollout.compactions,
        notes=count_note(rollout.taken_back, "item", "items", "taken back by a rollback left out"),
    )


class _CodexReader:
    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.items: list[RawMessage] = []
        self.usages: dict[int, ReportedUsage] = {}
        self.times: dict[int, str] = {}
        self.compactions: list[PastCompaction] = []
        self.model = ""
        self.window: int | None = None
        self.taken_back = 0
        self._turns: list[int] = []
        self._turn_start: int | None = None
        """How many items there were when the present turn began."""
        self._last_total: object = None
        self._unbilled: int | None = None

    def add(self, line: dict[str, Any]) -> None:
        kind, payload = _unwrap(line)
        match kind:
            case "session_meta":
                # A forked session repeats the header of the one it came from.
                self.meta = self.meta or payload
            case "turn_context":
                self.model = str(payload.get("model") or self.model)
            case "compacted":
                self._compacted(payload)
            case "event_msg":
                self._event(payload)
            case "response_item" if payload.get("type") not in _NOT_MESSAGES:
                self._item(payload, utc_time(line.get("timestamp")))

    def _item(self, item: RawMessage, at: str) -> None:
        if item.get("role") == "user":
            self._settle_trigger("auto")
        if at:
            self.times[len(self.items)] = at
        if _is_by_model(item):
            self._unbilled = len(self.items)
        self.items.append(item)

    def _event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "token_count":
                self._token_count(event.get("info"))
            case "task_started":
                self._turn_start = len(self.items)
                self._set_window(event)
            case "task_complete":
                self._settle_trigger("manual")
            case "user_message":
                self._turns.append(self._last_user())
            case "item_completed" if _is_user_item(event.get("item")):
                self._turns.append(self._last_user())
            case "thread_rolled_back":
                self._roll_back(event.get("num_turns"))

    def _token_count(self, count: object) -> None:
        """A count belongs to the items the model wrote since the last one; it is repeated when nothing new came."""
        if not isinstance(count, dict):
            return
        self._set_window(count)
        usage = read_usage(count.get("last_token_usage"))
        total = count.get("total_token_usage")
        is_new = total is None or total != self._last_total
        self._last_total = total
        if usage and is_new and self._unbilled is not None:
            self.usages[self._unbilled] = usage
            self._unbilled = None

    def _set_window(self, record: dict[str, Any]) -> None:
        window = record.get("model_context_window")
        if isinstance(window, int) and window > 0:
            self.window = window

    def _compacted(self, record: dict[str, Any]) -> None:
        before = self.compactions[-1].at if self.compactions else 0
        summary = record.get("message")
        text = summary if isinstance(summary, str) else ""
        self._drop_summary(text)
        billed = [usage for at, usage in self.usages.items() if at >= before]
        tokens = billed[-1].total if billed else None
        trigger = "auto" if self._turn_start is not None and self._turn_start < len(self.items) else ""
        self.compactions.append(PastCompaction(len(self.items), trigger, tokens, text))

    def _drop_summary(self, summary: str) -> None:
        """Newer versions log the answer that became the summary as an answer to the user."""
        last = self.items[-1] if self.items else {}
        said = _said_text(last) if last.get("role") == "assistant" else ""
        if said and summary.endswith(said):
            self._cut(len(self.items) - 1)

    def _settle_trigger(self, trigger: str) -> None:
        """What came of a turn that began with a compaction: one that the user asked for is the whole turn."""
        if self.compactions and self._turn_start == self.compactions[-1].at and not self.compactions[-1].trigger:
            self.compactions[-1] = structs.replace(self.compactions[-1], trigger=trigger)

    def _last_user(self) -> int:
        places = range(len(self.items) - 1, -1, -1)
        return next((at for at in places if self.items[at].get("role") == "user"), len(self.items))

    def _roll_back(self, turns: object) -> None:
        if not isinstance(turns, int) or turns < 1 or not self._turns:
            return
        cut = self._turns[-turns:][0]
        del self._turns[-turns:]
        self.taken_back += len(self.items) - cut
        self._cut(cut)
        self.compactions = [past for past in self.compactions if past.at <= cut]

    def _cut(self, cut: int) -> None:
        """Leave out the items from here on."""
        del self.items[cut:]
        self.usages = {at: usage for at, usage in self.usages.items() if at < cut}
        self.times = {at: time for at, time in self.times.items() if at < cut}
        self._unbilled = None


def _unwrap(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    payload = line.get("payload")
    if isinstance(payload, dict):
        return str(line.get("type")), payload
    if "record_type" in line:
        return "state", line
    return ("response_item" if "type" in line or "role" in line else "session_meta"), line


def _is_user_item(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "UserMessage"


def _said_text(item: RawMessage) -> str:
    content = item.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks)


def _is_by_model(item: RawMessage) -> bool:
    kind = str(item.get("type") or "message")
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith("_output")


def _instructions(meta: dict[str, Any]) -> str | None:
    base = meta.get("base_instructions")
    text = base.get("text") if isinstance(base, dict) else meta.get("instructions")
    return text if isinstance(text, str) and text else None
