"""Originals under the ids that stand for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.dialects.client_text import is_client_text, without_client_blocks
from context_compactor.dialects.messages import Message, ToolCall
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.errors import UnknownReference
from context_compactor.facts.calls import target_of
from context_compactor.facts.kinds import Voice, reference_of
from context_compactor.json_values import copy_containers

_TEXT_BLOCKS = ("text", "input_text", "output_text")
_FILE_BLOCKS = ("image", "input_image", "image_url", "document", "file", "input_file", "audio", "input_audio")


class Original(Struct, frozen=True):
    """One archived thing: `value` is the provider's own, `text` how it is shown, `recovery` how to get it back.

    `hint` says how it could be fetched again (`re-read file`), and `target` what: a path, a command or a query.
    """

    id: str
    kind: str
    summary: str
    tokens: int
    value: Any
    recovery: str
    hint: str = ""
    target: str = ""

    @property
    def text(self) -> str:
        """The original as text: a plain result as it was, anything else as JSON."""
        return original_text(self.value)

    @property
    def readable(self) -> str:
        """The original for a reader: the texts of one in pieces one under another, all else as `text` has it."""
        pieces = [_block_text(block) for block in self.value] if isinstance(self.value, list) and self.value else [None]
        whole = [piece for piece in pieces if piece is not None]
        return "\n".join(whole) if len(whole) == len(pieces) else self.text


def original_text(value: Any) -> str:
    """Text as it is, one text block as its text, everything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        block = value[0]
        if set(block) == {"type", "text"} and isinstance(block["text"], str):
            return str(block["text"])
    return _json_text(value)


def _block_text(block: Any) -> str | None:
    """The text of a block, or what kind of file it holds; None for anything else."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return None
    text, kind = block.get("text"), block.get("type")
    if kind in _TEXT_BLOCKS and isinstance(text, str):
        return text
    return f"[{kind}]" if kind in _FILE_BLOCKS else None


def _json_text(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, default=str)


class Archive:
    """Originals by id, in memory."""

    def __init__(self, originals: Iterable[Original] = ()) -> None:
        self._originals = {original.id: original for original in originals}

    def __len__(self) -> int:
        return len(self._originals)

    def __contains__(self, ref: str) -> bool:
        return ref in self._originals

    def __iter__(self) -> Any:
        return iter(self._originals.values())

    def find(self, ref: str) -> Original:
        """The original behind an id."""
        try:
            return self._originals[ref]
        except KeyError:
            raise UnknownReference(self._unknown(ref)) from None

    def _unknown(self, ref: str) -> str:
        if not self._originals:
            return (
                f"nothing was archived by this compaction, so there is no {ref!r} here. "
                "What an earlier compaction archived is in that compaction's result"
            )
        first, *_, last = (*self._originals, *self._originals)
        return (
            f"no original has the id {ref!r}; {len(self)} are archived here, from {first!r} to {last!r}. "
            "What an earlier compaction archived is in that compaction's result"
        )


_SUMMARY_LENGTH = 80


def ids_of(turn: Turn) -> list[str]:
    """Every id under which a turn or one of its results is archived."""
    return [reference_id("turn", turn.number), *(reference_of(exchange) for exchange in turn.exchanges)]


def turn_original(turn: Turn, tokens: int) -> Original:
    """The original of one turn."""
    value = [copy_containers(message.raw) for message in turn.messages]
    ref = reference_id("turn", turn.number)
    return Original(ref, "turn", turn_summary(turn.messages), tokens, value, f'recall("{ref}")')


def turn_summary(messages: Sequence[Message]) -> str:
    """Who speaks in a turn, and its first words; the calls of a turn without words, in brackets."""
    text = messages[0].text
    words = " ".join((without_client_blocks(text).strip() or text).split())
    if not words:
        words = f"[{'; '.join(_call_line(call) for message in messages for call in message.calls)}]"
    return f"{messages[0].role}: {words[:_SUMMARY_LENGTH]}"


def _call_line(call: ToolCall) -> str:
    return " ".join(f"{call.name} {target_of(call)}".split())[:_SUMMARY_LENGTH]


def voice_in_summary(summary: str) -> str:
    """Whose words a turn's summary says it holds: the user's, the agent's, or nobody's."""
    role, _, words = summary.partition(": ")
    if role == "user":
        return "" if is_client_text(words) or words.startswith("<") else Voice.USER.value
    return Voice.AGENT.value if role == "assistant" and words and not words.startswith("[") else ""
