"""Following an agent: what it writes into its log becomes a session of the store, in order and once.

A log is read from its beginning each time and compared with what is there, so it does not matter who reads it, how
often, or whether it lags behind. When the user goes back to an earlier point and takes another way, the session stays
as it is, and the new way goes on under a name of its own.
"""

from __future__ import annotations

from msgspec import Struct, structs

from context_compactor.agents.adopting import adopt
from context_compactor.agents.losses import Losses
from context_compactor.agents.shelving import shelve
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.transcript import RawMessage, Transcript
from context_compactor.report import Report
from context_compactor.session.core import Core
from context_compactor.session.feeding import feed
from context_compactor.session.memory import work_ahead
from context_compactor.session.values import read_state

ADOPTED = "adopted"


class Followed(Struct, frozen=True):
    """What was new in a log: messages, originals in the archive, and the agent's own compactions."""

    appended: int = 0
    archived: int = 0
    adopted: tuple[Report, ...] = ()
    losses: Losses | None = None
    """What the summary of the last of these compactions lost."""


def follow(core: Core, transcript: Transcript, *, is_closed: bool, archive: bool = True) -> Followed:
    """Bring a session up to date with a log. What may still grow at its end is left for the next time.

    With `is_closed` nothing grows there any more. With `archive` everything is archived and its facts are kept, else
    only what lies before a compaction of the agent.
    """
    followed = Followed()
    messages = transcript.messages if is_closed else transcript.messages[: _final_end(core, transcript)]
    for at, past in enumerate(transcript.compactions[: _reached(transcript, len(messages))], 1):
        if at > _adopted(core):
            appended = feed(core, transcript.messages[: past.at], shorten=False)
            report, losses = adopt(core, past, transcript.source)
            core.note(ADOPTED, at)
            followed = structs.replace(
                followed,
                appended=followed.appended + appended,
                archived=followed.archived + len(report.archived),
                adopted=(*followed.adopted, report),
                losses=losses,
            )
    followed = structs.replace(followed, appended=followed.appended + feed(core, messages, shorten=False))
    if not archive:
        return followed
    shelf = shelve(core, is_closed=is_closed)
    work_ahead(core, fewest=1)
    return structs.replace(followed, archived=followed.archived + len(shelf.new))


def _final_end(core: Core, transcript: Transcript) -> int:
    """Where a log cannot change any more. What a session has already, as the log seemed closed, is not left again."""
    return max(len(final_part(transcript)), core.store.session(core.id).messages)


def final_part(transcript: Transcript) -> list[RawMessage]:
    """The messages that cannot change any more: those before the last reply, or all when its calls are answered.

    A log gets a reply in pieces, and its results one by one. What lies before a compaction is closed.
    """
    messages = transcript.messages
    if transcript.compactions and transcript.compactions[-1].at == len(messages):
        return messages
    parsed = find_dialect(transcript.dialect, ()).parse(messages)
    answered: set[str] = set()
    for at in range(len(parsed) - 1, -1, -1):
        message = parsed[at]
        if message.role == "assistant":
            is_last = at == len(parsed) - 1
            is_final = all(call.id in answered for call in message.calls) if message.calls else not is_last
            return messages if is_final else messages[:at]
        answered.update(result.call_id for result in message.results)
    return messages


def _reached(transcript: Transcript, end: int) -> int:
    """How many of the agent's compactions lie before a place in the log."""
    return sum(past.at <= end for past in transcript.compactions)


def _adopted(core: Core) -> int:
    count = read_state(core.store.session(core.id).state).notes.get(ADOPTED, 0)
    return count if isinstance(count, int) else 0
