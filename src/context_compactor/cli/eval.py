"""`compactor eval`: what compaction keeps on a user's own transcripts, beside the baselines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from context_compactor.cli.options import AsJson
from context_compactor.cli.output import print_json, stdout, write_file
from context_compactor.errors import BadSetting

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        help="Transcripts, or folders of them such as `~/.claude/projects`: session logs of Claude Code, Codex or pi, "
        "OpenAI or Anthropic messages; JSON or JSON Lines, gzip too.",
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        metavar="B,…",
        help="Sizes to compact to: percent of the history, `10+` with its instructions on top, `2000t` tokens. "
        "Compactions that really happened are measured at their own size beside them.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="M,…",
        help="Methods to compare, or `module:function` of your own.",
        show_default="compactor and six simpler ones",
    ),
]
Summarizer = Annotated[
    str | None,
    typer.Option(
        metavar="M",
        help="Measure ours once more with summaries by this model, such as openai/NAME. It is sent the conversations, "
        "and paid for.",
    ),
]
FormerSummarizer = Annotated[str | None, typer.Option("--model", hidden=True)]
Every = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Take each N-th conversation.", show_default="as many as make about 50 conversations"
    ),
]
Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with plots to FILE.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Conversations to work on at once.", show_default="all cores")
]


def evaluate(
    paths: Paths,
    budget: Budget = "5,10,25,50",
    methods: Methods = None,
    summarizer: Summarizer = None,
    model: FormerSummarizer = None,
    every: Every = None,
    as_json: AsJson = False,
    html: Html = None,
    jobs: Jobs = None,
) -> None:
    """Measure what compaction keeps on transcripts of your own, beside simpler methods.

    Each conversation is cut where an agent really went on, and what it needed next is looked for in the shortened
    context. Nothing is changed, and nothing leaves the machine unless `--summarizer` names a model.

    Example: `compactor eval ~/.claude/projects --html quality.html`
    """
    from context_compactor.cli.report import ProgressBar
    from context_compactor.evaluation.methods import DEFAULT_METHODS, read_budgets, read_methods, read_summarizer
    from context_compactor.evaluation.pool import cores
    from context_compactor.evaluation.runner import EvaluationRequest, evaluate_paths

    if model is not None:
        raise BadSetting(f"--model: the model that writes summaries is --summarizer now. Try: --summarizer {model}.")
    if methods and ":" in methods:
        sys.path.insert(0, str(Path.cwd()))  # where a user's own method is looked for first
    chosen = read_methods(methods) if methods is not None else DEFAULT_METHODS
    files = tuple(map(os.path.expanduser, paths))
    trial = EvaluationRequest(files, read_budgets(budget), chosen, every, jobs or cores(), read_summarizer(summarizer))
    refuse_unwritable(html, trial.paths)
    progress = ProgressBar()
    try:
        found = evaluate_paths(trial, progress)
    finally:
        progress.clear()
    if html is not None:
        from context_compactor.evaluation.page import page

        write_file(Path(html), page(found, str(datetime.now(UTC).date())).encode())
    if as_json:
        print_json(found.to_dict())
    else:
        from context_compactor.cli.eval_table import print_evaluation

        print_evaluation(found, stdout(), html)


def refuse_unwritable(html: str | None, inputs: Sequence[str]) -> None:
    """A page that cannot be written, or would overwrite a transcript, is found out before the long work."""
    if html is None:
        return
    if not html.strip():
        raise BadSetting("--html: the file name is empty. Try: --html quality.html.")
    path = Path(html)
    if not _can_write(path):
        raise BadSetting(f"--html: {html} cannot be written. Try: another path.")
    if path.is_dir():
        raise BadSetting(f"--html: {html} is a folder. Try: a file name in it.")
    if not path.parent.is_dir():
        raise BadSetting(f"--html: the folder {path.parent} does not exist. Try: create it first.")
    if path.exists() and any(_holds(Path(given), path) for given in inputs):
        raise BadSetting(f"--html: {html} is one of the transcripts and would be overwritten. Try: another name.")


def _can_write(page: Path) -> bool:
    """Whether the page can be put in its folder, or replace one that is there; True where there is no folder."""
    effective = os.access in os.supports_effective_ids
    try:
        paths = [path for path in (page, page.parent) if path.exists()]
    except PermissionError:
        return False
    return all(os.access(path, os.W_OK, effective_ids=effective) for path in paths)


def _holds(given: Path, page: Path) -> bool:
    """Whether a page is an input or lies, under a name that is read as a transcript, in a folder that is one."""
    real = page.resolve()
    if given.resolve() == real:
        return True
    return given.is_dir() and real.is_relative_to(given.resolve()) and real.suffix != ".html"
