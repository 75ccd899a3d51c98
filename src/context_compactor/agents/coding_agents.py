"""What each supported coding agent can do: which hooks it calls, and which of their answers it takes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from context_compactor.errors import BadInput

ReplacementField = Literal["updatedToolOutput", "stopReason"]


class HookEvent(Struct, frozen=True):
    """An event as the agent spells it, and as `compactor hook` does; seconds until the agent gives up on us."""

    event: str
    word: str
    timeout: int
    matcher: str | None = None


class CodingAgent(Struct, frozen=True, kw_only=True):
    """A coding agent. `name` is what users type, `title` what its makers call it.

    `max_hook_bytes` is how many bytes of a hook's text its model gets; `replacement_field` names the field by which a
    hook puts another text in the place of a tool's output; `assumed_window` is its model's window until that is known.
    """

    name: str
    title: str
    program: str
    """How it is started in a shell."""
    hooks: tuple[HookEvent, ...]
    max_hook_bytes: int
    replacement_field: ReplacementField
    assumed_window: int
    extension: str = ""
    """The file in `agents/extensions` that it loads, where it calls no commands as hooks. The MCP server is in it."""
    keeps_log: bool = True
    """Whether it writes a log; else its extension sends all messages with each call."""
    passes_summary: bool
    """Whether it tells a hook the summary it wrote; else that stands in its log, if anywhere."""
    has_status_line: bool
    needs_trust: bool
    """Whether its user has to look at new hooks before they run."""
    tool_hint: str = ""
    """How its model calls our tools, where that is not plain."""
    max_request_chars: int = 0
    """How much of what a hook prints before a compaction becomes part of the agent's request for a summary."""


CLAUDE_CODE = CodingAgent(
    name="claude-code",
    title="Claude Code",
    program="claude",
    hooks=(
        HookEvent("SessionStart", "session-start", 30),
        HookEvent("UserPromptSubmit", "user-prompt-submit", 15),
        HookEvent("PostToolUse", "post-tool-use", 15, matcher="*"),
        HookEvent("PostToolUseFailure", "post-tool-use", 15, matcher="*"),
        HookEvent("PreCompact", "pre-compact", 60),
        HookEvent("PostCompact", "post-compact", 60),
        HookEvent("SubagentStart", "subagent-start", 15),
        HookEvent("SubagentStop", "subagent-stop", 30),
        HookEvent("SessionEnd", "session-end", 10),
    ),
    max_hook_bytes=10_000,
    replacement_field="updatedToolOutput",
    assumed_window=200_000,
    passes_summary=True,
    has_status_line=True,
    needs_trust=False,
    max_request_chars=10_000,
)
CODEX = CodingAgent(
    name="codex",
    title="Codex",
    program="codex",
    hooks=(
        HookEvent("SessionStart", "session-start", 30),
        HookEvent("UserPromptSubmit", "user-prompt-submit", 15),
        HookEvent("PostToolUse", "post-tool-use", 15),
        HookEvent("PreCompact", "pre-compact", 60),
        HookEvent("PostCompact", "post-compact", 60),
        HookEvent("SubagentStart", "subagent-start", 15),
        HookEvent("SubagentStop", "subagent-stop", 30),
        HookEvent("SessionEnd", "session-end", 3),
    ),
    max_hook_bytes=10_000,
    replacement_field="stopReason",
    assumed_window=272_000,
    passes_summary=False,
    has_status_line=False,
    needs_trust=True,
    # Newer models of Codex reach tools only from a script, and are not told which there are.
    tool_hint=' (in a script: `await tools.mcp__compactor__recall({id: "tool_017"})`)',
)
PI = CodingAgent(
    name="pi",
    title="pi",
    program="pi",
    hooks=(HookEvent("session_before_compact", "compact", 20), HookEvent("session_compact", "post-compact", 20)),
    extension="pi.js",
    max_hook_bytes=10_000,
    replacement_field="updatedToolOutput",
    assumed_window=200_000,
    passes_summary=False,
    has_status_line=False,
    needs_trust=False,
    tool_hint=", called `mcp__compactor__recall` and `mcp__compactor__search_archive`",
)
OPENCODE = CodingAgent(
    name="opencode",
    title="OpenCode",
    program="opencode",
    hooks=(
        HookEvent("experimental.session.compacting", "compact", 20),
        HookEvent("session.compacted", "post-compact", 20),
    ),
    extension="opencode.js",
    keeps_log=False,
    max_hook_bytes=10_000,
    replacement_field="updatedToolOutput",
    assumed_window=200_000,
    passes_summary=False,
    has_status_line=False,
    needs_trust=False,
    tool_hint=", called `compactor_recall` and `compactor_search_archive`",
)
AGENTS = {agent.name: agent for agent in (CLAUDE_CODE, CODEX, PI, OPENCODE)}


def find_agent(name: str) -> CodingAgent:
    """The agent of this name."""
    if name not in AGENTS:
        raise BadInput(f"{name[:60]!r} is not a supported agent. Try: {' or '.join(AGENTS)}.")
    return AGENTS[name]
