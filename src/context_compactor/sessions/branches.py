"""Branches of a conversation: each is a session of its own, so that no id ever stands for two originals.

The first one has the conversation's id, the others `ID~2`, `ID~3` and so on. The first one's profile names the branch
that was used last: whoever opens the conversation by its id continues there.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import msgspec
from msgspec import structs

from context_compactor.dialects.turns import FIRST_EXTRA_NUMBER
from context_compactor.errors import BadSetting, SessionExists, UnknownSession
from context_compactor.sessions.core import Core
from context_compactor.sessions.handoff import ORCHESTRATOR
from context_compactor.sessions.lifecycle import branch_rows, open_branch
from context_compactor.sessions.state import SessionState, check_id, read_profile, read_session_state
from context_compactor.store.rows import MESSAGE, NewOriginal, OriginalRow

# A history that is given is compared with so many branches, those used last; older ones are still there by their ids.
_MOST_COMPARED = 50


def root_of(core: Core) -> str:
    """The id of the conversation that a session is a branch of."""
    return core.profile.root or core.id


def branch_ids(core: Core, most: int | None = _MOST_COMPARED) -> list[str]:
    """The branches of a conversation, the one used last first."""
    root = root_of(core)
    found = branch_rows(core.store, root)
    with suppress(UnknownSession):
        found.append(core.store.session(root))
    found.sort(key=lambda row: row.updated_at, reverse=True)
    return [row.id for row in found[:most]]


def note_current(core: Core) -> None:
    """Let whoever opens the conversation by its id continue in this branch."""
    root = root_of(core)
    with suppress(UnknownSession), core.store.writing(root) as row:
        profile = read_profile(row.profile)
        branch = "" if core.id == root else core.id
        if profile.branch != branch:
            profile = structs.replace(profile, branch=branch)
            core.store.save_profile(root, msgspec.json.encode(profile))
            if core.id == root:
                core.profile = profile


def touch_root(core: Core) -> None:
    """Note that a conversation is in use, so that the session with its id does not expire before its branches."""
    if core.profile.root:
        with suppress(UnknownSession):
            core.store.append(core.profile.root, MESSAGE, [], core.now())


def fork(core: Core, at: int | None, new_id: str | None = None) -> Core:
    """A new session with the first messages of this one: with its compactions up to there, and the originals and facts
    that these messages lead to. Without an id it is a branch of the same conversation."""
    total = core.row().messages
    at = total if at is None else at
    if type(at) is not int or not 0 <= at <= total:
        raise BadSetting(f"fork at message {at!r:.40}: this session has {total:,} messages")
    following = core.store.message_position(core.id, at + 1)
    with core.writing() as row:
        until = row.head if following is None else following - 1
        name = _create(core, until) if new_id is None else _create_named(core, check_id(new_id), until)
        stored = read_profile(core.store.session(name).profile)
        profile = structs.replace(stored, root=root_of(core) if new_id is None else "", branch="")
        core.store.save_profile(name, msgspec.json.encode(profile))
        forked = open_branch(core, name)
        _carry_over(core, forked)
    return forked


def _create(core: Core, until: int) -> str:
    """A branch under the first id that is free."""
    for number in count(2):
        name = f"{root_of(core)}~{number}"
        try:
            core.store.session(name)
        except UnknownSession:
            with suppress(SessionExists):
                return _create_named(core, name, until)
    raise AssertionError("unreachable")


def _create_named(core: Core, name: str, until: int) -> str:
    core.store.fork(core.id, name, until, core.now())
    return name


def _carry_over(core: Core, forked: Core) -> None:
    """Give a fork the originals and facts of what it has in common with the session it was made from."""
    turns, past = forked.parse_context().content.turns, forked.parse_context().content.past
    last = max((turn.number for turn in turns), default=past.turns + 1 if past else 0)
    exchanges = [exchange for turn in turns for exchange in turn.exchanges]
    calls = max((exchange.number for exchange in exchanges), default=past.calls if past else 0)
    unanswered = {exchange.number for exchange in exchanges if exchange.result is None}
    shared = [
        row for row in core.store.originals(core.id) if row.content and _is_shared(row.ref, last, calls, unanswered)
    ]
    forked.store.archive(forked.id, [_again(row) for row in shared], forked.now())
    forked.store.put_facts(forked.id, [row for row in core.store.facts(core.id) if row.turn < last], forked.now())
    state = read_session_state(core.row().state)
    forked.save(
        SessionState(
            calibration=state.calibration,
            is_reminded=state.is_reminded,
            tool_calls=calls,
            tiers={number: choice for number, choice in state.tiers.items() if number < last},
            notes={name: value for name, value in state.notes.items() if name == ORCHESTRATOR},
        )
    )


def _is_shared(ref: str, turn: int, calls: int, unanswered: set[int]) -> bool:
    """Whether an original is that of a turn before the last one, of a call that has its result, or of no message."""
    prefix, _, digits = ref.partition("_")
    number = int(digits)
    if prefix == "turn":
        return number < turn
    return number >= FIRST_EXTRA_NUMBER or (number <= calls and number not in unanswered)


def _again(row: OriginalRow) -> NewOriginal:
    """An original for another session; its words are put into the index when somebody searches."""
    return NewOriginal(
        row.ref, row.kind, row.summary, row.tokens, row.recovery, row.hint, row.target, row.content, is_indexed=False
    )
