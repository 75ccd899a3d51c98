"""Models for tests: one that gives scripted answers, and one whose answers come from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

from context_compactor.errors import ModelDenied
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, raise_if_stopped

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
        raise_if_stopped(control)
        with self._lock:
            answer = self._answers[min(len(self.requests), len(self._answers) - 1)]
            self.requests.append(request)
        said = answer(request) if callable(answer) else answer
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            said = ModelAnswer(text=said, stop="complete", model=self.name)
        if control.on_text and said.text:
            control.on_text(said.text)
        return said


class FileModel:
    """A model whose requests are written to a folder and whose answers are read from there.

    So anybody can be the model: run it once, read `request_001.md`, write `answer_001.md`, and run it again.
    """

    def __init__(
        self, folder: str | Path, *, name: str = "files", window: int = 200_000, most_output: int = 16_000
    ) -> None:
        self.name = name
        self.window = window
        self.most_output = most_output
        self._folder = Path(folder)
        self._asked = 0
        self._lock = Lock()

    def write(self, request: ModelRequest, control: Control) -> ModelAnswer:
        """The answer of this number, or `ModelDenied` that names the file in which it is missing."""
        raise_if_stopped(control)
        with self._lock:
            self._asked += 1
            number = self._asked
        asked = "\n\n".join(f"<!-- {message.role} -->\n{message.text}" for message in request.messages)
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"request_{number:03d}.md").write_text(asked, encoding="utf-8")
        answer = self._folder / f"answer_{number:03d}.md"
        if not answer.is_file():
            raise ModelDenied(f"{answer} is missing; it is the answer to request_{number:03d}.md beside it")
        return ModelAnswer(text=answer.read_text(encoding="utf-8"), stop="complete", model=self.name)
