"""`compactor checkpoint`, `resume` and `handoff`: where the work stands, and what the next one is given."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from context_compactor.cli.options import AsJson, SessionId, StoreUrl, open_session, store_url
from context_compactor.cli.output import (
    DONE,
    EXIT_CODES,
    FAILED,
    LineOutput,
    print_json,
    printable,
    stderr,
    stdout,
    wrap_text,
)
from context_compactor.errors import BadInput, BadSetting
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.engine.report import Report
    from context_compactor.handoff.orchestrator import Extracted, Points
    from context_compactor.handoff.protocol import HandoffRequest
    from context_compactor.handoff.resume import ResumeCheck


Note = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Something the next reader must know.", show_default=False)
]
Tokens = Annotated[int, typer.Option("--tokens", min=1, metavar="N", help="The size of the brief.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Open the fresh window in this session: make its context as small as possible.")
]

_HEADS = {
    "ready": ("Ready to go on.", "bold green"),
    "needs_attention": ("Needs attention before it goes on.", "bold yellow"),
    "blocked": ("Blocked.", "bold red"),
}
_STYLES = {"blocking": "red", "attention": "yellow", "note": "dim"}


def checkpoint(note: Note = "", session: SessionId = None, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Write a checkpoint of the work to `.compactor/progress-checkpoint.md`, and print it.

    Every compaction writes one first.

    Example: `compactor checkpoint --note "the flaky test is known, ignore it"`
    """
    with open_session(session, store) as opened:
        made = opened.checkpoint(note)
    from context_compactor.handoff.checkpoint_text import render_checkpoint
    from context_compactor.sessions.project import project_of

    project = project_of(store_url(store))
    file = str(project.checkpoint_file) if project else ""
    if as_json:
        print_json({"file": file} | msgspec.to_builtins(made))
        return
    stdout().print(printable(render_checkpoint(made)).rstrip("\n"))
    stderr().print(f"written to {file}", style="dim")


def resume(
    tokens: Tokens = 2000,
    fresh: Fresh = False,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check whether work can continue from the last checkpoint, and print the brief for a fresh window.

    Git, files and other open sessions are compared with the checkpoint. A damaged checkpoint is reported and rebuilt
    from the store. Exits with 0 when it is ready or needs attention, with 1 when it is blocked. With `--fresh` the
    session itself continues in a fresh window; `compactor undo` takes that back.

    Example: `compactor resume --session run-42 --tokens 1500`
    """
    with open_session(session, store) as opened:
        name, found = opened.id, opened.resume(tokens)
        is_blocked = found.status == "blocked"
        report = opened.fresh() if fresh and not is_blocked else None
    if as_json:
        more = {"report": report.to_dict() if report else None} if fresh else {}
        print_json({"session_id": name} | msgspec.to_builtins(found) | more)
    else:
        _print_readiness(name, found, stdout())
        _print_fresh(report, stderr())
    raise typer.Exit(FAILED if is_blocked else EXIT_CODES[report.status] if report else DONE)


def _print_fresh(report: Report | None, out: LineOutput) -> None:
    if report is not None:
        from context_compactor.cli.report import IN_STORE, print_report

        print_report(report, out, IN_STORE)


def _print_readiness(session_id: str, found: ResumeCheck, out: LineOutput) -> None:
    head, style = _HEADS[found.status]
    out.print(f"{head} Session {session_id!r}.", style=style)
    for reason in found.reasons:
        out.print(wrap_text(reason.what, f"  {reason.severity:<10} "), style=_STYLES[reason.severity])
        if reason.try_:
            out.print(wrap_text(f"Try: {one_line(reason.try_, 300)}.", " " * 13))
    if found.brief:
        out.print()
        out.print(printable(found.brief).rstrip("\n"))


Phase = Annotated[
    str | None, typer.Option("--phase", metavar="P", help="Hand over to research, write, validate or parallel.")
]
TaskText = Annotated[
    str, typer.Option("--task", metavar="T", help="What to do; by default the last task.", show_default=False)
]
TaskId = Annotated[
    str, typer.Option("--task-id", metavar="ID", help="Its id; by default a new one.", show_default=False)
]
Feature = Annotated[
    str,
    typer.Option("--feature", metavar="F", help="What the work is about; by default as last time.", show_default=False),
]
SpecPath = Annotated[
    str,
    typer.Option(
        "--spec-path", metavar="PATH", help="Path of its specification; by default as last time.", show_default=False
    ),
]
Receive = Annotated[
    str | None,
    typer.Option("--receive", metavar="FILE", help="Take in a sub-agent's answer; `-` is standard input."),
]
AskPoints = Annotated[bool, typer.Option("--points", help="What was measured at the handoffs so far.")]

_NAME = 16


def handoff(
    phase: Phase = None,
    task: TaskText = "",
    task_id: TaskId = "",
    feature: Feature = "",
    spec_path: SpecPath = "",
    receive: Receive = None,
    points: AskPoints = False,
    session: SessionId = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write the request for a sub-agent or the next phase, with a summary of at most 500 tokens; or receive its answer.

    The session is compacted first. An answer is archived under its reference, and what the next phase needs is kept.

    Example: `compactor handoff --phase write --json`, then `compactor handoff --receive answer.md`
    """
    _refuse_mix(phase, receive, points, bool(task or task_id or feature or spec_path))
    answer = _read(receive) if receive is not None else ""
    with open_session(session, store) as opened:
        name = opened.id
        if phase is not None:
            values, rows = _handed(opened.handoff(phase, task, task_id, feature=feature, spec_path=spec_path))
        elif receive is not None:
            values, rows = _received(opened.receive(answer))
        else:
            values, rows = _measured(opened.points())
    if as_json:
        print_json({"session_id": name} | values)
        return
    out = stdout()
    for title, text in rows:
        out.print(wrap_text(text, f"{title:<{_NAME}}"))


ShownResult = tuple[dict[str, Any], list[tuple[str, str]]]


def _handed(request: HandoffRequest) -> ShownResult:
    rows = [("task id", request.task_id), ("phase", request.phase), ("task", request.task)]
    rows += [*_lines("feature", [request.feature]), *_lines("specification", [request.spec_path])]
    rows += _lines("summary", request.context_summary.splitlines())
    rows += [*_lines("constraints", request.constraints), *_lines("files", request.files)]
    rows += _lines("references", [", ".join(request.references)])
    return request.to_dict(), rows


def _received(found: Extracted) -> ShownResult:
    values = {name: getattr(found, name) for name in found.__struct_fields__ if name != "original"}
    values |= {"id": found.original.id if found.original else None, "reference": found.reference}
    rows = [("decision", found.decision), *_lines("asked", [found.asked])]
    rows += _lines("summary", found.context_summary.splitlines())
    rows += [*_lines("changed", found.files_changed), *_lines("errors", found.errors)]
    rows += _lines("archived", [found.reference or "this answer had been taken in before"])
    rows.append(("kept", f"{found.tokens_kept:,} of {found.tokens_raw:,} tokens"))
    return values | {"saving": round(found.saving, 4)}, rows


def _measured(points: Points) -> ShownResult:
    from context_compactor.handoff.orchestrator import POINTS

    figures = {point: points.figures(point) for point in POINTS}
    rows = [
        (
            point.replace("_", " "),
            f"median {each.median:,g}, largest {each.max:,}, in all {each.total:,} (n = {each.count:,})",
        )
        for point, each in figures.items()
    ]
    return {"points": msgspec.to_builtins(points), "figures": msgspec.to_builtins(figures)}, rows


def _lines(title: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """One row for each line that says something, the title before the first."""
    shown = [line for line in lines if line.strip()]
    yield from ((title if at == 0 else "", line) for at, line in enumerate(shown))


def _refuse_mix(phase: str | None, receive: str | None, points: bool, has_task: bool) -> None:
    if (phase is not None) + (receive is not None) + points != 1:
        raise BadSetting("handoff needs exactly one of these options. Try: --phase P, --receive FILE or --points.")
    if has_task and phase is None:
        raise BadSetting(
            "handoff: --task, --task-id, --feature and --spec-path are only for --phase. "
            "Try: leave them out, since an answer names its own task."
        )


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except OSError as error:
        raise BadInput(f"--receive: {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--receive: {file} is not UTF-8 text: {error.reason} at byte {error.start:,}") from error
