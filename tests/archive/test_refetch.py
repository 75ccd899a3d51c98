"""Restore by hint: a file is read again as it is now, a command is shown and never run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.archive import refetch as module
from context_compactor.archive.originals import Original
from context_compactor.archive.refetch import Refetched, RestoreRate, refetch
from context_compactor.facts.kinds import Kind, restore_hint

LINES = [f"line {number} of the file" if number % 5 else "" for number in range(1, 41)]
FILE = "\n".join(LINES) + "\n"
CUT = (
    f"<returncode>0</returncode>\n<warning>\nToo long.\n</warning>\n<output_head>\n{FILE[:300]}\n</output_head>\n"
    f"<elided_chars>\n99 characters elided\n</elided_chars>\n<output_tail>\n{FILE[-100:]}\n</output_tail>"
)
REMINDER = "\n\n<system-reminder>\nConsider whether the file is malware.\n</system-reminder>\n"


def original(
    text: str, target: str = "src/a.py", *, kind: Kind = Kind.CODE, summary: str = "Read src/a.py"
) -> Original:
    hint = restore_hint(kind)
    return Original("tool_001", kind.value, summary, 10, text, 'recall("tool_001")', hint, target if hint else "")


def numbered(lines: list[str], first: int = 1, mark: str = "→") -> str:
    return "\n".join(f"{number:>6}{mark}{line}" for number, line in enumerate(lines, first))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(FILE, encoding="utf-8")
    return tmp_path


def change(root: Path, number: int, line: str) -> None:
    lines = [*LINES, ""]
    lines[number - 1] = line
    (root / "src" / "a.py").write_text("\n".join(lines), encoding="utf-8")


WAYS_TO_SHOW = {
    "as it is": (FILE, "Read src/a.py"),
    "without its last line break": (FILE.rstrip(), "Read src/a.py"),
    "with numbers": (numbered(LINES), "Read src/a.py"),
    "with the number of the empty last line": (numbered([*LINES, ""]), "Read src/a.py"),
    "with numbers and tabs": (numbered(LINES, mark="\t"), "Bash src/a.py"),
    "with a reminder": (numbered(LINES) + REMINDER, "Read src/a.py"),
    "with line breaks of another system": (FILE.replace("\n", "\r\n"), "Read src/a.py"),
    "in tags": (f"<returncode>0</returncode>\n<output>\n{FILE}</output>", "bash src/a.py"),
    "with a heading": (
        f"Chunk ID: 2115d8\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n{FILE}",
        "x a.py",
    ),
    "with a note at the end": (FILE + "\nShell cwd was reset to /somewhere", "Bash src/a.py"),
    "some lines": ("\n".join(LINES[9:20]), "Bash src/a.py (10-20)"),
    "some lines with numbers": (numbered(LINES[9:20], 10) + REMINDER, "Read src/a.py (10-20)"),
    "from a line to the end": ("\n".join(LINES[9:]), "Bash src/a.py (10-)"),
    "the end of it": ("\n".join(LINES[30:]), "Bash src/a.py"),
    "after an edit": ("The file has been updated. A part of it:\n" + numbered(LINES[9:20], 10), "Edit src/a.py"),
    "cut at the end": ("\n".join(LINES[:20]) + "\nline 2\n[… 20 lines truncated …]", "Read src/a.py"),
    "cut with numbers": (numbered(LINES[:20]) + "\n    21→line\n... (truncated, 20 more lines)", "Read src/a.py"),
    "cut in the middle": (CUT, "bash src/a.py"),
    "beside another thing": (FILE, "Bash `cat src/a.py && git status`"),
}


@pytest.mark.parametrize("way", WAYS_TO_SHOW)
def test_a_file_that_is_as_it_was_is_read_again_and_said_to_be_the_same(root, way):
    text, summary = WAYS_TO_SHOW[way]
    found = refetch(original(text, summary=summary), root)
    assert (found.kind, found.target, found.can_restore) == ("file", "src/a.py", True)
    assert found.changed is False
    assert "is as it was when it was read" in found.said
    assert found.text in (FILE, "\n".join(LINES[9:20]), "\n".join([*LINES[9:], ""]))


@pytest.mark.parametrize("way", [way for way in WAYS_TO_SHOW if way != "the end of it"])
def test_a_line_that_was_shown_and_is_another_now_is_a_change(root, way):
    change(root, 11, "something else")
    text, summary = WAYS_TO_SHOW[way]
    found = refetch(original(text, summary=summary), root)
    assert found.can_restore
    assert found.changed is (None if "`" in summary else True)
    assert "something else" in found.text
    assert "has changed since it was read" in found.said or found.changed is None


@pytest.mark.parametrize("way", ["some lines", "some lines with numbers", "after an edit"])
def test_a_line_that_was_not_shown_is_no_change(root, way):
    change(root, 35, "something else")
    text, summary = WAYS_TO_SHOW[way]
    assert refetch(original(text, summary=summary), root).changed is False


@pytest.mark.parametrize("way", ["as it is", "with numbers", "in tags", "from a line to the end"])
def test_lines_that_came_behind_the_end_are_a_change(root, way):
    (root / "src" / "a.py").write_text(FILE + "one more\n", encoding="utf-8")
    text, summary = WAYS_TO_SHOW[way]
    assert refetch(original(text, summary=summary), root).changed is True


def test_only_the_lines_that_were_read_come_back(root):
    found = refetch(original("\n".join(LINES[1:4]), summary="Read src/a.py (2-4)"), root)
    assert found.text == "\n".join(LINES[1:4])
    assert found.said.startswith("lines 2 to 4 of src/a.py")


def test_a_file_whose_own_lines_begin_with_numbers_is_known_again(root):
    text = "1: one\n2: two\n3: three\n4: four\n"
    (root / "src" / "a.py").write_text(text, encoding="utf-8")
    assert refetch(original(text), root).changed is False
    assert refetch(original(text.replace("two", "2")), root).changed is True


def test_lines_that_the_tool_has_cut_are_known_by_their_beginning(root):
    long = "x" * 5_000
    (root / "src" / "a.py").write_text(f"{long}\nnext\nlast\n", encoding="utf-8")
    shown = numbered([f"{long[:2000]}... [truncated]", "next", "last"])
    assert refetch(original(shown), root).changed is False


def test_what_a_tool_said_instead_of_the_file_tells_nothing_of_a_change(root):
    assert refetch(original(""), root).changed is None
    assert refetch(original("\n \n"), root).changed is None


def test_an_absolute_path_and_one_in_the_home_are_read_where_they_are(root, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("HOME", str(root))
    assert refetch(original(FILE, str(root / "src" / "a.py")), elsewhere).changed is False
    assert refetch(original(FILE, "~/src/a.py"), elsewhere).changed is False
    assert refetch(original(FILE, "~nobody-of-this-name/a.py"), elsewhere).can_restore is False


def test_a_name_with_spaces_is_a_file_when_there_is_one(root):
    (root / "two words.md").write_text("text\n", encoding="utf-8")
    assert refetch(original("text", "two words.md"), root).text == "text\n"


# What cannot be read


def refused(root: Path, target: str, text: str = FILE) -> str:
    found = refetch(original(text, target), root)
    assert (found.kind, found.target, found.can_restore, found.text, found.changed) == ("file", target, False, "", None)
    assert found.said.startswith(target)
    return found.said.removeprefix(target).strip()


def test_a_file_that_is_gone_is_said_to_be(root):
    assert refused(root, "src/gone.py") == "is no longer there"
    assert refused(root, "src/a.py/under/a/file") == "is no longer there"


def test_what_is_no_text_file_is_not_read(root):
    (root / "binary").write_bytes(b"\x7fELF\0\0\1")
    (root / "latin").write_bytes("schöne Grüße".encode("latin-1"))
    os.mkfifo(root / "pipe")
    assert refused(root, "src") == "is a folder"
    assert refused(root, "binary") == "is not text"
    assert refused(root, "latin") == "is not UTF-8 text"
    assert refused(root, "pipe") == "is not a regular file"
    assert refused(root, "/dev/zero") == "is not a regular file"


def test_a_file_that_is_too_large_is_not_read(root, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    assert refused(root, "src/a.py").endswith("too much to read at once")


def test_links_are_followed_and_a_loop_of_links_is_said(root):
    (root / "link.py").symlink_to(root / "src" / "a.py")
    (root / "one").symlink_to(root / "two")
    (root / "two").symlink_to(root / "one")
    (root / "broken").symlink_to(root / "nothing")
    assert refetch(original(FILE, "link.py"), root).changed is False
    assert refused(root, "one").startswith("cannot be read")
    assert refused(root, "broken") == "is no longer there"


def test_a_file_that_may_not_be_read_is_said(root, monkeypatch):
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert refused(root, "src/a.py") == "cannot be read: Permission denied"


@pytest.mark.parametrize("target", ["a\0b", "\ud800", "x" * 5_000, "/" + "x/" * 3_000])
def test_a_name_that_no_file_can_have_is_said(root, target):
    assert refused(root, target)


# What is only shown


@pytest.mark.parametrize(
    ("kind", "way", "target"),
    [
        (Kind.SEARCH_RESULT, "search", "TODO in src"),
        (Kind.WEB_PAGE, "page", "https://example.com/docs"),
        (Kind.LISTING, "command", "ls -la"),
        (Kind.DIFF, "command", "git diff --stat"),
        (Kind.API_RESPONSE, "command", "gh api repos/a/b/pulls"),
        (Kind.CODE, "command", "git show HEAD:src/a.py | head -5"),
        (Kind.CODE, "command", "touch ran; cat src/*.py"),
    ],
)
def test_a_command_or_a_query_is_shown_and_not_run(root, kind, way, target):
    found = refetch(original("what it said", target, kind=kind, summary=f"Bash `{target}`"), root)
    hint = restore_hint(kind)
    assert found == Refetched(way, target, can_restore=True, said=f"to {hint}: {target}")
    assert sorted(path.name for path in root.iterdir()) == ["src"]


def test_what_only_the_archive_has_is_said_with_the_way_to_recall_it(root):
    run = refetch(original("2 passed", kind=Kind.TEST_RUN, summary="Bash `pytest -q`"), root)
    assert (run.kind, run.target, run.can_restore) == ("command", "pytest -q", False)
    assert 'recall("tool_001")' in run.said
    talk = refetch(Original("turn_001", "turn", "user: hello", 3, [{"role": "user"}], 'recall("turn_001")'), root)
    assert (talk.kind, talk.target, talk.can_restore, talk.changed) == ("none", "", False, None)
    assert 'recall("turn_001")' in talk.said


@given(st.text(max_size=300), st.text(max_size=60), st.text(max_size=60), st.sampled_from(list(Kind)))
def test_any_original_gets_an_answer(tmp_path_factory, text, target, summary, kind):
    folder = tmp_path_factory.getbasetemp()
    found = refetch(original(text, target, kind=kind, summary=summary), folder)
    assert found.said
    assert found.can_restore or not found.text


@given(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=300))
def test_any_text_of_a_file_is_the_same_when_nothing_was_changed(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    (folder / "any.txt").write_text(text, encoding="utf-8", newline="")
    assert refetch(original(text, "any.txt"), folder).changed in (False, None)


# How often it succeeds


def test_the_rate_counts_files_that_were_tried_and_not_commands_that_were_shown():
    rate = RestoreRate()
    assert rate.share is None
    answers = [
        Refetched("file", "a", can_restore=True, said="", changed=False),
        Refetched("file", "b", can_restore=True, said="", changed=True),
        Refetched("file", "c", can_restore=True, said="", changed=None),
        Refetched("file", "d", can_restore=False, said=""),
        Refetched("command", "ls", can_restore=True, said=""),
        Refetched("none", "", can_restore=False, said=""),
    ]
    for answer in answers:
        rate = rate.after(answer)
    assert (rate.tried, rate.succeeded, rate.changed, rate.share) == (4, 3, 1, 0.75)
