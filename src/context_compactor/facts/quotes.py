"""What the record quotes of the user: the first request, the newest one, and a project's rules in the user's name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import structs

from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import own_words
from context_compactor.messages.ends import beginning, ending
from context_compactor.messages.record import Quote, Record
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn

PROJECT_RULES = "project_rules"
LEFT_OUT = "characters left out"
_CUT = re.compile(rf'\n\[… ([\d,]+) {LEFT_OUT}: recall\("turn_\d+"\)\]\n')
# A quote's share of the target, the tokens it may always have, and those that a cut must save to be worth its mark.
_QUOTE_SHARE = 0.07
_SHORT_QUOTE = 60
_LEAST_CUT = 20


def find_quotes(
    facts: Sequence[Fact], turns: Sequence[Turn], past: Record | None, target: int, count: Callable[[str], int]
) -> tuple[Quote, ...]:
    """What the user asked for first and last, and project instructions in the user's name, as far as they are short."""
    by_number = {turn.number: turn for turn in turns}
    tasks = {fact.turn: fact.status for fact in facts if fact.kind == "task"}
    fresh = [_quote(by_number[number], status) for number, status in tasks.items() if number in by_number]
    earlier = [_overtaken(quote) if tasks else quote for quote in (past.quotes if past else ())]
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


def _overtaken(quote: Quote) -> Quote:
    return structs.replace(quote, status="earlier") if quote.status == "active" else quote


def _is_project_rules(turn: Turn) -> bool:
    """Whether a turn in the user's name holds project instructions that a client put there."""
    start = turn.messages[0].text[:200].lstrip()
    return turn.role == "user" and start.startswith(("# AGENTS.md instructions", "<user_instructions>"))


def _quote(turn: Turn, status: str) -> Quote:
    words = "\n".join(filter(None, (own_words(message) for message in turn.messages if message.role == "user")))
    return Quote(reference_id("turn", turn.number), words.strip("\n"), status)
