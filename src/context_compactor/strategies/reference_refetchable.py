"""Leave one line for what can be fetched again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.kinds import Kind
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source, Voice
from context_compactor.plan.view import View

_HINT = {
    Kind.CODE: "read the file again",
    Kind.SEARCH_RESULT: "search again",
    Kind.LISTING: "list again",
    Kind.WEB_PAGE: "fetch the page again",
    Kind.API_RESPONSE: "ask again",
    Kind.DIFF: "show the diff again",
}


@dataclass(frozen=True)
class ReferenceRefetchable:
    """A result that can be fetched again may be reduced to its reference."""

    name: str = "reference"

    def propose(self, view: View) -> Iterator[Option]:
        """One option per result; lines and digests may still be added to it."""
        for source in view.open_sources():
            if source.voice is Voice.RESULT and not source.duplicate_of and not source.superseded_by:
                yield Option(self.name, source.number, Tier.REFERENCE, "", self._reason(source))

    def _reason(self, source: Source) -> str:
        hint = restore_hint(source.kind)
        return f"can be had again: {hint}" if hint else "archived; later turns do not use it"


def restore_hint(kind: Kind) -> str:
    """How a result of this kind can be fetched again; empty when only the archive has it."""
    return _HINT.get(kind, "")
