"""What is told of changed files: what changed in them, and whether it is committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import Message
from context_compactor.facts.fact import Fact
from context_compactor.facts.files import compare_definitions
from context_compactor.facts.ledgers import extract_facts
from tests.facts.conversations import bash, call, patch, texts, turns_of

COMMITTED = "[main 1234abc] Rotate tokens\n 1 file changed"


def files(*steps: list[Message]) -> dict[str, Fact]:
    return {fact.content: fact for fact in extract_facts(turns_of(*steps)) if fact.kind == "file_state"}


def statuses(*steps: list[Message]) -> dict[str, str]:
    return {path: fact.status for path, fact in files(*steps).items()}


def edit(path: str, old: str = "a = 1", new: str = "a = 2") -> list[Message]:
    return call("Edit", "updated", file_path=path, old_string=old, new_string=new)


# What changed


def test_an_edit_is_told_by_the_definitions_that_it_adds_changes_and_removes() -> None:
    old = "def verify(token):\n    return token\n\ndef legacy(token):\n    pass\n"
    new = "def verify(token):\n    return check(token)\n\ndef rotate(old, leeway=5):\n    pass\n"
    assert files(edit("/r/jwt.py", old, new))["/r/jwt.py"].detail == "~ verify, + def rotate(old, leeway=5), − legacy"


def test_an_edit_inside_a_function_is_told_by_the_function_that_was_read_before() -> None:
    shown = "     1→func Verify(t string) error {\n     2→\tleeway := 0\n     3→\treturn nil\n     4→}"
    steps = (
        call("Read", shown, file_path="/r/jwt.go"),
        edit("/r/jwt.go", "\tleeway := 0", "\tleeway := 5"),
    )
    assert files(*steps)["/r/jwt.go"].detail == "~ Verify"


def test_what_is_added_and_removed_again_was_never_there() -> None:
    steps = (edit("/r/a.py", "x", "def f(): pass"), edit("/r/a.py", "def f(): pass", "def g(): pass"))
    assert files(*steps)["/r/a.py"].detail == "+ def g()"


@pytest.mark.parametrize(
    ("path", "old", "new", "detail"),
    [
        ("/r/a.ts", "", "export const load = async (id: string) => {\n", "+ load"),
        ("/r/a.test.ts", "x", "it('rotates on use', () => {", '+ test "rotates on use"'),
        ("/r/lib.rs", "pub fn old() {}", "pub struct Token {}", "+ struct Token, − old"),
        ("/r/README.md", "## Use\nold", "## Use\nnew\n## Limits\nnone", "~ Use, + Limits"),
        ("/r/settings.toml", "retries = 1", "retries = 3", "+ retries = 3"),
        ("/r/a.py", "# a comment\nimport x", "import x", ""),
    ],
)
def test_names_are_found_in_many_languages(path: str, old: str, new: str, detail: str) -> None:
    assert files(edit(path, old, new))[path].detail == (detail or "edited")


def test_a_patch_tells_each_file_by_its_own_lines() -> None:
    text = (
        "*** Begin Patch\n*** Update File: /p/a.ts\n@@ function load(id) {\n-  return 1\n+  return 2\n"
        "*** Add File: /p/b.py\n+def helper(x):\n+    return x\n*** End Patch\n"
    )
    found = files(patch(text))
    assert (found["/p/a.ts"].detail, found["/p/b.py"].detail) == ("~ load", "created: + def helper(x)")


def test_a_script_is_told_by_what_it_edits() -> None:
    assert files(bash("sed -i 's/old_name/new_name/g' src/a.py"))["src/a.py"].detail == "+ sed s/old_name/new_name/g"
    written = bash("cat > fix.py <<'EOF'\nclass Fix:\n    pass\nEOF")
    assert files(written)["fix.py"].detail == "created: + class Fix"


def test_a_diff_that_git_shows_tells_what_stands_changed() -> None:
    shown = "diff --git a/src/a.py b/src/a.py\n@@ -4,3 +4,3 @@ def merge(left, right):\n-    x = 1\n+    x = right\n"
    steps = (
        bash("cd /r && python - <<'EOF'\nwith open('src/a.py', 'w') as f:\n    f.write(text)\nEOF"),
        bash("cd /r && git diff", shown),
    )
    assert files(*steps)["/r/src/a.py"].detail == "~ merge"


def test_a_long_list_of_changes_is_cut_to_the_newest() -> None:
    new = "\n".join(f"def function_number_{at}(argument): pass" for at in range(12))
    detail = files(edit("/r/a.py", "x", new))["/r/a.py"].detail
    assert len(detail) < 150
    assert detail.endswith("function_number_11(argument), … 9 more")


@given(texts, texts, st.sampled_from(("a.py", "b.md", "c.toml", "")))
def test_any_two_texts_can_be_compared(old: str, new: str, path: str) -> None:
    assert set(compare_definitions(old, new, path).values()) <= {"+", "~", "−"}
    assert "+" not in compare_definitions(new, new, path).values()


# Committed or not


def test_a_commit_takes_in_what_was_staged() -> None:
    steps = (edit("/r/a.py"), edit("/r/b.py"), bash("cd /r && git add a.py && git commit -m x", COMMITTED))
    assert statuses(*steps) == {"/r/a.py": "committed", "/r/b.py": "uncommitted"}


def test_a_commit_of_everything_takes_in_all_before_it() -> None:
    steps = (edit("/r/a.py"), bash("cd /r && git commit -am x", COMMITTED), edit("/r/b.py"))
    assert statuses(*steps) == {"/r/a.py": "committed", "/r/b.py": "uncommitted"}


def test_what_git_lists_after_a_commit_is_not_in_it() -> None:
    status = "On branch main\nChanges not staged for commit:\n\tmodified:   b.py\n"
    steps = (edit("/r/a.py"), edit("/r/b.py"), bash("cd /r && git commit -m x", COMMITTED), bash("git status", status))
    assert statuses(*steps) == {"/r/a.py": "committed", "/r/b.py": "uncommitted"}


def test_a_clean_working_tree_has_no_uncommitted_file() -> None:
    clean = "On branch main\nnothing to commit, working tree clean"
    assert statuses(edit("/r/a.py"), bash("cd /r && git status", clean)) == {"/r/a.py": "edited"}


def test_a_commit_in_a_scratch_folder_commits_nothing_of_the_project() -> None:
    steps = (edit("/r/a.py"), bash("cd /tmp/try && git commit -am x", COMMITTED))
    assert statuses(*steps) == {"/r/a.py": "uncommitted"}


def test_a_file_that_is_restored_is_not_changed() -> None:
    read = call("Read", "x", file_path="/r/a.py")
    assert statuses(read, edit("/r/a.py"), bash("cd /r && git checkout -- a.py")) == {"/r/a.py": "read"}
    assert statuses(read, edit("/r/a.py"), bash("cd /r && git reset --hard")) == {"/r/a.py": "read"}


def test_a_file_that_a_script_fixed_is_not_told_as_read() -> None:
    script = bash("cd /r && cat > fix.py <<'EOF'\npath = 'src/a.py'\nwith open(path, 'w') as f:\n    f.write(t)\nEOF")
    steps = (call("Read", "x", file_path="/r/src/a.py"), script, bash("cd /r && python3 fix.py", "done"))
    assert statuses(*steps)["/r/src/a.py"] == "uncommitted"


def test_a_file_that_git_shows_as_changed_is_not_told_as_read() -> None:
    shown = "diff --git a/src/a.py b/src/a.py\n@@ -1 +1 @@\n-a\n+b\n"
    steps = (
        call("Read", "x", file_path="/r/src/a.py"),
        bash("cd /r && make generate", "ok"),
        bash("cd /r && git diff > patch.txt"),
        bash("cd /r && cat patch.txt", shown),
    )
    assert statuses(*steps)["/r/src/a.py"] == "uncommitted"


def test_what_was_made_and_removed_again_is_not_told() -> None:
    assert statuses(bash("cat > try.py <<'EOF'\nx\nEOF"), bash("rm try.py"), bash("rm -rf /tmp/old")) == {}


def test_a_folder_that_is_removed_takes_its_files_with_it() -> None:
    assert statuses(edit("/r/lib/a.py"), bash("cd /r && rm -rf lib/")) == {
        "/r/lib/a.py": "uncommitted",
        "/r/lib": "uncommitted",
    }
    assert files(edit("/r/lib/a.py"), bash("cd /r && rm -rf lib/"))["/r/lib/a.py"].detail == "deleted"


def test_a_file_that_is_moved_leaves_its_old_name() -> None:
    found = files(edit("/r/a.py"), bash("cd /r && git mv a.py b.py"))
    assert (found["/r/a.py"].detail, found["/r/b.py"].detail) == ("deleted", "created")


def test_files_of_tools_in_the_home_folder_are_no_uncommitted_work() -> None:
    plan = call("Write", "File created successfully", file_path="/home/me/.agent/plans/x.md", content="# Plan")
    assert statuses(plan) == {"/home/me/.agent/plans/x.md": "created"}


@pytest.mark.parametrize(
    "command",
    [
        "sed -i '2,3c\\  # it's the user or a custom one' models.py",
        "gh pr edit 3 --body $'## What\\n it\\'s in <out>/<time>/ now'",
        "echo 'a > b' && grep -n 'x > y' src/a.py",
        "awk '$1 > 5 {print}' data.csv",
    ],
)
def test_words_of_a_sentence_are_no_files(command: str) -> None:
    assert set(statuses(bash(command, "ok"))) <= {"models.py", "src/a.py", "data.csv"}
