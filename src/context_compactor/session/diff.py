"""Two contexts side by side: what stayed, what went, what came in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

from context_compactor.archive.search.passages import texts_of
from context_compactor.messages.dialect import Dialect
from context_compactor.messages.printing import one_line
from context_compactor.session.core import Core
from context_compactor.session.lens import Raw, Seen
from context_compactor.session.views import seen_at

Change = Literal["same", "removed", "added", "changed"]
_MARKS = {"same": "=", "removed": "<", "added": ">", "changed": "|"}
_SHOWN = 400

Named = tuple[str, Raw]
"""A message, with a name that only its equals have."""


class Side(Struct, frozen=True):
    """A message on one side: as it is sent, and its words in one line."""

    raw: Raw
    words: str


class DiffRow(Struct, frozen=True):
    """One message on either side, or on both; `before` or `after` is None where there is none."""

    change: Change
    before: Side | None
    after: Side | None


class ContextDiff(Struct, frozen=True):
    """Two contexts side by side."""

    title: tuple[str, str]
    rows: tuple[DiffRow, ...]
    tokens: tuple[int, int]

    def counts(self) -> dict[str, int]:
        """How many messages are the same, removed, added and changed."""
        return {name: sum(row.change == name for row in self.rows) for name in _MARKS}

    def to_text(self, width: int = 160) -> str:
        """A line for each message, marked as in a diff: `=` same, `<` removed, `>` added, `|` changed."""
        half = max((width - 3) // 2, 20)
        lines = [f"{self.title[0]:<{half}}   {self.title[1]}"]
        lines.append(f"{f'{self.tokens[0]:,} tokens':<{half}}   {self.tokens[1]:,} tokens")
        for row in self.rows:
            left, right = _line(row.before, half), _line(row.after, half)
            lines.append(f"{left:<{half}} {_MARKS[row.change]} {right}".rstrip())
        return "\n".join(lines)


def _line(side: Side | None, width: int) -> str:
    words = side.words if side else ""
    return words if len(words) <= width else words[: width - 1] + "…"


def diff(core: Core, before: int | None, after: int | None) -> ContextDiff:
    """Two contexts side by side: those of two messages, or those before and after the last compaction."""
    if before is None and after is None:
        last = core.lens.sight().last
        if last is None:
            now = core.seen()
            return _diff(core, ("now", "now"), now, now)
        old, new = core.lens.at(last.position - 1), core.lens.at(last.position)
        return _diff(core, (f"before {last.note.id}", f"after {last.note.id}"), old, new)
    total = core.row().messages
    start, end = before if before is not None else 0, after if after is not None else total
    return _diff(core, (f"at message {start}", f"at message {end}"), seen_at(core, start), seen_at(core, end))


def _diff(core: Core, title: tuple[str, str], old: Seen, new: Seen) -> ContextDiff:
    dialect = core.dialect([*old.raws, *new.raws])
    counter = core.counter(dialect)
    tokens = [counter.request_tokens(dialect.parse(seen.raws)) for seen in (old, new)]
    return side_by_side(title, _named(old), _named(new), dialect, (tokens[0], tokens[1]))


def _named(seen: Seen) -> list[Named]:
    return [(shown.hash, raw) for shown, raw in zip(seen.shown, seen.raws, strict=True)]


def side_by_side(
    title: tuple[str, str], old: Sequence[Named], new: Sequence[Named], dialect: Dialect, tokens: tuple[int, int]
) -> ContextDiff:
    """Two contexts compared. Messages of one name are the same."""
    return ContextDiff(title, tuple(_rows(old, new, dialect)), tokens)


def _rows(old: Sequence[Named], new: Sequence[Named], dialect: Dialect) -> Iterator[DiffRow]:
    left, right = (_sides([raw for _, raw in each], dialect) for each in (old, new))
    matcher = SequenceMatcher(None, [name for name, _ in old], [name for name, _ in new], autojunk=False)
    for change, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        yield from _change_rows(change, left[left_from:left_to], right[right_from:right_to])


def _sides(raws: Sequence[Raw], dialect: Dialect) -> list[Side]:
    return [Side(message.raw, f"{message.role}: {_words(texts_of([message]))}") for message in dialect.parse(raws)]


def _words(texts: Sequence[str]) -> str:
    return one_line(" ".join(text[:_SHOWN] for text in texts), _SHOWN)


def _change_rows(change: str, left: Sequence[Side], right: Sequence[Side]) -> Iterator[DiffRow]:
    if change == "equal":
        yield from (DiffRow("same", *pair) for pair in zip(left, right, strict=True))
        return
    pairs = len(left) if len(left) == len(right) else 0
    yield from (DiffRow("changed", *pair) for pair in zip(left[:pairs], right[:pairs], strict=True))
    yield from (DiffRow("removed", side, None) for side in left[pairs:])
    yield from (DiffRow("added", None, side) for side in right[pairs:])
