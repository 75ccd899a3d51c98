"""What providers demand of a context once it was compacted, rule by rule; see docs/why/providers.md."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from context_compactor import compact
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


def test_moved_cache_marks_are_no_change():
    messages = agent_run()
    marked = json.loads(json.dumps(messages))
    marked[4]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    assert legal_after(messages, marked)


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
