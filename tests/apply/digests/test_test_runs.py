from __future__ import annotations

import pytest

from context_compactor.engine.digests import digest
from context_compactor.facts.kinds import Kind
from tests.apply.digests import outputs


def short(text: str) -> list[str]:
    return digest(Kind.TEST_RUN, None, text).split("\n")


def test_pytest_keeps_counts_and_failing_names_with_the_whole_message():
    assert short(outputs.PYTEST) == [
        "pytest: 1 failed, 32 passed, 1 error in 3.21s",
        (
            "FAILED tests/test_auth.py::test_rotates_on_use[expired]: AssertionError: assert 1800 == 900"
            " + where 1800 = Token(sub='mia', exp=1800).exp tests/test_auth.py:41"
        ),
        (
            "FAILED tests/test_ledger.py::TestLedger::test_close: FileNotFoundError: [Errno 2] No such file"
            " or directory: 'missing.db' tests/test_ledger.py:14"
        ),
    ]


def test_pytest_without_its_short_summary_still_names_what_failed():
    text = outputs.PYTEST.partition("=========================== short test summary")[0]
    assert short(text)[0] == "pytest: no totals in the output"
    assert short(text)[2].startswith("FAILED test_rotates_on_use[expired]: AssertionError: assert 1800 == 900")


def test_unittest_keeps_failures_and_errors():
    assert short(outputs.UNITTEST) == [
        "unittest: Found 17 test(s)., Ran 17 tests in 0.028s, FAILED (failures=1, errors=1)",
        (
            "FAILED test_form_media (forms_tests.test_media.FormsMediaTestCase.test_form_media):"
            " django.core.exceptions.ImproperlyConfigured: No DjangoTemplates backend is configured."
        ),
        (
            "FAILED test_merge_warning (forms_tests.test_media.FormsMediaTestCase.test_merge_warning):"
            " AssertionError: Lists differ: [2, 1] != [1, 2]"
        ),
    ]


def test_jest_keeps_suites_tests_and_what_was_expected():
    assert short(outputs.JEST) == [
        "jest: Test Suites: 1 failed, 1 passed, 2 total, Tests: 2 failed, 13 passed, 15 total",
        (
            "FAILED refresh › rotates on use: expect(received).toBe(expected) // Object.is equality Expected: 900"
            " Received: 1800 src/auth/refresh.test.ts:40:23"
        ),
        (
            "FAILED refresh › refuses a used token: TypeError: Cannot read properties of undefined (reading 'exp')"
            " src/auth/jwt.ts:88:17"
        ),
    ]


def test_vitest_names_each_failing_test_once_with_its_place():
    assert short(outputs.VITEST) == [
        "vitest: Test Files 1 failed | 1 passed (2), Tests 1 failed | 14 passed (15)",
        (
            "FAILED src/auth/refresh.test.ts > refresh > rotates on use: AssertionError: expected 1800 to be 900"
            " // Object.is equality src/auth/refresh.test.ts:40:23"
        ),
    ]


def test_bun_prints_the_reason_above_the_name():
    assert short(outputs.BUN) == [
        "bun test: 2 pass, 1 fail, Ran 3 tests across 1 file. [61.00ms]",
        "FAILED loader > counts runs: error: expect(received).toBe(expected) Expected: 3 Received: 1",
    ]


def test_go_counts_its_lines_and_keeps_what_failed_and_not_what_was_logged():
    assert short(outputs.GO) == [
        "go test: 1 passed, 3 failed, 1 skipped, 1 package ok, FAIL example.com/app/auth 0.412s",
        "FAILED TestRotate: auth_test.go:41: Expected 2 rewind points, got 0",
        "FAILED TestLedger/closes_once: Error: Not equal: expected: 900",
        "FAILED TestLedger",
    ]


def test_go_events_are_counted_by_action():
    assert short(outputs.GO_JSON) == [
        "go test: 1 fail, 9 pass",
        "FAILED TestRotate: auth_test.go:41: Expected 2, got 0",
    ]


def test_cargo_keeps_the_panic():
    assert short(outputs.CARGO) == [
        "cargo test: test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        (
            "FAILED tests::wraps_at_capacity: thread 'tests::wraps_at_capacity' panicked at src/lib.rs:91:9:"
            " assertion `left == right` failed left: 8 right: 0"
        ),
    ]


def test_junit_keeps_counts_and_messages():
    assert short(outputs.JUNIT) == [
        "JUnit: 0 errors, 1 failures, 2 skipped, 34 tests",
        "FAILED tests.test_auth test_rotates_on_use: AssertionError: assert 1800 == 900",
    ]


def test_junit_that_was_cut_off_still_tells_what_failed():
    assert short(outputs.JUNIT[: outputs.JUNIT.index("def test_rotates")] + "x" * 300)[1].startswith(
        "FAILED tests.test_auth test_rotates_on_use: AssertionError"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "..F\n\nFailures:\n\n  1) Ledger closes once\n     Failure/Error: expect(x).to eq 1\n\n"
            + "     # ./spec/a_spec.rb:3\n" * 20
            + "3 examples, 1 failure\n\nrspec ./spec/a_spec.rb:3 # Ledger closes once\n",
            ["rspec: 3 examples, 1 failure", "FAILED ./spec/a_spec.rb:3 # Ledger closes once"],
        ),
        (
            "[INFO] Running LedgerTest\n" * 20
            + "[ERROR] Tests run: 4, Failures: 1, Errors: 0, Skipped: 0\n"
            + "[ERROR]   LedgerTest.closes:31 expected: <1> was: <2>\n",
            [
                "test runner: [ERROR] Tests run: 4, Failures: 1, Errors: 0, Skipped: 0",
                "FAILED LedgerTest.closes:31 expected: <1> was: <2>",
            ],
        ),
        (
            "  ledger\n    \N{CHECK MARK} opens\n" * 20 + "  12 passing (31ms)\n  1 failing\n",
            ["mocha: 12 passing (31ms), 1 failing"],
        ),
        (
            "TAP version 13\n"
            + "ok 1 - opens\n" * 20
            + "not ok 2 - closes once\n  error: 'boom'\n# pass 20\n# fail 1\n",
            ["node test: # pass 20, # fail 1", "FAILED closes once: 'boom'"],
        ),
    ],
)
def test_other_runners_are_read_too(text, lines):
    assert short(text) == lines


def test_many_failures_are_shown_up_to_a_limit_and_counted():
    names = "\n".join(f"FAILED tests/test_a.py::test_{n} - assert {n} == 0" for n in range(60))
    lines = short(f"= FAILURES =\n{names}\n========= 60 failed in 1.00s =========\n")
    assert lines[0] == "pytest: 60 failed in 1.00s"
    assert lines[-1] == "… 36 more failing tests"


def test_a_run_of_an_unknown_runner_keeps_its_telling_lines():
    lines = short("checking\n" * 40 + "fatal: no suite named ledger\n" + "cleaning up\n" * 40)
    assert "fatal: no suite named ledger" in lines
