"""Keep head and tail of a large output, and the lines that tell of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compactor.classify.kinds import Kind, Voice
from context_compactor.classify.tier import Tier
from context_compactor.plan.options import Option, Source
from context_compactor.plan.view import View
from context_compactor.strategies.keep_lines import idle_blocks

_TELLING = re.compile(r"\b(?:error|fail(?:ed|ure)?|fatal|panic|exception|warning|denied|not found)\b", re.IGNORECASE)
_PLAIN = {Kind.COMMAND, Kind.LOG, Kind.TEST_RUN, Kind.ERROR_TRACE, Kind.API_RESPONSE}


@dataclass(frozen=True)
class TruncateOutputs:
    """The first and last lines of an output over `max_tokens` count for more, and so do those that tell of errors."""

    max_tokens: int = 2000
    keep_lines: int = 6
    boost: float = 3.0
    name: str = "truncate outputs"

    def propose(self, view: View) -> Iterator[Option]:
        """Options for the telling blocks of each large output."""
        for source in view.open_sources():
            if source.voice is Voice.RESULT and source.kind in _PLAIN and source.tokens > self.max_tokens:
                yield from self._ends(source)

    def _ends(self, source: Source) -> Iterator[Option]:
        skipped = idle_blocks(source)
        for at, block in enumerate(source.blocks):
            if at in skipped:
                continue
            is_end = block.first < self.keep_lines or block.first + block.lines > source.lines - self.keep_lines
            if is_end or _TELLING.search(block.text):
                reason = "head or tail of a large output" if is_end else "tells of an error"
                yield Option(self.name, source.number, Tier.KEEP, block.text, reason, source.weight * self.boost, at)
