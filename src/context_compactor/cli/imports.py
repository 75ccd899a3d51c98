"""`compactor import`: the logs that coding agents have left become sessions of the store."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from context_compactor.cli.options import AsJson, StoreUrl
from context_compactor.cli.output import FAILED, INTERRUPTED, LineOutput, print_json, print_rows, stderr, stdout
from context_compactor.cli.report import ProgressBar
from context_compactor.errors import BadSetting
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.agents.log_import import ImportedSession, ImportOutcome, ImportTarget
    from context_compactor.settings import Settings

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH…",
        help="Logs of Claude Code, Codex or pi, or folders of them such as `~/.claude/projects` and "
        "`~/.codex/sessions`; gzip too.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only logs that were written to since, such as 2026-09-01."),
]
Here = Annotated[bool, typer.Option("--here", help="Only logs of work in this folder or below it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be imported, and write nothing.")]

_MOST_NAMED = 5
_STYLES = {"new": "green", "continued": "cyan"}


def import_logs(
    paths: Paths,
    since: Since = None,
    here: Here = False,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Import the session logs of coding agents, so that all of them can be searched, recalled and measured.

    Each log becomes a session with its own id: every message, an archive of everything, facts, and the agent's own
    compactions with what their summaries lost. A second import reads only what is new. Logs are never changed.

    Example: `compactor import ~/.claude/projects ~/.codex/sessions --since 2026-09-01`
    """
    from context_compactor.agents.log_import import ImportFilter
    from context_compactor.agents.log_import import import_logs as run
    from context_compactor.evaluation.inputs import find_files
    from context_compactor.settings import load_settings

    settings = load_settings({"store": store}).settings
    below = os.path.realpath(os.curdir) if here else ""
    wanted = ImportFilter(since=_earliest(since, settings), below=below, dry_run=dry_run)
    files = find_files(list(map(os.path.expanduser, paths)))
    done: list[ImportOutcome] = []
    is_interrupted = False
    progress = _ImportProgress(files.paths)
    with _target(settings, dry_run=dry_run) as target:
        try:
            for outcome in run(files.paths, target, wanted):
                done.append(outcome)
                progress.show(outcome)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            progress.bar.clear()
        where = target.store.path if target.store else settings.store
    unreadable = [(each.path, each.reason) for each in files.skipped]
    summary = _summed(done, unreadable, where, len(files.paths), is_interrupted=is_interrupted, dry_run=dry_run)
    if as_json:
        print_json(summary)
    else:
        _print(summary, stdout())
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if summary["failed"] or summary["not_tried"]:
        raise typer.Exit(FAILED)


def _earliest(since: str | None, settings: Settings) -> datetime | None:
    """Since when logs are wanted. What would be deleted as too old right away is not imported."""
    from context_compactor.agents.compaction_trace import read_time

    found = None if since is None else read_time(since.strip())
    if since is not None and found is None:
        raise BadSetting(f"--since: {since!r:.40} is not a date. Try: {datetime.now(UTC).date() - timedelta(days=30)}.")
    if settings.retention_days is None:
        return found
    oldest = datetime.now(UTC) - timedelta(days=settings.retention_days)
    return max(found, oldest) if found else oldest


@contextmanager
def _target(settings: Settings, *, dry_run: bool) -> Iterator[ImportTarget]:
    from context_compactor.agents.log_import import ImportTarget
    from context_compactor.sessions.project import project_of
    from context_compactor.store.connect import connect, sqlite_path
    from context_compactor.store_urls import is_postgres

    path = None if is_postgres(settings.store) else sqlite_path(settings.store)
    if path is None and not is_postgres(settings.store):
        raise BadSetting("--store: a store in memory is lost when the command ends. Try: sqlite:///history.db.")
    project = project_of(settings.store)
    if project is not None and not dry_run:
        project.prepare()
    root = str(project.root) if project else os.curdir
    is_there = path is None or path.is_file()
    with closing(connect(settings.store, create=not dry_run)) if is_there or not dry_run else nullcontext() as store:
        yield ImportTarget(store, root, settings)


class _ImportProgress:
    """What happens to each file: a bar on a terminal, else a line for each session that changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.bar = ProgressBar()
        self.bar.start("importing", sum(Path(path).stat().st_size for path in paths if Path(path).is_file()))
        self._files, self._done, self._messages = len(paths), 0, 0

    def show(self, outcome: ImportOutcome) -> None:
        """One file is done."""
        self._done += 1
        self._messages += sum(taken.messages for taken in outcome.taken)
        if outcome.status == "failed":
            self.bar.clear()
            stderr().print(f"failed     {one_line(outcome.path, 300)}: {one_line(outcome.reason, 300)}", style="red")
        for taken in () if self.bar.is_shown else outcome.taken:
            if taken.change != "unchanged":
                stderr().print(_line(taken), style=_STYLES[taken.change])
        sys.stderr.flush()
        name = one_line(Path(outcome.path).name, 40)
        self.bar.step(outcome.size, f"{self._done:,}/{self._files:,} files, {self._messages:,} messages  {name}")


def _line(taken: ImportedSession) -> str:
    times = "once" if taken.compactions == 1 else f"{taken.compactions:,} times"
    compacted = f", compacted {times} by its agent" if taken.compactions else ""
    return f"{taken.change:<10} {one_line(taken.session_id, 120)}: {taken.messages:,} messages{compacted}"


def _summed(
    done: Sequence[ImportOutcome],
    unreadable: Sequence[tuple[str, str]],
    where: str,
    files: int,
    *,
    is_interrupted: bool,
    dry_run: bool,
) -> dict[str, Any]:
    """All of it as one document. Folders that could not be opened count as failed."""
    taken = [each for outcome in done for each in outcome.taken]
    changes = Counter(each.change for each in taken)
    passed = Counter(outcome.status for outcome in done)
    times = [time for each in taken for time in (each.began, each.ended) if time]
    told = [msgspec.to_builtins(outcome) for outcome in done if outcome.status in ("read", "failed")]
    failed = [{"path": outcome.path, "reason": outcome.reason} for outcome in done if outcome.status == "failed"]
    failed += [{"path": path, "reason": reason} for path, reason in unreadable]
    return {
        "store": where,
        "dry_run": dry_run,
        "interrupted": is_interrupted,
        "files": files,
        "not_tried": files - len(done),
        "sessions": {change: changes[change] for change in ("new", "continued", "unchanged")},
        "other_ways": [each.session_id for each in taken if each.is_other_way and each.change != "unchanged"],
        "failed": failed,
        "passed_over": {status: passed[status] for status in ("no log", "empty", "older", "elsewhere")},
        "messages": sum(each.messages for each in taken),
        "originals": sum(each.originals for each in taken),
        "compactions": sum(each.compactions for each in taken),
        "summaries": sum(each.summaries for each in taken),
        "facts_checked": sum(each.checked for each in taken),
        "facts_lost": sum(each.lost for each in taken),
        "from": min(times).isoformat(timespec="seconds") if times else "",
        "until": max(times).isoformat(timespec="seconds") if times else "",
        "read": told,
    }


def _print(summary: dict[str, Any], out: LineOutput) -> None:
    sessions, failed = summary["sessions"], summary["failed"]
    kind = "would be " if summary["dry_run"] else ""
    counts = (
        f"{sessions['new']:,} {kind}new, {sessions['continued']:,} {kind}continued, {sessions['unchanged']:,} unchanged"
    )
    style = "bold yellow" if failed or summary["interrupted"] else "bold green"
    out.print(f"Sessions: {counts}, {len(failed):,} failed", style=style)
    print_rows(_rows(summary), out)
    for each in failed[:_MOST_NAMED]:
        out.print(f"{'failed':<12}{one_line(each['path'], 300)}: {one_line(each['reason'], 300)}", style="red")
    if len(failed) > _MOST_NAMED:
        out.print(f"{'failed':<12}… and {len(failed) - _MOST_NAMED:,} more (--json lists them)", style="red")
    if summary["not_tried"]:
        why = "interrupted" if summary["interrupted"] else "the store cannot be written"
        out.print(
            f"{why}: {summary['not_tried']:,} files are left, the others are done. Try: run the same command again."
        )
    elif summary["messages"] and not summary["dry_run"]:
        out.print(
            'next        compactor sessions · compactor recall --search "…" --all · compactor eval PATH…',
            style="dim",
        )


def _rows(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "store", summary["store"]
    if summary["messages"]:
        originals = f", {summary['originals']:,} originals in the archive" if summary["originals"] else ""
        yield "messages", f"{summary['messages']:,}{originals}"
    if summary["compactions"]:
        lost = f"; their summaries lost {summary['facts_lost']:,} of {summary['facts_checked']:,} facts"
        yield "compactions", f"{summary['compactions']:,} by the agents{lost if summary['summaries'] else ''}"
    if summary["from"]:
        yield "time", f"{summary['from'][:10]} to {summary['until'][:10]}"
    if summary["other_ways"]:
        names = ", ".join(one_line(name, 80) for name in summary["other_ways"][:3])
        yield "branches", f"{len(summary['other_ways']):,} logs no longer continue their session: {names}"
    passed = [f"{count:,} {_SKIPPED[status]}" for status, count in summary["passed_over"].items() if count]
    if passed:
        yield "skipped", ", ".join(passed)


_SKIPPED = {
    "no log": "that are not the log of an agent",
    "empty": "empty",
    "older": "older than asked for",
    "elsewhere": "of other folders",
}
