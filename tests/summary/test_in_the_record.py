"""What becomes of prose and judgements in a compaction."""

from __future__ import annotations

from msgspec import structs

from context_compactor import flow
from context_compactor.measure.count import message_counter_for
from context_compactor.messages.detect import find_dialect
from context_compactor.messages.record import STORY, Entry, Record, open_record, parse
from context_compactor.plan.goal import Goal
from context_compactor.plan.zones import Shares
from context_compactor.strategies import DEFAULT_STRATEGIES, LAYOUT_LADDER
from context_compactor.summary.shape import from_record, parse_prose, to_entries
from tests.engine.talks import Talk, bash, read, talk_in
from tests.summary.scenes import GOOD

ENTRIES = to_entries(parse_prose(GOOD))


def long_talk(steps: int = 30) -> Talk:
    talk = talk_in("openai-chat").user("Add refresh tokens to the login flow. Never touch legacy/.")
    for step in range(steps):
        talk.step(read(f"src/module_{step}.py", "\n".join(f"value_{step}_{n} = compute_{n}()" for n in range(80))))
        talk.step(bash(f"pytest tests/test_{step}.py", "1 failed\nE   AssertionError", step % 7 == 0))
    return talk.user("Go on with the handler.")


def compacted(messages: list, target: int = 6_000, **kit: object) -> tuple[list, Record, int]:
    dialect = find_dialect("auto", messages)
    counter = message_counter_for(None, dialect.name)
    tools = flow.Kit(dialect, counter, DEFAULT_STRATEGIES, LAYOUT_LADDER)
    scene = flow.read_scene(dialect.parse(messages), dialect)
    outcome = flow.compact(scene, Goal(target, 10**9, None, Shares()), structs.replace(tools, **kit))
    assert outcome.damage == []
    record = outcome.written.record
    assert record is not None
    return [message.raw for message in outcome.written.messages], record, outcome.written.tokens


def test_prose_stands_in_the_record_and_the_context_fits():
    _, record, tokens = compacted(long_talk().messages, story=ENTRIES)
    assert record.sections[STORY] == ENTRIES
    assert tokens <= 6_000


def test_the_ledgers_are_the_same_with_prose_and_without():
    _, without, _ = compacted(long_talk().messages)
    _, told, _ = compacted(long_talk().messages, story=ENTRIES)
    failed = "Failed before, do not repeat"
    assert told.sections[failed] == without.sections[failed]
    assert told.quotes == without.quotes


def test_prose_is_found_again_and_newer_prose_takes_its_place():
    first, _, _ = compacted(long_talk().messages, story=ENTRIES)
    again = [*first, *long_talk(20).messages[1:]]
    _, past = open_record(find_dialect("auto", again).parse(again), find_dialect("auto", again))
    assert from_record(past).sections == parse_prose(GOOD).sections
    _, record, _ = compacted(again, story=(Entry("everything", "done"),))
    assert record.lines(STORY) == ("done: everything",)


def test_without_newer_prose_the_old_one_is_told_as_the_past():
    first, _, _ = compacted(long_talk().messages, story=ENTRIES)
    _, record, _ = compacted([*first, *long_talk(20).messages[1:]], target=9_000)
    told = record.sections.get(STORY, ())
    unfinished = ("active", "blocked", "next")
    assert set(told) <= {
        structs.replace(entry, status=f"earlier {entry.status}") if entry.status in unfinished else entry
        for entry in ENTRIES
    }
    assert not any(entry.status in unfinished for entry in told)


def test_prose_makes_way_when_nothing_else_fits():
    _, record, tokens = compacted(long_talk().messages, target=700, story=ENTRIES * 20)
    assert STORY not in record.sections
    assert tokens <= 1_000


def test_a_turn_that_a_model_holds_dear_keeps_more_of_its_lines():
    turn = 24
    plain, record, _ = compacted(long_talk().messages)
    dear, judged, _ = compacted(long_talk().messages, factors={turn: 2.5})
    kept = [
        sum(len(e.lines) for e in each.excerpts if "module_11" in "".join((e.label, *e.lines)))
        for each in (record, judged)
    ]
    assert kept[1] >= kept[0]
    assert dear != plain


def test_without_prose_and_judgements_nothing_changes():
    assert compacted(long_talk().messages) == compacted(long_talk().messages, story=(), factors={})
    assert parse("no record") is None
