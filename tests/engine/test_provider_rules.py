"""What providers demand of a context once it was compacted, rule by rule; see docs/why/providers.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from context_compactor import compact
from context_compactor.dialects import check
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.messages import Thinking
from context_compactor.dialects.repair import repair
from tests.engine.talks import read, talk_in

Raw = dict[str, Any]
STRICT = "claude-opus-5-5"
OLD = "claude-sonnet-4-5"


def agent_run(steps: int = 12, lines: int = 60) -> list[Raw]:
    """Signed thinking in every step, as Claude sends it; at last the user asks for more."""
    talk = talk_in("anthropic").system("Be careful.").user("Mend the parts.")
    for number in range(steps):
        result = f"value_{number} = {number}\n" * lines
        talk.step(read(f"src/part_{number}.py", result), thinking=f"Part {number} is next.")
    messages = talk.answer("Half of it is done.").user("Go on with the rest.").messages
    for number, message in enumerate(messages):
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "thinking":
                block["signature"] = f"sig{number}"
    return messages


def thoughts(messages: list[Raw]) -> list[Raw]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]


def legal_after(before: list[Raw], after: list[Raw], dialect: str = "anthropic") -> bool:
    spoken = DIALECTS[dialect]
    return find_violations(spoken.parse(after), spoken, before=spoken.parse(before)) == []


# Preserved thinking


@pytest.mark.parametrize("model", [None, STRICT, "claude-fable-5-1", "anthropic/claude-haiku-5-5-20261001"])
@pytest.mark.parametrize("layout", ["tail", "record", "auto"])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_no_thinking_stands_behind_a_change_whatever_the_layout(model, layout, share):
    messages = agent_run()
    result = compact(messages, target_tokens=int(8_000 * share), model=model, layout=layout, dialect="anthropic")
    assert result.report.status == "success"
    assert legal_after(messages, result.messages)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "", "signature": "sealed"},
        {"type": "thinking", "signature": "sealed"},
        {"type": "redacted_thinking", "data": "sealed"},
    ],
)
def test_thinking_without_words_goes_as_well(block):
    messages = agent_run()
    for message in messages:
        if message["role"] == "assistant" and isinstance(message["content"], list):
            message["content"] = [block, *(each for each in message["content"] if each["type"] != "thinking")]
    result = compact(messages, target_tokens=2_500, dialect="anthropic")
    assert thoughts(messages)
    assert thoughts(result.messages) == []


def test_thinking_before_the_first_change_stays_and_is_an_unbroken_run():
    messages = agent_run()
    changed = json.loads(json.dumps(messages))
    changed[8]["content"][0]["content"] = "shortened"
    spoken = DIALECTS["anthropic"]
    kept = spoken.detach(spoken.parse(messages), spoken.parse(changed))
    held = [any(isinstance(part, Thinking) for part in message.parts) for message in kept if message is not None]
    assert held == [at < 8 and message["role"] == "assistant" for at, message in enumerate(messages)]


def test_nothing_is_lost_of_a_conversation_that_is_not_compacted():
    messages = agent_run()
    assert compact(messages, window=1_000_000, dialect="anthropic").messages == messages


def _shorten_a_result(messages: list[Raw]) -> None:
    messages[3]["content"][0]["content"] = "[shortened]"


def _add_a_text(messages: list[Raw]) -> None:
    messages[3]["content"].append({"type": "text", "text": "Be quick."})


def _remove_a_reply(messages: list[Raw]) -> None:
    del messages[2:4]


def _change_the_instructions(messages: list[Raw]) -> None:
    messages[0]["content"] = "Be quick."


def _move_a_system_message(messages: list[Raw]) -> None:
    messages.insert(4, messages.pop(0))


def _leave_a_gap(messages: list[Raw]) -> None:
    messages[6]["content"].pop(0)


def _summarize_the_start(messages: list[Raw]) -> None:
    messages[1:6] = [{"role": "user", "content": "What happened so far: two parts were read."}]


CHANGES = (
    _shorten_a_result,
    _add_a_text,
    _remove_a_reply,
    _change_the_instructions,
    _move_a_system_message,
    _leave_a_gap,
    _summarize_the_start,
)


@pytest.mark.parametrize("change", CHANGES)
def test_thinking_behind_a_change_is_reported(change):
    messages = agent_run()
    changed = deepcopy(messages)
    change(changed)
    assert "thinking" in {problem.rule for problem in check(changed, dialect="anthropic", before=messages)}


def _append(messages: list[Raw]) -> None:
    messages.append({"role": "assistant", "content": "I go on."})


def _mark(messages: list[Raw]) -> None:
    messages[4]["content"][-1]["cache_control"] = {"type": "ephemeral"}


def _mark_a_text(messages: list[Raw]) -> None:
    block = {"type": "text", "text": messages[1]["content"], "cache_control": {"type": "ephemeral"}}
    messages[1]["content"] = [block]


def _drop_thinking_of(replies: slice) -> Callable[[list[Raw]], None]:
    def drop(messages: list[Raw]) -> None:
        thinking = [each for each in messages if isinstance(each["content"], list) and each["role"] == "assistant"]
        for message in thinking[replies]:
            message["content"] = [block for block in message["content"] if block["type"] != "thinking"]

    return drop


def _turn_keys_round(messages: list[Raw]) -> None:
    messages[:] = [dict(reversed(message.items())) for message in messages]


NO_CHANGES = {
    "appended": _append,
    "marked": _mark,
    "marked text": _mark_a_text,
    "thinking gone from the start": _drop_thinking_of(slice(3)),
    "thinking gone from the end": _drop_thinking_of(slice(-3, None)),
    "thinking gone": _drop_thinking_of(slice(None)),
    "keys in another order": _turn_keys_round,
}


@pytest.mark.parametrize("change", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_does_not_count_as_a_change_leaves_thinking_legal(change):
    messages = agent_run()
    changed = deepcopy(messages)
    change(changed)
    assert legal_after(messages, changed)


def test_no_thinking_stays_behind_instructions_that_were_cut():
    talk = talk_in("anthropic").system("Be careful. " * 4_000).user("Look.").answer("Done.").user("Go on.")
    messages = talk.messages
    answer = next(message for message in messages if message["role"] == "assistant")
    thinking = {"type": "thinking", "thinking": "I look.", "signature": "sig"}
    answer["content"] = [thinking, {"type": "text", "text": "Done."}]
    result = compact(messages, target_tokens=1_000, dialect="anthropic", layout="tail")
    assert result.messages[0] != messages[0]
    assert thoughts(result.messages) == []


@pytest.mark.parametrize("layout", ["tail", "record"])
@pytest.mark.parametrize("open_calls", [False, True])
def test_a_round_of_tools_that_is_under_way_goes_on_without_its_thinking(layout, open_calls):
    messages = agent_run()[:-2]
    messages = messages[:-1] if open_calls else messages
    result = compact(messages, target_tokens=2_500, dialect="anthropic", model=STRICT, layout=layout)
    assert result.report.status == "success"
    assert thoughts(result.messages) == []
    assert legal_after(messages, result.messages)
    newest = messages[-1] if open_calls else messages[-2]
    call = next(block for block in newest["content"] if block["type"] == "tool_use")
    assert not open_calls or call in result.messages[-1]["content"]


def test_a_model_that_does_not_bind_thinking_keeps_that_of_the_turns_that_stay():
    messages = agent_run()
    result = compact(messages, target_tokens=4_000, model=OLD, dialect="anthropic")
    assert thoughts(result.messages)
    assert all(block in thoughts(messages) for block in thoughts(result.messages))


def test_reasoning_that_has_gone_is_archived_and_reported():
    messages = agent_run()
    result = compact(messages, target_tokens=5_000, dialect="anthropic", layout="tail")
    gone = [each for each in result.report.discarded if each.summary.startswith("reasoning of turn")]
    assert gone
    for each in gone:
        assert "is next." in result.recall(each.id)


def test_signed_reasoning_in_openai_messages_goes_unless_the_model_is_known_not_to_check_it():
    block = {"type": "thinking", "thinking": "Next.", "signature": "sig"}
    talk = [{"role": "user", "content": "Mend the parts."}]
    for number in range(10):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a.py"}'}}
        talk.append({"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": [block]})
        talk.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 80})
    talk.append({"role": "user", "content": "Go on."})
    assert "thinking_blocks" not in json.dumps(compact(talk, target_tokens=1_500).messages)
    assert "thinking_blocks" in json.dumps(compact(talk, target_tokens=1_500, model="gpt-5.5").messages)


def test_calls_keep_the_field_of_their_reasoning_which_deepseek_wants_back():
    talk = [{"role": "user", "content": "Mend the parts."}]
    for number in range(10):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a.py"}'}}
        reasoning = f"Part {number} is next. " * 30
        talk.append({"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": reasoning})
        talk.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number}\n" * 80})
    talk.append({"role": "user", "content": "Go on."})
    for model in ("deepseek-v4-pro", None):
        written = [
            compact(talk, target_tokens=most, model=model, layout="tail").messages for most in (2_000, 3_000, 4_000)
        ]
        calling = [message for messages in written for message in messages if message.get("tool_calls")]
        assert calling
        assert all("reasoning_content" in message for message in calling)


def test_reasoning_that_is_cleared_leaves_an_empty_field_beside_calls_alone():
    chat = DIALECTS["openai-chat"]
    call = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    calling, done = chat.parse(
        [
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "I look."},
            {"role": "assistant", "content": "Done.", "reasoning_content": "I know."},
        ]
    )
    cleared = [chat.edit(message, {0: None}) for message in (calling, done)]
    assert [message.raw.get("reasoning_content") for message in cleared if message] == ["", None]


def test_a_thought_signature_stays_with_its_call_or_a_changed_call_gets_the_one_that_is_always_taken():
    gemini = DIALECTS["gemini"].for_model("gemini-3-pro-preview")
    call = {"functionCall": {"id": "a", "name": "read", "args": {"path": "a.py"}}, "thoughtSignature": "c2ln"}
    message = gemini.parse([{"role": "model", "parts": [{"text": "I think.", "thought": True}, call]}])[0]
    kept = gemini.edit(message, {0: None})
    assert kept is not None
    assert kept.raw["parts"] == [call]
    changed = gemini.edit(message, {1: '{"path": "b.py"}'})
    assert changed is not None
    assert changed.raw["parts"][1]["thoughtSignature"] == "skip_thought_signature_validator"


def test_a_call_that_gets_another_id_loses_the_signature_that_was_made_for_it():
    gemini = DIALECTS["gemini"]
    call = {"functionCall": {"id": "a", "name": "read", "args": {}}, "thoughtSignature": "c2ln"}
    renamed = gemini.rename(gemini.parse([{"role": "model", "parts": [call]}])[0], {0: "a_2"})
    assert renamed.raw["parts"][0]["functionCall"]["id"] == "a_2"
    assert renamed.raw["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


@pytest.mark.parametrize(
    "reasoning", [{"reasoningText": {"text": "", "signature": "sig"}}, {"redactedContent": "c2ln"}]
)
def test_bedrock_reasoning_goes_unless_the_model_is_known_not_to_bind_it(reasoning):
    talk: list[Raw] = [{"role": "user", "content": [{"text": "Mend the parts."}]}]
    for number in range(10):
        use = {"toolUse": {"toolUseId": f"c{number}", "name": "Read", "input": {"path": "a.py"}}}
        result = {"toolUseId": f"c{number}", "content": [{"text": f"line {number}\n" * 80}]}
        talk.append({"role": "assistant", "content": [{"reasoningContent": reasoning}, use]})
        talk.append({"role": "user", "content": [{"toolResult": result}]})
    talk += [{"role": "assistant", "content": [{"text": "Done."}]}, {"role": "user", "content": [{"text": "Go on."}]}]
    written = {
        model: json.dumps(compact(talk, target_tokens=1_500, dialect="bedrock", model=model, layout="tail").messages)
        for model in (None, "anthropic.claude-opus-5-5-v1:0", "amazon.nova-pro-v1:0")
    }
    assert ["reasoningContent" in text for text in written.values()] == [False, False, True]


def test_auto_is_one_message_for_models_that_bind_thinking_and_a_tail_for_others():
    messages = agent_run()
    spoken = {}
    for model in (None, OLD, STRICT):
        result = compact(messages, target_tokens=2_500, model=model, dialect="anthropic")
        spoken[model] = [each["role"] for each in result.messages]
    assert spoken[STRICT] == ["system", "user"]
    assert len(spoken[None]) > 3
    assert len(spoken[OLD]) > 3


# System messages in the middle


def reminded(count: int = 18) -> list[Raw]:
    """As Claude Code sends reminders: a system message behind results and behind words of the user."""
    messages: list[Raw] = []
    for message in agent_run(count, 30):
        messages.append(message)
        if message["role"] == "user":
            messages.append({"role": "system", "content": f"Reminder {len(messages)}: the todo list is empty."})
    return messages


def test_system_messages_in_the_middle_stay_in_their_place_or_are_folded_and_never_come_first():
    messages = reminded()
    result = compact(messages, target_tokens=3_000, dialect="anthropic")
    roles = [message["role"] for message in result.messages]
    assert roles[:2] == ["system", "user"]
    assert "system" in roles[2:]
    assert all(before == "user" for before, role in pairwise(roles[1:]) if role == "system")
    assert result.messages[0]["content"] == "Be careful."
    assert legal_after([], result.messages)


def test_a_model_before_them_gets_system_messages_as_words_of_the_user():
    messages = reminded(3)
    old = compact(messages, window=1_000_000, model="claude-opus-4-6", dialect="anthropic").messages
    new = compact(messages, window=1_000_000, model="claude-opus-4-8", dialect="anthropic").messages
    assert new == messages
    assert [message["role"] for message in old[1:]].count("system") == 0
    assert "Reminder" in json.dumps(old)


def test_what_a_folded_system_message_said_can_be_recalled_and_is_not_taken_for_the_users_words():
    messages = reminded()
    messages[5]["content"] = "From now on never touch the folder vendor/legacy."
    result = compact(messages, target_tokens=1_500, dialect="anthropic")
    assert any("vendor/legacy" in result.recall(each.id) for each in result.report.archived)
    assert not any(fact.role == "user" and "vendor/legacy" in fact.content for fact in result.facts)


def test_a_system_message_between_a_call_and_its_result_comes_behind_the_result():
    messages = agent_run(3)
    messages.insert(3, {"role": "system", "content": "Reminder: the todo list is empty."})
    spoken = DIALECTS["anthropic"]
    repaired = [message.raw for message in repair(spoken.parse(messages), spoken)[0]]
    assert repaired[3]["content"][0]["type"] == "tool_result"
    assert repaired[4] == messages[3]
    assert check(repaired, dialect="anthropic") == []


# The provider's own summaries


def summarized() -> list[Raw]:
    """A conversation in which the provider has compacted once: everything before its block is ignored."""
    messages = agent_run(8)
    block = {"type": "compaction", "content": "Parts 0 to 3 are mended; quux_limit is 17.", "signature": "sealed"}
    at = next(at for at, message in enumerate(messages) if at > 8 and message["role"] == "assistant")
    messages[at] = {**messages[at], "content": [block, *messages[at]["content"]]}
    return messages


def test_a_compaction_block_stands_first_unchanged_and_its_text_is_found_in_the_archive():
    messages = summarized()
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    block = next(each for each in blocks if each["type"] == "compaction")
    for target in (900, 1_500, 2_500):
        result = compact(messages, target_tokens=target, dialect="anthropic")
        assert result.report.status == "success"
        assert result.messages[0]["role"] == "system"
        assert result.messages[1]["content"][0] == block
        assert result.messages[2]["role"] == "user"
        assert json.dumps(result.messages).count('"compaction"') == 1
        assert any("quux_limit is 17" in result.recall(hit.id) for hit in result.search("quux_limit"))
        assert legal_after([], result.messages)


def test_what_a_compaction_block_says_is_among_the_facts():
    messages = summarized()
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "compaction":
                block["content"] = "We decided to use SQLite because the deployment has one machine."
    for layout in ("tail", "record"):
        facts = compact(messages, target_tokens=2_000, dialect="anthropic", layout=layout).facts
        assert any(fact.kind == "decision" and "SQLite" in fact.content for fact in facts)


def test_a_compaction_block_stays_over_a_chain_and_only_the_newest_counts():
    messages = summarized()
    for target in (4_000, 3_000, 2_000):
        messages = compact(messages, target_tokens=target, dialect="anthropic").messages
    assert messages[1]["content"][0]["content"].startswith("Parts 0 to 3")
    newer = {"role": "assistant", "content": [{"type": "compaction", "content": "All parts are mended."}]}
    messages = [*messages[:-1], newer, *agent_run(6)[1:]]
    result = compact(messages, target_tokens=2_500, dialect="anthropic")
    assert result.messages[1] == newer
    assert "Parts 0 to 3" not in json.dumps(result.messages[1])
    assert legal_after([], result.messages)


def test_a_conversation_that_begins_with_a_compaction_block_is_legal_as_it_is():
    block = {"type": "compaction", "content": "Everything so far."}
    messages = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}]
    assert legal_after([], messages)
    assert compact(messages, window=100_000, dialect="anthropic").messages == messages


def test_a_compaction_block_that_leaves_no_room_is_told_as_text():
    messages = summarized()
    for message in messages:
        for each in message["content"] if isinstance(message["content"], list) else ():
            if each["type"] == "compaction":
                each["content"] = "\n".join(f"Finding {number}: cell_{number} holds." for number in range(600))
    result = compact(messages, target_tokens=1_500, dialect="anthropic")
    assert result.report.tokens_after <= 1_500
    assert '"compaction"' not in json.dumps(result.messages)
    assert any("in the record" in note for note in result.report.notes)
    assert any("cell_599" in result.recall(each.id) for each in result.report.archived)


def sealed_past(size: int = 200) -> list[Raw]:
    """A conversation in OpenAI's Responses format with a sealed compaction item in it."""
    items: list[Raw] = [{"role": "developer", "content": "Be careful."}, {"role": "user", "content": "Mend the parts."}]
    items.append({"type": "compaction", "id": "cmp_1", "encrypted_content": "A" * size})
    for number in range(10):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": '{"path": "a.py"}'}
        items.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "sealed"})
        items.append({**call, "id": f"fc_{number}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": f"line {number}\n" * 80})
    return [*items, {"role": "user", "content": "Go on."}]


def test_a_sealed_compaction_item_stands_first_as_it_was():
    items = sealed_past()
    result = compact(items, target_tokens=1_500, dialect="openai-responses")
    assert result.messages[1] == items[2]
    assert result.messages[0] == items[0]
    assert legal_after(items, result.messages, "openai-responses")


def test_a_sealed_past_that_must_go_is_reported_as_unreadable():
    result = compact(sealed_past(20_000), target_tokens=1_500, dialect="openai-responses")
    assert "encrypted_content" not in json.dumps(result.messages[:2])
    assert "Mend the parts." in json.dumps(result.messages[1])
    assert any(note.startswith("unreadable past") for note in result.report.notes)
    assert result.report.tokens_after <= 1_500


def test_a_chain_of_responses_begins_anew_after_a_compaction_and_the_report_says_so():
    result = compact(sealed_past(), target_tokens=1_500, dialect="openai-responses")
    assert any("without previous_response_id" in note for note in result.report.notes)
    assert compact(sealed_past(), window=100_000, dialect="openai-responses").report.notes == ()


# Cache marks


def marked(steps: int) -> list[Raw]:
    """A client that marks the last block of each of its messages."""
    messages = agent_run(steps)
    for message in messages[1:]:
        if message["role"] == "user" and isinstance(message["content"], list):
            message["content"][-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    return messages


def marks(messages: list[Raw]) -> list[int]:
    return [at for at, message in enumerate(messages) if "cache_control" in json.dumps(message)]


def test_of_more_than_four_cache_marks_the_two_newest_stay():
    messages = marked(8)
    assert len(marks(messages)) == 8
    result = compact(messages, window=1_000_000, dialect="anthropic")
    assert marks(result.messages) == marks(messages)[-2:]
    assert json.dumps(result.messages).count('"1h"') == 2
    assert thoughts(result.messages) == thoughts(messages)


def test_four_marks_are_left_as_they_are():
    messages = marked(4)
    assert compact(messages, window=1_000_000, dialect="anthropic").messages == messages


def test_after_a_compaction_the_record_has_a_mark_and_the_newest_one_stays():
    result = compact(marked(12), target_tokens=2_500, dialect="anthropic", layout="tail")
    assert marks(result.messages)[0] == 1
    assert len(marks(result.messages)) == 2
    again = compact([*result.messages, *marked(12)[2:]], target_tokens=2_500, dialect="anthropic", layout="tail")
    assert again.report.status == "success"
    assert len(marks(again.messages)) == 2


def test_without_a_mark_none_is_added():
    assert marks(compact(agent_run(), target_tokens=3_000, dialect="anthropic").messages) == []


@pytest.mark.parametrize("broken", ["marks", "order"])
def test_what_breaks_these_rules_is_found_and_repaired(broken):
    spoken = DIALECTS["anthropic"]
    if broken == "marks":
        raws, rule = marked(6), "cache-marks"
    else:
        block = {"type": "compaction", "content": "So far."}
        reply = {"role": "assistant", "content": [{"type": "text", "text": "b"}, block]}
        raws = [{"role": "user", "content": "a"}, reply]
        rule = "compaction"
    messages = spoken.parse(raws)
    assert {each.rule for each in find_violations(messages, spoken)} == {rule}
    assert find_violations(repair(messages, spoken)[0], spoken) == []
