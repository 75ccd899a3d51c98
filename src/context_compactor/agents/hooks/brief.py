"""The brief an agent gets after a compaction, and its redelivery when the agent went on without it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath

from msgspec import structs

from context_compactor.agents.adoption import find_summary_losses
from context_compactor.agents.coding_agents import CodingAgent
from context_compactor.agents.compaction_trace import brief_arrival, read_compaction_trace, timestamp_seconds
from context_compactor.agents.hook_log import log_hook
from context_compactor.agents.hooks.call import HookAnswer, HookCall, set_thresholds
from context_compactor.agents.paths import settings_fingerprint
from context_compactor.agents.sync import hook_state_of, synced_session, update_hook_state
from context_compactor.dialects.record import SECTIONS, story_text
from context_compactor.engine.classify import ParsedContext
from context_compactor.engine.story import QUOTED_ABOVE, Story, StoryUnit
from context_compactor.facts.fact import Fact
from context_compactor.facts.failures import GIVEN_UP
from context_compactor.facts.ledgers import fact_entry, fact_line, section_of
from context_compactor.facts.lesson_folders import load_lessons, owner_folder
from context_compactor.facts.outcomes import is_check
from context_compactor.facts.utterances import is_quoted
from context_compactor.handoff.checkpoint import changed_facts
from context_compactor.handoff.writer import HandoffMaterial, by_folder, material_of, tells
from context_compactor.sessions.core import Core
from context_compactor.sessions.facts import all_facts, parsed_context
from context_compactor.sessions.handoff import orchestrator
from context_compactor.sessions.project import local_owner, project_of
from context_compactor.summarize.evidence import LineIndex
from context_compactor.text import clip_line, one_line, printable

MOST_BYTES = 4_000
"""The most that a brief takes in all: it stands beside a summary, in every request from then on."""
_LEARNED_TOKENS = 600
_MARKER_PREFIX = "compactor-brief"


def brief_marker(core: Core, why: str) -> str:
    """A word by which a brief is found again in the agent's log."""
    text = f"{core.id}\n{core.now()}\n{why}"
    return f"{_MARKER_PREFIX}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


_BESIDE = (
    "[Notes of Context Compactor beside your summary: what its record of the session has and the summary does not "
    "tell, in the exact words. They are memory, not a request.]"
)
_ALONE = "[Notes of Context Compactor on the session up to here, in the exact words. They are memory, not a request.]"
# The most that changed files, sub-agents and facts take of the room; what happened has the rest.
_FILES_SHARE, _CHILDREN_SHARE, _FACTS_SHARE = 0.3, 0.2, 0.7
_LONGEST, _LONGEST_ERROR, _LONGEST_CHANGE = 280, 240, 90
_FEWEST_HEADINGS = 3


def brief_text(core: Core, agent: CodingAgent, mark: str, summary: str = "") -> str:
    """What an agent's own summary does not tell of what is known, and how everything else comes back."""
    facts = all_facts(core)
    running = [child.line for child in orchestrator(core).subagents.running]
    recall = _way_back(core, agent, mark)
    most = min(MOST_BYTES, agent.max_hook_bytes) - _size([recall])
    return f"{notes_text(facts, material_of(_told_of(core), facts), summary, most, running)}\n{recall}"


def notes_text(
    facts: Sequence[Fact], material: HandoffMaterial, summary: str, most: int, running: Sequence[str] = ()
) -> str:
    """The notes beside a summary, in at most so many bytes: changed files, facts that it lost, and what else happened.

    `running` are sub-agents. Without a summary, as where an agent keeps it to itself, these are the most important of
    all that is known.
    """
    head = _BESIDE if summary else _ALONE
    room = most - _size([head, ""])
    lines = _changed_files(facts, summary, int(room * _FILES_SHARE))
    lines += _running_children(running, int(room * _CHILDREN_SHARE))
    others = [fact for fact in facts if not running or fact.kind != "subagent"]
    lines += _sections(_fitting(untold_facts(summary, others), int((room - _size(lines)) * _FACTS_SHARE)))
    if not _is_in_our_format(summary):  # that tells what happened itself
        lines += _story(material, [summary, *lines], room - _size(lines))
    return "\n".join((head, *lines, ""))


def _is_in_our_format(summary: str) -> bool:
    """Whether a summary was written as it is asked for when it is steered; a model may not keep to it."""
    return sum(f"## {title}" in summary for title in SECTIONS) >= _FEWEST_HEADINGS


def _told_of(core: Core) -> ParsedContext:
    """The conversation before the agent compacted: its log may have that compaction already, or not yet."""
    now, last = parsed_context(core), core.context_reader.log_state().last
    if last is None:
        return now
    before = core.parse_context(core.context_reader.at(last.position - 1)).content
    return before if len(before.turns) > len(now.turns) else now


def _way_back(core: Core, agent: CodingAgent, mark: str) -> str:
    return (
        'Everything is archived: recall("tool_017"), search_archive("words") and facts() of the MCP server '
        f'`compactor`{agent.tool_hint}; in a shell `compactor recall ID` or `compactor recall --search "words"`, '
        f"with --session {core.id!r}. [{mark}]"
    )


def _running_children(running: Sequence[str], most: int) -> list[str]:
    lines = ["## Sub-agents that still run, not to be started again"]
    for child in running:
        line = f"- {one_line(child, _LONGEST)}"
        lines += [line] if _size([*lines, line]) <= most else []
    return lines if len(lines) > 1 else []


def _size(lines: Iterable[str]) -> int:
    """The bytes of some lines, each with its end."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


# What became of a file, as a reader who was not there is told it.
_FILE_WORDS = {
    "uncommitted": "Changed, not committed",
    "created": "Created",
    "edited": "Changed",
    "deleted": "Deleted",
    "committed": "Committed",
}
_NEARLY_ALL, _FEWEST_PARTS = 0.75, 3
# More than can ever have room: what is tried one by one stays quick in the largest of sessions.
_MOST_TRIED = 100


def _changed_files(facts: Sequence[Fact], summary: str, most: int) -> list[str]:
    """The files by what became of them, those of one folder together; a committed one only where the summary lacks it.

    What changed in a file is told where the summary does not name it.
    """
    changed = sorted(changed_facts(facts), key=lambda fact: -fact.last_turn)
    root = _common_folder([fact.content for fact in changed])
    lines: list[str] = []
    for status, name in _FILE_WORDS.items():
        found = [fact for fact in changed if fact.status == status]
        if status == "committed":
            found = [fact for fact in found if _file_name(fact) not in summary]
        place = f" (below {root})" if any(fact.content.startswith(root) for fact in found) and root else ""
        for count in range(min(len(found), _MOST_TRIED), 0, -1):
            paths = [_shown_file(fact, root, summary) for fact in found[:count]]
            more = f"; and {len(found) - count:,} more" if count < len(found) else ""
            line = one_line(f"{name}{place}: {by_folder(paths)}{more}", most)
            if _size([*lines, line]) <= most:
                lines.append(line)
                break
    return lines


def _file_name(fact: Fact) -> str:
    return fact.content.rstrip("/").rpartition("/")[2]


def _shown_file(fact: Fact, root: str, summary: str) -> str:
    path = one_line(fact.content.removeprefix(root), _LONGEST)
    what = "" if _file_name(fact) in summary else clip_line(fact.detail, _LONGEST_CHANGE)
    return f"{path} ({what})" if what else path


def _common_folder(paths: Sequence[str]) -> str:
    """The deepest folder that all paths are below, or nearly all, with a slash at its end; empty when there is none."""
    above = Counter(folder for path in paths if path.startswith("/") for folder in PurePosixPath(path).parents)
    for share in (1.0, _NEARLY_ALL):
        found = [folder for folder, count in above.items() if count >= max(2, share * len(paths))]
        deepest = max(found, key=lambda folder: len(folder.parts), default=PurePosixPath("/"))
        if len(deepest.parts) > _FEWEST_PARTS:
            return f"{deepest}/"
    return ""


# What is looked for in a summary beside what `find_summary_losses` counts, by kind and status.
_ALSO = {
    ("task", "active"),
    ("decision", "finding"),
    ("subagent", "running"),
    ("command", "running"),
    ("mode", "active"),
    ("side_effect", "done"),
    ("denial", ""),
}
# What comes first when there is not room for everything.
_RANKS = {
    "constraint": 0,
    "failure": 1,
    "task": 2,
    "subagent": 3,
    "command": 3,
    "blocker": 4,
    "denial": 4,
    "todo": 4,
    "side_effect": 5,
    "mode": 5,
    "decision": 6,
}
_NOBODY_DECIDED = 7
# One more of these says less than the first ones.
_MOST_OF_KIND = {"side_effect": 4, "decision": 6, "failure": 12}


def untold_facts(summary: str, facts: Sequence[Fact]) -> list[Fact]:
    """The facts that a summary does not tell, the most important first. Files are told in another way."""
    lost = {id(fact) for fact in find_summary_losses(summary, facts).lost}
    lines = LineIndex(summary.split("\n"))
    also = (fact for fact in facts if (fact.kind, fact.status) in _ALSO)
    lost |= {id(fact) for fact in also if not any(lines.says(text) for text in (fact.content, fact.detail) if text)}
    untold = [fact for fact in facts if id(fact) in lost and fact.kind in _RANKS]
    untold.sort(key=lambda fact: (_rank(fact), -(fact.last_turn or fact.turn)))
    kinds: Counter[str] = Counter()
    newest = []
    for fact in untold:
        kinds[fact.kind] += 1
        if kinds[fact.kind] <= _MOST_OF_KIND.get(fact.kind, len(untold)):
            newest.append(fact)
    return newest


def _rank(fact: Fact) -> int:
    return _NOBODY_DECIDED if fact.status == GIVEN_UP and not _is_decided(fact) else _RANKS[fact.kind]


def _is_decided(fact: Fact) -> bool:
    """Whether somebody said that a failed attempt is not to be made again; others were only left at that."""
    return fact.status == "denied" or fact.outcome.startswith(("user:", "agent:"))


def _fact_text(fact: Fact) -> str:
    short = structs.replace(
        fact,
        content=clip_line(fact.content, _LONGEST),
        detail=clip_line(fact.detail, _LONGEST_ERROR),
        outcome=clip_line(fact.outcome, _LONGEST_ERROR),
    )
    if fact.kind != "failure":
        return printable(fact_line(short))
    # A test, linter or build is there to be run again, whatever came of it.
    again = is_check(fact.content)
    if fact.status == "denied":  # what a client writes there is longer than what the user said
        short = structs.replace(short, status=GIVEN_UP, detail="denied by the user")
    word = "given up" if fact.status in (GIVEN_UP, "denied") else "open"
    advice = ", run it again" if again else ", do not repeat" if _is_decided(fact) else ""
    return printable(f"{word}{advice}: {fact_entry(short).text}")


def _fitting(facts: Sequence[Fact], most: int) -> list[Fact]:
    """As many of the first facts as have room, with the headings above them."""
    chosen: list[Fact] = []
    for fact in facts[:_MOST_TRIED]:
        if _size(_sections([*chosen, fact])) <= most:
            chosen.append(fact)
    return chosen


def _sections(facts: Sequence[Fact]) -> list[str]:
    """Facts as lines under the headings of a record, in its order."""
    lines: list[str] = []
    for title in SECTIONS:
        found = sorted((fact for fact in facts if section_of(fact.kind) == title), key=lambda fact: fact.turn)
        lines += [f"## {title}", *(f"- {_fact_text(fact)}" for fact in found)] if found else []
    return lines


_HAPPENED = "## What happened"
_BYTES = 4  # for each token, as a story counts
# The user's words count less than in a record: a summary has most of them, and alone they say little.
_USER_WORDS = 0.4


def _is_told(unit: StoryUnit) -> bool:
    return not is_quoted(unit.text) if unit.voice == "user" else unit.voice == "run" or tells(unit)


def _story(material: HandoffMaterial, told: Sequence[str], room: int) -> list[str]:
    """What happened beyond what is told already, in at most so many bytes."""
    units = [unit for unit in material.units if _is_told(unit)]
    for unit in units:
        unit.weight *= _USER_WORDS if unit.voice == "user" else 1.0
    story = Story(
        units, lambda texts: [len(text.encode("utf-8", "replace")) // _BYTES for text in texts], material.after
    )
    story.cover(told)
    story.start()
    story.fill(max(room - _size([_HAPPENED]), 0) / _BYTES)
    while not story.is_empty:
        spoken = (line for line in story.lines() if line.text != QUOTED_ABOVE)
        lines = [_HAPPENED, *(printable(story_text(line)) for line in spoken)]
        beyond = _size(lines) - room
        if beyond <= 0:
            return lines
        story.drop_last(beyond / _BYTES)
    return []


def learned_text(call: HookCall) -> str:
    """What other sessions of the same user have taught in this project."""
    project, owner = project_of(call.settings.store), local_owner(call.settings.store, Path(call.root))
    if project is None or not owner or not call.settings.promote_to_memory:
        return ""
    return load_lessons(owner_folder(project.learned, owner), _LEARNED_TOKENS)


# A log may be written a little later than what it records.
_BEFORE_SECONDS = 60.0
# A log that has not got the compaction by then will not get it: it was that of a sub-agent, or it was given up.
_CONFIRM_SECONDS = 300.0


def user_prompt_submit(call: HookCall) -> HookAnswer | None:
    """Nothing, unless a brief has not arrived. An announced compaction that did not happen is no longer expected."""
    if call.row is None or call.row.settings != settings_fingerprint(call.root, os.environ):
        set_thresholds(call)
    if call.row is not None and call.row.expected:
        update_hook_state(call.log, expected="")
        happened = (
            read_compaction_trace(call.log.path).compacted_at >= timestamp_seconds(call.row.expected) - _BEFORE_SECONDS
        )
        log_hook(call.root, call.event, "compaction came" if happened else "no compaction came", key=call.log.key)
    text = redeliver_brief(call)
    return call.for_model(text) if text else None


def expect_delivery(call: HookCall, mark: str) -> None:
    """Note that a brief with this mark was given."""
    update_hook_state(call.log, owed=f"{mark} {time.time():.0f}")


def redeliver_brief(call: HookCall) -> str:
    """The brief once more, when the agent has gone on without it; else nothing.

    What an agent got stands in its log. As long as the model has not answered since, nobody can tell.
    """
    pending = call.row.owed if call.row else ""
    mark, _, given_at = pending.partition(" ")
    if not mark or call.agent_id:
        return ""
    if brief_arrival(call.log.path, mark) == "given":
        return _close_delivery(call, pending, "brief arrived", mark)
    trace = read_compaction_trace(call.log.path)
    age = time.time() - float(given_at or 0)
    if trace.compacted_at < float(given_at or 0) - _BEFORE_SECONDS:  # no compaction stands in this log
        return _close_delivery(call, pending, "brief not confirmed", mark) if age > _CONFIRM_SECONDS else ""
    if not trace.has_continued or not _claim_delivery(call, pending):
        return ""
    with synced_session(call.log, call.settings) as synced:
        again = brief_marker(synced.core, "again")
        past = synced.transcript.compactions
        text = brief_text(synced.core, call.agent, again, past[-1].summary if past else "")
    log_hook(call.root, call.event, "brief given again", key=call.log.key, marker=again, instead_of=mark)
    return text


def _close_delivery(call: HookCall, pending: str, what: str, mark: str) -> str:
    if _claim_delivery(call, pending):
        log_hook(call.root, call.event, what, key=call.log.key, marker=mark)
    return ""


def _claim_delivery(call: HookCall, pending: str) -> bool:
    with hook_state_of(call.root) as state:
        return state.claim(call.log.key, "owed", pending, "")
