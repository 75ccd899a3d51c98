"""Many changed files in one line of the record: each can be read back, and the newest keep a line of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.record import STANDING
from context_compactor.facts.ledgers import LedgerLine, group_files, split_group

NAMES = st.text("abcxyz_-.0", min_size=1, max_size=8).filter(lambda name: name.strip("."))
PATHS = st.lists(
    st.tuples(st.lists(NAMES, max_size=3), NAMES).map(lambda each: "/".join((*each[0], each[1]))), unique=True
)


def changed(paths: list[str], status: str = "uncommitted") -> list[LedgerLine]:
    return [
        LedgerLine(STANDING, f"{path} · ~ change (file_{turn:03d})", turn, False, status)
        for turn, path in enumerate(paths, 1)
    ]


def words(text: str) -> int:
    return len(text.split())


@given(PATHS)
def test_every_file_is_either_a_line_of_its_own_or_read_back_from_the_group(paths):
    groups, rest = group_files(changed(paths), 10_000, words)
    read = [entry.text for line in groups for entry in split_group(line.entry)]
    own = [line.text.split(" · ")[0] for line in rest]
    assert sorted(read + own) == sorted(paths)
    assert len(own) <= 8


def test_a_few_files_are_left_as_they_are():
    lines = changed([f"src/{number}.py" for number in range(8)])
    assert group_files(lines, 1_000, words) == ([], lines)


def test_files_of_one_folder_share_its_name_and_each_status_has_its_line():
    lines = changed([f"src/shop/h{number}.py" for number in range(11)])
    made = changed([f"tests/t{number}.py" for number in range(9)], "created")
    groups, rest = group_files([*lines, *made], 1_000, words)
    assert [line.written for line in groups] == [
        "uncommitted: src/shop/{h0.py, h1.py, h2.py}",
        "created: tests/t0.py",
    ]
    assert len(rest) == 16


def test_what_does_not_fit_stays_out_of_the_group_the_oldest_first():
    lines = changed([f"src/h{number}.py" for number in range(100)])
    (group,), rest = group_files(lines, 30, words)
    assert words(group.text) <= 30
    assert "h91.py" in group.text
    assert len(rest) + len(split_group(group.entry)) == 100
