"""The live check of `compactor proxy`: agents that know nothing of us, with a proxy between them and their model."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.dialects.record import OPENING
from tools.agents.behind_proxy import Behind, Recorded, behind_proxy, not_passed_on, recorded
from tools.agents.claude_code import SESSION, ClaudeCode
from tools.agents.codex import Codex
from tools.agents.home import new_home
from tools.agents.long_session import WINDOW, failures_in, kept_of_first, plain_result
from tools.agents.migration import FIRST_FAILURE, PROMPTS, long_story, make_shop
from tools.agents.migration import SUMMARY as LONG_SUMMARY
from tools.agents.promises import Promise, told
from tools.agents.scripted import Request, scripted
from tools.agents.story import SUMMARY, main_story
from tools.agents.wrapped import typed, wrapped

Agent = ClaudeCode | Codex
_PROMPTS = PROMPTS[:5]  # the last one needs our tools
_HINTS = {"CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"}
_LEAST_CALLS, _LEAST_COMPACTIONS = 200, 5
_MOST_MILLISECONDS = 1_000
_DEATH = 120
"""The request to the model in the middle of which a proxy is killed: between two compactions."""
_OK, _REFUSED = 200, 426
_LAST_WORDS = "All handlers compute in whole cents, and all tests pass."
_FIRST_TEST = "tests/test_allowances.py"
_AT_ONCE = 2
_BOTH = 2


class Long(Struct, frozen=True):
    """A long session behind a proxy: who works, and what happens to the proxy meanwhile."""

    title: str
    agent: Agent
    hints: bool = False
    options: tuple[str, ...] = ("--holdout", "0")
    restarts: bool = False
    dies: bool = False


def proxied(claude: Path | None, codex: Path | None) -> Iterator[tuple[str, Iterable[Promise]]]:
    """All parts of it, for the agents that are there."""
    dollars: dict[str, float] = {}
    work = [partial(_long, long, dollars) for long in _sessions(claude, codex)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda each: each(), work)
    if claude:
        yield "Claude Code through the proxy, the cost", [_cheaper(dollars)]
    agents: list[Agent] = [*([ClaudeCode(claude)] if claude else []), *([Codex(codex)] if codex else [])]
    for agent in agents:
        yield f"{_name(agent)} through the proxy, a sub-agent", _sub_agents(agent)
        yield f"{_name(agent)} through the proxy, only recorded", _only_recorded(agent)
    if claude:
        yield "Claude Code by `compactor wrap`", wrapped(ClaudeCode(claude))
    if claude and shutil.which("tmux"):
        yield "Claude Code by `compactor wrap` in a terminal", typed(ClaudeCode(claude))
    if codex:
        yield "Codex by `compactor wrap`", wrapped(Codex(codex, unset=True))


_CLEAN, _HELD_OUT = "Claude Code through the proxy", "Claude Code through the proxy, held out"


def _sessions(claude: Path | None, codex: Path | None) -> Iterator[Long]:
    if claude:
        agent = ClaudeCode(claude)
        yield Long(_CLEAN, agent)
        yield Long(
            "Claude Code with hint headers, through a proxy that is restarted and killed",
            agent,
            hints=True,
            restarts=True,
            dies=True,
        )
        yield Long(_HELD_OUT, agent, options=("--holdout", "100%"))
    if codex:
        yield Long("Codex with a provider of its own, through a proxy that is killed", Codex(codex), dies=True)
        yield Long("Codex with OpenAI, through a proxy that is restarted", Codex(codex, remote=True), restarts=True)


def _name(agent: Agent) -> str:
    return "Claude Code" if isinstance(agent, ClaudeCode) else "Codex"


def _long(long: Long, dollars: dict[str, float]) -> tuple[str, list[Promise]]:
    """Work through the long story; what was promised about it."""
    agent = long.agent
    with new_home(agent.program) as home:
        story = long_story(agent, home.project, in_shell=isinstance(agent, Codex))
        with (
            scripted(agent.api, story) as (address, model),
            behind_proxy(home, address, model, *long.options) as behind,
        ):
            make_shop(home.project)
            agent.prepare(home, behind.address)
            if long.dies:
                behind.dies_at(_DEATH, recorder=isinstance(agent, ClaudeCode))
            for number, prompt in enumerate(_PROMPTS):
                behind.ends.append(_asked(long, behind, number, prompt))
                behind.wait()
                if behind.ends[-1].returncode and long.dies:  # Codex with another provider does not try again
                    behind.ends.append(_asked(long, behind, number + 1, "Go on."))
                if long.restarts:
                    behind.restart()
            behind.command.stop()
            behind.command.start()  # a proxy records what another one has left
            behind.command.stop()
            found = recorded(home)
            total = behind.report()
            dollars[long.title] = (total["without"] if long.title == _HELD_OUT else total["with"])["dollars"]
            if long.title == _HELD_OUT:
                return long.title, list(_held_out(agent, behind, found))
            return long.title, list(_promises(long, behind, found))


def _asked(long: Long, behind: Behind, number: int, prompt: str) -> subprocess.CompletedProcess[str]:
    """One prompt in a new run of the agent, as if the user came back to it."""
    agent, home = long.agent, behind.home
    if isinstance(agent, Codex):
        return agent.ask(home, prompt, *(("resume", "--last") if number else ()))
    which = ("--resume" if number else "--session-id", SESSION)
    env = {**agent.env(behind.address), **(_HINTS if long.hints else {})}
    return home.run([agent.program, "-p", prompt, *which, "--autocompact", WINDOW], **env)


def _promises(long: Long, behind: Behind, found: Recorded) -> Iterator[Promise]:
    yield from _to_its_end(long, behind)
    records = records_in(behind.model.requests)
    yield from _compacted(behind, found, records)
    yield from kept_of_first(records)
    yield from _one_session(long.agent, behind, found)
    yield _recalled(behind, found, records)
    yield from _unchanged(behind, found)
    if isinstance(long.agent, Codex) and long.agent.remote:
        yield from _with_items(behind)


def _to_its_end(long: Long, behind: Behind) -> Iterator[Promise]:
    calls = {label for request in behind.model.requests for label in request.results}
    codes = [end.returncode for end in behind.ends]
    is_last = behind.ends[-1].stdout.strip().endswith(_LAST_WORDS)
    words = f"{len(calls)} tool calls, {len(codes)} prompts, left with {codes}"
    worked = is_last and len(calls) >= _LEAST_CALLS and (not any(codes) or (long.dies and codes[-1] == 0))
    yield Promise("a session of 200 tool calls works to its end", worked, words)
    if long.dies:
        what = "the proxy is killed in the middle, and the agent goes on with the next one"
        yield Promise(what, behind.deaths == 1 and worked, f"{behind.deaths} time; {_complaint(behind)}")


def _complaint(behind: Behind) -> str:
    failed = [end for end in behind.ends if end.returncode]
    return f"the agent left with {failed[0].returncode}: {failed[0].stderr[-200:]!r}" if failed else "it tried again"


def _compacted(behind: Behind, found: Recorded, records: Sequence[str]) -> Iterator[Promise]:
    answered, asked = found.of_kind("answered"), behind.lanes.count("compact")
    words = f"{len(answered)} compactions are answered"
    yield Promise("it is compacted five times, each time by us", len(answered) >= _LEAST_COMPACTIONS, words)
    yield Promise("no request for a summary reaches the model", not asked, f"{asked} of {len(behind.lanes)} requests")
    words = f"{len(records)} different records of {min(map(len, records), default=0):,} characters and more"
    yield Promise("the agent goes on with each of our records", len(records) == len(answered), words)
    took = [row.milliseconds for row in answered]
    words = f"{told(took)} milliseconds"
    yield Promise(
        "each answer takes less than a second", max(took, default=_MOST_MILLISECONDS) < _MOST_MILLISECONDS, words
    )


def records_in(requests: Iterable[Request]) -> list[str]:
    """The different records that requests hold, by their first appearance."""
    texts = (text for request in requests for text in request.texts if OPENING in text)
    return list(dict.fromkeys(text[text.index(OPENING) :] for text in texts))


def _one_session(agent: Agent, behind: Behind, found: Recorded) -> Iterator[Promise]:
    names = list(found.histories)
    of_rows = {row.session_id for row in found.rows if row.status}
    is_one = len(names) == 1 and "~" not in names[0] and of_rows == set(names)
    unanswered = len(found.rows) - sum(bool(row.status) for row in found.rows)
    words = f"{told(names)}{f', {unanswered} request without an answer' * bool(unanswered)}"
    yield Promise("everything is one session without branches", is_one, words)
    yield _everything(agent, found.histories, behind.model.requests)


def _everything(agent: Agent, histories: Mapping[str, list[dict[str, Any]]], requests: Sequence[Request]) -> Promise:
    """Whether histories have all results that a model was told, whatever the agent has told it behind them."""
    told_first: dict[str, str] = {}
    for request in requests:
        told_first = request.results | told_first
    size = sum(len(plain_result(text)) for text in told_first.values())
    kept: dict[str, str] = {}
    for history in histories.values():
        kept |= results_in(agent, history)
    lost = [label for label, text in told_first.items() if plain_result(kept.get(label, "")) != plain_result(text)]
    words = f"{len(told_first) - len(lost)} of {len(told_first)}, {size:,} characters"
    what = "the history has every tool result byte for byte"
    return Promise(what, bool(told_first) and not lost, f"{words}{f', not {lost[:5]}' * bool(lost)}")


def results_in(agent: Agent, history: list[dict[str, Any]]) -> dict[str, str]:
    """The tool results of a history by the labels of their calls."""
    key = "messages" if isinstance(agent, ClaudeCode) else "input"
    return agent.api.request({key: history, "model": ""}, {}).results if history else {}


def _recalled(behind: Behind, found: Recorded, records: Sequence[str]) -> Promise:
    """The first failure by the id that the record names it with."""
    whole = next((each.results[FIRST_FAILURE] for each in behind.main if FIRST_FAILURE in each.results), "")
    refs = failures_in(records[-1]) if records else {}
    ref = next((ref for ref, command in refs.items() if _FIRST_TEST in command), "none")
    text = behind.home.compactor("recall", ref, "--session", next(iter(found.histories), "")).stdout
    is_same = bool(whole) and text.rstrip("\n") == whole.rstrip("\n")
    words = f"{len(text):,} characters of {ref} for {len(whole):,}"
    return Promise("`compactor recall` prints the first failure byte for byte", is_same, words)


def _unchanged(behind: Behind, found: Recorded) -> Iterator[Promise]:
    front = [each for each in behind.front.exchanges if each.status and not each.is_socket]
    ours = sum(each.is_ours for each in front)
    passed = [each for each in front if not each.has_item and not each.is_ours]
    changed = not_passed_on(passed, behind.back.exchanges)
    words = f"{len(passed) - len(changed)} of {len(passed)}, {ours} answered by us"
    is_kept = bool(passed) and not changed and ours == len(found.of_kind("answered"))
    yield Promise("what we do not answer passes byte for byte, and so do the answers", is_kept, words)


def _with_items(behind: Behind) -> Iterator[Promise]:
    front = [each for each in behind.front.exchanges if each.has_item and not each.is_ours]
    came = [each for each in behind.back.exchanges if each.has_item]
    answers = {each.answer for each in behind.back.exchanges}
    is_kept = bool(front) and not came and all(each.status == _OK and each.answer in answers for each in front)
    holding = sum(any(OPENING in text for text in request.texts) for request in behind.main)
    words = f"{len(front)} requests have one, {holding} have the record at the model, in {len(behind.ends)} runs"
    is_kept &= holding == len(front)
    yield Promise("our compaction item is expanded in each later request, also by a new proxy", is_kept, words)
    refused = [each.status for each in behind.front.exchanges if each.is_socket]
    words = f"{told(refused)} in {len(behind.ends)} runs"
    is_kept = refused == [_REFUSED] * len(behind.ends)
    yield Promise("a WebSocket is refused once in each run, and Codex goes on over HTTP", is_kept, words)


def _left_alone(behind: Behind, found: Recorded) -> Iterator[Promise]:
    """What holds where the agent compacts by itself, and is recorded."""
    codes = [end.returncode for end in behind.ends]
    yield Promise("it works to its end", not any(codes), f"{len(behind.lanes)} requests, left with {codes}")
    asked, answered = behind.lanes.count("compact"), found.of_kind("answered")
    words = f"{asked} requests for a summary, {len(answered)} answered, {len(found.of_kind('compaction'))} recorded"
    is_kept = bool(asked) and not answered and len(found.of_kind("compaction")) == asked
    yield Promise("it compacts by itself, and we answer nothing", is_kept, words)
    used = sum(any(SUMMARY[:60] in text or LONG_SUMMARY[:60] in text for text in each.texts) for each in behind.main)
    yield Promise("it goes on with its own summary", bool(used), f"in {used} requests")
    yield from _unchanged(behind, found)


def _held_out(agent: Agent, behind: Behind, found: Recorded) -> Iterator[Promise]:
    yield from _left_alone(behind, found)
    yield from _one_session(agent, behind, found)


def _cheaper(dollars: Mapping[str, float]) -> Promise:
    ours, own = dollars[_CLEAN], dollars[_HELD_OUT]
    words = f"${ours:.2f} with us, ${own:.2f} held out: {1 - ours / own:.0%} less"
    return Promise("the same work costs less with us than held out", ours < own, words)


def _story(agent: Agent, *options: str) -> tuple[Behind, Recorded]:
    """The short story behind a proxy."""
    story = main_story(agent, long_report=isinstance(agent, ClaudeCode))
    with (
        new_home(agent.program) as home,
        scripted(agent.api, story) as (address, model),
        behind_proxy(home, address, model, *options) as behind,
    ):
        agent.prepare(home, behind.address)
        behind.ends.append(agent.work(home, behind.address))
        behind.command.stop()
        return behind, recorded(home)


def _sub_agents(agent: Agent) -> Iterator[Promise]:
    behind, found = _story(agent, "--holdout", "0")
    end = behind.ends[0]
    yield Promise(
        "the agent works to its end",
        not end.returncode,
        f"{len(behind.lanes)} requests{end.stderr[-300:] * bool(end.returncode)}",
    )
    asked = behind.lanes.count("compact")
    words = f"{len(found.of_kind('answered'))} answered, {asked} requests for a summary"
    yield Promise("no request for a summary reaches the model", not asked and bool(found.of_kind("answered")), words)
    yield from _apart(agent, behind, found)
    if isinstance(agent, ClaudeCode):
        records = records_in(request for request in behind.model.requests if request.lane == "sub")
        yield Promise(
            "a sub-agent that fills its window goes on with a record of its own", len(records) == 1, f"{len(records)}"
        )


def _apart(agent: Agent, behind: Behind, found: Recorded) -> Iterator[Promise]:
    """A sub-agent has a session of its own, and both have all that is theirs."""
    sub = {label for each in behind.model.requests if each.lane == "sub" for label in each.results}
    sessions = {name: set(results_in(agent, history)) for name, history in found.histories.items()}
    both = sorted(sessions.values(), key=lambda labels: labels == sub)
    is_apart = (
        len(both) == _BOTH and both[-1] == sub and not both[0] & sub and not any("~" in name for name in sessions)
    )
    words = f"{told({name: len(kept) for name, kept in sessions.items()})} results"
    yield Promise("a sub-agent has a session of its own, and neither has a branch", is_apart, words)
    yield _everything(agent, found.histories, behind.model.requests)


def _only_recorded(agent: Agent) -> Iterator[Promise]:
    behind, found = _story(agent, "--mode", "record")
    yield from _left_alone(behind, found)
    yield from _apart(agent, behind, found)
