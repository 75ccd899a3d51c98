from __future__ import annotations

import hashlib
import os
from subprocess import CalledProcessError

import pytest

from context_compactor.handoff.checkpoint import DirtyFile, GitState, read_git


def print_of(folder):
    """Every file below a folder with its bytes and its times."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def statuses(state: GitState) -> dict[str, str]:
    return {file.path: file.status for file in state.dirty}


def test_a_clean_repository_names_its_branch_and_commit(git, project):
    commit = git(project, "rev-parse", "HEAD")[:12]
    assert read_git(project) == GitState(branch="main", commit=commit, subject="Begin")


def test_a_folder_below_belongs_to_the_repository(git, project):
    (project / "deep" / "down").mkdir(parents=True)
    assert read_git(project / "deep" / "down") == read_git(project)


def test_a_folder_without_a_repository_has_no_state(tmp_path):
    assert read_git(tmp_path) is None


def test_a_folder_that_is_not_there_has_no_state(tmp_path):
    assert read_git(tmp_path / "gone") is None


def test_without_git_there_is_no_state(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_git(project) is None


def test_what_is_staged_changed_renamed_deleted_and_new_is_listed(git, project):
    for name in ("b.txt", "c.txt", "d.txt"):
        (project / name).write_text(f"the content of {name}\n" * 9)
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "More")
    (project / "a.txt").write_text("two\n")
    git(project, "mv", "b.txt", "moved here.txt")
    (project / "c.txt").unlink()
    (project / "d.txt").write_text("staged\n")
    git(project, "add", "d.txt")
    (project / "new.txt").write_text("new\n")
    state = read_git(project)
    assert statuses(state) == {
        "a.txt": ".M",
        "c.txt": ".D",
        "d.txt": "M.",
        "moved here.txt": "R.",
        "new.txt": "??",
    }
    assert DirtyFile("R.", "moved here.txt", "b.txt") in state.dirty
    assert state.line().endswith('"More", 5 uncommitted')


@pytest.mark.parametrize(
    "name", ["a b.txt", "snow ☃ 🧊.txt", "two\nlines.txt", 'quo"te\\.txt', "-n", "? x", "# branch.head x"]
)
def test_odd_names_come_back_as_they_are(git, project, name):
    (project / name).write_text("x\n" * 50)
    assert statuses(read_git(project)) == {name: "??"}
    git(project, "add", "--", name)
    git(project, "commit", "-q", "-m", "Odd")
    git(project, "mv", "--", name, "plain.txt")
    state = read_git(project)
    assert state.dirty == (DirtyFile("R.", "plain.txt", name),)
    assert state.branch == "main"


def test_a_name_that_is_no_text_is_shown_escaped(project):
    with open(os.fsencode(project) + b"/bad\xff.txt", "wb") as file:  # noqa: PTH123
        file.write(b"x")
    assert statuses(read_git(project)) == {"bad\\xff.txt": "??"}


def test_thousands_of_dirty_files_are_counted_and_the_first_listed(project):
    for number in range(3_000):
        (project / f"new_{number}.txt").touch()
    state = read_git(project)
    assert len(state.dirty) == 100
    assert state.more_dirty == 2_900
    assert "3,000 uncommitted" in state.line()


def test_conflicts_are_listed_before_everything_else(git, project):
    git(project, "checkout", "-q", "-b", "other")
    (project / "a.txt").write_text("theirs\n")
    git(project, "commit", "-q", "-a", "-m", "Theirs")
    git(project, "checkout", "-q", "main")
    (project / "a.txt").write_text("ours\n")
    git(project, "commit", "-q", "-a", "-m", "Ours")
    with pytest.raises(CalledProcessError):
        git(project, "merge", "other")
    for number in range(200):
        (project / f"0_{number}.txt").touch()
    git(project, "add", "0_1.txt")
    state = read_git(project)
    assert state.dirty[0] == DirtyFile("UU", "a.txt")
    assert state.conflicts == ("a.txt",)


def test_a_repository_without_commits_has_a_branch_and_no_commit(git, tmp_path):
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "x").touch()
    state = read_git(tmp_path)
    assert (state.branch, state.commit, state.subject, state.problem) == ("trunk", "", "", "")
    assert state.line() == "branch trunk without commits, 1 uncommitted"


def test_a_detached_head_has_no_branch(git, project):
    git(project, "checkout", "-q", "--detach")
    state = read_git(project)
    assert state.is_detached
    assert state.branch == ""
    assert state.line().startswith("detached HEAD at ")


def test_ahead_and_behind_are_told_when_there_is_an_upstream(git, project, tmp_path):
    git(tmp_path, "clone", "-q", str(project), "copy")
    copy = tmp_path / "copy"
    (copy / "a.txt").write_text("mine\n")
    git(copy, "commit", "-q", "-a", "-m", "Mine")
    (project / "a.txt").write_text("theirs\n")
    git(project, "commit", "-q", "-a", "-m", "Theirs")
    git(copy, "fetch", "-q")
    state = read_git(copy)
    assert (state.upstream, state.ahead, state.behind) == ("origin/main", 1, 1)
    git(copy, "branch", "-q", "-r", "-d", "origin/main")
    assert (read_git(copy).ahead, read_git(copy).behind) == (None, None)


def test_a_worktree_has_a_state_of_its_own(git, project, tmp_path):
    git(project, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert read_git(tmp_path / "side").branch == "side"
    assert read_git(project).branch == "main"


def test_the_folder_decides_and_not_the_environment_of_a_hook(git, project, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    git(tmp_path / "other", "init", "-q", "-b", "elsewhere")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert read_git(project).branch == "main"


@pytest.mark.parametrize("damaged", ["HEAD", "index", "objects", "config"])
def test_a_damaged_repository_is_a_state_with_a_problem(project, damaged):
    place = project / ".git" / damaged
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if place.is_file():
        place.write_bytes(b"\0damaged" * 20)
    state = read_git(project)
    assert state.problem
    assert state.line().startswith("could not be read: ")
    assert "\n" not in state.problem


def test_an_empty_git_folder_and_a_lost_worktree_are_problems_too(tmp_path):
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / ".git").write_text("gitdir: nowhere\n")
    assert "not a git repository" in read_git(tmp_path / "empty").problem
    assert "not a git repository" in read_git(tmp_path / "lost").problem


def test_a_git_that_does_not_answer_is_left_alone_after_a_while(project, tmp_path, monkeypatch):
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    assert read_git(project, seconds=0.2).problem == "git status did not answer within 0.2 seconds"


def test_reading_writes_nothing(git, project):
    (project / "b.txt").write_text("new\n")
    monitor = project / ".git" / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch '{project}/.git/was-run'\n")
    monitor.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(monitor))
    git(project, "config", "core.untrackedCache", "true")
    # Git would like to note in its index that only the time of this file has changed.
    os.utime(project / "a.txt", (1_000_000_000, 1_000_000_000))
    before = print_of(project)
    assert statuses(read_git(project)) == {"b.txt": "??"}
    assert print_of(project) == before


def test_a_repository_that_may_not_be_written_is_read(git, project):
    os.utime(project / "a.txt", (1_000_000_000, 1_000_000_000))
    (project / ".git" / "index.lock").touch()
    assert read_git(project).problem == ""
