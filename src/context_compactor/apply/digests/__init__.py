"""Shorter texts written without a model: one small file per kind, each the rule for that content type as code.

`digest` is the only door. Read `text.py` first, then the file of the kind you care about.
"""

from __future__ import annotations

from collections.abc import Callable

from context_compactor.apply.digests.code import digest_code
from context_compactor.apply.digests.command import digest_command
from context_compactor.apply.digests.diff import digest_diff
from context_compactor.apply.digests.json_value import digest_json
from context_compactor.apply.digests.listing import digest_listing
from context_compactor.apply.digests.log import digest_log
from context_compactor.apply.digests.search import digest_search
from context_compactor.apply.digests.subagent import digest_subagent
from context_compactor.apply.digests.test_run import digest_test_run
from context_compactor.apply.digests.text import LINE_LIMIT
from context_compactor.apply.digests.trace import digest_trace
from context_compactor.apply.digests.web_page import digest_web_page
from context_compactor.classify.envelope import Output, unwrap
from context_compactor.classify.kinds import Kind
from context_compactor.messages.message import ToolCall

__all__ = ["digest"]

_MOST_LINES = 40
_MOST_SHARE = 0.7
_LEAST_TEXT = 200

# What people say to each other is not shortened by rule.
_WRITERS: dict[Kind, Callable[[ToolCall | None, Output], list[str]]] = {
    Kind.CODE: digest_code,
    Kind.TEST_RUN: digest_test_run,
    Kind.API_RESPONSE: digest_json,
    Kind.SEARCH_RESULT: digest_search,
    Kind.ERROR_TRACE: digest_trace,
    Kind.SUBAGENT: digest_subagent,
    Kind.LOG: digest_log,
    Kind.DIFF: digest_diff,
    Kind.LISTING: digest_listing,
    Kind.COMMAND: digest_command,
    Kind.WEB_PAGE: digest_web_page,
}


def digest(kind: Kind, call: ToolCall | None, text: str) -> str:
    """A shorter text that follows the rule of this kind; "" when it would not be clearly shorter than the text."""
    writer = _WRITERS.get(kind)
    if writer is None or len(text) < _LEAST_TEXT:
        return ""
    lines = [line for line in writer(call, unwrap(text)) if line.strip()]
    short = "\n".join(_fit(line) for line in lines[:_MOST_LINES])
    return short if len(short) < _MOST_SHARE * len(text) else ""


def _fit(line: str) -> str:
    whole = " ".join(line.splitlines()) if line.isprintable() is False else line
    return whole.rstrip() if len(whole) <= LINE_LIMIT + 8 else whole[:LINE_LIMIT].rstrip() + "…"
