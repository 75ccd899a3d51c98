"""What was there before us: enough to come back to it exactly, and none of its content."""

from __future__ import annotations

from msgspec import Struct

ABSENT = "absent"
FULL = "full"


class Shape(Struct, frozen=True, omit_defaults=True):
    """The containers of a settings file before we came.

    `containers` says of each that we write into: absent, full, or the white space it was empty with. `blank` is the
    whole text of a file that had nothing in it. `tail` is what we had to put between the last line and our table.
    """

    containers: dict[str, str] = {}
    blank: str | None = None
    tail: str | None = None


UNKNOWN = Shape()
