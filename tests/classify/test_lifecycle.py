from __future__ import annotations

from typing import Any

from hypothesis import given

from context_compactor.dialects.turns import Turn
from context_compactor.facts.file_history import FileRead, file_history
from tests.facts.conversations import bash, call, histories, patch, system, turns_of, user


def read(path: str, **lines: Any) -> list:  # type: ignore[type-arg]
    return call("Read", "1→x = 1", file_path=path, **lines)


def edit(path: str, answer: str = "The file has been updated.", is_error: bool = False) -> list:  # type: ignore[type-arg]
    return call("Edit", answer, is_error, file_path=path, old_string="a", new_string="b")


def write(path: str, answer: str = "File created successfully") -> list:  # type: ignore[type-arg]
    return call("Write", answer, file_path=path, content="x = 2")


def test_a_read_is_superseded_by_a_later_one_that_shows_the_same_lines() -> None:
    life = file_history(turns_of(read("/a.py", offset=10, limit=20), read("/b.py"), read("/a.py")))
    assert life.superseded == {1: 3}
    assert life.latest == {"/a.py": 3, "/b.py": 2}
    assert life.loaded == 2


def test_a_later_read_of_fewer_lines_supersedes_nothing() -> None:
    assert file_history(turns_of(read("/a.py"), read("/a.py", offset=10, limit=20))).superseded == {}


def test_a_read_is_still_the_newest_view_after_an_edit() -> None:
    life = file_history(turns_of(read("/a.py"), edit("/a.py"), edit("/a.py")))
    assert life.superseded == {}
    assert life.files["/a.py"].latest == 1
    assert life.files["/a.py"].status == "edited"


def test_a_read_is_superseded_when_the_file_is_written_anew() -> None:
    life = file_history(turns_of(read("/a.py"), write("/a.py")))
    assert life.superseded == {1: 2}
    assert life.files["/a.py"].latest == 2


def test_an_edit_that_failed_changes_nothing() -> None:
    life = file_history(turns_of(read("/a.py"), edit("/a.py", "String to replace not found in file.", True)))
    assert life.files["/a.py"].status == "read"


def test_a_command_that_failed_may_have_written_its_file() -> None:
    step = bash("cat > t.py <<'EOF'\nraise KeyError\nEOF\npython t.py", "Exit code 1\nKeyError")
    assert file_history(turns_of(step)).files["t.py"].status == "created"


def uncommitted(turns: list[Turn]) -> list[str]:
    return [path for path, record in file_history(turns).files.items() if record.is_uncommitted]


def test_changes_are_uncommitted_until_a_commit_is_seen() -> None:
    steps = (edit("/repo/a.py"), bash("git add -A && git commit -m 'x'", "[main 1234567] x"), edit("/repo/b.py"))
    assert uncommitted(turns_of(*steps)) == ["/repo/b.py"]


def test_a_commit_that_failed_commits_nothing() -> None:
    steps = (edit("/repo/a.py"), bash("git commit -m 'x'", "Exit code 1\nerror: hook failed"))
    assert uncommitted(turns_of(*steps)) == ["/repo/a.py"]


def test_scratch_files_are_never_uncommitted_work() -> None:
    assert uncommitted(turns_of(write("/tmp/try.py"))) == []


def test_relative_paths_are_joined_to_the_folder_of_the_call() -> None:
    turns = turns_of(
        call("exec_command", "x", cmd="sed -n '1,20p' src/a.ts", workdir="/home/me/project"),
        bash("cd /home/me/project && cat src/a.ts", "x"),
        read("/home/me/project/src/a.ts"),
    )
    assert list(file_history(turns).files) == ["/home/me/project/src/a.ts"]


def test_relative_paths_are_joined_to_the_folder_named_at_the_start() -> None:
    turns = turns_of(
        system("<env>\nWorking directory: /repo\n</env>"), user("go"), bash("cat src/a.py", "x"), read("/repo/src/a.py")
    )
    assert list(file_history(turns).files) == ["/repo/src/a.py"]


def test_a_relative_path_is_the_only_absolute_path_that_ends_in_it() -> None:
    turns = turns_of(
        bash("cat src/a.py", "x"), read("/repo/src/a.py"), bash("cat b.py", "x"), read("/x/b.py"), read("/y/b.py")
    )
    assert list(file_history(turns).files) == ["/repo/src/a.py", "b.py", "/x/b.py", "/y/b.py"]


def test_dots_in_a_path_do_not_make_another_file() -> None:
    assert list(file_history(turns_of(read("/repo/./src/../a.py"), read("/repo/a.py"))).files) == ["/repo/a.py"]


def test_a_patch_may_create_change_and_delete_several_files() -> None:
    text = "*** Begin Patch\n*** Add File: /p/new.py\n*** Update File: /p/old.py\n-a\n+b\n*** Delete File: /p/gone.py\n"
    files = file_history(turns_of(patch(text))).files
    assert {path: record.status for path, record in files.items()} == {
        "/p/new.py": "created",
        "/p/old.py": "edited",
        "/p/gone.py": "deleted",
    }


def test_a_command_that_shows_two_files_is_superseded_only_when_both_are() -> None:
    both = bash("cat /a.py /b.py", "x")
    assert file_history(turns_of(both, read("/a.py"))).superseded == {}
    assert file_history(turns_of(both, read("/a.py"), read("/b.py"))).superseded == {1: 3}


def test_a_path_in_a_variable_is_not_a_file() -> None:
    assert file_history(turns_of(bash('cat "$FILE" > $OUT', "x"))).files == {}


def test_a_read_to_the_end_covers_one_with_an_end() -> None:
    assert FileRead(2, 2, 5, None).covers(FileRead(1, 1, 6, 90))
    assert not FileRead(2, 2, 5, 40).covers(FileRead(1, 1, 6, None))


@given(histories)
def test_no_history_breaks_the_life_of_files(turns: list[Turn]) -> None:
    life = file_history(turns)
    assert life == file_history(turns)
    numbers = {exchange.number for turn in turns for exchange in turn.exchanges}
    assert set(life.superseded) | set(life.latest.values()) <= numbers
    assert all(by > number for number, by in life.superseded.items())
