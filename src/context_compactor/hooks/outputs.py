"""The text in what a tool has returned, and the same thing with another text in it, in the shape the agent expects."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct, structs

# What these return is for the agent's own eyes; its model reads one line of it.
_NOT_SHOWN = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit", "TodoWrite", "apply_patch"})
# Parts of an answer that repeat the question, or point elsewhere.
_NO_TEXT = frozenset({"prompt", "filePath", "file_path", "data", "base64", "agentId", "description"})
# Where Claude Code has put a copy that it would show in the place of the text.
_COPIES = ("persistedOutputPath", "persistedOutputSize")

_LARGEST = 64 * 1024 * 1024

Way = tuple[str | int, ...]


class Output(Struct, frozen=True):
    """What a tool has returned: the longest text in it, and the way to it."""

    response: Any
    way: Way
    text: str

    def with_text(self, text: str) -> Any:
        """The same with another text."""
        return _replaced(self.response, self.way, text)


def find_output(tool: str, response: Any) -> Output | None:
    """The text that the model will read of a tool's answer; None when there is none that may be shortened."""
    if tool in _NOT_SHOWN:
        return None
    texts = list(_texts(response, ()))
    if not texts:
        return None
    way, text = max(texts, key=lambda each: len(each[1]))
    return Output(response, way, text)


def whole(output: Output) -> Output:
    """The same with all of its text: of a very long one Claude Code tells the beginning, and where the rest is."""
    path = output.response.get(_COPIES[0]) if isinstance(output.response, dict) else None
    if not isinstance(path, str) or not os.path.isfile(path):  # a pipe would let us wait
        return output
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return output
    return structs.replace(output, text=text) if text.startswith(output.text[:1_000]) else output


def first_line(response: Any) -> int:
    """The number of the first line that a file was read from."""
    file = response.get("file") if isinstance(response, dict) else None
    line = file.get("startLine") if isinstance(file, dict) else None
    return line if isinstance(line, int) and line > 0 else 1


def _texts(value: Any, way: Way) -> list[tuple[Way, str]]:
    if isinstance(value, str):
        return [(way, value)]
    if isinstance(value, dict):
        inner: list[tuple[str | int, Any]] = [(key, each) for key, each in value.items() if key not in _NO_TEXT]
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [found for key, each in inner for found in _texts(each, (*way, key))]


def _replaced(value: Any, way: Way, text: str) -> Any:
    if not way:
        return text
    if isinstance(value, list):
        return [_replaced(each, way[1:], text) if at == way[0] else each for at, each in enumerate(value)]
    rest = {key: each for key, each in value.items() if key not in _COPIES}
    return {key: _replaced(each, way[1:], text) if key == way[0] else each for key, each in rest.items()}
