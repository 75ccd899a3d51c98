"""A recalled turn reads like a conversation, with ids to go on; the original stays as it was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from context_compactor import Session, compact
from context_compactor.archive.originals import Original
from tests.engine.sessions import sessions
from tests.engine.talks import bash, talk_in

SCRIPT = "cat > notes.txt <<EOF\nfirst\nsecond\nEOF\nmake notes"
OUTPUT = "\n".join(f"line {at} of the output" for at in range(400))


def long_talk(dialect: str = "openai-chat"):
    talk = talk_in(dialect).user("Please look at the notes.")
    talk.step(bash("cat notes.txt", "the old notes\n"))
    talk.step(bash(SCRIPT, OUTPUT))
    talk.answer("The notes are written.").user("ok, thanks. Now the index.")
    for at in range(6):
        talk.step(bash(f"cat part_{at}.txt", f"part {at}\n" * 300))
    return talk.answer("Done.").user("Go on.").messages


@pytest.fixture(params=["openai-chat", "anthropic", "openai-responses"])
def session(request):
    with Session.open("notes", window=200_000, store="sqlite://", dialect=request.param) as opened:
        opened.append(long_talk(request.param))
        opened.compact(target_tokens=900)
        yield opened


def test_a_turn_reads_as_who_said_what(session):
    assert session.recall("turn_001").split("\n")[1] == "user: Please look at the notes."
    assert "agent: The notes are written." in session.recall("turn_004")
    assert "{" not in session.recall("turn_002")


def test_a_call_is_shown_with_all_of_a_long_script_and_a_result_with_its_id(session):
    text = session.recall("turn_003")
    assert SCRIPT in text
    assert "tool_002" in text
    assert "line 0 of the output" in text
    assert "line 399 of the output" in text
    assert "line 200 of the output" not in text
    assert 'tokens left out: recall("tool_002")]' in text
    assert session.recall("tool_002") == OUTPUT


def test_a_turn_names_its_neighbours(session):
    head = session.recall("turn_004").split("\n")[0]
    assert "before: turn_003 (agent: [" in head
    assert "after: turn_005 (user: ok, thanks. Now the index.)" in head
    assert "before" not in session.recall("turn_001").split("\n")[0]


def test_the_original_is_as_it_was(session):
    history = session.history()
    assert session.original("turn_001").value == history[:1]
    assert json.loads(session.original("turn_001").text) == history[:1]
    assert session.original("tool_002").text == session.recall("tool_002") == OUTPUT


def test_lines_and_pages_are_those_of_the_conversation(session):
    text = session.recall("turn_003")
    assert session.recall("turn_003", (1, 2)) == "\n".join(text.split("\n")[:2])
    pages = session.page("turn_003", 1, 100).pages
    assert "".join(session.page("turn_003", at + 1, 100).text for at in range(pages)) == text


def test_turns_are_listed_by_number_and_by_words(session):
    every = session.turns()
    assert [each.number for each in every] == list(range(1, len(every) + 1))
    assert (every[0].who, every[0].text) == ("user", "Please look at the notes.")
    assert every[1].who == "agent"
    assert "cat notes.txt" in every[1].text
    assert [each.number for each in session.turns(3, 5)] == [3, 4, 5]
    assert [each.number for each in session.turns(words="NOTES written")] == [4]
    assert session.turns(words="zeppelin") == []
    assert every[-1].is_shown


def test_a_turn_that_is_still_there_reads_the_same_way():
    with Session.open("notes", window=200_000, store="sqlite://") as session:
        session.append(long_talk())
        text = session.recall("turn_002")
    assert "cat notes.txt" in text
    assert "→ tool_001" in text or "→ file_001" in text
    assert "the old notes" in text


def test_a_result_in_pieces_is_text():
    blocks = [{"type": "input_text", "text": "Script completed"}, {"type": "input_text", "text": "exit 0\nok"}]
    original = Original("tool_001", "command output", "", 0, blocks, "")
    assert original.readable == "Script completed\nexit 0\nok"
    assert json.loads(original.text) == blocks


@pytest.mark.parametrize("value", [[{"rows": 3}], [1, 2], {"text": "x"}, [], [{"type": "row", "text": "x", "n": 1}]])
def test_what_is_no_text_stays_as_it_is(value):
    original = Original("tool_001", "API response", "", 0, value, "")
    assert original.readable == original.text


def test_what_a_client_added_is_not_the_user_s():
    original = Original(
        "turn_001", "turn", "", 0, [{"role": "user", "content": "<system-reminder>x</system-reminder>"}], ""
    )
    talk = [original.value[0], *long_talk()]
    found = compact(talk, target_tokens=900)
    assert found.read("turn_001").split("\n")[1].startswith("client: ")


@given(sessions("anthropic"))
def test_every_original_can_be_read_and_every_word_said_is_in_it(session):
    found = compact(session.messages, target_tokens=1500)
    for original in found.archive:
        text = found.read(original.id)
        if original.kind != "turn":
            assert text == original.readable
            continue
        assert text.startswith(f"[{original.id}")
        for message in original.value:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            assert all(block["text"].strip() in text for block in blocks if block["type"] == "text")
