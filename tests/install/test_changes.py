"""Several files change together, or none does."""

from __future__ import annotations

import os
import stat

import pytest

from context_compactor.agents.install.files import FileChange, missing_folders, read_file, write_all
from context_compactor.errors import CompactorError


def test_when_one_cannot_be_written_all_are_as_they_were(tmp_path):
    kept, gone, made = (tmp_path / name for name in ("kept", "gone", "deep/er/made"))
    kept.write_bytes(b"old")
    kept.chmod(0o640)
    gone.write_bytes(b"was")
    number = kept.stat().st_ino
    blocked = tmp_path / "folder"
    blocked.mkdir()
    (blocked / "inside").write_bytes(b"x")
    changes = [
        FileChange(kept, b"old", b"new"),
        FileChange(gone, b"was", None),
        FileChange(made, None, b"made"),
        FileChange(tmp_path / ("n" * 300), None, b"its name is too long"),
    ]
    with pytest.raises(CompactorError, match="too long"):
        write_all(changes)
    assert (kept.read_bytes(), kept.stat().st_ino, stat.S_IMODE(kept.stat().st_mode)) == (b"old", number, 0o640)
    assert gone.read_bytes() == b"was"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "gone", "kept"]


def test_all_are_written_and_nothing_else_is_left_beside_them(tmp_path):
    changed, gone, made = (tmp_path / name for name in ("changed", "gone", "deep/made"))
    changed.write_bytes(b"old")
    gone.write_bytes(b"was")
    write_all(
        [
            FileChange(changed, b"old", b"new"),
            FileChange(gone, b"was", None),
            FileChange(made, None, b"made", is_private=True),
        ]
    )
    assert (changed.read_bytes(), made.read_bytes()) == (b"new", b"made")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["changed", "deep", "made"]


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "settings"
    path.write_bytes(b"theirs")
    with pytest.raises(CompactorError, match="changed by another program"):
        write_all([FileChange(tmp_path / "other", None, b"x"), FileChange(path, b"what we read", b"ours")])
    assert path.read_bytes() == b"theirs"
    assert not (tmp_path / "other").exists()


def test_a_folder_that_was_made_goes_only_when_it_is_empty(tmp_path):
    empty, used = tmp_path / "empty", tmp_path / "used"
    (empty / "inner").mkdir(parents=True)
    used.mkdir()
    (used / "theirs").write_bytes(b"")
    write_all([], [empty, empty / "inner", used, tmp_path / "never there"])
    assert [each.name for each in tmp_path.iterdir()] == ["used"]


def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CompactorError, match="it is not a file"):
        read_file(tmp_path / "pipe")
    assert read_file(tmp_path / "none") is None


def test_a_folder_that_cannot_be_written_is_named(locked):
    with pytest.raises(CompactorError, match=r"cannot read .*locked/a/b: Permission denied"):
        write_all([FileChange(locked.parent / "locked" / "a" / "b", None, b"x")])


def test_folders_that_are_missing_come_from_the_outside_in(tmp_path):
    assert missing_folders(tmp_path / "a" / "b" / "file") == (tmp_path / "a", tmp_path / "a" / "b")
