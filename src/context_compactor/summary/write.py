"""A summary by a model, or none: ask, ask again and say what was wrong, ask for less, and then do without.

Without one the record is what it is without a model: the digest. So nothing that a model does, or fails to do, can
make a context worse.
"""

from __future__ import annotations

from collections.abc import Collection
from textwrap import shorten

from msgspec import structs

from context_compactor.errors import ModelDenied, ModelError, ModelOverflow, ModelStopped, ModelUnavailable
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import user_sayings
from context_compactor.llm.model import Control
from context_compactor.messages.references import reference_id
from context_compactor.prompts.prompt import Prompt, built_in
from context_compactor.protocols import Model
from context_compactor.summary.ask import Assignment, room_for_text
from context_compactor.summary.caller import Caller, objection_to
from context_compactor.summary.evidence import Evidence, Objection, gather_evidence
from context_compactor.summary.expect import LEAST_ROOM, expected_calls, part_tokens
from context_compactor.summary.gate import judge_prose, loss_objections
from context_compactor.summary.ladder import Question, climb
from context_compactor.summary.losses import find_losses, repair
from context_compactor.summary.merging import ledger_prose, merge_parts
from context_compactor.summary.quoting import escape, tell_turns
from context_compactor.summary.shape import Prose, fit_prose, render_prose
from context_compactor.summary.spans import Chunk, Count, cut_chunks, map_parallel, measure_coverage
from context_compactor.summary.subject import USUAL, Limits, Subject, SummaryOutcome, language_for

_HALVINGS = 3
# How many characters of an earlier request stand before turns that do not hold it.
_BACKGROUND = 300
# What is put back from the ledgers may take half as much again as the prose.
REPAIR_SHARE = 0.5


def write_summary(
    model: Model,
    subject: Subject,
    control: Control,
    count: Count,
    limits: Limits = USUAL,
    prompt: Prompt | None = None,
    failed: Collection[str] = (),
) -> SummaryOutcome:
    """Ask a model for prose on these turns. Whatever goes wrong is an objection; only a cancelled call raises."""
    caller = Caller(model, control, count, limits.calls, failed, limits.prices)
    writer = Writer(caller, subject, limits, prompt or built_in("summarize"))
    prose = None
    try:
        prose = writer.write()
    except ModelError as error:
        if isinstance(error, ModelStopped) and control.cancel.is_set():
            raise
        caller.object_to(objection_to(error))
    return writer.outcome(prose)


class Writer:
    """The way of one summary."""

    def __init__(self, caller: Caller, subject: Subject, limits: Limits, prompt: Prompt) -> None:
        self._caller = caller
        self._subject = subject
        self._limits = limits
        self._tellings = tell_turns(subject.turns)
        self._source = "\n".join(f"[{telling.heading}]\n{telling.body}" for telling in self._tellings)
        self._tokens = caller.count(self._source)
        self._assignment = Assignment(prompt, language_for(subject), limits.tokens, subject.focus)
        self._chunks: list[Chunk] = []
        self._refused = self._trimmed = self._repaired = 0

    def write(self) -> Prose | None:
        """Prose that nothing speaks against, or None."""
        prose = self._with_prefix() if self._subject.prefix else None
        prose = prose or self._in_chunks()
        return self._checked(prose) if prose else None

    def outcome(self, prose: Prose | None) -> SummaryOutcome:
        """What came of it, with the account. Prose on less than all that there was is not used."""
        caller = self._caller
        coverage = measure_coverage(self._tellings, self._chunks, caller.count)
        return SummaryOutcome(
            prose if coverage.share == 1.0 else None,
            tuple(caller.calls),
            tuple(dict.fromkeys(caller.objections)),
            structs.replace(coverage, refused=self._refused),
            self._trimmed,
            self._repaired,
            frozenset(caller.failed),
        )

    def _with_prefix(self) -> Prose | None:
        """One request behind the conversation's own messages; chunks are the way out when that does not fit."""
        whole = cut_chunks(self._tellings, self._caller.model.window, self._caller.count)
        if len(whole) != 1:
            return None
        question = self._question(self._assignment, whole[0], self._subject.previous)
        try:
            own = structs.replace(question, prefix=self._subject.prefix, beside=self._subject.beside)
            prose = climb(self._caller, own)
        except ModelError as error:
            if isinstance(error, ModelDenied | ModelStopped | ModelUnavailable):
                raise
            return None  # too long, or not taken as it is: a copy in parts still may be
        self._chunks = whole if prose else []
        return prose

    def _in_chunks(self) -> Prose | None:
        """The whole span in chunks; when the model finds one too long after all, in smaller ones."""
        caller, previous = self._caller, self._subject.previous
        room = min(self._limits.chunk_tokens, room_for_text(self._assignment, caller.model, caller.count, previous))
        for _ in range(_HALVINGS + 1):
            if room < LEAST_ROOM:
                break
            chunks = cut_chunks(self._tellings, room, caller.count)
            try:
                return self._mapped(chunks, room)
            except ModelOverflow:  # halve what was really sent, or the next try could be the same
                room = min(room, max(chunk.tokens for chunk in chunks)) // 2
        words = f"the model's window of {caller.model.window:,} tokens leaves {max(room, 0):,} for the conversation"
        caller.object_to(Objection("window_too_small", words))
        return None

    def _mapped(self, chunks: list[Chunk], room: int) -> Prose | None:
        if not chunks:
            return None
        needed = expected_calls(len(chunks), self._subject, self._limits, room)
        if needed > self._caller.left:
            words = f"{len(chunks):,} chunks need {needed:,} calls, more than the {self._caller.left:,} "
            self._caller.give_up(Objection("too_many_calls", f"{words}that attempt_limit leaves"))
            return None
        self._chunks = chunks
        self._caller.expected = needed
        if len(chunks) == 1:
            return climb(self._caller, self._question(self._assignment, chunks[0], self._subject.previous))
        return self._from_parts(chunks, room)

    def _from_parts(self, chunks: list[Chunk], room: int) -> Prose | None:
        each = structs.replace(self._assignment, tokens=part_tokens(self._limits, room))
        questions = [structs.replace(self._question(each, chunk), alone=False) for chunk in chunks]
        told = map_parallel(
            lambda question: climb(self._caller, question),
            questions,
            self._limits.parallel,
            self._caller.control.cancel.set,
        )
        self._refused = told.count(None)
        if 2 * self._refused > len(chunks):  # a model that fails so often is not believed in the rest
            return None
        parts = [part or ledger_prose(self._facts_of(chunk)) for part, chunk in zip(told, chunks, strict=True)]
        known = [part for part in (self._subject.previous, *parts) if part]
        return merge_parts(known, room, self._caller, self._merge)

    def _merge(self, text: str) -> Prose | None:
        assignment = structs.replace(self._assignment, prompt=built_in("merge"))
        return climb(self._caller, Question(assignment, text, self._evidence(self._source, assignment.tokens)))

    def _question(self, assignment: Assignment, chunk: Chunk, previous: Prose | None = None) -> Question:
        text = self._background(chunk) + chunk.text
        return Question(assignment, text, self._evidence(text, assignment.tokens, chunk), previous)

    def _background(self, chunk: Chunk) -> str:
        """What the turns of a chunk are about, when the request was made before them."""
        asked = [saying for saying in user_sayings(self._subject.turns) if saying.turn < min(chunk.turns)]
        if not asked:
            return ""
        words = escape(shorten(asked[-1].text, _BACKGROUND, placeholder=" …"))
        return f"[said before these turns, {reference_id('turn', asked[-1].turn)} user]\n {words}\n"

    def _facts_of(self, chunk: Chunk) -> list[Fact]:
        return [fact for fact in self._subject.facts if fact.turn in chunk.turns]

    def _evidence(self, text: str, budget: int, chunk: Chunk | None = None) -> Evidence:
        """What prose on a part of the span is held against, or on all of it."""
        subject = self._subject
        turns = [turn for turn in subject.turns if chunk is None or turn.number in chunk.turns]
        facts = self._facts_of(chunk) if chunk else subject.facts
        source = f"{render_prose(subject.previous)}\n{text}" if subject.previous else text
        return gather_evidence(turns, source, self._tokens, self._assignment.language, budget, facts)

    def _checked(self, prose: Prose) -> Prose | None:
        """The prose within its budget, judged once more as a whole, with what it lost put back."""
        count, limits, subject = self._caller.count, self._limits, self._subject
        prose, self._trimmed = fit_prose(prose, limits.tokens, count)
        wrong = judge_prose(prose, self._evidence(self._source, limits.tokens))
        if not wrong:
            losses = find_losses(prose, subject.facts, subject.standing, subject.reachable)
            prose, left = repair(prose, losses, int(limits.tokens * REPAIR_SHARE), count)
            self._repaired = len(losses) - len(left)
            wrong = loss_objections([lost for lost in left if lost.fact not in subject.untold])
        for objection in wrong:
            self._caller.object_to(objection)
        return None if wrong else prose
