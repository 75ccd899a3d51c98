from __future__ import annotations

from context_compactor.evaluation.inputs import as_chat
from context_compactor.evaluation.messages import read_messages
from context_compactor.evaluation.scoring import problems

ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I list."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Listing."}]},
    {"type": "function_call", "call_id": "a", "name": "ls", "arguments": '{"path": "/one"}'},
    {"type": "function_call", "call_id": "b", "name": "ls", "arguments": '{"path": "/two"}'},
    {"type": "function_call_output", "call_id": "a", "output": "one.txt"},
    {"type": "function_call_output", "call_id": "b", "output": "two.txt"},
    {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
]


def test_what_the_agent_wrote_at_once_is_one_message():
    messages = as_chat(ITEMS).messages
    assert [message["role"] for message in messages] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["a", "b"]
    assert (messages[1]["content"], messages[1]["reasoning_content"]) == ("Listing.", "I list.")


def test_the_chat_is_legal_and_reads_like_the_items():
    messages = as_chat(ITEMS).messages
    assert problems(messages, "openai") == []
    assert {piece.text for piece in read_messages(messages)} == {piece.text for piece in read_messages(ITEMS)}


def test_every_item_knows_its_message():
    chat = as_chat(ITEMS)
    assert chat.places == [0, 1, 1, 1, 1, 2, 3, 4, 5, 6]
    assert chat.place(len(ITEMS)) == len(chat.messages)
