"""Public fakes, for tests of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from context_compactor.llm.model import Control, ModelAnswer, ModelRequest
from context_compactor.llm.retry import check
from context_compactor.llm.schema import read_json

Scripted = ModelAnswer | str | Exception | Callable[[ModelRequest], "ModelAnswer | str | Exception"]


class ScriptedModel:
    """A model that gives the answers it was given, in order, and remembers what it was asked.

    An answer may be a text, a `ModelAnswer`, an error to raise, or a function of the request. The last answer is
    given again when there are no more.
    """

    def __init__(
        self, answers: Iterable[Scripted], *, name: str = "scripted", window: int = 128_000, most_output: int = 8_192
    ) -> None:
        self.name = name
        self.window = window
        self.most_output = most_output
        self.requests: list[ModelRequest] = []
        self._answers = list(answers)
        self._lock = Lock()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The next answer of the script."""
        check(control)
        with self._lock:
            answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
            self.requests.append(request)
        said = answer(request) if callable(answer) else answer
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            value = None if request.schema is None else read_json(said, request.schema)
            said = ModelAnswer(text=said, value=value, stop="complete", model=self.name)
        if control.on_text and said.text:
            control.on_text(said.text)
        return said
