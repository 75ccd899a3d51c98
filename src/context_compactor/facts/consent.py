"""What the user let the agent do and what not, quoted as the client handed it over.

These words come through tool results, so they keep the role `tool`: they are a record, never an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from context_compactor.classify.arguments import ASKING_TOOLS, objects_in
from context_compactor.classify.calls import read_call
from context_compactor.classify.failures import wording_of
from context_compactor.classify.outcomes import is_refusal
from context_compactor.classify.references import reference_of
from context_compactor.facts.exchanges import Called
from context_compactor.facts.fact import Fact, FactKind
from context_compactor.facts.speech import Saying
from context_compactor.messages.turn import ToolUse, Turn

_SAID = re.compile(r"the user said:\s*(\S.{0,600}?)(?=\n\n|\Z)", re.DOTALL)
_ANSWER = re.compile(r'"([^"\n]{1,400})"="([^"\n]{1,600})"')
_APPROVED = re.compile(r"\W*(?:user has approved|the user (?:has )?approved|approved by (?:the )?user)", re.IGNORECASE)
_LONGEST_ANSWER = 3_000
_LONGEST_OPTION = 160


def consent_facts(called: Sequence[Called]) -> list[Fact]:
    """Denials with what the user said to them, approved plans, and decisions by an answer to a question."""
    found: list[Fact] = []
    for turn, exchange, reading in called:
        answer = exchange.result.text if exchange.result else ""
        if is_refusal(answer) and len(answer) < _LONGEST_ANSWER:
            found.append(_denial(exchange, turn, answer))
        elif reading.tool == "exitplanmode" and _APPROVED.match(answer[:200]):
            found.append(_fact("approval", "plan approved", "", turn, exchange))
        elif reading.tool in ASKING_TOOLS and exchange.result and not exchange.result.is_error:
            found += _answers(exchange, turn, answer, reading.arguments)
    return found


def words_of_refusal(answer: str) -> str:
    """What the user said to a call that was refused, in one line; empty where nothing was said."""
    said = _SAID.search(answer[:_LONGEST_ANSWER])
    return " ".join(said[1].split()) if said else ""


def answers_in(answer: str) -> list[tuple[str, str]]:
    """Each question of an asking tool with the user's answer."""
    return [(question, reply.strip()) for question, reply in _ANSWER.findall(answer[:_LONGEST_ANSWER])]


def replies(turns: Iterable[Turn]) -> list[Saying]:
    """What the user said through tools: to a call that was denied, and to questions."""
    found: list[Saying] = []
    for turn in turns:
        for exchange in turn.exchanges:
            answer = exchange.result.text[:_LONGEST_ANSWER] if exchange.result else ""
            said = words_of_refusal(answer) if is_refusal(answer) else ""
            asked = exchange.call is not None and read_call(exchange.call).tool in ASKING_TOOLS
            words = said or (answer if asked else "")
            if words.strip():
                found.append(Saying(turn.number, words.strip()))
    return found


def _denial(exchange: ToolUse, turn: int, answer: str) -> Fact:
    words = words_of_refusal(answer)[:300]
    return _fact("denial", wording_of(exchange.call), f"the user said: {words}" if words else "", turn, exchange)


def _answers(exchange: ToolUse, turn: int, answer: str, arguments: dict[str, Any]) -> list[Fact]:
    """Each question with its answer; an option that the agent had described is told with its description."""
    pairs = answers_in(answer)
    if not pairs and answer.strip():
        return [_fact("approval", " ".join(answer[:300].split()), wording_of(exchange.call), turn, exchange)]
    options = {
        str(option.get("label")): option.get("description")
        for question in objects_in(arguments, "questions")
        for option in objects_in(question, "options")
    }
    told = ((question, reply, options.get(reply)) for question, reply in pairs)
    return [
        _fact("decision", f"{question} \u2192 {reply}", _described(description), turn, exchange)
        for question, reply, description in told
    ]


def _described(description: object) -> str:
    return " ".join(description.split())[:_LONGEST_OPTION] if isinstance(description, str) else ""


def _fact(kind: FactKind, content: str, detail: str, turn: int, exchange: ToolUse) -> Fact:
    return Fact(kind, content, turn, "tool", detail, "", 1, turn, reference_of(exchange))
