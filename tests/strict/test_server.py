"""The strict server itself: a legal request is answered, and each rule that is broken is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from itertools import islice
from typing import Any
from urllib.request import Request, urlopen

import pytest

from context_compactor.testing import ScriptedCall, ScriptedReply, StrictServer, random_replies
from tests.dialects.strategies import picture
from tests.strict.clients import CLIENTS, LoopClient
from tests.waiting import PATIENCE

Raw = dict[str, Any]
BY_NAME = {client.dialect: client for client in CLIENTS}
READ = ScriptedCall("read_file", {"path": "src/a.py"})
RUN = ScriptedCall("run_command", {"command": "pytest -q"})
SCRIPT = (
    ScriptedReply("I read it.", "First read.", calls=(READ,)),
    ScriptedReply("", "", calls=(READ, RUN)),
    ScriptedReply("It is line 3.", "Now I know.", redacted=True),
    ScriptedReply("I fix it.", "Then fix it.", calls=(RUN,)),
)


class Talk:
    """A conversation with a server of its own, up to the results of the last calls of the script."""

    def __init__(self, client: LoopClient, script=SCRIPT, **options: Any) -> None:
        self.client = client
        self.server = StrictServer(script, **options)
        self.history: list[Raw] = [*client.first(), client.user("What is wrong in src/a.py?")]
        for _ in script:
            self.step()

    @property
    def body(self) -> Raw:
        return self.client.request(deepcopy(self.history))

    def step(self) -> None:
        status, answer = self.send(self.body)
        assert status == 200, answer
        self.history += self.client.reply(answer)
        calls = self.client.calls(answer)
        self.history += self.client.results(calls, ["x = 1"] * len(calls)) if calls else [self.client.user("Fix it.")]

    def send(self, body: Raw) -> tuple[int, Raw]:
        return self.server.respond(self.client.path, body)


def test_every_provider_answers_a_conversation_that_was_only_appended_to():
    for client in CLIENTS:
        talk = Talk(client)
        assert talk.send(talk.body)[0] == 200
        assert talk.server.refusals == []
        assert talk.server.answered == len(SCRIPT) + 1


def test_the_same_seed_gives_the_same_replies():
    assert list(islice(random_replies(4), 50)) == list(islice(random_replies(4), 50))


def test_the_script_ends_with_its_last_reply_again_and_again():
    server = StrictServer([ScriptedReply("Hello."), ScriptedReply("Bye.")])
    texts = []
    for _ in range(3):
        answer = server.respond("/v1/messages", {"messages": [{"role": "user", "content": "Hi."}]})[1]
        texts.append(answer["content"][0]["text"])
    assert texts == ["Hello.", "Bye.", "Bye."]


def test_over_http_it_answers_the_same():
    with StrictServer([ScriptedReply("Hello.")]).serve() as url:
        body = json.dumps({"messages": [{"role": "user", "content": "Hi."}]}).encode()
        with urlopen(Request(f"{url}/v1/messages", body, method="POST"), timeout=PATIENCE) as answer:
            assert json.loads(answer.read())["content"] == [{"type": "text", "text": "Hello."}]


def test_an_unknown_path_is_not_found():
    assert StrictServer().respond("/v1/embeddings", {})[0] == 404


def _cut(at: int) -> Callable[[Raw], None]:
    return lambda body: _list(body).pop(at)


def _list(body: Raw) -> list[Raw]:
    return next(body[name] for name in ("messages", "input", "contents") if name in body)


def _double(at: int) -> Callable[[Raw], None]:
    return lambda body: _list(body).insert(at, deepcopy(_list(body)[at]))


def _role(at: int, role: str) -> Callable[[Raw], None]:
    return lambda body: _list(body)[at].update(role=role)


def _insert(at: int, message: Raw) -> Callable[[Raw], None]:
    return lambda body: _list(body).insert(at, message)


def _undeclare(body: Raw) -> None:
    del body["toolConfig" if "toolConfig" in body else "tools"]


def _at(body: Raw, at: int, field: str = "content") -> Any:
    return _list(body)[at][field]


def _mark_all(body: Raw) -> None:
    for block in [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]:
        if block["type"] in ("tool_use", "tool_result"):
            block["cache_control"] = {"type": "ephemeral"}


def _image(width: int, height: int) -> Raw:
    source = {"type": "base64", "media_type": "image/png", "data": picture(width, height)}
    return {"type": "image", "source": source}


# Messages of the talk in blocks: user, [thinking, text, call], results, [thinking, call, call], results,
# [redacted thinking, text], user, [thinking, text, call], results.
ANTHROPIC: list[tuple[str, Callable[[Raw], Any]]] = [
    ("unknown-role", _role(0, "human")),
    ("first-user", _cut(0)),
    ("alternation", lambda body: _list(body).insert(2, {"role": "assistant", "content": "And on."})),
    ("last-user", _cut(-1)),
    ("empty", lambda body: _list(body)[0].update(content=" ")),
    ("empty", lambda body: _list(body)[6].update(content=[])),
    ("empty", lambda body: _at(body, 2)[0].update(content=[{"type": "text", "text": ""}])),
    ("missing-result", lambda body: _at(body, 4).pop()),
    ("missing-result", lambda body: _list(body).insert(2, {"role": "user", "content": "Wait."})),
    ("orphan-result", lambda body: _at(body, 1).pop()),
    ("repeated-result", lambda body: _at(body, 4).append(deepcopy(_at(body, 4)[0]))),
    ("repeated-id", lambda body: _at(body, 3)[2].update(id=_at(body, 3)[1]["id"])),
    ("block-order", lambda body: _at(body, 2).insert(0, {"type": "text", "text": "Here:"})),
    ("system", _insert(0, {"role": "system", "content": "Be brief."})),
    ("system", _insert(2, {"role": "system", "content": "Be brief."})),
    ("system", _insert(6, {"role": "system", "content": "Be brief."})),
    ("thinking", lambda body: _at(body, 1)[0].update(thinking="Other.")),
    ("thinking", lambda body: _at(body, 1)[0].update(signature="mine")),
    ("thinking", lambda body: _at(body, 2)[0].update(content="x = 2")),
    ("thinking", lambda body: _at(body, 1)[1].update(text="I looked.")),
    ("thinking", lambda body: _at(body, 3).pop(0)),
    ("thinking", lambda body: body.update(system="Other.")),
    ("thinking", lambda body: body["tools"].pop()),
    ("thinking", lambda body: _list(body).__delitem__(slice(1, 3))),
    ("cache-marks", _mark_all),
    ("cache-marks", lambda body: _at(body, 1)[0].update(cache_control={"type": "ephemeral"})),
    ("compaction", lambda body: _at(body, 1).insert(0, {"type": "compaction", "content": "Mine."})),
    ("compaction", lambda body: _at(body, 1).append({"type": "compaction", "content": "Mine."})),
    ("server-tool", lambda body: _at(body, 1).insert(1, {"type": "server_tool_use", "id": "s", "name": "search"})),
    ("server-tool", lambda body: _at(body, 1).insert(1, {"type": "web_search_tool_result", "tool_use_id": "s"})),
    ("media", lambda body: _list(body)[0].update(content=[_image(9_000, 10)])),
    ("media", lambda body: _list(body)[0].update(content=[_image(2_400, 10)] * 21)),
    ("media", lambda body: _list(body)[0].update(content=[_image(10, 10)] * 101)),
    ("undeclared-tool", _undeclare),
    ("shape", lambda body: _at(body, 1)[2].update(input="text")),
    ("shape", lambda body: _at(body, 1)[2].update(id="call 1")),
    ("shape", lambda body: body.update(messages="text")),
    ("window", lambda body: _list(body).append({"role": "user", "content": "x" * 100_000})),
]
# system, user, call, result, two calls, two results, answer, user, call, result
CHAT: list[tuple[str, Callable[[Raw], Any]]] = [
    ("unknown-role", _role(1, "human")),
    ("first-user", _cut(1)),
    ("alternation", lambda body: _list(body).insert(7, {"role": "assistant", "content": "And on."})),
    ("empty", lambda body: _list(body)[1].update(content=None)),
    ("empty", lambda body: _list(body)[7].update(tool_calls=[])),
    ("missing-result", _cut(5)),
    ("missing-result", _insert(3, {"role": "user", "content": "Wait."})),
    ("orphan-result", _cut(2)),
    ("repeated-result", _double(3)),
    ("repeated-id", lambda body: [call.update(id="same") for call in _list(body)[4]["tool_calls"]]),
    ("reasoning-content", lambda body: _list(body)[2].pop("reasoning_content")),
    ("undeclared-tool", _undeclare),
    ("shape", lambda body: _list(body)[2]["tool_calls"][0]["function"].update(arguments={})),
    ("window", lambda body: _list(body).append({"role": "user", "content": "x" * 100_000})),
]
# user, rs, msg, fc, output, rs, fc, fc, output, output, rs, msg, user, rs, msg, fc, output
RESPONSES: list[tuple[str, Callable[[Raw], Any]]] = [
    ("unknown-role", _role(0, "human")),
    ("missing-result", _cut(4)),
    ("orphan-result", lambda body: _list(body).__delitem__(slice(5, 8))),
    ("repeated-result", _double(4)),
    ("repeated-id", lambda body: _list(body)[7].update(call_id=_list(body)[6]["call_id"])),
    ("repeated-item", lambda body: _list(body).insert(12, deepcopy(_list(body)[11]))),
    ("reasoning", _cut(1)),
    ("reasoning", _cut(2)),
    ("reasoning", lambda body: _list(body).__delitem__(11)),
    ("reasoning", _insert(2, {"role": "user", "content": "Wait."})),
    ("reasoning", lambda body: _list(body)[1].update(encrypted_content="mine")),
    ("reasoning", lambda body: _list(body)[1].update(id="rs_mine")),
    ("compaction", _insert(0, {"type": "compaction", "encrypted_content": "mine"})),
    ("previous-response", lambda body: body.update(previous_response_id="resp_mine")),
    ("undeclared-tool", _undeclare),
    ("empty", lambda body: body.update(input=[])),
    ("shape", lambda body: _list(body)[0].update(type="remark")),
    ("shape", lambda body: _list(body)[0].update(content=[{"type": "text", "text": "Hi."}])),
    ("window", lambda body: _list(body).append({"role": "user", "content": "x" * 100_000})),
]


def _text(text: str) -> Raw:
    return {"role": "user", "parts": [{"text": text}]}


def _reverse_without_ids(body: Raw) -> None:
    parts = _at(body, 4, "parts")
    parts.reverse()
    for part in parts:
        del part["functionResponse"]["id"]


# user, [thought, text, call], response, [call, call], responses, [text], user, [thought, text, call], response
GEMINI: list[tuple[str, Callable[[Raw], Any]]] = [
    ("unknown-role", _role(1, "assistant")),
    ("first-user", _cut(0)),
    ("last-user", lambda body: _list(body).__delitem__(slice(6, None))),
    ("alternation", _double(5)),
    ("empty", lambda body: _list(body)[0].update(parts=[])),
    ("empty", lambda body: _list(body)[0].update(parts=[{}])),
    ("missing-result", _cut(-1)),
    ("missing-result", lambda body: _at(body, 4, "parts").pop()),
    ("missing-result", _insert(2, _text("Wait."))),
    ("orphan-result", lambda body: _at(body, 1, "parts").pop()),
    ("repeated-result", lambda body: _at(body, 4, "parts").append(deepcopy(_at(body, 4, "parts")[0]))),
    ("block-order", lambda body: _at(body, 4, "parts").insert(0, {"text": "Here:"})),
    ("result-order", _reverse_without_ids),
    ("thinking", lambda body: _at(body, 7, "parts")[-1].pop("thoughtSignature")),
    ("thinking", lambda body: _at(body, 7, "parts")[-1].update(thoughtSignature="mine")),
    ("thinking", lambda body: _at(body, 5, "parts")[-1].update(text="It is line 4.")),
    ("thinking", lambda body: _at(body, 1, "parts")[-1]["functionCall"].update(args={})),
    ("undeclared-tool", _undeclare),
    ("shape", _role(2, "model")),
    ("shape", lambda body: _at(body, 2, "parts")[0]["functionResponse"].update(response="text")),
    ("window", lambda body: _list(body).append(_text("x" * 100_000))),
]
DOCUMENT = {"document": {"format": "txt", "name": "Spec", "source": {"text": "words"}}}
# As in ANTHROPIC.
BEDROCK: list[tuple[str, Callable[[Raw], Any]]] = [
    ("unknown-role", _role(0, "system")),
    ("first-user", _cut(0)),
    ("alternation", _insert(6, {"role": "user", "content": [{"text": "Wait."}]})),
    ("last-user", lambda body: _list(body).__delitem__(slice(6, None))),
    ("empty", lambda body: _list(body)[0].update(content=[])),
    ("empty", lambda body: _list(body)[0].update(content=[{"text": " "}])),
    ("missing-result", _cut(-1)),
    ("missing-result", lambda body: _at(body, 4).pop()),
    ("orphan-result", lambda body: _at(body, 1).pop()),
    ("repeated-result", lambda body: _at(body, 4).append(deepcopy(_at(body, 4)[0]))),
    ("repeated-id", lambda body: _at(body, 3)[2]["toolUse"].update(toolUseId=_at(body, 3)[1]["toolUse"]["toolUseId"])),
    ("block-order", lambda body: _at(body, 2).insert(0, {"text": "Here:"})),
    ("thinking", lambda body: _at(body, 1)[0]["reasoningContent"]["reasoningText"].update(text="Other.")),
    ("thinking", lambda body: _at(body, 2)[0]["toolResult"].update(content=[{"text": "x = 2"}])),
    ("thinking", lambda body: _at(body, 3).pop(0)),
    ("empty", lambda body: _at(body, 2)[0]["toolResult"].update(content=[{"text": " "}])),
    ("document", lambda body: _list(body)[0].update(content=[DOCUMENT])),
    ("media", lambda body: _at(body, 0).extend([DOCUMENT] * 6)),
    ("media", lambda body: _at(body, 0).append({"image": {"source": {"bytes": picture(9_000, 10)}}})),
    ("cache-marks", lambda body: [_at(body, 0).append({"cachePoint": {"type": "default"}}) for _ in range(5)]),
    ("undeclared-tool", _undeclare),
    ("shape", lambda body: _at(body, 1)[2]["toolUse"].update(input="text")),
    ("shape", lambda body: _at(body, 2)[0]["toolResult"].update(status="maybe")),
    ("shape", lambda body: _list(body)[0].update(content=[{"type": "text", "text": "Hi."}])),
    ("window", lambda body: _at(body, 8).append({"text": "x" * 100_000})),
]
BROKEN = {
    "anthropic": ANTHROPIC,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
}
CASES = [
    pytest.param(dialect, rule, change, id=f"{dialect}-{rule}-{number}")
    for dialect, cases in BROKEN.items()
    for number, (rule, change) in enumerate(cases)
]


@pytest.mark.parametrize(("dialect", "rule", "change"), CASES)
def test_a_request_that_breaks_a_rule_is_refused_with_the_rules_name(dialect, rule, change):
    talk = Talk(BY_NAME[dialect])
    body = talk.body
    change(body)
    status, answer = talk.send(body)
    assert 400 <= status < 500
    assert [refusal.rule for refusal in talk.server.refusals] == [rule]
    assert f"(rule: {rule})" in json.dumps(answer)
    assert talk.send(talk.body)[0] == 200


ERROR_SHAPES = {
    "anthropic": lambda answer: (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error"),
    "openai-chat": lambda answer: answer["error"]["code"] == "context_length_exceeded",
    "openai-responses": lambda answer: answer["error"]["code"] == "context_length_exceeded",
    "gemini": lambda answer: (answer["error"]["code"], answer["error"]["status"]) == (400, "INVALID_ARGUMENT"),
    "bedrock": lambda answer: "prompt is too long" in answer["message"],
}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.dialect)
def test_a_request_that_is_too_long_is_refused_in_the_providers_form(client):
    talk = Talk(client, window=2_000)
    body = talk.client.request([client.user("x" * 9_000)])
    status, answer = talk.send(body)
    assert status == 400
    assert ERROR_SHAPES[client.dialect](answer)


def _without_thinking(body: Raw, keep: range) -> Raw:
    """The request with only those of its thinking blocks whose numbers are to be kept."""
    number = -1
    for message in body["messages"]:
        kept = []
        for block in message["content"] if isinstance(message["content"], list) else ():
            number += (is_thought := not {"thinking", "data", "reasoningContent"}.isdisjoint(block))
            if not is_thought or number in keep:
                kept.append(block)
        message["content"] = kept or message["content"]
    return body


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
@pytest.mark.parametrize("keep", [range(0), range(1, 4), range(2, 4), range(3), range(1), range(1, 3)])
def test_thinking_may_be_left_out_from_the_start_from_the_end_and_altogether(dialect, keep):
    talk = Talk(BY_NAME[dialect])
    assert talk.send(_without_thinking(talk.body, keep)) != ()
    assert talk.server.refusals == []


def test_thinking_stays_valid_when_cache_marks_move_and_keys_change_their_order():
    talk = Talk(BY_NAME["anthropic"])
    body = talk.body
    body["messages"][0]["content"] = [
        {"cache_control": {"type": "ephemeral"}, "text": body["messages"][0]["content"], "type": "text"}
    ]
    body["tools"][-1]["cache_control"] = {"type": "ephemeral"}
    assert talk.send(body)[0] == 200


def test_thinking_behind_a_change_is_legal_once_it_is_gone_and_new_thinking_is_bound_anew():
    talk = Talk(BY_NAME["anthropic"])
    talk.history = _without_thinking(talk.body, range(0))["messages"]
    talk.history[2]["content"][0]["content"] = "[archived]"
    talk.step()
    talk.step()
    assert talk.server.refusals == []
    talk.history[2]["content"][0]["content"] = "[archived again]"
    assert talk.send(talk.body)[0] == 400


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.dialect)
def test_a_conversation_that_was_held_elsewhere_can_be_adopted_and_stays_bound_to_what_it_was(client):
    talk, other = Talk(client), StrictServer([ScriptedReply("Done.")])
    if client.dialect != "openai-chat":
        assert other.respond(client.path, talk.body)[0] >= 400
    other.adopt(client.path, talk.body)
    assert other.respond(client.path, talk.body)[0] == 200
    if client.dialect in ("anthropic", "bedrock"):
        changed = talk.body
        changed["messages"].pop(0)
        changed["messages"].insert(0, client.user("What is right in src/a.py?"))
        other.adopt(client.path, changed)
        assert other.respond(client.path, changed)[0] == 400
        assert other.refusals[-1].rule == "thinking"


def test_a_system_message_behind_a_user_turn_or_results_is_legal():
    talk = Talk(BY_NAME["anthropic"])
    talk.history.append({"role": "system", "content": "Be brief."})
    talk.step()
    assert talk.server.refusals == []


def test_what_stands_before_a_compaction_block_may_stay_or_go():
    talk = Talk(BY_NAME["anthropic"])
    body = talk.body
    body["context_management"] = {
        "edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1}}]
    }
    answer = talk.send(body)[1]
    assert answer["content"][0]["type"] == "compaction"
    results = talk.client.results(talk.client.calls(answer), ["x = 1"])
    after = [*talk.client.reply(answer), *results]
    assert talk.send(talk.client.request([*talk.history, *after]))[0] == 200
    assert talk.send(talk.client.request(after))[0] == 200
    changed = deepcopy(after)
    changed[0]["content"][0]["content"] = "My own summary."
    assert talk.send(talk.client.request(changed))[0] == 400
    assert talk.server.refusals[-1].rule == "compaction"


def test_a_chain_of_responses_is_held_by_the_server():
    server, client = StrictServer(SCRIPT), BY_NAME["openai-responses"]
    tools = client.request([])["tools"]
    first = server.respond("/v1/responses", {"input": "Look.", "tools": tools})[1]
    outputs = client.results(client.calls(first), ["x = 1"])
    chained = {"previous_response_id": first["id"], "input": outputs, "tools": tools}
    status, second = server.respond("/v1/responses", chained)
    assert (status, second["previous_response_id"]) == (200, first["id"])
    again = {**chained, "input": [*first["output"], *outputs]}
    assert server.respond("/v1/responses", again)[0] == 400
    assert server.refusals[-1].rule == "repeated-item"
    pruned = {"previous_response_id": first["id"], "input": "And now?", "tools": tools}
    assert server.respond("/v1/responses", pruned)[0] == 400
    assert server.refusals[-1].rule == "missing-result"


def test_a_response_that_was_not_stored_has_no_chain():
    server = StrictServer([ScriptedReply("Hello.")])
    first = server.respond("/v1/responses", {"input": "Hi.", "store": False})[1]
    status, _ = server.respond("/v1/responses", {"input": "Hi.", "previous_response_id": first["id"]})
    assert status == 400


def test_what_stands_before_a_compaction_item_may_stay_or_go():
    talk = Talk(BY_NAME["openai-responses"])
    status, compacted = talk.server.respond("/v1/responses/compact", talk.body)
    assert (status, compacted["output"][-1]["type"]) == (200, "compaction")
    for input_items in ([*talk.history, *compacted["output"]], compacted["output"], compacted["output"][-1:]):
        body = talk.client.request([*input_items, talk.client.user("Go on.")])
        assert talk.send(body)[0] == 200, talk.server.refusals


def test_items_without_their_id_need_no_reasoning():
    talk = Talk(BY_NAME["openai-responses"])
    items = [item for item in talk.body["input"] if item["type"] != "reasoning"]
    bare = [{key: value for key, value in item.items() if key != "id"} for item in items]
    assert talk.send(talk.client.request(bare))[0] == 200


def test_signatures_of_earlier_turns_may_be_missing():
    talk = Talk(BY_NAME["gemini"])
    body = talk.body
    for content in body["contents"][:7]:
        for part in content["parts"]:
            part.pop("thoughtSignature", None)
    assert talk.send(body)[0] == 200
