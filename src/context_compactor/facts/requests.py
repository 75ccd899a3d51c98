"""What the user asked for, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, is_quoted
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn

_LONGEST = 300
_LONGEST_DETAIL = 500


def task_facts(sayings: Sequence[Saying], turns: Sequence[Turn]) -> list[Fact]:
    """The first request and the later ones.

    The newest is `active`. An older one is `done` when the agent had closed it with an answer before the next came,
    else `superseded`.
    """
    requests = [saying for saying in sayings if is_request(saying.text)] or list(sayings[:1])
    closed = {after.number for before, after in pairwise(turns) if _is_answer(before)}
    statuses = ["done" if later.turn in closed else "superseded" for later in requests[1:]]
    return [_fact(request, status) for request, status in zip(requests, [*statuses, "active"], strict=False)]


def is_request(text: str) -> bool:
    """Whether a message asks for something of its own, and is not a mere "yes, go ahead"."""
    words = cues.spaced(text[:400]).split()
    told = [word for word in words if word not in cues.ACKNOWLEDGEMENTS and not word.isdigit()]
    return len(told) > 1 or any(len(word) > 6 or not word.isascii() for word in told)


def _fact(request: Saying, status: str) -> Fact:
    lines = [line.strip() for line in request.text.split("\n") if line.strip()]
    # A message may begin with what it quotes; its own words say what it asks for.
    at = next((at for at, line in enumerate(lines) if not is_quoted(line)), 0)
    rest = " ".join((*lines[:at], *lines[at + 1 :]))[:_LONGEST_DETAIL]
    ref = reference_id("turn", request.turn)
    return Fact("task", lines[at][:_LONGEST].rstrip(), request.turn, "user", rest, status, 1, request.turn, ref)


def _is_answer(turn: Turn) -> bool:
    """A turn in which the agent spoke and called nothing: it had finished, or asked."""
    return turn.role == "assistant" and not turn.exchanges and any(message.text for message in turn.messages)
