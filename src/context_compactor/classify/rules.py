"""All verdicts of one conversation, gathered once: what each exchange is, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from context_compactor.classify.calls import describe, read_call
from context_compactor.classify.duplicates import find_repeats
from context_compactor.classify.failures import Failure, find_failures
from context_compactor.classify.kinds import Kind, kind_of
from context_compactor.classify.lifecycle import FileLife, file_life
from context_compactor.classify.paths import shown_from
from context_compactor.classify.pins import settled
from context_compactor.classify.references import reference_of
from context_compactor.messages.turn import ToolUse, Turn


class Verdict(Struct, frozen=True):
    """What is known of one exchange. `superseded_by` and `duplicate_of` name a later exchange, or 0.

    It is outdated when a later one says nearly the same: only the lines that differ are worth keeping.
    """

    kind: Kind
    label: str
    ref: str
    path: str = ""
    is_look: bool = False
    is_under_edit: bool = False
    superseded_by: int = 0
    duplicate_of: int = 0
    is_outdated: bool = False
    failure: Failure | None = None


class Verdicts(Struct, frozen=True):
    """The verdicts by exchange number, with the failures and the files behind them."""

    exchanges: dict[int, Verdict]
    failures: tuple[Failure, ...]
    files: FileLife
    root: str = ""
    """The folder that labels leave out of paths."""


def classify(turns: Sequence[Turn], root: str | None = None) -> Verdicts:
    """Look at every exchange of a conversation. `root` is the folder that paths are shown from, when it is known."""
    exchanges = [exchange for turn in turns for exchange in turn.exchanges]
    failures = find_failures(turns)
    files = file_life(settled(turns), {failure.exchange for failure in failures})
    by_number = {failure.exchange: failure for failure in failures}
    repeats = find_repeats(exchanges)
    edited = {path for path, record in files.files.items() if record.writes}
    paths = _shown_paths(files)
    if root is None:
        root = shown_from([path for path in files.files if path.startswith("/")])
    verdicts = {}
    for exchange in exchanges:
        number = exchange.number
        path = paths.get(number, "")
        verdicts[number] = Verdict(
            kind=_kind(exchange),
            label=describe(exchange.call, root),
            ref=reference_of(exchange),
            path=path,
            is_look=_is_look(exchange),
            is_under_edit=path in edited,
            superseded_by=files.superseded.get(number, 0),
            duplicate_of=repeats.equal.get(number, 0),
            is_outdated=number in repeats.alike,
            failure=by_number.get(number),
        )
    return Verdicts(verdicts, tuple(failures), files, root)


def _kind(exchange: ToolUse) -> Kind:
    return kind_of(exchange.call, exchange.result.text if exchange.result else "")


_LOOKS = (Kind.SEARCH_RESULT, Kind.LISTING, Kind.WEB_PAGE, Kind.SUBAGENT)


def _is_look(exchange: ToolUse) -> bool:
    """Whether a call only asks for something: its arguments say no more than its label."""
    if exchange.call is None:
        return True
    reading = read_call(exchange.call)
    return reading.command is None and not reading.writes and (reading.reads or _kind(exchange) in _LOOKS)


def _shown_paths(files: FileLife) -> dict[int, str]:
    found: dict[int, str] = {}
    for path, record in files.files.items():
        found.update((read.exchange, path) for read in record.reads)
        found.update((write.exchange, path) for write in record.writes)
    return found
