"""What an orchestrator takes out of a sub-agent's answer; the rest is an original for the archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from context_compactor.apply.digests.text import clip
from context_compactor.archive.archive import Original
from context_compactor.classify.arguments import paths_in
from context_compactor.classify.kinds import Kind
from context_compactor.classify.telling import telling_lines
from context_compactor.handoff.messages import Decision, HandoffResponse
from context_compactor.handoff.reading import Received
from context_compactor.handoff.rules import files_in
from context_compactor.handoff.state import LONGEST_LINE
from context_compactor.handoff.summary import count_tokens
from context_compactor.messages.copying import copy_containers
from context_compactor.messages.jsontext import json_text

_CHANGED = ("files_changed", "files_modified", "files_created", "files_written", "changed_files", "modified_files")
_ERRORS = ("errors", "error", "failures")
_ASKS = ("questions", "question", "clarifications", "blockers", "needs")
_WORDS = ("message", "error", "summary", "description", "question", "text")
_SETTLED = frozenset(("resolved", "fixed", "done", "closed"))
_MOST_OF_INTEREST = 20


class Extracted(Struct, frozen=True):
    """What was taken, and `original`, which is to be archived before the answer is let go.

    `original` is None when this answer had been taken before. `tokens_raw` is the size of the answer and
    `tokens_kept` what the state grew by.
    """

    decision: Decision
    context_summary: str
    files_of_interest: tuple[str, ...]
    files_changed: tuple[str, ...]
    errors: tuple[str, ...]
    asked: str
    original: Original | None
    tokens_raw: int
    tokens_kept: int = 0

    @property
    def reference(self) -> str:
        """The line that stands for the answer in the orchestrator's context; empty when it was taken before."""
        kept = self.original
        return f"[archived {kept.id}: {kept.summary}, {kept.tokens:,} tokens. {kept.recovery}]" if kept else ""

    @property
    def saving(self) -> float:
        """The share of the answer that the orchestrator does not carry."""
        return 1 - self.tokens_kept / self.tokens_raw if self.tokens_raw else 0.0


def extract(received: Received[HandoffResponse], ref: str) -> Extracted:
    """Decision, summary, files and errors of an answer; all of it, as it came, goes under the reference."""
    response = received.message
    raw = received.raw if isinstance(received.raw, str) else json_text(received.raw)
    tokens = count_tokens(raw)
    value = copy_containers(received.raw)
    told = f"{response.phase} {response.task_id}: {response.status}, {response.decision}"
    return Extracted(
        decision=response.decision,
        context_summary=response.context_summary,
        files_of_interest=tuple(files_in(response.context_summary)[:_MOST_OF_INTEREST]),
        files_changed=tuple(_changed(response.findings)),
        errors=tuple(_errors(response.findings)),
        asked="" if response.decision == "PROCEED" else _asked(response),
        original=Original(ref, Kind.SUBAGENT.value, clip(told), tokens, value, f'recall("{ref}")'),
        tokens_raw=tokens,
    )


def _changed(findings: Mapping[str, Any]) -> Iterator[str]:
    """The files that were changed, without remarks such as "(created)"."""
    for value in (findings[key] for key in _CHANGED if key in findings):
        for path in paths_in({"files": value if isinstance(value, list) else [value]}):
            bare = path.partition(" (")[0].strip().strip("`")
            if bare and len(bare) <= LONGEST_LINE and "\n" not in bare:
                yield bare


def _errors(findings: Mapping[str, Any]) -> Iterator[str]:
    """One line for each error that is not settled."""
    for value in (findings[key] for key in _ERRORS if key in findings):
        for each in value if isinstance(value, list) else [value]:
            if not _is_settled(each) and (text := _words_of(each)):
                yield clip(telling_lines(text) if "\n" in text else text, LONGEST_LINE)


def _is_settled(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    status = value.get("status")
    return value.get("resolved") is True or (isinstance(status, str) and status.lower() in _SETTLED)


def _asked(response: HandoffResponse) -> str:
    """What has to be known or decided before it can go on, in one line."""
    for value in (response.findings[key] for key in _ASKS if key in response.findings):
        texts = map(_words_of, value if isinstance(value, list) else [value])
        if found := "; ".join(filter(None, texts)):
            return clip(found, LONGEST_LINE)
    return clip(response.context_summary, LONGEST_LINE)


def _words_of(value: object) -> str:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _WORDS if isinstance(value.get(key), str)), None) or json_text(value)
    return value.strip() if isinstance(value, str) else ""
