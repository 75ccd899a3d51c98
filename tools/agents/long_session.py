"""The long session of a live check: many compactions one after the other, and what they cost, ours and the agent's."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from context_compactor.agents.hook_log import read_hook_log
from context_compactor.tokens.prices import price_of
from tools.agents.claude_code import MODEL, SESSION, ClaudeCode
from tools.agents.home import Home, new_home
from tools.agents.migration import DECISION, FAILED, FIRST_FAILURE, PROMPTS, RULES, long_story, make_shop
from tools.agents.promises import Promise, answer_of, record_in, told
from tools.agents.scripted import Request, scripted

# The smallest window that Claude Code compacts for: a large one would only take longer to fill.
_WINDOW = "100000"
_LEAST_CALLS, _LEAST_COMPACTIONS = 200, 5
_SIZE = range(4_000, 8_001)
_FAILURE = re.compile(r"^- (?:open|resolved): (`[^`]*`).*\((tool_\d+)\)$", re.MULTILINE)


class Session(Struct, frozen=True):
    """What was seen of one session: the requests, what the agent logged of each compaction, and the hook log."""

    requests: Sequence[Request]
    boundaries: Sequence[dict[str, Any]]
    hook_log: Sequence[dict[str, Any]]

    @property
    def after(self) -> list[Request]:
        """The first request after each compaction: the only ones that hold fewer tokens than the one before."""
        main = [request for request in self.requests if request.lane == "main"]
        return [now for last, now in zip(main, main[1:], strict=False) if now.tokens < last.tokens]

    @property
    def summaries(self) -> list[Request]:
        """What a model was asked for summaries."""
        return [request for request in self.requests if request.lane == "compact"]


def long_session(agent: ClaudeCode) -> Iterator[Promise | Session]:
    """Work through the long story with our record; what was promised about it, and the session at the end."""
    with new_home(agent.program) as home, scripted(agent.api, long_story(agent, home.project)) as (address, model):
        _prepare(agent, home, address)
        home.compactor("install", agent.name, "--yes")
        agent.review(home)
        ends = _work(agent, home, address)
        session = _seen(agent, home, model.requests)
        yield from _chain(session, ends)
        yield from _first_part(home, session)
        yield from _by_hand(agent, home, address)
        yield session


def own_session(agent: ClaudeCode, *, installed: bool) -> Session:
    """The same work with the agent's own compaction, beside our hooks or without them."""
    with new_home(agent.program) as home, scripted(agent.api, long_story(agent, home.project)) as (address, model):
        _prepare(agent, home, address)
        if installed:
            home.compactor("install", agent.name, "--yes")
            agent.review(home)
        _work(agent, home, address)
        return _seen(agent, home, model.requests)


def _prepare(agent: ClaudeCode, home: Home, address: str) -> None:
    make_shop(home.project)
    agent.prepare(home, address)


def _work(agent: ClaudeCode, home: Home, address: str) -> list[subprocess.CompletedProcess[str]]:
    """One prompt after the other, each in a new process, as if the user came back to it."""
    begins = [("--session-id", SESSION), *[("--resume", SESSION)] * (len(PROMPTS) - 1)]
    return [
        agent.ask(home, address, prompt, *which, "--autocompact", _WINDOW)
        for prompt, which in zip(PROMPTS, begins, strict=True)
    ]


def _seen(agent: ClaudeCode, home: Home, requests: Sequence[Request]) -> Session:
    lines = [line for log in agent.logs(home) for line in log.read_text().splitlines() if "compact_boundary" in line]
    rows = (json.loads(line) for line in lines)
    boundaries = [row["compactMetadata"] for row in rows if row.get("subtype") == "compact_boundary"]
    return Session(list(requests), boundaries, list(read_hook_log(str(home.project))))


def _chain(session: Session, ends: Sequence[subprocess.CompletedProcess[str]]) -> Iterator[Promise]:
    calls = {label for request in session.requests for label in request.results}
    codes = [end.returncode for end in ends]
    words = f"{len(calls)} tool calls, {len(ends)} prompts{f', left with {codes}' * any(codes)}"
    yield Promise("a session of 200 tool calls works to its end", len(calls) >= _LEAST_CALLS and not any(codes), words)
    given = [line for line in session.hook_log if line["what"] == "record given"]
    is_kept = min(len(given), len(session.boundaries), len(session.after)) >= _LEAST_COMPACTIONS
    yield Promise("it is compacted five times, each time with our record", is_kept, f"{len(given)} records were given")
    asked = len(session.summaries)
    yield Promise("without one request for a summary", not asked, f"{asked} of {len(session.requests)} requests")
    sizes = [line["tokens"] for line in given]
    yield Promise("each record has 4,000 to 8,000 tokens", all(size in _SIZE for size in sizes), told(sizes))
    took = [boundary["durationMs"] / 1_000 for boundary in session.boundaries]
    yield Promise("a compaction takes less than two seconds", max(took, default=9) < 2, f"{told(took)} seconds")


def _first_part(home: Home, session: Session) -> Iterator[Promise]:
    records = [record_in(request) for request in session.after]
    first, last = (records[0], records[-1]) if records else ("", "")
    for what, looked_for in (("rules", RULES), ("decisions", (DECISION,)), ("failures", (f"::{FAILED}",))):
        lost = [each for each in looked_for if each.lower() not in last.lower()]
        words = f"not there: {lost}" if lost else f"all {len(looked_for)} of them"
        yield Promise(f"{what} of the first part stand in the last context", bool(last) and not lost, words)
    ids = {ref: command for command, ref in _FAILURE.findall(first)}
    still = {ref: command for command, ref in _FAILURE.findall(last) if ref in ids}
    is_kept = bool(still) and all(ids[ref] == command for ref, command in still.items())
    yield Promise("an id means the same in the first record and in the last", is_kept, told(still))
    whole = next((each.results[FIRST_FAILURE] for each in session.requests if FIRST_FAILURE in each.results), "")
    results = session.requests[-1].results
    answer = answer_of(results.get("recall", ""))
    is_kept = bool(whole) and answer.get("text") == whole
    words = f"{len(whole):,} characters of {answer.get('id', 'nothing')}"
    yield Promise("the model recalls the first failure byte for byte", is_kept, words)
    recalled = home.compactor("recall", str(answer.get("id")), "--session", SESSION).stdout
    yield Promise("`compactor recall` prints the same", whole in recalled, f"{len(recalled):,} characters")


def _by_hand(agent: ClaudeCode, home: Home, address: str) -> Iterator[Promise]:
    """What the user types: the plan of a compaction, one, and its undoing."""
    for command, says in (("/compactor:plan", "A compaction now"), ("/compact", ""), ("/compact undo", "")):
        ran = agent.ask(home, address, command, "--resume", SESSION)
        is_kept = not ran.returncode and says in ran.stdout
        yield Promise(f"`{command}` answers", is_kept, (ran.stdout.strip() or ran.stderr).splitlines()[0][:200])
    before = len(read_requests := [])
    del before, read_requests
