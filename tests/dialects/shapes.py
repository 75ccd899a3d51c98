"""Small conversations to write tests with, and histories as one line for each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_compactor.dialects.messages import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from tests.dialects.made_up import NAME, NO_WORDS

Raw = dict[str, Any]


def shape(messages: Sequence[Message]) -> list[str]:
    """Each message as its role and what it holds: `assistant: "I will look" call(a)`."""
    return [f"{message.role}: {' '.join(_word(part) for part in message.parts)}".rstrip(": ") for message in messages]


def _word(part: object) -> str:
    match part:
        case Text(text):
            return f'"{text}"'
        case Thinking(text, signed):
            return f"{'signed' if signed else 'thinking'}({text})"
        case ToolCall(call_id):
            return f"call({call_id})"
        case ToolResult(call_id, text, is_error):
            return f"{'error' if is_error else 'result'}({call_id}: {text})"
        case Media(kind):
            return kind
        case Opaque(kind):
            return f"<{kind}>"
    return "?"


class Chat:
    """Builders for the OpenAI chat dialect."""

    name = "openai-chat"

    @staticmethod
    def user(text: str) -> Raw:
        return {"role": "user", "content": text}

    @staticmethod
    def says(text: str) -> Raw:
        return {"role": "assistant", "content": text}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        calls = [{"id": it, "type": "function", "function": {"name": "Read", "arguments": "{}"}} for it in ids]
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in pairs]


class Responses:
    """Builders for the OpenAI Responses dialect."""

    name = "openai-responses"

    @staticmethod
    def user(text: str) -> Raw:
        return {"role": "user", "content": text}

    @staticmethod
    def says(text: str) -> Raw:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        said = [Responses.says(text)] if text else []
        return said + [{"type": "function_call", "call_id": it, "name": "Read", "arguments": "{}"} for it in ids]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        return [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in pairs]


class Claude:
    """Builders for the Anthropic dialect."""

    name = "anthropic"

    @staticmethod
    def user(text: str) -> Raw:
        return {"role": "user", "content": text}

    @staticmethod
    def says(text: str) -> Raw:
        return {"role": "assistant", "content": text}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        said: list[Raw] = [{"type": "text", "text": text}] if text else []
        calls: list[Raw] = [{"type": "tool_use", "id": it, "name": "Read", "input": {}} for it in ids]
        return [{"role": "assistant", "content": said + calls}]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": text} for call_id, text in pairs]
        return [{"role": "user", "content": blocks}]


class GeminiShapes:
    """Builders for the Gemini dialect."""

    name = "gemini"

    @staticmethod
    def user(text: str) -> Raw:
        return {"role": "user", "parts": [{"text": text}]}

    @staticmethod
    def says(text: str) -> Raw:
        return {"role": "model", "parts": [{"text": text}]}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        said: list[Raw] = [{"text": text}] if text else []
        return [{"role": "model", "parts": said + [{"functionCall": {"id": it, "name": "Read"}} for it in ids]}]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        responses = [{"id": call_id, "name": "Read", "response": {"output": text}} for call_id, text in pairs]
        return [{"role": "user", "parts": [{"functionResponse": response} for response in responses]}]


class BedrockShapes:
    """Builders for the Bedrock dialect."""

    name = "bedrock"

    @staticmethod
    def user(text: str) -> Raw:
        return {"role": "user", "content": [{"text": text}]}

    @staticmethod
    def says(text: str) -> Raw:
        return {"role": "assistant", "content": [{"text": text}]}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        said: list[Raw] = [{"text": text}] if text else []
        calls: list[Raw] = [{"toolUse": {"toolUseId": it, "name": "Read", "input": {}}} for it in ids]
        return [{"role": "assistant", "content": said + calls}]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        held = [{"toolUseId": call_id, "content": [{"text": text}] if text else []} for call_id, text in pairs]
        return [{"role": "user", "content": [{"toolResult": result} for result in held]}]


class MadeUp:
    """Builders for the dialect of the tests."""

    name = NAME

    @staticmethod
    def user(text: str) -> Raw:
        return {"who": "human", "say": text}

    @staticmethod
    def says(text: str) -> Raw:
        return {"who": "bot", "say": text}

    @staticmethod
    def calls(*ids: str, text: str = "") -> list[Raw]:
        return [{"who": "bot", "say": text or NO_WORDS, "ask": [{"ref": it, "do": "Read", "with": {}} for it in ids]}]

    @staticmethod
    def results(*pairs: tuple[str, str]) -> list[Raw]:
        return [{"who": "machine", "ref": call_id, "got": text} for call_id, text in pairs]


BUILDERS = {builder.name: builder for builder in (Chat, Responses, Claude, GeminiShapes, BedrockShapes, MadeUp)}
