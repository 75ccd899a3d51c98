"""The record that an agent goes on with after a compaction, in the place of the summary that its model would write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from context_compactor.dialects.messages import Message
from context_compactor.dialects.record import record_span
from context_compactor.engine.report import Report
from context_compactor.engine.request import CompactionRequest
from context_compactor.facts.utterances import own_words
from context_compactor.json_values import read_json
from context_compactor.sessions import views
from context_compactor.sessions.compaction import compact
from context_compactor.sessions.core import Core, conversation_raws
from context_compactor.sessions.facts import all_facts
from context_compactor.sessions.log import logged_bodies
from context_compactor.text import flat_text, truncated_text
from context_compactor.tokens.counting import PromptSize

_LAST_STEPS = "[The last steps, which are not in the record:]"
_LONGEST_STEP = 3_000
# A rule may be cut in the record; by so many characters of its beginning it is known again.
_KNOWN_BY = 60
_STOPS = ("[Request interrupted by user", "The user doesn't want to proceed with this tool use")
_MORE_RULES = (
    "The user has given {count:,} more rules than had room in it. Before you change anything, list them with the tool "
    '`facts`, {{"kind": "constraint"}}, or `compactor facts --kind constraint`.'
)
_GO_ON = (
    "The window was compacted in the middle of your work, and the user has said nothing new: go on with the work where "
    "the newest turns end."
)


class AgentRecord(Struct, frozen=True):
    """A compaction for an agent: its report, the record, and what stands behind that in the context.

    Without a record the agent shall compact by itself, and `reason` says why.
    """

    report: Report
    record: str
    behind: Sequence[Message] = ()
    reason: str = ""


def record_request(core: Core, kind: Literal["threshold", "manual"], focus: str) -> CompactionRequest:
    """One message with everything, of the size that the settings say, or half of a short conversation.

    What the agent sends beside it is its own.
    """
    said = views.usage(core).tokens - core.fixed_tokens(core.counter(core.dialect()))
    tokens = max(min(core.settings.agent_record_tokens, said // 2), 1)
    asked = core.ask(kind=kind, target_tokens=tokens, focus=focus)
    settings = structs.replace(asked.settings, layout="record", overhead_tokens=0)
    return structs.replace(asked, settings=settings, prompt=PromptSize())


def write_record(core: Core, kind: Literal["threshold", "manual"], focus: str, why: str) -> AgentRecord:
    """Compact a session to one record; nothing is changed where there is none to give.

    The agent waits, and its own model is what would be asked: so none is.
    """
    report = compact(core, record_request(core, kind, focus), with_model=False, why=why)
    if not report.changed:
        return AgentRecord(report, "", reason=report.reason)
    record, behind = current_record(core)
    if not record:
        views.undo(core)
        return AgentRecord(report, "", reason="the compacted context holds no record")
    return AgentRecord(report, record, behind)


def current_record(core: Core) -> tuple[str, list[Message]]:
    """The record that the context of a session begins with, and the messages behind it."""
    context = core.current_context()
    messages = core.dialect(context.raws).parse(conversation_raws(context))
    span = record_span(messages[0].text) if messages else None
    return (messages[0].text[slice(*span)], messages[1:]) if span else ("", [])


def last_steps(behind: Sequence[Message], keeps: Callable[[Message, str], bool]) -> list[str]:
    """As text what stands behind the record as messages, which is so where a prompt came right after a result.

    `keeps` says of a message and the user's words in it whether the agent itself goes on with these words: then they
    are not repeated.
    """
    lines = [line for message in behind for line in _step_lines(message, keeps)]
    return ["\n".join((_LAST_STEPS, *(f"  {line}" for text in lines for line in text.split("\n"))))] if lines else []


def _step_lines(message: Message, keeps: Callable[[Message, str], bool]) -> Iterator[str]:
    if message.role == "assistant":
        yield from (f"agent: {text}" for text in (message.text,) if text)
        yield from (f"call: {each.name} {truncated_text(each.arguments, _LONGEST_STEP)}" for each in message.calls)
        return
    yield from (f"result: {truncated_text(each.text, _LONGEST_STEP)}" for each in message.results)
    words = own_words(message)
    if words and not keeps(message, words):
        yield f"user: {words}"


def reminder(core: Core, record: str, behind: Sequence[Message], recall_hint: str = "") -> str:
    """How the record is used, in the form in which a client speaks to its model; "" when there is nothing to say."""
    words = flat_text(record)
    rules = [flat_text(fact.content) for fact in all_facts(core, "constraint") if not fact.summarized_by]
    missing = [rule for rule in rules if rule[:_KNOWN_BY] not in words]
    is_asked = any(message.role == "user" and own_words(message) for message in behind)
    lines = [
        *([recall_hint] if recall_hint else []),
        *([_MORE_RULES.format(count=len(missing))] if missing and recall_hint else []),
        *([_GO_ON] if _is_working(core) and not is_asked else []),
    ]
    return "\n".join(("<system-reminder>", *lines, "</system-reminder>")) if lines else ""


def _is_working(core: Core) -> bool:
    """Whether the last message of the conversation is the result of a call that nobody has interrupted or refused."""
    bodies = list(logged_bodies(core.store, core.id, core.context_reader.log_state()).values())[-1:]
    last = core.dialect().parse([read_json(body) for body in bodies])
    return any(message.results and not own_words(message) and not _is_stopped(message) for message in last)


def _is_stopped(message: Message) -> bool:
    texts = (message.text, *(result.text for result in message.results))
    return any(stop in text for stop in _STOPS for text in texts)
