"""The request for a record: our frame, the prompt, and the turns as material between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.llm.model import ModelMessage, ModelRequest
from context_compactor.messages.record import EXCERPTS, HAPPENED, SECTIONS
from context_compactor.prompts.prompt import Prompt, built_in
from context_compactor.protocols import Model
from context_compactor.summarize.language import language_name
from context_compactor.summarize.quoting import escape, framed, mark_for
from context_compactor.summarize.spans import Count
from context_compactor.summarize.summary import Summary, plain, render_summary

_EARLIER = (
    "This is the record of the turns before these. Yours takes its place, so bring it up to date: keep its lines as "
    "they are while they hold, change those that the turns have overtaken, and add what is new."
)
_SYSTEM = "This is what the agent works by; it stays in its context, so do not repeat it."
_ABOVE = "The turns are the conversation above this message, up to here. These are their ids:"
# How much longer than asked an answer may get before it is cut off, and what the headings take.
_HEADING_TOKENS = 150
_SLACK = 1.5


class Material(Struct, frozen=True):
    """What a model is shown: some turns, and what stands before them. All but `previous` was quoted already.

    With a `prefix` the turns are the conversation's own messages, and `text` is only the list of their ids.
    """

    text: str
    system: str = ""
    previous: Summary = Summary()
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}


class Assignment(Struct, frozen=True):
    """What is asked for: by which prompt, in which language, in how many tokens, and with what in view."""

    prompt: Prompt
    language: str
    tokens: int
    focus: str = ""
    is_roomy: bool = False
    """Let the answer run longer than it should before it is cut off."""


def build_request(
    assignment: Assignment, material: Material, model: Model, objections: Sequence[str] = ()
) -> ModelRequest:
    """The request to write the record of some material. `objections` say what was wrong with an answer before."""
    told = "\n".join(escape(line) for line in render_summary(material.previous).split("\n"))
    mark = mark_for(f"{material.system}\n{told}\n{material.text}")
    shown = f"{_ABOVE}\n{material.text}" if material.prefix else framed(material.text, mark, "conversation")
    parts = [
        f"{_SYSTEM}\n{framed(material.system, mark, 'system text')}\n"
        if material.system and not material.prefix
        else "",
        f"{_EARLIER}\n{framed(told, mark, 'earlier record')}\n" if told else "",
        shown,
    ]
    asked = {"language": language_name(assignment.language), "tokens": str(assignment.tokens)}
    frame = built_in("frame").fill(mark=mark, **asked)
    question = assignment.prompt.fill(
        messages="\n".join(filter(None, parts)), headings=headings(), focus=focus_line(assignment.focus), **asked
    )
    if objections:
        question += "\n" + built_in("again").fill(objections="\n".join(f"- {words}" for words in objections))
    said: tuple[ModelMessage, ...] = (ModelMessage("system", frame), ModelMessage("user", question))
    if material.prefix:  # the prefix has instructions of its own: a second system text is not taken everywhere
        said = (ModelMessage("user", f"{frame}\n{question}"),)
    room = answer_room(assignment, model)
    return ModelRequest(messages=said, max_tokens=room, prefix=material.prefix, beside=material.beside)


def headings() -> str:
    """The headings of the record, as a prompt may name them."""
    return "\n".join(f"## {plain(title)}" for title in (*SECTIONS, HAPPENED, EXCERPTS))


def focus_line(focus: str) -> str:
    """The line that tells a model what the user wants most attention for; nothing when there is no wish."""
    words = escape(" ".join(focus.split()))
    return f"Pay most attention to what concerns: {words}\n" if words else ""


def answer_room(assignment: Assignment, model: Model) -> int:
    """The most tokens the answer may have: what was asked for with some slack, always within the model's limits."""
    wanted = int(assignment.tokens * _SLACK) + _HEADING_TOKENS
    return max(min(wanted * 4 if assignment.is_roomy else wanted, model.most_output, model.window // 2), 1)


def request_tokens(request: ModelRequest, count: Count) -> int:
    """The tokens of a request's own messages, without its prefix."""
    return sum(count(message.text) + 4 for message in request.messages)


def room_for_text(assignment: Assignment, model: Model, count: Count, before: Material) -> int:
    """How many tokens of turns fit into one request beside all else; our counts may be a tenth too low."""
    bare = build_request(assignment, before, model)
    return int(model.window * 0.9) - bare.max_tokens - request_tokens(bare, count)
