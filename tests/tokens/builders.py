"""Small values for tests of measuring."""

from __future__ import annotations

from context_compactor.dialects.messages import Message, Text, Thinking, ToolCall, ToolResult
from context_compactor.tokens.budget import Budget
from context_compactor.tokens.models import Window


class WordCounter:
    """One token for each word: easy to add up by hand."""

    name = "words"
    margin = 0.0

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        return self.count_many([text])[0]

    def count_many(self, texts):
        self.asked.extend(texts)
        return [len(text.split()) for text in texts]


def user(text: str) -> Message:
    return Message("user", (Text(text),), {"role": "user", "content": text})


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),), {"role": "assistant", "content": text})


def system(text: str) -> Message:
    return Message("system", (Text(text),), {"role": "system", "content": text})


def thinking(text: str) -> Message:
    return Message("assistant", (Thinking(text), Text("so")), {"role": "assistant"})


def call(number: int, arguments: str = "{}") -> Message:
    return Message("assistant", (ToolCall(f"c{number}", "Read", arguments),), {"role": "assistant"})


def result(number: int, text: str) -> Message:
    return Message("tool", (ToolResult(f"c{number}", text),), {"role": "tool", "content": text})


def budget(tokens: int, size: int = 10_000_000) -> Budget:
    return Budget(Window(tokens, "from the setting"), bytes=size)
