"""Every route answers as the contract says."""

from __future__ import annotations

import gzip
import json

import pytest

from context_compactor.server import compactions
from context_compactor.server.tokens import add_token
from context_compactor.sessions.session import Session
from tests.cli.conftest import conversation
from tests.server.running import running

ASK = {"role": "user", "content": "Why does the login test fail?"}
REPLY = {"role": "assistant", "content": "The clock of the fixture stands still."}


@pytest.fixture
def long_session(server) -> str:
    """A session with much to compact."""
    path = server.made("long", window=200_000)
    got = server.post(f"{path}/messages", {"messages": conversation()})
    assert got.status == 200, got.raw
    return path


def test_a_session_is_made_once_and_goes_on_the_second_time(server):
    first = server.post("/v1/sessions", {"id": "run-42", "window": 200_000, "dialect": "openai-chat"})
    server.post("/v1/sessions/run-42/messages", {"messages": [ASK]})
    second = server.post("/v1/sessions", {"id": "run-42", "window": 100_000})
    assert (first.status, second.status) == (201, 200)
    assert first.json["dialect"] == second.json["dialect"] == "openai-chat"
    assert (first.json["window"], second.json["window"]) == (200_000, 100_000)
    assert second.json["messages"] == 1


def test_a_session_without_an_id_is_given_one(server):
    made = server.post("/v1/sessions", {"window": 200_000}).json
    assert server.get(f"/v1/sessions/{made['id']}").status == 200


def test_the_settings_of_a_session_are_its_own(server):
    path = server.made("tight", settings={"preserve_recent_turns": 2})
    assert server.get(path).json["settings"] == {"preserve_recent_turns": 2}
    server.made("loose")
    assert server.get("/v1/sessions/loose").json["settings"] == {}


def test_history_is_equal_to_what_went_in_and_context_is_what_to_send(server):
    path = server.made()
    appended = server.post(f"{path}/messages", {"messages": [ASK, REPLY]})
    assert appended.status == 200
    assert appended.json | {"tokens": 0, "share": 0} == {
        "session_id": "run-42",
        "appended": 2,
        "messages": 2,
        "tokens": 0,
        "share": 0,
        "level": None,
        "report": None,
    }
    assert server.get(f"{path}/history").json["messages"] == [ASK, REPLY]
    assert server.get(f"{path}/context").json["messages"] == [ASK, REPLY]


def test_history_comes_whole_or_page_by_page(server):
    path = server.made()
    messages = [{"role": "user", "content": f"number {at}"} for at in range(7)]
    server.post(f"{path}/messages", {"messages": messages})
    found, after = [], "0"
    while after is not None:
        page = server.get(f"{path}/history?after={after}&limit=3").json
        assert page["total"] == 7
        found += page["messages"]
        after = page["next"]
    assert found == server.get(f"{path}/history").json["messages"] == messages
    assert server.get(f"{path}/history?after=99").json["messages"] == []


def test_a_context_that_has_not_changed_is_not_sent_again(server):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [ASK]})
    first = server.get(f"{path}/context")
    again = server.get(f"{path}/context", If_None_Match=first.headers["etag"])
    assert (again.status, again.raw, again.headers["etag"]) == (304, b"", first.headers["etag"])
    server.post(f"{path}/messages", {"messages": [REPLY]})
    changed = server.get(f"{path}/context", If_None_Match=first.headers["etag"])
    assert changed.status == 200
    assert changed.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", W/{}', '"a,b",{}', " W/{} ", "*"])
def test_a_tag_is_compared_weakly_and_among_others(server, form):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [ASK]})
    tag = server.get(f"{path}/context").headers["etag"].removeprefix("W/")
    assert server.get(f"{path}/context", If_None_Match=form.format(tag)).status == 304
    assert server.get(f"{path}/context", If_None_Match=form.format('"else"')).status == (304 if form == "*" else 200)


def test_two_sessions_have_two_tags_whatever_they_hold(tmp_path):
    tokens = tmp_path / "tokens"
    callers = [
        {"Authorization": f"Bearer {add_token(tokens, name, name, read_only=False)}"} for name in ("red", "blue")
    ]
    with running(tmp_path, token_file=tokens) as server:
        tags = []
        for number, caller in enumerate(callers):
            server.post("/v1/sessions", {"id": "run", "window": 200_000}, **caller)
            server.post("/v1/sessions/run/messages", {"messages": [ASK | {"content": f"I am {number}"}]}, **caller)
            tags.append(server.get("/v1/sessions/run/context", **caller).headers["etag"])
        assert tags[0] != tags[1]
        crossed = server.get("/v1/sessions/run/context", If_None_Match=tags[0], **callers[1])
        assert (crossed.status, crossed.json["messages"][0]["content"]) == (200, "I am 1")


def test_a_context_of_the_past_can_be_asked_for_with_its_own_numbers(server):
    path = server.made()
    first = server.post(f"{path}/messages", {"messages": [ASK]}).json
    last = server.post(f"{path}/messages", {"messages": [REPLY | {"content": "word " * 3_000}]}).json
    text = [server.get(f"{path}/context?at={at}").json for at in range(3)]
    assert [each["messages"][:1] for each in text] == [[], [ASK], [ASK]]
    assert [each["history_messages"] for each in text] == [0, 1, 2]
    assert [each["tokens"] for each in text] == [0, first["tokens"], last["tokens"]]
    assert server.get(f"{path}/context").json == text[2]
    assert server.get(f"{path}/context?at=3").problem == "bad-setting"


def test_a_usage_without_its_reply_is_refused(server):
    path = server.made()
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 5}
    got = server.post(f"{path}/messages", {"messages": [], "usage": usage})
    assert (got.status, got.problem) == (422, "bad-setting")
    assert server.post(f"{path}/messages", {"messages": []}).json["appended"] == 0


def test_a_usage_that_says_nothing_is_taken_as_the_library_takes_it(server, tmp_path):
    path = server.made()
    over_http = server.post(f"{path}/messages", {"messages": [ASK], "usage": {"zzz": 1}})
    assert over_http.status == 200
    with Session.open("library", store=f"sqlite:///{tmp_path}/compactor.db", window=200_000) as session:
        session.append(ASK, usage={"zzz": 1})
        assert session.usage().tokens == server.get(path).json["tokens"]


def test_long_answers_are_packed_for_those_who_can_unpack_them(server, long_session):
    plain = server.get(f"{long_session}/history")
    packed = server.get(f"{long_session}/history", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.raw) == plain.raw


def test_compact_answers_with_numbers_and_the_report(server, long_session):
    dry = server.post(f"{long_session}/compact", {"target_tokens": 9_000, "dry_run": True}).json
    assert (dry["compacted"], dry["dry_run"]) == (False, True)
    assert dry["tokens_after"] < dry["tokens_before"]
    assert server.get(f"{long_session}/compactions").json["compactions"] == []
    done = server.post(f"{long_session}/compact", {"target_tokens": 9_000, "focus": "the parser"}).json
    assert done["compacted"]
    assert done["tokens_saved"] == done["tokens_before"] - done["tokens_after"] > 0
    assert done["messages_removed"] == done["report"]["messages_removed"]
    assert done["report"]["session_id"] == "long"
    assert done["report"]["tokens_saved"] == done["tokens_saved"]
    first = done["report"]["archived"][0]
    assert server.get(first["location"]).json["id"] == first["id"]
    listed = server.get(f"{long_session}/compactions").json
    assert [each["compaction_id"] for each in listed["compactions"]] == [done["report"]["compaction_id"]]
    assert listed["totals"]["tokens_saved"] == done["tokens_saved"]
    assert len(server.get(f"{long_session}/history").json["messages"]) == len(conversation())


def test_too_little_to_compact_is_an_answer_and_no_error(server):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [ASK]})
    got = server.post(f"{path}/compact")
    assert got.status == 200
    assert (got.json["compacted"], got.json["messages_removed"], got.json["tokens_saved"]) == (False, 0, 0)
    assert got.json["reason"]


def test_preserve_keeps_more_turns_word_for_word(server, long_session):
    def kept(preserve: int) -> int:
        server.post(f"{long_session}/compact", {"preserve": preserve, "target_tokens": 9_000})
        context = server.get(f"{long_session}/context").json["messages"]
        server.post(f"{long_session}/undo")
        return sum(message in context for message in conversation())

    assert kept(1) < kept(8)


def test_undo_and_redo_take_a_compaction_back_and_forth(server, long_session):
    before = server.get(f"{long_session}/context").json["messages"]
    done = server.post(f"{long_session}/compact", {"target_tokens": 9_000}).json
    after = server.get(f"{long_session}/context").json["messages"]
    undone = server.post(f"{long_session}/undo").json
    assert (undone["changed"], undone["report"]["compaction_id"]) == (True, done["report"]["compaction_id"])
    assert server.get(f"{long_session}/context").json["messages"] == before
    assert server.post(f"{long_session}/redo").json["changed"]
    assert server.get(f"{long_session}/context").json["messages"] == after
    nothing = server.post(f"{long_session}/redo").json
    assert (nothing["changed"], nothing["report"]) == (False, None)
    assert nothing["reason"]


def test_originals_come_back_by_id_by_lines_by_page_and_by_search(server, long_session):
    server.post(f"{long_session}/compact", {"target_tokens": 9_000})
    listed = server.get(f"{long_session}/archive?limit=1000").json["originals"]
    ref = next(each["id"] for each in listed if each["id"].startswith(("tool", "file")))
    whole = server.get(f"{long_session}/archive/{ref}").json["text"]
    assert whole in [message["content"] for message in conversation() if message["role"] == "tool"]
    lines = server.get(f"{long_session}/archive/{ref}?lines=2-3").json
    assert lines["text"] == "\n".join(whole.split("\n")[1:3])
    page = server.get(f"{long_session}/archive/{ref}?page=1&tokens=50").json
    assert whole.startswith(page["text"])
    assert page["pages"] > 1
    hits = server.get(f"{long_session}/search?q=part_7_3&limit=3").json
    assert "part_7_3" in hits["text"]
    assert 0 < len(hits["hits"]) <= 3


def test_the_archive_is_listed_page_by_page(server, long_session):
    server.post(f"{long_session}/compact", {"target_tokens": 9_000})
    every = [each["id"] for each in server.get(f"{long_session}/archive?limit=1000").json["originals"]]
    found, query = [], "limit=7"
    while query:
        page = server.get(f"{long_session}/archive?{query}").json
        found += [each["id"] for each in page["originals"]]
        query = f"limit=7&after={page['next']}" if page["next"] else ""
    assert found == every
    assert len(every) > 7


def test_a_page_of_the_archive_reads_no_more_originals_than_it_shows(server, long_session, monkeypatch):
    server.post(f"{long_session}/compact", {"target_tokens": 9_000})
    shown, store = [], server.service.store
    originals = store.originals
    monkeypatch.setattr(store, "originals", lambda *args, **more: shown.append(originals(*args, **more)) or shown[-1])
    assert len(server.get(f"{long_session}/archive?limit=3").json["originals"]) == 3
    assert [len(each) for each in shown] == [4]


def test_compactions_are_listed_page_by_page_and_only_those_shown_are_read(server, long_session, monkeypatch):
    for target in (15_000, 11_000, 8_000):
        assert server.post(f"{long_session}/compact", {"target_tokens": target}).json["compacted"]
    every = server.get(f"{long_session}/compactions").json
    assert (len(every["compactions"]), every["next"]) == (3, None)
    read, report_of = [], compactions.report_of
    monkeypatch.setattr(compactions, "report_of", lambda core, each: read.append(each) or report_of(core, each))
    first = server.get(f"{long_session}/compactions?limit=2").json
    assert len(read) == 2
    rest = server.get(f"{long_session}/compactions?limit=2&after={first['next']}").json
    assert first["compactions"] + rest["compactions"] == every["compactions"]
    assert first["totals"] == rest["totals"] == every["totals"]
    assert rest["next"] is None


def test_facts_come_whole_or_page_by_page(server, long_session):
    every = server.get(f"{long_session}/facts").json
    assert every["next"] is None
    assert len(every["facts"]) > 3
    found, query = [], "limit=2"
    while query:
        page = server.get(f"{long_session}/facts?{query}").json
        assert len(page["facts"]) <= 2
        found += page["facts"]
        query = f"limit=2&after={page['next']}" if page["next"] else ""
    assert found == every["facts"]
    assert server.get(f"{long_session}/facts?after=x").problem == "bad-setting"


def test_an_original_can_be_put_back_into_the_context(server, long_session):
    server.post(f"{long_session}/compact", {"target_tokens": 9_000})
    ref = next(
        each["id"]
        for each in server.get(f"{long_session}/archive").json["originals"]
        if each["id"][:4] in ("tool", "file")
    )
    got = server.post(f"{long_session}/restore", {"ref": ref})
    assert got.status == 200, got.raw
    text = server.get(f"{long_session}/archive/{ref}").json["text"]
    assert text in str(
        [message["content"] for message in server.get(f"{long_session}/context").json["messages"]]
    ).replace("\\n", "\n")


def test_facts_checkpoint_and_handoff_say_where_the_work_stands(server, long_session):
    facts = server.get(f"{long_session}/facts?kind=constraint").json["facts"]
    assert any("legacy/" in fact["content"] for fact in facts)
    assert all(fact["first_seen"] <= fact["last_seen"] for fact in facts)
    assert server.get(f"{long_session}/facts?kind=error").json == server.get(f"{long_session}/facts?kind=failure").json
    refused = server.get(f"{long_session}/facts?kind=mistake")
    assert refused.status == 422
    assert "constraint" in str(refused.json)
    checkpoint = server.get(f"{long_session}/checkpoint").json
    assert checkpoint["checkpoint"]["session_id"] == "long"
    assert "parser" in checkpoint["markdown"]
    request = server.post(f"{long_session}/handoff", {"phase": "validate", "task": "Run the tests"}).json["request"]
    assert (request["phase"], request["task"]) == ("validate", "Run the tests")
    assert request["task_id"].startswith("long-")


REPORT = {
    "phase": "research",
    "status": "complete",
    "decision": "PROCEED",
    "findings": {"files_changed": ["notes/parser.md"]},
    "context_summary": "The parser is in src/parser.py. Extend parse_rule().",
}


def test_the_next_phase_is_given_what_the_last_one_reported(server):
    path = server.made("phases")
    server.post(f"{path}/messages", {"messages": conversation()})
    first = server.post(f"{path}/handoff", {"phase": "research", "feature": "rules", "spec_path": "specs/rules.md"})
    task_id = first.json["request"]["task_id"]
    taken = server.post(f"{path}/handoff/answer", {"answer": {**REPORT, "task_id": task_id}}).json
    assert (taken["decision"], taken["files_changed"]) == ("PROCEED", ["notes/parser.md"])
    assert "parse_rule" in server.get(f"{path}/archive/{taken['id']}").json["text"]
    request = server.post(f"{path}/handoff", {"phase": "write"}).json["request"]
    assert REPORT["context_summary"] in request["context_summary"]
    assert (request["feature"], request["spec_path"]) == ("rules", "specs/rules.md")
    assert "notes/parser.md" in request["files"]
    assert taken["id"] in request["references"]
    again = server.post(f"{path}/handoff/answer", {"answer": json.dumps({**REPORT, "task_id": task_id})})
    assert (again.status, again.json["id"]) == (200, None)


@pytest.mark.parametrize(
    "body", [{}, {"answer": ""}, {"answer": 7}, {"answer": "It went well."}, {"answer": {**REPORT, "task_id": "other"}}]
)
def test_an_answer_that_cannot_be_taken_is_refused(server, body):
    got = server.post(f"{server.made()}/handoff/answer", body)
    assert 400 <= got.status < 500
    assert got.json["detail"]


def test_looking_writes_nothing(server, long_session):
    store = server.service.store
    before = store.session("long")
    for path in ("", "/context", "/history", "/compactions", "/archive", "/search?q=part", "/facts", "/checkpoint"):
        assert server.get(f"{long_session}{path}").status == 200
    assert store.session("long") == before


def test_a_session_tells_how_full_it_is_by_section(server, long_session):
    found = server.get(long_session).json
    assert found["usage"]["sections"]["tool_results"] > 0
    assert found["tokens"] == found["usage"]["tokens"]
    assert found["usage"]["budget_tokens"] < 200_000
    assert found["totals"]["compactions"] == 0


def test_sessions_are_listed_page_by_page(server):
    for at in range(5):
        server.made(f"run-{at}")
    first = server.get("/v1/sessions?limit=3").json
    rest = server.get(f"/v1/sessions?limit=3&after={first['next']}").json
    assert [each["id"] for each in first["sessions"] + rest["sessions"]] == [f"run-{at}" for at in range(5)]
    assert rest["next"] is None


def test_the_server_says_that_it_is_well(server):
    assert server.get("/healthz").json["status"] == "ok"


def test_a_session_of_the_server_is_the_same_in_the_library(server, tmp_path):
    path = server.made()
    server.post(f"{path}/messages", {"messages": [ASK]})
    with Session.open("run-42", store=f"sqlite:///{tmp_path}/compactor.db") as session:
        session.append(REPLY)
    assert server.get(f"{path}/history").json["messages"] == [ASK, REPLY]


def test_a_window_that_another_server_has_changed_is_known_here(server, tmp_path):
    path = server.made(window=200_000)
    server.post(f"{path}/messages", {"messages": [ASK]})
    with Session.open("run-42", store=f"sqlite:///{tmp_path}/compactor.db", window=50_000):
        pass
    assert server.get(path).json["usage"]["budget_tokens"] < 50_000
