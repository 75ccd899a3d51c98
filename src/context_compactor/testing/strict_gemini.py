"""Gemini's `POST /v1beta/models/{model}:generateContent`, whole or as a stream, as a strict server answers it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from context_compactor.testing.refusing import (
    Body,
    RuleError,
    count_tokens,
    digest,
    objects_at,
    refuse_undeclared,
    without,
)
from context_compactor.testing.replies import ScriptedReply
from context_compactor.testing.streams import StreamEvent, pieces

_SUBSTITUTES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""What the provider takes in the place of a signature for a history that it did not write itself."""
_METHODS = (":generateContent", ":streamGenerateContent")
_UNDERSCORE = re.compile(r"_([a-z])")
_KINDS = ("text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult")


class StrictGemini:
    """Gemini 3: the first call of each step of the current turn must have the signature that it came with."""

    name = "gemini"

    def __init__(self, window: int) -> None:
        self._window = window
        self._signed: dict[str, str] = {}
        self._calls = 0

    def takes(self, path: str) -> bool:
        return path.startswith("/v1beta/models/") and path.endswith(_METHODS)

    def check(self, path: str, body: Body) -> int:
        contents = _camel_case(objects_at("contents", body.get("contents")))
        if not contents:
            raise RuleError("empty", "* GenerateContentRequest.contents: contents is not specified")
        for at, content in enumerate(contents):
            _check_shape(at, content)
        _check_turns(contents)
        self._check_signatures(contents)
        declared = [
            str(function.get("name"))
            for tool in body.get("tools") or ()
            for function in tool.get("functionDeclarations") or tool.get("function_declarations") or ()
        ]
        refuse_undeclared(
            (str(call.get("name")) for content in contents for call in _held(content, "functionCall")), declared
        )
        tokens = count_tokens(body.get("systemInstruction"), body.get("tools"), contents)
        if tokens > self._window:
            raise RuleError(
                "window",
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self._window}).",
            )
        return tokens

    def reply(self, path: str, body: Body, said: ScriptedReply, tokens: int) -> Body:
        parts: list[Body] = []
        if said.thinking and not said.redacted:
            parts.append({"text": said.thinking, "thought": True})
        if said.text or not said.calls:
            part = {"text": said.text or "Done."}
            parts.append(part if said.calls or said.thinking is None else self._sign(part))
        for number, call in enumerate(said.calls):
            self._calls += 1
            made = {"id": f"fc_{self._calls:06d}", "name": call.name, "args": call.arguments}
            parts.append({"functionCall": made} if number else self._sign({"functionCall": made}))
        output = count_tokens(parts)
        return {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": tokens,
                "candidatesTokenCount": output,
                "totalTokenCount": tokens + output,
            },
            "modelVersion": path.removeprefix("/v1beta/models/").partition(":")[0],
        }

    def events(self, path: str, body: Body, answer: Body) -> list[StreamEvent]:
        return _events(answer) if path.endswith(":streamGenerateContent") else []

    def adopt(self, body: Body) -> None:
        for content in _camel_case(body["contents"]):
            for part in content["parts"]:
                if part.get("thoughtSignature") is not None:
                    self._signed.setdefault(part["thoughtSignature"], digest(without(part, "thoughtSignature")))

    def error(self, error: RuleError) -> Body:
        message = f"{error.message} (rule: {error.rule})"
        return {"error": {"code": error.status, "message": message, "status": "INVALID_ARGUMENT"}}

    def _sign(self, part: Body) -> Body:
        # The official client takes a signature for bytes in base64, and sends it as those.
        signature = base64.b64encode(f"sig_{len(self._signed) + 1:05d}_{digest(part)[:16]}".encode()).decode()
        self._signed[signature] = digest(part)
        return {**part, "thoughtSignature": signature}

    def _check_signatures(self, contents: list[Body]) -> None:
        current = _current_turn(contents)
        for at, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            if at >= current and calls and not calls[0].get("thoughtSignature"):
                position = content["parts"].index(calls[0]) + 1
                raise RuleError(
                    "thinking",
                    "Function call is missing a thought_signature in functionCall parts. Function call "
                    f"`{calls[0]['functionCall'].get('name')}`, position {position} of contents[{at}].",
                )
            for number, part in enumerate(content["parts"]):
                signature = part.get("thoughtSignature")
                if signature is None or signature in _SUBSTITUTES:
                    continue
                signed = [digest(value) for value in _what_was_signed(content["parts"][: number + 1])]
                if self._signed.get(signature) not in signed:
                    raise RuleError("thinking", f"Corrupted thought signature. (contents[{at}])")


def _events(answer: Body) -> list[StreamEvent]:
    (candidate,) = answer["candidates"]
    head = {"modelVersion": answer["modelVersion"]}
    parts = [piece for part in candidate["content"]["parts"] for piece in _streamed(part)]
    chunks = [
        {**head, "candidates": [{"content": {"role": "model", "parts": [part]}, "index": candidate["index"]}]}
        for part in parts
    ]
    chunks[-1]["candidates"][0]["finishReason"] = candidate["finishReason"]
    chunks[-1]["usageMetadata"] = answer["usageMetadata"]
    return [StreamEvent(chunk) for chunk in chunks]


def _streamed(part: Body) -> list[Body]:
    """A call is sent whole. A text is sent in pieces, and its signature behind them with an empty one."""
    if "text" not in part:
        return [part]
    bare = without(part, "thoughtSignature")
    sent = [{**bare, "text": piece} for piece in pieces(part["text"])]
    return [*sent, {**part, "text": ""}] if "thoughtSignature" in part else sent


def _what_was_signed(parts: list[Body]) -> Iterator[Body]:
    """What the signature of the last part may stand for: the part, or a streamed text that it is the last piece of."""
    signed = without(parts[-1], "thoughtSignature")
    yield signed
    for before in reversed(parts[:-1]):
        if set(signed) != {"text"} or set(before) != {"text"}:
            return
        signed = {"text": before["text"] + signed["text"]}
        yield signed


def _camel_case(contents: list[Body]) -> list[Body]:
    """The contents with one form of the two that the provider takes for the names of fields and for who answers."""
    return [
        {
            **content,
            "role": "user" if content.get("role") == "function" else content.get("role"),
            "parts": [_camel_keys(part) for part in objects_at(f"contents[{at}].parts", content.get("parts") or [])],
        }
        for at, content in enumerate(contents)
    ]


def _camel_keys(part: Body) -> Body:
    return {_UNDERSCORE.sub(lambda found: found[1].upper(), key): value for key, value in part.items()}


def _held(content: Body, kind: str) -> Iterator[Any]:
    return (part[kind] for part in content["parts"] if isinstance(part.get(kind), dict))


def _check_shape(at: int, content: Body) -> None:
    role = content.get("role")
    if role not in ("user", "model"):
        raise RuleError("unknown-role", f"Please use a valid role: user, model. (contents[{at}].role)")
    parts = content["parts"]
    if not parts:
        raise RuleError("empty", f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.")
    for number, part in enumerate(parts):
        place = f"contents[{at}].parts[{number}]"
        kinds = [kind for kind in _KINDS if kind in part]
        if len(kinds) != 1:
            rule = "shape" if set(part) - {"thought", "thoughtSignature"} else "empty"
            raise RuleError(rule, f"* {place}.data: required oneof field 'data' must have one initialized field")
        if "text" in part and not isinstance(part["text"], str):
            raise RuleError("shape", f"Invalid value at '{place}.text' (TYPE_STRING)")
        if part.get("text") == "" and not part.get("thoughtSignature"):
            raise RuleError("empty", f"* {place}.text: must not be empty")
        if "functionCall" in part and role != "model":
            raise RuleError("shape", f"{place}: functionCall parts belong to the model")
        if "functionResponse" in part and role != "user":
            raise RuleError("shape", f"{place}: functionResponse parts belong to the user")
        if "functionResponse" in part and not isinstance(part["functionResponse"].get("response"), dict):
            raise RuleError("shape", f"Invalid value at '{place}.function_response.response' (Struct)")


def _check_turns(contents: list[Body]) -> None:
    if contents[0]["role"] != "user":
        raise RuleError("first-user", "Please ensure that multiturn requests start with a user role.")
    if contents[-1]["role"] != "user":
        calls = list(_held(contents[-1], "functionCall"))
        rule = "missing-result" if calls else "last-user"
        raise RuleError(rule, "Please ensure that multiturn requests end with a user role or a function response.")
    for at, content in enumerate(contents):
        if at and content["role"] == contents[at - 1]["role"] == "model":
            raise RuleError("alternation", "Please ensure that function call turn comes immediately after a user turn.")
        calls = list(_held(contents[at - 1], "functionCall")) if at else []
        responses = list(_held(content, "functionResponse"))
        if content["role"] == "user":
            _check_responses(at, calls, responses)
        if not all("functionResponse" in part for part in content["parts"][: len(responses)]):
            raise RuleError("block-order", f"contents[{at}]: functionResponse parts must come before other parts.")


def _check_responses(at: int, calls: list[Any], responses: list[Any]) -> None:
    """As many responses as calls in the turn before: by their ids, or in the same order where one has none."""
    if responses and not calls:
        raise RuleError(
            "orphan-result",
            f"Please ensure that function response turn comes immediately after a function call turn. (contents[{at}])",
        )
    if len(responses) != len(calls):
        rule = "missing-result" if len(responses) < len(calls) else "repeated-result"
        raise RuleError(
            rule,
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            f"of the function call turn. (contents[{at}])",
        )
    in_order = list(zip(calls, responses, strict=True))
    if all(response.get("id") for response in responses):
        by_id = {call.get("id"): call for call in calls}
        in_order = [(by_id.get(response["id"], {}), response) for response in responses]
    for call, response in in_order:
        if call.get("name") != response.get("name"):
            raise RuleError(
                "result-order",
                f"contents[{at}]: the function response {response.get('name')!r} does not answer the function call "
                f"{call.get('name')!r} in its place.",
            )


def _current_turn(contents: list[Body]) -> int:
    """The index of the last thing that the user said; what follows are the steps of the current turn."""
    for at in range(len(contents) - 1, -1, -1):
        if contents[at]["role"] == "user" and any("functionResponse" not in part for part in contents[at]["parts"]):
            return at
    return 0
