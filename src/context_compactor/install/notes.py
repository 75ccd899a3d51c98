"""What a user should know of an install: what stands in its way, what comes next, and how to take it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from context_compactor.agents.known import CLAUDE_CODE, CODEX, Agent
from context_compactor.errors import CompactorError
from context_compactor.install.changes import read_file
from context_compactor.install.jsonsettings import has_other_status_line
from context_compactor.install.jsonspots import value_at
from context_compactor.install.program import BY_NAME, NAME, Command, is_fleeting, is_on_path
from context_compactor.install.targets import (
    BOM,
    Place,
    Target,
    claude_settings,
    decoded,
    has_plugin,
    peek,
    peek_toml,
    targets,
)


def warnings(agent: Agent, place: Place, own: Command) -> Iterator[str]:
    """What the user may not expect, each with what to do about it. `own` is the command that is run now."""
    if place.is_project and not is_on_path(place.env):
        yield (
            f"`{NAME}` is not found on the PATH. On this machine {own[0]} is run in its place; others who work in the "
            f"project need `{NAME}` on the PATH. Try: add its folder there."
        )
    if is_fleeting(own) and not (place.is_project and is_on_path(place.env)):
        yield f"{own[0]} may be gone tomorrow. Try: `uv tool install` or `pipx install` the package, then again."
    if agent is CLAUDE_CODE:
        yield from _claude_code_warnings(place)
    else:
        yield from _codex_warnings(place)
    elsewhere = Place(place.env, place.root, not place.is_project)
    here, there = (targets(agent, each, BY_NAME)[0] for each in (place, elsewhere))
    if here.path != there.path and _is_registered(there):
        other = "--user" if place.is_project else "--project"
        yield f"The hooks are registered with {other} too, and would run twice. Try: `{undo(agent, elsewhere)}`."


def next_steps(agent: Agent, place: Place) -> Iterator[str]:
    """What is left to do for the user."""
    if agent is CLAUDE_CODE:
        yield "Start Claude Code again for the MCP server. Hooks and status line also reach sessions that run now."
        if place.is_project:
            yield "Approve the MCP server of .mcp.json when Claude Code asks for it."
        return
    if agent.needs_trust:
        if place.is_project:
            yield "Trust this project when Codex asks for it; only then are its .codex settings read."
        yield "Start `codex` in a terminal and trust the hooks when it asks (or later: /hooks, then t)."
        yield "Until then Codex runs none of them, and says nothing about it."


def undo(agent: Agent, place: Place) -> str:
    """The command that takes an install back."""
    return f"{NAME} uninstall {agent.name} {'--project' if place.is_project else '--user'}"


def left_over(agent: Agent) -> Iterator[str]:
    """What an uninstall leaves to the user."""
    yield f"Start {agent.title} again. The sessions in .compactor/ stay; remove that folder if you do not want them."


def _claude_code_warnings(place: Place) -> Iterator[str]:
    settings = peek(claude_settings(place))
    if has_plugin(place):
        yield "The plugin is switched on, and brings the hooks and the MCP server: only the status line is added here."
    seen = (settings, peek(place.claude_folder / "settings.json"))
    if any(has_other_status_line(text) for text in seen):
        yield f"Your own status line stays. Try: call `{NAME} statusline` in it, which reads the same input."
    if any(value_at(text, ("disableAllHooks",)) is True for text in seen):
        yield "Hooks are switched off (disableAllHooks). Try: remove that setting."


def _codex_warnings(place: Place) -> Iterator[str]:
    hooks, config = (target.path for target in targets(CODEX, place, BY_NAME)[:2])
    if (read_file(hooks) or b"").startswith(BOM):
        yield f"Codex ignores {hooks}, since it begins with a byte-order mark. Try: save it without one."
    features, inline = (peek_toml(config).get(name) for name in ("features", "hooks"))
    if isinstance(features, dict) and features.get("hooks") is False:
        yield "Hooks are switched off (features.hooks in config.toml). Try: remove that setting."
    if isinstance(inline, dict) and set(inline) - {"state"}:
        yield "Codex will mention that hooks stand in config.toml and in hooks.json; both run."


def _is_registered(target: Target) -> bool:
    try:
        content = read_file(Path(target.path)) or b""
        target.settings.check(decoded(content))
        return any("hooks" in found for found in target.settings.registered(decoded(content)))
    except CompactorError:
        return False
