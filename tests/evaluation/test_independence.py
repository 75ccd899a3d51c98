"""The harness measures the engine with patterns of its own: it may run it, never borrow how it sees text."""

from __future__ import annotations

import ast
from pathlib import Path

import context_compactor.evaluation

FOLDER = Path(context_compactor.evaluation.__file__).parent
TRANSCRIPTS = "dialects.transcripts"
ALLOWED = {
    "dialogues": {"archive.originals", "archive.search.search", "tokens.counting"},  # the search that is measured
    "inputs": {f"{TRANSCRIPTS}.json_lines", f"{TRANSCRIPTS}.reader", f"{TRANSCRIPTS}.transcript"},  # a user's files
    "counting": {
        "dialects.detection",
        "dialects.messages",
        f"{TRANSCRIPTS}.transcript",
        "tokens.calibration",
        "tokens.counting",
    },
    "methods": {"engine.report", "handoff", "protocols", "settings", "summarize.clients.names"},
    "replay": {"tokens.models", "tokens.prices"},
    "runner": {"protocols"},
    "scoring": {"protocols"},
    "search": {"archive.search.passages"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("context_compactor."):
            yield node.module.removeprefix("context_compactor.")


def test_the_harness_takes_from_the_product_only_reading_files_counting_and_compacting():
    for path in FOLDER.glob("*.py"):
        foreign = {
            name for name in imports(path) if not name.startswith("evaluation") and name not in ("errors", "markup")
        }
        assert foreign <= ALLOWED.get(path.stem, set()), path.name


def test_the_product_takes_nothing_from_the_harness():
    for path in FOLDER.parent.rglob("*.py"):
        if path.parent.name not in ("evaluation", "cli"):
            assert not any(name.startswith("evaluation") for name in imports(path)), path.name


def test_the_command_line_loads_the_harness_for_eval_alone():
    for path in (FOLDER.parent / "cli").rglob("*.py"):
        loaded = [node.module or "" for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
        names = [name.removeprefix("context_compactor.") for name in loaded]
        assert "cli.eval_table" not in names, path.name
        assert path.name == "eval_table.py" or not any(name.startswith("evaluation") for name in names), path.name
