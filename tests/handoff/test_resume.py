from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from context_compactor import BadSetting, compact
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.record import FAILED, parse_record
from context_compactor.engine.classify import ParsedContext, parse_context
from context_compactor.errors import BadCheckpoint
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint import (
    ArchiveLine,
    CheckpointSpan,
    DirtyFile,
    FileMark,
    GitState,
    Items,
    mark_files,
    read_git,
)
from context_compactor.handoff.resume import OpenSession, Reason, ResumeCheck, check_readiness
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.tokens.counting import counter_for
from tests.engine.talks import bash, talk_in
from tests.handoff.checkpoints import FACTS, MAIN, checkpoints, facts, git_states, made

PAGE = Path(__file__).parents[2] / "docs/how-to/resume.md"
COUNTER = counter_for(None)
# Nothing that was left open, so that each test sees the one reason it is about.
QUIET = structs.replace(made(), blockers=Items(), running=Items(), files=())


def scene_in(messages: list[dict]) -> ParsedContext:
    dialect = find_dialect("openai-chat", messages)
    return parse_context(dialect.parse(messages), dialect)


def told(readiness: ResumeCheck) -> str:
    return "\n".join(reason.what for reason in readiness.reasons)


class TestReadiness:
    def test_nothing_changed_is_ready(self):
        assert check_readiness(QUIET, git=MAIN, brief="go on") == ResumeCheck("ready", (), "go on")

    def test_no_checkpoint_and_no_store_is_blocked(self):
        readiness = check_readiness(None)
        assert readiness.status == "blocked"
        assert "there is no checkpoint" in told(readiness)
        assert "line 3: torn" in told(check_readiness(None, problem=BadCheckpoint("line 3: torn")))

    def test_a_damaged_checkpoint_that_was_rebuilt_needs_attention(self):
        readiness = check_readiness(QUIET, git=MAIN, problem=BadCheckpoint("line 3: torn"))
        assert readiness.status == "needs_attention"
        assert told(readiness) == "line 3: torn. It was rebuilt from the store"

    def test_an_edited_checkpoint_is_ready_with_a_note(self):
        readiness = check_readiness(QUIET, git=MAIN, is_edited=True)
        assert readiness.status == "ready"
        assert [reason.severity for reason in readiness.reasons] == ["note"]

    def test_the_checkpoint_of_another_session_is_blocked(self):
        readiness = check_readiness(QUIET, git=MAIN, session_id="run-43")
        assert readiness.status == "blocked"
        assert told(readiness) == "the checkpoint is of session 'run-42', not of 'run-43'"

    def test_open_blockers_and_running_sub_agents_need_attention(self):
        readiness = check_readiness(made(), git=MAIN)
        assert readiness.status == "needs_attention"
        assert "Which clock shall I use?" in told(readiness)
        assert "find all callers" in told(readiness)

    def test_the_gravest_reason_comes_first(self):
        readiness = check_readiness(made(), git=None, is_edited=True)
        assert [reason.severity for reason in readiness.reasons] == ["blocking", "attention", "attention", "note"]

    def test_a_reason_says_what_to_try_also_in_json(self):
        reason = Reason("it rains", "attention", "take an umbrella")
        assert msgspec.json.decode(msgspec.json.encode(reason))["try"] == "take an umbrella"

    @given(checkpoints, st.none() | git_states, st.booleans())
    def test_there_is_an_answer_with_something_to_try_for_any_state(self, checkpoint, git, is_edited):
        readiness = check_readiness(checkpoint, git=git, files=checkpoint.files, is_edited=is_edited)
        assert all(reason.what and reason.try_ and "\n" not in reason.what for reason in readiness.reasons)
        assert (readiness.status == "ready") == all(reason.severity == "note" for reason in readiness.reasons)


class TestGit:
    def now(self, **changes) -> ResumeCheck:
        return check_readiness(QUIET, git=structs.replace(MAIN, **changes))

    def test_another_branch_needs_attention_and_the_way_back_is_told(self):
        readiness = self.now(branch="other")
        assert readiness.status == "needs_attention"
        assert told(readiness) == "the checkpoint was made on branch 'main', and branch 'other' is checked out"
        assert "git switch main" in readiness.reasons[0].try_

    def test_a_head_that_moved_needs_attention_and_both_commits_are_named(self):
        readiness = self.now(commit="ba9876543210", subject="Surprise")
        assert readiness.status == "needs_attention"
        assert told(readiness) == 'HEAD has moved from 0123456789ab "Begin" to ba9876543210 "Surprise"'

    def test_a_repository_that_is_gone_blocks(self):
        assert check_readiness(QUIET, git=None).status == "blocked"

    def test_a_project_that_never_was_a_repository_is_ready(self):
        assert check_readiness(structs.replace(QUIET, git=None), git=MAIN).status == "ready"

    def test_a_repository_that_cannot_be_read_needs_attention(self):
        readiness = check_readiness(QUIET, git=GitState(problem="index file corrupt"))
        assert readiness.status == "needs_attention"
        assert "index file corrupt" in told(readiness)

    def test_a_checkpoint_that_could_not_read_git_says_so(self):
        before = structs.replace(QUIET, git=GitState(problem="git status did not answer"))
        assert check_readiness(before, git=MAIN).status == "ready"
        assert "nothing to compare" in told(check_readiness(before, git=MAIN))

    def test_conflicts_need_attention(self):
        readiness = self.now(dirty=(DirtyFile("UU", "a.py"), DirtyFile(".M", "b.py")))
        assert readiness.status == "needs_attention"
        assert readiness.reasons[0].what == "a merge left conflicts in a.py"

    def test_more_dirty_files_are_a_note(self):
        readiness = self.now(dirty=(DirtyFile(".M", "b.py"),), more_dirty=1_200)
        assert readiness.status == "ready"
        assert "0 files were not committed at the checkpoint, and 1,201 are not now" in told(readiness)

    def test_a_real_repository_is_compared(self, git, project):
        before = structs.replace(QUIET, git=read_git(project))
        assert check_readiness(before, git=read_git(project)).status == "ready"
        (project / "a.txt").write_text("two\n")
        git(project, "commit", "-q", "-a", "-m", "Someone else was here")
        git(project, "checkout", "-q", "--detach")
        readiness = check_readiness(before, git=read_git(project))
        assert "Someone else was here" in told(readiness)
        assert "a detached HEAD is checked out" in told(readiness)


class TestFiles:
    def test_files_are_compared_by_content(self, tmp_path):
        for name in ("same", "changed", "gone", "large"):
            (tmp_path / name).write_text("before")
        marks = mark_files(tmp_path, [FileMark(name) for name in ("same", "changed", "gone", "back", "large")])
        (tmp_path / "changed").write_text("after!")
        (tmp_path / "gone").unlink()
        (tmp_path / "back").write_text("again")
        readiness = check_readiness(structs.replace(QUIET, files=marks), git=MAIN, files=mark_files(tmp_path, marks))
        assert readiness.status == "needs_attention"
        assert told(readiness).split("\n") == [
            "missing since the checkpoint: gone",
            "changed since the checkpoint: changed",
            "deleted by the session and there again: back",
        ]

    def test_a_large_file_is_compared_by_size(self):
        then, now = FileMark("big", on_disk="file", size=5_000_000), FileMark("big", on_disk="file", size=5_000_001)
        assert (
            check_readiness(structs.replace(QUIET, files=(then,)), git=MAIN, files=(now,)).status == "needs_attention"
        )
        assert check_readiness(structs.replace(QUIET, files=(then,)), git=MAIN, files=(then,)).status == "ready"

    def test_a_file_that_was_never_read_is_not_compared(self):
        then, now = FileMark("x"), FileMark("x", on_disk="file", size=3, sha256="a" * 64)
        assert check_readiness(structs.replace(QUIET, files=(then,)), git=MAIN, files=(now,)).status == "ready"

    def test_a_file_that_cannot_be_read_any_more_needs_attention(self):
        then, now = FileMark("x", on_disk="file", size=3, sha256="a" * 64), FileMark("x")
        readiness = check_readiness(structs.replace(QUIET, files=(then,)), git=MAIN, files=(now,))
        assert told(readiness) == "could not be read now: x"

    def test_of_many_files_a_few_are_named(self):
        then = tuple(FileMark(f"{at}.py", on_disk="file") for at in range(30))
        now = tuple(FileMark(f"{at}.py", on_disk="missing") for at in range(30))
        readiness = check_readiness(structs.replace(QUIET, files=then), git=MAIN, files=now)
        assert told(readiness).endswith("0.py; 1.py; 2.py; 3.py; 4.py; and 25 more")


class TestOtherSessions:
    def test_the_same_session_open_elsewhere_blocks(self):
        readiness = check_readiness(QUIET, git=MAIN, others=[OpenSession("run-42", "process 4242")])
        assert readiness.status == "blocked"
        assert told(readiness) == "session 'run-42' is open in process 4242"

    def test_another_session_in_the_project_needs_attention(self):
        readiness = check_readiness(QUIET, git=MAIN, others=[OpenSession("run-7")])
        assert readiness.status == "needs_attention"
        assert told(readiness) == "open in this project, too: run-7"

    def test_messages_after_the_checkpoint_need_attention(self):
        readiness = check_readiness(QUIET, git=MAIN, span=CheckpointSpan(messages=132))
        assert readiness.status == "needs_attention"
        assert told(readiness) == "12 messages were appended after the checkpoint"
        assert check_readiness(QUIET, git=MAIN, span=QUIET.span).status == "ready"


class TestBrief:
    def test_it_says_all_that_is_needed_to_go_on(self):
        text = resume_brief(made(note="mind the clock"), FACTS, 4_000)
        for word in (
            "Then add a test for it.",
            "Make retryPolicy honour the deadline.",
            "Never touch the migrations folder.",
            "fix the deadline",
            "Which clock shall I use?",
            "We use milliseconds",
            "`pytest tests/test_retry.py` → AssertionError: 3 != 4 (×2, turns 6-7, tool_007)",
            "uncommitted: src/retry.py",
            "git push origin main",
            "denied by the user",
            "find all callers",
            "git: branch main at 0123456789ab",
            "note: mind the clock",
            "archived: Read README.md, 2,310 tokens (file_002)",
            "compactor recall",
        ):
            assert word in text
        assert text.index("## Task") < text.index("## Rules") < text.index("## Failed, and")

    def test_with_a_conversation_it_tells_what_was_done_and_found_and_not_what_was_read(self):
        talk = talk_in("openai-chat").user("Speed up the start.")
        for at in range(30):
            talk.step(bash(f"cat src/part_{at}.py", f"import part_{at}\n" * 40))
        talk.step(text="The start is slow because warm_up() runs twice; I removed the second call.").user("Go on.")
        content = scene_in(talk.messages)
        text = resume_brief(made(content.facts), content.facts, 1_200, material_of(content))
        assert "warm_up() runs twice; I removed the second call." in text
        assert "- read: " not in text
        assert COUNTER.count(text) <= 1_200

    def test_what_a_brief_told_the_next_one_tells_too(self):
        talk = talk_in("openai-chat").user("Speed up the start.").step(text="It was warm_up().").user("Go on.")
        content = scene_in(talk.messages)
        first = resume_brief(made(content.facts), content.facts, 1_200, material_of(content))
        later = scene_in([{"role": "user", "content": first}])
        again = resume_brief(made(content.facts), content.facts, 1_200, material_of(later, content.facts))
        assert parse_record(again).happened == parse_record(first).happened

    def test_it_is_a_record_and_not_a_request(self):
        record = parse_record(resume_brief(made(), FACTS, 4_000))
        assert (record.messages, record.turns, record.calls) == (120, 10, 10)

    def test_ids_that_are_known_are_never_given_again(self):
        uncounted = made(span=None, archive=[ArchiveLine("tool_311", "x", 1)])
        record = parse_record(
            resume_brief(uncounted, [Fact("task", "x", 77, "user", "", "active", 1, 90, "turn_090")], 4_000)
        )
        assert (record.turns, record.calls) == (90, 311)

    def test_a_later_compaction_keeps_what_it_says(self):
        talk = [{"role": "user", "content": resume_brief(made(), FACTS, 4_000)}]
        for at in range(60):
            talk += [
                {"role": "assistant", "content": f"Looking at module_{at}. " + "It is as long as any other. " * 30},
                {"role": "user", "content": f"Go on with module_{at + 1}, please."},
            ]
        text = str(compact(talk, target_tokens=2_500).messages)
        assert "pytest tests/test_retry.py" in text
        assert "AssertionError: 3 != 4" in text
        assert "Never touch the migrations folder." in text

    def test_what_does_not_fit_is_counted(self):
        many = [
            *FACTS,
            *(Fact("decision", f"We chose option {at} for its speed.", at, "assistant") for at in range(900)),
        ]
        text = resume_brief(made(), many, 1_000)
        assert COUNTER.count(text) <= 1_000
        assert "of which did not fit in here" in text
        assert "option 899" in text
        assert "option 1 " not in text

    def test_every_failure_is_there_whatever_the_room(self):
        failures = [
            Fact("failure", f"make target_{at} --with-many-flags", at, "tool", f"error {at}: " + "no such rule " * 20)
            for at in range(300)
        ]
        text = resume_brief(made(), [*FACTS, *failures], 600)
        assert len(parse_record(text).sections[FAILED]) == 301
        assert all(f"target_{at} " in text or f"target_{at}`" in text or f"target_{at}…" in text for at in range(300))
        assert "Then add a test for it." in text

    @pytest.mark.parametrize("tokens", [0, -1, 399, None, "4000", 1e9])
    def test_too_few_tokens_are_refused(self, tokens):
        with pytest.raises(BadSetting, match="tokens="):
            resume_brief(made(), FACTS, tokens)

    @given(facts, checkpoints, st.integers(400, 3_000))
    def test_it_fits_and_keeps_every_failure(self, known, checkpoint, tokens):
        text = resume_brief(checkpoint, known, tokens)
        failures = {
            (" ".join(fact.content.split()), " ".join(fact.detail.split()))
            for fact in known
            if fact.kind == "failure" and fact.status not in ("resolved", "denied")
        }
        kept = parse_record(text).lines(FAILED)
        assert len(kept) >= len(failures)
        if not any(fact.kind == "failure" for fact in known):
            assert COUNTER.count(text) <= tokens
        assert text == resume_brief(checkpoint, known, tokens)


def test_the_pieces_of_the_page_fit_together(project, monkeypatch):
    monkeypatch.chdir(project)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[-1]
    names = {"facts": [FACTS[0]]}
    exec(code, names)
    assert names["readiness"].status == "ready"
    assert names["later"] == names["checkpoint"]
