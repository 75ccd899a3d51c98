"""What the tools take and answer by which an agent reads its own archive: as function tools, and over MCP.

The schemas that a model sees are made from these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from context_compactor.tokens.counting import replace_surrogates

_MOST_PAGES = 10**9

ReferenceId = Annotated[
    str,
    Meta(
        max_length=200,
        description="The id that stands for the original, such as tool_017, file_003, agent_002 or turn_096.",
    ),
]
PageNumber = Annotated[
    int, Meta(ge=1, le=_MOST_PAGES, description="Which page, from 1. An answer says how many there are.")
]
LineRange = Annotated[
    str,
    Meta(
        pattern=r"^(\d{1,9}(-(\d{1,9})?)?)?$",
        description='Only these lines, counted from 1: "10-40", "10-" to the end, or "10". Without it all of them.',
    ),
]
KindName = Annotated[str, Meta(max_length=60)]


class ToolArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is asked."""


class PagedArguments(ToolArguments, frozen=True, kw_only=True):
    """What a tool is asked whose answer comes in pages."""

    page: PageNumber = 1


class RecallArguments(PagedArguments, frozen=True, kw_only=True):
    """Which original, and which part of it."""

    id: ReferenceId
    lines: LineRange = ""


class SearchArguments(ToolArguments, frozen=True, kw_only=True):
    """What to look for."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            description="What to look for: words, names, an error message, or a whole question.",
        ),
    ]
    kind: Annotated[
        KindName,
        Meta(description='Only this kind of content, such as "test run", "code file", "user" or "turn"; else all.'),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=50, description="At most so many hits.")] = 20


class FactsArguments(PagedArguments, frozen=True, kw_only=True):
    """Which facts."""

    kind: Annotated[
        KindName,
        Meta(
            description="Only one kind: task, constraint, decision, failure, error (with failures), file_state, "
            "dependency, command, approval, denial, side_effect, subagent, mode, todo, blocker or next_step."
        ),
    ] = ""


class ToolAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every tool answers. `session` is whose it is, `note` what is to be known about the answer."""

    session: str
    note: str = ""

    def lines(self) -> Iterable[str]:
        """The answer for a reader."""
        raise NotImplementedError

    def render(self) -> str:
        """The answer as one text."""
        remarks = [f"[{remark}]" for remark in self.remarks() if remark]
        return replace_surrogates("\n".join((*self.lines(), *remarks)))

    def remarks(self) -> tuple[str, ...]:
        """What is said about the answer, behind it."""
        return (self.note,)


class PagedOutput(ToolAnswer, frozen=True, kw_only=True):
    """One page of an answer; `next` is the call that gives the following one."""

    page: int
    pages: int
    next: str = ""

    def remarks(self) -> tuple[str, ...]:
        """How to go on, and the note."""
        return (f"Next: {self.next}" if self.next else "", self.note)


class RecallOutput(PagedOutput, frozen=True, kw_only=True):
    """A page of an original: a result exactly as it was, a turn as a conversation."""

    id: str
    kind: str
    summary: str
    first_line: int
    last_line: int
    text: str

    def lines(self) -> Iterable[str]:
        """The text between what it is and how to go on."""
        head = f"{self.id} ({self.kind}), page {self.page:,} of {self.pages:,}"
        yield f"[{head}, lines {self.first_line:,} to {self.last_line:,}]"
        yield self.text


class HitOutput(Struct, frozen=True, omit_defaults=True):
    """Lines of an original that answer a search; `lines` is what to give `recall` to see around them.

    `exchange` is the turn in which the user opened the exchange that they stand in.
    """

    id: str
    kind: str
    text: str
    lines: str = ""
    exchange: str = ""


class SearchOutput(ToolAnswer, frozen=True, kw_only=True):
    """Hits, those of the best exchange first, each exchange from what the user asked to what came of it."""

    query: str
    archived: int
    hits: list[HitOutput]

    def lines(self) -> Iterable[str]:
        """Each hit under the id that recalls the whole, with a blank line between exchanges."""
        for at, hit in enumerate(self.hits):
            if at and hit.exchange != self.hits[at - 1].exchange:
                yield ""
            yield f"{hit.id} ({hit.kind}){f', lines {hit.lines}' if hit.lines else ''}:"
            yield hit.text


class FactOutput(Struct, frozen=True, omit_defaults=True):
    """One fact in a line, with its count; `ref` recalls where it was said. Told by a model it is only a hint."""

    kind: str
    line: str
    ref: str
    turn: int
    summarized_by: str = ""
    first_seen: str | None = None
    last_seen: str | None = None


class FactsOutput(PagedOutput, frozen=True, kw_only=True):
    """Facts, the newest first, and how many there are of each kind."""

    total: int
    counts: dict[str, int]
    facts: list[FactOutput]

    def lines(self) -> Iterable[str]:
        """One line for each fact."""
        counts = ", ".join(f"{kind} {count:,}" for kind, count in self.counts.items()) or "none yet"
        yield f"[facts: {counts}; page {self.page:,} of {self.pages:,}, newest first]"
        for fact in self.facts:
            hint = f" [from a summary by {fact.summarized_by}, not checked]" if fact.summarized_by else ""
            yield f"{fact.kind}: {fact.line}{hint}"


class ArchiveTool(Struct, frozen=True, kw_only=True):
    """A tool that reads the archive of the session it is called in: its name, when to use it, and what it takes."""

    name: str
    title: str
    description: str
    arguments: type[ToolArguments]


RECALL = ArchiveTool(
    name="recall",
    title="Recall an original",
    description=(
        "Get back, word for word, something that is no longer in your context: a tool result, a file you read, "
        "a sub-agent's answer or a whole turn, by the id that stands for it (tool_017, file_003, agent_002, "
        "turn_096). Such ids stand in summaries, in the brief after a compaction, in lines like [archived …] and "
        "in the answers of search_archive and facts. Use it before you guess at a detail, repeat a command or "
        "read a file again only to remember what it said. It shows the state of then: a file may have changed "
        "since. Long originals come in pages of about 2,000 tokens; `next` is the call for the following page. "
        'With lines="10-40" only those lines are given. A turn reads as a conversation, with the ids of its '
        "results and of the turns beside it."
    ),
    arguments=RecallArguments,
)
SEARCH = ArchiveTool(
    name="search_archive",
    title="Search what left the context",
    description=(
        "Find something from earlier in this session that you no longer see: words, names, error messages or a "
        "whole question; no model is asked. Use it after a compaction when you miss a detail and have no id for "
        "it, before asking the user again and before repeating work. Gives what was said about it first, with "
        "what the user had asked and what was concluded, then lines of files and outputs, with ids for recall, in "
        "about 2,000 tokens. A name that is spelled out in full is found where it stands. `kind` narrows it, such "
        'as "test run", "code file", "search result", "user" (what the user said) or "turn" (all that was said).'
    ),
    arguments=SearchArguments,
)
FACTS = ArchiveTool(
    name="facts",
    title="List what must not be forgotten",
    description=(
        "List what must outlive the text of this session: the task, the user's rules and corrections "
        "(constraint), decisions, what failed and with which error (failure), changed files (file_state), "
        "things done outside that must not be done twice (side_effect), approvals and denials, open points "
        "(todo, blocker, next_step) and running sub-agents. Use it after a compaction, before you choose an "
        "approach (kind=failure says what did not work) and before you say that you are done (kind=constraint). "
        "Newest first, in pages; `counts` says how many there are of each kind, `ref` recalls the source."
    ),
    arguments=FactsArguments,
)


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a value, with an object at its top as the protocol asks for."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    top = parts.pop(kind.__name__)
    return {**top, "$defs": parts} if parts else top
