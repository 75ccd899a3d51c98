"""The rules for each kind of content, in the context itself: what is kept of a result that is shortened."""

from __future__ import annotations

import json

import pytest

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Message
from context_compactor.dialects.repair import repair
from context_compactor.engine.classify import parse_context
from context_compactor.engine.compact import write_context
from context_compactor.engine.request import EngineConfig, Goal, shares_for
from context_compactor.engine.result import CompactedContext, context_texts
from context_compactor.engine.strategies import DEFAULT_LAYOUTS, DEFAULT_STRATEGIES, KeepLines
from context_compactor.settings import Level
from context_compactor.tokens.counting import MessageCounter, counter_for
from tests.engine.talks import DIALECT_NAMES, Call, Talk, bash, read, talk_in

REPORT = "\n".join(
    [
        "## Task Result",
        "**Task ID**: TASK-042",
        "**Status**: success",
        "**Summary**: Implemented login endpoint with JWT authentication",
        "**Files Modified**:",
        "- src/auth/login.ts (created)",
        "- src/auth/types.ts (created)",
        "- tests/auth/login.test.ts (created)",
        "**Implementation Details**:",
        *(f"Step {at}: the handler of case {at} compares the hash with the row of table users." for at in range(200)),
        "**Test Results**:",
        *(f"  \u2713 login case {at} ({at % 7} ms)" for at in range(90)),
        "12 passing",
        "**Recommendations**:",
        "- Add rate limiting",
        "- Consider refresh tokens",
    ]
)
PYTEST = "\n".join(
    [
        "============================= test session starts ==============================",
        "collected 136 items",
        *(f"tests/test_auth.py::TestLogin::test_case_{at} PASSED    [{at * 100 // 136:3d}%]" for at in range(134)),
        "tests/test_auth.py::test_rotates_on_use FAILED  [ 99%]",
        "tests/test_auth.py::test_logout FAILED [100%]",
        "=================================== FAILURES ===================================",
        "____________________________ test_rotates_on_use _____________________________",
        "E       AssertionError: assert 401 == 200",
        "tests/test_auth.py:61: AssertionError",
        "=========================== short test summary info ============================",
        "FAILED tests/test_auth.py::test_rotates_on_use - AssertionError: assert 401 == 200",
        "FAILED tests/test_auth.py::test_logout - KeyError: 'sid'",
        "======================== 2 failed, 134 passed in 8.41s =========================",
    ]
)
TRACE = "\n".join(
    [
        "Error: could not save the session",
        "    at Store.save (/srv/shop/src/store/save.ts:88:11)",
        *(f"    at handle{at} (/srv/shop/node_modules/express/lib/router.js:{90 + at}:5)" for at in range(60)),
        "Caused by: TypeError: Cannot read properties of undefined (reading 'exp')",
        "    at verifyToken (/srv/shop/src/auth/jwt.ts:41:19)",
        *(f"    at next{at} (/srv/shop/node_modules/express/lib/index.js:{280 + at}:10)" for at in range(50)),
    ]
)
RUNS = [
    {"id": 88213 + at, "status": "ok" if at % 3 else "failed", "title": f"run {at}", "log": "line of the log " * 20}
    for at in range(40)
]
ANSWER = f"HTTP/1.1 200 OK\ncontent-type: application/json\n\n{json.dumps(RUNS, indent=1)}"
HITS = "\n".join(
    [
        *(f"src/mod{at % 9}/file{at}.ts:{at * 7 + 3}:  const next = rotateToken(session, {at});" for at in range(90)),
        "src/auth/jwt.ts:41:export function rotateToken(session: Session, at: number): Token {",
    ]
)
TOLD = {
    "sub-agent": (
        "success: Implemented login endpoint with JWT authentication",
        "Add rate limiting, Consider refresh tokens",
        "src/auth/login.ts, src/auth/types.ts, tests/auth/login.test.ts",
    ),
    "tests": ("134 passed, 2 failed: ", "test_rotates_on_use", "test_logout", "assert 401 == 200"),
    "trace": (
        "Error: could not save the session",
        "TypeError: Cannot read properties of undefined (reading 'exp')",
        "src/auth/jwt.ts:41:19 in verifyToken",
    ),
    "API": ("200 OK; 40 items, status ok 26, failed 14; first: id=88213",),
    "search": ("91 hits in 91 files: src/auth/jwt.ts:41 export function rotateToken(session: Session, at: number)",),
}


def source_code(seed: int, lines: int) -> str:
    return "\n".join(f"export const value{seed}_{at} = load({seed * 31 + at * 7});" for at in range(lines))


def talk_about_login(dialect: str, parts: int) -> Talk:
    talk = talk_in(dialect).user("Add a login endpoint with JWT to the shop. Never touch legacy/.")
    talk.step(Call("Task", {"description": "Implement login", "prompt": "Implement the login endpoint"}, REPORT))
    talk.step(bash("pytest -v tests/test_auth.py", f"Exit code 1\n{PYTEST}", failed=True), text="Running the tests.")
    talk.step(bash("node dist/server.js", f"Exit code 1\n{TRACE}", failed=True))
    talk.step(bash("curl -i https://ci.example.com/runs", ANSWER))
    talk.step(bash("rg -n rotateToken src", HITS))
    for at in range(parts):
        talk.step(read(f"src/mod{at}/part{at}.ts", source_code(at, 30)), text=f"Looking at part {at}.")
    return talk.user("go on").step(read("src/last.ts", source_code(99, 5))).answer("I have looked at all parts.")


def outcome(messages: list[Message], dialect: str, share: float, level: Level) -> CompactedContext:
    counter = MessageCounter(counter_for(None), dialect)
    goal = Goal(int(counter.request_tokens(messages) * share), 10**9, level, shares_for(level, 5, 0.25))
    config = EngineConfig(DIALECTS[dialect], counter, DEFAULT_STRATEGIES, DEFAULT_LAYOUTS)
    return write_context(parse_context(messages, config.dialect), goal, config)


def compacted(messages: list[Message], dialect: str, share: float, level: Level) -> list[Message]:
    return outcome(messages, dialect, share, level).written.messages


def opened(dialect: str, parts: int = 20) -> list[Message]:
    return repair(DIALECTS[dialect].parse(talk_about_login(dialect, parts).messages), DIALECTS[dialect])[0]


@pytest.mark.parametrize("level", [Level.SOFT, Level.AGGRESSIVE, Level.EMERGENCY])
@pytest.mark.parametrize("share", [0.25, 0.1, 0.04])
def test_the_rule_of_each_kind_holds_in_a_context_of_any_size(share, level):
    text = "\n".join(context_texts(compacted(opened("anthropic"), "anthropic", share, level)))
    for kind in ("sub-agent", "tests", "trace") if share < 0.1 else TOLD:
        assert [each for each in TOLD[kind] if each not in text] == [], kind
    assert " PASSED" not in text


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_result_that_is_shortened_in_its_place_begins_with_how_it_ended(dialect):
    messages = compacted(opened(dialect, parts=3), dialect, 0.45, Level.SOFT)
    results = [result.text for message in messages for result in message.results]
    assert any(text.startswith("[in short: success: Implemented login endpoint") for text in results)
    assert any("]\n[in short: 134 passed, 2 failed: " in text for text in results)
    assert any(text.startswith("[in short: 200 OK; 40 items") for text in results)
    assert not any(" PASSED" in text for text in results)


def test_how_a_call_ended_is_told_once_after_several_compactions():
    messages = opened("anthropic", parts=3)
    for share in (0.45, 0.8, 0.8):
        messages = compacted(messages, "anthropic", share, Level.SOFT)
    assert "\n".join(context_texts(messages)).count("134 passed, 2 failed: ") == 1


@pytest.mark.parametrize(("tests", "offered"), [(1, 1), (2, 2), (30, 0)])
def test_only_many_lines_of_passed_tests_are_left_out(tests, offered):
    lines = [f"tests/a.py::test_{at} PASSED" for at in range(tests)]
    talk = talk_in("anthropic").user("Run it.").step(bash("pytest -v", "\n".join([*lines, f"{tests} passed in 0.1s"])))
    for at in range(6):
        talk.step(read(f"src/part{at}.ts", source_code(at, 40)))
    messages = repair(DIALECTS["anthropic"].parse(talk.user("go on").messages), DIALECTS["anthropic"])[0]
    view = outcome(messages, "anthropic", 0.3, Level.SOFT).composer.view
    texts = [option.text for option in KeepLines().propose(view)]
    assert sum(text in lines for text in texts) == offered
    assert f"{tests} passed in 0.1s" in texts


@pytest.mark.parametrize(
    ("line", "is_idle"),
    [
        ("Downloading numpy-2.4.4.whl (18 MB)", True),
        ("     \u2501\u2501\u2501\u2501\u2501\u2501\u2501\u2501 18.0/18.0 MB", True),
        ("            return session.close()", False),
        ("Reading config from /etc/shop.toml", False),
    ],
)
def test_progress_is_left_out_and_nothing_that_only_looks_like_it(line, is_idle):
    output = "\n".join([line, "Collecting a", "Collecting b", "Collecting c", "ready"])
    talk = talk_in("anthropic").user("Set it up.").step(bash("./setup", output))
    for at in range(6):
        talk.step(read(f"src/part{at}.ts", source_code(at, 40)))
    messages = repair(DIALECTS["anthropic"].parse(talk.user("go on").messages), DIALECTS["anthropic"])[0]
    view = outcome(messages, "anthropic", 0.3, Level.SOFT).composer.view
    assert (line in [option.text for option in KeepLines().propose(view)]) != is_idle
