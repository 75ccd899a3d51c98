"""`go test -json`: one event per line."""

from __future__ import annotations

import msgspec

from context_compactor.apply.digests.verdict import Verdict, total_counts


class _Event(msgspec.Struct):
    Action: str
    Package: str = ""
    Test: str = ""
    Output: str = ""


def read_go_events(text: str) -> Verdict | None:
    """Counts by action, and what each failing test printed first about a line of its own."""
    if '"Action":"' not in text[:2000]:
        return None
    counts: dict[str, int] = {}
    failed: list[str] = []
    printed: dict[str, list[str]] = {}
    for event in _events(text):
        if event.Test and event.Action in ("pass", "fail", "skip"):
            counts[event.Action] = counts.get(event.Action, 0) + 1
            failed += [event.Test] if event.Action == "fail" else []
        elif event.Action == "output" and ".go:" in event.Output:
            printed.setdefault(event.Test or event.Package, []).append(event.Output.strip())
    if not counts:
        return None
    words = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    failures = [(name, " ".join(printed.get(name, [])[:2])) for name in dict.fromkeys(failed)]
    return Verdict("go test", words, failures, total_counts((words,)))


def _events(text: str) -> list[_Event]:
    decoder = msgspec.json.Decoder(_Event)
    found: list[_Event] = []
    for line in text.split("\n"):
        if line.startswith("{"):
            try:
                found.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeError):
                continue
    return found
