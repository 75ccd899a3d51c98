"""Doctor checks: the MCP server and the status line, whether they are registered, allowed and answering."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from context_compactor import __version__
from context_compactor.agents.coding_agents import CLAUDE_CODE, CodingAgent
from context_compactor.agents.install.commands import (
    BY_NAME,
    NAME,
    SERVER,
    Command,
    is_our_server,
    server_arguments,
    server_command,
    status_line_command,
)
from context_compactor.agents.install.doctor_findings import (
    PLUGIN,
    DoctorContext,
    Finding,
    SettingsSource,
    look,
    ok,
    our_hooks_of,
    plugin_folder,
    sources,
    table_at,
    wrong,
)
from context_compactor.agents.install.doctor_hooks import find_command, install_line, is_same, may_run, why_not
from context_compactor.agents.install.targets import read_json_or_empty, targets
from context_compactor.agents.install.text_edits import value_at
from context_compactor.errors import CompactorError, install_command

_SECONDS = 30.0
_END_SECONDS = 5.0
_PROTOCOL = "2025-06-18"


def list_server_tools(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """The names of a server's tools; `CompactorError` says what it did instead of answering."""
    with tempfile.TemporaryFile() as errors:
        try:
            server = subprocess.Popen(
                command, cwd=folder, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        except OSError as error:
            raise CompactorError(f"cannot be started: {error.strerror or error}") from error
        give_up = threading.Timer(_SECONDS, server.kill)
        give_up.start()
        client = {"name": "compactor doctor", "version": __version__}
        try:
            _request(server, 1, "initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
            _send(server, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = _request(server, 2, "tools/list", {}).get("tools")
            return [str(tool.get("name")) for tool in tools] if isinstance(tools, list) else []
        except (BrokenPipeError, EOFError) as error:
            if not give_up.is_alive():
                raise CompactorError(f"does not answer within {_SECONDS:g} seconds") from error
            server.wait()
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise CompactorError(
                f"ends at once: {lines[-1][:300]}" if lines else "ends at once without output"
            ) from error
        finally:
            give_up.cancel()
            _end(server)


def _send(server: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert server.stdin is not None  # it was opened as a pipe
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()


def _request(server: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one request; `EOFError` when the server ends before it."""
    _send(server, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    assert server.stdout is not None  # it was opened as a pipe
    for line in server.stdout:
        try:
            answer = json.loads(line)
        except ValueError:
            raise CompactorError(f"prints something that is not MCP: {line[:100]!r}") from None
        if isinstance(answer, dict) and answer.get("id") == number:
            if isinstance(answer.get("result"), dict):
                return dict(answer["result"])
            raise CompactorError(f"refuses {method}: {str(answer.get('error'))[:200]}")
    raise EOFError


def _end(server: subprocess.Popen[bytes]) -> None:
    """Close the input of a server, and kill it when it does not end by itself."""
    with suppress(BrokenPipeError), server:  # it may have ended already
        if server.stdin is not None:
            server.stdin.close()
        try:
            server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()


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


def servers(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Our server in the settings of an agent."""
    found = sources(ctx, agent)
    entries = list(_entries(ctx, agent, found))
    if not entries and our_hooks_of(ctx, agent):
        what = f"our MCP server is not registered with {agent.title}, so its model cannot recall anything"
        yield wrong(what, install_line(ctx, agent, "user"))
    for server in entries:
        yield from _allowed(agent, server, found)
    for server in {(server.command, server.arguments): server for server in entries}.values():
        yield _started(ctx, agent, server)


def _entries(ctx: DoctorContext, agent: CodingAgent, found: list[SettingsSource]) -> Iterator[_Server]:
    if agent is not CLAUDE_CODE:
        named = [(source, table_at(source.values, "mcp_servers", SERVER)) for source in found]
        yield from (_Server(source.scope, source.path, entry) for source, entry in named if is_our_server(entry))
        return
    state, project = (targets(agent, scope, BY_NAME)[1].path for scope in (ctx.user, ctx.project))
    local = ("projects", str(ctx.root))
    places = [("user", state, ()), ("local", state, local), ("project", project, ())]
    if any(source.scope == PLUGIN for source in found):
        places += [(PLUGIN, path / ".mcp.json", ()) for path in plugin_folder(ctx)]
    for scope, path, under in places:
        entry = value_at(read_json_or_empty(path), (*under, "mcpServers", SERVER))
        if is_our_server(entry):
            yield _Server(scope, path, entry)


def _allowed(agent: CodingAgent, server: _Server, found: list[SettingsSource]) -> Iterator[Finding]:
    if server.entry.get("enabled") is False:
        yield wrong(f"our MCP server is switched off in {server.path}", "Remove `enabled = false` there")
    if agent is not CLAUDE_CODE or server.scope != "project":
        return
    if any(SERVER in _list(source.values.get("disabledMcpjsonServers")) for source in found):
        what = f"our MCP server in {server.path} was refused (disabledMcpjsonServers)"
        yield wrong(what, "Remove it from that list in .claude/settings.local.json")
    elif not any(
        source.values.get("enableAllProjectMcpServers") is True
        or SERVER in _list(source.values.get("enabledMcpjsonServers"))
        for source in found
    ):
        what = f"our MCP server in {server.path} waits for approval"
        yield look(what, "Start `claude` there and approve it when it asks")


def _started(ctx: DoctorContext, agent: CodingAgent, server: _Server) -> Finding:
    line = shlex.join((*server.command, *server.arguments))
    where = f"{line} ({server.scope})"
    again = install_line(ctx, agent, server.scope)
    command = find_command(ctx, server.command)
    if command is None:
        return wrong(f"{agent.title} starts {where}, {why_not(server.command)}", again)
    if not may_run(ctx, server.command, server.scope):
        return look(f"{agent.title} starts {where}, another program", f"Check where it comes from, or {again}")
    extra = {str(name): str(value) for name, value in table_at(server.entry, "env").items()}
    try:
        tools = list_server_tools([*command, *server.arguments], ctx.root, {**ctx.env, **extra})
    except CompactorError as error:
        remedy = install_command("mcp") if _EXTRA in str(error) else f"Run `{line}` and see what it says"
        return wrong(f"{agent.title} starts {where}, and that {error}", remedy)
    return ok(f"{agent.title} starts {where}, which answers with {len(tools)} tools: {', '.join(tools)}")


def status_line(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Whose status line an agent shows."""
    found = sources(ctx, agent)
    if not agent.has_status_line or not our_hooks_of(ctx, agent):
        return
    order = ("local", "project", "user")
    shown = [source for source in found if source.scope in order and source.values.get("statusLine") is not None]
    shown.sort(key=lambda source: order.index(source.scope))
    if not shown:
        yield look(f"{agent.title} shows no status line", install_line(ctx, agent, "user"))
    elif command := status_line_command(shown[0].values["statusLine"]):
        yield _drawn(ctx, agent, command, shown[0].scope)
    else:
        remedy = f"`{NAME} statusline` in it, which reads the same input, would add ours"
        yield ok(f"{agent.title} shows one of your own ({shown[0].path})", remedy)


def _drawn(ctx: DoctorContext, agent: CodingAgent, command: Command, scope: str) -> Finding:
    what, again = f"{agent.title} shows ours ({scope})", install_line(ctx, agent, scope)
    found = find_command(ctx, command)
    if found is None:
        return wrong(f"{what} by {shlex.join(command)}, {why_not(command)}", again)
    if command != BY_NAME and not is_same(found, ctx.command):
        return look(f"{what} by {shlex.join(command)}, which is not this program", f"{again}, to use this one")
    return ok(what)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
