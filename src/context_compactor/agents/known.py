"""What each coding agent can do, as it was seen to behave: which hooks it calls, and what of their answers counts.

Claude Code 2.1 and Codex 0.166 were run against a scripted model for this. Where their documentation says something
else, what they did is what stands here. `Stop` is not asked for: a user would wait for it after every answer, and one
that runs beside the agent keeps Claude Code from calling `SessionEnd`. Nothing needs it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from context_compactor.errors import BadInput

Replacing = Literal["updatedToolOutput", "stopReason"]


class Hook(Struct, frozen=True):
    """An event as the agent spells it, and as `compactor hook` does; seconds until the agent gives up on us."""

    event: str
    word: str
    timeout: int
    matcher: str | None = None


class Agent(Struct, frozen=True, kw_only=True):
    """A coding agent. `name` is what users type, `title` what its makers call it.

    `most_said` is how many bytes of a hook's text its model gets; `replacing` names the field by which a hook puts
    another text in the place of a tool's output; `assumed_window` is its model's window until that is known.
    """

    name: str
    title: str
    hooks: tuple[Hook, ...]
    most_said: int
    replacing: Replacing
    assumed_window: int
    tells_summary: bool
    """Whether it tells a hook the summary it wrote; else that stands in its log, if anywhere."""
    has_status_line: bool
    needs_trust: bool
    """Whether its user has to look at new hooks before they run."""


CLAUDE_CODE = Agent(
    name="claude-code",
    title="Claude Code",
    hooks=(
        Hook("SessionStart", "session-start", 30),
        Hook("UserPromptSubmit", "user-prompt-submit", 15),
        Hook("PostToolUse", "post-tool-use", 15, matcher="*"),
        Hook("PostToolUseFailure", "post-tool-use", 15, matcher="*"),
        Hook("PreCompact", "pre-compact", 60),
        Hook("PostCompact", "post-compact", 60),
        Hook("SubagentStart", "subagent-start", 15),
        Hook("SubagentStop", "subagent-stop", 30),
        Hook("SessionEnd", "session-end", 10),
    ),
    most_said=10_000,
    replacing="updatedToolOutput",
    assumed_window=200_000,
    tells_summary=True,
    has_status_line=True,
    needs_trust=False,
)
CODEX = Agent(
    name="codex",
    title="Codex",
    hooks=(
        Hook("SessionStart", "session-start", 30),
        Hook("UserPromptSubmit", "user-prompt-submit", 15),
        Hook("PostToolUse", "post-tool-use", 15),
        Hook("PreCompact", "pre-compact", 60),
        Hook("PostCompact", "post-compact", 60),
        Hook("SubagentStart", "subagent-start", 15),
        Hook("SubagentStop", "subagent-stop", 30),
        Hook("SessionEnd", "session-end", 3),
    ),
    most_said=10_000,
    replacing="stopReason",
    assumed_window=272_000,
    tells_summary=False,
    has_status_line=False,
    needs_trust=True,
)
AGENTS = {agent.name: agent for agent in (CLAUDE_CODE, CODEX)}


def find_agent(name: str) -> Agent:
    """The agent of this name."""
    if name not in AGENTS:
        raise BadInput(f"there is no agent {name[:60]!r} here. Try: {' or '.join(AGENTS)}.")
    return AGENTS[name]
