"""Every format a conversation can come in, and how it is found out."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import ReportedUsage
from context_compactor.dialects.transcripts.reader import (
    parse_transcript,
    parse_transcripts,
    read_transcript,
    read_transcripts,
)
from context_compactor.dialects.transcripts.transcript import PastCompaction
from context_compactor.errors import BadTranscript

FIXTURES = Path(__file__).parent.parent / "fixtures" / "transcripts"
CHAT = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day."}]
RESPONSES = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
ANTHROPIC = [{"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}]}]


def lines(values: list[object]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


@pytest.mark.parametrize(
    ("messages", "dialect"), [(CHAT, "openai-chat"), (RESPONSES, "openai-responses"), (ANTHROPIC, "anthropic")]
)
@pytest.mark.parametrize("write", [json.dumps, lines, lambda value: json.dumps(value, indent=2)])
def test_messages_are_read_from_a_list_and_from_lines(messages, dialect, write):
    transcript = parse_transcript(write(messages))
    assert transcript.messages == messages
    assert transcript.dialect == transcript.source == dialect


def test_a_single_message_is_a_conversation_of_one():
    assert parse_transcript(json.dumps(CHAT[0])).messages == CHAT[:1]


def test_an_anthropic_body_is_known_by_its_system_prompt():
    transcript = read_transcript(FIXTURES / "anthropic_body.json")
    assert transcript.dialect == "anthropic"
    assert [message["role"] for message in transcript.messages] == ["user", "assistant", "user"]
    assert transcript.system[0]["text"] == "Be kind."
    assert transcript.tools == [{"name": "Read", "input_schema": {"type": "object"}}]
    assert (transcript.model, transcript.extra) == ("claude-opus-4-6", {"max_tokens": 1000})


def test_a_responses_body_may_hold_its_input_as_a_text():
    transcript = read_transcript(FIXTURES / "responses_body.json")
    assert transcript.dialect == "openai-responses"
    assert transcript.messages == [{"type": "message", "role": "user", "content": "Hello"}]
    assert transcript.system == "Be brief."


def test_a_chat_body_with_its_own_system_message_stays_chat():
    body = {"system": "x", "messages": [{"role": "system", "content": "Be brief."}, *CHAT]}
    assert parse_transcript(json.dumps(body)).dialect == "openai-chat"


def test_usage_beside_a_message_is_read_and_left_where_it_is():
    transcript = read_transcript(FIXTURES / "chat.json")
    assert transcript.usages == {2: ReportedUsage(input=20, cache_read=100, output=9)}
    assert "usage" in transcript.messages[2]


def test_a_recorded_conversation_tells_its_compactions_and_gives_up_its_usage():
    first = next(read_transcripts(FIXTURES / "recorded.jsonl"))
    assert first.session_id == "day/1"
    assert first.compactions == [PastCompaction(2, "manual", 100, "They said good morning.")]
    assert first.usages[1].prompt == 100
    assert not any("usage" in message for message in first.messages)
    assert first.extra["outcome"] == {"reward": 1.0}


def test_all_recorded_conversations_are_read_one_by_one():
    found = list(read_transcripts(FIXTURES / "recorded.jsonl"))
    assert [(one.session_id, one.dialect) for one in found] == [
        ("day/1", "anthropic"),
        ("day/2", "openai-chat"),
        ("day/3", "openai-chat"),
    ]


def test_a_talk_between_people_says_who_speaks_and_when():
    talk = read_transcript(f"{FIXTURES / 'recorded.jsonl'}#day/3")
    assert talk.messages == [
        {"role": "user", "content": "[8 May] Ada: Tea?"},
        {"role": "assistant", "content": "[8 May] Bo: Please."},
    ]
    assert talk.extra["qa"][0]["answer"] == "tea"


@pytest.mark.parametrize("choice", ["2", "day/2"])
def test_one_of_several_is_chosen_by_number_or_by_id(choice):
    assert read_transcript(f"{FIXTURES / 'recorded.jsonl'}#{choice}").messages == [
        {"role": "user", "content": "Good night"}
    ]


def test_several_conversations_are_an_error_that_says_how_to_choose():
    with pytest.raises(BadTranscript, match=r"holds 3 conversations\. Try: .*recorded.jsonl#1 to .*#day/1, #day/2"):
        read_transcript(FIXTURES / "recorded.jsonl")


def test_a_choice_that_is_not_there_names_those_that_are():
    with pytest.raises(BadTranscript, match=r"no conversation '9'\. Try: .*#3"):
        read_transcript(f"{FIXTURES / 'recorded.jsonl'}#9")


def test_a_file_whose_name_has_a_number_sign_is_that_file(tmp_path):
    path = tmp_path / "run#2"
    path.write_text(json.dumps(CHAT))
    assert read_transcript(path).messages == CHAT


def test_a_list_of_recorded_conversations_is_several():
    text = json.dumps([{"id": "a", "messages": CHAT}, {"id": "b", "messages": CHAT}])
    assert [one.session_id for one in parse_transcripts(text)] == ["a", "b"]


@pytest.mark.parametrize("stream", [io.BytesIO(json.dumps(CHAT).encode()), io.StringIO(json.dumps(CHAT))])
def test_a_dash_is_standard_input(stream):
    assert read_transcript("-", stream).messages == CHAT


PACKINGS = {
    "gzip": lambda text: gzip.compress(text.encode()),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "carriage returns": lambda text: text.replace("\n", "\r\n").encode(),
    "blank lines": lambda text: ("\n \n" + text.replace("\n", "\n\n") + "\n\t\n").encode(),
    "gzip and UTF-16": lambda text: gzip.compress(text.encode("utf-16")),
    "text with a mark": lambda text: "\ufeff" + text,
    "no last line end": lambda text: text.rstrip("\n").encode(),
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_the_packing_of_a_file_does_not_matter(packing):
    messages = [*CHAT, {"role": "user", "content": "→ 你好 مرحبا 🙂"}]
    assert parse_transcript(PACKINGS[packing](lines(messages))).messages == messages


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
message_lists = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.text()}, optional={"x": json_values}
    ),
    min_size=1,
    max_size=5,
)


@given(message_lists, st.booleans())
def test_what_goes_in_as_messages_comes_out_as_the_same_messages(messages, as_lines):
    text = lines(messages) if as_lines else json.dumps(messages)
    transcript = parse_transcript(text)
    assert transcript.messages == messages
    assert [message.raw for message in DIALECTS[transcript.dialect].parse(transcript.messages)] == messages


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_every_reading_passes_its_dialect(path):
    for transcript in read_transcripts(path):
        messages = DIALECTS[transcript.dialect].parse(transcript.messages)
        assert len(messages) == len(transcript.messages)
        assert all(0 <= index < len(messages) for index in transcript.usages)
        assert all(0 <= past.at <= len(messages) for past in transcript.compactions)
