"""The harness measures the engine with patterns of its own: it may run it, never borrow how it sees text."""

from __future__ import annotations

import ast
from pathlib import Path

import context_compactor.evaluation

FOLDER = Path(context_compactor.evaluation.__file__).parent
ALLOWED = {
    "dialogues": {"archive.archive", "archive.search.search", "measure.tokens"},  # the search that is measured
    "gather": {"messages.logs.decode", "messages.logs.lines", "messages.transcripts"},  # a user's files
    "gauges": {"measure.calibrate", "measure.count", "messages.detect", "messages.message", "messages.transcripts"},
    "methods": {"handoff", "protocols", "settings"},
    "choices": {"llm.names", "settings"},  # a model that is asked, and what is set for it
    "conversations": {"protocols"},
    "evaluation": {"protocols"},
    "run": {"protocols"},
    "scoring": {"protocols"},
    "told": {"report"},
    "search": {"archive.search.hits"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("context_compactor."):
            yield node.module.removeprefix("context_compactor.")


def test_the_harness_takes_from_the_product_only_reading_files_counting_and_compacting():
    for path in FOLDER.glob("*.py"):
        foreign = {
            name for name in imports(path) if not name.startswith("quality") and name not in ("errors", "markup")
        }
        assert foreign <= ALLOWED.get(path.stem, set()), path.name


def test_the_product_takes_nothing_from_the_harness():
    for path in FOLDER.parent.rglob("*.py"):
        if path.parent.name not in ("quality", "cli"):
            assert not any(name.startswith("quality") for name in imports(path)), path.name
