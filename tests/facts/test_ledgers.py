"""Failures as lines of the record, in one compaction and in a chain of them."""

from __future__ import annotations

from context_compactor.dialects.record import FAILED, Record, RecordEntry, parse_entry
from context_compactor.engine.required import required_content
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import timeline_of
from context_compactor.facts.ledgers import (
    cut_failure,
    fact_entry,
    fact_line,
    ledger_lines,
    merge_entries,
    resolved_entry,
)

from .conversations import bash, call, turns_of, user

ERROR = "refresh.test.ts:61 expected 200, got 401"


def failure(status: str, outcome: str = "", count: int = 1, turn: int = 2, last: int = 2) -> Fact:
    return Fact("failure", "npm test -- refresh", turn, "tool", ERROR, status, count, last, "tool_184", outcome=outcome)


def told(entries: tuple[RecordEntry, ...], turns: list, facts: tuple[Fact, ...] = (), target: int = 4_000):  # type: ignore[type-arg]
    record = Record(10, 1_000, 9, 9, sections={FAILED: entries})
    return required_content(facts, turns, record, target, lambda text: len(text) // 4)


def test_a_failure_reads_with_its_status_first():
    assert fact_line(failure("open")) == f"open: `npm test -- refresh` → {ERROR} (tool_184)"
    assert fact_line(failure("")) == f"open: `npm test -- refresh` → {ERROR} (tool_184)"
    assert fact_line(failure("open", "", 3, 84, 90)).endswith("got 401 (×3, turns 84-90, tool_184)")
    resolved = failure("resolved", "passed in turn 93 after editing jwt.ts")
    assert fact_line(resolved).endswith("got 401 → passed in turn 93 after editing jwt.ts (tool_184)")


def test_a_line_is_read_back_as_it_was_written():
    for fact in (failure("open"), failure("given up", 'user: "that only hides it"')):
        assert parse_entry(FAILED, fact_line(fact)) == fact_entry(fact)


def test_what_the_user_denied_is_told_once():
    refused = Fact("failure", "git push --force", 3, "tool", "never do that", "denied", 1, 3, "tool_009")
    denial = Fact("denial", "git push --force", 3, "tool", "the user said: never do that", "", 1, 3, "tool_009")
    assert [line.section for line in ledger_lines([refused, denial])] != [FAILED, FAILED]
    assert len(ledger_lines([refused, denial])) == 1
    assert fact_line(refused) == 'given up: `git push --force` → user: "never do that" (tool_009)'


def test_only_what_is_not_resolved_must_stay():
    lines = ledger_lines([failure("open"), failure("given up"), failure("resolved", "passed in turn 9"), failure("")])
    assert [line.must for line in lines] == [True, True, False, True]


def test_a_cut_line_keeps_its_place_and_what_came_of_it():
    line = fact_entry(failure("resolved", "passed in turn 93 after editing jwt.ts")).text
    assert cut_failure(line, 12) == "`npm test -- refresh` → refresh.test.ts:61… → passed in turn… (tool_184)"
    assert cut_failure(line, 0) == line


def test_the_later_word_on_a_failure_counts_and_its_times_are_added():
    first = RecordEntry(f"`npm test` → {ERROR} (×2, turns 3-8, tool_004)", "open")
    second = RecordEntry(f"`npm test` → {ERROR} → passed in turn 95 (×2, turns 90-93, tool_090)", "resolved")
    assert merge_entries([first, second]) == [
        RecordEntry(f"`npm test` → {ERROR} → passed in turn 95 (×4, turns 3-93, tool_090)", "resolved")
    ]


def test_an_earlier_records_open_line_is_resolved_by_the_turns_since():
    turns = turns_of(
        user("go on"), call("Edit", "ok", file_path="src/jwt.ts"), bash("npm test -- refresh", "9 passing")
    )
    entry = RecordEntry(f"`npm test -- refresh` → {ERROR} (×3, turns 2-7, tool_007)", "open")
    now = resolved_entry(entry, timeline_of(turns))
    assert now.status == "resolved"
    assert now.text == (
        f"`npm test -- refresh` → {ERROR} → passed in turn 3 after editing jwt.ts (×3, turns 2-7, tool_007)"
    )


def test_in_a_chain_of_compactions_failures_stay_with_what_the_turns_since_made_of_them():
    entries = (
        RecordEntry("`npm test` → TypeError: x (tool_004)", "open"),
        RecordEntry("`npm run deploy --prod` → Error: no such stage (tool_005)", ""),
        RecordEntry(
            "`Edit src/a.ts: old` → String to replace not found in file. → not tried again (tool_006)", "given up"
        ),
    )
    kept = told(
        entries, turns_of(user("go on"), bash("npm test", "12 passing"), call("Edit", "ok", file_path="src/a.ts"))
    )
    must = {line.text.split("`")[1]: line.status for line in kept.must if line.section == FAILED}
    assert must == {"npm test": "resolved", "npm run deploy --prod": "open", "Edit src/a.ts: old": "resolved"}


def test_a_command_that_was_cut_is_known_again():
    command = "./scripts/deploy-everything-to-staging.sh --region eu --with-migrations --verbose"
    entry = RecordEntry(f"`{command[:60]}…` → Error: port in use (tool_004)", "open")
    now = resolved_entry(entry, timeline_of(turns_of(bash(command, "deployed"))))
    assert now.status == "resolved"


def test_at_a_small_target_resolved_failures_say_less_before_others_do():
    error = "AssertionError: " + "expected one and got another " * 4
    facts = tuple(
        Fact("failure", f"./run-{number}.sh", 1, "tool", error, status, 1, 1, f"tool_{number:03d}", outcome=how)
        for number, (status, how) in enumerate([("open", ""), ("resolved", "passed in turn 9")] * 5)
    )
    kept = required_content(facts, turns_of(user("go")), None, 2_600, lambda text: len(text) // 4)
    told = [line for line in (*kept.must, *kept.optional) if line.section == FAILED]
    assert sorted(line.status for line in told) == ["open"] * 5 + ["resolved"] * 5
    assert all((error.strip() in line.text) == (line.status == "open") for line in told)


def test_only_resolved_failures_may_be_left_out_where_there_is_no_room():
    facts = tuple(
        Fact("failure", f"./run-{number}.sh", 1, "tool", "Error: no", status, 1, 1, f"tool_{number:03d}", outcome=how)
        for number, (status, how) in enumerate([("open", ""), ("resolved", "passed in turn 9")] * 9)
    )
    kept = required_content(facts, turns_of(user("go")), None, 300, lambda text: len(text) // 4)
    assert len([line for line in kept.must if line.status == "open"]) == 9
    assert {line.status for line in kept.optional if line.section == FAILED} == {"resolved"}
