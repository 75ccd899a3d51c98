"""The extensions for pi and OpenCode: what they answer, and that the agents go on by themselves on any doubt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from context_compactor.agents.coding_agents import OPENCODE, PI, CodingAgent
from context_compactor.agents.install.targets import extension_text
from tests import warm
from tests.hooks.place import Place
from tests.node import run_node

RECORD = "[Context record. Written by Context Compactor]\n\n## Task"
RULE = "Never touch config/secrets.yaml"
STEERED = {"instructions": "Write it in our format."}
FAKE = """#!{python}
import json, sys
calls, answers = {calls!r}, {answers!r}
with open(calls, "a") as file:
    file.write(json.dumps([sys.argv[1:], json.load(sys.stdin)]) + "\\n")
code, out = answers.get(sys.argv[2], (0, ""))
print(out)
sys.exit(code)
"""


class Fake(Struct):
    """A `compactor` that prints what it is told to, and writes down how it was called."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "compactor"

    def answering(self, **answers: tuple[int, str]) -> Path:
        named = {event.replace("_", "-"): answer for event, answer in answers.items()}
        text = FAKE.format(python=sys.executable, calls=str(self.folder / "calls"), answers=named)
        self.program.write_text(text)
        self.program.chmod(0o700)
        return self.program

    @property
    def calls(self) -> list[tuple[list[str], dict[str, Any]]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def extension(self, agent: CodingAgent, seconds: float = 20) -> str:
        (self.folder / "package.json").write_text('{"type": "module"}')
        path = self.folder / agent.extension
        text = extension_text(agent, (str(self.program),))
        assert "const SECONDS = 20;" in text
        path.write_text(text.replace("const SECONDS = 20;", f"const SECONDS = {seconds};"))
        return str(path)


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def printed(answer: object) -> tuple[int, str]:
    return 0, json.dumps(answer)


DOUBTS = {
    "it fails": (1, json.dumps({"record": RECORD})),
    "it prints nothing": (0, ""),
    "it prints no JSON": (0, "Traceback"),
    "it prints no object": printed("record"),
    "it prints null": printed(None),
    "the record is empty": printed({"record": "  "}),
    "the record is no text": printed({"record": 7}),
    "it passes": printed({"pass": "beside"}),
}


def message(name: str, role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": name, "message": {"role": role, "content": list(content)}}


TEXT = {"type": "text", "text": "Fix the login."}
CALL = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}}
WORK = [message("e1", "user", TEXT), message("e2", "assistant", CALL), message("e3", "toolResult", TEXT)]
PREPARATION = {
    "firstKeptEntryId": "e2",
    "tokensBefore": 190_000,
    "messagesToSummarize": [{"role": "user", "content": "Fix the login."}],
    "turnPrefixMessages": [],
    "previousSummary": "what was before",
}
BEFORE = {"type": "session_before_compact", "preparation": PREPARATION, "reason": "threshold"}


def pi(fake: Fake, *events: dict[str, Any], entries: list[Any] = WORK, seconds: float = 20, **more: Any) -> Any:
    """What pi got when it raised these events."""
    given = {"events": events or [BEFORE], "entries": entries, "cwd": str(fake.folder), **more}
    return run_node(Path(__file__).with_name("pi_engine.mjs"), fake.extension(PI, seconds), json.dumps(given))


def test_in_pi_the_record_stands_for_everything_and_nothing_is_kept_beside_it(fake: Fake):
    fake.answering(compact=printed({"record": RECORD, "tokens_before": 9, "tokens_after": 3}))
    (answer,) = pi(fake)["answers"]
    details = {"compactor": "record", "tokensAfter": 3}
    assert answer == {"compaction": {"summary": RECORD, "tokensBefore": 190_000, "details": details}}
    ((arguments, call),) = fake.calls
    assert arguments == ["hook", "compact", "--agent", "pi"]
    assert call == {
        "session_id": "session-1",
        "transcript_path": "/logs/session-1.jsonl",
        "cwd": str(fake.folder),
        "model": "model-1",
        "trigger": "auto",
    }


@pytest.mark.parametrize(
    ("since", "kept"),
    [
        ([message("e4", "user", TEXT)], "e4"),
        ([message("e4", "user", TEXT), message("e5", "user", TEXT)], "e4"),
        ([message("e4", "user", TEXT), message("e5", "assistant")], "e4"),
        ([message("e4", "user", TEXT), message("e5", "assistant", {"type": "text", "text": " "})], "e4"),
        (
            [
                message("e4", "user", TEXT),
                message("e5", "assistant", CALL),
                {"type": "context_edit", "id": "e6", "targetId": "e5", "replacement": None},
            ],
            "e4",
        ),
        ([message("e4", "user", TEXT), message("e5", "assistant", TEXT)], None),
        ([message("e4", "user", TEXT), {"type": "compaction", "id": "e5"}], None),
        ([], None),
    ],
    ids=["open", "two", "no answer", "a blank answer", "a failed attempt", "answered", "compacted", "at work"],
)
def test_in_pi_a_question_that_nobody_has_answered_stays_behind_the_record(fake: Fake, since: list[Any], kept: str):
    fake.answering(compact=printed({"record": RECORD}))
    (answer,) = pi(fake, entries=[*WORK, *since])["answers"]
    assert answer["compaction"].get("firstKeptEntryId") == kept


@pytest.mark.parametrize("doubt", DOUBTS)
def test_on_any_doubt_pi_compacts_by_itself(fake: Fake, doubt: str):
    fake.answering(compact=DOUBTS[doubt])
    assert pi(fake)["answers"] == [None]


def test_pi_does_not_wait_for_a_command_that_hangs_and_tells_its_user_once_of_one_that_is_gone(fake: Fake):
    fake.program.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.program.chmod(0o700)
    assert pi(fake, seconds=0.3)["answers"] == [None]
    fake.program.unlink()
    seen = pi(fake, BEFORE, BEFORE)
    assert seen["answers"] == [None, None]
    ((told, kind),) = seen["notified"]
    assert (str(fake.program) in told, kind) == (True, "warning")


def test_pi_is_not_asked_for_a_branch_that_its_log_does_not_end_with(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    assert pi(fake, leaf="e1")["answers"] == [None]
    assert fake.calls == []


def stand_in_of_pi(folder: Path) -> None:
    """The two functions of pi's package that the extension imports."""
    package = folder / "node_modules" / "@earendil-works" / "pi-coding-agent"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"type": "module", "exports": "./index.js"}')
    (package / "index.js").write_text(
        "export const convertToLlm = given => given\n"
        "export const serializeConversation = given => given.map(each => each.content).join('\\n')\n"
    )


def test_in_pi_its_own_model_gets_our_request_with_what_was_summarised_before(fake: Fake):
    stand_in_of_pi(fake.folder)
    fake.answering(compact=printed(STEERED))
    reply = {"stopReason": "stop", "content": [{"type": "text", "text": "A summary."}], "usage": {"input": 5}}
    seen = pi(fake, reply=reply)
    ((answer,), (request,)) = (seen["answers"], seen["requests"])
    assert answer["compaction"] == {
        "summary": "A summary.",
        "firstKeptEntryId": "e2",
        "tokensBefore": 190_000,
        "usage": {"input": 5},
        "details": {"compactor": "steered"},
    }
    assert all(part in request for part in ("what was before", "Fix the login.", STEERED["instructions"]))


@pytest.mark.parametrize(
    "reply", [None, {"stopReason": "length", "content": [TEXT]}, {"stopReason": "stop", "content": []}]
)
def test_where_that_fails_pi_asks_in_its_own_words(fake: Fake, reply: Any):
    stand_in_of_pi(fake.folder)
    fake.answering(compact=printed(STEERED))
    assert pi(fake, reply=reply)["answers"] == [None]


@pytest.mark.parametrize(("details", "words"), [({"compactor": "record"}, 1), ({"compactor": "steered"}, 2), (None, 2)])
def test_after_a_compaction_of_its_own_pi_gives_its_model_a_brief(fake: Fake, details: Any, words: int):
    brief = {"hookSpecificOutput": {"additionalContext": "what it lost"}}
    fake.answering(session_start=printed(brief), post_compact=printed({"systemMessage": "lost 2"}))
    entry = {"summary": "text", "details": details}
    seen = pi(fake, {"type": "session_compact", "compactionEntry": entry, "reason": "manual"})
    assert [arguments[1] for arguments, _ in fake.calls] == ["post-compact", "session-start"][:words]
    assert (fake.calls[0][1]["trigger"], fake.calls[0][1]["compact_summary"]) == ("manual", "text")
    assert [sent["content"] for sent in seen["sent"]] == ["what it lost"] * (words - 1)
    assert seen["notified"] == [["lost 2", "info"]] * (words - 1)


def test_pi_gets_the_server_with_the_tools_that_a_record_names(fake: Fake):
    fake.answering()
    server = pi(fake)["servers"]["compactor"]
    assert (server["command"], server["args"]) == (str(fake.program), ["mcp"])
    assert server["toolExposure"] == {"recall": "direct", "search_archive": "direct"}


def part(name: str, role: str, **more: Any) -> dict[str, Any]:
    said = {"type": "text", "text": f"{role} says {name}"}
    return {"info": {"id": name, "role": role, "sessionID": "session-1", **more}, "parts": [said]}


ASKED = {"info": {"id": "m5", "role": "user"}, "parts": [{"type": "compaction", "auto": True}]}
TALK = [part("m1", "user"), part("m2", "assistant"), part("m3", "assistant"), part("m4", "assistant"), ASKED]


def opencode(fake: Fake, messages: list[Any] = TALK, tail: int = 2, seconds: float = 20, reply: str = "done") -> Any:
    """What came of a compaction in OpenCode that keeps the messages from `tail` on."""
    given = {"messages": messages, "tail": tail, "cwd": str(fake.folder), "reply": reply}
    engine = Path(__file__).with_name("opencode_engine.mjs")
    return run_node(engine, fake.extension(OPENCODE, seconds), json.dumps(given))


def test_in_opencode_the_record_stands_for_the_summary_and_the_model_is_asked_for_one_word(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    seen = opencode(fake)
    assert (seen["kept"], seen["said"], seen["isUntouched"]) == (RECORD, "done", True)
    assert len(seen["request"]) < 200
    assert "says" not in seen["request"]
    (compact, after) = fake.calls
    assert compact[0] == ["hook", "compact", "--agent", "opencode"]
    assert (compact[1]["session_id"], compact[1]["trigger"]) == ("session-1", "auto")
    assert [each["info"]["id"] for each in compact[1]["messages"]] == ["m1", "m2"]
    assert (after[0][1], len(after[1]["messages"])) == ("post-compact", len(TALK))


def test_in_opencode_the_record_is_there_although_the_model_answers_with_nothing(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    seen = opencode(fake, reply="")
    assert (seen["kept"], seen["sees"]) == ("", RECORD)
    fake.answering(compact=printed({"pass": "beside"}))
    assert opencode(fake, reply="")["sees"] == ""


def test_in_opencode_a_request_that_is_no_compaction_keeps_its_messages(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    seen = opencode(fake, [*TALK, part("m6", "assistant")])
    assert seen["request"].startswith("OPENCODE ASKS")
    assert [arguments[1] for arguments, _ in fake.calls] == ["post-compact"]


def test_in_opencode_a_question_at_the_end_of_what_is_compacted_stands_behind_the_record(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    assert opencode(fake, tail=1)["kept"] == f"{RECORD}\n\nThe user: user says m1"


@pytest.mark.parametrize("doubt", DOUBTS)
def test_on_any_doubt_opencode_compacts_by_itself(fake: Fake, doubt: str):
    fake.answering(compact=DOUBTS[doubt])
    seen = opencode(fake)
    assert (seen["kept"], seen["isUntouched"]) == ("done", True)
    assert seen["request"].startswith("OPENCODE ASKS\n\nuser says m1")


def test_opencode_does_not_wait_for_a_command_that_hangs_and_tells_its_user_of_one_that_is_gone(fake: Fake):
    fake.program.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.program.chmod(0o700)
    assert opencode(fake, seconds=0.3)["kept"] == "done"
    fake.program.unlink()
    seen = opencode(fake)
    assert (seen["kept"], len(seen["toasts"])) == ("done", 1)
    assert str(fake.program) in seen["toasts"][0]["message"]


def test_in_opencode_its_own_model_gets_our_request_with_the_summary_before(fake: Fake):
    fake.answering(compact=printed(STEERED))
    summary = part("m0", "assistant", summary=True, finish="stop")
    seen = opencode(fake, [summary, *TALK], tail=3)
    assert seen["kept"] == "done"
    assert seen["request"].startswith(STEERED["instructions"])
    assert all(words in seen["request"] for words in ("assistant says m0", "user says m1"))


@pytest.mark.parametrize("answer", [{"pass": "beside"}, STEERED])
def test_in_opencode_what_a_summary_lost_stands_behind_it(fake: Fake, answer: object):
    brief = {"hookSpecificOutput": {"additionalContext": "what it lost"}}
    fake.answering(compact=printed(answer), session_start=printed(brief))
    seen = opencode(fake)
    assert (seen["kept"], seen["said"]) == ("done\n\nwhat it lost", "done")
    start = next(call for arguments, call in fake.calls if arguments[1] == "session-start")
    assert start["source"] == "compact"
    assert start["messages"][-1]["info"]["finish"] == "stop"
    assert start["messages"][-1]["parts"] == [{"type": "text", "text": "done"}]


def test_nothing_to_compact_leaves_opencode_alone(fake: Fake):
    fake.answering(compact=printed({"record": RECORD}))
    seen = opencode(fake, tail=0)
    assert (seen["kept"], seen["isUntouched"]) == ("done", True)
    assert [arguments[1] for arguments, _ in fake.calls] == ["post-compact"]


def test_opencode_gets_the_server_beside_those_of_its_user(fake: Fake):
    fake.answering()
    servers = opencode(fake)["config"]["mcp"]
    assert list(servers) == ["compactor", "other"]
    assert servers["compactor"]["command"] == [str(fake.program), "mcp"]


def talk(steps: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """A conversation in OpenCode in which a rule is given and much is measured, in OpenCode's own form."""
    messages = [said("u0", "user", f"Fix the login. {RULE}.")]
    for number in range(steps):
        output = "\n".join(f"step {number} line {line}: {number * line * 7919}" for line in range(40))
        state = {"status": "completed", "input": {"command": f"./measure --step {number}"}, "output": output}
        call = {"type": "tool", "tool": "bash", "callID": f"c{number}", "state": state}
        messages.append({**said(f"a{number}", "assistant", "I measure."), "parts": [call]})
    return [*messages, *more]


def said(name: str, role: str, text: str, **more: Any) -> dict[str, Any]:
    time = {"created": 1_794_979_556_000, "completed": 1_794_979_556_001}
    head = {"id": name, "role": role, "sessionID": "ses_1", "time": time, "modelID": "claude-x", **more}
    return {"info": head, "parts": [{"type": "text", "text": text}]}


def asked(place: Place, event: str, messages: list[Any], **more: Any) -> Any:
    call = {"session_id": "ses_1", "cwd": str(place.project), "messages": messages, **more}
    out = place.call(f"{event} --agent opencode", call)
    return json.loads(out) if out else None


def test_messages_that_are_sent_stand_for_a_log_and_the_session_follows_what_opencode_makes_of_the_record(place: Place):
    record = asked(place, "compact", talk(30), trigger="auto")["record"]
    assert RULE in record
    part = {"type": "compaction", "auto": True, "tail_start_id": "a30"}
    taken = [
        {**said("u1", "user", ""), "parts": [part]},
        said("s1", "assistant", record, summary=True, parentID="u1", finish="stop"),
        said("a32", "assistant", "I go on."),
    ]
    asked(place, "post-compact", [*talk(32), *taken])
    with place.session("ses_1") as session:
        context = json.dumps(session.context(), ensure_ascii=False)
    assert "[Context record." in context
    assert context.count(RULE) == record.count(RULE)
    assert "step 31 line 39" in context
    assert "I go on." in context
    again = asked(place, "compact", [*talk(32), *taken, *talk(30)[1:]], trigger="auto")["record"]
    assert RULE in again
    assert [line["what"] for line in place.hook_log() if line["event"] == "compact"] == ["record given"] * 2


def test_what_was_sent_is_gone_when_its_session_is_deleted(place: Place):
    asked(place, "compact", talk(30), trigger="auto")
    (file,) = (place.project / ".compactor" / "logs").glob("opencode-*.json")
    assert file.stat().st_mode & 0o077 == 0
    ran = warm.run("delete", "ses_1", "--yes", said=b"", cwd=place.project, env=place.env)
    assert (ran.returncode, file.exists()) == (0, False), ran.stderr
