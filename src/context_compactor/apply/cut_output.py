"""A tool output that is too long for any context: its beginning and end at once, the original behind a reference."""

from __future__ import annotations

from context_compactor.classify.failures import failed_mark
from context_compactor.classify.rules import Verdict
from context_compactor.messages.ends import beginning, ending

MOST_TOKENS = 2_000
_HEAD = 0.6


def cut_output(text: str, tokens: int, verdict: Verdict, most: int) -> str:
    """The first and last lines of an output within about so many tokens; a failed one begins with its error."""
    error = f"{failed_mark(verdict.failure.error)}\n" if verdict.failure else ""
    room = max(int(len(text) * most / max(tokens, 1)) - len(error), 200)
    head = beginning(text, int(room * _HEAD))
    tail = ending(text, room - len(head))
    gone = text[len(head) : len(text) - len(tail)]
    left = max(round(tokens * len(gone) / len(text)), 1)
    what = f"{gone.count(chr(10)):,} lines, " if "\n" in gone else ""
    return f'{error}{head}\n[… {what}{left:,} tokens left out: recall("{verdict.ref}")]\n{tail}'
