"""Asks a model for a summary: in one request or in parts, each call accounted for and none made twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from textwrap import shorten
from threading import Lock

import msgspec
from msgspec import Struct, structs

from context_compactor.dialects.record import RecordEntry
from context_compactor.dialects.turns import reference_id
from context_compactor.engine.report import ModelCall
from context_compactor.errors import (
    LimitReached,
    ModelDenied,
    ModelError,
    ModelOverflow,
    ModelStopped,
    ModelUnavailable,
)
from context_compactor.facts.fact import Fact
from context_compactor.facts.ledgers import fact_entry, section_of
from context_compactor.facts.utterances import user_utterances
from context_compactor.protocols import Model
from context_compactor.settings import ModelEntry
from context_compactor.summarize.evidence import Evidence, Objection
from context_compactor.summarize.gate import check_answer
from context_compactor.summarize.input import (
    DEFAULT_LIMITS,
    MIN_ROOM,
    SummaryLimits,
    SummaryOutcome,
    SummarySubject,
    chunk_room,
    expected_calls,
    language_for,
)
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, ModelStep, raise_if_stopped
from context_compactor.summarize.prompt import Prompt, built_in_prompt
from context_compactor.summarize.request import (
    Chunk,
    Count,
    PromptMaterial,
    SummaryAssignment,
    build_request,
    cut_chunks,
    escape,
    map_parallel,
    measure_coverage,
    quote_turns,
    quoted,
    request_tokens,
)
from context_compactor.summarize.summary import Summary, fit_summary, merge_summaries, render_summary
from context_compactor.tokens.prices import ModelUsage, call_cost

ACCEPTED = "accepted"
_LIMIT = "limit"
_FREE = ("denied", "overflow", _LIMIT)
_CODES = {
    ModelDenied: "denied",
    ModelOverflow: "overflow",
    ModelUnavailable: "unavailable",
    ModelStopped: "stopped",
    LimitReached: _LIMIT,
}


class Caller:
    """Sends requests to one model for one compaction; may be used from several threads at once."""

    def __init__(
        self,
        model: Model,
        control: Control,
        count: Count,
        most_calls: int,
        failed: Collection[str] = (),
        entries: Mapping[str, ModelEntry] | None = None,
    ) -> None:
        self.model = model
        self.control = control
        self.count = count
        self.calls: list[ModelCall] = []
        self.objections: list[Objection] = []
        self.corrections: list[Objection] = []
        """What was changed in answers that are used."""
        self.failed: set[str] = set(failed)
        """Requests that need not be sent again, in another compaction neither."""
        self._tried: set[str] = set()
        self.expected = 0
        """How many calls it will take in all, for whoever looks; 0 when that is not known."""
        self._left = self._most = most_calls
        self._sent: dict[str, int] = {}
        self._entries = entries
        self._lock = Lock()

    @property
    def left(self) -> int:
        """How many calls may still be made."""
        return self._left

    def send(self, request: ModelRequest, *, alone: bool = True) -> ModelAnswer | None:
        """The answer, or None when the very same request failed before. What fails is in the account and raised.

        Only a call that runs alone shows its text while it is written.
        """
        name = fingerprint(request)
        if name in self.failed or name in self._tried:
            self.object_to(Objection("failed_before", "the same request failed before and is not sent again"))
            return None
        number = self._begin()
        own = Control(self.control.deadline, self.control.cancel, self.control.on_text if alone else None)
        own.on_step = lambda step: self._on_step(name, step)
        self.control.report(ModelStep("asked", self.model.name, number, max(self.expected, number)))
        self._sent[name] = 1
        try:
            answer = self.model.write(request, own)
        except ModelError as error:
            self._sent[name] -= isinstance(error, LimitReached)  # the last attempt was not made
            self.note(request, None, [objection_to(error)])
            raise
        self.control.report(ModelStep("answered", self.model.name, number, max(self.expected, number)))
        return answer

    def _on_step(self, name: str, step: ModelStep) -> None:
        if step.kind == "retried":
            self._sent[name] = step.number
        self.control.report(step)

    def note(
        self,
        request: ModelRequest,
        answer: ModelAnswer | None,
        objections: Collection[Objection],
        corrections: Collection[Objection] = (),
    ) -> None:
        """Write down what became of a request. An answer without objections is used, with these corrections."""
        outcome = _codes(objections) or f"{ACCEPTED} with corrections: {_codes(corrections)}"
        call = self._account(request, answer, outcome if objections or corrections else ACCEPTED)
        with self._lock:
            self.calls.append(call)
            self.objections.extend(objections)
            self.corrections.extend(() if objections else corrections)
            if objections and outcome != _LIMIT:  # what was not sent has not failed
                # Only what was said of the request itself is true next time; a server may be back by then.
                is_lasting = answer is not None or outcome == "overflow"
                (self.failed if is_lasting else self._tried).add(fingerprint(request))

    def _account(self, request: ModelRequest, answer: ModelAnswer | None, outcome: str) -> ModelCall:
        used = answer.usage if answer else ModelUsage()
        shown = used.input + used.cache_read + used.cache_write
        attempts = self._sent.get(fingerprint(request), 1)
        # A request that was turned down is not billed; of one that broke off, or was tried before, nobody knows.
        unknown = 0.0 if outcome in _FREE and attempts <= (outcome != _LIMIT) else None
        return ModelCall(
            model=(answer.model if answer else "") or self.model.name,
            tokens_shown=shown or request_tokens(request, self.count),
            tokens_written=used.output or (self.count(answer.text) if answer else 0),
            attempts=attempts,
            outcome=outcome,
            cost=unknown if used == ModelUsage() else call_cost(used, self.model.name, self._entries),
            cache_read=used.cache_read,
            cache_write=used.cache_write,
        )

    def give_up(self, objection: Objection) -> None:
        """Write down that nothing is sent, and why."""
        with self._lock:
            self.calls.append(ModelCall(self.model.name, 0, 0, 0, objection.code, 0.0))
        self.object_to(objection)

    def object_to(self, objection: Objection) -> None:
        """Write down what speaks against going on, beside what was said of a single call."""
        with self._lock:
            self.objections.append(objection)

    def _begin(self) -> int:
        """The number of the next call. One that may not be made is in the account and raises `ModelStopped`."""
        try:
            raise_if_stopped(self.control)
            return self._take()
        except ModelStopped as error:
            self.give_up(objection_to(error))
            raise

    def _take(self) -> int:
        with self._lock:
            if self._left <= 0:
                raise LimitReached("attempt_limit: one compaction has made as many calls as it may")
            self._left -= 1
            return self._most - self._left


def _codes(objections: Collection[Objection]) -> str:
    return ", ".join(dict.fromkeys(objection.code for objection in objections))


def objection_to(error: ModelError) -> Objection:
    """A failed call as an objection."""
    return Objection(_CODES.get(type(error), "failed"), str(error))


def fingerprint(request: ModelRequest) -> str:
    """The same for the same request, so that one that failed is known again."""
    body = repr(msgspec.to_builtins(request)).encode("utf-8", "replace")
    return sha256(body).hexdigest()[:16]


UNMERGED = "unmerged"
_HALVINGS = 3
_ATTEMPTS = 2
# How many characters of an earlier request stand before turns that do not hold it.
_BACKGROUND = 300
_PART_HEADING_TOKENS = 20


def write_summary(
    model: Model,
    subject: SummarySubject,
    control: Control,
    count: Count,
    limits: SummaryLimits = DEFAULT_LIMITS,
    prompt: Prompt | None = None,
    failed: Collection[str] = (),
) -> SummaryOutcome:
    """Ask a model for a summary of these turns. Whatever goes wrong is an objection; only a cancelled call raises."""
    caller = Caller(model, control, count, limits.calls, failed, limits.models)
    limits = limits.within(model)
    writer = SummaryWriter(caller, subject, limits, prompt or built_in_prompt("summarize"))
    summary = None
    try:
        summary = writer.write()
    except ModelError as error:
        if isinstance(error, ModelStopped) and control.cancel.is_set():
            raise
        caller.object_to(objection_to(error))
    return writer.outcome(summary)


class SummaryQuestion(Struct, frozen=True):
    """Some material, and what the answer is compared with.

    A question that is `alone` is not asked at the same time as others, so its answer may be shown as it is written.
    """

    assignment: SummaryAssignment
    material: PromptMaterial
    evidence: Evidence
    alone: bool = True


def ask_model(caller: Caller, question: SummaryQuestion) -> Summary | None:
    """A summary that may be used, or None when neither the first answer nor the second one can be."""
    wrong: tuple[Objection, ...] = ()
    for _ in range(_ATTEMPTS):
        is_cut = any(objection.code == "cut_off" for objection in wrong)
        assignment = structs.replace(question.assignment, is_roomy=is_cut)
        advice = list(dict.fromkeys(objection.advice for objection in wrong))
        request = build_request(assignment, question.material, caller.model, advice)
        answer = caller.send(request, alone=question.alone)
        if answer is None:  # it failed before and nothing has changed: another attempt would only be billed again
            return None
        checked = check_answer(answer, question.evidence)
        wrong = checked.wrong
        caller.note(request, answer, wrong, checked.corrections)
        if not wrong:
            return checked.summary
    return None


class SummaryWriter:
    """The way of one summary."""

    def __init__(self, caller: Caller, subject: SummarySubject, limits: SummaryLimits, prompt: Prompt) -> None:
        self._caller = caller
        self._subject = subject
        self._limits = limits
        self._quotes = quote_turns(subject.turns)
        self._before = subject.before(caller.count)
        self._source = "\n".join(f"[{quote.heading}]\n{quote.body}" for quote in self._quotes)
        self._assignment = SummaryAssignment(prompt, language_for(subject), limits.tokens, subject.focus)
        self._chunks: list[Chunk] = []
        self._refused = 0

    def write(self) -> Summary | None:
        """A summary that may be used, or None."""
        summary = self._with_prefix() if self._subject.prefix else None
        return summary or self._as_copy()

    def outcome(self, summary: Summary | None) -> SummaryOutcome:
        """What came of it, with the account. A summary of less than all that there was is not used."""
        caller = self._caller
        coverage = measure_coverage(self._quotes, self._chunks, caller.count)
        return SummaryOutcome(
            summary if coverage.share == 1.0 else None,
            tuple(caller.calls),
            tuple(dict.fromkeys(caller.objections)),
            tuple(dict.fromkeys(caller.corrections)),
            structs.replace(coverage, refused=self._refused),
            frozenset(caller.failed),
        )

    def _with_prefix(self) -> Summary | None:
        """One request behind the conversation's own messages; a copy is the way out when that does not fit."""
        whole = cut_chunks(self._quotes, self._caller.model.window, self._caller.count)
        if len(whole) != 1:
            return None
        question = self._question(self._assignment, whole[0], self._before.previous)
        own = structs.replace(
            question.material,
            text=turn_index(self._subject),
            prefix=self._subject.prefix,
            beside=self._subject.beside,
        )
        try:
            summary = ask_model(self._caller, structs.replace(question, material=own))
        except ModelError as error:
            if isinstance(error, ModelDenied | ModelStopped | ModelUnavailable):
                raise
            return None  # too long, or not taken as it is: a copy in parts still may be
        self._chunks = whole if summary else []
        return summary

    def _as_copy(self) -> Summary | None:
        """The whole span at once, or in parts where it is too long, also when that shows only after it was sent."""
        caller = self._caller
        room = chunk_room(self._assignment, caller.model, caller.count, self._before, self._limits)
        for _ in range(_HALVINGS + 1):
            if room < MIN_ROOM:
                break
            chunks = cut_chunks(self._quotes, room, caller.count)
            try:
                return self._mapped(chunks, room)
            except ModelOverflow:  # halve what was really sent, or the next try could be the same
                room = min(room, max(chunk.tokens for chunk in chunks)) // 2
        words = f"the model's window of {caller.model.window:,} tokens leaves {max(room, 0):,} for the conversation"
        caller.object_to(Objection("window_too_small", words))
        return None

    def _mapped(self, chunks: list[Chunk], room: int) -> Summary | None:
        if not chunks:
            return None
        needed = expected_calls(len(chunks), self._limits, room)
        if needed > self._caller.left:
            words = f"{len(chunks):,} chunks need {needed:,} calls, more than the {self._caller.left:,} "
            self._caller.give_up(Objection("too_many_calls", f"{words}that attempt_limit leaves"))
            return None
        self._chunks = chunks
        self._caller.expected = needed
        if len(chunks) == 1:
            return ask_model(self._caller, self._question(self._assignment, chunks[0], self._before.previous))
        return self._from_parts(chunks, room)

    def _from_parts(self, chunks: list[Chunk], room: int) -> Summary | None:
        """Each part summarized by itself, the first with the earlier record, and then one made of all."""
        questions = [
            structs.replace(
                self._question(self._assignment, chunk, Summary() if at else self._before.previous), alone=False
            )
            for at, chunk in enumerate(chunks)
        ]
        summaries = map_parallel(
            lambda question: ask_model(self._caller, question),
            questions,
            self._limits.parallel,
            self._caller.control.cancel.set,
        )
        self._refused = summaries.count(None)
        if 2 * self._refused > len(chunks):  # a model that fails so often is not believed in the rest
            return None
        parts = [part or ledger_summary(self._facts_of(chunk)) for part, chunk in zip(summaries, chunks, strict=True)]
        return self._merged([part for part in parts if part], room)

    def _merged(self, parts: Sequence[Summary], room: int) -> Summary | None:
        """One summary of all parts, a few at a time; line by line where the model fails: no summary is given up."""
        while len(parts) > 1:
            parts = [self._joined(group, room) for group in grouped(parts, room, self._caller.count)]
        return fit_summary(parts[0], self._limits.tokens, self._caller.count)[0] if parts else None

    def _joined(self, group: Sequence[Summary], room: int) -> Summary:
        if len(group) == 1:
            return group[0]
        text = "\n".join(f"[part {at}]\n" + "\n".join(quoted(render_summary(part))) for at, part in enumerate(group, 1))
        merged = None
        has_failed = any(objection.code == UNMERGED for objection in self._caller.objections)
        if self._caller.count(text) <= room and not has_failed:
            try:
                assignment = structs.replace(self._assignment, prompt=built_in_prompt("merge"))
                merged = ask_model(
                    self._caller, SummaryQuestion(assignment, PromptMaterial(text), self._evidence(self._source))
                )
            except ModelError as error:
                if self._caller.control.cancel.is_set():
                    raise
                self._caller.object_to(Objection(UNMERGED, f"parts were joined without the model: {error}"))
        return merged or reduce(merge_summaries, group)

    def _question(self, assignment: SummaryAssignment, chunk: Chunk, previous: Summary) -> SummaryQuestion:
        text = self._background(chunk) + chunk.text
        material = structs.replace(self._before, text=text, previous=previous)
        return SummaryQuestion(assignment, material, self._evidence(text, chunk))

    def _background(self, chunk: Chunk) -> str:
        """What the turns of a chunk are about, when the request was made before them."""
        asked = [utterance for utterance in user_utterances(self._subject.turns) if utterance.turn < min(chunk.turns)]
        if not asked:
            return ""
        words = escape(shorten(asked[-1].text, _BACKGROUND, placeholder=" …"))
        return f"[said before these turns, {reference_id('turn', asked[-1].turn)} user]\n {words}\n"

    def _facts_of(self, chunk: Chunk) -> list[Fact]:
        return [fact for fact in self._subject.facts if fact.turn in chunk.turns]

    def _evidence(self, text: str, chunk: Chunk | None = None) -> Evidence:
        """What an answer on a part of the span, or on all of it, is compared with."""
        subject = self._subject
        return Evidence(
            "\n".join((subject.system, render_summary(subject.previous), text)),
            [turn for turn in subject.turns if chunk is None or turn.number in chunk.turns],
            language=self._assignment.language,
            facts=self._facts_of(chunk) if chunk else subject.facts,
            earlier=subject.previous,
            own_headings=self._assignment.prompt.is_own,
            system=subject.system,
            asked=f"{built_in_prompt('frame').text}\n{self._assignment.prompt.text}",
        )


def turn_index(subject: SummarySubject) -> str:
    """The ids of turns with their first words, for a model that sees them as the provider has them."""
    lines = [
        f"{quote.heading}: {escape(shorten(quote.body, 60, placeholder=' …'))}" for quote in quote_turns(subject.turns)
    ]
    return "\n".join(lines)


def grouped(parts: Sequence[Summary], room: int, count: Count) -> list[list[Summary]]:
    """Parts in order, as many together as fit; two at least, so that there are fewer after each round."""
    groups: list[list[Summary]] = []
    tokens = 0
    for part in parts:
        cost = count(render_summary(part)) + _PART_HEADING_TOKENS
        if not groups or (tokens + cost > room and len(groups[-1]) > 1):
            groups.append([])
            tokens = 0
        groups[-1].append(part)
        tokens += cost
    return groups


def ledger_summary(facts: Sequence[Fact]) -> Summary:
    """What is known of a part without a model, under the record's headings."""
    sections: dict[str, tuple[RecordEntry, ...]] = {}
    for fact in facts:
        title = section_of(fact.kind)
        sections[title] = (*sections.get(title, ()), fact_entry(fact))
    return Summary(sections)
