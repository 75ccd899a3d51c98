"""What the models of a session have taken so far: kept with the session, so that its limits outlive a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from context_compactor.price import Look, Purse, Spent
from context_compactor.session.core import Core
from context_compactor.session.values import read_state

if TYPE_CHECKING:
    from context_compactor.story import Teller


@contextmanager
def metered(core: Core, teller: Teller | None) -> Iterator[None]:
    """While a teller is at work it spends from the session's purse, beside all others who have the session open."""
    if teller is not None:
        teller.before, teller.spent = Purse(keep=partial(_keep, core)), Spent()
    yield


def _keep(core: Core, more: Spent, look: Look) -> None:
    with core.store.writing(core.id) as row:
        state = read_state(row.state)
        look(state.spent)
        core.save(structs.replace(state, spent=state.spent.plus(more)))
