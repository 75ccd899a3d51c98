"""OpenAI's `POST /v1/responses` and `/v1/responses/compact` as a strict server answers them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from context_compactor.testing.refusing import Body, RuleError, count_tokens, digest, objects_at, refuse_undeclared
from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent, pieces

_ROLES = ("system", "developer", "user", "assistant")
_CALLS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
_OUTPUTS = tuple(_CALLS.values())
_OTHERS = (
    "message",
    "reasoning",
    "compaction",
    "item_reference",
    "mcp_list_tools",
    "mcp_approval_response",
    "tool_search_output",
)


class StrictResponses:
    """Holds the chains of stored responses, and knows which item came with which reasoning."""

    name = "openai-responses"

    def __init__(self, window: int) -> None:
        self._window = window
        self._chains: dict[str, list[Body]] = {}
        self._sealed: dict[str, str | None] = {}
        self._behind: dict[str, Body] = {}
        self._reasoning_of: dict[str, str] = {}
        self._compactions: set[str] = set()
        self._count = 0

    def takes(self, path: str) -> bool:
        return path in ("/v1/responses", "/v1/responses/compact")

    def check(self, path: str, body: Body) -> int:
        items = self._items(body)
        if not items:
            raise RuleError("empty", "One of 'input' or 'previous_response_id' must be provided.")
        for at, item in enumerate(items):
            _check_shape(at, item)
        self._check_compactions(items)
        effective = items[_newest_compaction(items) :]
        _check_ids(effective)
        _check_outputs(effective)
        self._check_reasoning(effective)
        declared = [str(tool.get("name") or tool.get("type")) for tool in body.get("tools") or ()]
        if not path.endswith("/compact"):
            refuse_undeclared(_called(effective), declared)
        tokens = count_tokens(body.get("instructions"), body.get("tools"), effective)
        if tokens > self._window:
            raise RuleError(
                "window",
                "Your input exceeds the context window of this model. Please adjust your input and try again. "
                f"({tokens} tokens > {self._window})",
                "context_length_exceeded",
            )
        return tokens

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        items = self._items(body)
        if path.endswith("/compact"):
            kept = [item for item in items if item.get("role") == "user"]
            return self._answer("response.compaction", body, [*kept, self._compaction(items)], tokens)
        output: list[Body] = [self._compaction(items)] if _wants_compaction(body, tokens) else []
        reasoning = self._reasoning(said)
        output += reasoning
        if said.text or not said.calls:
            text = {"type": "output_text", "text": said.text or "Done.", "annotations": []}
            item = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
            output.append({"id": self._new_id("msg"), **item})
        for call in said.calls:
            item = {"type": "function_call", "call_id": self._new_id("call"), "name": call.name, "status": "completed"}
            output.append({"id": self._new_id("fc"), **item, "arguments": json.dumps(call.arguments)})
        if reasoning:
            own = output[output.index(reasoning[0]) + 1 :]
            self._behind[reasoning[0]["id"]] = own[0]
            self._reasoning_of |= {item["id"]: reasoning[0]["id"] for item in own}
        answer = self._answer("response", body, output, tokens)
        if body.get("store", True):
            self._chains[answer["id"]] = [*items, *output]
        return answer

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        return _events(answer) if body.get("stream") and not path.endswith("/compact") else []

    def adopt(self, body: Body) -> None:
        items = self._items(body)
        self._compactions |= {item["encrypted_content"] for item in items if _type(item) == "compaction"}
        reasoning: Body = {}
        seen: set[str | None] = set()
        for item in items:
            item_id = item.get("id")
            if item_id is not None and item_id in seen and _type(item) != "reasoning":
                continue
            seen.add(item_id)
            if _type(item) in ("compaction", *_OUTPUTS) or item.get("role") in ("user", "system", "developer"):
                reasoning = {}
                continue
            if reasoning and item_id != reasoning["id"]:
                self._behind.setdefault(reasoning["id"], item)
            if _type(item) == "reasoning":
                reasoning = item
                self._sealed.setdefault(item["id"], item.get("encrypted_content"))
            elif reasoning and item.get("id") is not None:
                self._reasoning_of.setdefault(item["id"], reasoning["id"])

    def error(self, error: RuleError) -> Body:
        message = f"{error.message} (rule: {error.rule})"
        return {"error": {"message": message, "type": "invalid_request_error", "param": "input", "code": error.code}}

    def _items(self, body: Body) -> list[Body]:
        """What the model is shown: the items of the chain, then those of the request."""
        sent = body.get("input")
        items = [{"role": "user", "content": sent}] if isinstance(sent, str) else objects_at("input", sent or [])
        previous = body.get("previous_response_id")
        if previous is None:
            return items
        if previous not in self._chains:
            raise RuleError(
                "previous-response",
                f"Previous response with id '{previous}' not found.",
                "previous_response_not_found",
            )
        return [*self._chains[previous], *items]

    def _new_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count:06d}"

    def _reasoning(self, said: ScriptedReply) -> list[Body]:
        if said.thinking is None:
            return []
        item_id = self._new_id("rs")
        sealed = f"sealed_{digest(item_id)[:24]}"
        summary = [] if said.redacted or not said.thinking else [{"type": "summary_text", "text": said.thinking}]
        self._sealed[item_id] = sealed
        return [{"id": item_id, "type": "reasoning", "summary": summary, "encrypted_content": sealed}]

    def _compaction(self, items: list[Body]) -> Body:
        sealed = f"compacted_{digest(items)[:24]}"
        self._compactions.add(sealed)
        return {"id": self._new_id("cmp"), "type": "compaction", "encrypted_content": sealed}

    def _answer(self, kind: str, body: Body, output: list[Body], tokens: int) -> Body:
        written = count_tokens(output)
        usage = {"input_tokens": tokens, "output_tokens": written, "total_tokens": tokens + written}
        return {
            "id": self._new_id("resp"),
            "object": kind,
            "created_at": 0,
            "status": "completed",
            "model": body.get("model", ""),
            "previous_response_id": body.get("previous_response_id"),
            "output": output,
            "usage": {
                **usage,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }

    def _check_compactions(self, items: list[Body]) -> None:
        for item in items:
            if _type(item) == "compaction" and item.get("encrypted_content") not in self._compactions:
                raise RuleError("compaction", "The encrypted content of a compaction item could not be verified.")

    def _check_reasoning(self, items: list[Body]) -> None:
        """Reasoning stands directly before the item it came with; what came with reasoning, and has its id, behind."""
        current: set[str] = set()
        for at, item in enumerate(items):
            item_id = str(item.get("id") or "")
            if _type(item) == "reasoning":
                self._check_sealed(item_id, item)
                following = items[at + 1] if at + 1 < len(items) else {}
                if item_id not in self._behind or not _is_same(following, self._behind[item_id]):
                    raise RuleError(
                        "reasoning",
                        f"Item '{item_id}' of type 'reasoning' was provided without its required following item.",
                    )
                current = {item_id}
            elif _type(item) in _OUTPUTS or item.get("role") in ("user", "system", "developer"):
                current = set()
            needed = self._reasoning_of.get(item_id)
            if needed is not None and needed not in current:
                raise RuleError(
                    "reasoning",
                    f"Item '{item_id}' of type '{_type(item)}' was provided without its required 'reasoning' item: "
                    f"'{needed}'.",
                )

    def _check_sealed(self, item_id: str, item: Body) -> None:
        if item_id not in self._sealed:
            raise RuleError("reasoning", f"Item with id '{item_id}' not found.", status=404)
        if item.get("encrypted_content") not in (None, self._sealed[item_id]):
            raise RuleError("reasoning", f"The encrypted content for item {item_id} could not be verified.")


def _events(answer: Body) -> list[StreamEvent]:
    started = {**answer, "status": "in_progress", "output": [], "usage": None}
    values = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        *(value for at, item in enumerate(answer["output"]) for value in _item_events(at, item)),
        {"type": "response.completed", "response": answer},
    ]
    return [StreamEvent({**value, "sequence_number": at}, value["type"]) for at, value in enumerate(values)]


def _item_events(at: int, item: Body) -> Iterator[Body]:
    place = {"item_id": item["id"], "output_index": at}
    yield {"type": "response.output_item.added", "output_index": at, "item": _added(item)}
    for number, part in enumerate(item.get("content") or ()):
        yield from _text_events({**place, "content_index": number}, part)
    for number, part in enumerate(item.get("summary") or ()):
        yield from _summary_events({**place, "summary_index": number}, part)
    if item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    yield {"type": "response.output_item.done", "output_index": at, "item": item}


def _added(item: Body) -> Body:
    match item["type"]:
        case "message":
            return {**item, "status": "in_progress", "content": []}
        case "function_call":
            return {**item, "status": "in_progress", "arguments": ""}
        case "reasoning":
            # Only `output_item.done` has all of it, as the provider warns: who takes this one is refused later.
            return {**item, "summary": [], "encrypted_content": item["encrypted_content"][:12]}
    return item


def _text_events(place: Body, part: Body) -> Iterator[Body]:
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _summary_events(place: Body, part: Body) -> Iterator[Body]:
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _type(item: Body) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _is_same(item: Body, issued: Body) -> bool:
    """Whether this can be the item that was handed out: by its id, or where it has none by its kind."""
    if item.get("id") is not None or _type(item) != _type(issued):
        return bool(item.get("id") == issued.get("id"))
    return bool(item.get("role") == issued.get("role"))


def _newest_compaction(items: list[Body]) -> int:
    return max((at for at, item in enumerate(items) if _type(item) == "compaction"), default=0)


def _check_shape(at: int, item: Body) -> None:
    kind = _type(item)
    if kind not in (*_OTHERS, *_CALLS, *_OUTPUTS) and not kind.endswith("_call"):
        raise RuleError("shape", f"Invalid value: '{kind}'. (input[{at}].type)")
    if kind == "message":
        if item.get("role") not in _ROLES:
            known = ", ".join(f"'{name}'" for name in _ROLES)
            raise RuleError(
                "unknown-role",
                f"Invalid value: {item.get('role')!r}. Supported values are: {known}. (input[{at}].role)",
            )
        _check_blocks(at, item)
    if kind in ("function_call", *_OUTPUTS) and not item.get("call_id") and kind != "local_shell_call_output":
        raise RuleError("shape", f"Missing required parameter: 'input[{at}].call_id'.")
    if kind == "function_call" and not isinstance(item.get("arguments"), str):
        raise RuleError("shape", f"Missing required parameter: 'input[{at}].arguments'.")
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        raise RuleError("shape", f"Missing required parameter: 'input[{at}].summary'.")


def _check_blocks(at: int, item: Body) -> None:
    content = item.get("content")
    if isinstance(content, str):
        return
    wanted = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
    for number, block in enumerate(objects_at(f"input[{at}].content", content)):
        if block.get("type") not in (*wanted, "input_audio"):
            raise RuleError("shape", f"Invalid value: '{block.get('type')}'. (input[{at}].content[{number}].type)")


def _check_ids(items: list[Body]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.get("id") is not None:
            if item["id"] in seen:
                raise RuleError(
                    "repeated-item",
                    f"Duplicate item found with id {item['id']}. Remove duplicate items from your input and try again.",
                )
            seen.add(item["id"])


def _check_outputs(items: list[Body]) -> None:
    """Every call has one output somewhere behind it, and every output a call of its kind before it."""
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        kind, call_id = _type(item), str(item.get("call_id") or item.get("id"))
        if kind in _CALLS:
            if call_id in calls:
                raise RuleError("repeated-id", f"Duplicate call_id '{call_id}' in the input.")
            calls[call_id] = kind
        elif kind in _OUTPUTS:
            if call_id not in calls or _CALLS[calls[call_id]] != kind:
                raise RuleError("orphan-result", f"No tool call found for function call output with call_id {call_id}.")
            if call_id in answered:
                raise RuleError("repeated-result", f"More than one tool output found for function call {call_id}.")
            answered.add(call_id)
    missing = [call_id for call_id in calls if call_id not in answered]
    if missing:
        raise RuleError("missing-result", f"No tool output found for function call {missing[0]}.")


def _called(items: list[Body]) -> Iterator[str]:
    return (str(item.get("name")) for item in items if _type(item) in ("function_call", "custom_tool_call"))


def _wants_compaction(body: Body, tokens: int) -> bool:
    wanted = [edit for edit in body.get("context_management") or () if edit.get("type") == "compaction"]
    return any(tokens > int(edit.get("compact_threshold", 200_000)) for edit in wanted)
