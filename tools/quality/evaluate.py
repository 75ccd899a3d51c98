"""`make eval`: `compactor eval` on the development corpus, written down in docs/quality.md beside our goals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from context_compactor.cli.eval_table import print_evaluation
from context_compactor.cli.output import stdout
from context_compactor.cli.report import ProgressBar
from context_compactor.evaluation.corpus import AGENT_SOURCES, DIALOGUES, default_corpus
from context_compactor.evaluation.methods import DEFAULT_METHODS, read_budgets
from context_compactor.evaluation.page import page
from context_compactor.evaluation.pool import cores
from context_compactor.evaluation.runner import EvaluationRequest, evaluate_paths
from tools.quality.page import quality_page

PAGE = Path("docs/quality.md")
BUDGETS = "25,10,5,50,10+,5+"
EVERY = 4


def main(arguments: Sequence[str]) -> int:
    """Evaluate, print the tables, write the page; without a corpus say so and leave it at that."""
    options = _options(arguments)
    if not options.corpus.is_dir():
        print(f"There is no corpus in {_shown(options.corpus)}: nothing to evaluate, {PAGE} stays as it is.")
        print("CORPUS=folder names another, and `compactor eval PATH…` takes any transcripts.")
        return 0
    request = EvaluationRequest(
        _files(options.corpus), read_budgets(BUDGETS), DEFAULT_METHODS, options.every, options.jobs
    )
    watch = ProgressBar()
    found = evaluate_paths(request, watch)
    watch.clear()
    print_evaluation(found, stdout(), options.html)
    date = str(datetime.now(UTC).date())
    command = f"make eval EVERY={options.every}"
    options.page.write_text(quality_page(found, date, command), encoding="utf-8")
    if options.html:
        Path(options.html).write_text(page(found, date), encoding="utf-8")
    return 0


def _files(corpus: Path) -> tuple[str, ...]:
    """The agents' files and the dialogues of the development corpus; of any other folder all there is."""
    known = [corpus / f"{source}.jsonl.gz" for source in (*AGENT_SOURCES, DIALOGUES)]
    return tuple(str(path) for path in known if path.is_file()) or (str(corpus),)


def _shown(folder: Path) -> str:
    return f"../{folder.relative_to(Path.cwd().parent)}" if folder.is_relative_to(Path.cwd().parent) else str(folder)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make eval", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    parser.add_argument("--every", type=int, default=EVERY, help="take each N-th conversation")
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--html", help="the page with plots too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
