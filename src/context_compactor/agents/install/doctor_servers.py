"""Doctor checks: the MCP server and the status line, whether they are registered, allowed and answering."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import threading
import time
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
    try:
        server = subprocess.Popen(
            command, cwd=folder, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise CompactorError(f"cannot be started: {error.strerror or error}") from error
    with server:
        probe = _ServerProbe(server)
        try:
            client = {"name": "compactor doctor", "version": __version__}
            probe.request("initialize", {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client})
            probe.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            tools = probe.request("tools/list", {}).get("tools")
            return [str(tool.get("name")) for tool in tools] if isinstance(tools, list) else []
        finally:
            probe.end()


class _ServerProbe:
    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._give_up = time.monotonic() + _SECONDS
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: list[bytes] = []
        self._last_id = 0
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self._last_id += 1
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        while True:
            answer = self._next(method)
            if answer.get("id") == self._last_id and isinstance(answer.get("result"), dict):
                return dict(answer["result"])
            if answer.get("id") == self._last_id:
                raise CompactorError(f"refuses {method}: {str(answer.get('error'))[:200]}")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self._server.stdin is not None  # it was opened as a pipe
        try:
            self._server.stdin.write(json.dumps(message).encode() + b"\n")
            self._server.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def end(self) -> None:
        """Close its input, and kill the server when it does not end by itself."""
        with suppress(BrokenPipeError):  # it may have ended already
            if self._server.stdin is not None:
                self._server.stdin.close()
        try:
            self._server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
        for reader in self._readers:
            reader.join(_END_SECONDS)

    def _next(self, method: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(0.0, self._give_up - time.monotonic()))
        except queue.Empty:
            raise CompactorError(f"does not answer {method} within {_SECONDS:g} seconds") from None
        if not line:
            raise self._ended()
        try:
            found = json.loads(line)
        except ValueError:
            raise CompactorError(f"says something that is not MCP: {line[:100]!r}") from None
        return found if isinstance(found, dict) else {}

    def _ended(self) -> CompactorError:
        self._readers[1].join(_END_SECONDS)
        errors = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        return CompactorError(f"ends at once: {errors[-1][:300]}" if errors else "ends at once and says nothing")

    def _read(self) -> None:
        assert self._server.stdout is not None  # it was opened as a pipe
        for line in self._server.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        assert self._server.stderr is not None  # it was opened as a pipe
        self._errors.extend(self._server.stderr)


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
        named = [(source, _table(_table(source.values, "mcp_servers"), SERVER)) for source in found]
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
    extra = {str(name): str(value) for name, value in _table(server.entry, "env").items()}
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


def _table(values: Any, name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
