"""Tests wait for a state, by `tests/waiting.py`, and for nothing else: a machine may be busy for any time.

A wait of so many seconds is too short on some machine and too long on all others. `sleep(0)` and `pilot.pause(0)` are
none: the first gives way to what is ready to go on, the second returns when every widget has handled its messages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_TESTS = Path("tests")
_HOME = "tests/waiting.py"
_SLEEPS = frozenset({"sleep", "time.sleep", "asyncio.sleep", "pilot.pause"})
_LIMITED = frozenset({"wait", "wait_idle", "result", "join"})
_CLOCKS = frozenset({"monotonic", "perf_counter", "time"})
_PACE = "how fast a scripted counterpart is; nobody waits for it"
_MOMENT = "a random moment at which something is killed or cancelled: all must be well, whichever it is"
_WORK = "how long some work takes, so that others can come in between; nothing is expected of it"
_LATE = "longer than the deadline that the code under test was given"
EXCEPTIONS = {
    "tests/client/test_events.py::test_a_reader_who_is_slow_gets_all_the_same_events_in_order": _PACE,
    "tests/engine/test_model.py::test_an_endless_model_is_ended_by_the_deadline_and_the_digest_is_used": _LATE,
    "tests/installing.py::_installed": "installing a package is no wait of a test, and may take longer",
    "tests/jobs/test_engine.py::test_an_engine_says_what_it_does": "that it is not idle is what is tested",
    "tests/jobs/test_processes.py::talk": _PACE,
    "tests/jobs/test_processes.py::test_two_processes_never_run_one_sessions_jobs_at_once_nor_commit_one_twice": _WORK,
    "tests/jobs/test_processes.py::test_whenever_workers_are_killed_no_job_is_lost_and_none_commits_twice": _MOMENT,
    "tests/jobs/test_promises.py::test_the_same_level_never_runs_twice_for_the_same_session_at_the_same_time": _WORK,
    "tests/llm/provider.py::Provider": _PACE,
    "tests/evaluation/models.py::Endless": _PACE,
    "tests/server/fleet.py::_kill_if_at_work": "a commit of a stopped process may be on its way to its server, where "
    "nobody can see it; it is looked again afterwards, and a job that was done meanwhile is not counted",
    "tests/server/receivers.py::slow_loris": _PACE,
    "tests/server/test_hostile.py::_talk": _PACE,
    "tests/server/test_webhook_targets.py::test_a_name_that_takes_too_long_to_be_found_keeps_nobody_waiting": _LATE,
    "tests/sessions/summarizing.py::Slow": _PACE,
    "tests/sessions/test_cancel.py::test_a_task_may_be_given_up_after_a_time": "giving up is what is tested",
    "tests/sessions/test_concurrency.py::test_a_task_that_is_cancelled_leaves_an_append_whole_or_undone": _MOMENT,
    "tests/sessions/test_concurrency.py::test_work_in_the_background_disturbs_nobody": _WORK,
    "tests/sessions/test_crash.py::kill_one": _MOMENT,
    "tests/tui/test_chat_engine.py::test_words_whose_keeping_was_ended_are_either_kept_or_said_not_to_be": _MOMENT,
    "tests/tui/test_typing_ahead.py::test_that_holds_while_the_app_is_busy_with_something_else": _WORK,
}
"""Which function or class of a test file may wait for so many seconds, and why."""


def problems() -> list[str]:
    """Every wait of some seconds in a test, and every exception that is no longer needed."""
    found = [
        (f"{path}::{where}", f"{path}:{line}: {problem}")
        for path in sorted(_TESTS.rglob("*.py"))
        if str(path) != _HOME
        for where, line, problem in _waits(path)
    ]
    known = {name for name, _ in found}
    return [
        *(problem for name, problem in found if name not in EXCEPTIONS),
        *(
            f"tools/checks/waits.py: {name} does not wait: take it out of the list"
            for name in EXCEPTIONS.keys() - known
        ),
    ]


def _waits(path: Path) -> Iterator[tuple[str, int, str]]:
    """The outermost function or class around each wait, the line, and what is wrong with it."""
    for top in ast.parse(path.read_text(encoding="utf-8")).body:
        for node in ast.walk(top):
            problem = _of_call(node) if isinstance(node, ast.Call) else _of_comparison(node)
            if problem:
                yield getattr(top, "name", ""), node.lineno, problem  # type: ignore[attr-defined]


def _of_call(call: ast.Call) -> str:
    name = ast.unparse(call.func)
    if name in _SLEEPS and [ast.unparse(each) for each in call.args] != ["0"]:
        return f"{ast.unparse(call)}: wait for a state, by {_HOME}"
    limits = [each.value for each in call.keywords if each.arg == "timeout"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in _LIMITED and len(call.args) == 1:
        limits += call.args
    if name in ("asyncio.wait_for", "asyncio.timeout") or (name == "asyncio.to_thread" and _is_wait(call.args[0])):
        limits += call.args[-1:]
    if any(isinstance(each, ast.Constant) and isinstance(each.value, int | float) for each in limits):
        return f"{ast.unparse(call):.100}: PATIENCE of {_HOME} is how long a test waits"
    return ""


def _is_wait(what: ast.expr) -> bool:
    return isinstance(what, ast.Attribute) and what.attr in _LIMITED


def _of_comparison(node: ast.AST) -> str:
    if not isinstance(node, ast.Compare):
        return ""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    if any(call.func.attr in _CLOCKS and not call.args for call in calls if isinstance(call.func, ast.Attribute)):
        return f"{ast.unparse(node):.100}: no test looks at the clock"
    return ""
