"""Ledgers: facts as lines of the record, under fixed headings and in fixed words, so that they merge line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from context_compactor.classify.telling import BETWEEN
from context_compactor.facts.fact import Fact
from context_compactor.messages.record import FAILED, FINDINGS, RULES, STANDING, TASK, Entry, entry_line
from context_compactor.plan.options import Line

# Under which heading a fact stands, and by which word, for each status it can have.
_PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "task": (TASK, {}),
    "constraint": (RULES, {"active": ""}),
    "mode": (STANDING, {"active": "mode", "done": "mode"}),
    "todo": (STANDING, {"active": "doing", "superseded": "dropped"}),
    "blocker": (STANDING, {"open": "asked"}),
    "next_step": (STANDING, {"open": "next", "active": "next"}),
    "decision": (FINDINGS, {}),
    "failure": (FAILED, {}),
    "file_state": (STANDING, {}),
    "side_effect": (STANDING, {"done": "outside"}),
    "approval": (STANDING, {"": "allowed by the user"}),
    "denial": (STANDING, {"": "denied by the user"}),
    "subagent": (STANDING, {"done": "sub-agent done", "failed": "sub-agent failed"}),
    "dependency": (STANDING, {"": "installed"}),
    "command": (STANDING, {}),
    "error": (STANDING, {"": "error"}),
}
# Lines of which a later one about the same subject takes the place, whatever it says of it.
FILE_STATUSES = ("uncommitted", "committed", "created", "edited", "deleted", "read")
_OF_SUBJECT = frozenset(
    (*FILE_STATUSES, "installed", "passed", "failed", "running", "sub-agent done", "sub-agent failed")
)
_ALWAYS = {"constraint", "decision", "mode", "blocker", "failure", "side_effect", "approval", "denial"}
_LONGEST_REST = 80
_ACT_LENGTH = 70
_FAILURE = re.compile(r"^`(.*)` → (.*) (\([^()]*\))$", re.DOTALL)
_SEEN = re.compile(r"^(.*) \((?:×(\d+), )?((?:turn|tool|file|agent)_\d+)\)$", re.DOTALL)


def ledger_lines(facts: Iterable[Fact]) -> list[Line]:
    """Every fact as the line that will stand for it."""
    return [
        Line(section_of(fact.kind), entry.text, fact.last_turn or fact.turn, _must(fact), entry.status)
        for fact, entry in ((fact, fact_entry(fact)) for fact in facts)
    ]


def _must(fact: Fact) -> bool:
    if fact.kind in _ALWAYS:
        return True
    return (fact.kind, fact.status) in {
        ("subagent", "running"),
        ("todo", "active"),
        ("todo", "blocked"),
        ("task", "active"),
        ("file_state", "uncommitted"),
    }


def fact_line(fact: Fact) -> str:
    """A fact in one line: its words, what came of it, how often and where."""
    return entry_line(section_of(fact.kind), fact_entry(fact))


def fact_entry(fact: Fact) -> Entry:
    """A fact as an entry of the record: its words with what came of it, and its status beside them."""
    body = _one_line(fact.content)
    if fact.kind == "failure":
        body = f"`{body}` → {_one_line(fact.detail)}"
    elif fact.kind in ("constraint", "task", "approval", "denial") and fact.role == "user":
        body = f'"{body}"'
    if fact.kind in ("side_effect", "denial"):
        body = _act(body, _one_line(fact.detail))
    elif fact.detail and fact.kind != "failure":
        body = f"{body} · {_one_line(fact.detail)}"
    times = f"×{fact.count}, " if fact.count > 1 else ""
    text = f"{body} ({times}{fact.ref or f'turn_{fact.last_turn or fact.turn:03d}'})"
    words = _PLACES[fact.kind][1]
    return Entry(text, words.get(fact.status, fact.status))


def _act(what: str, evidence: str) -> str:
    """Something that was done or refused: a commit by its name, other things in a few words with what shows them."""
    if what.startswith("git commit") and evidence.startswith("["):
        return evidence
    return f"{_cut(what, _ACT_LENGTH)} · {_cut(evidence, 2 * _ACT_LENGTH)}" if evidence else _cut(what, _ACT_LENGTH)


def section_of(kind: str) -> str:
    """The heading under which facts of a kind stand."""
    return _PLACES[kind][0]


def identity(section: str, entry: Entry) -> tuple[str, str]:
    """What an entry is about, whatever its count: entries with one identity are one fact at two times."""
    match = _SEEN.match(entry.text)
    body = match[1] if match else entry.text
    return section, body.split(" · ")[0] if section == STANDING and entry.status in _OF_SUBJECT else body


def merge_entries(entries: Iterable[Entry]) -> list[Entry]:
    """The entries in order; a later one with the same words and status adds its count to the first."""
    merged: dict[tuple[str, str], tuple[int, str]] = {}
    for entry in entries:
        match = _SEEN.match(entry.text)
        body, count, ref = (match[1], int(match[2] or 1), match[3]) if match else (entry.text, 1, "")
        seen = merged.get((entry.status, body), (0, ref))[0]
        merged[entry.status, body] = (seen + count, ref)
    return [Entry(_counted(body, count, ref), status) for (status, body), (count, ref) in merged.items()]


def _counted(body: str, count: int, ref: str) -> str:
    if not ref:
        return body
    return f"{body} (×{count}, {ref})" if count > 1 else f"{body} ({ref})"


def cut_failure(line: str, most: int) -> str:
    """A failure's line with at most so many characters of its command and of its error; 0 leaves it as it is."""
    match = _FAILURE.match(line) if most else None
    if match is None:
        return line
    error = BETWEEN.join(_cut(part, most) for part in match[2].split(BETWEEN))
    return f"`{_cut(match[1], most)}` → {error} {match[3]}"


def _cut(text: str, most: int) -> str:
    """The beginning of a text. A word is cut in two only when it is very long: two paths differ at their ends."""
    if len(text) <= most:
        return text
    end = text.find(" ", most)
    if end < 0:
        end = len(text)
    cut = text[: end if end - most <= _LONGEST_REST else most].rstrip()
    return cut if len(cut) == len(text) else f"{cut}…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
