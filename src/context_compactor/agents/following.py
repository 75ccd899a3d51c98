"""Following an agent: what it writes into its log becomes a session of the store, in order and once.

A log is read from its beginning each time and compared with what is there, so it does not matter who reads it, how
often, or whether it lags behind: what was read before all of it was said has grown. When the user goes back to an
earlier point and takes another way, the session stays as it is, and the new way goes on under a name of its own.
"""

from __future__ import annotations

from msgspec import Struct, structs

from context_compactor.agents.adopting import adopt, adopted
from context_compactor.agents.losses import Losses
from context_compactor.messages.transcript import Transcript
from context_compactor.report import Report
from context_compactor.session.core import Core
from context_compactor.session.feeding import feed_log
from context_compactor.session.memory import work_ahead
from context_compactor.session.shelving import shelve


class Followed(Struct, frozen=True):
    """What was new in a log: messages, originals in the archive, and the agent's own compactions."""

    appended: int = 0
    archived: int = 0
    adopted: tuple[Report, ...] = ()
    losses: Losses | None = None
    """What the summary of the last of these compactions lost."""


def follow(core: Core, transcript: Transcript, *, is_closed: bool, archive: bool = True) -> Followed:
    """Bring a session up to date with a log. A turn that may still grow is archived the next time.

    With `is_closed` nothing grows at its end any more. With `archive` everything is archived and its facts are kept,
    else only what lies before a compaction of the agent.
    """
    followed = Followed()
    for number, past in enumerate(transcript.compactions, 1):
        if number > adopted(core):
            appended = feed_log(core, transcript.messages[: past.at], transcript.times)
            report, losses = adopt(core, past, transcript.source, number)
            followed = structs.replace(
                followed,
                appended=followed.appended + appended,
                archived=followed.archived + len(report.archived),
                adopted=(*followed.adopted, report),
                losses=losses,
            )
    appended = feed_log(core, transcript.messages, transcript.times)
    followed = structs.replace(followed, appended=followed.appended + appended)
    if not archive:
        return followed
    shelf = shelve(core, is_closed=is_closed)
    work_ahead(core, fewest=1)
    return structs.replace(followed, archived=followed.archived + len(shelf.new))
