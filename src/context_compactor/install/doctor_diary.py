"""What hooks could not do in the last day, from their diary: each problem once, the newest first."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from context_compactor.agents.diary import FILE, read_lines
from context_compactor.agents.places import HOME
from context_compactor.agents.traces import seconds_of
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, moment, ok, wrong

AREA = "diary"
_DAY = 24 * 60 * 60
_MOST = 5
_REMEDIES = (
    ("BadSetting", "compactor config"),
    ("locked by another process", "Look for a process that hangs with .compactor/compactor.db open, and end it"),
    ("has been writing for", "Look for a hook that hangs (`ps -ef | grep 'compactor hook'`), and end it"),
    ("disk is full", "Free some space"),
    ("No space left", "Free some space"),
    ("PermissionError", "Give yourself the right to write in .compactor"),
    ("damaged", "compactor verify"),
    ("newer version", "Update context-compactor"),
    ("there is no event", "Register the hooks of this version: compactor install"),
    ("standard input", "Only agents call `compactor hook`; another program may have done so"),
    ("no session_id", "Only agents call `compactor hook`; another program may have done so"),
)


class _Group(Struct):
    event: str
    problem: str
    count: int
    last: float


def diary(case: Case) -> Iterator[Finding]:
    """The failures of the last day, grouped."""
    lines = [line for line in read_lines(str(case.root)) if line.get("what") == "failed"]
    groups: dict[tuple[str, str], _Group] = {}
    for line in lines:
        event, problem, at = str(line.get("event")), str(line.get("problem")), seconds_of(line.get("time"))
        if at > case.now - _DAY:
            group = groups.setdefault((event, problem), _Group(event, problem, 0, at))
            group.count, group.last = group.count + 1, max(group.last, at)
    found = sorted(groups.values(), key=lambda group: group.last, reverse=True)
    if not found and case.rows:
        yield ok(AREA, "no hook has failed in the last day")
    for group in found[:_MOST]:
        yield _told(case, group)
    if len(found) > _MOST:
        more = f"{len(found) - _MOST} more kinds of failures in the last day"
        yield look(AREA, more, f"Read {case.root / HOME / FILE}")


def _told(case: Case, group: _Group) -> Finding:
    times = f"{group.count:,}× in the last day, last at {moment(group.last)}"
    what = f"{group.event or 'a hook'} failed {times}: {group.problem}"
    remedy = next((remedy for word, remedy in _REMEDIES if word in group.problem), "")
    if _has_worked_since(case, group):
        return look(AREA, f"{what}. It has worked since", remedy or "Nothing to do")
    return wrong(AREA, what, remedy or f"Report it, with its line of {case.root / HOME / FILE}")


def _has_worked_since(case: Case, group: _Group) -> bool:
    """A hook notes that it came before it notes that it failed, so a later note is of one that did not fail."""
    for row in case.rows:
        if group.event == "post-tool-use" and row.updated_at > group.last + 1:
            return True
        try:
            noted = json.loads(row.events).get(group.event)
        except ValueError:
            continue
        if isinstance(noted, list) and seconds_of(noted[-1]) > group.last:
            return True
    return False
