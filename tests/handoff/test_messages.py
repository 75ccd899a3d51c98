from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import BadInput
from context_compactor.handoff.context_summary import MOST_TOKENS, count_tokens
from context_compactor.handoff.parser import read_report, read_request, read_response
from context_compactor.handoff.protocol import DECISIONS, PHASES, STATUSES, HandoffRequest, HandoffResponse

ANSWER = {
    "task_id": "research-123",
    "phase": "research",
    "status": "complete",
    "decision": "PROCEED",
    "findings": {"existing_implementations": ["src/lib/auth.ts"], "conflicts": []},
    "context_summary": "JWT auth exists in src/lib/auth.ts. Follow the validateToken pattern.",
    "tokens_used": 15_000,
}
REQUEST = HandoffRequest("TASK-042", "write", "Add the login endpoint.")
TASK_RESULT = """## Task Result

**Task ID**: TASK-042
**Status**: success
**Summary**: Implemented login endpoint with JWT authentication
**Files Modified**:
- src/auth/login.ts (created)
- src/auth/types.ts (created)

**Implementation Details**:
The handler reads the body, then the cookie.

**Test Results**:
collected 12 items
tests/test_auth.py ............
12 passed in 3.20s

**Recommendations**:
- Add rate limiting
- Consider refresh tokens
"""
LONG = "\n".join(f"The rule in src/part_{at}.py must stay because caller_{at} counts on it." for at in range(200))

WORDS = st.text(max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | WORDS
    | st.sampled_from(["research", "proceed", "failed"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*ANSWER]) | WORDS, inner, max_size=6),
    max_leaves=12,
)
RESPONSES = st.builds(
    HandoffResponse,
    task_id=st.text("abc-123", min_size=1, max_size=12),
    phase=st.sampled_from(PHASES),
    status=st.sampled_from(STATUSES),
    decision=st.sampled_from(DECISIONS),
    findings=st.dictionaries(WORDS, st.integers() | WORDS | st.lists(WORDS, max_size=3), max_size=4),
    context_summary=st.sampled_from(
        ["Use JWT.", "The root cause is parse_dates.\n- never touch app/db.py", "まず直す。"]
    ),
    tokens_used=st.none() | st.integers(0, 10**9),
)


def answer(**changes):
    return ANSWER | changes


@pytest.mark.parametrize(
    "form",
    [
        ANSWER,
        json.dumps(ANSWER),
        f"Here is what I found:\n```json\n{json.dumps(ANSWER, indent=2)}\n```\nTell me if you need more.",
        f"I am done {{really}}. {json.dumps(ANSWER)} Bye.",
        {"result": ANSWER},
        [ANSWER][0] | {"decision": "proceed", "phase": "Research", "status": "SUCCESS", "tokens_used": "15,000"},
    ],
    ids=["object", "JSON", "fenced", "among prose", "wrapped", "other spellings"],
)
def test_an_answer_is_read_from_every_form_that_sub_agents_write(form):
    assert read_response(form).message.to_dict() == ANSWER


def test_what_stands_beside_the_known_fields_is_kept_among_the_findings():
    found = read_response(answer(files_changed=["a.py"], findings=["one", "two"])).message.findings
    assert found == {"files_changed": ["a.py"], "report": ["one", "two"]}


def test_a_markdown_task_result_is_read_and_its_summary_has_files_tests_and_recommendations():
    response = read_response(TASK_RESULT, REQUEST).message
    assert (response.task_id, response.phase, response.status, response.decision) == (
        "TASK-042",
        "write",
        "complete",
        "PROCEED",
    )
    assert response.findings["files_modified"] == ["src/auth/login.ts (created)", "src/auth/types.ts (created)"]
    assert response.findings["implementation_details"].startswith("The handler reads")
    for shown in ("login endpoint", "src/auth/login.ts", "12 passed", "rate limiting", "refresh tokens"):
        assert shown in response.context_summary
    assert "reads the body" not in response.context_summary


@pytest.mark.parametrize(
    ("status", "decision"), [("success", "PROCEED"), ("partial", "CLARIFY"), ("blocked", "CLARIFY"), ("failed", "STOP")]
)
def test_a_task_result_without_a_decision_gets_it_from_its_status(status, decision):
    assert read_response(TASK_RESULT.replace("success", status), REQUEST).message.decision == decision


def test_the_request_fills_in_what_an_answer_does_not_repeat():
    bare = {name: value for name, value in ANSWER.items() if name not in ("task_id", "phase")}
    response = read_response(bare, REQUEST).message
    assert (response.task_id, response.phase) == ("TASK-042", "write")


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"phase": "deploy"}, "phase", "'deploy' is not known; use one of research, write, validate, parallel"),
        ({"phase": ["research"]}, "phase", "must be one of research, write, validate, parallel, not a list"),
        ({"decision": "maybe"}, "decision", "'MAYBE' is not known; use one of PROCEED, STOP, CLARIFY"),
        ({"status": "fine"}, "status", "'fine' is not known"),
        ({"status": None}, "status", "is missing"),
        ({"task_id": " "}, "task_id", "is empty"),
        ({"task_id": "x" * 300}, "task_id", "has 300 characters; 200 is the limit"),
        ({"task_id": {}}, "task_id", "must be a text, not an object"),
        ({"context_summary": ""}, "context_summary", "is empty"),
        ({"context_summary": {"a": 1}}, "context_summary", "must be a text, not an object"),
        ({"tokens_used": -1}, "tokens_used", "0 or more, not -1"),
        ({"tokens_used": True}, "tokens_used", "0 or more, not bool"),
        ({"tokens_used": 1.5}, "tokens_used", "0 or more, not float"),
        ({"tokens_used": "many"}, "tokens_used", "0 or more, not a text"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_what_would_be_right(changes, field, problem):
    with pytest.raises(BadInput) as caught:
        read_response(answer(**changes))
    assert f"field '{field}': " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("field", ["task_id", "phase", "status", "decision", "context_summary"])
def test_a_field_that_is_missing_is_named(field):
    bare = {name: value for name, value in ANSWER.items() if name != field}
    with pytest.raises(BadInput, match=f"field '{field}': is missing"):
        read_response(json.dumps(bare))


def test_an_answer_to_another_task_is_refused():
    with pytest.raises(BadInput, match="'research-123' was not asked for; the task is 'TASK-042'"):
        read_response(ANSWER, REQUEST)


@pytest.mark.parametrize("nothing", [None, 3, [], "", "All done.", "{", "[1, 2]", "{}", b"{}"])
def test_what_holds_no_answer_is_refused(nothing):
    with pytest.raises(BadInput, match="handoff response"):
        read_response(nothing)


def test_a_report_without_a_form_becomes_an_answer_with_the_decision_of_whoever_asked():
    report = (
        "Let me look at it.\n\n## Recommendation\nKeep parse_dates in src/dates.py.\n"
        "agentId: a1 (for resuming)\n<usage>total_tokens: 51455\ntool_uses: 2</usage>"
    )
    received = read_report(report, REQUEST)
    assert received.message.tokens_used == 51_455
    assert received.message.context_summary == "## Recommendation\nKeep parse_dates in src/dates.py."
    assert received.left_out == ("Let me look at it.",)
    assert received.raw == received.message.findings["report"] == report
    assert read_report(report, REQUEST, "STOP").message.status == "blocked"
    with pytest.raises(BadInput, match="the report is empty"):
        read_report(" \n", REQUEST)


def test_a_summary_that_is_too_long_cannot_be_sent():
    for make in (
        lambda: HandoffRequest("a", "write", "Do it.", LONG),
        lambda: HandoffResponse("a", "write", "complete", "PROCEED", {}, LONG),
    ):
        with pytest.raises(BadInput, match=r"'context_summary': has [\d,]+ tokens; 500 is the limit. clean_summary"):
            make()


def test_a_summary_that_is_too_long_is_cut_on_receiving_and_what_is_left_out_is_returned():
    received = read_response(answer(context_summary=LONG))
    shown = received.message.context_summary
    *lines, mark = shown.split("\n")
    assert MOST_TOKENS * 0.9 < count_tokens(shown) <= MOST_TOKENS
    assert mark == "[… more was left out]"
    assert sorted([*lines, *received.left_out]) == sorted(LONG.split("\n"))
    assert received.raw["context_summary"] == LONG


def test_a_request_is_held_to_the_same_limit_on_receiving():
    received = read_request(json.dumps(REQUEST.to_dict() | {"context_summary": LONG}))
    assert count_tokens(received.message.context_summary) <= MOST_TOKENS
    assert received.left_out


def test_a_request_survives_its_own_json_and_says_what_is_wrong_with_another():
    request = HandoffRequest("a", "parallel", "Do it.", "Use JWT.", ("no new table",), ("src/a.py",), ("agent_001",))
    assert read_request(request.to_json()).message == request
    assert read_request(request).message == request
    for change, field in (({"task": ""}, "task"), ({"files": "a.py"}, "files"), ({"constraints": [1]}, "constraints")):
        with pytest.raises(BadInput, match=f"field '{field}'"):
            read_request(request.to_dict() | change)
    with pytest.raises(BadInput, match="no JSON object"):
        read_request("Please do it.")


@given(RESPONSES)
def test_a_response_survives_its_own_json(response):
    assert read_response(response.to_json()).message == response
    assert read_response(response.to_dict()).message == response
    assert read_response(response).message == response


@given(VALUES, st.booleans())
def test_any_value_is_an_answer_or_bad_input(value, as_text):
    try:
        received = read_response(json.dumps(value) if as_text else value)
    except BadInput:
        return
    assert count_tokens(received.message.context_summary) <= MOST_TOKENS


@given(st.fixed_dictionaries(dict.fromkeys(ANSWER, VALUES)))
def test_any_values_in_the_fields_are_an_answer_or_bad_input(fields):
    try:
        read_response(fields)
        read_request(fields)
    except BadInput as problem:
        assert "handoff re" in str(problem)


@given(st.text(max_size=200))
def test_any_text_is_an_answer_or_bad_input(text):
    for each in (text, f"**Status**: {text}\n**Summary**: {text}", f"**Task ID**: x\n**Status**: done\n{text}"):
        try:
            read_response(each, REQUEST)
        except BadInput as problem:
            assert "handoff response" in str(problem)
