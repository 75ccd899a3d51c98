"""What happens in a live check: a small project with a bug in it, and a model that works on it, and is compacted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tools.agents.scripted import Call, Doing, Request, Script, Step

RULE = "Never touch config/secrets.yaml"
PROMPT = f"Fix the login in src/auth/jwt.py: expired tokens get in. {RULE}."
TASK = "Find out who calls is_valid, and report the files."
REPORT = "is_valid is called in src/auth/login.py and in tests/test_auth.py, and nowhere else."
SUMMARY = "The user wants the login to refuse tokens. The tests were run, and the log of the logins was read."
FAILING = "python -m pytest tests/test_auth.py"
LOG = "logs/login.log"
LOST = "test_expired_token"
# As JSON, or where an agent gives its model the text alone.
_ID = re.compile(r'(?:"id": ?"|^)(tool_\d+)\b', re.MULTILINE)
_CALLERS = "grep -rl is_valid src tests"
_FEW, _MANY = 20_000, 190_000

_FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q --tb=no"\npythonpath = ["src"]\n',
    "config/secrets.yaml": "jwt_key: not-for-agents\n",
    "src/auth/__init__.py": "",
    "src/auth/jwt.py": """\
\"\"\"Tokens that say who somebody is.\"\"\"

LEEWAY = 86_400


def is_valid(claims: dict[str, int], now: int) -> bool:
    \"\"\"Whether a token still counts.\"\"\"
    return claims["exp"] + LEEWAY > now
""",
    "src/auth/login.py": """\
\"\"\"Who may come in.\"\"\"

from auth.jwt import is_valid


def log_in(claims: dict[str, int], now: int) -> str:
    \"\"\"The name of a new session.\"\"\"
    return f"session-{claims['sub']}" if is_valid(claims, now) else ""
""",
    "tests/test_auth.py": f"""\
from auth.jwt import is_valid


def test_fresh_token():
    assert is_valid({{"exp": 2_000}}, now=1_000)


def {LOST}():
    assert not is_valid({{"exp": 1_000}}, now=1_060)
""",
}


class Way(Protocol):
    """How the model of an agent calls tools."""

    def shell(self, label: str, command: str) -> Call:
        """A command in a shell."""

    def ours(self, label: str, tool: str, arguments: dict[str, Any]) -> Call:
        """A tool of our MCP server."""

    def delegate(self, task: str) -> Sequence[Call | Doing]:
        """A sub-agent for a task, until it is done."""


def make_project(folder: Path) -> None:
    """Write the project."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / LOG).parent.mkdir()
    (folder / LOG).write_text(log_text())
    subprocess.run(["git", "init", "--quiet", folder], check=True)


def log_text() -> str:
    """A log that is too long for a window."""
    lines = (f"2026-03-02T09:{n // 60 % 60:02d}:{n % 60:02d}Z login user={n * 7919 % 100_003}" for n in range(1_500))
    return "".join(f"{line} token=expired result=welcome\n" for line in lines)


def main_story(way: Way, *, long_report: bool = False) -> Script:
    """A test that fails, a long log, a sub-agent, a compaction, and the way back to what the summary lost.

    With a `long_report` the sub-agent fills its own window as well, and reports more than anybody wants to read.
    """
    working = [way.shell("failing", FAILING), way.shell("oversized", f"cat {LOG}"), *way.delegate(TASK)]
    return Script(
        main=[
            *(Step(each, _FEW) if isinstance(each, Call) else each for each in working),
            Step(way.shell("source", "cat src/auth/jwt.py"), _MANY),
            Step(way.ours("search", "search_archive", {"text": LOST}), _FEW),
            recalling(way),
            Step("The leeway of a day is why expired tokens are taken.", _FEW),
        ],
        sub=_long_search(way) if long_report else [Step(way.shell("callers", _CALLERS)), Step(REPORT)],
        summary=f"<analysis>short</analysis><summary>{SUMMARY}</summary>",
    )


def _long_search(way: Way) -> list[Step]:
    """A sub-agent that reads the log bit by bit, until its window is full."""
    read = [way.shell(f"log-{at}", f"sed -n '{at},{at + 50}p' {LOG}") for at in range(1, 600, 50)]
    return [*(Step(call) for call in read), Step(way.shell("callers", _CALLERS), _MANY), Step(report_text())]


def report_text() -> str:
    """A report that is too long for a window."""
    return "\n".join((REPORT, *(f"{n}: read and found nothing that calls it" for n in range(800))))


def recalling(way: Way, tokens: int | None = _FEW) -> Callable[[Request], Step]:
    """A model that recalls the first output of a tool that its search has found."""

    def step(request: Request) -> Step:
        found = _ID.search(request.results.get("search", "").replace("\\", ""))
        return Step(way.ours("recall", "recall", {"id": found[1] if found else "nothing was found"}), tokens)

    return step
