"""`compactor show SESSION`: how full a stored session is, and what its compactions have saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from context_compactor.cli.opening import open_store, store_url
from context_compactor.cli.output import Out, paper, print_json
from context_compactor.cli.sessions import described, in_words, moment
from context_compactor.cli.show import counted_row, print_sections, usage_rows
from context_compactor.errors import BadSetting, BadTranscript, UnknownSession
from context_compactor.messages.printing import one_line

if TYPE_CHECKING:
    from context_compactor.measure.usage import Usage
    from context_compactor.report import Report
    from context_compactor.session.record import Totals
    from context_compactor.settings import Settings
    from context_compactor.store.rows import SessionRow


class ShownSession(Struct, frozen=True):
    """Everything that `show` prints of a session."""

    known: dict[str, Any]
    usage: Usage
    settings: Settings
    totals: Totals
    last: Report | None


def show_session(name: str, window: str | None, store: str | None, as_json: bool) -> None:
    """Show a session of the store."""
    row = find_named(name, store)
    if window is not None:
        raise BadSetting(f"--window: session {name!r} has a window of its own; leave it out")
    shown = look_at(row, store_url(store))
    if as_json:
        print_json(_as_json(shown))
    else:
        print_session(shown, paper(beside_output=False))


def find_named(name: str, store: str | None) -> SessionRow:
    """The session, or an error that says that there is neither a file nor a session of this name."""
    try:
        with open_store(store) as kept:
            return kept.session(name)
    except UnknownSession as error:
        raise UnknownSession(f"there is no file {name!r:.80}, and {error}") from None
    except BadSetting as error:
        if store is not None:
            raise
        raise BadTranscript(f"{name}: there is no such file, and {error}") from None


def look_at(row: SessionRow, url: str) -> ShownSession:
    """Measure a session and look at its compactions."""
    from context_compactor.session.session import Session

    with Session.open(row.id, store=url) as session:
        reports = session.compactions()
        return ShownSession(
            described(row), session.usage(), session.settings, session.totals(), reports[-1] if reports else None
        )


def print_session(shown: ShownSession, out: Out) -> None:
    """The whole page."""
    known = shown.known
    title = ["session", known["dialect"], known["model"], known["id"]]
    out.print(one_line(" · ".join(filter(None, title)), 200), style="bold")
    out.print(f"{known['messages']:,} messages, last used {moment(known['updated_at'])} UTC")
    out.print()
    print_sections(shown.usage.sections, shown.usage.budget_tokens, out)
    out.print()
    for name, text in _rows(shown):
        out.print(f"{name:<12}{text}")


def _rows(shown: ShownSession) -> Iterator[tuple[str, str]]:
    yield counted_row(shown.usage)
    yield from usage_rows(shown.usage, shown.settings)
    yield "history", in_words(shown.totals)
    spent = shown.totals.spent
    if spent.attempts:
        yield "models", f"{spent.attempts:,} requests, ${spent.dollars:.4f} as far as prices are known"
    if shown.last is not None:
        yield from (("last" if at == 0 else "", line) for at, line in enumerate(_last(shown.last)))


def _last(report: Report) -> list[str]:
    why = f"{report.trigger}, {report.level}" if report.level else report.trigger
    return [f"{moment(report.created_at)} UTC, {report.compaction_id} ({why})", *report.short().splitlines()]


def _as_json(shown: ShownSession) -> dict[str, Any]:
    return {
        "source": "session",
        **shown.known,
        "usage": msgspec.to_builtins(shown.usage) | {"turns_left": shown.usage.turns_left},
        "levels": msgspec.to_builtins(shown.settings.levels),
        "totals": msgspec.to_builtins(shown.totals),
        "last_compaction": shown.last.to_dict() if shown.last else None,
    }
