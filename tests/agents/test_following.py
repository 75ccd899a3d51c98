"""A log is followed while it is written: whenever it is read, and however often, what comes of it is the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.agents.adoption import adopted_compactions
from context_compactor.agents.sync import open_agent_session, sync_transcript
from context_compactor.dialects.transcripts.reader import parse_transcript
from context_compactor.errors import BadTranscript, OtherConversation
from context_compactor.sessions.core import Core
from context_compactor.sessions.views import history
from context_compactor.settings import Settings
from context_compactor.store.connect import connect

REAL = Path(__file__).parents[1] / "hooks" / "sessions" / "claude_code_2.jsonl.gz"


class Kept:
    """A session in memory that follows a log."""

    def __init__(self) -> None:
        self.store = connect("memory:")
        self.core: Core | None = None

    def read(self, lines: list[bytes], *, is_closed: bool = False) -> None:
        """Follow the log as far as it is written."""
        try:
            transcript = parse_transcript(b"".join(lines))
        except BadTranscript:  # nobody has spoken yet
            return
        self.core = open_agent_session("s", transcript, Settings(), store=self.store)
        sync_transcript(self.core, transcript, is_closed=is_closed)

    def told(self) -> tuple[list[Any], dict[str, str], int]:
        """What there is: the history, the originals by their ids, and how many compactions were taken over."""
        assert self.core is not None
        archived = {each.ref: each.content for each in self.store.originals("s")}
        return history(self.core), archived, adopted_compactions(self.core)


def end_of(lines: list[bytes], cuts: list[int]) -> tuple[Kept, Kept]:
    """A log that was read at these lines, and one that was read once, at its end."""
    often, once = Kept(), Kept()
    for cut in sorted(cuts):
        often.read(lines[:cut])
    for kept in (often, once):
        kept.read(lines, is_closed=True)
    return often, once


def line(number: int, parent: int | None, kind: str, message: dict[str, Any], **more: Any) -> bytes:
    uuid, before = f"u{number:04d}", None if parent is None else f"u{parent:04d}"
    known = {"type": kind, "uuid": uuid, "parentUuid": before, "sessionId": "s", "message": message}
    return json.dumps(known | more).encode() + b"\n"


def said(kinds: list[str]) -> list[bytes]:
    """A log as agents write it: replies in pieces, results between them, words typed while it works.

    A new reply and a compaction come when every call has its result.
    """
    lines: list[bytes] = []
    reply, asked = 0, []
    for number, kind in enumerate(_ordered(["user", *kinds])):
        parent = number - 1 if number else None
        match kind:
            case "user":
                message = {"role": "user", "content": f"Please do {number}."}
                lines.append(line(number, parent, "user", message, permissionMode="default"))
            case "text" | "call" | "more":
                reply = reply if kind == "more" and reply else number
                block: dict[str, Any] = {"type": "text", "text": f"I do {number}."}
                if kind != "text":
                    asked.append(f"call_{number}")
                    block = {"type": "tool_use", "id": asked[-1], "name": "Bash", "input": {"command": f"ls {number}"}}
                message = {"role": "assistant", "id": f"m{reply}", "model": "claude-sonnet-4-5", "content": [block]}
                lines.append(line(number, parent, "assistant", message))
            case "result":
                call = asked.pop(0) if asked else "call_0"
                block = {"type": "tool_result", "tool_use_id": call, "content": f"output of {call}"}
                lines.append(line(number, parent, "user", {"role": "user", "content": [block]}))
            case "compacted":
                facts = {"trigger": "auto", "preTokens": 1000}
                more = {"subtype": "compact_boundary", "compactMetadata": facts}
                lines.append(line(number, parent, "system", {}, **more))
                reply = 0
    return lines


def _ordered(kinds: list[str]) -> Iterator[str]:
    waiting = 0
    for kind in kinds:
        if kind in ("text", "call", "compacted"):
            yield from ["result"] * waiting
            waiting = 0
        if kind == "result" and not waiting:
            continue
        waiting += (kind in ("call", "more")) - (kind == "result")
        yield kind


KINDS = st.sampled_from(["user", "text", "call", "more", "result", "result", "compacted"])


@settings(deadline=None)
@given(kinds=st.lists(KINDS, min_size=1, max_size=14), data=st.data())
def test_whenever_a_log_is_read_the_same_comes_of_it(kinds: list[str], data: st.DataObject):
    lines = said(kinds)
    cuts = data.draw(st.lists(st.integers(1, len(lines)), max_size=6))
    often, once = end_of(lines, cuts)
    assert often.told()[0] == once.told()[0]
    assert often.told()[1].keys() >= once.told()[1].keys()
    assert list(often.store.verify("s")) == []


def test_a_real_log_read_at_many_moments_is_one_session_with_the_same_originals():
    lines = gzip.decompress(REAL.read_bytes()).splitlines(keepends=True)
    often, once = end_of(lines, [*range(40, len(lines), 151)])
    (history_often, refs_often, adopted_often), (history_once, refs_once, adopted_once) = often.told(), once.told()
    assert history_often == history_once
    assert adopted_often == adopted_once == 1
    assert refs_often == refs_once


def test_turns_are_numbered_on_though_nothing_was_said_between_two_compactions():
    lines = said(["call", "result", "text", "compacted", "compacted", "user", "call", "result", "user", "text"])
    kept = Kept()
    kept.read(lines, is_closed=True)
    _, originals, count = kept.told()
    assert count == 2
    turns = sorted(ref for ref in originals if ref.startswith("turn_"))
    assert len(turns) == 6
    assert turns[-1] == "turn_006"


def test_a_compaction_is_taken_over_with_everything_that_belongs_to_it_or_not_at_all(monkeypatch: pytest.MonkeyPatch):
    lines = said(["call", "result", "text", "compacted", "user", "text"])
    kept = Kept()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("context_compactor.sessions.compaction.export_new", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.read(lines)
    kept.read(lines)
    assert kept.core is not None
    assert kept.told()[2] == 1
    assert len(kept.core.context_reader.log_state().compactions) == 1


def test_another_way_is_noticed_and_an_older_copy_is_not_one():
    lines = said(["call", "result", "text", "user", "text"])
    kept = Kept()
    kept.read(lines)
    before = kept.told()
    kept.read(lines[:-2])
    assert kept.told() == before
    other = [*lines[:-2], line(90, 3, "user", {"role": "user", "content": "Something else."})]
    with pytest.raises(OtherConversation) as problem:
        kept.read(other)
    assert problem.value.at == 4
    assert kept.told() == before
