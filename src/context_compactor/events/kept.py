"""A sink that keeps events in a desk, for readers that come later or in another process."""

from __future__ import annotations

from context_compactor.events.event import Event
from context_compactor.protocols import Desk


class DeskSink:
    """Writes each event to a desk, on the disk when it returns."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.name = "DeskSink"

    def write_within(self, event: Event) -> None:
        """The same with the transaction of what the event tells: both are on the disk, or neither is."""
        self._desk.tell(event)

    def write(self, event: Event) -> None:
        """Keep one event, and note which webhooks are to be told of it."""
        self._desk.tell(event)
