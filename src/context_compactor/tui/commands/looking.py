"""`/context`, `/facts`, `/search` and `/settings`: look at something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from msgspec import structs

from context_compactor.errors import BadSetting
from context_compactor.facts.fact import FactKind
from context_compactor.figures import percent, plural
from context_compactor.setting_words import setting_docs, shown
from context_compactor.settings import Settings, read_value
from context_compactor.tui.commands.command import Choice, Command, nothing_behind, quoted
from context_compactor.tui.commands.doing import show
from context_compactor.tui.commands.offering import nearest
from context_compactor.tui.screens.live import app_of
from context_compactor.tui.screens.session_facts import FactsPane
from context_compactor.tui.screens.session_search import SearchPane
from context_compactor.tui.values import Piece

if TYPE_CHECKING:
    from context_compactor.tui.screens.session import SessionScreen

KINDS: tuple[str, ...] = get_args(FactKind)


async def context(screen: SessionScreen, rest: str) -> None:
    """What the context is made of."""
    nothing_behind("context", rest)
    standing = await app_of(screen).source.session(screen.session_id)
    sections = structs.asdict(standing.sections)
    parts = [f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in sections.items() if tokens]
    total = standing.sections.total
    share = percent(total / standing.budget_tokens)
    screen.tell(f"{' + '.join(parts) or 'nothing'} = {total:,} of {standing.budget_tokens:,} tokens ({share})")
    screen.show_pane("context")


async def facts(screen: SessionScreen, rest: str) -> None:
    """Facts of one kind, or all."""
    kind = rest.casefold().replace(" ", "_").replace("-", "_")
    if kind and kind not in KINDS:
        near = nearest(kind, KINDS)
        hint = f"Did you mean {near[0]}?" if near else f"Try: one of {', '.join(KINDS)}."
        raise BadSetting(f"/facts: {quoted(rest)} is no kind of fact. {hint}")
    cast("FactsPane", screen.show_pane("facts")).show_kind(kind or None)


async def search(screen: SessionScreen, rest: str) -> None:
    """Search the archive."""
    if not rest:
        raise BadSetting("/search: say what to look for. Try: /search connection refused.")
    cast("SearchPane", screen.show_pane("search")).search(rest)


async def settings(screen: SessionScreen, rest: str) -> None:
    """The settings in force."""
    if rest and rest not in Settings.__struct_fields__:
        near = nearest(rest, Settings.__struct_fields__)
        hint = f"Did you mean {near[0]}?" if near else "Try: /settings lists all of them."
        raise BadSetting(f"/settings: {quoted(rest)} is no setting. {hint}")
    source = app_of(screen).source
    known = await source.settings(screen.session_id)
    usual = msgspec.to_builtins(Settings())
    other = {name for name, value in known.items() if value != usual.get(name)}
    if rest:
        screen.tell(f"{_told(rest, known, usual)}\n{setting_docs().get(rest, '')}")
        return
    lines = [f"{'*' if name in other else ' '} {name:<32}{_written(name, value)}" for name, value in known.items()]
    note = f"{plural(len(other), 'setting')} with a star: not as usual. /settings NAME says what one does."
    if source.is_remote:
        note += "\nA server tells only those that a session has of its own."
    show(screen, f"settings of {screen.session_id}", [Piece("", "\n".join([note, "", *lines]))])


def _told(name: str, known: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    if name not in known:
        why = "it may hold a password" if name == "store" else "it is as the server has it"
        return f"{name} is not told: {why}."
    default = f" (by default {_written(name, usual[name])})" if known[name] != usual[name] else ""
    return f"{name} = {_written(name, known[name])}{default}"


def _written(name: str, value: Any) -> str:
    return shown(read_value(name, value, "session") if name == "levels" else value)


async def _kinds(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(kind, kind.replace("_", " ")) for kind in KINDS] if " " not in rest else []


async def _names(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(name, words) for name, words in setting_docs().items()] if " " not in rest else []


CONTEXT = Command("context", "What the context is made of, in tokens.", context, only_looks=True)
FACTS = Command("facts", "What must outlive the text, of one kind or all.", facts, "[kind]", _kinds, only_looks=True)
SEARCH = Command("search", "Search the archive.", search, "TEXT", only_looks=True)
SETTINGS = Command(
    "settings", "The settings in force, or what one of them does.", settings, "[name]", _names, only_looks=True
)
