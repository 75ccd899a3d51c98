"""Extracts the facts of a conversation without a model, and writes them as ledgers: lines under fixed headings that
merge line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from context_compactor.dialects.record import FAILED, FINDINGS, RULES, STANDING, TASK, RecordEntry, entry_line
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.facts.calls import calls_in_turns
from context_compactor.facts.decisions import consent_facts, constraint_facts, decision_facts
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import (
    GIVEN_UP,
    OPEN,
    RESOLVED,
    CallTimeline,
    Failure,
    find_failures,
    merge_failures,
)
from context_compactor.facts.file_history import FileHistory, file_history
from context_compactor.facts.files import DescribeOutcome, command_facts, dependency_facts, file_facts
from context_compactor.facts.outputs import ERROR_SEPARATOR
from context_compactor.facts.side_effects import (
    ReportedEnd,
    running_facts,
    running_id,
    side_effect_facts,
    subagent_facts,
)
from context_compactor.facts.tasks import mode_facts, next_facts, task_facts, todo_facts
from context_compactor.facts.utterances import agent_utterances, is_labelled, user_utterances


def extract_facts(
    turns: Sequence[Turn],
    failures: Sequence[Failure] | None = None,
    history: FileHistory | None = None,
    describe_outcome: DescribeOutcome = lambda _use, _kind, _failure: "",
) -> list[Fact]:
    """All that must outlive the text, in the order of the ledgers. Give `failures` and `life` when they are known.

    `describe_outcome` says in one line how a run ended that passed.
    """
    if failures is None:
        failures = find_failures(turns)
    failed = {failure.exchange for failure in failures}
    if history is None:
        history = file_history(turns, failed)
    user, agent, calls = user_utterances(turns), agent_utterances(turns), calls_in_turns(turns)
    todos = todo_facts(calls)
    return [
        *task_facts(user, turns),
        *constraint_facts(user),
        *mode_facts(calls, turns),
        *todos,
        *next_facts(agent, user, turns, todos),
        *decision_facts(user, agent),
        *merge_failures(failures),
        *file_facts(history, calls),
        *side_effect_facts(calls, failed),
        *consent_facts(calls),
        *subagent_facts(calls, turns, failed),
        *dependency_facts(calls, failed),
        *running_facts(calls, turns),
        *command_facts(calls, {failure.exchange: failure.error for failure in failures}, describe_outcome),
    ]


class LedgerLine(Struct, frozen=True):
    """One line of a ledger. `must` lines stay whatever the budget; `turn` orders them."""

    section: str
    text: str
    turn: int
    must: bool = False
    status: str = ""

    @property
    def entry(self) -> RecordEntry:
        """The line as an entry of the record's section."""
        return RecordEntry(self.text, self.status)

    @property
    def written(self) -> str:
        """The line as the model reads it."""
        return entry_line(self.section, self.entry)


# Under which heading a fact stands, and by which word, for each status it can have.
_SECTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "task": (TASK, {}),
    "constraint": (RULES, {"active": ""}),
    "mode": (STANDING, {"active": "mode", "done": "mode"}),
    "todo": (STANDING, {"active": "doing", "superseded": "dropped"}),
    "blocker": (STANDING, {"open": "asked"}),
    "next_step": (STANDING, {"open": "next", "active": "next"}),
    "decision": (FINDINGS, {}),
    "failure": (FAILED, {"": "open", "denied": "given up"}),
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
_ALWAYS = {"constraint", "mode", "blocker", "side_effect", "approval", "denial"}
# What became of a failure that the user denied: a denial tells it as well.
_REFUSED = ("denied", RESOLVED)
_LONGEST_REST = 80
_ACT_LENGTH = 70
_TEST_PATH = re.compile(r"^FAILED \S*::(?=\S+ - )")
_FAILURE = re.compile(r"^`(.*)` → (.*) (\([^()]*\))$", re.DOTALL)
_SEEN = re.compile(r"^(.*) \((?:×(\d+), )?(?:turns (\d+)-(\d+), )?((?:turn|tool|file|agent)_\d+)\)$", re.DOTALL)
# What came of a failure, at the end of its line, in the words that `failures.CallTimeline` has for it.
_RESOLUTION = re.compile(
    r" → ((?:`[^`]+` |\w+ )?(?:passed|applied|worked|read|found at|no longer|in) [^→]*\bturn \d+[^→]*"
    r"|conflicts settled[^→]*|not tried again|aborted in turn \d+|denied by the user|(?:user|agent): \"[^→]*\")$"
)


def ledger_lines(facts: Iterable[Fact]) -> list[LedgerLine]:
    """Every fact as the line that will stand for it; what the user denied stands there once.

    How a command failed last stands with the failures, with what came of it.
    """
    facts = [fact for fact in facts if (fact.kind, fact.status) != ("command", "failed")]
    denied = {fact.ref for fact in facts if fact.kind == "denial"}
    twice = [fact for fact in facts if fact.kind == "failure" and fact.ref in denied and fact.status in _REFUSED]
    kept = [fact for fact in facts if fact not in twice]
    return [
        LedgerLine(section_of(fact.kind), entry.text, fact.last_turn or fact.turn, _is_required(fact), entry.status)
        for fact, entry in ((fact, fact_entry(fact)) for fact in kept)
    ]


def _is_required(fact: Fact) -> bool:
    if fact.kind in _ALWAYS or (fact.kind == "failure" and fact.status != RESOLVED):
        return True
    if fact.kind == "decision":
        # What the agent decided by itself can be seen in what it did; the user's word and a label cannot.
        return fact.status == "finding" or fact.role != "assistant" or bool(fact.detail) or is_labelled(fact.content)
    return (fact.kind, fact.status) in {
        ("command", "running"),
        ("subagent", "running"),
        ("todo", "active"),
        ("todo", "open"),
        ("todo", "blocked"),
        ("task", "active"),
        ("file_state", "uncommitted"),
        ("command", "passed"),
    }


def fact_line(fact: Fact) -> str:
    """A fact in one line: its words, what came of it, how often and where."""
    return entry_line(section_of(fact.kind), fact_entry(fact))


def fact_entry(fact: Fact) -> RecordEntry:
    """A fact as an entry of the record: its words with what came of it, and its status beside them."""
    body = _one_line(fact.content)
    if fact.kind == "failure":
        error = f'user: "{_one_line(fact.detail)}"' if fact.status == "denied" else _one_line(fact.detail)
        body = " → ".join(filter(None, (f"`{body}`", error, _one_line(fact.outcome))))
    elif fact.kind in ("constraint", "task", "approval", "denial") and fact.role == "user":
        body = f'"{body}"'
    if fact.kind in ("side_effect", "denial"):
        body = _act(body, _one_line(fact.detail))
    elif fact.detail and fact.kind != "failure":
        body = f"{body} · {_one_line(fact.detail)}"
    times = f"×{fact.count}, " if fact.count > 1 else ""
    if times and fact.kind == "failure" and fact.last_turn > fact.turn > 0:
        times += f"turns {fact.turn}-{fact.last_turn}, "
    text = f"{body} ({times}{fact.ref or f'turn_{fact.last_turn or fact.turn:03d}'})"
    words = _SECTIONS[fact.kind][1]
    return RecordEntry(text, words.get(fact.status, fact.status))


def _act(what: str, evidence: str) -> str:
    """Something that was done or refused: a commit by its name, other things in a few words with what shows them."""
    if what.startswith("git commit") and evidence.startswith("["):
        return evidence
    return f"{_cut(what, _ACT_LENGTH)} · {_cut(evidence, 2 * _ACT_LENGTH)}" if evidence else _cut(what, _ACT_LENGTH)


def section_of(kind: str) -> str:
    """The heading under which facts of a kind stand."""
    return _SECTIONS[kind][0]


def entry_identity(section: str, entry: RecordEntry) -> tuple[str, str]:
    """What an entry is about, whatever its count: entries with one identity are one fact at two times."""
    match = _SEEN.match(entry.text)
    body = match[1] if match else entry.text
    return section, body.split(" · ")[0] if section == STANDING and entry.status in _OF_SUBJECT else body


def ended_entry(entry: RecordEntry, ends: Mapping[str, ReportedEnd]) -> RecordEntry | None:
    """A line of an earlier record about something that ran, now that its end was reported; None for a command."""
    match = _SEEN.match(entry.text) if entry.status == "running" else None
    end = ends.get(running_id(match[1])) if match else None
    if match is None or end is None:
        return entry
    if not match[5].startswith("agent_"):
        return None
    ref = reference_id("turn", end.turn) if end.notice.report else match[5]
    body = " · ".join(filter(None, (match[1].split(" · ")[0], end.head)))
    return RecordEntry(f"{body} ({ref})", _SECTIONS["subagent"][1]["failed" if end.is_failure else "done"])


_GROUPED_STATUSES = ("uncommitted", "edited", "created", "deleted", "read")
# So many files of a status, the newest, keep a line of their own, with what changed in them.
_OWN_LINES = 8
_FOLDER = re.compile(r"([^\s{},]*/)\{([^{}]*)\}|([^\s{},]+)")
_GROUP = re.compile(rf"(?:{_FOLDER.pattern})(?:, (?:{_FOLDER.pattern}))*")


def group_files(
    lines: Sequence[LedgerLine], most: int, count: Callable[[str], int]
) -> tuple[list[LedgerLine], list[LedgerLine]]:
    """One line for each status with the names of older files, and the lines that stay.

    Each such line has at most so many tokens: who goes on with work on many files must know which ones are done.
    """
    groups: list[LedgerLine] = []
    grouped: set[int] = set()
    for status in _GROUPED_STATUSES:
        files = sorted((line for line in lines if line.status == status), key=lambda line: -line.turn)[_OWN_LINES:]
        named = [line for line in files if _FOLDER.fullmatch(_file_of(line))]
        while named and count(_group_text(named)) > most:
            named = named[: len(named) * 9 // 10]
        if named:
            groups.append(LedgerLine(STANDING, _group_text(named), min(line.turn for line in named), True, status))
            grouped.update(id(line) for line in named)
    return groups, [line for line in lines if id(line) not in grouped]


def split_group(entry: RecordEntry) -> list[RecordEntry]:
    """The files that a line of an earlier record names together, each as an entry; else the entry itself."""
    match = _GROUP.fullmatch(entry.text) if entry.status in _GROUPED_STATUSES else None
    if match is None:
        return [entry]
    paths = (
        f"{folder}{name}"
        for folder, names, single in _FOLDER.findall(match[0])
        for name in (names or single).split(", ")
    )
    return [RecordEntry(path, entry.status) for path in paths]


def _file_of(line: LedgerLine) -> str:
    match = _SEEN.match(line.text)
    return (match[1] if match else line.text).split(" · ")[0]


def _group_text(lines: Sequence[LedgerLine]) -> str:
    folders: dict[str, list[str]] = {}
    for line in sorted(lines, key=lambda line: line.turn):
        folder, slash, name = _file_of(line).rpartition("/")
        names = folders.setdefault(folder + slash, [])
        names += [name] if name not in names else []
    shown = (
        f"{folder}{{{', '.join(names)}}}" if folder and len(names) > 1 else ", ".join(folder + name for name in names)
        for folder, names in folders.items()
    )
    return ", ".join(shown)


class _MergedEntry(Struct, frozen=True):
    """Entries with the same words: what the last one says, and how often and when they were seen."""

    body: str
    status: str
    count: int = 0
    first: int = 0
    last: int = 0
    ref: str = ""

    @property
    def entry(self) -> RecordEntry:
        counts = [f"×{self.count}"] if self.count > 1 else []
        counts += [f"turns {self.first}-{self.last}"] if self.count > 1 and self.last > self.first > 0 else []
        return RecordEntry(f"{self.body} ({', '.join((*counts, self.ref))})" if self.ref else self.body, self.status)


def merge_entries(entries: Iterable[RecordEntry]) -> list[RecordEntry]:
    """The entries in order; a later one with the same words and status adds its count to the first.

    A failure is the same whatever came of it: the later entry says that.
    """
    merged: dict[tuple[str, str], _MergedEntry] = {}
    for entry in entries:
        match = _SEEN.match(entry.text)
        body, count, ref = (match[1], int(match[2] or 1), match[5]) if match else (entry.text, 1, "")
        first, last = (int(match[3] or 0), int(match[4] or 0)) if match else (0, 0)
        key = ("", _RESOLUTION.sub("", body)) if _is_failure(entry) else (entry.status, body)
        seen = merged.get(key, _MergedEntry(body, entry.status, first=first))
        merged[key] = _MergedEntry(body, entry.status, seen.count + count, seen.first, max(last, seen.last), ref)
    return [each.entry for each in merged.values()]


def _is_failure(entry: RecordEntry) -> bool:
    return entry.status in (OPEN, RESOLVED, GIVEN_UP) and entry.text.startswith("`")


def resolved_entry(entry: RecordEntry, timeline: CallTimeline) -> RecordEntry:
    """A failure's entry of an earlier record, resolved as far as the calls of later turns show it."""
    match = _FAILURE.match(entry.text) if entry.status != RESOLVED else None
    if match is None:
        return entry
    error = _RESOLUTION.sub("", match[2])
    how = timeline.later(match[1], error)
    return RecordEntry(f"`{match[1]}` → {error} → {how} {match[3]}", RESOLVED) if how else entry


def cut_failure(line: str, most: int) -> str:
    """A failure's line with at most so many characters of its command and of its error; 0 leaves it as it is."""
    match = _FAILURE.match(line) if most else None
    if match is None:
        return line
    outcome = _RESOLUTION.search(match[2])
    rest = match[2][: outcome.start()] if outcome else match[2]
    error = ERROR_SEPARATOR.join(_cut(_without_path(part, most), most) for part in rest.split(ERROR_SEPARATOR))
    return f"`{_cut(match[1], most)}` → {error}{f' → {_cut(outcome[1], most)}' if outcome else ''} {match[3]}"


def _without_path(text: str, most: int) -> str:
    """A failed test by its own name where its path would leave no room for what it says."""
    return _TEST_PATH.sub("", text) if len(text) > most else text


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
