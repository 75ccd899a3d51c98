"""One message of the user and its answer: append the message, ask the model, append the answer, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from context_compactor.dialects.detection import likely_dialect
from context_compactor.engine.report import Report
from context_compactor.errors import (
    BadInput,
    CompactorError,
    ModelDenied,
    ModelError,
    ModelOverflow,
    ModelStopped,
    ModelUnavailable,
)
from context_compactor.protocols import Model
from context_compactor.settings import Level, Settings
from context_compactor.summarize.clients.client import split_reasoning
from context_compactor.summarize.model import Control, ModelAnswer, ModelRequest, with_retries
from context_compactor.tokens.counting import message_counter_for
from context_compactor.tokens.overflow import limit_in
from context_compactor.tokens.prices import ModelUsage
from context_compactor.tui.chat.models import dialect_of_model, is_same_model
from context_compactor.tui.chat.request import ChatRequest, chat_request
from context_compactor.tui.sources.base import AppendResult, Raw, SessionSource, SessionStatus

T = TypeVar("T")


async def finish_despite_cancel(task: asyncio.Future[T], hurry: Callable[[], object], grace: float = 0.0) -> T:
    """The result of a task. When the one who waits is cancelled, the task is asked to `hurry` and waited for first.

    It is asked so after `grace` seconds, for which it may go on undisturbed. However it ends then, the cancel goes on.
    """
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
            asyncio.get_running_loop().call_later(grace, hurry)
    if is_cancelled:
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
        raise asyncio.CancelledError
    return task.result()


class PartialAnswer:
    """The text and the reasoning of the answer under way. An answer that is asked for again begins anew."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thought: list[str] = []
        self._before = ""

    def add_text(self, piece: str) -> None:
        """Some more of the answer."""
        self._text.append(piece)

    def add_thought(self, piece: str) -> None:
        """Some more of the reasoning before it."""
        self._thought.append(piece)

    def begin(self) -> None:
        """The model is asked again. What it has said until now is only used when nothing better comes."""
        self._before = self.kept()
        self._text, self._thought = [], []

    def said(self) -> tuple[str, str]:
        """The answer so far, and the reasoning so far."""
        text, thought = split_reasoning("".join(self._text))
        return text, "".join(self._thought) + thought

    def kept(self) -> str:
        """The most that was said in one go."""
        return max(self.said()[0], self._before, key=len)


ProgressKind = Literal["begun", "kept", "compacting", "compacted", "asked", "again", "answered"]
AnswerEnding = Literal["complete", "length", "refusal", "tool_call", "empty", "broken"]


class ChatProgress(Struct, frozen=True):
    """A step on the way to an answer. `messages` is how long the history is by now, where that is known."""

    kind: ProgressKind
    words: str = ""
    report: Report | None = None
    messages: int = 0


class ChatOutcome(Struct, frozen=True):
    """How an answer ended, and a word about it unless all is well."""

    ending: AnswerEnding
    note: str = ""


_NO_TOOLS = "The model wanted to use a tool, and there are none in a chat."
_NOTES: dict[str, tuple[AnswerEnding, str, str]] = {
    "length": (
        "length",
        "The answer was cut off: it reached the most tokens an answer may have.",
        "The model thought until its answer had no room left. Try: a larger reserve_output_tokens.",
    ),
    "refusal": (
        "refusal",
        "The model refused.",
        "The model refused to answer. Try: other words, or another model.",
    ),
    "tool_call": ("tool_call", _NO_TOOLS, f"{_NO_TOOLS} Try: ask it to answer in words."),
}
"""For each way to stop, what is said of an answer that has some text, and of one that has none."""


def outcome_of(answer: ModelAnswer) -> ChatOutcome:
    """How an answer ended that came to its end."""
    ending, with_text, without_text = _NOTES.get(answer.stop, ("complete", "", "The model answered nothing."))
    return ChatOutcome(ending, with_text) if answer.text.strip() else ChatOutcome("empty", without_text)


_MAX_SECONDS = 24 * 3_600.0
_COMPACTION_CHECK_SECONDS = 0.3
"""After so long it is worth a look whether a compaction is under way."""
_APPEND_SECONDS = 1.0
"""So long a message may take to be kept, even when nobody wants to wait for the compaction that follows."""
_CUT_OFF_NOTE = "[cut off here: {why}]"
_REFILL_SHARE = 0.7
"""How much of what a provider says it takes is filled again after it has refused a request."""


class ChatRunner:
    """Talk with one model in one session, one thing at a time."""

    def __init__(
        self, source: SessionSource, session_id: str, model: Model, on_progress: Callable[[ChatProgress], None]
    ) -> None:
        self.partial = PartialAnswer()
        """The answer that is coming."""
        self._source = source
        self._id = session_id
        self._model = model
        self._on_progress = on_progress

    async def say(self, text: str) -> ChatOutcome:
        """Say something and hear the answer. A message that no request could hold is `BadInput`, and is not kept."""
        status = await self._source.session(self._id)
        await asyncio.to_thread(self._refuse_too_long, text, status)
        self._on_progress(ChatProgress("begun", messages=status.line.messages))
        appended = await self._append({"role": "user", "content": text})
        self._on_progress(ChatProgress("kept", messages=appended.messages))
        return await self._respond(text, status)

    async def ask_again(self) -> ChatOutcome:
        """Hear the answer to what the user has said last, which nobody has answered."""
        words = await last_user_message(self._source, self._id)
        if not words:
            raise BadInput("There is nothing to answer: the last word is not yours. Try: say something, or go on.")
        status = await self._source.session(self._id)
        self._on_progress(ChatProgress("begun", messages=status.line.messages))
        return await self._respond(words, status)

    def _refuse_too_long(self, text: str, status: SessionStatus) -> None:
        tokens = message_counter_for(status.line.model or self._model.name).text(text)
        if tokens >= status.budget_tokens:
            raise BadInput(
                f"These are {tokens:,} tokens, and a request of this session holds {status.budget_tokens:,}. "
                "Try: in parts, or only the lines that matter."
            )

    # The answer

    async def _respond(self, text: str, status: SessionStatus) -> ChatOutcome:
        self.partial = PartialAnswer()
        settings = await self._source.settings(self._id)
        try:
            answer, sent = await self._answered(text, status, settings)
        except asyncio.CancelledError:
            await self._keep_cut("the user has ended the answer")
            raise
        except ModelError as error:
            if not self.partial.kept().strip():
                raise
            await self._keep_cut("the connection was lost" if error.retry else "an error of the model")
            return ChatOutcome("broken", f"{error}. What it had said is kept; say what is to go on, or ask again.")
        return await self._keep(answer, sent, status)

    async def _answered(
        self, text: str, status: SessionStatus, settings: dict[str, Any]
    ) -> tuple[ModelAnswer, ChatRequest]:
        """The answer, to a smaller request when the first one was too long for the model."""
        try:
            return await self._ask(text, status, settings)
        except ModelOverflow as error:
            await self._compact_harder(error, status, settings)
        try:
            return await self._ask(text, status, settings)
        except ModelOverflow as error:
            raise ModelOverflow(
                f"{error}. It is still too long after a compaction. "
                "Try: a model with a larger window (`/model NAME`), or `/compact`, then `/retry`."
            ) from error

    async def _ask(self, text: str, status: SessionStatus, settings: dict[str, Any]) -> tuple[ModelAnswer, ChatRequest]:
        request = await self._while_compacting(self._source.request(self._id))
        if request.report is not None:
            self._on_progress(ChatProgress("compacted", report=request.report))
        sent = self._sendable(request.messages, status, text)
        self._on_progress(ChatProgress("asked", self._model.name))
        try:
            return await self._write(sent, settings), sent
        except ModelError as error:
            if not sent.has_media or isinstance(error, ModelDenied | ModelOverflow | ModelStopped | ModelUnavailable):
                raise
            self._on_progress(ChatProgress("again", f"{error}; asked again without images and files"))
        sent = self._sendable(request.messages, status, text, with_media=False)
        return await self._write(sent, settings), sent

    def _sendable(
        self, context: list[Raw], status: SessionStatus, text: str, *, with_media: bool = True
    ) -> ChatRequest:
        return chat_request(
            context, status.line.dialect, dialect_of_model(self._model.name), with_media=with_media, ask=text
        )

    async def _write(self, sent: ChatRequest, settings: dict[str, Any]) -> ModelAnswer:
        """Have it written in a thread. To be cancelled ends the stream, and is waited for."""
        loop, stop = asyncio.get_running_loop(), Event()
        partial = self.partial = PartialAnswer()
        control = Control(monotonic() + _MAX_SECONDS, stop, partial.add_text, on_thought=partial.add_thought)
        now = await self._source.session(self._id)
        request = ModelRequest(messages=(), prefix=sent.messages, max_tokens=self._room(now, settings))

        def again(error: ModelError, pause: float) -> None:
            partial.begin()
            loop.call_soon_threadsafe(
                self._on_progress, ChatProgress("again", f"{error}; asked again after {pause:g} s")
            )

        def write() -> ModelAnswer:
            attempts, delay = _setting(settings, "retry_attempts"), _setting(settings, "retry_delay_seconds")
            return with_retries(lambda: self._model.write(request, control), attempts, delay, control, again)

        return await finish_despite_cancel(asyncio.ensure_future(asyncio.to_thread(write)), stop.set)

    def _room(self, status: SessionStatus, settings: dict[str, Any]) -> int:
        """The most tokens of an answer: as the settings say, else as many as the window leaves and the model gives."""
        asked = _setting(settings, "reserve_output_tokens")
        budget = status.budget_tokens
        free = max(budget - status.line.tokens, 0) + Settings().output_reserve(budget)
        return max(min(self._model.most_output, asked or free), 1)

    # Compacting

    async def _while_compacting(self, work: Any) -> Any:
        """Work that may have to wait for a compaction, which is reported when one is due and takes its time."""
        task = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self._watch())
        try:
            return await finish_despite_cancel(task, task.cancel, _APPEND_SECONDS)
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        await asyncio.sleep(_COMPACTION_CHECK_SECONDS)
        try:
            status = await self._source.session(self._id)
        except CompactorError:
            return  # who waits for the work hears of it
        if status.line.level is not None and status.settings.get("automatic", True):
            self._on_progress(ChatProgress("compacting"))

    async def _compact_harder(self, error: ModelOverflow, status: SessionStatus, settings: dict[str, Any]) -> None:
        """Make room for a model that says a request was too long."""
        if not (_setting(settings, "automatic") and _setting(settings, "enabled")):
            raise ModelOverflow(
                f"{error}. Nothing is compacted by itself in this session. Try: `/compact`, then `/retry`."
            ) from error
        status = await self._source.session(self._id)
        tokens, limit = status.line.tokens, limit_in(str(error))
        wanted = tokens // 2
        if limit is not None:
            wanted = min(wanted, int(_REFILL_SHARE * max(limit - self._room(status, settings), limit // 2)))
        shares = [rule.target for rule in status.line.levels if rule.level is Level.EMERGENCY]
        is_enough = bool(shares) and shares[0] * status.budget_tokens <= wanted
        self._on_progress(ChatProgress("compacting", "the model says that the request is too long"))
        report = await (
            self._source.compact(self._id, level=Level.EMERGENCY.value)
            if is_enough
            else self._source.compact(self._id, target_tokens=max(wanted, 1))
        )
        if not report.changed:
            raise ModelOverflow(f"{error}. {report.short()}") from error
        self._on_progress(ChatProgress("compacted", report=report))

    # Keeping

    async def _append(self, message: Raw, usage: dict[str, Any] | None = None) -> AppendResult:
        appended: AppendResult = await self._while_compacting(self._source.append(self._id, message, usage))
        if appended.report is not None:
            self._on_progress(ChatProgress("compacted", report=appended.report, messages=appended.messages))
        return appended

    async def _keep(self, answer: ModelAnswer, sent: ChatRequest, status: SessionStatus) -> ChatOutcome:
        if not answer.text.strip():
            return outcome_of(answer)
        own = status.line.model
        is_known_usage = (
            sent.is_whole and answer.usage != ModelUsage() and (not own or is_same_model(self._model.name, own))
        )
        usage = msgspec.to_builtins(answer.usage) if is_known_usage else None
        await self._keep_words(answer.text, usage)
        return outcome_of(answer)

    async def _keep_cut(self, why: str) -> None:
        text = self.partial.kept().rstrip()
        if text:
            await self._keep_words(f"{text}\n\n{_CUT_OFF_NOTE.format(why=why)}")

    async def _keep_words(self, text: str, usage: dict[str, Any] | None = None) -> None:
        appended = await self._append({"role": "assistant", "content": text}, usage)
        self._on_progress(ChatProgress("answered", messages=appended.messages))


async def last_user_message(source: SessionSource, session_id: str) -> str:
    """What the user has said last; nothing when the last word is not theirs."""
    raws = (await source.history(session_id, None, 1)).messages
    if not raws:
        return ""
    (message,) = likely_dialect(raws).parse(raws)
    return message.text if message.role == "user" and not message.results else ""


def _setting(settings: dict[str, Any], name: str) -> Any:
    """A setting that is in force; a server tells only those that differ from the defaults."""
    return settings.get(name, getattr(Settings(), name))
