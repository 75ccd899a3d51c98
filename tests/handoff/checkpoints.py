"""Facts and checkpoints to test with, told and generated."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from context_compactor.facts.fact import Fact, FactKind
from context_compactor.handoff.checkpoint import (
    ArchiveLine,
    Checkpoint,
    CheckpointSpan,
    DirtyFile,
    FileMark,
    GitState,
    Items,
    make_checkpoint,
)

MAIN = GitState(branch="main", commit="0123456789ab", subject="Begin")

FACTS = [
    Fact("task", "Make retryPolicy honour the deadline.", 1, "user", "", "done", 1, 1, "turn_001"),
    Fact("task", "Then add a test for it.", 9, "user", "In tests/test_retry.py.", "active", 1, 9, "turn_009"),
    Fact("constraint", "Never touch the migrations folder.", 2, "user", "", "active", 1, 2, "turn_002"),
    Fact("mode", "plan mode ended: the user approved the plan", 3, "system", "", "done", 1, 3, "turn_003"),
    Fact("todo", "read the policy", 4, "assistant", "", "done", 1, 4, "tool_004"),
    Fact("todo", "write the test", 4, "assistant", "", "open", 1, 4, "tool_004"),
    Fact("todo", "fix the deadline", 4, "assistant", "", "active", 1, 4, "tool_004"),
    Fact("next_step", "run the whole suite", 10, "assistant", "", "open", 1, 10, "turn_010"),
    Fact("blocker", "Which clock shall I use?", 10, "assistant", "", "open", 1, 10, "turn_010"),
    Fact("decision", "We use milliseconds because the API does.", 5, "assistant", "", "", 1, 5, "turn_005"),
    Fact("failure", "pytest tests/test_retry.py", 6, "tool", "AssertionError: 3 != 4", "", 2, 7, "tool_007"),
    Fact("file_state", "src/retry.py", 5, "tool", "edited", "uncommitted", 2, 8, "file_008"),
    Fact("file_state", "src/old.py", 5, "tool", "", "deleted", 1, 6, "tool_006"),
    Fact("file_state", "README.md", 2, "tool", "", "read", 1, 2, "file_002"),
    Fact("side_effect", "git push origin main", 8, "tool", "abc..def", "done", 1, 8, "tool_008"),
    Fact("denial", "rm -rf build", 8, "tool", "the user said: keep it", "", 1, 8, "tool_009"),
    Fact("subagent", "explore: find all callers", 7, "assistant", "List every caller.", "running", 1, 7, "agent_010"),
    Fact("subagent", "review: the diff", 6, "assistant", "Looks good.", "done", 1, 6, "agent_005"),
    Fact("dependency", "tenacity", 3, "tool", "pip", "", 1, 3, "tool_003"),
    Fact("command", "pytest tests/test_retry.py", 6, "tool", "3 != 4", "failed", 2, 7, "tool_007"),
]

ARCHIVE = [ArchiveLine("file_002", "Read README.md", 2_310), ArchiveLine("tool_003", "pip install tenacity", 90)]


def made(facts=FACTS, **changes) -> Checkpoint:
    """A checkpoint of some facts."""
    given = {
        "session_id": "run-42",
        "phase": "write",
        "updated": "2025-01-15T14:30:00Z",
        "facts": facts,
        "git": MAIN,
        "archive": ARCHIVE,
        "last_compaction": "161,204 → 38,870 tokens",
        "usage": "38,870 of 180,000 tokens (22 %)",
        "span": CheckpointSpan(120, 54_000, 10, 10),
    }
    return make_checkpoint(**(given | changes))


ODD = (
    "# Progress Checkpoint",
    "## Git State",
    "- x",
    "| a | b |",
    "**Session**: other",
    "None.",
    "… and 3 more: x",
    "\\n",
)
texts = (
    st.text(st.characters(codec=None), max_size=30)
    | st.text(" \\|#*<>-`~=_nrtsu0!\n\r\t\x00\x85\u2028\u202e\ud800é🧊", max_size=12)
    | st.sampled_from(ODD)
    | st.sampled_from(ODD).map(lambda text: f"words\n{text}\n")
)
numbers = st.integers(0, 2**40)
lines = st.lists(texts, max_size=3).map(tuple)
items = st.builds(Items, lines, numbers)
marks = st.builds(FileMark, texts, texts, texts, st.sampled_from(["file", "missing", "unread"]), numbers, texts)
dirty = st.lists(st.builds(DirtyFile, texts, texts, texts), max_size=3).map(tuple)
maybe = st.none() | numbers
git_states = st.builds(
    GitState, texts, texts, texts, dirty, numbers, texts, maybe, maybe, is_detached=st.booleans(), problem=texts
)
checkpoints = st.builds(
    Checkpoint,
    session_id=texts,
    updated=texts,
    phase=texts,
    span=st.builds(CheckpointSpan, numbers, numbers, numbers, numbers),
    summary=lines,
    recovery=lines,
    note=texts,
    told=lines,
    task=texts,
    task_status=texts,
    completed=items,
    remaining=items,
    blockers=items,
    files=st.lists(marks, max_size=3).map(tuple),
    more_files=numbers,
    decisions=items,
    must_read=items,
    running=items,
    can_skip=items,
    git=st.none() | git_states,
    archive=st.lists(st.builds(ArchiveLine, texts, texts, numbers), max_size=3).map(tuple),
    more_archived=numbers,
)
facts = st.lists(
    st.builds(
        Fact,
        st.sampled_from(get_args(FactKind)),
        texts,
        st.integers(1, 500),
        st.sampled_from(["user", "assistant", "tool"]),
        texts,
        st.sampled_from(["", "done", "active", "open", "blocked", "running", "failed", "uncommitted", "read"]),
        st.integers(1, 5),
        st.integers(0, 500),
        st.sampled_from(["", "turn_004", "tool_012", "file_003", "agent_030"]),
    ),
    max_size=40,
)
