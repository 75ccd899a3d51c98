"""Puts the pieces of one streamed answer together."""

from __future__ import annotations

import re
from typing import Any

from context_compactor.errors import ModelUnavailable
from context_compactor.llm.calling import Hear
from context_compactor.llm.model import ModelAnswer, ModelRequest, ModelUsage, Stop
from context_compactor.llm.schema import read_json

# Some models write their reasoning into the answer itself.
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>(.*?)(?:</think(?:ing)?>\s*|\Z)", re.S)
# A model that ignores its limit is cut off by ours. No tokenizer has longer tokens on average than this.
_MOST_CHARS_PER_TOKEN, _SLACK_CHARS = 32, 65_536


class Collected:
    """What has been heard of an answer of the model `name` so far; `hear` is told each piece of it."""

    def __init__(self, request: ModelRequest, name: str, most_output: int, hear: Hear) -> None:
        self._name = name
        self.usage = ModelUsage()
        self.model = ""
        self.stop: Stop | None = None
        self.calls: set[Any] = set()
        self.is_begun = False
        """Whether anything of an answer has come."""
        self._schema = request.schema
        self._room = _MOST_CHARS_PER_TOKEN * min(request.max_tokens, most_output) + _SLACK_CHARS
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._hear = hear

    def add_text(self, piece: str | None) -> None:
        """A piece of the answer itself."""
        if piece:
            self._text.append(piece)
            self._room -= len(piece)
            self._hear((piece, False))

    def add_reasoning(self, piece: str | None) -> None:
        """A piece of what the model thought before."""
        if piece:
            self._reasoning.append(piece)
            self._room -= len(piece)
            self._hear((piece, True))

    @property
    def is_endless(self) -> bool:
        """Whether more has come than any answer of the length asked for can have."""
        return self._room < 0

    def answer(self) -> ModelAnswer:
        """The whole answer, or `ModelUnavailable` when the stream broke off before it said why it ends."""
        stop: Stop | None = "length" if self.is_endless else self.stop
        if stop is None:
            raise ModelUnavailable(f"{self._name}: the answer broke off; the connection was closed before its end")
        text, thought = apart("".join(self._text))
        reasoning = "".join(self._reasoning) + thought
        return ModelAnswer(
            text=text,
            value=read_json(text, self._schema) if self._schema is not None and stop == "complete" else None,
            reasoning=reasoning,
            tool_calls=len(self.calls),
            stop="tool_call" if self.calls and stop == "complete" else stop,
            usage=self.usage,
            model=self.model,
        )


def apart(text: str) -> tuple[str, str]:
    """An answer, as far as it is there, without the reasoning that some models write into it, and that reasoning."""
    thought = _THOUGHT.match(text)
    return (text[thought.end() :], thought[1]) if thought else (text, "")
