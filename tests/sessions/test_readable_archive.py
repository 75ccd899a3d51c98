"""The readable archive beside a store holds every original, wherever the store has come from."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from context_compactor.archive.export import read_export
from context_compactor.archive.storage import terms_of
from context_compactor.store.copy import copy_sessions
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import messages, opened


def talk_on(folder: Path, first: int, after: int, session_id: str = "run") -> set[str]:
    """Go on with a session and compact it; the ids of all its originals."""
    with opened(folder, session_id) as session:
        session.append(messages(first, after))
        assert session.compact().changed
        return {each.ref for each in session._core.store.originals(session_id)}


def exported(folder: Path, session_id: str = "run") -> set[str]:
    (manifest,) = folder.rglob(f"{session_id}/manifest.json")
    return set(read_export(manifest.parent).values)


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A folder with a session that was copied there from a store with many others."""
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    for name in ("a", "b"):
        talk_on(there, 0, 60, name)
    talk_on(there, 0, 60)
    with (
        closing(SqliteStore(str(there / "sessions.db"))) as old,
        closing(SqliteStore(str(here / "sessions.db"))) as new,
    ):
        old.expire("9999", spare=["run"])
        list(copy_sessions(old, new, terms_of))
    return here


def test_what_is_archived_is_added_bit_by_bit(tmp_path: Path):
    talk_on(tmp_path, 0, 60)
    refs = talk_on(tmp_path, 60, 120)
    assert exported(tmp_path) == refs


def test_after_a_copy_everything_is_written_beside_the_new_store(moved: Path):
    refs = talk_on(moved, 60, 140)
    assert exported(moved) == refs


def test_a_readable_archive_that_was_deleted_is_written_anew(tmp_path: Path):
    talk_on(tmp_path, 0, 60)
    (manifest,) = tmp_path.rglob("run/manifest.json")
    shutil.rmtree(manifest.parent)
    refs = talk_on(tmp_path, 60, 120)
    assert exported(tmp_path) == refs


def test_a_note_with_a_number_of_another_store_does_no_harm(tmp_path: Path):
    talk_on(tmp_path, 0, 60)
    with opened(tmp_path) as session:
        session._core.note("exported", (10_000, 60))  # as it was written before
    refs = talk_on(tmp_path, 60, 120)
    assert exported(tmp_path) == refs
