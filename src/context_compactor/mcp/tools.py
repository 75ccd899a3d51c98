"""The tools, each as a value: its name, when to use it, what it takes and what it gives; and the project they serve."""

from __future__ import annotations

from msgspec import Struct

from context_compactor.mcp import schemas
from context_compactor.sessions.tool_schemas import (
    FACTS,
    RECALL,
    SEARCH,
    FactsOutput,
    RecallOutput,
    SearchOutput,
    ToolAnswer,
    ToolArguments,
)


class ToolContext(Struct, frozen=True):
    """The project's folder, and a store and a session when these were given."""

    root: str
    store: str | None = None
    session: str | None = None
    caller_session: str = ""
    """The agent's session that a call comes from, where the agent says so: Codex does with each."""


INSTRUCTIONS = """\
Everything that was said and done in this session is kept here, word for word, also what is no longer in your context \
because it was compacted. Ids such as tool_017, file_003, agent_002 or turn_096 stand for originals: recall(id) gives \
them back. Without an id, search_archive(text) finds what was said and done about it, and list_turns() the turn. \
facts() lists the user's rules, decisions, failed approaches and changed files. Look here before you repeat work, read \
a file again only to remember it, or ask the user for something they have said already."""


class Tool(Struct, frozen=True, kw_only=True):
    """One tool. One that `writes` changes a file of ours; one `always_loaded` is shown without being searched for."""

    name: str
    title: str
    description: str
    input: type[ToolArguments]
    output: type[ToolAnswer]
    verb: str = ""
    """The verb of `sessions/verbs.py` that does the same over HTTP."""
    writes: bool = False
    always_loaded: bool = False


TOOLS = (
    Tool(
        name=RECALL.name,
        title=RECALL.title,
        description=RECALL.description,
        input=schemas.RecallInput,
        output=RecallOutput,
        verb="recall",
        always_loaded=True,
    ),
    Tool(
        name=SEARCH.name,
        title=SEARCH.title,
        description=SEARCH.description,
        input=schemas.SearchInput,
        output=SearchOutput,
        verb="search",
        always_loaded=True,
    ),
    Tool(
        name="list_turns",
        title="List the turns of the session",
        description=(
            "List the turns of this session in order, one line each: id, who speaks, first words or calls, tokens. Use "
            "it to find your way when a summary names a turn by its number, or to see what came before and after "
            'something. `words` keeps only turns that hold all of them; recall("turn_012") reads one.'
        ),
        input=schemas.TurnsInput,
        output=schemas.TurnsOutput,
    ),
    Tool(
        name=FACTS.name,
        title=FACTS.title,
        description=FACTS.description,
        input=schemas.FactsInput,
        output=FactsOutput,
        verb="facts",
    ),
    Tool(
        name="context_status",
        title="See how full the context is",
        description=(
            "See how full your context window is: tokens, share, level, how many turns are left until the next "
            "level, tool calls, when it was compacted last, and how much is archived. Use it before a long piece of "
            "work, or when you are told that the context gets full, to decide whether to finish, to write a "
            "checkpoint or to hand work to a sub-agent first."
        ),
        input=schemas.StatusInput,
        output=schemas.StatusOutput,
        verb="session",
    ),
    Tool(
        name="compact_plan",
        title="See what a compaction would do",
        description=(
            "See what a compaction by Context Compactor would keep, shorten, archive or leave out now, with the "
            "reason and the tokens of each. It changes nothing: a tool cannot change the context of the agent that "
            "calls it, so there is no tool that compacts. Use it when the user asks what a compaction would cost or "
            "lose, or to see which results fill the window. Those that save most come first, in pages."
        ),
        input=schemas.PlanInput,
        output=schemas.PlanOutput,
        verb="plan",
    ),
    Tool(
        name="checkpoint",
        title="Write a checkpoint",
        description=(
            "Write down where the work stands, into .compactor/progress-checkpoint.md, and return it: task, steps "
            "done and open, decisions, changed files, state of git, and how to go on. Use it at the end of a step, "
            "before a compaction, or before the user leaves, with a `note` about what cannot be seen in the files. "
            "It replaces the checkpoint before."
        ),
        input=schemas.CheckpointInput,
        output=schemas.CheckpointOutput,
        verb="write_checkpoint",
        writes=True,
    ),
    Tool(
        name="handoff",
        title="Prepare a handoff",
        description=(
            "Get what a sub-agent or a fresh session needs to go on: a summary of at most 500 tokens written for its "
            "phase, the user's rules, what failed before, changed files, and ids to recall. Use it before you start a "
            "sub-agent, and put the text into its prompt instead of telling the history yourself. Changes nothing."
        ),
        input=schemas.HandoffInput,
        output=schemas.HandoffOutput,
        verb="handoff",
    ),
)
