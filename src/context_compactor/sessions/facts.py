"""Facts of a session: stored beside the log, merged when they are asked for, promoted to what outlives the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import get_args

import msgspec
from msgspec import Struct, structs

from context_compactor.dialects.record import Record, open_record
from context_compactor.engine.classify import ParsedContext
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.facts.fact import Fact, FactKind, expand_kind
from context_compactor.facts.failures import RESOLVED, resolve_facts
from context_compactor.facts.lesson_folders import load_lessons, owner_folder
from context_compactor.facts.lessons import Lesson
from context_compactor.facts.promotion import error_key
from context_compactor.facts.promotion import promote as promote_facts
from context_compactor.facts.side_effects import end_running
from context_compactor.json_values import json_bytes, read_json
from context_compactor.sessions.core import Core, conversation_raws
from context_compactor.sessions.log import SessionContext
from context_compactor.sessions.state import SessionState, read_profile, read_session_state
from context_compactor.store.rows import FactRow
from context_compactor.tokens.counting import replace_surrogates

KINDS: tuple[str, ...] = get_args(FactKind)
_LEARNED_TOKENS = 600
_UNPREPARED_TURNS = 2
# These say how things are now: a newer list takes the place of an older one.
_REPLACED_BY_NEWER = ("todo", "mode", "blocker", "next_step")


def parsed_context(core: Core) -> ParsedContext:
    """The conversation as it is in the context, parsed."""
    return core.parse_context().content


def save_facts(core: Core, state: SessionState, facts: Sequence[Fact], context: SessionContext) -> SessionState:
    """Keep what was extracted from the turns of a context, in the place of what was known of the same turns.

    Between the first of them there may be turns that were folded long ago: what is known of these stays.
    """
    first, past = first_turn(facts), _past(core, context)
    with core.writing():
        known = core.store.facts(core.id) if past else []
        between = [row for row in known if row.turn >= first and _is_folded(past, row.turn)]
        if first:
            core.store.drop_facts(core.id, first)
        rows = [FactRow(fact.kind, fact.turn, json_bytes(msgspec.to_builtins(fact)), _pattern(fact)) for fact in facts]
        core.store.put_facts(core.id, [*between, *rows], core.now())
    return structs.replace(state, extracted_at=core.now())


def with_times(facts: Iterable[Fact], context: SessionContext, spans: Mapping[int, tuple[int, int]]) -> list[Fact]:
    """Facts with the times of the turns in which they were first and last seen; `spans` say where these stand."""
    own = [item.at for item, _ in context.own()]
    known = {number: [at for at in own[slice(*span)] if at] for number, span in spans.items()}
    return [_with_times(fact, known) for fact in facts]


def _with_times(fact: Fact, known: Mapping[int, Sequence[str]]) -> Fact:
    first, last = known.get(fact.turn), known.get(_last(fact))
    return structs.replace(fact, first_seen=first[0] if first else None, last_seen=last[-1] if last else None)


def _past(core: Core, context: SessionContext) -> Record | None:
    """The record of a context; None when there is none, or nothing stands behind it that is older."""
    raws = conversation_raws(context)
    dialect = core.dialect(context.raws)
    messages = (dialect.parse([raw])[0] for raw in raws)
    leading = sum(1 for _ in takewhile(lambda message: message.role in ("system", "developer"), messages))
    past = open_record(dialect.parse(raws[: leading + 1]), dialect)[1]
    return past if past and past.behind else None


def _is_folded(past: Record | None, turn: int) -> bool:
    """Whether a turn is in a record that others have stayed behind."""
    return past is not None and turn <= past.turns and turn not in {number for number, _ in past.behind}


def stored_facts(core: Core, kind: str = "") -> list[Fact]:
    """The facts that were kept. Those of one kind and turn go by what they refer to: the store has them by a hash with
    their times in it, which would be another order in each session."""
    found = [msgspec.convert(read_json(row.body), Fact) for row in core.store.facts(core.id, kind)]
    return sorted(found, key=lambda fact: (fact.kind, fact.turn, len(fact.ref), fact.ref, fact.content))


def first_turn(facts: Iterable[Fact]) -> int:
    """The first turn that facts are about."""
    return min((fact.turn for fact in facts if fact.turn > 0), default=0)


def _pattern(fact: Fact) -> str:
    return replace_surrogates(error_key(fact)) if fact.kind in ("failure", "error") and not fact.summarized_by else ""


def all_facts(
    core: Core, kind: str | None = None, live: Sequence[Fact] | None = None, *, from_models: bool = False
) -> list[Fact]:
    """Everything that is known, by turn: what was stored, and what the context holds now, which may be given.

    With `from_models` also what only a model says, which nobody is to be briefed with as if it were exact.
    """
    if kind is not None and kind not in KINDS:
        raise BadSetting(f"facts: unknown kind {kind!r:.40}; known kinds: {', '.join(KINDS)}")
    if live is None:
        parsed = core.parse_context()
        live = with_times(parsed.content.facts, parsed.context, parsed.spans())
    first = first_turn(live) or 1 << 60
    kinds = expand_kind(kind) if kind else ("",)
    stored = [fact for each in kinds for fact in stored_facts(core, each)]
    past = _past(core, core.current_context())
    kept = [fact for fact in stored if fact.turn < first or _is_folded(past, fact.turn)]
    if any(fact.kind == "failure" and fact.status != RESOLVED for fact in kept):
        kept = resolve_facts(kept, parsed_context(core).turns)
    if any(fact.status == "running" for fact in kept):
        kept = end_running(kept, parsed_context(core).turns)
    facts = (fact for fact in (*kept, *live) if kind is None or fact.kind in kinds)
    return merge(fact for fact in facts if from_models or not fact.summarized_by)


def merge(facts: Iterable[Fact]) -> list[Fact]:
    """One fact for each thing, however often it was seen; of kinds that replace each other, the newest."""
    found: dict[tuple[str, str, str], Fact] = {}
    for fact in facts:
        key = (fact.kind, fact.content, fact.detail)
        before = found.pop(key, None)
        found[key] = _joined(before, fact) if before else fact
    merged = sorted(found.values(), key=lambda fact: (fact.kind, fact.turn))
    result: list[Fact] = []
    for kind, group in groupby(merged, key=lambda fact: fact.kind):
        members = list(group)
        newest = max(_last(fact) for fact in members)
        result += [fact for fact in members if kind not in _REPLACED_BY_NEWER or _last(fact) == newest]
    return sorted(result, key=lambda fact: (fact.turn, KINDS.index(fact.kind)))


def _last(fact: Fact) -> int:
    return max(fact.turn, fact.last_turn)


def _joined(before: Fact, after: Fact) -> Fact:
    if before.turn == after.turn:
        return structs.replace(after, first_seen=after.first_seen or before.first_seen)
    return structs.replace(
        after,
        turn=before.turn,
        count=before.count + after.count,
        last_turn=max(_last(before), _last(after)),
        first_seen=before.first_seen,
    )


def promote(core: Core) -> list[Lesson]:
    """Write what is worth knowing in other sessions to the lessons of the session's owner; what is new there."""
    owner = core.profile.owner
    if core.project is None or not owner or not core.settings.promote_to_memory:
        return []
    facts = stored_facts(core)
    patterns = [pattern for fact in facts if (pattern := _pattern(fact))]
    seen = _of_owner(core, owner, core.store.sessions_with(patterns)) if patterns else {}
    lessons = promote_facts(facts, core.project.learned, owner, session_id=core.id, day=core.now()[:10], seen=seen)
    for lesson in lessons:
        core.emit("fact.promoted", text=lesson.text, ref=lesson.ref, owner=owner, folder=str(core.project.learned))
    return lessons


def _of_owner(core: Core, owner: str, seen: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The sessions of each pattern that belong to an owner: what others met is none of theirs, not even as a count."""
    names = {name for sessions in seen.values() for name in sessions}
    own = {name for name in names if read_profile(core.store.session(name).profile).owner == owner}
    return {pattern: [name for name in sessions if name in own] for pattern, sessions in seen.items()}


def lessons_text(core: Core) -> str:
    """What other sessions of the same owner have taught, as a new one reads it."""
    owner = core.profile.owner
    if core.project is None or not owner or not core.settings.promote_to_memory:
        return ""
    try:
        return load_lessons(owner_folder(core.project.learned, owner), _LEARNED_TOKENS)
    except CompactorError as error:  # a session begins without it rather than not at all
        core.emit("job.dropped", what="what was learned", reason=str(error))
        return ""


class PreparedWork(Struct, frozen=True):
    """What was prepared while nothing else was to be done."""

    turns: int
    facts: int
    summarized: int = 0
    """Turns that a model summarized."""

    @property
    def told(self) -> int:
        """Deprecated: `summarized`."""
        return self.summarized


def prepare_compaction(core: Core, fewest: int = 3) -> PreparedWork:
    """Prepare the next compaction: count what is new and keep the facts of all but the last two turns.

    Nothing is done for fewer turns than `fewest`. The context does not change.
    """
    context = core.current_context()
    content = core.parse_context(context).content
    state = read_session_state(core.row().state)
    ready = [turn for turn in content.turns[:-_UNPREPARED_TURNS] if turn.number > state.prepared_turn]
    if len(ready) < fewest or not core.settings.extract_facts:
        return PreparedWork(0, 0)
    last = ready[-1].number
    counter = core.counter(core.dialect())
    counter.learn(message for turn in ready for message in turn.messages)
    facts = [fact for fact in content.facts if _last(fact) <= last]
    facts = with_times(facts, context, core.parse_context(context).spans())
    core.change(lambda now: structs.replace(save_facts(core, now, facts, context), prepared_turn=last))
    return PreparedWork(len(ready), len(facts))
