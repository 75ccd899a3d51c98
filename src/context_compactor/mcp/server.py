"""The table of tools behind the protocol: how a client sees them, and what becomes of a call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from msgspec import structs

from context_compactor import __version__
from context_compactor.errors import CompactorError
from context_compactor.mcp.tools import INSTRUCTIONS, TOOLS, Tool, ToolContext
from context_compactor.sessions.tool_schemas import schema_of
from context_compactor.tokens.counting import replace_surrogates


def sendable(value: Any) -> Any:
    """A plain value without halves of characters, which the protocol cannot carry."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(name): sendable(each) for name, each in value.items()}
    return [sendable(each) for each in value] if isinstance(value, list) else value


MAY_WRITE = "compactor_may_write"
"""Where a connection says whether its caller may change anything; one that does not say so may."""

_log = logging.getLogger("context_compactor")
_MAX_CALLS = 4
_Context = ServerRequestContext[Any, Any]
_TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in TOOLS}


def make_server(project: ToolContext) -> Server[Any]:
    """A server for one project, not running yet."""
    limiter = anyio.CapacityLimiter(_MAX_CALLS)

    async def list_tools(_: _Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = _TOOLS.get(params.name)
        if tool is None:
            return _failed(f"there is no tool {params.name!r:.60}. Try: {', '.join(_TOOLS)}.")
        if tool.writes and not _may_write(context):
            return _failed("this token may only read. Try: one that was made without --read-only.")
        caller = structs.replace(project, caller_session=_caller_session(params))
        return await anyio.to_thread.run_sync(call_tool_safely, tool, caller, params.arguments or {}, limiter=limiter)

    return Server(
        "context-compactor",
        version=__version__,
        title="Context Compactor",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _caller_session(params: types.CallToolRequestParams) -> str:
    """The session that an agent says a call comes from."""
    named = params.meta.get("sessionId") if isinstance(params.meta, dict) else None
    return named if isinstance(named, str) else ""


def _may_write(context: _Context) -> bool:
    return context.request is None or bool(context.request.scope.get(MAY_WRITE, True))


def call_tool_safely(tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> types.CallToolResult:
    """Do the work. Whatever goes wrong is an answer that a model can act on; the server goes on."""
    try:
        from context_compactor.mcp.handlers import run_tool  # slow to load, and the client waits for the list of tools

        output = run_tool(tool, context, arguments)
    except msgspec.ValidationError as error:
        names = sorted(tool.input.__struct_fields__, key=lambda name: name == "session")
        return _failed(f"{tool.name}: {error}. Try: {tool.name}({', '.join(names)}).")
    except (CompactorError, OSError) as error:
        return _failed(f"{tool.name}: {error}")
    except Exception as error:  # noqa: BLE001  a fault of ours must not end the session of an agent
        _log.exception("%s failed", tool.name)
        return _failed(f"{tool.name} failed with {type(error).__name__}, which is a fault of Context Compactor.")
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=output.render())],
        structured_content=sendable(msgspec.to_builtins(output)),
    )


def _failed(problem: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=sendable(problem))], is_error=True)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.input),
        output_schema=schema_of(tool.output),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
        # Claude Code has its model search for the tools of servers unless one says that it is always needed.
        _meta={"anthropic/alwaysLoad": True} if tool.always_loaded else None,
    )
