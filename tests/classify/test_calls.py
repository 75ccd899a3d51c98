from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.messages import ToolCall
from context_compactor.facts.calls import (
    describe_call,
    file_path_of,
    file_paths_of,
    is_read,
    line_range_of,
    parse_call,
    target_of,
)
from tests.classify.calls_of import bash, tool

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** Add File: src/b.py\n+c\n*** End Patch\n"


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (tool("Read", file_path="src/a.py"), "src/a.py"),
        (tool("read", path="src/a.py"), "src/a.py"),
        (tool("str_replace_editor", command="view", path="src/a.py"), "src/a.py"),
        (bash("cat src/a.py"), "src/a.py"),
        (bash("cd /srv && cat -n src/a.py | head -20"), "src/a.py"),
        (bash("sed -n '1,20p' src/a.py"), "src/a.py"),
        (bash("nl -ba src/a.py | sed -n '5,9p'"), "src/a.py"),
        (bash("head -n 5 'my file.txt'"), "my file.txt"),
        (bash("awk 'NR>=5 && NR<=9' src/a.py"), "src/a.py"),
        (bash("git show HEAD~1:src/a.py"), "src/a.py"),
    ],
)
def test_a_read_names_its_file(call, path):
    assert is_read(call)
    assert not parse_call(call).writes
    assert file_path_of(call) == path


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (tool("Edit", file_path="src/a.py", old_string="a", new_string="b"), "src/a.py"),
        (tool("MultiEdit", file_path="src/a.py", edits=[]), "src/a.py"),
        (tool("Write", file_path="src/a.py", content="x"), "src/a.py"),
        (tool("NotebookEdit", notebook_path="a.ipynb", new_source="x"), "a.ipynb"),
        (tool("str_replace_editor", command="create", path="src/a.py", file_text="x"), "src/a.py"),
        (ToolCall("c", "apply_patch", PATCH), "src/a.py"),
        (tool("apply_patch", input=PATCH), "src/a.py"),
        (tool("shell", command=["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF"]), "src/a.py"),
        (bash("cat > src/a.py << 'EOF'\nimport os\nos.remove('x') > y\nEOF\npython src/a.py"), "src/a.py"),
        (bash("cat <<EOF > src/a.py\nx\nEOF"), "src/a.py"),
        (bash("echo hello >> src/a.py"), "src/a.py"),
        (bash("printf x | tee src/a.py"), "src/a.py"),
        (bash("sed -i 's/a/b/' src/a.py"), "src/a.py"),
        (bash("sed -i.bak -e 's/a/b/' src/a.py"), "src/a.py"),
        (bash("perl -pi -e 's/a/b/' src/a.py"), "src/a.py"),
        (bash("cp src/b.py src/a.py"), "src/a.py"),
        (bash("rm -f src/a.py"), "src/a.py"),
        (bash("git checkout -- src/a.py"), "src/a.py"),
    ],
)
def test_a_write_names_its_file(call, path):
    assert parse_call(call).writes
    assert not is_read(call)
    assert file_path_of(call) == path


@pytest.mark.parametrize(
    "call",
    [
        None,
        bash("rg -n x src"),
        bash("cat src/a.py | grep x"),
        bash("python a.py > /dev/null 2>&1"),
        bash("git checkout main"),
        tool("Grep", pattern="x", path="src/a.py"),
        tool("Task", prompt="x"),
        ToolCall("c", "Read", "not json"),
    ],
)
def test_other_calls_name_no_file(call):
    assert file_path_of(call) is None
    assert call is None or not parse_call(call).writes


def test_a_patch_names_all_its_files():
    assert file_paths_of(ToolCall("c", "apply_patch", PATCH)) == ("src/a.py", "src/b.py")


def test_a_command_that_shows_two_files_names_both():
    assert file_paths_of(bash("sed -n '1,5p' a.py && cat b.py")) == ("a.py", "b.py")


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (tool("Read", file_path="a.py"), None),
        (tool("Read", file_path="a.py", offset=100, limit=50), (100, 149)),
        (tool("Read", file_path="a.py", limit=50), (1, 50)),
        (tool("Read", file_path="a.py", offset=100), (100, None)),
        (tool("str_replace_editor", command="view", path="a.py", view_range=[5, 9]), (5, 9)),
        (tool("str_replace_editor", command="view", path="a.py", view_range=[5, -1]), (5, None)),
        (tool("read_file", path="a.py", start_line=5, end_line=9), (5, 9)),
        (bash("cat a.py"), None),
        (bash("sed -n '5,9p' a.py"), (5, 9)),
        (bash("sed -n '5p' a.py"), (5, 5)),
        (bash("sed -n '5,$p' a.py"), (5, None)),
        (bash("sed -n '5,9p;20,30p' a.py"), (5, 30)),
        (bash("head -20 a.py"), (1, 20)),
        (bash("head -n 20 a.py"), (1, 20)),
        (bash("cat a.py | head -20"), (1, 20)),
        (bash("head -100 a.py | tail -20"), (81, 100)),
        (bash("tail -n +20 a.py"), (20, None)),
        (bash("awk 'NR>=5 && NR<=9' a.py"), (5, 9)),
        (bash("tail -20 a.py"), (0, None)),
        (bash("sed -n '/class A/,/^$/p' a.py"), (0, None)),
        (bash("sed 's/a/b/' a.py"), None),
    ],
)
def test_a_partial_read_tells_its_lines(call, lines):
    assert is_read(call)
    assert line_range_of(call) == lines


@pytest.mark.parametrize(
    ("call", "label"),
    [
        (tool("Read", file_path="src/auth/jwt.ts"), "Read src/auth/jwt.ts"),
        (tool("Read", file_path="src/a.py", offset=10, limit=5), "Read src/a.py (10-14)"),
        (bash("rg -n verifyToken src"), "Bash `rg -n verifyToken src`"),
        (bash("cd /srv/app && rg -n verifyToken src"), "Bash `rg -n verifyToken src`"),
        (bash("cat > a.py << 'EOF'\nimport os\nEOF"), "Bash `cat > a.py << 'EOF'…`"),
        (bash("git\n  status"), "Bash `git status`"),
        (tool("Grep", pattern="x", path="src"), "Grep x in src"),
        (tool("WebFetch", url="https://a.io", prompt="p"), "WebFetch https://a.io"),
        (tool("Task", description="review tests", prompt="…"), "Task review tests"),
        (tool("get_user_details", user_id="mia_kim_4397"), "get_user_details mia_kim_4397"),
        (tool("find_flight", origin="ORD", to="PHL"), "find_flight origin=ORD, to=PHL"),
        (tool("TodoWrite", todos=[{"content": "x"}]), "TodoWrite todos"),
        (tool("TaskList"), "TaskList"),
        (None, "tool result"),
    ],
)
def test_a_label_is_short_and_says_what_the_call_is_about(call, label):
    assert describe_call(call) == label


def test_a_long_path_keeps_its_end():
    label = describe_call(tool("Read", file_path="/home/someone/" + "deep/" * 30 + "last/jwt.ts"))
    assert label.startswith("Read …/")
    assert label.endswith("/last/jwt.ts")
    assert len(label) <= 90


def test_the_target_is_the_whole_command_on_one_line():
    assert target_of(bash("cd /srv &&\n rg x")) == "cd /srv && rg x"
    assert target_of(tool("Grep", pattern="x", path="src")) == "x in src"
    assert target_of(None) == ""


def test_a_command_is_given_back_as_typed():
    assert parse_call(bash("cd /srv && rg x")).command == "cd /srv && rg x"
    assert parse_call(tool("shell", command=["bash", "-lc", "rg x"])).command == "rg x"
    assert parse_call(tool("shell", command=["rg", "x"])).command == "rg x"
    assert parse_call(tool("str_replace_editor", command="view", path="a")).command is None
    assert parse_call(ToolCall("c", "bash", "rg x")).command == "rg x"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["Read", "Bash", "Edit", "apply_patch", "str_replace_editor", "Grep", "x"]) | st.text()
keys = st.sampled_from(["file_path", "path", "command", "cmd", "offset", "limit", "view_range", "pattern", "input"])


@given(names, st.dictionaries(keys, json_values))
def test_any_arguments_can_be_read(name, arguments):
    call = tool(name, **arguments)
    label = describe_call(call)
    assert "\n" not in label
    assert len(label) <= 100
    assert len(target_of(call)) <= 400
    assert file_path_of(call) is None or is_read(call) or parse_call(call).writes
    line_range_of(call)


@given(st.text(alphabet="abc '\"\\|&;<>()\n#$`-=/.{}EOF") | st.text())
def test_any_command_line_can_be_read(command):
    call = bash(command)
    assert is_read(call) + parse_call(call).writes <= 1
    assert describe_call(call).startswith("Bash `")
