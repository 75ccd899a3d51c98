"""Conversations by hand: say what happens, and get it as the messages of a dialect.

talk = talk_in("anthropic").system("Be brief.").user("Fix it.")
talk.step(Call("Bash", {"command": "pytest"}, "1 failed", failed=True), text="Running the tests.").answer("Done.")
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from tests.dialects.strategies import picture

Raw = dict[str, Any]
DIALECT_NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock")


@dataclass(frozen=True)
class Call:
    """A tool call with what came back. Without an output it is still running."""

    name: str
    arguments: Raw
    output: str | None = ""
    failed: bool = False
    pictures: int = 0

    @property
    def words(self) -> str:
        """The arguments as the model wrote them."""
        return json.dumps(self.arguments, ensure_ascii=False)


def bash(command: str, output: str | None = "", failed: bool = False) -> Call:
    """A shell command."""
    return Call("Bash", {"command": command}, output, failed)


def read(path: str, output: str) -> Call:
    """A look into a file."""
    return Call("Read", {"file_path": path}, output)


def edit(path: str, old: str, new: str, output: str = "The file has been updated.", failed: bool = False) -> Call:
    """A change of a file."""
    return Call("Edit", {"file_path": path, "old_string": old, "new_string": new}, output, failed)


class Talk:
    """A conversation that grows; each verb returns the talk itself."""

    dialect = ""

    def __init__(self) -> None:
        self.messages: list[Raw] = []
        self.results: list[Any] = []
        self._calls = 0

    def system(self, text: str) -> Self:
        """Instructions."""
        self.messages.append({"role": "system", "content": text})
        return self

    def user(self, text: str, pictures: int = 0) -> Self:
        """The user's words, perhaps with pictures."""
        blocks = [self._text(text), *(self._picture() for _ in range(pictures))]
        self.messages.append({"role": "user", "content": blocks if pictures else text})
        return self

    def answer(self, text: str, thinking: str = "") -> Self:
        """Words of the agent without a call."""
        raise NotImplementedError

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        """Calls of the agent at once, and their results; `after` is what the user says in between."""
        raise NotImplementedError

    def _ids(self, calls: tuple[Call, ...]) -> list[str]:
        first, self._calls = self._calls, self._calls + len(calls)
        return [f"call_{number:04d}" for number in range(first, self._calls)]

    def _content(self, call: Call) -> Any:
        if call.pictures:
            content: Any = [self._text(call.output or ""), *(self._picture() for _ in range(call.pictures))]
        else:
            content = call.output
        self.results.append(content)
        return content

    def _text(self, text: str) -> Raw:
        return {"type": "text", "text": text}

    def _picture(self) -> Raw:
        raise NotImplementedError


class _Anthropic(Talk):
    dialect = "anthropic"

    def answer(self, text: str, thinking: str = "") -> Self:
        self.messages.append({"role": "assistant", "content": [*self._thought(thinking), self._text(text)]})
        return self

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        ids = self._ids(calls)
        uses = [
            {"type": "tool_use", "id": ref, "name": call.name, "input": call.arguments}
            for ref, call in zip(ids, calls, strict=True)
        ]
        said = [self._text(text)] if text else []
        self.messages.append({"role": "assistant", "content": [*self._thought(thinking), *said, *uses]})
        results = [self._result(ref, call) for ref, call in zip(ids, calls, strict=True) if call.output is not None]
        words = [self._text(after)] if after else []
        if results:
            self.messages.append({"role": "user", "content": [*results, *words]})
        return self

    def _result(self, ref: str, call: Call) -> Raw:
        block = {"type": "tool_result", "tool_use_id": ref, "content": self._content(call)}
        return block | ({"is_error": True} if call.failed else {})

    def _thought(self, thinking: str) -> list[Raw]:
        return [{"type": "thinking", "thinking": thinking, "signature": f"sig:{thinking}"}] if thinking else []

    def _picture(self) -> Raw:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture(640, 480)}}


class _Chat(Talk):
    dialect = "openai-chat"

    def answer(self, text: str, thinking: str = "") -> Self:
        self.messages.append({"role": "assistant", "content": text, **self._thought(thinking)})
        return self

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        ids = self._ids(calls)
        uses = [
            {"id": ref, "type": "function", "function": {"name": call.name, "arguments": call.words}}
            for ref, call in zip(ids, calls, strict=True)
        ]
        said: Raw = {"role": "assistant", "content": text or None, "tool_calls": uses}
        self.messages.append(said | self._thought(thinking))
        for ref, call in zip(ids, calls, strict=True):
            if call.output is not None:
                self.messages.append({"role": "tool", "tool_call_id": ref, "content": self._content(call)})
        if after:
            self.user(after)
        return self

    def _thought(self, thinking: str) -> Raw:
        sealed = [{"type": "reasoning.encrypted", "data": f"sealed:{thinking}"}]
        return {"reasoning": thinking, "reasoning_details": sealed} if thinking else {}

    def _picture(self) -> Raw:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture(640, 480)}"}}


class _Responses(Talk):
    dialect = "openai-responses"

    def user(self, text: str, pictures: int = 0) -> Self:
        blocks = [self._text(text), *(self._picture() for _ in range(pictures))]
        self.messages.append({"type": "message", "role": "user", "content": blocks})
        return self

    def answer(self, text: str, thinking: str = "") -> Self:
        self._thought(thinking)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        self.messages.append({"type": "message", "role": "assistant", "status": "completed", "content": content})
        return self

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        if text:
            self.answer(text, thinking)
        else:
            self._thought(thinking)
        ids = self._ids(calls)
        for ref, call in zip(ids, calls, strict=True):
            item = {"type": "function_call", "call_id": ref, "name": call.name, "arguments": call.words}
            self.messages.append(item)
        for ref, call in zip(ids, calls, strict=True):
            if call.output is not None:
                item = {"type": "function_call_output", "call_id": ref, "output": self._content(call)}
                self.messages.append(item)
        if after:
            self.user(after)
        return self

    def _thought(self, thinking: str) -> None:
        if thinking:
            summary = [{"type": "summary_text", "text": thinking}]
            ref = f"rs_{len(self.messages)}"
            sealed = {"type": "reasoning", "id": ref, "summary": summary, "encrypted_content": f"sealed:{thinking}"}
            self.messages.append(sealed)

    def _text(self, text: str) -> Raw:
        return {"type": "input_text", "text": text}

    def _picture(self) -> Raw:
        return {"type": "input_image", "image_url": f"data:image/png;base64,{picture(640, 480)}"}


class _Gemini(Talk):
    dialect = "gemini"

    def system(self, text: str) -> Self:
        self.messages.append({"role": "system", "parts": [self._text(text)]})
        return self

    def user(self, text: str, pictures: int = 0) -> Self:
        parts = [self._text(text), *(self._picture() for _ in range(pictures))]
        self.messages.append({"role": "user", "parts": parts})
        return self

    def answer(self, text: str, thinking: str = "") -> Self:
        self.messages.append({"role": "model", "parts": [*self._thought(thinking), self._text(text)]})
        return self

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        """As the API answers without ids: a response belongs to the call of its name and place."""
        uses: list[Raw] = [{"functionCall": {"name": call.name, "args": call.arguments}} for call in calls]
        uses[0]["thoughtSignature"] = f"sig:{len(self.messages)}"
        said = [self._text(text)] if text else []
        self.messages.append({"role": "model", "parts": [*self._thought(thinking), *said, *uses]})
        responses = [self._response(call) for call in calls if call.output is not None]
        if responses:
            self.messages.append({"role": "user", "parts": responses})
        if after:
            self.user(after)
        return self

    def _response(self, call: Call) -> Raw:
        response: Raw = {"name": call.name, "response": {"error" if call.failed else "output": call.output}}
        if call.pictures:
            response["parts"] = [self._picture() for _ in range(call.pictures)]
        self.results.append(response if call.pictures else call.output)
        return {"functionResponse": response}

    def _thought(self, thinking: str) -> list[Raw]:
        return [{"text": thinking, "thought": True, "thoughtSignature": f"sig:{thinking}"}] if thinking else []

    def _text(self, text: str) -> Raw:
        return {"text": text}

    def _picture(self) -> Raw:
        return {"inlineData": {"mimeType": "image/png", "data": picture(640, 480)}}


class _Bedrock(Talk):
    dialect = "bedrock"

    def system(self, text: str) -> Self:
        self.messages.append({"role": "system", "content": [self._text(text)]})
        return self

    def user(self, text: str, pictures: int = 0) -> Self:
        """Another user message may not follow one: the words become blocks of it."""
        blocks = [self._text(text), *(self._picture() for _ in range(pictures))]
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": "user", "content": blocks})
        return self

    def answer(self, text: str, thinking: str = "") -> Self:
        self.messages.append({"role": "assistant", "content": [*self._thought(thinking), self._text(text)]})
        return self

    def step(self, *calls: Call, text: str = "", thinking: str = "", after: str = "") -> Self:
        ids = self._ids(calls)
        uses = [
            {"toolUse": {"toolUseId": ref, "name": call.name, "input": call.arguments}}
            for ref, call in zip(ids, calls, strict=True)
        ]
        said = [self._text(text)] if text else []
        self.messages.append({"role": "assistant", "content": [*self._thought(thinking), *said, *uses]})
        results = [self._result(ref, call) for ref, call in zip(ids, calls, strict=True) if call.output is not None]
        if results:
            self.messages.append({"role": "user", "content": results})
        if after:
            self.user(after)
        return self

    def _result(self, ref: str, call: Call) -> Raw:
        content = self._content(call)
        blocks = content if isinstance(content, list) else [self._text(content)] if content.strip() else []
        result: Raw = {"toolUseId": ref, "content": blocks}
        return {"toolResult": result | ({"status": "error"} if call.failed else {})}

    def _thought(self, _thinking: str) -> list[Raw]:
        """None: it would leave the turns that stay. `tests/dialects/test_bedrock.py` is about that."""
        return []

    def _text(self, text: str) -> Raw:
        return {"text": text}

    def _picture(self) -> Raw:
        return {"image": {"format": "png", "source": {"bytes": picture(640, 480)}}}


_TALKS: dict[str, type[Talk]] = {talk.dialect: talk for talk in (_Anthropic, _Chat, _Responses, _Gemini, _Bedrock)}


def talk_in(dialect: str) -> Talk:
    """A new conversation in this dialect."""
    return _TALKS[dialect]()
