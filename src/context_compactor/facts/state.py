"""Where the work stands: the to-do list, the mode, what comes next, what blocks it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from context_compactor.classify.arguments import ASKING_TOOLS, objects_in
from context_compactor.classify.calls import Reading, read_call
from context_compactor.classify.references import reference_of
from context_compactor.facts import cues
from context_compactor.facts.choices import with_context
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact, FactKind
from context_compactor.facts.speech import Saying, sentences
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import ToolUse, Turn

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
_LONGEST = 300


def todo_facts(called: Sequence[Called]) -> list[Fact]:
    """The newest to-do list: its items with `done`, `active`, `open` or `blocked`."""
    items: dict[str, Fact] = {}
    for turn, exchange, reading in called:
        if reading.tool in _LIST_TOOLS:
            listed = _listed(reading.arguments)
            if listed:
                items = {title: _todo(title, status, turn, exchange) for title, status in listed}
        elif reading.tool == "taskcreate":
            _create(items, reading, turn, exchange)
        elif reading.tool == "taskupdate":
            _update(items, reading, turn, exchange)
    return list(items.values())


def _create(items: dict[str, Fact], reading: Reading, turn: int, exchange: ToolUse) -> None:
    title = reading.arguments.get("subject") or reading.arguments.get("title")
    number = _CREATED.search(exchange.result.text[:200]) if exchange.result else None
    if isinstance(title, str) and title:
        items[number[1] if number else title] = _todo(title, "open", turn, exchange)


def _update(items: dict[str, Fact], reading: Reading, turn: int, exchange: ToolUse) -> None:
    key = str(reading.arguments.get("taskId") or reading.arguments.get("task_id") or "")
    status = reading.arguments.get("status")
    if key not in items:
        return
    if status == "deleted":
        del items[key]
        return
    if isinstance(status, str):
        known = items[key]
        changed = _todo(known.content, _STATUSES.get(status, "open"), turn, exchange, known.turn)
        items[key] = structs.replace(changed, detail=known.detail)
    waits_for = reading.arguments.get("addBlockedBy")
    named = (
        [items[str(each)].content for each in waits_for if str(each) in items] if isinstance(waits_for, list) else []
    )
    if named:
        items[key] = structs.replace(items[key], detail=f"after: {'; '.join(named)}"[:_LONGEST])


def _listed(arguments: dict[str, Any]) -> list[tuple[str, str]]:
    entries = next((arguments[key] for key in ("todos", "plan", "items", "tasks") if arguments.get(key)), None)
    found = [_entry(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [(title, status) for title, status in found if title]


def _entry(entry: dict[str, Any]) -> tuple[str, str]:
    title = next((entry[key] for key in ("content", "step", "title", "task", "text") if entry.get(key)), "")
    status = entry.get("status")
    return (
        title if isinstance(title, str) else "",
        _STATUSES.get(status, "open") if isinstance(status, str) else "open",
    )


def _todo(title: str, status: str, turn: int, exchange: ToolUse, first: int = 0) -> Fact:
    content = " ".join(title[:_LONGEST].split())
    return Fact("todo", content, first or turn, "assistant", "", status, 1, turn, reference_of(exchange))


def mode_facts(called: Sequence[Called], turns: Sequence[Turn]) -> list[Fact]:
    """Whether the agent is only to plan. Nothing is said when it never was."""
    told = [(turn.number, True) for turn in turns if turn.role != "assistant" and _tells_plan_mode(turn)]
    for turn, exchange, reading in called:
        if reading.tool in _MODE_TOOLS and exchange.result and not exchange.result.is_error:
            told.append((turn, reading.tool == "enterplanmode"))
    if not told:
        return []
    place = {turn.number: at for at, turn in enumerate(turns)}
    turn, is_planning = max(told, key=lambda each: place[each[0]])
    content, status = (_PLANNING, "active") if is_planning else (_CARRYING_OUT, "done")
    return [Fact("mode", content, turn, "system", "", status, 1, turn, reference_id("turn", turn))]


def _tells_plan_mode(turn: Turn) -> bool:
    """A client tells it in a reminder, among what it adds in the user's name."""
    text = turn.messages[0].text[:40_000]
    return "<system-reminder>" in text and "lan mode" in text and _PLAN_MODE.search(text) is not None


def next_facts(
    agent: Sequence[Saying], user: Sequence[Saying], turns: Sequence[Turn], todos: Sequence[Fact] = ()
) -> list[Fact]:
    """What the agent said it would do next, since the user last spoke, and what it waits for.

    When it said nothing, the first point of its to-do list that is open comes next.
    """
    since = user[-1].turn if user else 0
    recent = [saying for saying in agent if saying.turn > since][-12:]
    found = [
        _fact("next_step", item, saying.turn, "open") for saying in recent[-3:] for item in _next_items(saying.text)
    ]
    if recent and turns and turns[-1].exchanges:
        intent = _intent(recent[-1].text)
        found += [_fact("next_step", intent, recent[-1].turn, "active")] if intent else []
    if not found:
        point = next((fact for fact in todos if fact.status == "open"), None)
        found = [structs.replace(point, kind="next_step")] if point else []
    return [*found[-_MOST_ITEMS:], *_blockers(recent, turns)]


def _intent(text: str) -> str:
    """The last sentence in which the agent says what it is about to do."""
    for sentence in reversed(list(sentences(text))):
        words = cues.spaced(sentence)
        if cues.has_any(words, _INTENTS) and not cues.has_any(words, _NO_INTENTS):
            return sentence if 10 < len(sentence) <= _LONGEST else ""
    return ""


def _next_items(text: str) -> list[str]:
    heading = _NEXT_HEADING.search(text)
    if heading is None:
        return []
    items = (_ITEM.match(line) for line in text[heading.end() : heading.end() + 4_000].strip("\n").split("\n"))
    return [item[1].strip() for item in items if item][:_MOST_ITEMS]


def _blockers(recent: Sequence[Saying], turns: Sequence[Turn]) -> list[Fact]:
    found = [
        _fact("blocker", sentence, saying.turn, "blocked")
        for saying in recent[-6:]
        for sentence in sentences(saying.text)
        if len(sentence) <= _LONGEST and _blocks(cues.spaced(sentence))
    ]
    if recent and turns and turns[-1].number == recent[-1].turn and not turns[-1].exchanges:
        said = list(sentences(recent[-1].text[-1_500:]))
        asked = [at for at, sentence in enumerate(said) if sentence.endswith(("?", "\uff1f"))]
        question = " ".join(with_context(said, asked[-1]).split()) if asked else ""
        found += [_fact("blocker", question, recent[-1].turn, "open")] if question else []
    found += _waiting(turns)
    return list({fact.content: fact for fact in found}.values())[-4:]


def _waiting(turns: Sequence[Turn]) -> list[Fact]:
    """Questions that were put to the user by a tool and have no answer yet."""
    last = turns[-1] if turns else None
    found: list[Fact] = []
    for exchange in last.exchanges if last else ():
        if exchange.call and exchange.result is None and last:
            reading = read_call(exchange.call)
            if reading.tool in ASKING_TOOLS:
                asked = [_question(each) for each in objects_in(reading.arguments, "questions")]
                asked = asked or [_question(reading.arguments)]
                found += [_fact("blocker", question, last.number, "open") for question in asked if question]
    return found


def _question(values: dict[str, Any]) -> str:
    text = values.get("question") or values.get("prompt")
    return " ".join(text.split())[:_LONGEST] if isinstance(text, str) else ""


def _blocks(words: str) -> bool:
    return cues.has_any(words, cues.BLOCKERS) and not cues.has_any(words, cues.HEDGES)


def _fact(kind: FactKind, content: str, turn: int, status: str) -> Fact:
    return Fact(kind, content, turn, "assistant", "", status, 1, turn, reference_id("turn", turn))
