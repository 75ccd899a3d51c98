"""Four layers that keep an orchestrator small, each measured on a real session in which two sub-agents worked at once.

1. Sub-agents work in contexts of their own.  2. The next one starts with 500 tokens of what they found.
3. The orchestrator keeps a small state and lets their answers go.  4. What it said and did itself is compacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from context_compactor import Compaction, compact
from context_compactor.dialects.detection import find_dialect
from context_compactor.dialects.messages import Message, ToolResult
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.dialects.turns import ToolUse, split_turns
from context_compactor.facts.calls import parse_call
from context_compactor.facts.kinds import prefix_for, reference_of
from context_compactor.handoff.context_summary import count_tokens
from context_compactor.handoff.orchestrator import POINTS, Extracted, Points, after, begin, next_request, start
from context_compactor.handoff.parser import Parsed, read_report
from context_compactor.handoff.protocol import HandoffRequest, HandoffResponse, OrchestratorState
from context_compactor.tokens.counting import message_counter_for

SESSION = Path(__file__).with_name("demo_session.jsonl.gz")
WINDOW = 90_000
NEXT_TASK = "Reply to both review comments, then fix the other four."


class Layer(Struct, frozen=True):
    """What one layer changes: tokens without it and with it."""

    name: str
    where: str
    without: int
    tokens: int

    @property
    def saved(self) -> float:
        """The share that is no longer carried."""
        return 1 - self.tokens / self.without


class Work(Struct, frozen=True):
    """The session after its sub-agents have answered."""

    transcript: Transcript
    messages: list[Message]
    exchanges: list[ToolUse]
    answers: list[Parsed[HandoffResponse]]
    extracted: list[Extracted]
    state: OrchestratorState
    points: Points


def work_through(path: Path = SESSION) -> Work:
    """Start the session's sub-agents, take their answers, and measure at the four points."""
    transcript = read_transcript(path)
    messages = find_dialect(transcript.dialect, transcript.messages).parse(transcript.messages)
    called = [exchange for turn in split_turns(messages) for exchange in turn.exchanges]
    exchanges = [exchange for exchange in called if prefix_for(exchange.call) == "agent"]
    requests = [HandoffRequest(reference_of(each), "research", _task(each)) for each in exchanges]
    state = begin("pr-117", "shadow branch migration")
    for request in requests:
        state = start(state, request)
    points = Points().called(len(called))
    answers = [read_report(_answer(each), request) for each, request in zip(exchanges, requests, strict=True)]
    extracted: list[Extracted] = []
    for received in answers:
        state, taken = after(state, received, ref=received.message.task_id)
        points = points.answered(received, state)
        extracted.append(taken)
    return Work(transcript, messages, exchanges, answers, extracted, state, points)


def layers(work: Work) -> list[Layer]:
    """The four layers, and all of them together."""
    session = _tokens(work, work.messages)
    alone = session - sum(map(_exchanged, work.exchanges)) + work_of_subagents(work)
    request = next_request(work.state, "write-1", "write", NEXT_TASK)
    answers = sum(count_tokens(received.raw) for received in work.answers)
    messages = _without_answers(work)
    light = _tokens(work, messages) + work.state.tokens
    compacted = _compacted(messages).report.tokens_after + work.state.tokens
    return [
        Layer("1 sub-agents", "the orchestrator's context", alone, session),
        Layer("2 handoff", "what the next sub-agent starts with", answers + count_tokens(NEXT_TASK), _size(request)),
        Layer("3 state", "what is kept of the answers", answers, sum(taken.tokens_kept for taken in work.extracted)),
        Layer("4 compaction", "the orchestrator's context", light, compacted),
        Layer("1, 3 and 4", "the orchestrator's context", alone, compacted),
    ]


def work_of_subagents(work: Work) -> int:
    """What the sub-agents' own contexts held, at least, in tokens as we count.

    Their client reported how full each was in the end. That includes their instructions and tools, which an
    orchestrator does not carry twice: taken off are those of the orchestrator, which are longer.
    """
    usages = sorted(work.transcript.usages.items())
    (first, opening), (last, ending) = usages[0], usages[-1]
    scale = _tokens(work, work.messages[first:last]) / (ending.prompt - opening.prompt)
    instructions = opening.prompt - _tokens(work, work.messages[:first]) / scale
    used = [received.message.tokens_used or 0 for received in work.answers]
    return sum(int(max(tokens - instructions, 0) * scale) for tokens in used)


def report(work: Work) -> Iterator[str]:
    """The layers and the measurement points as lines."""
    yield f"{'layer':<14}{'measured':<38}{'without':>9}{'with':>9}{'saved':>8}"
    for layer in layers(work):
        yield f"{layer.name:<14}{layer.where:<38}{layer.without:>9,}{layer.tokens:>9,}{layer.saved:>8.0%}"
    yield ""
    yield f"{'measurement point':<20}{'count':>7}{'median':>10}{'largest':>10}{'total':>10}"
    for point in POINTS:
        seen = work.points.figures(point)
        yield f"{point:<20}{seen.count:>7,}{seen.median:>10,.0f}{seen.max:>10,}{seen.total:>10,}"


def _task(exchange: ToolUse) -> str:
    return str(parse_call(exchange.call).arguments["description"]) if exchange.call else ""


def _prompt(exchange: ToolUse) -> str:
    return exchange.call.arguments if exchange.call else ""


def _answer(exchange: ToolUse) -> str:
    return exchange.result.text if exchange.result else ""


def _exchanged(exchange: ToolUse) -> int:
    return count_tokens(_prompt(exchange)) + count_tokens(_answer(exchange))


def _size(request: HandoffRequest) -> int:
    return count_tokens(request.to_json())


def _tokens(work: Work, messages: list[Message]) -> int:
    return message_counter_for(None, work.transcript.dialect).request_tokens(messages)


def _without_answers(work: Work) -> list[Message]:
    """The orchestrator's messages with one line in the place of each sub-agent's answer."""
    spoken = find_dialect(work.transcript.dialect, work.transcript.messages)
    calls = (exchange.call.id for exchange in work.exchanges if exchange.call)
    lines = dict(zip(calls, (taken.reference for taken in work.extracted), strict=True))
    edited: list[Message] = []
    for message in work.messages:
        parts = enumerate(message.parts)
        edits = {
            at: lines[part.call_id] for at, part in parts if isinstance(part, ToolResult) and part.call_id in lines
        }
        edited.append(spoken.edit(message, edits) or message if edits else message)
    return edited


def _compacted(messages: list[Message]) -> Compaction:
    return compact([message.raw for message in messages], window=WINDOW, level="soft")


if __name__ == "__main__":
    print("\n".join(report(work_through())))
