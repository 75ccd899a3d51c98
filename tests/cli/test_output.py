from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.cli import output
from context_compactor.cli.output import messages_text, write_file, write_messages
from context_compactor.errors import BadSetting, CompactorError
from context_compactor.text import one_line

MESSAGES = [{"role": "user", "content": "a\nb"}, {"role": "assistant", "content": "ü"}]


def test_messages_are_a_json_array_with_one_message_on_each_line():
    text = messages_text(MESSAGES)
    assert json.loads(text) == MESSAGES
    assert len(text.splitlines()) == 4


def test_no_messages_are_an_empty_array():
    assert json.loads(messages_text([])) == []


def test_a_file_named_jsonl_gets_json_lines(tmp_path):
    write_messages(MESSAGES, str(tmp_path / "out.jsonl"))
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == MESSAGES


def test_half_a_character_is_written_as_an_escape(tmp_path):
    write_messages([{"role": "user", "content": "\ud800"}], str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_bytes())[0]["content"] == "\ud800"


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output.os, "fsync", full)
    with pytest.raises(CompactorError, match="No space left on device; nothing there was changed"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_while_writing_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(output.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_not_replaced(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_file(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_what_is_no_regular_file_is_written_to_as_it_is():
    write_file(Path(os.devnull), b"new")
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize(("place", "why"), [(".", "is a folder"), ("no/such/folder/out.json", "does not exist")])
def test_a_place_where_no_file_can_be_is_wrong_usage(tmp_path, place, why):
    with pytest.raises(BadSetting, match=why):
        write_file(tmp_path / place, b"new")


@given(st.text(), st.integers(2, 50))
def test_any_text_is_shown_as_one_printable_line_of_bounded_width(text, width):
    shown = one_line(text, width)
    assert len(shown) <= width
    assert shown.isprintable()


def test_text_of_a_conversation_cannot_drive_the_terminal():
    assert one_line("a\x1b[31mred\x07\r\nb", 80) == "a [31mred b"
