"""JUnit XML, read with expressions so that a cut file still tells what it holds."""

from __future__ import annotations

import html
import re

from context_compactor.apply.digests.verdict import Verdict, total_counts

_SUITE = re.compile(r"<testsuites?\b([^>]{0,2000})>")
_COUNT = re.compile(r"\b(tests|failures|errors|skipped|disabled)=[\"'](\d{1,9})[\"']")
_CASE = re.compile(r"<testcase\b([^>]{0,2000})>\s{0,200}<(?:failure|error)\b([^>]{0,4000})>?([^<]{0,400})")
_ATTRIBUTE = re.compile(r"\b(classname|name|message|type)=(?:\"([^\"]*)\"|'([^']*)')")


def read_junit(text: str) -> Verdict | None:
    """Counts of the outermost suites, failing cases with their messages."""
    if "<testsuite" not in text[:4000]:
        return None
    totals: dict[str, int] = {}
    for match in _SUITE.finditer(text):
        for name, count in _COUNT.findall(match.group(1)):
            totals[name] = totals.get(name, 0) + int(count)
        if match.group().startswith("<testsuites") and totals:
            break
    if not totals:
        return None
    counts = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    return Verdict("JUnit", counts, _failures(text), total_counts((counts,)))


def _failures(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for match in _CASE.finditer(text):
        case, failure = _attributes(match.group(1)), _attributes(match.group(2))
        name = " ".join(part for part in (case.get("classname", ""), case.get("name", "")) if part)
        found.append((name, failure.get("message") or html.unescape(match.group(3)).strip() or failure.get("type", "")))
    return found


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(double or single) for name, double, single in _ATTRIBUTE.findall(text)}
