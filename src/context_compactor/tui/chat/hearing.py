"""What has come of an answer so far: written by the thread that listens, read by whoever shows it."""

from __future__ import annotations

from context_compactor.llm.collect import apart


class Heard:
    """The text and the reasoning of the answer under way. An answer that is asked for again begins anew."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thought: list[str] = []
        self._before = ""

    def add_text(self, piece: str) -> None:
        """Some more of the answer."""
        self._text.append(piece)

    def add_thought(self, piece: str) -> None:
        """Some more of the reasoning before it."""
        self._thought.append(piece)

    def begin(self) -> None:
        """The model is asked again. What it has said until now is only used when nothing better comes."""
        self._before = self.kept()
        self._text, self._thought = [], []

    def said(self) -> tuple[str, str]:
        """The answer so far, and the reasoning so far."""
        text, thought = apart("".join(self._text))
        return text, "".join(self._thought) + thought

    def kept(self) -> str:
        """The most that was said in one go."""
        return max(self.said()[0], self._before, key=len)
