"""The long session of a live check: many compactions one after the other, and what they cost, ours and the agent's."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from msgspec import Struct

from context_compactor.agents.hook_log import read_hook_log
from context_compactor.tokens.counting import counter_for
from context_compactor.tokens.prices import price_of
from tools.agents.claude_code import MODEL, SESSION, ClaudeCode
from tools.agents.home import Home, new_home
from tools.agents.migration import DECISION, FAILED, FIRST_FAILURE, PROMPTS, RULES, SUMMARY, long_story, make_shop
from tools.agents.promises import Promise, answer_of, record_in, told
from tools.agents.scripted import Request, ScriptedModel, scripted

# The smallest window that Claude Code compacts for: a large one would only take longer to fill.
WINDOW = "100000"
_LEAST_CALLS, _LEAST_COMPACTIONS = 200, 5
_SHOWN = 300
_GO_ON = "Go on."
_SIZE = range(4_000, 8_001)
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
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
        return [now for last, now in pairwise(main) if now.tokens < last.tokens]

    @property
    def summaries(self) -> list[Request]:
        """What a model was asked for summaries."""
        return [request for request in self.requests if request.lane == "compact"]


def long_session(agent: ClaudeCode) -> Generator[Promise, None, Session]:
    """Work through the long story with our record; what was promised about it; the session is returned."""
    with new_home(agent.program) as home, scripted(agent.api, long_story(agent, home.project)) as (address, model):
        _prepare(agent, home, address)
        home.compactor("install", agent.name, "--yes")
        agent.review(home)
        ends = _work(agent, home, address)
        session = _seen(agent, home, model.requests)
        yield from _chain(session, ends)
        yield from _first_part(home, session)
        yield from _by_hand(agent, home, address, model)
        return session


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
        agent.ask(home, address, prompt, *which, "--autocompact", WINDOW)
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
    yield from kept_of_first([record_in(request) for request in session.after])
    whole = next((each.results[FIRST_FAILURE] for each in session.requests if FIRST_FAILURE in each.results), "")
    results = session.requests[-1].results
    answer = answer_of(results.get("recall", ""))
    is_kept = bool(whole) and answer.get("text") == whole
    words = f"{len(whole):,} characters of {answer.get('id', 'nothing')}"
    yield Promise("the model recalls the first failure byte for byte", is_kept, words)
    recalled = home.compactor("recall", str(answer.get("id")), "--session", SESSION).stdout
    yield Promise("`compactor recall` prints the same", whole in recalled, f"{len(recalled):,} characters")


def kept_of_first(records: Sequence[str]) -> Iterator[Promise]:
    """What the last of some records still says of the first part of the work."""
    first, last = (records[0], records[-1]) if records else ("", "")
    for what, looked_for in (("rules", RULES), ("decisions", (DECISION,)), ("failures", (f"::{FAILED}",))):
        lost = [each for each in looked_for if each.lower() not in last.lower()]
        words = f"not there: {lost}" if lost else f"all {len(looked_for)} of them"
        yield Promise(f"{what} of the first part stand in the last context", bool(last) and not lost, words)
    ids = failures_in(first)
    still = {ref: command for ref, command in failures_in(last).items() if ref in ids}
    is_kept = bool(still) and all(ids[ref] == command for ref, command in still.items())
    yield Promise("an id means the same in the first record and in the last", is_kept, told(still))


def failures_in(record: str) -> dict[str, str]:
    """The commands that failed by the ids of what they printed."""
    return {ref: command for command, ref in _FAILURE.findall(record)}


def _by_hand(agent: ClaudeCode, home: Home, address: str, model: ScriptedModel) -> Iterator[Promise]:
    """What the user types: the plan of a compaction, one, and its undoing."""

    def typed(prompt: str) -> str:
        ran = agent.ask(home, address, prompt, "--resume", SESSION, "--autocompact", WINDOW)
        return f"{ran.stdout}{ran.stderr}".strip()[:_SHOWN] or "it prints nothing"

    asked, before = len(model.requests), model.requests[-1]
    plan = typed("/compactor:plan")
    is_kept = "tokens" in plan and len(model.requests) == asked
    yield Promise("`/compactor:plan` shows a plan, and asks no model", is_kept, plan)
    said = typed("/compact")
    typed(_GO_ON)
    compacted = model.requests[-1]
    is_kept = bool(record_in(compacted)) and not compacted.results and not _lanes(model, asked)
    yield Promise(
        "`/compact` puts our record there", is_kept, f"{before.tokens:,} → {compacted.tokens:,} tokens; {said}"
    )
    said = typed("/compact undo")
    typed(_GO_ON)
    undone = model.requests[-1]
    missing = [
        label
        for label, text in before.results.items()
        if plain_result(undone.results.get(label, "")) != plain_result(text)
    ]
    words = f"{compacted.tokens:,} → {undone.tokens:,} tokens, {len(before.results) - len(missing)} of "
    is_kept = not missing and not _lanes(model, asked)
    words = f"{words}{len(before.results)} results are back{f', not {missing}' * bool(missing)}; {said}"
    yield Promise("`/compact undo` takes it back", is_kept, words)
    typed("/compact")
    typed(_GO_ON)
    again = record_in(model.requests[-1])
    is_kept = all(rule.lower() in again.lower() for rule in RULES) and len(again) > len(record_in(compacted)) * 0.8
    words = f"a record of {len(again):,} characters, {len(record_in(compacted)):,} before the undo"
    yield Promise("a compaction after that knows everything again", is_kept and not _lanes(model, asked), words)


def plain_result(result: str) -> str:
    """A result without what the agent tells its model behind it."""
    return _REMINDER.sub("", result).strip()


def _lanes(model: ScriptedModel, start: int) -> int:
    """How often a summary was asked for since then."""
    return sum(request.lane == "compact" for request in model.requests[start:])


class Cost(Struct, frozen=True):
    """What one session took: of each compaction the middle value, of the session the sum."""

    compactions: int
    tokens_after: int
    first_write: int
    seconds: float
    summary_requests: int
    summary_read: int
    summary_written: int
    requests: int
    dollars: float


def cost_of(session: Session) -> Cost:
    """What a session cost, from the requests themselves."""
    asked = session.summaries
    return Cost(
        compactions=len(session.boundaries),
        tokens_after=round(median(request.tokens for request in session.after)),
        first_write=round(median(request.tokens - request.cached for request in session.after)),
        seconds=median(boundary["durationMs"] / 1_000 for boundary in session.boundaries),
        summary_requests=len(asked),
        summary_read=round(median(request.tokens for request in asked)) if asked else 0,
        summary_written=counter_for(MODEL).count(SUMMARY) if asked else 0,
        requests=len(session.requests),
        dollars=sum(map(_dollars, session.requests)),
    )


def _dollars(request: Request) -> float:
    price = price_of(MODEL)
    assert price is not None
    assert price.cache_read is not None
    assert price.cache_write is not None
    written = request.tokens - request.cached
    output = counter_for(MODEL).count(SUMMARY) if request.lane == "compact" else 0
    return (request.cached * price.cache_read + written * price.cache_write + output * (price.output or 0)) / 1_000_000


def cost_table(costs: Mapping[str, Cost]) -> str:
    """The costs side by side, in Markdown."""
    rows = {
        "compactions in the same work": [f"{cost.compactions}" for cost in costs.values()],
        "requests for a summary": [f"{cost.summary_requests}" for cost in costs.values()],
        "each of them reads, and writes (tokens)": [
            f"{cost.summary_read:,} and {cost.summary_written:,}" if cost.summary_requests else "–"
            for cost in costs.values()
        ],
        "tokens of the first request after": [f"{cost.tokens_after:,}" for cost in costs.values()],
        "of these written to the cache": [f"{cost.first_write:,}" for cost in costs.values()],
        "seconds of a compaction": [f"{cost.seconds:.2f}" for cost in costs.values()],
        "requests in all": [f"{cost.requests}" for cost in costs.values()],
        "input and summaries at list price": [f"${cost.dollars:.2f}" for cost in costs.values()],
    }
    lines = [("", *costs), ("---", *["---:"] * len(costs)), *((what, *cells) for what, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
