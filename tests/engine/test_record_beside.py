"""A record is found wherever it stands in its message; what stands beside it is not lost, and a quotation is none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import compact
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.record import (
    CLOSING,
    OPENING,
    Quote,
    Record,
    RecordEntry,
    open_record,
    open_turns,
    render_record,
)
from context_compactor.engine.compact import run_request
from context_compactor.engine.request import CompactionRequest
from context_compactor.engine.tiers import Tier
from tests.engine import promises
from tests.engine.talks import DIALECT_NAMES, Raw, bash, talk_in

REMINDER = (
    "<system-reminder>\nAlways answer in French. We decided to use Oracle. Today is Monday.\n[Context record. old]\n"
    "</system-reminder>"
)
WAYS = (
    "block before",
    "block after",
    "text before",
    "text after",
    "two blocks before",
    "text before and block after",
    "message before",
)
REF = re.compile(r" \((?:×\d+, )?(?:turn|tool|file)_\d+\)$")
SECTIONS = ("Task", "Rules and corrections by the user", "Decisions", "Failed before, do not repeat")
RECORD = render_record(
    Record(
        9,
        900,
        4,
        3,
        quotes=(Quote("turn_001", f"Fix the parser.\n{CLOSING}\nNow.", "active"),),
        sections={"Decisions": (RecordEntry("We go with SQLite because it is there (turn_002)"),)},
    )
)


def blocks_of(raw: Raw, kind: str) -> list[Raw]:
    content = raw["parts"] if "parts" in raw else raw["content"]
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content)


def with_reminder(messages: list[Raw], dialect: str, way: str) -> list[Raw]:
    """The messages with a client's reminder in the message that holds the record, or in one before it."""
    kind = "input_text" if dialect == "openai-responses" else "text"
    field = "parts" if dialect == "gemini" else "content"
    at = next(at for at, raw in enumerate(messages) if OPENING in str(raw.get(field)))
    if way == "message before":
        return [*messages[:at], DIALECTS[dialect].user_text(REMINDER).raw, *messages[at:]]
    blocks, reminder = blocks_of(messages[at], kind), {"type": kind, "text": REMINDER}
    if dialect in ("gemini", "bedrock"):
        reminder.pop("type")
    holder = next(block for block in blocks if OPENING in block.get("text", ""))
    place = blocks.index(holder)
    if "text before" in way:
        blocks[place] = holder | {"text": f"{REMINDER}\n{holder['text']}"}
    if way == "text after":
        blocks[place] = holder | {"text": f"{holder['text']}\n\n{REMINDER}"}
    if "block after" in way:
        blocks.insert(place + 1, reminder)
    if "before" in way and "block" in way.partition(" before")[0]:
        blocks[place:place] = [reminder] * (2 if "two" in way else 1)
    is_text = len(blocks) == 1 and isinstance(messages[at][field], str)
    content: Any = blocks[0]["text"] if is_text else blocks
    return [*messages[:at], messages[at] | {field: content}, *messages[at + 1 :]]


def kept(messages: list[Raw], dialect: str, said: list[str]) -> dict[str, set[str]]:
    """What of all that was said stands in a context, and what its record says of the task; references differ."""
    parsed = promises.parsed(messages, dialect)
    record, words = promises.record_of(parsed, dialect), promises.words(parsed)
    assert record is not None
    return {
        "said": {each for each in said if each in words},
        "task": {f"{quote.status}: {quote.text}" for quote in record.quotes},
        "lines": {REF.sub("", line) for title in SECTIONS for line in record.lines(title)},
    }


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(ways=st.lists(st.sampled_from(("", *WAYS)), min_size=3, max_size=3), ends_with_user=st.booleans())
def test_a_reminder_beside_the_record_changes_nothing_of_what_a_chain_of_compactions_keeps(
    dialect, ways, ends_with_user
):
    plain: list[Raw] = []
    other: list[Raw] = []
    said: list[str] = []
    for number, way in enumerate(ways):
        asked, rule = f"Please mend part {number} of the parser.", f"Never touch legacy_{number}/."
        decided = f"We go with approach {number} because it is the simplest that works."
        said += [rule, decided, f"make part_{number}", f"Error: part {number} is broken"]
        talk = talk_in(dialect).user(f"{asked} {rule}")
        talk.step(bash(f"make part_{number}", f"Exit code 2\nError: part {number} is broken", failed=True))
        talk.answer(decided).user("Go on.")
        for step in range(14):
            lines = "\n".join(f"note {line} of {number}_{step} says nothing new" for line in range(30))
            talk.step(bash(f"cat notes_{number}_{step}", lines), text="Reading on.")
        if ends_with_user:
            talk.answer("Done.").user("Go on, please.")
        plain = compact([*plain, *talk.messages], target_tokens=2_000, dialect=dialect).messages
        result = compact([*other, *talk.messages], target_tokens=2_000, dialect=dialect)
        assert promises.illegal(result, dialect) == []
        other = result.messages
        assert kept(other, dialect, said) == kept(plain, dialect, said)
        assert kept(other, dialect, said)["said"] == set(said)
        assert len(kept(other, dialect, said)["task"]) == min(number + 1, 2)
        other = with_reminder(other, dialect, way) if way else other


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("words", ["", "And now go on."])
def test_what_stands_beside_the_record_stays_in_the_conversation(dialect, way, words):
    spoken = DIALECTS[dialect]
    first = spoken.user_text(RECORD)
    first = spoken.join(first, spoken.user_text(words)) if words else first
    messages = spoken.parse(with_reminder([first.raw], dialect, way))
    live, record = open_record(messages, spoken)
    assert record is not None
    assert record.quotes[0].text == f"Fix the parser.\n{CLOSING}\nNow."
    left = "\n".join(message.text for message in live)
    assert left.count(REMINDER) == (2 if "two" in way or "and" in way else 1)
    assert words in left
    assert all(message.role == "user" for message in live)
    assert CLOSING not in left


CLIENT_TEXTS = st.one_of(
    st.sampled_from(
        (
            REMINDER,
            "<system-reminder>\n# claudeMd\nA tag is closed with </system-reminder> there.\n</system-reminder>\n",
            "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
            "# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nNever push.\n</INSTRUCTIONS>",
            "<local-command-caveat>Caveat</local-command-caveat>\n<command-name>/compact</command-name>",
        )
    ),
    st.text(st.characters(exclude_characters="<[", exclude_categories=("Cs",)), max_size=40).map(
        lambda text: f"<system-reminder>{text}</system-reminder>"
    ),
)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(before=st.lists(CLIENT_TEXTS, max_size=4), behind=st.lists(st.text(min_size=1).filter(str.strip), max_size=3))
def test_the_record_of_a_compaction_is_found_among_the_other_blocks_of_its_message(dialect, before, behind):
    spoken = DIALECTS[dialect]
    first = spoken.user_text(RECORD).raw
    block = {"text": ""} if dialect in ("gemini", "bedrock") else blocks_of(first, "text")[0]
    blocks = [block | {"text": text} for text in (*before, RECORD, *behind)]
    raw = first | {"parts" if dialect == "gemini" else "content": blocks}
    live, record = open_record(spoken.parse([raw]), spoken)
    assert record is not None
    assert record.quotes[0].text == f"Fix the parser.\n{CLOSING}\nNow."
    left = [part.text.strip("\n") for each in live for part in each.parts]
    assert left == [text.strip("\n") for text in (*before, *behind)]


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@given(before=CLIENT_TEXTS.filter(lambda text: text.startswith("<")))
def test_the_record_of_a_compaction_is_found_behind_a_reminder_in_the_same_text(dialect, before):
    spoken = DIALECTS[dialect]
    live, record = open_record([spoken.user_text(f"{before}\n{RECORD}")], spoken)
    assert record is not None
    assert [message.text.strip() for message in live] == [before.strip()]


@pytest.mark.parametrize("between", ["", " ", "\n", "\n\n"])
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_record_that_a_client_has_joined_with_other_texts_is_found(dialect, between):
    spoken = DIALECTS[dialect]
    live, record = open_record([spoken.user_text(between.join((REMINDER, RECORD, "And now go on.")))], spoken)
    assert record is not None
    assert [message.text.strip() for message in live] == [REMINDER, "And now go on."]


@pytest.mark.parametrize("words", ["What does this mean?\n", "> ", "```\n", "See <system-reminder> and\n", "[image]\n"])
@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_record_that_somebody_quotes_is_no_record(dialect, words):
    spoken = DIALECTS[dialect]
    own_block = spoken.parse([spoken.join(spoken.user_text(words), spoken.user_text(RECORD)).raw])
    for messages in (
        [spoken.user_text(words + RECORD)],
        [spoken.user_text(f"{REMINDER}\n{words}{RECORD}")],
        own_block,
        [spoken.user_text("Look."), spoken.user_text(RECORD)],
    ):
        assert open_record(messages, spoken) == (messages, None)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_record_in_the_output_of_a_tool_is_no_record(dialect):
    messages = talk_in(dialect).step(bash("cat record.txt", RECORD)).messages
    parsed = promises.parsed(messages, dialect)
    assert open_record(parsed, DIALECTS[dialect]) == (parsed, None)


def test_turns_behind_the_record_keep_their_numbers_when_a_client_puts_a_message_before_it():
    talk = talk_in("anthropic").user("Please mend the parser.")
    for step in range(6):
        lines = "\n".join(f"note {line} of {step}" for line in range(60))
        talk.step(bash(f"cat notes_{step}", lines), text=f"Reading {step}.")
    talk.answer("Done.").user("Go on.")
    first = run_request(
        talk.messages, CompactionRequest(target_tokens=1_500, tier_overrides={3: Tier.KEEP}), dialect="anthropic"
    ).messages
    spoken = DIALECTS["anthropic"]
    plain, record = open_turns(spoken.parse(first), spoken)
    beside, _ = open_turns(spoken.parse(with_reminder(first, "anthropic", "block before")), spoken)
    assert record is not None
    assert record.behind[0][0] == plain[0].number == 3
    new, *rest = beside
    assert new.messages[0].text == REMINDER
    assert new.number == record.turns + 1
    assert [turn.exchanges for turn in rest] == [turn.exchanges for turn in plain]
    assert {turn.number: turn.messages for turn in rest if turn.number <= record.turns} == {
        turn.number: turn.messages for turn in plain if turn.number <= record.turns
    }
