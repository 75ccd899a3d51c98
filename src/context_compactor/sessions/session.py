"""The Session class: everything that was said, for ever, and the context that follows from it."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar

from msgspec import structs

from context_compactor.archive.display import TurnEntry
from context_compactor.archive.export import Exported
from context_compactor.archive.originals import Original
from context_compactor.archive.refetch import Refetched, RestoreRate
from context_compactor.archive.search.passages import Hit
from context_compactor.engine.plan import Plan
from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.errors import CompactorError, StaleBase, StoreError
from context_compactor.facts.fact import Fact
from context_compactor.handoff.checkpoint import Checkpoint
from context_compactor.handoff.orchestrator import Extracted, Points
from context_compactor.handoff.protocol import HandoffRequest, OrchestratorState
from context_compactor.handoff.resume import ResumeCheck
from context_compactor.library import check_layouts, load_strategies, parse_level
from context_compactor.protocols import Layout, Model, Store, Strategy
from context_compactor.sessions import recall as recalls
from context_compactor.sessions import views
from context_compactor.sessions.append import AppendOutcome, ReadyMessages, append, make_ready, reported_usage
from context_compactor.sessions.archive import export_all
from context_compactor.sessions.automatic import check_on_open, fresh_window, respond
from context_compactor.sessions.branches import branch_ids, fork, note_current, touch_root
from context_compactor.sessions.checkpoints import current_checkpoint, resume, write_checkpoint
from context_compactor.sessions.compaction import compact, finish_export
from context_compactor.sessions.core import Clock, Core, RunningWork, wall_clock
from context_compactor.sessions.events import Bus
from context_compactor.sessions.facts import PreparedWork, all_facts, prepare_compaction
from context_compactor.sessions.handoff import hand_off, orchestrator, points, receive
from context_compactor.sessions.holders import hold, release
from context_compactor.sessions.lifecycle import clear_deleted, delete_from, expire_old, follow_log, open_core
from context_compactor.sessions.log import missing_contents
from context_compactor.sessions.recall import PAGE_TOKENS, RecallPage, Restored, restore
from context_compactor.sessions.state import check_owner, check_profile
from context_compactor.sessions.sync import HistorySync, SyncedMessages
from context_compactor.sessions.tiers import clear_tier, current_tiers, plan_compaction, set_tier
from context_compactor.sessions.tools import call_tool, declare_tools
from context_compactor.sessions.views import ContextDiff, Totals
from context_compactor.settings import Settings
from context_compactor.tokens.budget import Usage

if TYPE_CHECKING:
    from context_compactor.sessions.core import Schedule


_log = logging.getLogger("context_compactor")
_JOIN_SECONDS = 0.5
# How often a history is looked at anew because somebody else has appended meanwhile.
_SYNC_TRIES = 5


P = ParamSpec("P")
T = TypeVar("T")


def renamed(old: str, method: Callable[P, T]) -> Callable[P, T]:
    """A method under the name that it had in an earlier version; it says which name to use now."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        warnings.warn(f"{old}() is deprecated; use {method.__name__}()", DeprecationWarning, stacklevel=2)
        return method(*args, **kwargs)

    call.__doc__ = f"Deprecated: `{method.__name__}`."
    return call


class IdleTimer:
    """Does some work once `seconds` have passed since the last `touch`; `end` cancels work and waits for it."""

    def __init__(self, seconds: float, work: Callable[[], object], end: Callable[[], object] = lambda: None) -> None:
        self._seconds = seconds
        self._work = work
        self._end = end
        self._due: float | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def touch(self) -> None:
        """Something happened: wait anew."""
        if self._seconds <= 0:
            return
        with self._changed:
            self._due = monotonic() + self._seconds
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="context-compactor idle", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End what is under way and stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while self._wait():
            try:
                self._work()
            except CompactorError as error:  # it will be done at the next compaction
                if not self._is_closed:
                    _log.warning("work while idle failed: %s", error)

    def _wait(self) -> bool:
        with self._changed:
            while not self._is_closed:
                left = None if self._due is None else self._due - monotonic()
                if left is not None and left <= 0:
                    self._due = None
                    return True
                self._changed.wait(left)
            return False


class Session:
    """One stored conversation. Open it with `Session.open`; close it, or use it as a context manager."""

    def __init__(self, core: Core, *, owns_store: bool) -> None:
        self._core = core
        self._owns_store = owns_store
        self._holder = ""
        self._is_checked = False
        self._is_closed = False
        self._idle = IdleTimer(core.settings.idle_seconds, self.prepare, core.end)
        self._history = HistorySync()
        self._syncing = threading.RLock()

    @classmethod
    def open(
        cls,
        session_id: str,
        *,
        window: int | None = None,
        store: str | Store | None = None,
        dialect: str = "auto",
        model: str | None = None,
        settings: Settings | None = None,
        count_tokens: Callable[[str], int] | None = None,
        bus: Bus | None = None,
        clock: Clock = wall_clock,
        schedule: Schedule | None = None,
        summarizer: str | Model | None = None,
        tools: object = None,
        system: object = None,
        strategies: Sequence[Strategy | str] = (),
        layouts: Sequence[Layout] = (),
        owner: str | None = None,
        profile: Literal["project", "embedded"] = "project",
        branch: str | None = None,
    ) -> Self:
        """Open a session: create it, or continue it if it exists, also from another process.

        Options that are not given are as when the session was last opened, otherwise as in the settings. `model` is
        the model that runs the agent. `summarizer`, a name or an object, is the model that writes summaries. `tools`
        and `system` are as in `set_prompt`. With a `schedule` automatic compactions are queued as jobs, except
        emergencies; see `jobs`. `owner` is, for example, a user's id: sessions of one owner learn from each other, and
        a session without an owner does not take part. `strategies` and `layouts` are as in `compact`; they are not
        stored, so pass them each time.

        With the profile `embedded` nothing is written but the store, and nothing is learned from other sessions: for
        agents inside of a program of yours. With `project`, the default, checkpoint, log and readable archive are
        written beside a store that is a file.

        A conversation that has branched (see `sync` and `truncate`) goes on in the branch that was used last; `branch`
        is the id of another one.
        """
        own = load_strategies(strategies), check_layouts(layouts)
        core = open_core(
            session_id,
            window=window,
            store=store,
            dialect=dialect,
            model=model,
            settings=settings,
            count_tokens=count_tokens,
            bus=bus,
            clock=clock,
            schedule=schedule,
            summarizer=summarizer,
            tools=tools,
            system=system,
            owner="" if owner is None else check_owner(owner),
            is_embedded=check_profile(profile) == "embedded",
            is_conversation=True,
            branch=branch,
        )
        core.strategies, core.layouts = own
        return cls(core, owns_store=store is None or isinstance(store, str))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the session. Everything appended is on the disk already; closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._idle.close()
        self._core.unsubscribe()
        if self._holder:
            finish_export(self._core)
            release(self._core, self._holder)
        if self._owns_store:
            self._core.store.close()

    def clone(self) -> Self:
        """The same session for use in another thread, which must close it."""
        return type(self)(self._core.clone(), owns_store=False)

    @property
    def id(self) -> str:
        """The session's name."""
        return self._core.id

    @property
    def core(self) -> Core:
        """The inside of the branch that goes on, for other parts of this package."""
        return self._core

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._core.settings

    @property
    def bus(self) -> Bus:
        """Where events are emitted; subscribe to receive them."""
        return self._core.bus

    # Talking

    def append(
        self,
        message: object,
        usage: Any = None,
        *,
        within: Callable[[], None] = lambda: None,
    ) -> Report | None:
        """Append one message or several, all or none; `usage` is what the provider reported for the reply.

        Messages are dictionaries or objects of an SDK; a whole response stands for the messages in it.

        When a level is reached and compaction is automatic, the context is compacted and the report returned. `within`
        is called in the same transaction: what it writes to the store is committed with the messages, and if it
        raises, nothing is appended.
        """
        return self.answer(self.record(message, usage, within=within))

    def make_ready(self, message: object) -> ReadyMessages:
        """Prepare messages for `record`: everything that takes time and needs no transaction. Nothing is written."""
        return make_ready(self._core, message)

    def record(
        self,
        message: object,
        usage: Any = None,
        *,
        within: Callable[[], None] = lambda: None,
    ) -> AppendOutcome:
        """The first half of `append`: write the messages. Pass the result to `answer`.

        Use it to write several sessions in one transaction, and call `answer` after the commit. Pass large messages to
        `make_ready` first, before the transaction.
        """
        self._begin()
        self._is_checked = True
        outcome = append(self._core, message, usage, within)
        if self._core.schedule is None:
            self._idle.touch()
        return outcome

    def answer(self, outcome: AppendOutcome) -> Report | None:
        """The second half of `append`: emit events and suggestions, and compact if a level was reached."""
        return None if outcome.is_quiet else respond(self._core, outcome)

    def _begin(self) -> None:
        """Before the first change: note who has the session open, and expire old sessions."""
        if not self._holder:
            core = self._core
            self._holder = hold(core)
            touch_root(core)
            if core.schedule is None:  # else jobs see to it
                expire_old(core.store, core.settings, core.clock, core.id)

    def context(self, at: int | None = None, *, sealed: bool = True) -> list[Any]:
        """The messages to send next; with `at`, the context when that many messages had been appended.

        The first call after opening also checks the level. With `sealed=False` signed and encrypted parts are left
        out, for when a provider rejects them.
        """
        if at is not None:
            return views.context(self._core, views.context_at(self._core, at), sealed=sealed)
        self.check()
        return views.context(self._core, self._core.current_context(), sealed=sealed)

    def set_prompt(self, tools: object = None, system: object = None) -> None:
        """Set the tools and the system prompt that you send beside the messages, in the form of any provider.

        They are counted from now on, in every process that has the session open; only their size is stored. What is
        None is as before, an empty list or text is none. The next `context` checks whether a level is reached.
        """
        self._begin()
        self._core.set_prompt(tools, system)
        self._is_checked = False

    def check(self) -> None:
        """Check whether a level is reached, once after opening; `context` does this too.

        If the store can be read but not written, the context stays as it was and the next call tries again.
        """
        if self._is_checked:
            return
        try:
            check_on_open(self._core)
            self._is_checked = True
        except StoreError as error:
            _log.warning("session %r: whether a level is reached could not be noted: %s", self.id, error)

    def history(self, after: int = 0, limit: int | None = None) -> list[Any]:
        """Everything that was appended, in order, equal to what went in; or `limit` messages after number `after`."""
        return views.history(self._core, after, limit)

    def usage(self) -> Usage:
        """How full the context is."""
        return views.usage(self._core)

    def verify(self) -> list[str]:
        """Check every hash of the store and the chain of this session; returns a sentence for each problem."""
        return [*self._core.store.verify(self.id), *missing_contents(self._core.store, self.id)]

    # A history that somebody else keeps

    def sync(self, history: object, usage: Any = None, tools: object = None, system: object = None) -> SyncedMessages:
        """Take over the whole history that a framework keeps, and return what to send.

        What is new is appended. Where the history differs from what was given before (a regenerated answer, a rewind,
        an edit), the session goes on in a branch, which shares everything before that; a history that has only the last
        messages continues them. `usage` is what the provider reported for the last reply in it; `tools` and `system`
        are as in `set_prompt`. Instructions that the history begins with are sent as they are given, and counted, but
        not stored. Any thread may call it.
        """
        with self._syncing:
            self._begin()
            self._history.read(self._core, history)
            reported_usage(usage)  # nonsense is refused, also where it would not be used
            report: Report | None = None
            for _ in range(_SYNC_TRIES):
                place = self._history.find_place(self._core)
                usage = usage if place.core.id == self.id else None  # it is about what was sent from another branch
                self._move_to(place.core)
                self._core.set_prompt(tools, self._history.prompt(system))
                try:
                    outcome = self._history.append(place, usage, self.record)
                except StaleBase:  # somebody else was first: look again
                    continue
                report = self.answer(outcome) or report
                self.check()
                if self._history.is_whole(place):  # else somebody else has gone on in this branch meanwhile
                    return self._history.to_send(place, report)
        raise StaleBase(f"session {self.id!r:.80} is written to by somebody else all the time. Try: again.")

    def fork(self, at: int | None = None, id: str | None = None) -> Self:  # noqa: A002  as everywhere in this class
        """A new session that begins with the first `at` messages of this one, or all; this one stays as it is.

        It has their compactions, originals and facts. Without an `id` it is called like this one, with a number. It
        uses the store of this session, so close it first.
        """
        self._begin()
        forked = fork(self._core, at, id)
        forked.running = RunningWork()
        follow_log(forked)
        return type(self)(forked, owns_store=False)

    def truncate(self, at: int) -> None:
        """Go back to the first `at` messages. Everything is kept: the session goes on in a branch.

        Its `id` has a number from now on. Whoever opens the conversation by its first id continues in this branch.
        """
        with self._syncing:
            self._begin()
            self._move_to(fork(self._core, at))

    def _move_to(self, branch: Core) -> None:
        """Go on in another branch of the conversation."""
        if branch.id == self._core.id:
            return
        if self._holder:
            release(self._core, self._holder)
        self._core.unsubscribe()
        follow_log(branch)
        self._holder, self._core, self._is_checked = "", branch, False
        note_current(branch)
        self._begin()

    # Compacting

    def compact(
        self,
        focus: str | None = None,
        level: str | None = None,
        dry_run: bool = False,
        *,
        target_tokens: int | None = None,
        preserve: int | None = None,
    ) -> Report:
        """Compact now, however full it is; `focus` says what matters, `dry_run` changes nothing.

        `preserve` overrides the setting `preserve_recent_turns`.
        """
        if not dry_run:
            self._begin()
        focus = self._core.without_secrets(focus or "")
        ask = self._core.ask(level=parse_level(level), focus=focus, target_tokens=target_tokens, kind="manual")
        if preserve is not None:
            ask = structs.replace(ask, settings=structs.replace(ask.settings, preserve_recent_turns=preserve))
        return compact(self._core, ask, dry_run=dry_run)

    def plan(
        self,
        focus: str | None = None,
        level: str | None = None,
        target_tokens: int | None = None,
        *,
        tiers: Mapping[int, str] | None = None,
        steers: Mapping[int, str] | None = None,
    ) -> Plan:
        """What `compact` would do now, turn by turn, with the tiers that `set_tier` has set; nothing is changed.

        When there is nothing to do, every turn is kept and the report says why. `tiers`, by turn, replace the tiers
        that are set (`steers` is the former name). No model is asked, so with a summarizer the compaction may differ.
        """
        if steers is not None:
            warnings.warn("plan(steers=…) is deprecated; use plan(tiers=…)", DeprecationWarning, stacklevel=2)
        focus = self._core.without_secrets(focus or "")
        ask = self._core.ask(level=parse_level(level), focus=focus, target_tokens=target_tokens, kind="manual")
        return plan_compaction(self._core, ask, steers if tiers is None else tiers)

    def set_tier(self, turn: int, tier: str) -> None:
        """Set the tier of a turn for every compaction, until `clear_tier` or until the turn is folded.

        `keep` leaves the turn word for word, `summarize` a few lines, `reference` one line, `drop` nothing. The
        original can always be recalled, and failures and other facts stay. Instructions and unanswered messages cannot
        be lowered.
        """
        self._begin()
        set_tier(self._core, turn, tier)

    def clear_tier(self, turn: int | None = None) -> None:
        """Clear the tier of a turn, or of all turns: the engine decides again."""
        self._begin()
        clear_tier(self._core, turn)

    def tiers(self) -> dict[int, Tier]:
        """The tiers that are set for turns in the context, by turn number."""
        return current_tiers(self._core)

    def cancel(self) -> bool:
        """Cancel the running compaction or model call, from another thread; returns whether there was one.

        A compaction that you asked for raises `ModelStopped`; an automatic one is reported as refused. Nothing is
        changed. What is committed already stays, and later compactions are not affected.
        """
        return self._core.cancel()

    def undo(self) -> Report | None:
        """Take the last compaction back: the context is as before, with everything appended since.

        Returns the report of that compaction, or None if there is none.
        """
        self._begin()
        return views.undo(self._core)

    def redo(self) -> Report | None:
        """Take the last undo back."""
        self._begin()
        return views.redo(self._core)

    def diff(self, before: int | None = None, after: int | None = None) -> ContextDiff:
        """Two contexts side by side: before and after the last compaction, or at two message numbers."""
        return views.diff(self._core, before, after)

    def compactions(self) -> list[Report]:
        """The report of every compaction, in order."""
        return views.compactions(self._core)

    def totals(self) -> Totals:
        """Number and times of compactions, what they saved, and what model calls cost."""
        return views.totals(self._core)

    def delete(self) -> None:
        """Delete the session for good, with its branches, archive, facts and the files made from it, and close it.

        It cannot be brought back. Running work is cancelled; others who have it open get `DeletedSession` at their next
        change. Contents that other sessions share stay. `delete_session` does this without opening the session.
        """
        core = self._core
        try:
            core.row()  # which must be there still
            self.cancel()
            for name in {*branch_ids(core, most=None), core.id}:
                is_it = core.refuse_other if name == core.id else lambda _: None
                delete_from(core.store, name, bus=core.bus, clock=core.clock, project=core.project, is_it=is_it)
            clear_deleted(core.store)
        finally:
            self.close()

    # Getting back

    def recall(self, ref: str, lines: tuple[int, int] | None = None) -> str:
        """An original as text, or some lines of it, counted from 1.

        A result is returned byte for byte; if it has several parts, their texts are joined. A turn reads as a
        conversation, with the ids of its results and of the turns beside it. `original` returns the value itself.
        """
        return recalls.recall(self._core, ref, lines)

    def original(self, ref: str) -> Original:
        """An original as the value it was, with its kind and summary; `text` is exact."""
        return recalls.find_original(self._core, ref)

    def turns(self, first: int = 1, last: int | None = None, words: str = "") -> list[TurnEntry]:
        """A list of the turns: the speaker, the first words or calls, and the tokens of each.

        From number `first` to `last`; with `words`, only turns that contain all of them.
        """
        return recalls.turns(self._core, first, last, words)

    def page(self, ref: str, number: int = 1, tokens: int = PAGE_TOKENS) -> RecallPage:
        """One page of a long original."""
        return recalls.recall_page(self._core, ref, number, tokens)

    def search(
        self,
        text: str,
        *,
        limit: int | None = None,
        tokens: int = 2000,
        kind: str = "",
        since: str = "",
        until: str = "",
    ) -> list[Hit]:
        """Search the originals of this session: matching lines, best first, in at most `tokens` tokens.

        `kind` is a kind of content such as `test run` or `turn`; `since` and `until` are times of archiving in
        ISO 8601. `render_hits` turns hits into text.
        """
        return recalls.search_originals(
            self._core, text, tokens=tokens, limit=limit, kind=kind, since=since, until=until
        )

    def tools(self, flavour: str | None = None) -> list[Any]:
        """`recall`, `search_archive` and `facts` as function tools for the agent, to be sent among its own.

        `flavour` is `openai` (chat), `responses`, `anthropic`, `gemini` or `bedrock`; by default that of the messages.
        When the model calls one, answer with `call`. From now on records name `recall`, since it can be called.
        """
        self._core.offer_recall()
        return declare_tools(self._core, flavour)

    def call(self, name: str, arguments: object = None) -> str:
        """What one of these tools answers, as text for the model; `arguments` is a dictionary or its JSON.

        What is wrong with a call, such as an id that does not exist, is an answer that the model can act on. A name
        that is none of ours raises `BadSetting`.
        """
        with self._syncing:
            return call_tool(self._core, name, arguments)

    def refetch(self, ref: str) -> Refetched:
        """The source of an original as it is now: the file and whether it changed, or the command to run again."""
        return recalls.refetch(self._core, ref)

    def restore_rate(self) -> RestoreRate:
        """How often originals could be fetched again."""
        return recalls.restore_rate(self._core)

    def export(self, folder: Path | None = None) -> Exported:
        """Write all archived originals as plain files, to the setting `archive_dir` or below another folder."""
        return export_all(self._core, folder)

    def restore(self, ref: str) -> Restored:
        """Put an original back into the context; space is made for it if needed."""
        self._begin()
        return restore(self._core, ref)

    # Remembering

    def prepare(self) -> PreparedWork:
        """Prepare the next search and compaction: index, store facts, and let the summarizer summarize older turns.

        A session does this in the background after `idle_seconds` without a message.
        """
        from context_compactor.sessions.archive import archive_early
        from context_compactor.sessions.summaries import presummarize

        core = self._core.clone()
        with core.running.begin("preparation") as control:
            core.index(control)
            archive_early(core, control)
            return structs.replace(prepare_compaction(core), summarized=presummarize(core, control))

    def facts(self, kind: str | None = None) -> list[Fact]:
        """The facts of the session: decisions, errors, failures, file states and so on, by turn."""
        return all_facts(self._core, kind, from_models=True)

    # Going on elsewhere

    def checkpoint(self, note: str = "") -> Checkpoint:
        """The state of the work; also written to `.compactor/progress-checkpoint.md` in the project."""
        checkpoint = current_checkpoint(self._core, note)
        write_checkpoint(self._core, checkpoint)
        return checkpoint

    def resume(self, tokens: int = 2000) -> ResumeCheck:
        """Whether work can continue from the last checkpoint, the reasons if not, and the brief for a fresh window."""
        return resume(self._core, self._holder, tokens)

    def fresh(self) -> Report:
        """Open a fresh window: reduce the context to task, rules, failures and references."""
        self._begin()
        return fresh_window(self._core)

    def handoff(
        self, phase: str = "write", task: str = "", task_id: str = "", *, feature: str = "", spec_path: str = ""
    ) -> HandoffRequest:
        """The request for a sub-agent or the next phase, with a summary of at most 500 tokens. Compacts first.

        The summary includes what `receive` took from earlier phases. `feature` and `spec_path` say what the work is
        about; by default those of the last handoff.
        """
        self._begin()
        return hand_off(self._core, phase, task, task_id, feature, spec_path)

    def receive(self, answer: object) -> Extracted:
        """Extract what is needed from a sub-agent's answer to a handoff, and archive the whole answer."""
        self._begin()
        return receive(self._core, answer)

    def orchestrator(self) -> OrchestratorState:
        """Phases, summaries and decisions of all handoffs, and the running sub-agents."""
        return orchestrator(self._core)

    def points(self) -> Points:
        """Measurements of handoffs: sizes of answers, summaries and state, and tool calls."""
        return points(self._core)

    # Names of earlier versions

    twin = renamed("twin", clone)
    steer = renamed("steer", set_tier)
    unsteer = renamed("unsteer", clear_tier)
    steering = renamed("steering", tiers)
    work_ahead = renamed("work_ahead", prepare)
