"""The Claude Agent SDK: options by which the Claude Code that it starts compacts with us, without an install."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from context_compactor.agents.coding_agents import CLAUDE_CODE
from context_compactor.agents.install.commands import LAUNCHER_FOLDER, SERVER, Command, home_of, own_command
from context_compactor.agents.install.targets import hook_groups, mcp_server
from context_compactor.agents.paths import has_mod
from context_compactor.errors import BadSetting
from context_compactor.files import make_private_folder, write_atomically
from context_compactor.integrations.conversations import importing

with importing("claude-agent-sdk", "claude-agent-sdk>=0.2"):
    from claude_agent_sdk import ClaudeAgentOptions

_PLUGIN = Path(__file__).parents[1] / "plugin"


def compactor_options(cwd: str | Path | None = None, **options: Any) -> ClaudeAgentOptions:
    """Options for `query` and `ClaudeSDKClient`: our record replaces summaries, and the agent can recall.

    `options` are those of `ClaudeAgentOptions`; to plugins, MCP servers and allowed tools ours are added. What is said
    is stored in the folder `.compactor` of the project. Settings of ours are in its `config.toml`, or `COMPACTOR_…` in
    `env`. Where `compactor install claude-code` has been run, the plugin that it brought is used.
    """
    if unknown := options.keys() - vars(ClaudeAgentOptions()).keys():
        hint = f"env={{'COMPACTOR_{min(unknown).upper()}': '…'}}"
        raise BadSetting(f"{min(unknown)}: not an option of Claude Code. Try, if it is a setting of ours: {hint}.")
    servers = options.pop("mcp_servers", None) or {}
    if not isinstance(servers, dict):
        raise BadSetting(f"mcp_servers: expected a dictionary, to which ours is added, got {type(servers).__name__}")
    env, command = {**os.environ, **(options.get("env") or {})}, own_command("")
    plugins, tools = [*options.pop("plugins", ())], [*options.pop("allowed_tools", ()), f"mcp__{SERVER}"]
    if not _is_installed(str(cwd or "."), env, options.get("setting_sources")):
        plugins.append({"type": "local", "path": str(_plugin_folder(home_of(env), command))})
    servers = {**servers, SERVER: mcp_server(CLAUDE_CODE, command)}
    return ClaudeAgentOptions(cwd=cwd, plugins=plugins, mcp_servers=servers, allowed_tools=tools, **options)


def _is_installed(root: str, env: Mapping[str, str], sources: Sequence[str] | None) -> bool:
    """Whether the settings that are read have our hooks already: twice they would do everything twice."""
    read = ("user", "project") if sources is None else sources
    return has_mod(root if "project" in read else os.devnull, env if "user" in read else {"HOME": os.devnull})


def _plugin_folder(home: Path, command: Command) -> Path:
    """A copy of our plugin that runs this command by its whole path. It is named by what is in it and never changes."""
    files = {str(path.relative_to(_PLUGIN)): path.read_bytes() for path in _PLUGIN.rglob("*") if path.is_file()}
    del files[".mcp.json"]
    hooks = {event: [group] for event, group in hook_groups(CLAUDE_CODE, command).items()}
    files["hooks/hooks.json"] = json.dumps({"hooks": hooks, "modules": ["./register.js"]}).encode()
    files["hooks/command.js"] = f"export const COMMAND = {json.dumps(command)}\n".encode()
    digest = sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    folder = home / Path(LAUNCHER_FOLDER).parent / "plugins" / digest
    for name, content in files.items():
        if not (folder / name).is_file():
            make_private_folder((folder / name).parent)
            write_atomically(folder / name, content, private=True)
    return folder
