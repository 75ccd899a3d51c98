"""What the user asked for, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import structs

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, is_quoted
from context_compactor.messages.client_text import CLIENT_COMMANDS
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn

_LONGEST = 300
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


def task_facts(sayings: Sequence[Saying], turns: Sequence[Turn]) -> list[Fact]:
    """The first request and the later ones; one that is made again counts.

    A request is `done` when the agent closed it with an answer and the user moved on or thanked, `superseded` when the
    user cut it off, and `active` as long as it is neither.
    """
    answers = {turn.number: text for turn in turns if (text := _answer(turn))}
    asked = {after.number for before, after in pairwise(turns) if "?" in answers.get(before.number, "")[-_LONGEST:]}
    requests = [
        saying
        for at, saying in enumerate(sayings)
        if is_request(saying.text) and (at == 0 or not _only_answers(saying, asked))
    ] or list(sayings[:1])
    answered = list(answers)
    stopped = [turn.number for turn in turns if turn.role == "user" and not turn.exchanges and _is_interruption(turn)]
    thanked = [saying.turn for saying in sayings if is_closing(saying.text)]
    found: dict[str, Fact] = {}
    for at, request in enumerate(requests):
        later = requests[at + 1].turn if at + 1 < len(requests) else None
        fact = _fact(request, _status(request.turn, later, answered, stopped, thanked))
        before = found.pop(fact.content, None)
        if before is not None and before.detail == fact.detail:
            fact = structs.replace(fact, turn=before.turn, count=before.count + 1)
        found[fact.content] = fact
    return list(found.values())


def _status(
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
    told = [word for word in words if word not in cues.ACKNOWLEDGEMENTS and not word.isdigit()]
    return len(told) > 1 or any(len(word) > 6 or not word.isascii() for word in told)


def _only_answers(saying: Saying, asked: set[int]) -> bool:
    """Whether the user only answers a question that waited in the turn before; the request stays the one before it."""
    if saying.turn not in asked or len(saying.text) > _LONGEST_ANSWER or "?" in saying.text:
        return False
    words = cues.spaced(saying.text)
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


def _fact(request: Saying, status: str) -> Fact:
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
    return Fact("task", content[:_LONGEST].rstrip(), request.turn, "user", rest, status, 1, request.turn, ref)


def _is_interruption(turn: Turn) -> bool:
    text = turn.messages[0].text[:400]
    return any(sign in text for sign in _INTERRUPTED)


def _answer(turn: Turn) -> str:
    """What the agent said in a turn in which it called nothing: it had finished, or asked."""
    if turn.role != "assistant" or turn.exchanges:
        return ""
    return "\n".join(message.text for message in turn.messages)
