"""A brief is looked for in the agent's log: one that never arrived is given once more, and never twice."""

from __future__ import annotations

import json

import pytest

from context_compactor.facts.lesson_folders import list_lessons, make_owner_folder
from context_compactor.sessions.project import local_owner
from tests.hooks.place import Place, Talk, worked


def compacted(talk: Talk) -> str:
    """The agent has compacted; the brief its model was to be given."""
    worked(talk)
    talk.hook("PreCompact", "pre-compact", trigger="auto")
    answer = talk.hook("SessionStart", "session-start", source="compact")
    talk.compact("It goes on.")
    text: str = answer["hookSpecificOutput"]["additionalContext"]
    return text


def used(talk: Talk) -> str:
    """The agent goes on; what its model is told then."""
    talk.run("ls", "a.py")
    answer = talk.hook("PostToolUse", "post-tool-use", tool_name="Bash", tool_response="a.py")
    text: str = answer["hookSpecificOutput"]["additionalContext"] if answer else ""
    return text


def what_of(place: Place) -> list[str]:
    return [line["what"] for line in place.hook_log() if "brief" in line["what"]]


def test_a_brief_that_stands_in_the_log_has_arrived(talk: Talk, place: Place):
    talk.got(compacted(talk))
    assert used(talk) == ""
    assert used(talk) == ""
    assert what_of(place) == ["brief given", "brief arrived"]


def test_a_brief_that_never_arrived_is_given_again_with_the_next_tool_and_only_once(talk: Talk, place: Place):
    """Row 62."""
    compacted(talk)
    assert "KeyError: 'exp'" in used(talk)
    assert used(talk) == ""
    assert what_of(place) == ["brief given", "brief given again"]


def test_a_brief_that_never_arrived_is_given_again_with_the_next_prompt(talk: Talk):
    """Row 62."""
    compacted(talk)
    talk.answer("I go on without it.")
    answer = talk.hook("UserPromptSubmit", "user-prompt-submit", prompt="And?")
    assert "KeyError: 'exp'" in answer["hookSpecificOutput"]["additionalContext"]
    assert talk.hook("UserPromptSubmit", "user-prompt-submit", prompt="And?") is None


def test_as_long_as_the_model_has_not_answered_nobody_can_tell_and_nothing_is_said_twice(talk: Talk):
    compacted(talk)
    assert talk.hook("UserPromptSubmit", "user-prompt-submit", prompt="Go on.") is None


def test_a_hint_is_at_the_end_of_what_the_model_gets_and_changes_nothing_before_it(talk: Talk):
    """Row 88: the answer to a tool's use stands behind its result, so a cached prefix stays."""
    talk.hook("SessionStart", "session-start", source="startup", model="claude-sonnet-4-5")
    talk.tokens = 150_000
    talk.run("ls", "a.py")
    answer = talk.hook("PostToolUse", "post-tool-use", tool_name="Bash", tool_response="a.py")
    assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}


def test_nothing_is_said_when_an_agent_wants_to_stop(talk: Talk, place: Place):
    """Row 15: whatever a hook says there would keep the agent from stopping, even when its window is full."""
    talk.tokens = 199_000
    worked(talk)
    for said in ({"stop_hook_active": False}, {"stop_hook_active": True}):
        assert place.call("stop", talk.said("Stop", **said)) == ""


def test_a_new_session_is_told_what_others_of_the_same_user_have_learned(talk: Talk, place: Place):
    learned = place.project / ".compactor/learned"
    user = local_owner(f"sqlite:///{place.project}/.compactor/compactor.db", place.project)
    for owner, lesson in ((user, "Tokens without `exp` are rejected."), ("os-user:nobody-here", "Ask me first.")):
        folder = make_owner_folder(learned, owner)
        (folder / "decisions.md").write_text(f"# Decisions\n\n- {lesson}\n")
    (learned / "decisions.md").write_text("# Decisions\n\n- Nobody owns this.\n")
    for source in ("startup", "clear"):
        answer = talk.hook("SessionStart", "session-start", source=source)
        text = answer["hookSpecificOutput"]["additionalContext"]
        assert "Tokens without `exp` are rejected." in text
        assert "Ask me first." not in text
        assert "Nobody owns this." not in text


CHOICE = "We decided to keep sessions in PostgreSQL instead of SQLite because several machines write to it."


@pytest.mark.parametrize("is_of_the_project", [True, False], ids=["its own store", "a store of many projects"])
def test_what_a_session_taught_belongs_to_the_user_and_stays_in_the_project(
    talk: Talk, place: Place, tmp_path, is_of_the_project
):
    env = {} if is_of_the_project else {"COMPACTOR_STORE": f"sqlite:///{tmp_path}/shared/all.db"}
    for text in (CHOICE, "Go on.", "And on.", "Thanks."):
        talk.user(text)
        talk.answer("So it is.")
    place.call("session-end", talk.said("SessionEnd", reason="other"), **env)
    learned = place.project / ".compactor/learned"
    answer = json.loads(place.call("session-start", talk.said("SessionStart", source="startup"), **env) or "{}")
    if is_of_the_project:
        (lesson,) = list_lessons(learned)
        assert lesson.owner == local_owner(f"sqlite:///{place.project}/.compactor/compactor.db", place.project)
        assert CHOICE in answer["hookSpecificOutput"]["additionalContext"]
    else:
        assert list_lessons(learned) == list_lessons(tmp_path / "shared/learned") == []
        assert "PostgreSQL" not in json.dumps(answer)


def test_a_resumed_session_is_told_what_has_changed_around_it(talk: Talk, place: Place):
    file = place.project / "app.py"
    file.write_text("print(1)\n")
    talk.user("Change app.py.")
    call_id = talk.ask("Edit", {"file_path": str(file), "old_string": "1", "new_string": "2"})
    talk.result(call_id, f"The file {file} has been updated.")
    file.write_text("print(2)\n")
    talk.answer("Done.")
    talk.user("Thanks.")
    talk.hook("PreCompact", "pre-compact", trigger="manual")
    assert talk.hook("SessionStart", "session-start", source="resume") is None
    file.write_text("print(3)\n")
    answer = talk.hook("SessionStart", "session-start", source="resume")
    assert "app.py" in json.dumps(answer)
