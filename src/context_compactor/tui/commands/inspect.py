"""`/context`, `/facts`, `/search`, `/settings`, `/recall` and `/restore`: look at a session and its archive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from msgspec import structs

from context_compactor.errors import BadSetting, UnknownReference
from context_compactor.facts.fact import FactKind
from context_compactor.settings import Settings, read_value, setting_docs, setting_text
from context_compactor.text import percent, plural
from context_compactor.tui.commands.command import (
    Choice,
    Command,
    did_you_mean,
    matching,
    nearest,
    quoted,
    refuse_arguments,
)
from context_compactor.tui.commands.execution import cancellable, show_pieces
from context_compactor.tui.formatting import cut_line
from context_compactor.tui.panes.facts import FactsPane, SearchPane
from context_compactor.tui.screens.base import app_of
from context_compactor.tui.screens.viewer import OriginalDocument, ViewerScreen
from context_compactor.tui.sources.base import TextPiece

if TYPE_CHECKING:
    from context_compactor.engine.report import Archived
    from context_compactor.tui.screens.session import SessionScreen


KINDS: tuple[str, ...] = get_args(FactKind)


async def context(screen: SessionScreen, rest: str) -> None:
    """What the context is made of."""
    refuse_arguments("context", rest)
    status = await app_of(screen).source.session(screen.session_id)
    sections = structs.asdict(status.sections)
    parts = [f"{name.replace('_', ' ')} {tokens:,}" for name, tokens in sections.items() if tokens]
    total = status.sections.total
    share = percent(total / status.budget_tokens)
    screen.show_message(f"{' + '.join(parts) or 'nothing'} = {total:,} of {status.budget_tokens:,} tokens ({share})")
    screen.show_pane("context")


async def facts(screen: SessionScreen, rest: str) -> None:
    """Facts of one kind, or all."""
    kind = rest.casefold().replace(" ", "_").replace("-", "_")
    if kind and kind not in KINDS:
        hint = did_you_mean(kind, KINDS, f"Try: one of {', '.join(KINDS)}.")
        raise BadSetting(f"/facts: {quoted(rest)} is not a kind of fact. {hint}")
    cast("FactsPane", screen.show_pane("facts")).show_kind(kind or None)


async def search(screen: SessionScreen, rest: str) -> None:
    """Search the archive."""
    if not rest:
        raise BadSetting("/search: say what to look for. Try: /search connection refused.")
    cast("SearchPane", screen.show_pane("search")).search(rest)


async def settings(screen: SessionScreen, rest: str) -> None:
    """The settings in force."""
    if rest and rest not in Settings.__struct_fields__:
        hint = did_you_mean(rest, Settings.__struct_fields__, "Try: /settings lists all of them.")
        raise BadSetting(f"/settings: {quoted(rest)} is not a setting. {hint}")
    source = app_of(screen).source
    known = await source.settings(screen.session_id)
    usual = msgspec.to_builtins(Settings())
    other = {name for name, value in known.items() if value != usual.get(name)}
    if rest:
        screen.show_message(f"{_setting_text(rest, known, usual)}\n{setting_docs().get(rest, '')}")
        return
    lines = [f"{'*' if name in other else ' '} {name:<32}{_value_text(name, value)}" for name, value in known.items()]
    note = f"{plural(len(other), 'setting')} with a star: not as usual. /settings NAME says what one does."
    if source.is_remote:
        note += "\nA server shows only the settings of the session itself."
    show_pieces(screen, f"settings of {screen.session_id}", [TextPiece("", "\n".join([note, "", *lines]))])


def _setting_text(name: str, known: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    if name not in known:
        why = "it may hold a password" if name == "store" else "it is as the server has it"
        return f"{name} cannot be shown: {why}."
    default = f" (by default {_value_text(name, usual[name])})" if known[name] != usual[name] else ""
    return f"{name} = {_value_text(name, known[name])}{default}"


def _value_text(name: str, value: Any) -> str:
    return setting_text(read_value(name, value, "session") if name == "levels" else value)


async def _kind_choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(kind, kind.replace("_", " ")) for kind in KINDS] if " " not in rest else []


async def _setting_choices(_: SessionScreen, rest: str) -> Sequence[Choice]:
    return [Choice(name, words) for name, words in setting_docs().items()] if " " not in rest else []


CONTEXT = Command("context", "What the context is made of, in tokens.", context, is_read_only=True)
FACTS = Command(
    "facts", "What must outlive the text, of one kind or all.", facts, "[kind]", _kind_choices, is_read_only=True
)
SEARCH = Command("search", "Search the archive.", search, "TEXT", is_read_only=True)
SETTINGS = Command(
    "settings",
    "The settings in force, or what one of them does.",
    settings,
    "[name]",
    _setting_choices,
    is_read_only=True,
)


_MAX_HINTS = 3
_MAX_CHOICES = 500
_MAX_DIGITS = 12


async def recall(screen: SessionScreen, rest: str) -> None:
    """Read an original."""
    ref = await _existing_id(screen, "recall", rest)
    screen.app.push_screen(ViewerScreen(OriginalDocument(app_of(screen).source, screen.session_id, ref)))


async def restore(screen: SessionScreen, rest: str) -> None:
    """Put an original back into the context."""
    ref = await _existing_id(screen, "restore", rest)
    async with cancellable(screen, "Restoring"):
        done = await app_of(screen).source.restore(screen.session_id, ref)
    screen.show_message(f"✓ {done.in_words()}\nTokens: {done.tokens_after:,} in the context", "done")
    screen.action_reload()


async def _existing_id(screen: SessionScreen, command: str, rest: str) -> str:
    """The id that was entered, if there is such an original."""
    if not rest or " " in rest:
        what = f"{quoted(rest)} is more than one id" if rest else "an id is missing"
        raise BadSetting(f"/{command}: {what}. Try: /{command} turn_003; Tab lists those that are archived.")
    try:
        await app_of(screen).source.original(screen.session_id, rest)
    except UnknownReference as error:
        near = _nearest_ids(rest, await _archived_originals(screen))
        hint = f". Near: {', '.join(near)}." if near else ""
        raise UnknownReference(f"/{command}: {f'{error}'.rstrip('.')}{hint}") from error
    return rest


async def archived_choices(screen: SessionScreen, rest: str) -> Sequence[Choice]:
    """What has left the context, the newest first."""
    if " " in rest:
        return []
    known = await _archived_originals(screen)
    found = await asyncio.to_thread(matching, rest, known)  # there may be very many
    return [
        Choice(ref, f"{known[ref].kind} · {known[ref].tokens:,} tokens · {cut_line(known[ref].summary, 100)}")
        for ref in found[:_MAX_CHOICES]
    ]


async def _archived_originals(screen: SessionScreen) -> dict[str, Archived]:
    if screen.archived is None:
        made = await app_of(screen).source.compactions(screen.session_id)
        screen.archived = {each.id: each for line in reversed(made) for each in reversed(line.report.archived)}
    return screen.archived


def _nearest_ids(ref: str, known: Iterable[str]) -> list[str]:
    """The ids that are most like a wrong one: those of the nearest numbers, where it has one."""
    name, _, number = ref.partition("_")
    if not number.isdecimal() or len(number) > _MAX_DIGITS:
        return nearest(ref, list(known)[:_MAX_CHOICES], _MAX_HINTS)
    same = [each for each in known if each.startswith(f"{name}_")]
    return nsmallest(_MAX_HINTS, same, key=lambda each: abs(int(each.partition("_")[2]) - int(number)))


RECALL = Command("recall", "Read an original from the archive.", recall, "ID", archived_choices, is_read_only=True)
RESTORE = Command("restore", "Put an original back into the context.", restore, "ID", archived_choices)
