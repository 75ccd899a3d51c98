"""The Claude Code plugin: it registers what `compactor install` does, and its commands name things that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import context_compactor
from context_compactor.agents.coding_agents import CLAUDE_CODE
from context_compactor.agents.install.commands import BY_NAME
from context_compactor.agents.install.targets import SERVER, hook_groups, mcp_server
from context_compactor.cli.main import make_app
from context_compactor.mcp.tools import TOOLS

PLUGIN = Path(context_compactor.__file__).parent / "plugin"
ROOT = Path(__file__).parents[2]
SKILLS = ("checkpoint", "handoff", "plan", "recall", "undo", "why")


REGISTERED = {
    "hooks/hooks.json": {
        "modules": ["./register.js"],
        "hooks": {event: [group] for event, group in hook_groups(CLAUDE_CODE, BY_NAME).items()},
    },
    ".mcp.json": {"mcpServers": {SERVER: mcp_server(CLAUDE_CODE, BY_NAME)}},
}


@pytest.mark.parametrize("name", REGISTERED)
def test_the_plugin_registers_exactly_what_an_install_does(name):
    assert json.loads((PLUGIN / name).read_text()) == REGISTERED[name]


def test_the_plugin_and_the_marketplace_have_the_version_of_the_package():
    plugin = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())
    marketplace = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    (listed,) = marketplace["plugins"]
    assert plugin["version"] == listed["version"] == context_compactor.__version__
    assert plugin["name"] == listed["name"] == "compactor"
    assert plugin["description"] == listed["description"]
    assert (ROOT / listed["source"] / ".claude-plugin" / "plugin.json").is_file()


def test_there_is_a_command_for_each_thing_a_user_may_want():
    assert sorted(each.name for each in (PLUGIN / "skills").iterdir()) == list(SKILLS)


@pytest.mark.parametrize("name", [name for name in SKILLS if name != "undo"])
def test_a_command_names_tools_and_commands_that_exist(name):
    text = (PLUGIN / "skills" / name / "SKILL.md").read_text()
    _, head, body = text.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == name
    assert len(fields["description"]) < 250
    assert "$ARGUMENTS" in body
    tools = {tool.name for tool in TOOLS}
    allowed = set(re.findall(r"mcp__(?:plugin_compactor_)?compactor__(\w+)", fields["allowed-tools"]))
    assert allowed
    assert allowed <= tools
    commands = {command.name for command in make_app().registered_commands}
    assert set(re.findall(r"compactor ([a-z]+)[ :`]", head + body)) <= commands


def test_the_readme_shows_every_command():
    text = (PLUGIN / "README.md").read_text()
    assert all(f"/compactor:{name}" in text for name in SKILLS)
