"""Generated sessions that are large enough to be compacted: reads, edits, failing commands, traces, long outputs.

A session is drawn as a row of moves, each with a number that settles its details, and then told in a dialect. So
examples shrink to few and plain moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.dialects.strategies import ODD_TEXTS, Dice
from tests.engine.talks import Call, Talk, bash, edit, read, talk_in

AREAS = ("auth", "billing", "search", "worker", "docs", "api")
NAMES = ("token", "refresh", "invoice", "index", "queue", "retry", "schema", "cursor", "ledger", "window")
PATHS = tuple(f"src/{area}/{name}.py" for area in AREAS for name in NAMES[:4])
REQUESTS = (
    "Please fix the failing test in src/auth/token.py and do not touch the migrations.",
    "Now add a retry to the worker. Use at most 3 attempts.",
    "No, that is wrong: keep the old signature of refresh_cursor.",
    "Never commit to main; always open a pull request.",
    "What does the ledger do when an invoice is paid twice?",
    "日本語のコメントも残してください。テストは必ず実行すること。",
    "لا تغير أسماء الملفات",
    "ok",
    "continue 👍🏽",
)
REMARKS = (
    "I will look at the token store first.",
    "The root cause is that `expires_at` is compared in seconds, not in milliseconds, in the refresh path.",
    "We decided to go with SQLite instead of PostgreSQL because the deployment has one machine.",
    "Running the tests again.",
    "まずログを確認します。",
    "",
)


@dataclass
class Session:
    """A generated conversation, with what must never be forgotten of it: what was tried, and what it answered."""

    talk: Talk
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def dialect(self) -> str:
        """The dialect it is told in."""
        return self.talk.dialect

    @property
    def messages(self) -> list[dict]:
        """Its messages."""
        return self.talk.messages

    def fail(self, number: int, command: str, output: str, error: str) -> Call:
        """A command that fails, noted as such."""
        self.failures.append((command, error))
        return bash(command, f"Exit code {1 + number % 3}\n{output}", failed=True)

    def __repr__(self) -> str:
        return f"Session({self.dialect!r}, {self.messages!r})"


def code(dice: Dice, lines: int) -> str:
    """A file of code."""
    name, other = dice.pick(NAMES), dice.pick(NAMES)
    found = [f"import {other}", "", f"class {name.title()}Store:", f'    """Keeps the {name} of each {other}."""']
    for number in range(lines):
        found += [
            f"    def {name}_{other}_{number}(self, key: str, limit: int = {number}) -> {other.title()}:",
            f"        if key not in self.{name}s or limit > {number * 7}:",
            f'            raise KeyError(f"{name} {{key}} of step {number} is not known")',
            f"        return self.{other}s[key].{name}({number})",
            "",
        ]
    return "\n".join(found)


def log(dice: Dice, lines: int) -> str:
    """Many lines that look alike."""
    name = dice.pick(NAMES)
    return "\n".join(
        f"2024-05-01T12:{number // 60 % 60:02d}:{number % 60:02d}Z INFO worker-{number % 4} "
        f"{name} job {8000 + number} finished in {number * 7 % 900} ms"
        for number in range(lines)
    )


def trace(name: str, number: int) -> tuple[str, str]:
    """A traceback and the line that says what went wrong."""
    error = f"{name.title()}Error: {name} {number} has no claim 'exp' in step {number % 97}"
    frames = "\n".join(
        f'  File "/app/src/{area}/{name}.py", line {number % 400 + at}, in {name}_{area}\n    return self.{name}({at})'
        for at, area in enumerate(AREAS)
    )
    return f"Traceback (most recent call last):\n{frames}\n{error}", error


def _request(session: Session, dice: Dice) -> None:
    session.talk.user(f"{dice.pick(REQUESTS)} ({dice.roll(1000)})")


def _answer(session: Session, dice: Dice) -> None:
    _conclude(session, dice)
    _request(session, dice)


def _conclude(session: Session, dice: Dice) -> None:
    session.talk.answer(f"{dice.pick(REMARKS[:5])} Step {dice.roll(1000)} is done.", _thinking(dice))


def _read(session: Session, dice: Dice) -> None:
    path = dice.pick(PATHS)
    session.talk.step(read(path, code(dice, dice.pick((2, 20, 60)))), text=dice.pick(REMARKS), thinking=_thinking(dice))


def _edit(session: Session, dice: Dice) -> None:
    path, name = dice.pick(PATHS), dice.pick(NAMES)
    old, new = f"return self.{name}(1)", f"return self.{name}(2)\n" + code(dice, dice.pick((0, 3)))
    session.talk.step(edit(path, old, new), text=dice.pick(REMARKS), thinking=_thinking(dice))


def _failed_edit(session: Session, dice: Dice) -> None:
    path, number = dice.pick(PATHS), dice.roll(10_000)
    error = f"String to replace not found in file number {number}."
    session.failures.append((path, error))
    session.talk.step(edit(path, f"old text {number}", "new text", f"<tool_use_error>{error}</tool_use_error>", True))


def _failed_run(session: Session, dice: Dice) -> None:
    name, number = dice.pick(NAMES), dice.roll(10_000)
    output, error = trace(name, number)
    command = f"python -m {name} --limit {number}"
    session.talk.step(session.fail(number, command, output, error), text=dice.pick(REMARKS), thinking=_thinking(dice))


def _red_tests(session: Session, dice: Dice) -> None:
    name, number = dice.pick(NAMES), dice.roll(10_000)
    error = f"AssertionError: assert {number} == 200"
    passed = "\n".join(f"tests/test_{name}.py::test_{at} PASSED" for at in range(dice.pick((3, 40, 150))))
    output = (
        f"{passed}\nE   {error}\nFAILED tests/test_{name}.py::test_{number} - {error}\n1 failed, 40 passed in 1.20s"
    )
    session.talk.step(session.fail(number, f"pytest -q tests/test_{name}.py -k {number}", output, error))


def _run(session: Session, dice: Dice) -> None:
    command = dice.pick(("make build", "git status", "ls -la src", "docker logs worker"))
    session.talk.step(bash(command, log(dice, dice.pick((3, 50, 200)))), thinking=_thinking(dice))


def _search(session: Session, dice: Dice) -> None:
    name = dice.pick(NAMES)
    found = "\n".join(f"src/{dice.pick(AREAS)}/{name}.py:{at * 3}:    self.{name}({at})" for at in range(dice.roll(60)))
    session.talk.step(Call("Grep", {"pattern": name, "path": "src"}, found or "No matches found"))


def _parallel(session: Session, dice: Dice) -> None:
    calls = [read(dice.pick(PATHS), code(dice, dice.pick((2, 20)))) for _ in range(2 + dice.roll(2))]
    session.talk.step(*calls, text=dice.pick(REMARKS), after=dice.pick(("", "", "wait, use the other one")))


def _delegate(session: Session, dice: Dice) -> None:
    summary = f"## Summary\nThe {dice.pick(NAMES)} is read in {dice.pick(PATHS)}."
    text = f"{summary}\n## Files\n- {dice.pick(PATHS)}\n{log(dice, 30)}"
    arguments = {"description": "look around", "prompt": "Find out who reads it.", "subagent_type": "explore"}
    session.talk.step(Call("Task", arguments, text))


def _picture(session: Session, dice: Dice) -> None:
    session.talk.step(Call("Screenshot", {"url": "http://127.0.0.1:8000"}, "a page", pictures=1 + dice.roll(2)))


def _show(session: Session, dice: Dice) -> None:
    session.talk.user("It looks like this.", pictures=1 + dice.roll(2))
    session.talk.answer("I see.").user("Then go on.")


def _odd(session: Session, dice: Dice) -> None:
    session.talk.step(bash("cat blob", str(dice.pick(ODD_TEXTS))))


def _cjk(session: Session, dice: Dice) -> None:
    lines = "\n".join(f"第{at}行：トークンの有効期限は {at * 31} ミリ秒です。" for at in range(dice.pick((5, 80))))
    session.talk.step(read("docs/説明.md", lines), text="説明を読みます。")


def _thinking(dice: Dice) -> str:
    return f"I weigh {dice.roll(10_000)} against {dice.roll(100)}." if dice.chance(3) else ""


MOVES: tuple[Callable[[Session, Dice], None], ...] = (
    _request, _read, _run, _edit, _failed_run, _red_tests, _failed_edit, _search, _answer, _parallel, _delegate,
    _picture, _show, _odd, _cjk,
)  # fmt: skip
ENDINGS: tuple[Callable[[Session, Dice], None], ...] = (_request, _conclude, _read, lambda session, dice: None)


def play(dialect: str, moves: list[tuple[int, int]], opening: int) -> Session:
    """The session of these moves. It begins with a request and ends in one, an answer, or amid the work."""
    dice = Dice(opening)
    session = Session(talk_in(dialect))
    if dice.chance(2):
        session.talk.system("You are a careful engineer. Never touch legacy/. " * (1 + dice.roll(8)))
    _request(session, dice)
    for move, number in moves:
        MOVES[move](session, Dice(number))
    dice.pick(ENDINGS)(session, dice)
    return session


def sessions(dialect: str, fewest: int = 10, most: int = 40) -> SearchStrategy[Session]:
    """Sessions of some hundred to some ten thousand tokens."""
    numbers = st.integers(0, 2**96 - 1)
    moves = st.lists(st.tuples(st.integers(0, len(MOVES) - 1), numbers), min_size=fewest, max_size=most)
    return st.builds(lambda drawn, opening: play(dialect, drawn, opening), moves, numbers)


shares = st.sampled_from((0.6, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02))
"""Targets as shares of what there is."""


def chains(longest: int = 5) -> SearchStrategy[list[float]]:
    """Several targets in a row."""
    return st.lists(shares, min_size=1, max_size=longest)
