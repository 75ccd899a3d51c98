"""The library's front door: compact a list of messages, with a summarizer by name and with a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from msgspec import structs

from context_compactor.engine.compact import run_request
from context_compactor.engine.request import ArchiveScope, CompactionRequest, can_recall
from context_compactor.engine.result import Compaction
from context_compactor.errors import BadSetting
from context_compactor.extensions import STRATEGY_GROUP, load_extension
from context_compactor.protocols import Layout, Model, Store, Strategy
from context_compactor.settings import LayoutName, Level, Settings, check_agent_model, load_settings

if TYPE_CHECKING:
    from context_compactor.summarize.model import ModelStep
    from context_compactor.summarize.summarizer import ModelSummarizer


def compact(
    messages: Sequence[object],
    *,
    window: int | None = None,
    target_tokens: int | None = None,
    level: str | None = None,
    focus: str | None = None,
    model: str | None = None,
    summarizer: str | Model | None = None,
    tools: object = None,
    system: object = None,
    layout: LayoutName = "auto",
    strategies: Sequence[Strategy | str] = (),
    layouts: Sequence[Layout] = (),
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    settings: Settings | None = None,
    store: str | None = None,
) -> Compaction:
    """Compact a list of messages to its target, or return it unchanged if it is small enough.

    With `target_tokens` the result has at most that many tokens. With `level` it is compacted to that level's target.
    With only a `window` it is compacted if a level is reached. The input is never changed. Messages are dictionaries or
    objects of an SDK, in the dialect of OpenAI chat, OpenAI Responses, Anthropic, Gemini or Bedrock; the result has
    plain dictionaries.

    `model` is the name of the model that runs the agent: its window, tokenizer and prices are used. `summarizer`, a
    name or an object, is the model that writes summaries; without one, here or in the settings, nothing leaves the
    machine. `tools` and `system` are what you send beside the messages, in the form of any provider: they are counted,
    in the report and towards the target, and never returned. `layout` is `tail` (the record, then the newest turns),
    `record` (one message) or `auto` (as the settings say). `strategies` and `layouts` are used in addition to the
    built-in ones: objects that follow `Strategy` and `Layout`, or names of strategies from installed packages. With
    `store` the originals are also stored there, under the session `report.session_id`.
    """
    settings = with_layout(settings or load_settings().settings, layout)
    check_agent_model(model, settings.summarizer if summarizer is None else summarizer)
    model = settings.model if model is None else model
    request = CompactionRequest(
        window,
        target_tokens,
        parse_level(level),
        focus or "",
        settings,
        model,
        can_recall=can_recall(settings, tools),
    )
    options: dict[str, Any] = {
        "tools": tools,
        "system": system,
        "dialect": dialect,
        "count_tokens": count_tokens,
        "strategies": load_strategies(strategies),
        "layouts": check_layouts(layouts),
        "summarizer": summarizer_for(settings, summarizer),
    }
    if store is None:
        return run_request(messages, request, **options)
    from context_compactor.store.connect import connect
    from context_compactor.store_urls import without_password

    with closing(connect(store)) as opened:
        result = run_request(messages, request, archive=ArchiveScope(location=without_password(store)), **options)
        return store_originals(result, opened, without_secrets=settings.redact_secrets)


async def acompact(
    messages: Sequence[object],
    *,
    window: int | None = None,
    target_tokens: int | None = None,
    level: str | None = None,
    focus: str | None = None,
    model: str | None = None,
    summarizer: str | Model | None = None,
    tools: object = None,
    system: object = None,
    layout: LayoutName = "auto",
    strategies: Sequence[Strategy | str] = (),
    layouts: Sequence[Layout] = (),
    dialect: str = "auto",
    count_tokens: Callable[[str], int] | None = None,
    settings: Settings | None = None,
    store: str | None = None,
) -> Compaction:
    """The same as `compact`, for async callers: it runs in a thread and does not block the event loop."""
    import asyncio  # takes a tenth of a second to load, and most callers never need it

    return await asyncio.to_thread(
        compact,
        messages,
        window=window,
        target_tokens=target_tokens,
        level=level,
        focus=focus,
        model=model,
        summarizer=summarizer,
        tools=tools,
        system=system,
        layout=layout,
        strategies=strategies,
        layouts=layouts,
        dialect=dialect,
        count_tokens=count_tokens,
        settings=settings,
        store=store,
    )


def with_layout(settings: Settings, layout: LayoutName) -> Settings:
    """The settings with another layout, where one is named."""
    if layout not in get_args(LayoutName):
        raise BadSetting(f"layout is {layout!r:.40}; it must be one of {', '.join(get_args(LayoutName))}")
    return settings if layout == "auto" else structs.replace(settings, layout=layout)


def summarizer_for(
    settings: Settings,
    summarizer: str | Model | None = None,
    on_text: Callable[[str], None] | None = None,
    on_step: Callable[[ModelStep], None] | None = None,
) -> ModelSummarizer | None:
    """The summarizer that is named, else that of the settings. Without either nothing is imported.

    `on_text` is shown the text while it is written, `on_step` each call and each retry.
    """
    wanted = settings.summarizer if summarizer is None else summarizer
    if wanted is None:
        return None
    from context_compactor.summarize.summarizer import open_summarizer

    return open_summarizer(wanted, settings, on_text, on_step)


def estimating_summarizer(settings: Settings) -> ModelSummarizer | None:
    """One that only says what the settings' summarizer would be asked: it needs no key and can send nothing."""
    if settings.summarizer is None:
        return None
    from context_compactor.summarize.clients.names import describe_model
    from context_compactor.summarize.summarizer import open_summarizer

    return open_summarizer(describe_model(settings.summarizer, settings), settings)


def store_originals(result: Compaction, store: Store, *, without_secrets: bool = False) -> Compaction:
    """The result with its originals in a store, where other processes can recall them."""
    from context_compactor.archive.redaction import redact
    from context_compactor.archive.storage import index_archived, prepare_items, store_items

    if not len(result.archive):
        return result
    session_id = result.report.compaction_id
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    store.open_session(session_id, b"{}", now)
    originals = list(result.archive)
    ready = prepare_items(redact(originals).value if without_secrets else originals, store)
    with store.writing(session_id):
        store.archive(session_id, store_items(ready, store), now)
    index_archived(store, session_id)
    return structs.replace(result, report=structs.replace(result.report, session_id=session_id))


def parse_level(level: str | None) -> Level | None:
    """The level of this name."""
    try:
        return None if level is None else Level(level)
    except ValueError:
        raise BadSetting(f"unknown level {level!r:.40}; known levels: {', '.join(Level)}") from None


def load_strategies(given: Sequence[Strategy | str]) -> tuple[Strategy, ...]:
    """The strategies that a caller wants beside ours; one that is named comes from an entry point."""
    found = tuple(load_extension(STRATEGY_GROUP, one) if isinstance(one, str) else one for one in given)
    for strategy in found:
        if isinstance(strategy, type) or not isinstance(strategy, Strategy):
            raise BadSetting(f"{strategy!r:.80} is not a strategy; use an object with a `name` and `propose(view)`")
    return found


def check_layouts(given: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts that a caller wants to be tried before ours."""
    for layout in given:
        if isinstance(layout, type) or not isinstance(layout, Layout):
            raise BadSetting(f"{layout!r:.80} is not a layout; use an object with a `name` and `zones(room)`")
    return tuple(given)
