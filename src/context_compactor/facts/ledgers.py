"""Ledgers: facts as lines of the record, under fixed headings and in fixed words, so that they merge line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from context_compactor.classify.telling import BETWEEN
from context_compactor.facts.fact import Fact
from context_compactor.messages.record import Entry, entry_line
from context_compactor.plan.options import Line

SECTION_OF = {
    "task": "Task",
    "constraint": "Rules and corrections by the user",
    "mode": "State",
    "todo": "State",
    "blocker": "State",
    "next_step": "State",
    "decision": "Decisions",
    "failure": "Failed before, do not repeat",
    "file_state": "Files",
    "side_effect": "Done outside, not to be done again",
    "approval": "Done outside, not to be done again",
    "denial": "Done outside, not to be done again",
    "subagent": "Running",
    "dependency": "Other facts",
    "command": "Other facts",
    "error": "Other facts",
}
_ALWAYS = {"constraint", "decision", "mode", "blocker", "failure", "side_effect", "approval", "denial"}
_LONGEST_REST = 80
_FAILURE = re.compile(r"^`(.*)` → (.*) (\([^()]*\))$", re.DOTALL)
_SEEN = re.compile(r"^(.*) \((?:×(\d+), )?((?:turn|tool|file|agent)_\d+)\)$", re.DOTALL)


def ledger_lines(facts: Iterable[Fact]) -> list[Line]:
    """Every fact as the line that will stand for it."""
    return [
        Line(_section(fact), entry.text, fact.last_turn or fact.turn, _must(fact), entry.status)
        for fact, entry in ((fact, fact_entry(fact)) for fact in facts)
    ]


def _section(fact: Fact) -> str:
    if fact.kind == "subagent" and fact.status != "running":
        return "Other facts"
    return SECTION_OF[fact.kind]


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
    return entry_line(_section(fact), fact_entry(fact))


def fact_entry(fact: Fact) -> Entry:
    """A fact as an entry of the record: its words with what came of it, and its status beside them."""
    body = _one_line(fact.content)
    if fact.kind == "failure":
        body = f"`{body}` → {_one_line(fact.detail)}"
    elif fact.kind in ("constraint", "task", "approval", "denial") and fact.role == "user":
        body = f'"{body}"'
    if fact.kind == "denial":
        body = f"the user denied: {body}"
    if fact.detail and fact.kind != "failure":
        body = f"{body} · {_one_line(fact.detail)}"
    times = f"×{fact.count}, " if fact.count > 1 else ""
    text = f"{body} ({times}{fact.ref or f'turn_{fact.last_turn or fact.turn:03d}'})"
    return Entry(text, fact.status if fact.kind not in ("failure", "constraint") else "")


def identity(section: str, text: str) -> str:
    """What a line is about, whatever its count: lines with one identity are one fact at two times."""
    match = _SEEN.match(text)
    body = match[1] if match else text
    return body.split(" · ")[0] if section in ("Files", "Other facts") else body


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
