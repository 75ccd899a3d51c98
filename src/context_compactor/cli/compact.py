"""`compactor compact`: a transcript in, a context that fits out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from msgspec import Struct

from context_compactor.cli.options import (
    AsJson,
    DialectName,
    FileOrSession,
    Focus,
    IntoSession,
    Layout,
    LevelName,
    Model,
    StoreUrl,
    Summarizer,
    System,
    Target,
    Tools,
    Window,
    is_file,
    refuse_dialect,
    store_url,
)
from context_compactor.cli.output import (
    EXIT_CODES,
    StyledStream,
    print_json,
    progress_line,
    refuse_same_file,
    stderr,
    stdout,
    write_messages,
)
from context_compactor.errors import BadSetting
from context_compactor.text import one_line

if TYPE_CHECKING:
    from context_compactor.cli.conversation import TranscriptInput
    from context_compactor.engine.report import Report
    from context_compactor.settings import Level
    from context_compactor.summarize.summarizer import ModelSummarizer

_LEFT = "nothing was written"
_LEFT_IN_STORE = "the context is as it was; the messages that were new are in the session"
_LEFT_AS_IT_WAS = "the session is as it was"
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="OUT", help="File for the messages.")]


def compact(
    file: FileOrSession,
    window: Window = None,
    target: Target = None,
    level: LevelName = None,
    focus: Focus = None,
    model: Model = None,
    summarizer: Summarizer = None,
    layout: Layout = None,
    dialect: DialectName = None,
    tools: Tools = None,
    system: System = None,
    session: IntoSession = None,
    store: StoreUrl = None,
    output: Output = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Bring a conversation under its target.

    The messages of a file go to OUT or to standard output, in the dialect they came in; the report goes beside them.
    Below the soft threshold nothing is changed, unless a target or a level is given. With `--session` the conversation
    is kept in the store and compacted there; without, nothing is stored. A session that is in the store is compacted
    there whatever its fill; its context is printed by `compactor context`. What is folded is summarized by the
    summarizer, if one is named; a terminal shows its calls and its text, and Ctrl-C leaves everything as it was.
    `--dry-run` is what `compactor plan` shows.

    Example: `compactor compact session.jsonl --target 25% -o smaller.json` or `compactor compact run-42`
    """
    if dry_run:
        if session is not None or output is not None:
            raise BadSetting(
                "--dry-run writes nothing, so it cannot be combined with --session or --output. Try: leave them out."
            )
        from context_compactor.cli.plan import plan

        plan(
            file,
            window,
            target,
            level,
            focus,
            model,
            summarizer,
            dialect=dialect,
            tools=tools,
            system=system,
            store=store,
            as_json=as_json,
        )
    if not is_file(file):
        refuse_dialect(file, dialect)
        if any(option is not None for option in (window, model, summarizer, session, layout, tools, system)):
            raise BadSetting(
                "--window, --model, --summarizer, --layout, --session, --tools, --system: there is no file "
                f"{file!r:.80}, and a stored session already has these. "
                "Try: leave them out, or give the path of a file."
            )
        _compact_stored(file, store, (target, level, focus), output, as_json)
    refuse_same_file(file, output)
    if store is not None and session is None:
        raise BadSetting("--store needs --session when a file is compacted. Try: --session ID.")
    with progress_line("Reading", file):
        from context_compactor.cli.compact_session import live_summarizer
        from context_compactor.cli.conversation import open_conversation

        conversation = open_conversation(file, window, model, summarizer, layout, dialect, tools=tools, system=system)
    asked = (window, target, level, focus)
    left = _LEFT if session is None else _LEFT_IN_STORE
    with (
        live_summarizer(conversation.settings, left) as writer,
        progress_line("Compacting", file, is_quiet=writer is not None),
    ):
        done = _compacted(conversation, session, store, asked, writer)
    if output is not None or not as_json:
        write_messages(done.messages, output)
    if as_json:
        print_json({"messages": done.messages, "report": done.report.to_dict()})
    else:
        out = stderr() if output is None or output == "-" else stdout()
        _print(done, conversation, target, out)
        if "/" in (model or "") and conversation.settings.summarizer is None:
            out.print("note        --model names the agent's model; --summarizer names one that writes", style="dim")
    raise typer.Exit(EXIT_CODES[done.report.status])


def _compact_stored(
    name: str,
    store: str | None,
    asked: tuple[str | None, Level | None, str | None],
    output: str | None,
    as_json: bool,
) -> NoReturn:
    from context_compactor.cli.compact_session import compact_stored

    messages, report = compact_stored(name, store, *asked, _LEFT_AS_IT_WAS)
    if output is not None:
        write_messages(messages, output)
    if as_json:
        print_json({"messages": messages, "report": report.to_dict()})
    else:
        from context_compactor.cli.report import IN_STORE, print_report

        print_report(report, stderr() if output == "-" else stdout(), IN_STORE)
    raise typer.Exit(EXIT_CODES[report.status])


class CompactOutput(Struct, frozen=True):
    """What came out. `session` says what the store has now; it is empty when nothing was stored."""

    messages: list[dict[str, Any]]
    report: Report
    session: str = ""


def _compacted(
    conversation: TranscriptInput,
    session_id: str | None,
    store: str | None,
    asked: tuple[str | None, str | None, Level | None, str | None],
    summarizer: ModelSummarizer | None,
) -> CompactOutput:
    if session_id is None:
        result = conversation.compacted(*asked[1:], summarizer)
        return CompactOutput(result.messages, result.report)
    from context_compactor.cli.compact_session import compact_session, read_compact_options

    fed = compact_session(conversation, session_id, store_url(store), read_compact_options(*asked), summarizer)
    return CompactOutput(
        fed.messages, fed.report, f"{session_id!r}: {fed.appended:,} messages appended, {fed.total:,} in all"
    )


def _print(done: CompactOutput, conversation: TranscriptInput, target: str | None, out: StyledStream) -> None:
    from context_compactor.cli.report import IN_INPUT, IN_STORE, print_report

    print_report(done.report, out, IN_STORE if done.session else IN_INPUT)
    if done.session:
        out.print(f"{'session':<12}{one_line(done.session, 200)}")
    _note_unseen(conversation, target, out)


def _note_unseen(conversation: TranscriptInput, target: str | None, out: StyledStream) -> None:
    """A log without its system prompt and tools weighs more on the wire than it seems: say how much."""
    if target is None and conversation.unseen:
        out.print(
            f"note        counted with {conversation.unseen:,} tokens that the provider saw on top of these messages "
            "(system prompt, tools)",
            style="dim",
        )
