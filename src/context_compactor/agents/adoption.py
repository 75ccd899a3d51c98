"""Compactions in an agent's log become those of its session: its own, with a report of what the summary lost, and ours
that it has taken."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct, structs

from context_compactor.archive.originals import Archive
from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import record_span
from context_compactor.dialects.transcripts.transcript import PastCompaction
from context_compactor.engine.report import Archived, Fidelity, Missing, Report
from context_compactor.engine.result import Compaction
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import RESOLVED
from context_compactor.facts.ledgers import fact_line
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.json_values import json_bytes
from context_compactor.sessions import checkpoints, views
from context_compactor.sessions.archive import archive_history
from context_compactor.sessions.compaction import PendingCompaction, commit_compaction
from context_compactor.sessions.core import Core, ParsedSession
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.log import REVISION, Revision
from context_compactor.sessions.state import SessionState, read_session_state
from context_compactor.summarize.evidence import LineIndex, find_losses, paths_in

# What Claude thinks before it writes a summary is thrown away with it.
_ANALYSIS = re.compile(r"<analysis>.*?</analysis>", re.DOTALL)
_CHECKED = ("failure", "decision", "constraint", "todo", "blocker", "file_state", "side_effect")


class SummaryLosses(Struct, frozen=True):
    """How many facts were looked for in a summary, and those it does not mention.

    A summary that is empty or encrypted mentions nothing, and is not `readable`: nobody can say what it lost.
    """

    checked: int
    lost: tuple[Fact, ...]
    readable: bool = True

    def by_kind(self) -> dict[str, int]:
        """How many were lost of each kind."""
        kinds = dict.fromkeys(fact.kind for fact in self.lost)
        return {kind: sum(fact.kind == kind for fact in self.lost) for kind in kinds}

    def lines(self) -> list[str]:
        """Each lost fact in one line."""
        return [fact_line(fact) for fact in self.lost]

    def fidelity(self, reachable: set[str]) -> Fidelity:
        """The same as a report says it: what is archived can be reached though it is not mentioned."""
        missing = [Missing(fact.kind, fact.content[:200], fact.ref) for fact in self.lost if fact.ref not in reachable]
        return Fidelity(self.checked - len(self.lost), len(self.lost) - len(missing), tuple(missing))


def find_summary_losses(summary: str, facts: Iterable[Fact]) -> SummaryLosses:
    """Which failures, decisions, rules, unfinished points and paths a summary does not mention, in any words."""
    summary = _ANALYSIS.sub("", summary).strip()
    checked = [fact for fact in facts if fact.kind in _CHECKED and not fact.summarized_by and not _is_settled(fact)]
    if not summary:
        return SummaryLosses(len(checked), tuple(checked), readable=False)
    found = find_losses(checked, summary)
    lost = {id(each.fact) for each in found if each.code != "lost_path" or not _names_file(summary, each.fact)}
    lines = LineIndex(summary.split("\n"))
    lost |= {id(fact) for fact in checked if fact.kind == "constraint" and not lines.says(fact.content)}
    return SummaryLosses(len(checked), tuple(fact for fact in checked if id(fact) in lost))


def _is_settled(fact: Fact) -> bool:
    """A file that was only read can be read again, and what failed and worked later can be done."""
    return (fact.kind, fact.status) in (("file_state", "read"), ("failure", RESOLVED))


def _names_file(summary: str, fact: Fact) -> bool:
    """A summary may name a file without its folders."""
    paths = paths_in(fact.content)
    return bool(paths) and all(path.rstrip("/").rpartition("/")[2] in summary for path in paths)


ADOPTED = "adopted"
_OFFER, _TAKEN = "offer", "taken"
_BRIEF_TOKENS = 2_500
_SUMMARY = "[The summary that {agent} wrote itself when it compacted. It is a record, not a request.]\n\n{text}"


def adopt_compaction(core: Core, past: PastCompaction, agent: str, number: int) -> tuple[Report, SummaryLosses]:
    """Make an agent's compaction one of its session: everything is archived, facts are kept, a checkpoint is written.

    The context is then a record of ours, which carries on the ids and the failures, and the agent's own summary; where
    that is a record of ours, it stands alone.
    `number` counts the compactions of the log: which of them were adopted is written with this one or not at all.
    """
    began = time.perf_counter()
    archived = archive_history(core, is_closed=True, is_gone=True)
    facts = all_facts(core, live=archived.parsed.content.facts)
    own = _record_in(past.summary)
    losses = SummaryLosses(0, ()) if own else find_summary_losses(past.summary, facts)
    checkpoint = checkpoints.current_checkpoint(core, live=archived.parsed.content.facts)
    file = checkpoints.write_if_possible(core, checkpoint)
    dialect = archived.parsed.dialect
    counter = core.counter(dialect)
    material = material_of(archived.parsed.content, facts)
    # What holds only now, or tells how to look something up, would be carried from record to record.
    bare = structs.replace(checkpoint, archive=(), git=None)
    brief = "" if own else resume_brief(bare, facts, _BRIEF_TOKENS, material, names_commands=False)
    record = dialect.user_text(own or brief)
    has_summary = not own and bool(past.summary.strip())
    summary = dialect.user_text(_SUMMARY.format(agent=agent, text=past.summary)) if has_summary else None
    asked = _open_question(archived.parsed) if own else []
    messages = [record, *asked] if summary is None else [record, summary]
    usage = views.usage(core)
    reachable = {each.ref for each in core.store.originals(core.id)}
    report = Report(
        status="success",
        reason="our record was taken" if own else f"compacted by {agent} itself; {_losses_sentence(losses)}",
        trigger="manual" if past.trigger == "manual" else "threshold",
        session_id=core.id,
        compaction_id=_id(core, record.text, past.summary),
        created_at=core.now(),
        duration_ms=round((time.perf_counter() - began) * 1000, 1),
        tokens_before=past.pre_tokens or usage.tokens,
        tokens_after=sum(counter.count_many(messages)),
        messages_before=len(archived.parsed.context.raws),
        messages_after=len(messages),
        messages_removed=max(len(archived.parsed.context.raws) - len(messages), 0),
        archived=tuple(
            Archived(each.id, each.kind, each.summary, each.tokens, f"archive of {core.store.path}", each.recovery)
            for each in archived.new
        ),
        recovery_instructions=('Any original: recall("ID"). By what was said: search_archive("words").',),
        facts_added=len(archived.parsed.content.facts),
        fidelity=losses.fidelity(reachable),
        checkpoint=file,
    )
    result = Compaction(
        messages=[message.raw for message in (record, *asked)],
        report=report,
        decisions=(),
        usage=usage,
        archive=Archive(),
        counter=counter.counter,
        facts=tuple(archived.parsed.content.facts),
        spans=archived.parsed.spans(),
    )

    def within(state: SessionState) -> SessionState:
        if summary is not None:
            _append_summary(core, summary)
        return structs.replace(state, notes={**state.notes, ADOPTED: number})

    with core.running.begin("compaction") as control:
        made = PendingCompaction(
            result, archived.parsed.context, dialect, counter, control, uses_presummary=False, within=within
        )
        return commit_compaction(core, core.ask(kind=report.trigger), made), losses


def _record_in(summary: str) -> str:
    """The record of ours that stands in the place of a summary; empty when there is none."""
    span = record_span(summary)
    return summary[slice(*span)] if span else ""


def _open_question(parsed: ParsedSession) -> list[Message]:
    """What the user said last and nobody has answered: an agent keeps it behind a record."""
    last = parsed.dialect.parse(parsed.context.raws[-1:])
    return [message for message in last if message.role == "user" and not message.results and message.text.strip()]


def adopted_compactions(core: Core) -> int:
    """How many compactions of an agent's log its session has taken over."""
    count = _notes(core).get(ADOPTED, 0)
    return count if isinstance(count, int) else 0


def forget_compactions(core: Core, left: int) -> None:
    """Take back those beyond so many of an agent's log: its user went back to where they had not happened yet."""
    surplus = adopted_compactions(core) - left
    if surplus > 0:
        withdraw_offer(core)
        for _ in range(surplus):
            views.undo(core)
        _close_offer(core, {ADOPTED: left, _TAKEN: 0})


class Offer(Struct, frozen=True):
    """What an agent was offered in the place of its own compaction, and its log does not show yet.

    The session has it already. `record` is the text, or empty where a compaction was taken back.
    """

    record: str
    messages: int
    """How many messages the session had then."""
    before: str = ""
    """The older record that the messages begin with which were put back."""


def note_offer(core: Core, record: str, before: str = "") -> None:
    """Remember that an agent was offered this record; an empty one stands for the context before a compaction, which
    begins with an older record itself where there was one `before`."""
    offer = Offer(record, core.row().messages, before)
    core.change(lambda state: structs.replace(state, notes={**state.notes, _OFFER: msgspec.to_builtins(offer)}))


def pending_offer(core: Core) -> Offer | None:
    """The offer that is open."""
    noted = _notes(core).get(_OFFER)
    return msgspec.convert(noted, Offer) if isinstance(noted, dict) else None


def take_offer(core: Core, past: PastCompaction, number: int) -> bool:
    """Whether a compaction of the log is what the agent was offered: then its session is up to date with it.

    A record of ours is also known without an offer, as in a log that is imported: then it is adopted as any other.
    """
    offer = pending_offer(core)
    found = _record_in(past.summary)
    if offer is None or found != (offer.record or offer.before) or (not found and past.summary.strip()):
        withdraw_offer(core)
        return False
    _close_offer(core, {ADOPTED: number, _TAKEN: number})
    return True


def withdraw_offer(core: Core) -> None:
    """The agent has gone on without what it was offered: its session goes back to what the agent has."""
    offer = pending_offer(core)
    if offer is not None:
        undo = views.undo if offer.record else views.redo
        undo(core)
        _close_offer(core, {})


def goes_on_with_ours(core: Core) -> bool:
    """Whether what an agent goes on with after its last compaction is ours: a record, or what was there before one."""
    return pending_offer(core) is not None or 0 < adopted_compactions(core) == _notes(core).get(_TAKEN)


def _close_offer(core: Core, more: dict[str, int]) -> None:
    def closed(state: SessionState) -> SessionState:
        kept = {name: value for name, value in state.notes.items() if name != _OFFER}
        return structs.replace(state, notes={**kept, **more})

    core.change(closed)


def _notes(core: Core) -> dict[str, Any]:
    return read_session_state(core.row().state).notes


def _append_summary(core: Core, summary: Message) -> None:
    """Put the agent's own summary behind the record: its model sees it, but nobody said it, so no fact comes of it."""
    row = core.row()
    (name,) = core.store.put([json_bytes(summary.raw)])
    revision = Revision(why="summary", hash=name, after=row.head, under=core.context_reader.log_state(row.head).under)
    core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())


def _id(core: Core, *texts: str) -> str:
    return sha256("\n".join((core.id, core.now(), *texts)).encode("utf-8", "replace")).hexdigest()[:12]


def _losses_sentence(losses: SummaryLosses) -> str:
    if not losses.checked:
        return "nothing that must outlive the text was known"
    if not losses.readable:
        return f"its summary cannot be read, so nobody can say which of the {losses.checked:,} known facts it has"
    kept = losses.checked - len(losses.lost)
    return f"its summary has {kept:,} of the {losses.checked:,} facts that were known"
