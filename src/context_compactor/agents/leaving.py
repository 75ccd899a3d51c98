"""A user goes back and takes another way: what was archived of the common part goes along.

An output that was replaced before the model saw it stands nowhere but in the archive: in the log there is only what
was shown of it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from context_compactor.archive.archive import Original
from context_compactor.archive.shelve import keep_items, read_originals, ready_items
from context_compactor.messages.jsontext import read_json
from context_compactor.messages.references import FIRST_BESIDE
from context_compactor.session.core import Core
from context_compactor.session.handing import ORCHESTRATOR
from context_compactor.session.lens import logged
from context_compactor.session.values import read_state


class Left(Struct, frozen=True):
    """What another way has in common with the one that was left."""

    originals: list[Original]
    notes: dict[str, Any]


def leave(core: Core, at: int) -> Left:
    """The originals of calls before the message with this index, and those beside the conversation."""
    bodies = list(logged(core.store, core.id, core.lens.sight()).values())[:at]
    calls = sum(len(message.calls) for message in core.dialect().parse([read_json(body) for body in bodies]))
    shelved = [each for each in core.store.originals(core.id) if _is_common(each.ref, calls)]
    notes = read_state(core.row().state).notes
    return Left(
        read_originals(shelved, core.store), {ORCHESTRATOR: notes[ORCHESTRATOR]} if ORCHESTRATOR in notes else {}
    )


def _is_common(ref: str, calls: int) -> bool:
    prefix, _, number = ref.partition("_")
    return prefix != "turn" and (int(number) <= calls or int(number) >= FIRST_BESIDE)


def carry_over(core: Core, left: Left) -> None:
    """Give a new way what it has in common with the one before; one that has begun already has it."""
    if core.row().messages:
        return
    ready = ready_items(left.originals, core.store)
    with core.writing():
        core.store.archive(core.id, keep_items(ready, core.store), core.now())
        core.change(lambda state: structs.replace(state, notes={**state.notes, **left.notes}))
