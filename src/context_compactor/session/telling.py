"""Who tells one compaction of a session: what was told ahead if it still stands, else the model, unless it rests."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from context_compactor.briefing import is_told
from context_compactor.errors import DamagedContent
from context_compactor.flow import Kit, Scene
from context_compactor.levels import Level
from context_compactor.placing import Job, noted, place, with_room
from context_compactor.plan.goal import Goal
from context_compactor.report import ModelCall
from context_compactor.session.core import Core
from context_compactor.session.guard import Breaker
from context_compactor.session.metering import meter
from context_compactor.session.values import State, read_state
from context_compactor.settle import Request, Settled
from context_compactor.summarize.held import Held, as_of_then, base_of, objection_to_swap

if TYPE_CHECKING:
    from context_compactor.story import Teller

AHEAD = "summary told ahead"
REST_SECONDS = 300.0


class Telling:
    """One compaction of a session, told. `is_wanted` means that somebody asked: then a model is asked, rest or not."""

    def __init__(self, core: Core, teller: Teller, cancel: Event, *, is_wanted: bool) -> None:
        self._core = core
        self._teller = teller
        self._cancel = cancel
        self._is_wanted = is_wanted
        self.is_ahead = False
        """Whether the result holds what was told ahead."""
        self.asked: tuple[ModelCall, ...] = ()
        """The calls that this compaction has made itself."""

    def tell(self, request: Request, goal: Goal, scene: Scene, kit: Kit, digest: Settled) -> Settled:
        """The compaction with what was told ahead, with a record written now, or as it was.

        Its report has the calls that were made ahead of it as well, whether they came to anything or not.
        """
        if not digest.report.changed:
            return digest
        job = Job(request, goal, scene, kit, digest)
        made = self._swapped(job) or self._told(job)
        self.asked = made.report.model_calls
        calls = (*read_state(self._core.store.session(self._core.id).state).ahead_calls, *self.asked)
        return structs.replace(made, report=structs.replace(made.report, model_calls=calls))

    def _told(self, job: Job) -> Settled:
        rest = "" if self._is_wanted else resting(self._core, self._teller)
        if rest and is_told(job.request):
            return noted(job, job.digest, (), f"no model was asked: {rest}")
        return self._asked(job)

    def expect(self, request: Request, goal: Goal, scene: Scene, kit: Kit, digest: Settled) -> Settled:
        """The compaction as it was, with what a model would be asked; nothing is changed."""
        job = Job(request, goal, scene, kit, digest)
        if digest.report.changed and _told_ahead(job, standing(self._core, job, self._teller))[0] is not None:
            return digest
        return self._teller.expect(request, goal, scene, kit, digest)

    def _swapped(self, job: Job) -> Settled | None:
        """The compaction with what was told ahead, at once; None when there is nothing that can be used."""
        held = standing(self._core, job, self._teller)
        if held is None:
            drop(self._core, "what it was told from has changed")
            return None
        made, why = _told_ahead(job, held)
        self.is_ahead = made is not None
        if made is None and not job.kit.focus:
            drop(self._core, why)
        return made

    def _asked(self, job: Job) -> Settled:
        fork = self._teller.fork(self._cancel)
        fork.ahead = read_state(self._core.store.session(self._core.id).state).ahead_spent
        try:
            meter(self._core, fork)
            made = fork.tell(job.request, job.goal, job.scene, job.kit, job.digest)
        finally:
            self._teller.join(fork)
        if fork.spent.attempts:
            learn(self._core, self._teller, "" if made.report.told_by else made.report.reason)
        return made


def standing(core: Core, job: Job, teller: Teller) -> Held | None:
    """What was told ahead, when everything that it was told from is as it was."""
    held = held_of(core, read_state(core.row().state))
    if held is None or base_of(job.scene.turns, held.turns, job.scene.past, teller.asked) != held.base:
        return None
    return held


def held_of(core: Core, state: State) -> Held | None:
    """What was told ahead, whether it stands or not."""
    try:
        return msgspec.json.decode(core.store.get([state.ahead])[state.ahead], type=Held) if state.ahead else None
    except (DamagedContent, msgspec.MsgspecError):  # it can be told again
        return None


def drop(core: Core, why: str) -> None:
    """Forget what was told ahead, if there is anything, and tell why."""
    if not read_state(core.row().state).ahead:
        return
    core.change(lambda state: structs.replace(state, ahead=""))
    core.emit("job.dropped", what=AHEAD, reason=why)


def _told_ahead(job: Job, held: Held | None) -> tuple[Settled | None, str]:
    """The compaction with a held summary, or why it cannot be used. Even an emergency has the time for it."""
    if held is None or not (is_told(job.request) or job.request.trigger.level is Level.EMERGENCY):
        return None, "there is nothing to tell"
    tokens = job.digest.outcome.composer.turn_tokens
    folded = {turn.number: tokens[turn.number] for turn in job.folded}
    roomy = with_room(job)
    has_room = bool(roomy.asked_tokens)
    why = objection_to_swap(held, folded, job.kit.focus) or ("" if has_room else "the target leaves no room for it")
    if why:
        return None, why
    summary = held.summary if folded.keys() == set(held.turns) else as_of_then(held.summary)
    if not summary:
        return None, "it no longer tells how things stand"
    placed, wrong = place(roomy, summary, held.model)
    if placed is None:
        return None, wrong
    words = f"the model was not waited for: it told {len(held.turns):,} of the {len(folded):,} folded turns ahead"
    return noted(job, placed, (), words), ""


# A model that fails again and again


def resting(core: Core, teller: Teller) -> str:
    """Why the model is not asked now; "" when it may be."""
    breaker = read_state(core.row().state).teller
    left = breaker.rest(core.seconds(), REST_SECONDS)
    words = f"the last {breaker.failures} answers of {teller.model.name} were of no use; it rests for {left:.0f} s"
    return words if left else ""


def learn(core: Core, teller: Teller, failure: str, what: str = "") -> None:
    """Remember how asking a model has ended; the third failure in a row begins a rest, which is told."""
    now = core.seconds()
    if not failure:
        core.change(lambda state: structs.replace(state, teller=Breaker()))
        return

    def failed(state: State) -> State:
        return structs.replace(state, teller=state.teller.failed(what or state.teller.failed_input, now))

    core.change(failed)
    if read_state(core.row().state).teller.is_open:
        core.emit("job.dropped", what="summary by a model", reason=resting(core, teller) or failure)
