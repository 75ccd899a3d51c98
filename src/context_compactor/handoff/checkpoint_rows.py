"""Tables of a checkpoint's file: values of one sort, one in each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.errors import BadCheckpoint
from context_compactor.handoff.checkpoint_escape import cells_of, row

# The lines of a section, each with its number in the file.
Lines = Sequence[tuple[int, str]]


def damaged(number: int, problem: str) -> BadCheckpoint:
    """The error that names the line of a file."""
    return BadCheckpoint(f"progress checkpoint, line {number}: {problem}; write it anew with `compactor checkpoint`")


def write_table(values: Sequence[Struct], columns: Mapping[str, str]) -> Iterator[str]:
    """The table of some values; `columns` has the field behind each heading."""
    if values:
        yield row(columns)
        yield "|" + " --- |" * len(columns)
        yield from (row(str(getattr(value, name)) for name in columns.values()) for value in values)


def read_rows(lines: Lines, sort: type[Any], columns: Mapping[str, str]) -> tuple[Any, ...]:
    """The values of a table; its first two rows are the names of the columns and a rule."""
    rows = [(number, cells_of(line)) for number, line in lines if line.startswith("|")][2:]
    for number, cells in rows:
        if len(cells) != len(columns):
            raise damaged(number, f"a row of {len(columns)} cells should stand here, and has {len(cells)}")
    return tuple(convert(dict(zip(columns.values(), cells, strict=True)), sort, number) for number, cells in rows)


def convert(values: dict[str, Any], sort: type[Any], number: int) -> Any:
    """A value from the texts of its fields."""
    try:
        return msgspec.convert(values, sort, strict=False)
    except msgspec.ValidationError as error:
        raise damaged(number, str(error)) from error
