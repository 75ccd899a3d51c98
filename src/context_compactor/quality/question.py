"""1Q: what is wanted, in the context or in the answer to one archive search.

The search is made of the message in which the agent first needs the identifiers, with them taken out: what it
would ask for if it had forgotten the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.quality.identifiers import identifiers
from context_compactor.quality.reading import RawMessage, read_message
from context_compactor.quality.search import Search

ANSWER_TOKENS = 2000
_LONGEST = 2000


class Question(Struct, frozen=True):
    """One message of the agent without the identifiers it takes from memory, and which those are."""

    text: str
    names: tuple[int, ...]


def questions(future: Sequence[RawMessage], names: Sequence[str]) -> Iterator[Question]:
    """One question for each message of the agent that first needs some of the names."""
    left = {name: index for index, name in enumerate(names)}
    for message in future:
        if message.get("role") != "assistant":
            continue
        text = "\n".join(piece.text for piece in read_message(message))
        there = sorted(left.keys() & identifiers(text), key=lambda name: (-len(name), name))
        if there:
            yield Question(_without(text, there)[:_LONGEST], tuple(left.pop(name) for name in there))


def _without(text: str, names: Sequence[str]) -> str:
    for name in names:
        text = text.replace(name, " ")
    return text


def found_with_search(
    names: Sequence[str], kept: Sequence[bool], asked: Sequence[Question], search: Search
) -> float | None:
    """The share of names that are in the context (`kept`) or in the answer to the question that needs them."""
    found = {index for index, there in enumerate(kept) if there}
    for question in asked:
        if not found.issuperset(question.names):
            answer = identifiers(search(question.text, ANSWER_TOKENS))
            found.update(index for index in question.names if names[index] in answer)
    return len(found) / len(names) if names else None
