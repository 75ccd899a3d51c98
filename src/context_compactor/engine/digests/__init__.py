"""Shorter texts written without a model, by the kind of content. `digest` is the only entrance."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import cast

from context_compactor.dialects.messages import ToolCall
from context_compactor.facts.kinds import Kind
from context_compactor.facts.outputs import ToolOutput, unwrap
from context_compactor.text import LINE_LIMIT

__all__ = ["digest"]

_MOST_LINES = 40
_MOST_SHARE = 0.7
_LEAST_TEXT = 200

Writer = Callable[[ToolCall | None, ToolOutput], list[str]]

# Loaded when first needed: their patterns take time to build. What people say to each other is not shortened by rule.
_WRITERS = {
    Kind.CODE: ("code", "digest_code"),
    Kind.TEST_RUN: ("test_runs", "digest_test_run"),
    Kind.API_RESPONSE: ("responses", "digest_json"),
    Kind.SEARCH_RESULT: ("searches", "digest_search"),
    Kind.ERROR_TRACE: ("traces", "digest_trace"),
    Kind.SUBAGENT: ("subagents", "digest_subagent"),
    Kind.LOG: ("output", "digest_log"),
    Kind.DIFF: ("diffs", "digest_diff"),
    Kind.LISTING: ("searches", "digest_listing"),
    Kind.COMMAND: ("output", "digest_command"),
    Kind.WEB_PAGE: ("responses", "digest_web_page"),
}


def digest(kind: Kind, call: ToolCall | None, text: str) -> str:
    """A shorter text that follows the rule of this kind; "" when it would not be clearly shorter than the text."""
    if kind not in _WRITERS or len(text) < _LEAST_TEXT:
        return ""
    lines = [line for line in _writer(kind)(call, unwrap(text)) if line.strip()]
    short = "\n".join(_fit(line) for line in lines[:_MOST_LINES])
    return short if len(short) < _MOST_SHARE * len(text) else ""


@lru_cache(maxsize=len(_WRITERS))
def _writer(kind: Kind) -> Writer:
    module, name = _WRITERS[kind]
    return cast("Writer", getattr(import_module(f"{__name__}.{module}"), name))


def _fit(line: str) -> str:
    whole = " ".join(line.splitlines()) if not line.isprintable() else line
    return whole.rstrip() if len(whole) <= LINE_LIMIT + 8 else whole[:LINE_LIMIT].rstrip() + "…"
