"""What the user asked for, where the work on it stands, and where a task ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import structs

from context_compactor.dialects.client_text import CLIENT_COMMANDS
from context_compactor.dialects.turns import ToolUse, Turn, reference_id
from context_compactor.facts import utterances as cues
from context_compactor.facts.calls import ASKING_TOOLS, CallInTurn, ParsedCall, calls_in_turns, objects_in, parse_call
from context_compactor.facts.decisions import question_with_context
from context_compactor.facts.fact import Fact, FactKind
from context_compactor.facts.kinds import Kind, kind_of, reference_of
from context_compactor.facts.outcomes import has_failed
from context_compactor.facts.side_effects import side_effect_facts
from context_compactor.facts.utterances import Utterance, is_quoted, sentences, user_utterances

_LONGEST_TASK = 300
_LONGEST_DETAIL = 500
_LONGEST_CLOSING = 200
_LONGEST_ANSWER = 80
# Every closing in plain letters holds one of these.
_CLOSING = ("thank", "thx", "cheers", "all", "else", "appreciate", "danke", "merci", "gracias", "obrigad", "grazie")
_MOST_CLOSING_WORDS = 6
# Harnesses put the request itself between such tags, with instructions of their own around it.
_WRAPPED = re.compile(
    r"<(pr_description|issue_description|problem_statement|task_description|user_query|user_request|issue|task)>\n?"
    r"(.{20,}?)</\1>",
    re.DOTALL,
)
_COMMAND = re.compile(r"/([\w:.-]{1,80})(?=\s|$)")
_INTERRUPTED = ("[Request interrupted by user", "<turn_aborted>")


def task_facts(utterances: Sequence[Utterance], turns: Sequence[Turn]) -> list[Fact]:
    """The first request and the later ones; one that is made again counts.

    A request is `done` when the agent closed it with an answer and the user moved on or thanked, `superseded` when the
    user cut it off, and `active` as long as it is neither.
    """
    answers = {turn.number: text for turn in turns if (text := _final_answer(turn))}
    asked = {
        after.number for before, after in pairwise(turns) if "?" in answers.get(before.number, "")[-_LONGEST_TASK:]
    }
    requests = [
        utterance
        for at, utterance in enumerate(utterances)
        if is_request(utterance.text) and (at == 0 or not _only_answers(utterance, asked))
    ] or list(utterances[:1])
    answered = list(answers)
    spoken = (
        (turn.number, turn.messages[0].text[:400]) for turn in turns if turn.role == "user" and not turn.exchanges
    )
    stopped = [number for number, text in spoken if any(sign in text for sign in _INTERRUPTED)]
    thanked = [utterance.turn for utterance in utterances if is_closing(utterance.text)]
    found: dict[str, Fact] = {}
    for at, request in enumerate(requests):
        later = requests[at + 1].turn if at + 1 < len(requests) else None
        fact = _task_fact(request, _task_status(request.turn, later, answered, stopped, thanked))
        before = found.pop(fact.content, None)
        if before is not None and before.detail == fact.detail:
            fact = structs.replace(fact, turn=before.turn, count=before.count + 1)
        found[fact.content] = fact
    return list(found.values())


def _task_status(
    turn: int, later: int | None, answered: Sequence[int], stopped: Sequence[int], thanked: Sequence[int]
) -> str:
    """What became of the request in a turn, when the next one came in the turn `later`."""
    if later is None:
        closed = next((number for number in answered if number > turn), None)
        return "done" if closed is not None and any(number > closed for number in thanked) else "active"
    if any(turn < number < later for number in answered):
        return "done"
    # Without an answer between them the later request came on top, unless the user had stopped the agent for it.
    if any(turn < number <= later for number in stopped):
        return "superseded"
    return "done" if any(number > later for number in answered) else "active"


def is_request(text: str) -> bool:
    """Whether a message asks for something of its own, and is not a mere "yes, go ahead" or "thanks"."""
    if text.startswith("!") or is_closing(text):
        return False
    command = _COMMAND.match(text)
    if command:
        return command[1] not in CLIENT_COMMANDS
    if cues.has_label(text) and all(cues.has_label(line) for line in text.split("\n") if line.strip()):
        return False  # rules and decisions for whatever is worked on
    words = cues.spaced(text[:400]).split()
    others = [word for word in words if word not in cues.ACKNOWLEDGEMENTS and not word.isdigit()]
    return len(others) > 1 or any(len(word) > 6 or not word.isascii() for word in others)


def _only_answers(utterance: Utterance, asked: set[int]) -> bool:
    """Whether the user only answers a question that waited in the turn before; the request stays the one before it."""
    if utterance.turn not in asked or len(utterance.text) > _LONGEST_ANSWER or "?" in utterance.text:
        return False
    words = cues.spaced(utterance.text)
    first = next(iter(words.split()), "")
    asks = first in cues.ORDERS or cues.has_any(words, cues.ASKINGS) or cues.has_any(words, cues.PROBLEMS)
    return not asks


def is_closing(text: str) -> bool:
    """Whether a message only thanks, or says that nothing more is wanted."""
    if len(text) > _LONGEST_CLOSING or "?" in text or (text.isascii() and not cues.has_any(text.lower(), _CLOSING)):
        return False
    words = cues.spaced(text)
    if not cues.has_any(words, cues.CLOSINGS) or cues.has_any(words, cues.ASKINGS):
        return False
    return len([word for word in words.split() if word not in cues.ACKNOWLEDGEMENTS]) <= _MOST_CLOSING_WORDS


def _task_fact(request: Utterance, status: str) -> Fact:
    wrapped = _WRAPPED.search(request.text[:20_000]) if "</" in request.text else None
    text = wrapped[2] if wrapped else request.text
    lines = [line.strip() for line in text.split("\n") if line.strip()] or [request.text.strip()]
    # A message may begin with what it quotes; its own words say what it asks for.
    own = [at for at, line in enumerate(lines) if not is_quoted(line)]
    at = own[0] if own else 0
    if at and len(own) > 1 and lines[own[-1]].endswith("?"):
        at = own[-1]  # behind a quotation the question comes last
    if wrapped and lines[at].endswith(":") and at + 1 < len(lines):
        at += 1  # the harness's own introduction
    content = lines[at]
    rest = " ".join((*lines[:at], *lines[at + 1 :]))[:_LONGEST_DETAIL]
    ref = reference_id("turn", request.turn)
    return Fact("task", content[:_LONGEST_TASK].rstrip(), request.turn, "user", rest, status, 1, request.turn, ref)


def _final_answer(turn: Turn) -> str:
    """What the agent said in a turn in which it called nothing: it had finished, or asked."""
    if turn.role != "assistant" or turn.exchanges:
        return ""
    return "\n".join(message.text for message in turn.messages)


_LIST_TOOLS = frozenset("todowrite updateplan writetodos updatetodolist settodolist todo plan".split())
_STATUSES = {"completed": "done", "done": "done", "in_progress": "active", "active": "active", "pending": "open"}
_STATUSES |= {"todo": "open", "cancelled": "superseded", "canceled": "superseded", "blocked": "blocked"}
_CREATED = re.compile(r"#(\d{1,6})\b")
_NEXT_HEADING = re.compile(
    r"^\W{0,6}(?:next steps?|remaining(?: work| steps| tasks)?|still to do|to ?do|what(?:'s| is) left)\W{0,6}$",
    re.IGNORECASE | re.MULTILINE,
)
_ITEM = re.compile(r"[ \t]{0,4}(?:[-*+•]|\d{1,2}[.)])[ \t]+(\S.{2,300})")
_PLAN_MODE = re.compile(r"\bplan mode (?:is|still) (?:active|on)\b|Plan mode is active", re.IGNORECASE)
_INTENTS = (
    " let me ", " let's ", " i'll ", " i will ", " i'm going to ", " i am going to ", " now i ", " next i ",
    " i need to ",
)  # fmt: skip
_NO_INTENTS = (" let me know ", " i'll wait ", " i'll be ")
_MODE_TOOLS = frozenset(("enterplanmode", "exitplanmode"))
_PLANNING = "plan mode: plan only, change nothing until the plan is approved"
_CARRYING_OUT = "plan mode ended: the user approved the plan"
_MOST_ITEMS = 8
_LONGEST_STATE = 300


def todo_facts(calls: Sequence[CallInTurn]) -> list[Fact]:
    """The newest to-do list: its items with `done`, `active`, `open` or `blocked`."""
    items: dict[str, Fact] = {}
    for turn, exchange, parsed in calls:
        if parsed.tool in _LIST_TOOLS:
            listed = _listed(parsed.arguments)
            if listed:
                items = {title: _todo(title, status, turn, exchange) for title, status in listed}
        elif parsed.tool == "taskcreate":
            _create(items, parsed, turn, exchange)
        elif parsed.tool == "taskupdate":
            _update(items, parsed, turn, exchange)
    return list(items.values())


def _create(items: dict[str, Fact], parsed: ParsedCall, turn: int, exchange: ToolUse) -> None:
    title = parsed.arguments.get("subject") or parsed.arguments.get("title")
    number = _CREATED.search(exchange.result.text[:200]) if exchange.result else None
    if isinstance(title, str) and title:
        items[number[1] if number else title] = _todo(title, "open", turn, exchange)


def _update(items: dict[str, Fact], parsed: ParsedCall, turn: int, exchange: ToolUse) -> None:
    key = str(parsed.arguments.get("taskId") or parsed.arguments.get("task_id") or "")
    status = parsed.arguments.get("status")
    if key not in items:
        return
    if status == "deleted":
        del items[key]
        return
    if isinstance(status, str):
        known = items[key]
        changed = _todo(known.content, _STATUSES.get(status, "open"), turn, exchange, known.turn)
        items[key] = structs.replace(changed, detail=known.detail)
    waits_for = parsed.arguments.get("addBlockedBy")
    named = (
        [items[str(each)].content for each in waits_for if str(each) in items] if isinstance(waits_for, list) else []
    )
    if named:
        items[key] = structs.replace(items[key], detail=f"after: {'; '.join(named)}"[:_LONGEST_STATE])


def _listed(arguments: dict[str, Any]) -> list[tuple[str, str]]:
    entries = next((arguments[key] for key in ("todos", "plan", "items", "tasks") if arguments.get(key)), None)
    found = [_entry(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [(title, status) for title, status in found if title]


def _entry(entry: dict[str, Any]) -> tuple[str, str]:
    title = next((entry[key] for key in ("content", "step", "title", "task", "text") if entry.get(key)), "")
    status = entry.get("status")
    known = _STATUSES.get(status, "open") if isinstance(status, str) else "open"
    return title if isinstance(title, str) else "", known


def _todo(title: str, status: str, turn: int, exchange: ToolUse, first: int = 0) -> Fact:
    content = " ".join(title[:_LONGEST_STATE].split())
    return Fact("todo", content, first or turn, "assistant", "", status, 1, turn, reference_of(exchange))


def mode_facts(calls: Sequence[CallInTurn], turns: Sequence[Turn]) -> list[Fact]:
    """Whether the agent is only to plan. Nothing is said when it never was."""
    modes = [(turn.number, True) for turn in turns if turn.role != "assistant" and _tells_plan_mode(turn)]
    for turn, exchange, parsed in calls:
        if parsed.tool in _MODE_TOOLS and exchange.result and not exchange.result.is_error:
            modes.append((turn, parsed.tool == "enterplanmode"))
    if not modes:
        return []
    position = {turn.number: at for at, turn in enumerate(turns)}
    turn, is_planning = max(modes, key=lambda each: position[each[0]])
    content, status = (_PLANNING, "active") if is_planning else (_CARRYING_OUT, "done")
    return [Fact("mode", content, turn, "system", "", status, 1, turn, reference_id("turn", turn))]


def _tells_plan_mode(turn: Turn) -> bool:
    """A client tells it in a reminder, among what it adds in the user's name."""
    text = turn.messages[0].text[:40_000]
    return "<system-reminder>" in text and "lan mode" in text and _PLAN_MODE.search(text) is not None


def next_facts(
    agent: Sequence[Utterance], user: Sequence[Utterance], turns: Sequence[Turn], todos: Sequence[Fact] = ()
) -> list[Fact]:
    """What the agent said it would do next, since the user last spoke, and what it waits for.

    When it said nothing, the first point of its to-do list that is open comes next.
    """
    since = user[-1].turn if user else 0
    recent = [utterance for utterance in agent if utterance.turn > since][-12:]
    found = [
        _state_fact("next_step", item, utterance.turn, "open")
        for utterance in recent[-3:]
        for item in _next_items(utterance.text)
    ]
    if recent and turns and turns[-1].exchanges:
        intent = _intent(recent[-1].text)
        found += [_state_fact("next_step", intent, recent[-1].turn, "active")] if intent else []
    if not found:
        point = next((fact for fact in todos if fact.status == "open"), None)
        found = [structs.replace(point, kind="next_step")] if point else []
    return [*found[-_MOST_ITEMS:], *_blockers(recent, turns)]


def _intent(text: str) -> str:
    """The last sentence in which the agent says what it is about to do."""
    for sentence in reversed(list(sentences(text))):
        words = cues.spaced(sentence)
        if cues.has_any(words, _INTENTS) and not cues.has_any(words, _NO_INTENTS):
            return sentence if 10 < len(sentence) <= _LONGEST_STATE else ""
    return ""


def _next_items(text: str) -> list[str]:
    heading = _NEXT_HEADING.search(text)
    if heading is None:
        return []
    items = (_ITEM.match(line) for line in text[heading.end() : heading.end() + 4_000].strip("\n").split("\n"))
    return [item[1].strip() for item in items if item][:_MOST_ITEMS]


def _blockers(recent: Sequence[Utterance], turns: Sequence[Turn]) -> list[Fact]:
    found = [
        _state_fact("blocker", sentence, utterance.turn, "blocked")
        for utterance in recent[-6:]
        for sentence in sentences(utterance.text)
        if len(sentence) <= _LONGEST_STATE
        and cues.has_any(words := cues.spaced(sentence), cues.BLOCKERS)
        and not cues.has_any(words, cues.HEDGES)
    ]
    if recent and turns and turns[-1].number == recent[-1].turn and not turns[-1].exchanges:
        said = list(sentences(recent[-1].text[-1_500:]))
        asked = [at for at, sentence in enumerate(said) if sentence.endswith(("?", "\uff1f"))]
        question = " ".join(question_with_context(said, asked[-1]).split()) if asked else ""
        found += [_state_fact("blocker", question, recent[-1].turn, "open")] if question else []
    found += _waiting(turns)
    return list({fact.content: fact for fact in found}.values())[-4:]


def _waiting(turns: Sequence[Turn]) -> list[Fact]:
    """Questions that were put to the user by a tool and have no answer yet."""
    last = turns[-1] if turns else None
    found: list[Fact] = []
    for exchange in last.exchanges if last else ():
        if exchange.call and exchange.result is None and last:
            parsed = parse_call(exchange.call)
            if parsed.tool in ASKING_TOOLS:
                asked = [_question(each) for each in objects_in(parsed.arguments, "questions")]
                asked = asked or [_question(parsed.arguments)]
                found += [_state_fact("blocker", question, last.number, "open") for question in asked if question]
    return found


def _question(values: dict[str, Any]) -> str:
    text = values.get("question") or values.get("prompt")
    return " ".join(text.split())[:_LONGEST_STATE] if isinstance(text, str) else ""


def _state_fact(kind: FactKind, content: str, turn: int, status: str) -> Fact:
    return Fact(kind, content, turn, "assistant", "", status, 1, turn, reference_id("turn", turn))


# What a runner prints when at least one test has passed; whether one has failed is known by then.
_PASSED = re.compile(
    r"\b[1-9]\d*(?: tests?| examples?| specs?)?(?: have)? pass(?:ed|ing|es)?\b|^(?:OK|PASS|ok)\b|^--- PASS"
    r"|test result: ok|\b100% tests passed|[1-9]\d* examples?, 0 failures|BUILD SUCCESS|(?:# |\u2139 )pass [1-9]"
    r"|Tests run: [1-9]\d*, Failures: 0, Errors: 0",
    re.MULTILINE,
)


def find_task_boundary(turns: Sequence[Turn]) -> str:
    """In words what has just ended where these turns end; "" in the midst of a task.

    That is a new request of the user, tests that passed, a commit, or a point of the to-do list that is done. What the
    agent says about it afterwards, without doing anything more, changes nothing.
    """
    recent = [turn for turn in turns if not turn.is_fixed]
    while recent and recent[-1].role == "assistant" and not recent[-1].exchanges:
        recent.pop()
    if not recent:
        return ""
    last = recent[-1]
    if last.role == "user" and not last.exchanges:
        return (
            "the user's new request" if any(each.turn == last.number for each in user_utterances(recent[-2:])) else ""
        )
    calls = [each for each in calls_in_turns([last]) if each[1].result is not None]
    if any(_has_passed_checks(each) for each in calls):
        return "tests passed"
    failed = {each.number for _, each, _ in calls if each.result and has_failed(each.call, each.result)}
    if any("git commit" in fact.content for fact in side_effect_facts(calls, failed)):
        return "a commit was made"
    return "a point of the to-do list is done" if _has_finished_todo(recent, calls) else ""


def _has_passed_checks(calls: CallInTurn) -> bool:
    _, exchange, _ = calls
    result = exchange.result
    if result is None or kind_of(exchange.call, result.text) is not Kind.TEST_RUN:
        return False
    return not has_failed(exchange.call, result) and _PASSED.search(result.text) is not None


def _has_finished_todo(turns: Sequence[Turn], calls: Sequence[CallInTurn]) -> bool:
    """Whether the last turn has set a point of the list to done. One that nobody saw open is none unless all are."""
    if any(call.tool == "taskupdate" and call.arguments.get("status") == "completed" for _, _, call in calls):
        return True
    now, before = _todo_points(turns), _todo_points(turns[:-1])
    done = {title for title, status in now.items() if status == "done"}
    if now == before or not done:
        return False
    return len(done) == len(now) or any(before.get(title, "done") != "done" for title in done)


def _todo_points(turns: Sequence[Turn]) -> dict[str, str]:
    return {fact.content: fact.status for fact in todo_facts(calls_in_turns(turns))}
