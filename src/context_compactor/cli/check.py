"""`compactor check`: whether a provider will accept a transcript or the context of a stored session."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct

from context_compactor.cli.options import (
    AsJson,
    DialectName,
    FileOrSession,
    StoreUrl,
    find_named,
    is_file,
    refuse_dialect,
    store_url,
)
from context_compactor.cli.output import FAILED, print_json, progress_line, stdout
from context_compactor.cli.sessions import described
from context_compactor.dialects import Violation
from context_compactor.text import one_line

Model = Annotated[
    str | None, typer.Option(metavar="M", help="Model whose rules count; without, what FILE or the session says.")
]


class CheckedHistory(Struct, frozen=True):
    """What was checked, against whose rules, and what is wrong with it."""

    source: str
    dialect: str
    model: str
    messages: int
    violations: list[Violation]


def check(
    file: FileOrSession,
    model: Model = None,
    dialect: DialectName = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Check that a provider will accept a conversation; a line for each rule that it breaks.

    Exit code 0 when it is legal, 1 when it breaks a rule, 2 when it cannot be read. Of a session of the store the
    context is checked: what is sent next.

    Example: `compactor check messages.json --model claude-opus-5-5`
    """
    if is_file(file):
        with progress_line("Checking", file, is_quiet=as_json):
            checked = _check_file(file, model, dialect)
    else:
        refuse_dialect(file, dialect)
        checked = _check_session(file, model, store)
    if as_json:
        print_json(_as_json(checked))
    else:
        _print(checked)
    if checked.violations:
        raise typer.Exit(FAILED)


def _check_file(file: str, model: str | None, dialect: str | None) -> CheckedHistory:
    from context_compactor.dialects.transcripts.reader import read_transcript

    transcript = read_transcript(file, dialect=dialect or "auto")
    return _checked(transcript.source, transcript.messages, transcript.dialect, model or transcript.model)


def _check_session(name: str, model: str | None, store: str | None) -> CheckedHistory:
    row = find_named(name, store)
    from context_compactor.sessions.session import Session

    known = described(row)
    with Session.open(row.id, store=store_url(store), branch=row.id) as session:
        return _checked("session", session.context(), known["dialect"], model or known["model"])


def _checked(source: str, messages: list[Any], dialect: str, model: str) -> CheckedHistory:
    from context_compactor.dialects.checking import check as check_messages
    from context_compactor.dialects.detection import find_dialect

    found = find_dialect(dialect or "auto", messages).name
    problems = check_messages(messages, model=model or None, dialect=found)
    return CheckedHistory(source, found, model, len(messages), problems)


def _print(checked: CheckedHistory) -> None:
    out = stdout()
    for problem in checked.violations:
        out.print(f"message {problem.index} · {problem.rule} · {one_line(problem.what, 300)}")
    if not checked.violations:
        whose = f"{checked.dialect}, {checked.model}" if checked.model else checked.dialect
        out.print(f"{checked.messages:,} messages break no rule of the provider ({one_line(whose, 200)}).")


def _as_json(checked: CheckedHistory) -> dict[str, Any]:
    return {
        "source": checked.source,
        "dialect": checked.dialect,
        "model": checked.model,
        "messages": checked.messages,
        "legal": not checked.violations,
        "violations": msgspec.to_builtins(checked.violations),
    }
