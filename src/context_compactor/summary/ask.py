"""The request for a summary: our frame, the prompt, and the turns as material between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from context_compactor.llm.model import ModelMessage, ModelRequest
from context_compactor.prompts.prompt import Prompt, built_in
from context_compactor.protocols import Model
from context_compactor.summary.language import language_name
from context_compactor.summary.quoting import escape, framed, mark_for
from context_compactor.summary.shape import Prose, render_prose, template
from context_compactor.summary.spans import Count

_EARLIER = (
    "Here is a summary of the turns before these. Bring it up to date: keep its lines as they are while they hold, "
    "change those that the turns have overtaken, and add what is new."
)
_ABOVE = "The turns are the conversation above this message, up to here."
# What the headings take, and how much longer than asked an answer may get before it is cut off.
_HEADING_TOKENS = 150
_SLACK = 1.5


class Assignment(Struct, frozen=True):
    """What is asked for: by which prompt, in which language, in how many tokens, and with what in view."""

    prompt: Prompt
    language: str
    tokens: int
    focus: str = ""
    is_roomy: bool = False
    """Let the answer run longer than it should before it is cut off."""


def build_request(
    assignment: Assignment,
    text: str,
    model: Model,
    *,
    previous: Prose | None = None,
    objections: Sequence[str] = (),
    prefix: tuple[dict[str, Any], ...] = (),
    beside: dict[str, Any] | None = None,
) -> ModelRequest:
    """The request to summarize a text that was quoted already. With a prefix the text is what the prefix shows.

    `beside` is what the agent sends with these messages.
    """
    told = render_prose(previous) if previous else ""
    mark = mark_for(f"{told}\n{text}")
    shown = _ABOVE if prefix else framed(text, mark, "conversation")
    messages = f"{_EARLIER}\n{framed(told, mark, 'earlier summary')}\n\n{shown}" if told else shown
    asked = {
        "language": language_name(assignment.language),
        "tokens": str(assignment.tokens),
        "headings": template(),
        "focus": focus_line(assignment.focus),
    }
    frame = built_in("frame").fill(mark=mark, **{name: asked[name] for name in ("language", "tokens", "headings")})
    question = assignment.prompt.fill(messages=messages, **asked)
    if objections:
        question += "\n" + built_in("again").fill(objections="\n".join(f"- {words}" for words in objections))
    said: tuple[ModelMessage, ...] = (ModelMessage("system", frame), ModelMessage("user", question))
    if prefix:  # the prefix has instructions of its own: a second system text is not taken everywhere
        said = (ModelMessage("user", f"{frame}\n{question}"),)
    room = answer_room(assignment, model)
    return ModelRequest(messages=said, max_tokens=room, prefix=prefix, beside=beside or {})


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


def room_for_text(assignment: Assignment, model: Model, count: Count, previous: Prose | None = None) -> int:
    """How many tokens of a span fit into one request beside all else; our counts may be a tenth too low."""
    bare = build_request(assignment, "", model, previous=previous)
    return int(model.window * 0.9) - bare.max_tokens - request_tokens(bare, count)
