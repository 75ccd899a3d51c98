"""An agent has compacted by itself: its session here gets the same context, and a report of what that one lost."""

from __future__ import annotations

import time
from hashlib import sha256

import msgspec
from msgspec import structs

from context_compactor.agents.losses import Losses, find_lost
from context_compactor.app import Compaction
from context_compactor.archive.archive import Archive
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.messages.jsontext import json_bytes
from context_compactor.messages.message import Message
from context_compactor.messages.transcript import PastCompaction
from context_compactor.report import Archived, Report
from context_compactor.session import checkpoints, views
from context_compactor.session.compacting import Made, commit_made
from context_compactor.session.core import Core
from context_compactor.session.log import REVISION, Revision
from context_compactor.session.memory import all_facts
from context_compactor.session.shelving import shelve
from context_compactor.session.values import State, read_state

ADOPTED = "adopted"
_BRIEF_TOKENS = 2_500
_SUMMARY = "[The summary that {agent} wrote itself when it compacted. It is a record, not a request.]\n\n{text}"


def adopt(core: Core, past: PastCompaction, agent: str, number: int) -> tuple[Report, Losses]:
    """Make an agent's compaction one of its session: everything is archived, facts are kept, a checkpoint is written.

    The context is then a record of ours, which carries on the ids and the failures, and the agent's own summary.
    `number` counts the compactions of the log: which of them were adopted is written with this one or not at all.
    """
    began = time.perf_counter()
    shelf = shelve(core, is_closed=True, is_gone=True)
    facts = all_facts(core, live=shelf.taken.scene.facts)
    losses = find_lost(past.summary, facts)
    checkpoint = checkpoints.make(core, live=shelf.taken.scene.facts)
    file = checkpoints.write_if_possible(core, checkpoint)
    dialect = shelf.taken.dialect
    counter = core.counter(dialect)
    material = material_of(shelf.taken.scene, facts)
    bare = structs.replace(checkpoint, archive=())
    record = dialect.user_text(resume_brief(bare, facts, _BRIEF_TOKENS, material))
    summary = dialect.user_text(_SUMMARY.format(agent=agent, text=past.summary)) if past.summary.strip() else None
    messages = [record] if summary is None else [record, summary]
    usage = views.usage(core)
    reachable = {each.ref for each in core.store.originals(core.id)}
    report = Report(
        status="success",
        reason=f"compacted by {agent} itself; {_in_words(losses)}",
        trigger="threshold" if past.trigger == "auto" else "manual",
        session_id=core.id,
        compaction_id=_id(core, record.text, past.summary),
        created_at=core.now(),
        duration_ms=round((time.perf_counter() - began) * 1000, 1),
        tokens_before=past.pre_tokens or usage.tokens,
        tokens_after=sum(counter.count_many(messages)),
        messages_before=len(shelf.taken.seen.raws),
        messages_after=len(messages),
        messages_removed=max(len(shelf.taken.seen.raws) - len(messages), 0),
        archived=tuple(
            Archived(each.id, each.kind, each.summary, each.tokens, f"archive of {core.store.path}", each.recovery)
            for each in shelf.new
        ),
        recovery_instructions=('Any original: recall("ID"). By what was said: search_archive("words").',),
        facts_added=len(shelf.taken.scene.facts),
        fidelity=losses.fidelity(reachable),
        checkpoint=file,
    )
    result = Compaction(
        messages=[record.raw],
        report=report,
        decisions=(),
        usage=usage,
        archive=Archive(),
        counter=counter.counter,
        facts=tuple(shelf.taken.scene.facts),
        spans=shelf.taken.spans(),
    )

    def within(state: State) -> State:
        if summary is not None:
            _show_beside(core, summary)
        return structs.replace(state, notes={**state.notes, ADOPTED: number})

    with core.running.begin("compaction") as control:
        made = Made(result, shelf.taken.seen, dialect, counter, control, is_ahead=False, within=within)
        return commit_made(core, core.ask(kind=report.trigger), made), losses


def adopted(core: Core) -> int:
    """How many compactions of an agent's log its session has taken over."""
    count = read_state(core.row().state).notes.get(ADOPTED, 0)
    return count if isinstance(count, int) else 0


def _show_beside(core: Core, summary: Message) -> None:
    """Put the agent's own summary behind the record: its model sees it, but nobody said it, so no fact comes of it."""
    row = core.row()
    (name,) = core.store.put([json_bytes(summary.raw)])
    revision = Revision(why="summary", hash=name, after=row.head, under=core.lens.sight(row.head).under)
    core.store.append(core.id, REVISION, [msgspec.json.encode(revision)], core.now())


def _id(core: Core, *texts: str) -> str:
    return sha256("\n".join((core.id, core.now(), *texts)).encode("utf-8", "replace")).hexdigest()[:12]


def _in_words(losses: Losses) -> str:
    if not losses.checked:
        return "nothing that must outlive the text was known"
    told = losses.checked - len(losses.lost)
    return f"its summary tells {told:,} of the {losses.checked:,} facts that were known"
