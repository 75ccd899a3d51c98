"""Scenarios that several rows share: agents at work, and the context that a model would see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from context_compactor import Compaction, compact
from tests.engine import promises
from tests.engine.talks import Talk, bash, edit, read, talk_in

Raw = dict[str, Any]


def code(name: str, functions: int) -> str:
    """A file with this many functions."""
    return "\n".join(
        f"def {name}_{number}(key: str) -> int:\n    return store.{name}(key) + {number}\n"
        for number in range(functions)
    )


def listing(lines: int) -> str:
    """Output of no great interest."""
    return "\n".join(f"drwxr-xr-x 2 dev dev 4096 May  1 12:00 folder_{number}" for number in range(lines))


def seen(messages: list[Raw], dialect: str) -> str:
    """All that a model reads in these messages, with single spaces."""
    return promises.words(promises.parsed(messages, dialect))


def record_text(messages: list[Raw], dialect: str) -> str:
    """The record as it stands in the context, or nothing."""
    for message in promises.parsed(messages, dialect):
        if message.text.startswith("[Context record."):
            return message.text
    return ""


def squeeze(talk: Talk | list[Raw], share: float, dialect: str = "") -> Compaction:
    """Compact to a share of what there is."""
    messages, spoken = (talk.messages, talk.dialect) if isinstance(talk, Talk) else (talk, dialect)
    target = max(1, int(promises.tokens_of(messages, spoken) * share))
    return compact(messages, target_tokens=target, dialect=spoken)


def fill(talk: Talk, steps: int, first: int = 0) -> Talk:
    """Work that nobody needs later; the words weigh as much as the outputs, so it is folded rather than shortened."""
    for number in range(first, first + steps):
        words = " ".join(f"Folder {number} of area {part} holds nothing of interest." for part in range(20))
        talk.step(bash(f"ls folder_{number}", listing(12)), text=f"Looking around, part {number}. {words}")
    return talk


def working(dialect: str = "anthropic", steps: int = 12) -> Talk:
    """An agent at work: it reads, edits and runs, and the last question is open."""
    talk = talk_in(dialect).system("Never touch legacy/. Answer in short sentences.")
    talk.user("Add refresh tokens to the login flow in src/auth/jwt.py.")
    for number in range(steps):
        path = f"src/auth/part_{number}.py"
        talk.step(read(path, code(f"part_{number}", 30)), text=f"Reading part {number}.")
        talk.step(edit(path, f"part_{number}_3", f"part_{number}_three"))
        talk.step(bash(f"pytest tests/test_part_{number}.py", f"{listing(20)}\n12 passed in 0.{number} s"))
    return talk.answer("All parts are read.").user("Which of them is left?")


def again_and_again(talk: Talk, rounds: int, share: float, more: Callable[[Talk, int], Any]) -> list[Compaction]:
    """Compact, work on, compact again."""
    results = []
    for number in range(rounds):
        results.append(squeeze(talk, share))
        talk.messages = list(results[-1].messages)
        more(talk, number)
    return results
