"""What the models of a session have taken so far: kept with the session, so that its limits outlive a process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from context_compactor.price import Look, Purse, Spent
from context_compactor.session.core import Core
from context_compactor.session.values import read_state

if TYPE_CHECKING:
    from context_compactor.story import Teller


def meter(core: Core, teller: Teller) -> None:
    """Have a teller spend from the session's purse, beside all others who have the session open."""
    teller.before, teller.spent = Purse(keep=partial(_keep, core)), Spent()


def _keep(core: Core, more: Spent, look: Look) -> None:
    with core.writing() as row:
        state = read_state(row.state)
        look(state.spent)
        core.save(structs.replace(state, spent=state.spent.plus(more)))
