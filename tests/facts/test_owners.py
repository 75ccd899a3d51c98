"""Whose lessons are whose: what an owner's folder is called, and listing, claiming and removing lessons."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadInput, CompactorError
from context_compactor.facts.lesson_folders import (
    add_lessons,
    claim_lessons,
    list_lessons,
    load_lessons,
    make_owner_folder,
    owner_folder,
    remove_lessons,
    remove_owner,
)
from context_compactor.facts.lessons import Lesson

REDIS = "We decided to keep sessions in Redis."
TOML = "The config format is TOML rather than YAML."
OLD = (
    b"# Decisions\r\n\r\nMy own words.\r\n\r\n- Never deploy on Fridays.\r\n"
    b"- We chose Rust over Go.\r\n  by the agent \xc2\xb7 2026-01-26 \xc2\xb7 1 session \xc2\xb7 run-1 turn_017\r\n"
    b"- ~~Use Redis.~~\r\n\xff\r\n"
)


def teach(learned: Path, owner: str, *texts: str) -> None:
    lessons = [Lesson(text, "user", "2026-01-26", "run-1", "turn_017") for text in texts]
    add_lessons(make_owner_folder(learned, owner), "decisions", lessons)


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    teach(tmp_path, "ann", REDIS, TOML)
    teach(tmp_path, "ben", REDIS)
    return tmp_path


HOSTILE = ["..", ".", "/", "../../etc", "/etc/passwd", "a/../../b", "~root", "con", "a\\b", "x" * 300, " ", "-rf", "ä"]


@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)))
def test_whatever_an_owner_is_called_the_folder_is_right_below_the_learned_one(owner):
    learned = Path("/project/.compactor/learned")
    folder = owner_folder(learned, owner)
    assert folder.parent == learned
    assert folder.name not in (".", "..")
    assert len(folder.name) <= 60
    assert folder.name.isascii()


@pytest.mark.parametrize(
    ("one", "other"), [("ann", "Ann"), ("a/b", "a_b"), ("\u00e9", "e\u0301"), ("x" * 99, "x" * 98)]
)
def test_two_owners_never_share_a_folder_even_where_case_does_not_count(tmp_path, one, other):
    assert owner_folder(tmp_path, one).name.lower() != owner_folder(tmp_path, other).name.lower()


def test_every_lesson_is_listed_with_its_owner_and_where_it_comes_from(learned):
    found = list_lessons(learned)
    assert [(each.owner, each.text) for each in found] == [("ann", REDIS), ("ann", TOML), ("ben", REDIS)]
    assert len({each.id for each in found}) == 3
    assert {(each.by, each.sessions, each.sources, each.is_read) for each in found} == {
        ("user", 1, ("run-1 turn_017",), True)
    }
    assert list_lessons(learned / "nowhere") == []


def test_a_lesson_is_removed_by_its_id_and_does_not_come_back_from_its_session(learned):
    first = list_lessons(learned)[0]
    assert remove_lessons(learned, [first.id]) == [first]
    assert [(each.owner, each.text) for each in list_lessons(learned)] == [("ann", TOML), ("ben", REDIS)]
    teach(learned, "ann", REDIS)
    assert [each.owner for each in list_lessons(learned)] == ["ann", "ben"]


def test_an_id_that_there_is_not_removes_nothing(learned):
    before = list_lessons(learned)
    with pytest.raises(BadInput, match=r"no lesson 'ffff'.*compactor lessons"):
        remove_lessons(learned, [before[0].id, "ffff"])
    assert list_lessons(learned) == before


def test_all_lessons_of_one_owner_are_removed_and_no_others(learned):
    assert len(remove_owner(learned, "ann")) == 2
    assert [each.owner for each in list_lessons(learned)] == ["ben"]
    with pytest.raises(BadInput, match="'ann' has no lessons; owners with lessons: 'ann', 'ben'"):
        remove_owner(learned, "ann")


def test_lessons_from_before_there_were_owners_are_listed_and_not_read(learned):
    (learned / "decisions.md").write_bytes(OLD)
    found = [each for each in list_lessons(learned) if each.owner is None]
    assert [each.text for each in found] == ["Never deploy on Fridays.", "We chose Rust over Go.", "Use Redis."]
    assert not any(each.is_read for each in found)
    assert "Rust" not in load_lessons(owner_folder(learned, "ann"), 500)


def test_a_lesson_without_an_owner_can_be_claimed_and_the_rest_stays_byte_for_byte(learned):
    (learned / "decisions.md").write_bytes(OLD)
    rust = next(each for each in list_lessons(learned) if "Rust" in each.text)
    claim_lessons(learned, "ben", [rust.id])
    assert "Rust" in load_lessons(owner_folder(learned, "ben"), 500)
    assert "Rust" not in load_lessons(owner_folder(learned, "ann"), 500)
    entry = OLD[OLD.index(b"- We chose") : OLD.index(b"- ~~Use")]
    assert (learned / "decisions.md").read_bytes() == OLD.replace(entry, b"")
    assert entry in (owner_folder(learned, "ben") / "decisions.md").read_bytes()


def test_all_lessons_without_an_owner_are_claimed_or_removed_at_once(learned):
    (learned / "decisions.md").write_bytes(OLD)
    assert len(claim_lessons(learned, "eve")) == 3
    assert {each.owner for each in list_lessons(learned)} == {"ann", "ben", "eve"}
    found = load_lessons(owner_folder(learned, "eve"), 500)
    assert "Never deploy on Fridays." in found
    assert "Use Redis." not in found
    (learned / "decisions.md").write_bytes(OLD)
    assert len(remove_owner(learned, None)) == 3
    assert (learned / "decisions.md").read_bytes() == b"# Decisions\r\n\r\nMy own words.\r\n\r\n\xff\r\n"


def test_what_belongs_to_somebody_cannot_be_claimed(learned):
    first = list_lessons(learned)[0]
    with pytest.raises(BadInput, match="belongs to 'ann'"):
        claim_lessons(learned, "ben", [first.id])
    assert list_lessons(learned)[0] == first


def test_a_folder_that_says_it_is_somebody_elses_belongs_to_nobody(learned):
    (owner_folder(learned, "ben") / ".owner").write_text("ann")
    assert [each.owner for each in list_lessons(learned)] == ["ann", "ann", None]


def test_a_link_in_the_place_of_an_owners_folder_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "decisions.md").write_text("- A secret of somebody else.\n")
    learned = tmp_path / "learned"
    learned.mkdir()
    owner_folder(learned, "ann").symlink_to(elsewhere)
    assert list_lessons(learned) == []
    with pytest.raises(CompactorError, match="is a link"):
        teach(learned, "ann", REDIS)
    assert [each.name for each in elsewhere.iterdir()] == ["decisions.md"]
