"""The context before and after one compaction, side by side: what went stands beside what came in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from context_compactor.markup import Markup, element, folded, join
from context_compactor.server.dashboard import session as session_page
from context_compactor.server.dashboard.compactions import find
from context_compactor.server.dashboard.pieces import card, text
from context_compactor.server.dashboard.sending import Page
from context_compactor.server.dashboard.visit import NoForm, Visit
from context_compactor.server.dashboard.words import path
from context_compactor.server.open_sessions import Opened
from context_compactor.session.diff import ContextDiff, DiffRow, Side, diff

_MOST_ROWS = 300
_UNFOLDED = 8
_WORDS = 500
_WRITTEN = 20_000
_MARKS = {"same": "=", "removed": "−", "added": "+", "changed": "~"}


async def changes(visit: Visit[NoForm, NoForm]) -> Page:
    """What a compaction took away and what it wrote."""
    shown = await visit.opened(lambda opened: _changes(visit, opened))
    counts = ", ".join(f"{number:,} {name}" for name, number in shown.counts().items() if number)
    back = element("a", "Report", href=path("sessions", visit.id, "compactions", visit.ref))
    head = element(
        "div",
        *(
            element("div", element("b", title), element("span", f"{tokens:,} tokens", class_="faint"))
            for title, tokens in zip(shown.title, shown.tokens, strict=True)
        ),
        class_="sides heads",
    )
    rest = len(shown.rows) - _MOST_ROWS
    more = element("p", f"and {rest:,} more messages", class_="faint") if rest > 0 else ""
    content = card(
        "Before and after",
        element("p", f"Messages: {counts}", class_="faint"),
        head,
        *_rows(shown.rows[:_MOST_ROWS]),
        more,
        more=back,
    )
    return await session_page.around(visit, "compactions", content)


def _changes(visit: Visit[NoForm, NoForm], opened: Opened) -> ContextDiff:
    """Exactly around the compaction that counts; around another one from one message to the next."""
    compacted, last = find(opened, visit.ref), opened.core.lens.sight().last
    if last is not None and last.note.id == compacted.note.id:
        return diff(opened.core, None, None)
    at = visit.kept.saws.weighed(opened.core).messages_at(compacted.position)
    return diff(opened.core, max(at - 1, 0), at)


def _rows(rows: Sequence[DiffRow]) -> Iterator[Markup]:
    """Neighbours that went or came are one piece; all others have a row each."""
    for is_replaced, some in groupby(rows, lambda row: row.change in ("removed", "added")):
        if is_replaced:
            yield _replaced(list(some))
        else:
            yield from (_row(row) for row in some)


def _row(row: DiffRow) -> Markup:
    return element(
        "div",
        _side(row.before),
        element("span", _MARKS[row.change], class_="sign", title=row.change),
        _side(row.after),
        class_=f"sides is-{row.change}",
    )


def _replaced(rows: Sequence[DiffRow]) -> Markup:
    went = [_piece("removed", _words(row.before)) for row in rows if row.before]
    came = [_piece("added", element("pre", text(_written(row.after), _WRITTEN))) for row in rows if row.after]
    return element(
        "div",
        element("div", *_folded(went), class_="went"),
        element("div", *_folded(came), class_="came"),
        class_="replaced",
    )


def _folded(pieces: Sequence[Markup]) -> Iterable[Markup]:
    rest = pieces[_UNFOLDED:]
    return (*pieces[:_UNFOLDED], *([folded(f"{len(rest):,} more messages", join(rest))] if rest else []))


def _piece(change: str, content: Markup) -> Markup:
    return element(
        "div",
        element("span", _MARKS[change], class_="sign", title=change),
        element("div", content, class_="side"),
        class_=f"piece is-{change}",
    )


def _side(side: Side | None) -> Markup:
    return element("div", _words(side) if side else "", class_="side")


def _words(side: Side) -> Markup:
    return text(side.words, _WORDS)


def _written(side: Side) -> str:
    """All that a message says; a line about it when that is no text."""
    content = side.raw.get("content")
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content or () if isinstance(block, dict)]
    return "\n\n".join(each for each in texts if isinstance(each, str)) or side.words
