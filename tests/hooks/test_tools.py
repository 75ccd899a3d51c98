"""What happens when a tool has answered: calls are counted, a compaction is suggested, long outputs are replaced."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.place import Place, Talk, worked

LONG = "".join(f"{number:05d} the build says something about module_{number}\n" for number in range(2_000))


def bash(text: str, **more: Any) -> dict[str, Any]:
    """What Claude Code says of a command's output."""
    return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False} | more


def used(talk: Talk, call_id: str = "", response: Any = None, tool: str = "Bash", **more: Any) -> Any:
    """A tool was used."""
    said = {"tool_name": tool, "tool_use_id": call_id, "tool_input": {"command": "make"}, "tool_response": response}
    return talk.hook("PostToolUse", "post-tool-use", **said | more)


def test_a_compaction_is_suggested_at_50_100_and_150_calls_each_of_them_a_process_of_its_own(talk: Talk, place: Place):
    talk.user("Fix the login.")
    talk.hook("SessionStart", "session-start", source="startup")
    said = talk.said("PostToolUse", tool_name="Bash", tool_response=bash("ok"))
    with ThreadPoolExecutor(4) as pool:
        first = list(pool.map(lambda _: place.call("post-tool-use", said), range(49)))
    assert first == [""] * 49
    found = [place.call("post-tool-use", said)]
    with ThreadPoolExecutor(4) as pool:
        found += [out for out in pool.map(lambda _: place.call("post-tool-use", said), range(99)) if out]
    found.append(place.call("post-tool-use", said))
    hints = [json.loads(out) for out in found if out]
    counted = [int(re.search(r"(\d+) tool calls", hint["systemMessage"])[1]) for hint in hints]  # type: ignore[index]
    assert counted[0] == 50
    assert counted[-1] == 150
    assert len(counted) == 3
    assert 100 <= counted[1] <= 103  # whichever of those that came at once was first
    assert all("/compact" in hint["hookSpecificOutput"]["additionalContext"] for hint in hints)
    assert place.rows()[talk.id].calls == 150


def test_a_compaction_is_suggested_once_when_the_window_is_seven_tenths_full(talk: Talk):
    talk.hook("SessionStart", "session-start", source="startup", model="claude-sonnet-4-5")
    talk.tokens = 138_000
    talk.run("ls", "a.py")
    assert used(talk, response=bash("a.py")) is None
    talk.run("ls", "a.py")
    answer = used(talk, response=bash("a.py"))
    assert "70% full" in answer["systemMessage"]
    assert "70% full" in answer["hookSpecificOutput"]["additionalContext"]
    talk.run("ls", "a.py")
    assert used(talk, response=bash("a.py")) is None


def test_after_a_compaction_it_may_be_suggested_again(talk: Talk):
    talk.hook("SessionStart", "session-start", source="startup", model="claude-sonnet-4-5")
    talk.tokens = 150_000
    worked(talk)
    assert used(talk, response=bash("a.py")) is not None
    talk.compact("It goes on.")
    brief = talk.hook("SessionStart", "session-start", source="compact", model="claude-sonnet-4-5")
    talk.got(brief["hookSpecificOutput"]["additionalContext"])
    talk.tokens = 150_000
    talk.run("ls", "a.py")
    assert "full" in used(talk, response=bash("a.py"))["systemMessage"]


def test_suggestions_can_be_turned_off(talk: Talk, place: Place):
    (place.project / ".compactor").mkdir()
    (place.project / ".compactor/config.toml").write_text("suggest_share = 0\nsuggest_tool_results = 0\n")
    talk.tokens = 190_000
    worked(talk)
    assert [used(talk, response=bash("ok")) for _ in range(55)] == [None] * 55


def test_an_output_that_is_too_long_is_replaced_and_its_original_is_recalled_byte_for_byte(talk: Talk, place: Place):
    worked(talk)
    call_id = talk.ask("Bash", {"command": "make"})
    answer = used(talk, call_id, bash(LONG))
    new = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert new.keys() == bash("").keys()  # the tool's own shape
    assert new["stdout"].startswith("00000 the build")
    assert new["stdout"].rstrip().endswith("module_1999")
    assert 'recall("tool_008")' in new["stdout"]
    assert len(new["stdout"]) < 12_000
    talk.result(call_id, new["stdout"])
    talk.answer("Done.")
    talk.user("Go on.")
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    with place.session(talk.id) as session:
        assert session.recall("tool_008") == LONG


def test_an_output_that_is_not_too_long_stays_as_it_is(talk: Talk):
    worked(talk)
    call_id = talk.ask("Bash", {"command": "make"})
    assert used(talk, call_id, bash(LONG[:12_000])) is None


def test_outputs_can_be_left_alone_by_a_setting(talk: Talk, place: Place):
    (place.project / ".compactor").mkdir()
    (place.project / ".compactor/config.toml").write_text("replace_outputs = false\n")
    worked(talk)
    assert used(talk, talk.ask("Bash", {"command": "make"}), bash(LONG)) is None


def test_of_a_very_long_output_the_copy_of_the_agent_is_archived_not_the_beginning_that_it_tells(
    talk: Talk, place: Place, tmp_path: Path
):
    worked(talk)
    whole = LONG * 3
    copy = tmp_path / "output.txt"
    copy.write_text(whole)
    call_id = talk.ask("Bash", {"command": "make"})
    text = bash(whole[:30_000], persistedOutputPath=str(copy), persistedOutputSize=len(whole))
    new = used(talk, call_id, text)["hookSpecificOutput"]["updatedToolOutput"]
    assert "persistedOutputPath" not in new
    with place.session(talk.id) as session:
        assert session.recall("tool_008") == whole


def test_of_a_file_the_beginning_is_shown_and_where_to_read_on(talk: Talk, place: Place):
    worked(talk)
    call_id = talk.ask("Read", {"file_path": "/p/long.txt"})
    file = {"filePath": "/p/long.txt", "content": LONG, "numLines": 2_000, "startLine": 11, "totalLines": 4_000}
    answer = used(talk, call_id, {"type": "text", "file": file}, "Read", tool_input={"file_path": "/p/long.txt"})
    new = answer["hookSpecificOutput"]["updatedToolOutput"]["file"]
    shown, _, note = new["content"].rpartition("\n[…")
    assert LONG.startswith(shown)
    assert f"offset={11 + shown.count(chr(10))}" in note
    assert 'recall("file_008")' in note
    assert new | {"content": ""} == file | {"content": ""}


def test_parallel_outputs_keep_their_own_ids(talk: Talk, place: Place):
    worked(talk)
    first = {"type": "tool_use", "id": "toolu_a", "name": "Bash", "input": {"command": "make a"}}
    second = {"type": "tool_use", "id": "toolu_b", "name": "Bash", "input": {"command": "make b"}}
    talk.reply(first, second)
    answers = {call_id: used(talk, call_id, bash(f"{call_id}\n{LONG}")) for call_id in ("toolu_b", "toolu_a")}
    assert 'recall("tool_008")' in json.dumps(answers["toolu_a"]).replace('\\"', '"').replace("\\\\", "")
    with place.session(talk.id) as session:
        assert session.recall("tool_008") == f"toolu_a\n{LONG}"
        assert session.recall("tool_009") == f"toolu_b\n{LONG}"


def test_a_call_that_the_log_does_not_have_yet_gets_an_id_of_its_own(talk: Talk, place: Place):
    worked(talk)
    refs = []
    for name in ("toolu_x", "toolu_y"):
        shown = used(talk, name, bash(f"{name}\n{LONG}"))["hookSpecificOutput"]["updatedToolOutput"]["stdout"]
        refs.append(re.search(r'recall\("(\w+)"\)', shown)[1])  # type: ignore[index]
    assert len(set(refs)) == 2
    with place.session(talk.id) as session:
        assert [session.recall(ref) for ref in refs] == [f"toolu_x\n{LONG}", f"toolu_y\n{LONG}"]


def test_the_answer_of_a_sub_agent_reaches_its_caller_in_500_tokens(talk: Talk, place: Place):
    worked(talk)
    used(talk, response=bash("ok"))  # from now on a hook knows when there is something to do
    report = "The tokens are checked in src/auth/jwt.py.\n" + "I searched for auth and found nothing.\n" * 100
    call_id = talk.ask("Agent", {"description": "look", "prompt": "Where are tokens checked?"})
    text = {"status": "completed", "prompt": "Where?", "agentId": "a1", "content": [{"type": "text", "text": report}]}
    answer = used(talk, call_id, text, "Agent", tool_input={"prompt": "Where are tokens checked?"})
    new = answer["hookSpecificOutput"]["updatedToolOutput"]["content"][0]["text"]
    assert "src/auth/jwt.py" in new
    assert len(new) < 2_500
    with place.session(talk.id) as session:
        assert session.recall("agent_008") == report


@pytest.mark.parametrize("tool", ["Edit", "Write", "TodoWrite"])
def test_what_no_model_reads_is_left_alone(talk: Talk, tool: str):
    worked(talk)
    response = {"filePath": "a.py", "originalFile": LONG, "content": LONG}
    assert used(talk, talk.ask(tool, {}), response, tool) is None


def test_codex_gets_the_shorter_text_as_it_takes_it(talk: Talk, place: Place):
    worked(talk)
    call_id = talk.ask("Bash", {"command": "make"})
    said = talk.said("PostToolUse", tool_name="Bash", tool_use_id=call_id, tool_response=LONG, turn_id="t1")
    answer = json.loads(place.call("post-tool-use --agent codex", said))
    assert answer.keys() == {"continue", "stopReason"}
    assert answer["continue"] is False
    assert 'recall("tool_008")' in answer["stopReason"]


def test_a_call_from_a_script_of_codex_is_left_alone_since_nothing_could_replace_it(talk: Talk, place: Place):
    worked(talk)
    said = talk.said("PostToolUse", tool_name="Bash", tool_use_id="exec-1", tool_response=LONG, turn_id="t1")
    assert place.call("post-tool-use --agent codex", said) == ""


def test_a_failed_tool_counts_too(talk: Talk, place: Place):
    talk.user("Go.")
    talk.hook("PostToolUseFailure", "post-tool-use", tool_name="Bash", error="Exit code 3")
    talk.hook("PostToolUse", "post-tool-use", tool_name="Bash", tool_response=bash("ok"))
    assert place.rows()[talk.id].calls == 2
