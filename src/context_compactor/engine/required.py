"""What the record must say whatever is chosen: quotes of the user, and ledger lines that may not be left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from context_compactor.dialects.messages import Media
from context_compactor.dialects.record import FAILED, FINDINGS, RULES, SECTIONS, STANDING, TASK, Quote, Record
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import OPEN, RESOLVED, timeline_of
from context_compactor.facts.ledgers import (
    FILE_STATUSES,
    LedgerLine,
    cut_failure,
    ended_entry,
    entry_identity,
    group_files,
    ledger_lines,
    merge_entries,
    resolved_entry,
    split_group,
)
from context_compactor.facts.side_effects import reported_ends
from context_compactor.facts.utterances import is_labelled, own_words
from context_compactor.text import beginning, ending

PROJECT_RULES = "project_rules"
LEFT_OUT = "characters left out"
_CUT = re.compile(rf'\n\[… ([\d,]+) {LEFT_OUT}: (?:recall\("turn_\d+"\)|turn_\d+)\]\n')
# A quote's share of the target, the tokens it may always have, and those that a cut must save to be worth its mark.
_QUOTE_SHARE = 0.07
# The share of the target for the names of changed files that have no line of their own.
_FILES_SHARE = 0.06
_SHORT_QUOTE = 60
_LEAST_CUT = 20


def find_quotes(
    facts: Sequence[Fact], turns: Sequence[Turn], past: Record | None, target: int, count: Callable[[str], int]
) -> tuple[Quote, ...]:
    """What the user asked for first and last, and project instructions in the user's name, as far as they are short."""
    by_number = {turn.number: turn for turn in turns}
    tasks = {fact.turn: fact.status for fact in facts if fact.kind == "task"}
    fresh = [_quote(by_number[number], status) for number, status in tasks.items() if number in by_number]
    earlier = [
        structs.replace(quote, status="earlier") if tasks and quote.status == "active" else quote
        for quote in (past.quotes if past else ())
    ]
    known = [quote for quote in (*earlier, *fresh) if quote.text and quote.status != PROJECT_RULES]
    rules = [quote for quote in earlier if quote.status == PROJECT_RULES]
    rules += [
        Quote(reference_id("turn", turn.number), turn.messages[0].text, PROJECT_RULES)
        for turn in turns
        if _is_project_rules(turn)
    ]
    kept = dict.fromkeys((*rules, *known[:1], *known[-1:]))
    most = max(int(_QUOTE_SHARE * target), _SHORT_QUOTE)
    return tuple(_fitting(quote, most, count) for quote in kept)


def _fitting(quote: Quote, most: int, count: Callable[[str], int]) -> Quote:
    """A quote within its share: of a longer one the first and the last lines, with a mark between them."""
    mark = _CUT.search(quote.text)
    gone = int(mark[1].replace(",", "")) if mark else 0
    before, after = (quote.text[: mark.start()], quote.text[mark.end() :]) if mark else (quote.text, quote.text)
    tokens = count(quote.text)
    if tokens <= most + _LEAST_CUT:
        return quote
    room = len(quote.text) * most // tokens
    head, tail = beginning(before, room * 2 // 3), ending(after, room // 3)
    left = gone + (len(before) + len(after) if mark else len(quote.text)) - len(head) - len(tail)
    text = f'{head}\n[… {left:,} {LEFT_OUT}: recall("{quote.ref}")]\n{tail}'
    return structs.replace(quote, text=text)


def _is_project_rules(turn: Turn) -> bool:
    """Whether a turn in the user's name holds project instructions that a client put there."""
    start = turn.messages[0].text[:200].lstrip()
    return turn.role == "user" and start.startswith(("# AGENTS.md instructions", "<user_instructions>"))


def _quote(turn: Turn, status: str) -> Quote:
    words = "\n".join(filter(None, (own_words(message) for message in turn.messages if message.role == "user")))
    return Quote(reference_id("turn", turn.number), words.strip("\n"), status)


_ROOT_LINE = re.compile(r"paths are below (\S+) or absolute")
# Shares of the target: how the work stands, the user's rules, decisions and findings, and the failures.
_UNLIMITED = (TASK, FAILED)
_LASTING = (FAILED, RULES, FINDINGS)
# Statuses of lines that stay until they are overtaken.
_STAYING = ("active", "doing", "blocked", "outside", "allowed by the user", "denied by the user", FILE_STATUSES[0])
_LEDGER_SHARE = 0.12
_RULES_SHARE = 0.15
_FINDINGS_SHARE = 0.08
_LEAST_RULES = 150
_FAILURE_SHARE = 0.15
_RESOLVED_SHARE = 0.06
_FAILURE_LENGTHS = (0, 110, 80, 64)


class RequiredContent(Struct, frozen=True):
    """Quotes and lines that stay, and lines that compete with everything else."""

    quotes: tuple[Quote, ...]
    must: tuple[LedgerLine, ...]
    optional: tuple[LedgerLine, ...]

    def texts(self) -> list[str]:
        """Everything that stands in the context whatever is chosen."""
        return [*(quote.text for quote in self.quotes), *(line.written for line in self.must)]


def required_content(
    facts: Sequence[Fact],
    turns: Sequence[Turn],
    past: Record | None,
    target: int,
    count: Callable[[str], int],
    root: str = "",
) -> RequiredContent:
    """Sort what is known of the folded turns. `turns` are those that are folded; labels show paths below `root`."""
    gone = {turn.number for turn in turns}
    fresh = ledger_lines(fact for fact in facts if fact.turn in gone or fact.last_turn in gone)
    if root:
        below = (structs.replace(line, text=line.text.removeprefix(root)) for line in fresh)
        fresh = [short if line.status in FILE_STATUSES else line for line, short in zip(fresh, below, strict=True)]
    # The task as first given must stay, like the one that is active.
    first = None if past else next((line for line in fresh if line.section == TASK), None)
    known = [structs.replace(line, must=True) if line is first else line for line in fresh]
    lines = _short_failures([*_past_lines(past, fresh, turns), *known, *_pictures(turns)], target, count)
    quotes = find_quotes(facts, turns, past, target, count)
    lines = [line for line in lines if not _is_quoted(line, quotes, quotes[:-1] or quotes)]
    must, optional = _within(lines, target, count)
    # Requests that are over are told with what came of them, as the user's words in what happened. Those that an
    # earlier record lists stand nowhere else.
    optional = [line for line in optional if line.section != TASK or line.turn == 0]
    groups, optional = group_files(optional, int(_FILES_SHARE * target), count)
    must += groups
    if root and turns and not any(_ROOT_LINE.fullmatch(line.text) for line in must):
        must.insert(0, LedgerLine(STANDING, f"paths are below {root} or absolute", -1, True))
    return RequiredContent(quotes, _merged(must), tuple(sorted(optional, key=lambda line: line.turn)))


def record_root(past: Record | None) -> str | None:
    """The folder that an earlier record leaves out of its paths; None when there is no record yet."""
    if past is None:
        return None
    found = _ROOT_LINE.fullmatch(root_line(past))
    return found[1] if found else ""


def root_line(record: Record) -> str:
    """The line that says which folder a record leaves out of its paths; nothing when it leaves out none."""
    return next((entry.text for entry in record.sections.get(STANDING, ()) if _ROOT_LINE.fullmatch(entry.text)), "")


def _short_failures(lines: Sequence[LedgerLine], target: int, count: Callable[[str], int]) -> list[LedgerLine]:
    """The lines; where the failures alone would take too much, each of them says less, the resolved ones first."""
    room = int(_FAILURE_SHARE * target)
    failures = [line for line in lines if line.section == FAILED]
    others = _shortened([line for line in failures if line.status != RESOLVED], room, count)
    room -= sum(count(line.text) for line in others)
    resolved = _shortened([line for line in failures if line.status == RESOLVED], room, count)
    return [*(line for line in lines if line.section != FAILED), *others, *resolved]


def _shortened(failures: Sequence[LedgerLine], room: int, count: Callable[[str], int]) -> list[LedgerLine]:
    short = list(failures)
    for most in _FAILURE_LENGTHS:
        short = [structs.replace(line, text=cut_failure(line.text, most)) for line in failures]
        if sum(count(line.text) for line in short) <= room:
            break
    return short


def _pictures(turns: Sequence[Turn]) -> list[LedgerLine]:
    """A line for each turn whose pictures or documents leave the context with it."""
    found: list[LedgerLine] = []
    for turn in turns:
        shown = [part for _, _, _, part in turn.parts() if isinstance(part, Media)]
        if shown:
            kinds = ", ".join(dict.fromkeys(media.kind for media in shown))
            found.append(LedgerLine(STANDING, f"shown: {kinds} ({reference_id('turn', turn.number)})", turn.number))
    return found


def _is_quoted(line: LedgerLine, quotes: Sequence[Quote], lasting: Sequence[Quote]) -> bool:
    """Whether a line says again what a quote says. The newest quote makes way for a newer one: its rules may not."""
    if line.section == TASK:
        return any(line.text.endswith(f"({quote.ref})") for quote in quotes)
    if line.section == RULES:
        return any(line.text.endswith(f"({quote.ref})") and LEFT_OUT not in quote.text for quote in lasting)
    return False


# What an agent was about to do is done or dropped once it has gone on, and a question once the user has spoken.
_SETTLED_BY = {"next": "assistant", "asked": "user"}


def _past_lines(past: Record | None, fresh: Sequence[LedgerLine], turns: Sequence[Turn]) -> list[LedgerLine]:
    """The lines of an earlier record, but for those that newer ones have overtaken.

    A failure that turns since then made good is resolved, and what they report to have ended no longer runs.
    """
    if past is None:
        return []
    course = timeline_of(turns) if past.sections.get(FAILED) else None
    overtaken = {entry_identity(line.section, line.entry) for line in fresh if line.section != FAILED}
    is_newer_task = any(line.section == TASK for line in fresh)
    speakers = {message.role for turn in turns for message in turn.messages}
    settled = {status for status, by in _SETTLED_BY.items() if by in speakers}
    ends = reported_ends(turns)
    lines = []
    for title in past.titles():
        entries = (file for each in past.sections.get(title, ()) for file in split_group(each))
        for entry in filter(None, (ended_entry(each, ends) for each in entries)):
            is_settled = title == STANDING and entry.status in settled
            if not is_settled and entry_identity(title, entry) not in overtaken:
                now = resolved_entry(entry, course) if course and title == FAILED else entry
                status = _status_now(title, now.status, is_newer_task)
                is_lasting = title in _LASTING or title not in SECTIONS
                must = is_lasting or status in _STAYING or bool(_ROOT_LINE.fullmatch(now.text))
                lines.append(LedgerLine(title, now.text, 0, must and status != RESOLVED, status))
    return lines


def _status_now(title: str, status: str, is_newer_task: bool) -> str:
    """The status of an earlier record's line: a newer task overtakes the active one."""
    if title == TASK and is_newer_task and status == "active":
        return "earlier"
    return status or OPEN if title == FAILED else status


def _within(
    lines: Sequence[LedgerLine], target: int, count: Callable[[str], int]
) -> tuple[list[LedgerLine], list[LedgerLine]]:
    """All failures that are not resolved and the task stay; other lines that must stay do so within their share, and
    so do the failures that were resolved.

    The user's rules have a share of their own, and so has what was decided and found; of both, what was labelled comes
    first, however old it is. Else the newest count, and how the work stands before what is known of files.
    """
    must: list[LedgerLine] = []
    optional: list[LedgerLine] = []
    room = {
        RULES: max(int(_RULES_SHARE * target), min(_LEAST_RULES, target // 8)),
        FINDINGS: int(_FINDINGS_SHARE * target),
        RESOLVED: int(_RESOLVED_SHARE * target),
        "": int(_LEDGER_SHARE * target),
    }
    for line in sorted(lines, key=_rank):
        is_resolved = line.section == FAILED and line.status == RESOLVED
        share = RESOLVED if is_resolved else line.section if line.section in room else ""
        is_free = not is_resolved and (line.section in _UNLIMITED or _ROOT_LINE.fullmatch(line.text))
        is_must = line.must or is_resolved
        cost = count(line.written) if is_must and not is_free else 0
        if is_must and cost <= room[share]:
            must.append(line)
            room[share] -= cost
        else:
            optional.append(line)
    return must, optional


def _rank(line: LedgerLine) -> tuple[bool, bool, bool, int]:
    """What is known of files comes after how the work stands, what was found out after what was decided; a file that
    the agent made itself is oftener a scratch file than one that it changed."""
    is_file = line.status in FILE_STATUSES
    is_new_file = is_file and " · created" in line.text
    return not is_labelled(line.text), is_file or line.status == "finding", is_new_file, -line.turn


def _merged(lines: Sequence[LedgerLine]) -> tuple[LedgerLine, ...]:
    merged: list[LedgerLine] = []
    for title in dict.fromkeys((*SECTIONS, *(line.section for line in lines))):
        entries = [line.entry for line in sorted(lines, key=lambda line: line.turn) if line.section == title]
        merged.extend(LedgerLine(title, entry.text, 0, True, entry.status) for entry in merge_entries(entries))
    return tuple(merged)
