"""The measures: what share of what a sample wants is still in a context, None where nothing is wanted.

FRR   identifiers the agent takes from H, anywhere in the context.
BND   the same, within 200 characters of half the words they stood with in some line of H.
NAS   of the next ten calls that need something from H, those with all of it in the context.
CSR   five-word runs of later arguments that stood in H and were not shown since.
EDT   lines (20+ characters) of the old text of later edits that stood in H and were not shown since.
FAIL  failed calls of H: the start of the command, and the first or last line that tells why.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from context_compactor.quality.failures import Failure, squeeze, without_tags
from context_compactor.quality.identifiers import identifiers
from context_compactor.quality.names import is_bound
from context_compactor.quality.reading import RawMessage, flatten, without_line_numbers
from context_compactor.quality.wanted import Wanted
from context_compactor.quality.wording import Span, spans_of

MEASURES = ("FRR", "BND", "NAS", "CSR", "EDT", "FAIL")


class Kept(Struct, frozen=True):
    """Which of the wanted things a context holds, in the order of `Wanted`."""

    names: tuple[bool, ...]
    bound: tuple[bool, ...]
    calls: tuple[bool, ...]
    spans: tuple[bool, ...]
    edits: tuple[bool, ...]
    failures: tuple[bool, ...]

    def shares(self) -> dict[str, float | None]:
        """The share kept, by measure."""
        groups = (self.names, self.bound, self.calls, self.spans, self.edits, self.failures)
        return {name: share(group) for name, group in zip(MEASURES, groups, strict=True)}


def share(flags: Sequence[bool]) -> float | None:
    """How many of the flags are set, 0 to 1; None of none."""
    return sum(flags) / len(flags) if flags else None


def kept(wanted: Wanted, context: Sequence[RawMessage]) -> Kept:
    """Look up everything a sample wants in a context's flattened text."""
    texts = [text for _, text in flatten(context)]
    return kept_in(wanted, texts)


def kept_in(wanted: Wanted, texts: Sequence[str]) -> Kept:
    """Look up everything a sample wants in some texts."""
    whole = "\n".join(texts)
    present = identifiers(whole)
    names = tuple(name.text in present for name in wanted.names)
    return Kept(
        names=names,
        bound=tuple(there and is_bound(name, whole) for name, there in zip(wanted.names, names, strict=True)),
        calls=tuple(all(names[index] for index in call) for call in wanted.calls),
        spans=_spans(wanted.spans, texts),
        edits=tuple(edit.text in whole for edit in wanted.edits),
        failures=_failures(wanted.failures, whole),
    )


def nothing_kept(wanted: Wanted) -> Kept:
    """What counts for a context that did not fit."""
    return kept_in(wanted, [])


def _spans(wanted: Sequence[Span], texts: Sequence[str]) -> tuple[bool, ...]:
    present = {span for text in texts for span in spans_of(text)} if wanted else set()
    return tuple(span.text in present for span in wanted)


def _failures(wanted: Sequence[Failure], text: str) -> tuple[bool, ...]:
    flat = squeeze(without_tags(without_line_numbers(text))) if wanted else ""
    return tuple(failure.command in flat and any(line in flat for line in failure.lines) for failure in wanted)
