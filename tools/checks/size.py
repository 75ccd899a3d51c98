"""The size of the package: modules, lines, single importers, class names with two meanings, modules behind one call.

`python -m tools.checks.size` prints the figures, with `-v` the modules behind them. A figure above its limit fails.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2] / "src"
PACKAGE = ROOT / "context_compactor"
SMALL = 120  # lines
# What each figure may be at most. Lower a limit when its figure has fallen; raise one only with a reason. Two dialects,
# the server for tests and the table of models brought 16 modules and 5,000 lines; reasoning, the order of messages and
# a provider's own summaries are on the way of every compaction. Compacting inside four coding agents, steering them and
# reading OpenCode brought 4 modules and 2,000 lines. Seven frameworks brought 9 modules and 1,000 lines; branches,
# lineage, tools for the agent and streams of the server for tests 6 modules and 1,300 lines. The proxy, its three wire
# protocols, its report and page brought 23 modules and 5,900 lines.
LIMITS = {
    "modules": 417,
    "lines of source": 91_700,
    "lines of code in the adapters of frameworks": 500,
    "small modules whose single importer stands beside them": 20,
    "class names with more than one meaning": 0,
    "modules that compact() runs through": 63,
    "modules that a quiet append() runs through": 20,
}


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers(paths: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that import each module."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found[inner if inner in paths else node.module].add(name)
    return found


def _single(paths: dict[str, Path]) -> Iterator[str]:
    for name, users in importers(paths).items():
        path = paths.get(name)
        if path is None or path.name == "__init__.py" or len(users) != 1:
            continue
        beside = next(iter(users)).rpartition(".")[0] == name.rpartition(".")[0]
        if beside and len(path.read_text(encoding="utf-8").splitlines()) <= SMALL:
            yield name


def _double(paths: dict[str, Path]) -> list[str]:
    found: dict[str, int] = defaultdict(int)
    for path in paths.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found[node.name if isinstance(node, ast.ClassDef) else ""] += 1
    return sorted(name for name, count in found.items() if name and count > 1)


def touched(call: Callable[[], object]) -> set[str]:
    """The modules of the package whose functions run during a call; comprehensions and class bodies count too."""
    found: set[str] = set()
    start = str(PACKAGE)

    def watch(frame: object, event: str, _value: object) -> None:
        if event == "call":
            name = frame.f_code.co_filename  # type: ignore[attr-defined]
            if name.startswith(start) and frame.f_code.co_name != "<module>":  # type: ignore[attr-defined]
                found.add(name)

    call()  # what is imported or cached at first use is no part of the way
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def _calls() -> tuple[set[str], set[str]]:
    from context_compactor import Session, compact
    from context_compactor.dialects.transcripts.reader import read_transcript

    messages = read_transcript(ROOT.parent / "examples" / "demo_session.jsonl.gz").messages
    by_compact = touched(lambda: compact(messages, target_tokens=8_000))
    with TemporaryDirectory() as folder, Session.open("size", store=f"sqlite:///{folder}/s.db") as session:
        session.append({"role": "user", "content": "Add a test."})
        by_append = touched(lambda: session.append({"role": "assistant", "content": "The test is there."}))
    return by_compact, by_append


def code_lines(path: Path) -> int:
    """The lines of a module without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            found.update(range(token.start[0], token.end[0] + 1) if token.string else ())
    for node in ast.walk(ast.parse(text)):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node):
            found -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def _adapters() -> list[Path]:
    shared = ("__init__.py", "conversations.py")
    return [path for path in (PACKAGE / "integrations").glob("*.py") if path.name not in shared]


def figures() -> dict[str, int]:
    """All figures, in the order of their limits."""
    paths = modules()
    by_compact, by_append = _calls()
    values = (
        len(paths),
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths.values()),
        sum(map(code_lines, _adapters())),
        len(list(_single(paths))),
        len(_double(paths)),
        len(by_compact),
        len(by_append),
    )
    return dict(zip(LIMITS, values, strict=True))


def problems(found: dict[str, int] | None = None) -> list[str]:
    """Each figure that is above its limit. Prints all of them."""
    found = figures() if found is None else found
    for name, value in found.items():
        print(f"{value:9,} {name} (at most {LIMITS[name]:,})")
    return [f"{value:,} {name}: at most {LIMITS[name]:,}" for name, value in found.items() if value > LIMITS[name]]


def main() -> int:
    """Print the figures; 1 when one is above its limit."""
    failed = problems()
    if "-v" in sys.argv:
        paths = modules()
        print("single:", *sorted(_single(paths)), sep="\n  ")
        print("double:", *_double(paths), sep="\n  ")
        for name, found in zip(("compact", "append"), _calls(), strict=True):
            print(f"{name}:", *sorted(each.removeprefix(f"{PACKAGE}/") for each in found), sep="\n  ")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
