"""What every dialect must do, and what each does in its own way."""

from __future__ import annotations

from copy import deepcopy

import pytest

from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from tests.dialects.shapes import BUILDERS, Claude, shape
from tests.dialects.strategies import DIALECT_NAMES, picture

every_dialect = pytest.mark.parametrize("name", DIALECT_NAMES)

CHAT, RESPONSES, ANTHROPIC = DIALECTS["openai-chat"], DIALECTS["openai-responses"], DIALECTS["anthropic"]


def only(name: str, raw: dict[str, object]) -> Message:
    """The message a single item is read as, checked to leave the item alone."""
    before = deepcopy(raw)
    (message,) = DIALECTS[name].parse([raw])
    assert message.raw is raw
    assert raw == before
    return message


# The contract -------------------------------------------------------------------------------------------------


@every_dialect
def test_a_conversation_with_parallel_calls_is_read_in_order(name):
    build = BUILDERS[name]
    items = [build.user("go"), *build.calls("a", "b", text="I look."), *build.results(("a", "1"), ("b", "2"))]
    parts = [part for message in DIALECTS[name].parse(items) for part in message.parts]
    assert parts[:4] == [Text("go"), Text("I look."), ToolCall("a", "Read", "{}"), ToolCall("b", "Read", "{}")]
    assert [(part.call_id, part.text) for part in parts[4:] if isinstance(part, ToolResult)] == [("a", "1"), ("b", "2")]


@every_dialect
def test_a_user_text_is_a_user_message_that_says_it(name):
    message = DIALECTS[name].user_text("hello")
    assert (message.role, message.text) == ("user", "hello")
    assert DIALECTS[name].parse([message.raw]) == [message]


@every_dialect
def test_joining_puts_the_first_message_before_the_second(name):
    build = BUILDERS[name]
    first, second = DIALECTS[name].parse([build.says("one"), build.says("two")])
    joined = DIALECTS[name].join(first, second)
    assert joined.role == "assistant"
    assert joined.text.split() == ["one", "two"]


@every_dialect
def test_a_result_edited_keeps_its_id_and_every_other_field(name):
    (raw,) = BUILDERS[name].results(("a", "a very long output"))
    message = only(name, {**raw, "vendor": {"x": 1}})
    edited = DIALECTS[name].edit(message, {0: "short"})
    assert edited is not None
    assert edited.results == (ToolResult("a", "short", content="short"),)
    assert edited.raw["vendor"] == {"x": 1}
    assert edited.raw.keys() == message.raw.keys()


@every_dialect
def test_a_message_with_nothing_left_is_none(name):
    build = BUILDERS[name]
    for raw in [build.user("hi"), build.says("ok"), *build.calls("a"), *build.results(("a", "1"))]:
        assert DIALECTS[name].edit(only(name, raw), {0: None}) is None


@every_dialect
def test_an_edit_of_nothing_changes_nothing(name):
    message = only(name, BUILDERS[name].user("hi"))
    assert DIALECTS[name].edit(message, {}) == message


@every_dialect
def test_the_arguments_of_a_call_can_be_shortened(name):
    (raw,) = BUILDERS[name].calls("a")
    edited = DIALECTS[name].edit(only(name, raw), {0: '{"file_path":"a.py"}'})
    assert edited is not None
    assert edited.calls == (ToolCall("a", "Read", '{"file_path":"a.py"}'),)


@every_dialect
def test_an_answer_belongs_to_its_call(name):
    (raw,) = BUILDERS[name].calls("a")
    message = only(name, raw)
    answer = DIALECTS[name].answer(message, message.calls[0], "nothing came")
    assert answer is not None
    assert [(result.call_id, result.text) for result in answer.results] == [("a", "nothing came")]


@every_dialect
def test_calls_and_results_can_be_renamed(name):
    build = BUILDERS[name]
    for raw in [*build.calls("a"), *build.results(("a", "1"))]:
        renamed = DIALECTS[name].rename(only(name, raw), {0: "b"})
        assert [part.id for part in renamed.calls] + [part.call_id for part in renamed.results] == ["b"]


# Anthropic ----------------------------------------------------------------------------------------------------


def test_anthropic_thinking_is_signed_when_it_has_a_signature():
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
    ]
    message = only("anthropic", {"role": "assistant", "content": blocks})
    assert message.parts == (Thinking("hm"), Thinking("hm", signed=True), Thinking("", signed=True))


def test_thinking_can_be_removed_and_never_edited():
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "ok"}]
    message = only("anthropic", {"role": "assistant", "content": blocks})
    assert shape([ANTHROPIC.edit(message, {0: None}) or message]) == ['assistant: "ok"']
    with pytest.raises(ValueError, match="never edited"):
        ANTHROPIC.edit(message, {0: "hm hm"})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        (
            [{"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": "w"}]}],
            "t\nu\nw",
        ),
        (None, ""),
        ([], ""),
    ],
)
def test_an_anthropic_result_reads_texts_blocks_and_nothing(content, text):
    block = {"type": "tool_result", "tool_use_id": "a", "content": content, "is_error": True}
    message = only("anthropic", {"role": "user", "content": [block]})
    assert message.parts == (ToolResult("a", text, is_error=True, content=content),)


def test_an_anthropic_result_may_have_no_content_at_all():
    message = only("anthropic", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]})
    assert message.parts == (ToolResult("a", ""),)


def test_a_picture_in_a_result_is_its_media_and_leaves_when_the_result_is_edited():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture(640, 480)}}
    block = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "shot"}, image]}
    message = only("anthropic", {"role": "user", "content": [block]})
    (result,) = message.results
    assert [(media.width, media.height) for media in result.media] == [(640, 480)]
    edited = ANTHROPIC.edit(message, {0: "[archived]"})
    assert edited is not None
    assert edited.results[0].media == ()


def test_a_cache_mark_survives_an_edit_wherever_it_is():
    mark = {"type": "ephemeral", "ttl": "1h"}
    nested = {"type": "text", "text": "long", "cache_control": mark}
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": [nested]},
        {"type": "tool_result", "tool_use_id": "b", "content": "long", "cache_control": mark},
        {"type": "document", "source": {"type": "text", "data": "x"}, "cache_control": mark},
        {"type": "text", "text": "long", "cache_control": mark},
    ]
    message = only("anthropic", {"role": "user", "content": blocks})
    edited = ANTHROPIC.edit(message, dict.fromkeys(range(4), "short"))
    assert edited is not None
    assert edited.raw["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [{**nested, "text": "short"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "short", "cache_control": mark},
        {"type": "text", "text": "short", "cache_control": mark},
        {"type": "text", "text": "short", "cache_control": mark},
    ]


def test_anthropic_media_tell_their_size_and_title():
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture(3, 4)}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {
            "type": "document",
            "title": "Spec",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
    ]
    message = only("anthropic", {"role": "user", "content": blocks})
    assert message.parts == (
        Media("image", "image/png", 69, 3, 4),
        Media("image"),
        Media("image"),
        Media("document", "application/pdf", 3, title="Spec"),
        Media("document", "text/plain", 5),
    )


def test_blocks_of_server_tools_and_unknown_ones_are_carried():
    blocks = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "y", "input": {}},
        {"type": "from_the_future", "payload": [1, None]},
    ]
    message = only("anthropic", {"role": "assistant", "content": blocks})
    assert shape([message]) == [
        "assistant: <server_tool_use> <web_search_tool_result> <mcp_tool_use> <from_the_future>"
    ]
    assert message.parts[3] == Opaque("from_the_future", '{"type":"from_the_future","payload":[1,null]}')


def test_joined_anthropic_messages_keep_all_blocks_in_order():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    first, second = ANTHROPIC.parse([Claude.says("one"), {"role": "assistant", "content": [thinking], "id": "msg_2"}])
    joined = ANTHROPIC.join(first, second)
    assert joined.raw == {"role": "assistant", "content": [{"type": "text", "text": "one"}, thinking], "id": "msg_2"}
    assert joined.raw["content"][1] is thinking


def test_arguments_that_are_no_object_are_wrapped_for_anthropic():
    (message,) = ANTHROPIC.parse(Claude.calls("a"))
    edited = ANTHROPIC.edit(message, {0: "[cut]"})
    assert edited is not None
    assert edited.raw["content"][0]["input"] == {"arguments": "[cut]"}


# OpenAI chat --------------------------------------------------------------------------------------------------


def test_chat_thinking_comes_first_and_refusals_are_words():
    raw = {"role": "assistant", "content": "No.", "refusal": "I can't.", "reasoning_content": "hm"}
    assert only("openai-chat", raw).parts == (Thinking("hm"), Text("No."), Text("I can't."))


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VhbGVk"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]},
    ],
)
def test_chat_thinking_with_a_seal_is_signed_and_leaves_with_all_its_fields(fields):
    message = only("openai-chat", {"role": "assistant", "content": "ok", **fields})
    assert message.parts == (Thinking("hm", signed=True), Text("ok"))
    edited = CHAT.edit(message, {0: None})
    assert edited is not None
    assert edited.raw == {"role": "assistant", "content": "ok"}


def test_chat_content_parts_are_read_one_by_one():
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(3, 4)}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        {"type": "refusal", "refusal": "no"},
        {"type": "video_url", "video_url": {"url": "u"}},
    ]
    message = only("openai-chat", {"role": "user", "content": content, "name": "ada"})
    assert message.parts == (
        Text("look"),
        Media("image", "image/png", 69, 3, 4),
        Media("image"),
        Media("audio", "audio/mp3", 3),
        Media("file", "application/pdf", 3, title="a.pdf"),
        Text("no"),
        Opaque("video_url", '{"type":"video_url","video_url":{"url":"u"}}'),
    )
    edited = CHAT.edit(message, {1: "[image]", 2: None, 5: "no!", 6: None})
    assert edited is not None
    assert edited.raw == {
        "role": "user",
        "name": "ada",
        "content": [
            content[0],
            {"type": "text", "text": "[image]"},
            content[3],
            content[4],
            {"type": "refusal", "refusal": "no!"},
        ],
    }


def test_chat_knows_custom_calls_and_legacy_functions():
    custom = {"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    asked = only("openai-chat", {"role": "assistant", "content": None, "tool_calls": [custom]})
    legacy = only(
        "openai-chat", {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    )
    answer = only("openai-chat", {"role": "function", "name": "f", "content": "1"})
    assert asked.calls == (ToolCall("a", "sql", "select 1"),)
    assert legacy.calls[0].id == answer.results[0].call_id
    assert answer.role == "tool"


def test_removing_all_calls_of_a_chat_message_removes_the_field():
    raw = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}],
    }
    edited = CHAT.edit(only("openai-chat", raw), {1: None})
    assert edited is not None
    assert edited.raw == {"role": "assistant", "content": "I look."}


def test_removing_the_words_of_a_chat_message_with_calls_leaves_null():
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = only("openai-chat", {"role": "assistant", "content": "I look.", "tool_calls": calls})
    edited = CHAT.edit(message, {0: None})
    assert edited is not None
    assert edited.raw == {"role": "assistant", "content": None, "tool_calls": calls}


def test_joined_chat_messages_have_all_calls_and_the_texts_apart():
    one = {
        "role": "assistant",
        "content": "one",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}],
    }
    two = {"role": "assistant", "content": [{"type": "text", "text": "two"}], "tool_calls": None, "extra": 1}
    joined = CHAT.join(*CHAT.parse([one, two]))
    assert shape([joined]) == ['assistant: "one" "two" call(a)']
    assert joined.raw["extra"] == 1
    assert CHAT.join(*CHAT.parse([{**one, "tool_calls": None}, {**two, "content": "two"}])).text == "one\n\ntwo"


# OpenAI Responses ---------------------------------------------------------------------------------------------


def test_responses_items_are_read_as_what_they_are():
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "c2VhbGVk"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "custom_tool_call", "call_id": "a", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "1"},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "b", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "b", "output": "a.py"},
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a.py"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk"},
        {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
        {"id": "msg_1"},
    ]
    assert shape(RESPONSES.parse(items)) == [
        'developer: "Be brief."',
        'user: "hi"',
        "assistant: thinking(hm)",
        "assistant: signed()",
        'assistant: "no"',
        "assistant: call(a)",
        "tool: result(a: 1)",
        "assistant: call(b)",
        "tool: result(b: a.py)",
        "assistant: call(c)",
        "tool: error(c: no such file)",
        "assistant: <web_search_call>",
        "assistant: <compaction>",
        "user: <mcp_approval_response>",
        "assistant: <item_reference>",
    ]


def test_a_shell_output_tells_both_streams_and_whether_it_failed():
    runs = [{"stdout": "ok", "stderr": "bad", "outcome": {"type": "exit", "exit_code": 2}}]
    message = only("openai-responses", {"type": "shell_call_output", "call_id": "a", "output": runs})
    assert message.results == (ToolResult("a", "ok\nbad", is_error=True, content=runs),)
    edited = RESPONSES.edit(message, {0: "short"})
    assert edited is not None
    assert edited.raw["output"] == [{"stdout": "short", "stderr": "", "outcome": runs[0]["outcome"]}]


def test_a_screenshot_cannot_become_a_text():
    output = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{picture(9, 9)}"}
    message = only("openai-responses", {"type": "computer_call_output", "call_id": "a", "output": output})
    assert [media.width for media in message.results[0].media] == [9]
    assert RESPONSES.edit(message, {0: "short"}) is message


def test_an_output_of_blocks_has_its_words_and_pictures():
    output = [{"type": "input_text", "text": "shot"}, {"type": "input_image", "image_url": "https://example.com/a.png"}]
    message = only("openai-responses", {"type": "function_call_output", "call_id": "a", "output": output})
    assert message.results == (ToolResult("a", "shot", content=output, media=(Media("image"),)),)


def test_an_unknown_item_becomes_a_message_when_it_is_shortened():
    message = only("openai-responses", {"type": "mcp_call", "id": "mcp_1", "name": "x", "output": "long"})
    edited = RESPONSES.edit(message, {0: "[archived]"})
    assert edited is not None
    assert shape([edited]) == ['assistant: "[archived]"']


def test_a_reply_that_lost_its_reasoning_gives_up_its_id():
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"}
    later = {"type": "message", "id": "msg_2", "role": "assistant", "content": []}
    before = RESPONSES.parse([thought, call, {"type": "function_call_output", "call_id": "a", "output": ""}, later])
    kept = RESPONSES.detach(before, before)
    assert all(one is other for one, other in zip(kept, before, strict=True))
    freed = RESPONSES.detach(before, before[1:])
    assert "id" not in freed[0].raw
    assert freed[0].calls == before[1].calls
    assert freed[2] is before[3]


# Odd values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["\ud800", 2**80, float("nan"), b"bytes", {1, 2}, object])
def test_arguments_with_values_json_does_not_know_are_read_all_the_same(value):
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": value}}
    (call,) = only("anthropic", {"role": "assistant", "content": [block]}).calls
    assert '"x"' in call.arguments


def test_a_value_that_holds_itself_is_read_all_the_same():
    loop: dict[str, object] = {}
    loop["self"] = loop
    (message,) = ANTHROPIC.parse(
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": loop}]}]
    )
    assert message.calls[0].name == "f"
