"""The plugin that runs inside Claude Code: what it answers, and that Claude Code goes on by itself on any doubt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import context_compactor
from context_compactor.agents.install.commands import BY_NAME
from context_compactor.agents.install.targets import mod_files
from tests.node import run_node

PLUGIN = Path(context_compactor.__file__).parent / "plugin"
ENGINE = Path(__file__).with_name("claude_code_engine.mjs")
RECORD = (
    "[Context record. Written by Context Compactor, not by the user: it stands for 118 earlier messages (56,594 tokens"
)
PROMPT = {"role": "user", "text": "Do it.", "toolUses": [], "handle": "h1"}
REPLY = {"role": "assistant", "text": "", "toolUses": [{"tool_use_id": "t1"}], "handle": "h2"}
RESULT = {"role": "user", "text": "", "toolUses": [], "toolResults": [{"tool_use_id": "t1"}], "handle": "h3"}
OPEN = {"role": "user", "text": "And this too.", "toolUses": [], "handle": "h4"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(PLUGIN, tmp_path / "plugin")
    (tmp_path / "plugin" / "package.json").write_text('{"type": "module"}')
    return tmp_path / "plugin"


def raised(folder: Path, event: str, e: dict[str, Any], run: dict[str, Any], **more: Any) -> Any:
    """What the engine got when it raised an event."""
    return run_node(ENGINE, str(folder), json.dumps({"event": event, "e": e, "run": run, **more}))


def printed(answer: object) -> dict[str, Any]:
    return {"exitCode": 0, "stdout": json.dumps(answer)}


def compaction(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trigger": "auto", "messages": list(rows), **more}


def test_the_record_stands_alone_for_everything_and_an_open_question_stays_as_it_is(folder: Path):
    seen = raised(folder, "session.compact", compaction(PROMPT, REPLY, RESULT), printed({"record": RECORD}))
    assert seen["answer"] == {"messages": [{"role": "user", "text": RECORD, "toolUses": []}]}
    seen = raised(folder, "session.compact", compaction(PROMPT, REPLY, RESULT, OPEN), printed({"record": RECORD}))
    assert seen["answer"]["messages"][1:] == [OPEN]
    assert seen["passed"] == []


def test_our_command_is_told_which_conversation_is_compacted_and_why(folder: Path):
    e = compaction(PROMPT, trigger="manual", agentId="a1", instructions="keep the plan")
    (ran,) = raised(folder, "session.compact", e, printed({"record": RECORD}))["ran"]
    assert ran["argv"][-4:] == ["hook", "compact", "--agent", "claude-code"]
    assert ran["timeoutMs"] == 20_000
    assert ran["call"] == {
        "session_id": "session-1",
        "transcript_path": "/logs/session-1.jsonl",
        "cwd": "/project",
        "agent_id": "a1",
        "trigger": "manual",
        "open_prompts": ["Do it."],
        "custom_instructions": "keep the plan",
    }


DOUBTS = {
    "it cannot be started": {"error": "ENOENT"},
    "it runs too long": {"error": "still running after 20000 ms"},
    "it fails": {"exitCode": 1, "stdout": json.dumps({"record": RECORD})},
    "it prints nothing": {"exitCode": 0, "stdout": ""},
    "it prints no JSON": {"exitCode": 0, "stdout": "Traceback"},
    "it prints no object": printed("record"),
    "it prints null": printed(None),
    "the record is empty": printed({"record": "  "}),
    "the record is no text": printed({"record": 7}),
    "it passes": printed({"pass": "agent_compaction is beside"}),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_on_any_doubt_claude_code_compacts_by_itself(folder: Path, doubt: str):
    e = compaction(PROMPT, REPLY, RESULT)
    seen = raised(folder, "session.compact", e, DOUBTS[doubt])
    assert seen["answer"] == {"next": True}
    assert seen["passed"] == [e]
    reasons = [ran["call"]["reason"] for ran in seen["ran"] if "failed" in ran["argv"]]
    assert len(reasons) == (doubt != "it passes")
    assert all(reasons)


def test_instructions_go_to_its_own_summariser(folder: Path):
    e = compaction(PROMPT, instructions="be short")
    seen = raised(folder, "session.compact", e, printed({"instructions": "Write in this format."}))
    assert seen["passed"] == [e | {"instructions": "Write in this format."}]


@pytest.mark.parametrize(("way", "is_skipped"), [("ours", True), ("steered", False), ("beside", False)])
def test_a_summary_ahead_of_time_is_skipped_where_our_record_stands_for_it(folder: Path, way: str, is_skipped: bool):
    e = compaction(PROMPT, trigger="precompute")
    seen = raised(folder, "session.compact", e, printed({"record": RECORD}), started={"compaction": way})
    assert (set(seen["answer"]) == {"skip"}) is is_skipped
    assert seen["passed"] == ([] if is_skipped else [e])
    assert seen["ran"] == []


def test_compact_undo_puts_rows_back_or_says_why_not(folder: Path):
    e = compaction(PROMPT, trigger="manual", instructions="undo")
    seen = raised(folder, "session.compact", e, printed({"rows": [PROMPT, REPLY]}))
    assert seen["ran"][0]["argv"][-3:] == ["undo", "--agent", "claude-code"]
    assert seen["answer"] == {"messages": [PROMPT, REPLY]}
    seen = raised(folder, "session.compact", e, printed({"pass": "there is no compaction to undo"}))
    assert seen["answer"] == {"skip": "there is no compaction to undo"}
    assert set(raised(folder, "session.compact", e, {"error": "ENOENT"})["answer"]) == {"skip"}


def appended(door: str, content: list[dict[str, Any]], origin: dict[str, Any]) -> dict[str, Any]:
    return {"door": door, "origin": origin, "uuid": "u1", "message": {"type": "user", "content": content}}


def test_a_long_result_is_stored_with_a_shorter_text_and_a_short_one_costs_nothing(folder: Path):
    origin = {"kind": "tool", "tool": "Bash"}
    long = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 20_000}
    shorter = printed({"text": 'x […] recall("tool_001")'})
    seen = raised(folder, "session.append", appended("tool-result", [long], origin), shorter)
    assert seen["passed"][0]["message"]["content"] == [long | {"content": 'x […] recall("tool_001")'}]
    assert seen["ran"][0]["call"]["tool_name"] == "Bash"
    short = {**long, "content": [{"type": "text", "text": "x" * 10_000}]}
    image = {**long, "content": [{"type": "text", "text": "x" * 20_000}, {"type": "image", "source": {}}]}
    for block in (short, image):
        e = appended("tool-result", [block], origin)
        seen = raised(folder, "session.append", e, shorter)
        assert (seen["passed"], seen["ran"]) == ([e], [])


def test_a_result_that_cannot_be_shortened_is_stored_as_it_is(folder: Path):
    long = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 20_000}
    e = appended("tool-result", [long], {"kind": "tool", "tool": "Bash"})
    for run in ({"error": "ENOENT"}, printed({}), printed({"text": "x" * 30_000}), {"exitCode": 0, "stdout": ""}):
        assert raised(folder, "session.append", e, run)["passed"] == [e]


def test_the_report_of_a_sub_agent_in_the_background_is_shortened_inside_its_notification(folder: Path):
    text = (
        "<task-notification>\n<tool-use-id>t9</tool-use-id>\n<result>{}</result>\n<usage>1</usage></task-notification>"
    )
    block = {"type": "text", "text": text.format("word " * 7_000)}
    e = appended("delivery", [{"type": "text", "text": "before"}, block], {"kind": "task-notification"})
    seen = raised(folder, "session.append", e, printed({"text": 'short $& recall("agent_001")'}))
    before, after = seen["passed"][0]["message"]["content"]
    assert before["text"] == "before"
    assert after["text"] == text.format('short $& recall("agent_001")')
    assert seen["ran"][0]["call"]["tool_use_id"] == "t9/report"


def test_the_record_is_one_line_on_the_screen_until_it_is_expanded(folder: Path):
    props = {"text": RECORD + ", turns 1 to 65).]\n\n## Task\n…", "isExpanded": False, "origin": {}}
    e = {"component": "UserMessage", "surface": "terminal", "props": props}
    (drawn,) = raised(folder, "ui.render", e, {})["passed"]
    assert "118 messages (56,594 tokens)" in drawn["props"]["text"]
    assert "\n" not in drawn["props"]["text"]
    expanded = {**e, "props": props | {"isExpanded": True}}
    other = {**e, "props": props | {"text": "Fix the login."}}
    for each in (expanded, other):
        assert raised(folder, "ui.render", each, {})["passed"] == [each]


def test_a_session_that_starts_tells_that_the_plugin_is_loaded_and_goes_on_whatever_comes_of_it(folder: Path):
    seen = raised(folder, "session.start", {"source": "startup"}, {"exitCode": 0, "stdout": ""})
    assert seen["ran"][0]["argv"][-3:] == ["loaded", "--agent", "claude-code"]
    for run in ({"error": "ENOENT"}, {"exitCode": 0, "stdout": ""}):
        assert raised(folder, "session.start", {"source": "startup"}, run)["passed"] == [{"source": "startup"}]


def test_the_commands_answer_without_the_model(folder: Path):
    e = {"command": "compactor:plan", "args": "", "origin": {}, "presentation": {}}
    assert raised(folder, "command.run", e, printed({"text": "A plan."}))["answer"] == {"text": "A plan."}
    assert raised(folder, "command.run", e, {"error": "ENOENT"})["passed"] == [e]
    undo = {**e, "command": "compactor:undo"}
    assert "Press Enter" in raised(folder, "command.run", undo, {})["answer"]["text"]
    assert "/compact undo" in raised(folder, "command.run", undo, {"isFilled": False})["answer"]["text"]


def test_an_installed_copy_is_the_same_plugin_with_another_command(tmp_path: Path):
    files = mod_files(("/opt/compactor", "-P"))
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    seen = raised(tmp_path, "session.compact", compaction(PROMPT), printed({"record": RECORD}))
    assert seen["ran"][0]["argv"][:2] == ["/opt/compactor", "-P"]
    assert json.loads(files["hooks/hooks.json"])["modules"] == ["./register.js"]
    assert "exec compactor" in mod_files(BY_NAME)["hooks/command.js"]
