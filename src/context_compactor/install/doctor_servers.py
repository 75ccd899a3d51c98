"""The MCP server and the status line: registered, allowed, and answering?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor.agents.known import CLAUDE_CODE, Agent
from context_compactor.errors import CompactorError, install_command
from context_compactor.install.doctor_case import Case
from context_compactor.install.doctor_finding import Finding, look, ok, wrong
from context_compactor.install.doctor_programs import find_command, install_line, is_same, may_run, why_not
from context_compactor.install.doctor_sources import PLUGIN, Source, hooks_of, plugin_folder, sources
from context_compactor.install.doctor_wire import list_tools
from context_compactor.install.jsonspots import value_at
from context_compactor.install.ours import (
    SERVER,
    is_our_server,
    server_arguments,
    server_command,
    status_line_command,
)
from context_compactor.install.program import BY_NAME, NAME, Command
from context_compactor.install.targets import peek, targets

AREA = "mcp"
LINE = "status line"
_EXTRA = "needs an extra"


class _Server(Struct, frozen=True):
    scope: str
    path: Path
    entry: dict[str, Any]

    @property
    def command(self) -> Command:
        return server_command(self.entry) or BY_NAME

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(server_arguments(self.entry))


def servers(case: Case, agent: Agent) -> Iterator[Finding]:
    """Our server in the settings of an agent."""
    found = sources(case, agent)
    entries = list(_entries(case, agent, found))
    if not entries:
        if any(hook.is_ours for hook in hooks_of(found)):
            told = f"{agent.title} does not know our MCP server, so its model cannot recall anything"
            yield wrong(AREA, told, install_line(case, agent, "user"))
        return
    for server in entries:
        yield from _allowed(agent, server, found)
    for server in {(server.command, server.arguments): server for server in entries}.values():
        yield _started(case, agent, server)


def _entries(case: Case, agent: Agent, found: list[Source]) -> Iterator[_Server]:
    if agent is not CLAUDE_CODE:
        named = [(source, _table(_table(source.values, "mcp_servers"), SERVER)) for source in found]
        yield from (_Server(source.scope, source.path, entry) for source, entry in named if is_our_server(entry))
        return
    state, project = (targets(agent, place, BY_NAME)[1].path for place in (case.user, case.project))
    local = ("projects", str(case.root))
    places = [("user", state, ()), ("local", state, local), ("project", project, ())]
    places += [(PLUGIN, path / ".mcp.json", ()) for path in plugin_folder(case) if _has_plugin(found)]
    for scope, path, under in places:
        entry = value_at(peek(path), (*under, "mcpServers", SERVER))
        if is_our_server(entry):
            yield _Server(scope, path, entry)


def _has_plugin(found: list[Source]) -> bool:
    return any(source.scope == PLUGIN for source in found)


def _allowed(agent: Agent, server: _Server, found: list[Source]) -> Iterator[Finding]:
    if server.entry.get("enabled") is False:
        told = f"our MCP server is switched off in {server.path}"
        yield wrong(AREA, told, "Remove `enabled = false` there")
    if agent is not CLAUDE_CODE or server.scope != "project":
        return
    if any(SERVER in _list(source.values.get("disabledMcpjsonServers")) for source in found):
        told = f"our MCP server in {server.path} was refused (disabledMcpjsonServers)"
        yield wrong(AREA, told, "Remove it from that list in .claude/settings.local.json")
    elif not any(
        source.values.get("enableAllProjectMcpServers") is True
        or SERVER in _list(source.values.get("enabledMcpjsonServers"))
        for source in found
    ):
        told = f"our MCP server in {server.path} waits for approval"
        yield look(AREA, told, "Start `claude` there and approve it when it asks")


def _started(case: Case, agent: Agent, server: _Server) -> Finding:
    line = shlex.join((*server.command, *server.arguments))
    where = f"{line} ({server.scope})"
    again = install_line(case, agent, server.scope)
    command = find_command(case, server.command)
    if command is None:
        return wrong(AREA, f"{agent.title} starts {where}, {why_not(server.command)}", again)
    if not may_run(case, server.command, server.scope):
        return look(
            AREA, f"{agent.title} starts {where}, another program than this one", f"Look whose it is, or {again}"
        )
    told = server.entry.get("env")
    extra = {str(name): str(value) for name, value in told.items()} if isinstance(told, dict) else {}
    try:
        tools = list_tools([*command, *server.arguments], case.root, {**case.env, **extra})
    except CompactorError as error:
        remedy = install_command("mcp") if _EXTRA in str(error) else f"Run `{line}` and see what it says"
        return wrong(AREA, f"{agent.title} starts {where}, and that {error}", remedy)
    return ok(AREA, f"{agent.title} starts {where}, which answers with {len(tools)} tools: {', '.join(tools)}")


def status_line(case: Case, agent: Agent) -> Iterator[Finding]:
    """Whose status line an agent shows."""
    found = sources(case, agent)
    if not agent.has_status_line or not any(hook.is_ours for hook in hooks_of(found)):
        return
    order = ("local", "project", "user")
    shown = [source for source in found if source.scope in order and source.values.get("statusLine") is not None]
    shown.sort(key=lambda source: order.index(source.scope))
    if not shown:
        yield look(LINE, f"{agent.title} shows no status line", install_line(case, agent, "user"))
    elif command := status_line_command(shown[0].values["statusLine"]):
        yield _drawn(case, agent, command, shown[0].scope)
    else:
        remedy = f"`{NAME} statusline` in it, which reads the same input, would add ours"
        yield ok(LINE, f"{agent.title} shows one of your own ({shown[0].path})", remedy)


def _drawn(case: Case, agent: Agent, command: Command, scope: str) -> Finding:
    """A status line of ours."""
    told, again = f"{agent.title} shows ours ({scope})", install_line(case, agent, scope)
    found = find_command(case, command)
    if found is None:
        return wrong(LINE, f"{told} by {shlex.join(command)}, {why_not(command)}", again)
    if command != BY_NAME and not is_same(found, case.command):
        return look(LINE, f"{told} by {shlex.join(command)}, which is not this program", f"{again}, to use this one")
    return ok(LINE, told)


def _table(values: Any, name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
