"""LangChain and LangGraph: a middleware for `create_agent`, and a function for the nodes of a graph of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import Conversations, importing
from context_compactor.sessions.session import Session
from context_compactor.sessions.tool_schemas import ArchiveTool, schema_of
from context_compactor.sessions.tools import TOOLS

with importing("langchain", "langchain>=1.0"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.tools import ToolRuntime
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        InvalidToolCall,
        ToolMessage,
        convert_to_messages,
        convert_to_openai_messages,
    )
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.messages.tool import default_tool_parser
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config

# Blocks in the content of a reply: calls, which it has in `tool_calls` as well, and thinking.
_CALLS = ("tool_call", "invalid_tool_call")
_THINKING = ("reasoning", "thinking", "redacted_thinking")
# The last message of the last request of a session. Usage of a reply to anything else says nothing about its context.
_asked: WeakKeyDictionary[Session, str | None] = WeakKeyDictionary()


class CompactorMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps every request of an agent inside its window: `create_agent(…, middleware=[CompactorMiddleware(window=…)])`.

    Put it last, so that it sees what other middleware makes of a request. `options` are those of `Session.open`, such
    as `window`, `model` and `store`. Each thread has a session under its `thread_id`; `session`, an open one or an id,
    is for an agent with one conversation. The agent's state keeps its whole history. Without `recall` the agent is not
    given the tools `recall`, `search_archive` and `facts`.
    """

    def __init__(self, session: Session | str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__()
        self._conversations = Conversations(session, **{"dialect": "openai-chat", **options})
        self.tools = [self._tool(tool) for tool, _ in TOOLS.values()] if recall else []

    def session(self, config: RunnableConfig, messages: Sequence[BaseMessage] = ()) -> Session:
        """The session of a conversation, by the `thread_id` of a config.

        Without one, and for an agent inside of another, it also goes by the id of the first message: whoever passes on
        the messages of a run continues it.
        """
        place = config.get("configurable", {})
        thread, is_inner = place.get("thread_id"), "|" in place.get("checkpoint_ns", "")
        first = messages[0].id if messages and (is_inner or not thread) else None
        session = self._conversations.session("/".join(str(name) for name in (thread, first) if name))
        if self.tools:
            session.tools()  # so that records name recall
        return session

    def close(self) -> None:
        """Close the sessions that were opened here."""
        self._conversations.close()

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send what the session says instead of the whole history."""
        return handler(self._compacted(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """The same for `ainvoke` and `astream`."""
        return await handler(await asyncio.to_thread(self._compacted, request))

    def _compacted(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self.session(get_config(), request.state["messages"])
        messages = compacted(request.messages, session, tools=request.tools, system=request.system_prompt or "")
        return request.override(messages=messages)

    def _tool(self, tool: ArchiveTool) -> BaseTool:
        def answer(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            return self.session(runtime.config, runtime.state["messages"]).call(tool.name, arguments)

        schema = schema_of(tool.arguments)
        return StructuredTool(name=tool.name, description=tool.description, args_schema=schema, func=answer)


def compacted(
    messages: Sequence[AnyMessage], session: Session, tools: Sequence[Any] | None = None, system: str | None = None
) -> list[AnyMessage]:
    """What to send to a model instead of the whole history, for any node of a graph.

    `tools` are those that the model is given, `system` is a prompt that is sent beside the messages.
    """
    if not isinstance(session, Session):
        raise BadSetting(f"session: expected a Session, got {type(session).__name__}")
    given = [(message, _as_openai(message)) for message in messages]
    # What has become several messages is no longer one of the framework's own.
    own = [message if len(plain) == 1 else None for message, plain in given for _ in plain]
    declared = None if tools is None else [convert_to_openai_tool(tool) for tool in tools]
    history = [each for _, plain in given for each in plain]
    sent = session.sync(history, usage=_usage(messages, session), tools=declared, system=system)
    kept = [None if source is None else own[source] for source in sent.sources]
    return [_from_openai(plain) if message is None else message for plain, message in zip(sent, kept, strict=True)]


def _usage(messages: Sequence[AnyMessage], session: Session) -> UsageMetadata | None:
    """What was reported for the last reply, if it answers what this session sent last."""
    asked, _asked[session] = _asked.get(session), messages[-1].id if messages else None
    for before, reply in reversed([*pairwise(messages)]):
        if isinstance(reply, AIMessage):
            return reply.usage_metadata if before.id and before.id == asked else None
    return None


def _as_openai(message: BaseMessage) -> list[dict[str, Any]]:
    """A message in OpenAI's form; several where a user message has results of tools in it."""
    more: dict[str, Any] = {}
    if isinstance(message, AIMessage) and isinstance(message.content, list):
        blocks: list[Any] = [block for block in message.content_blocks if block["type"] not in _CALLS]
        blocks = [block.get("value", block) for block in blocks]  # what is not LangChain's own is wrapped
        more["thinking_blocks"] = [_as_thinking(block) for block in blocks if block.get("type") in _THINKING]
        rest = [block for block in blocks if block.get("type") not in _THINKING]
        message = message.model_copy(update={"content": rest})
    if isinstance(message, ToolMessage) and message.status == "error":
        more["status"] = message.status
    try:
        first, *others = convert_to_openai_messages([message])
    except ValueError:  # a block that OpenAI has no form for, such as a video, stays as it is
        more["content"] = [
            {"type": "text", "text": each} if isinstance(each, str) else each for each in message.content
        ]
        first, *others = convert_to_openai_messages([message.model_copy(update={"content": ""})])
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        more["tool_calls"] = [*first.get("tool_calls", ()), *map(_unreadable_call, message.invalid_tool_calls)]
    return [{**first, **more}, *others]


def _as_thinking(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] != "reasoning":
        return block
    return {"type": "thinking", "thinking": block.get("reasoning", ""), **block.get("extras", {})}


def _unreadable_call(call: InvalidToolCall) -> dict[str, Any]:
    function = {"name": call["name"] or "unknown", "arguments": call["args"] or ""}
    return {"id": call["id"], "type": "function", "function": function}


def _from_openai(plain: dict[str, Any]) -> Any:
    """A message that was written or shortened. A reply keeps no thinking: that belongs to the reply as it was."""
    plain = {"content": "", **plain}
    plain.pop("thinking_blocks", None)
    calls, invalid = default_tool_parser(plain.pop("tool_calls", None) or [])
    (message,) = convert_to_messages([plain])
    is_reply = isinstance(message, AIMessage)
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": invalid}) if is_reply else message
