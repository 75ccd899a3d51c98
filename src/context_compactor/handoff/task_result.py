"""A sub-agent's Markdown "Task Result": labels in bold with text or a list behind them."""

from __future__ import annotations

import re
from typing import Any

from context_compactor.apply.digests.test_run import digest_test_run
from context_compactor.classify.envelope import Output

STATUS_WORDS = (
    dict.fromkeys("success succeeded successful completed done ok finished passed ✓ ✅".split(), "complete")
    | dict.fromkeys("incomplete partially partial_success in_progress".split(), "partial")
    | dict.fromkeys("failure fail error errored ✗ ❌".split(), "failed")
    | dict.fromkeys("needs_input waiting".split(), "blocked")
)
# The form has no decision of its own: it follows from the status unless one is written.
_DECISION_OF = {"complete": "PROCEED", "partial": "CLARIFY", "blocked": "CLARIFY", "failed": "STOP"}
_KNOWN = (
    "task id|status|phase|decision|summary|files (?:modified|changed|created)|recommendations|tokens used|test results"
)
_LABEL = re.compile(
    r"^[ \t]{0,3}(?:[-*+][ \t]{1,3})?(?:\*\*([A-Za-z][\w /-]{0,40}?)(?::\*\*|\*\*[ \t]{0,3}:)"
    rf"|#{{2,6}}[ \t]+([A-Za-z][\w /-]{{0,40}})$|((?i:{_KNOWN}))[ \t]{{0,3}}:)[ \t]*",
    re.MULTILINE,
)
_BULLET = re.compile(r"^[ \t]{0,6}(?:[-*+•]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
_SINGLE = ("task_id", "status", "phase", "decision", "tokens_used")
_TITLE = "task_result"
_TESTS = 3


def task_result_fields(text: str) -> dict[str, Any] | None:
    """The fields of a Task Result, or None when the text is not one."""
    labels = _labels(text)
    if "status" not in labels or not ("task_id" in labels or "summary" in labels):
        return None
    fields: dict[str, Any] = {name: _first_word(labels[name]) for name in _SINGLE if labels.get(name)}
    status = str(fields.get("status", "")).lower()
    fields.setdefault("decision", _DECISION_OF.get(STATUS_WORDS.get(status, status), ""))
    findings = {name: _items(body) for name, body in labels.items() if name not in (*_SINGLE, _TITLE)}
    return fields | {"findings": findings, "context_summary": _summary(labels)}


def _labels(text: str) -> dict[str, str]:
    found = list(_LABEL.finditer(text))
    ends = [*(each.start() for each in found), len(text)][1:]
    bodies: dict[str, str] = {}
    for label, end in zip(found, ends, strict=True):
        name = "_".join((label[1] or label[2] or label[3]).lower().split())
        bodies.setdefault(name, text[label.end() : end].strip())
    return bodies


def _first_word(body: str) -> str:
    return body.partition("\n")[0].partition("|")[0].strip(" *`")


def _items(body: str) -> str | list[str]:
    """A list as its items, everything else as it is."""
    if not _BULLET.match(body):
        return body
    return [item.strip() for item in _BULLET.split(body) if item.strip()]


def _summary(labels: dict[str, str]) -> str:
    """Summary, files, how tests ended, recommendations: what the short form of a Task Result shows."""
    shown = [labels.get("summary", "")]
    for name, body in labels.items():
        if name.startswith("files") and body:
            items = _items(body)
            shown.append(f"Files: {', '.join(items) if isinstance(items, list) else items}")
        elif name.startswith("test") and body:
            shown.append(f"Tests: {'; '.join(digest_test_run(None, Output(body))[:_TESTS])}")
        elif name in ("recommendations", "blockers", "errors", "questions", "next_steps") and body:
            shown.append(f"{name.replace('_', ' ').capitalize()}:\n{body}")
    return "\n".join(filter(None, shown))
