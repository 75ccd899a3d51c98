"""LangChain and LangGraph: a middleware for `create_agent`, and a function for the nodes of a graph of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import Conversations, archive_tools, importing, own_messages
from context_compactor.sessions.session import Session

with importing("langchain", "langchain>=1.0"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.messages.tool import default_tool_parser
    from langchain_core.messages.utils import AnyMessage, convert_to_messages, convert_to_openai_messages
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config

# Blocks in the content of a reply that it has in `tool_calls` or `invalid_tool_calls` as well.
_CALLS = ("tool_call", "tool_call_chunk", "invalid_tool_call")


class CompactorMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps every request of an agent inside its window: `create_agent(…, middleware=[CompactorMiddleware(window=…)])`.

    Put it last, so that it sees what other middleware makes of a request. `options` are those of `Session.open`, such
    as `window`, `model` and `store`. Each thread has a session under its `thread_id`; `session`, an open one or an id,
    is for an agent with one conversation. The agent's state keeps its whole history. Without `recall` the agent is not
    given the tools `recall`, `search_archive` and `facts`.
    """

    def __init__(self, session: Session | str | None = None, *, recall: bool = True, **options: Any) -> None:
        super().__init__()
        self.conversations = Conversations(session, **{"dialect": "openai-chat", **options})
        self.tools = [self._tool(**declared) for declared in archive_tools()] if recall else []

    def session(self, config: RunnableConfig, messages: Sequence[BaseMessage] = ()) -> Session:
        """The session of a conversation, by the `thread_id` of a config.

        Without one, and for an agent inside of another, it also goes by the id of the first message: whoever passes on
        the messages of a run continues it.
        """
        place = config.get("configurable", {})
        thread, is_inner = place.get("thread_id"), "|" in place.get("checkpoint_ns", "")
        first = messages[0].id if messages and (is_inner or not thread) else None
        return self.conversations.session("/".join(str(name) for name in (thread, first) if name))

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        """Send what the session says instead of the whole history."""
        return handler(self._compacted(request))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]) -> Any:
        """The same for `ainvoke` and `astream`."""
        return await handler(await asyncio.to_thread(self._compacted, request))

    def _compacted(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self.session(get_config(), request.state["messages"])
        messages = compacted(request.messages, session, tools=request.tools, system=request.system_prompt or "")
        return request.override(messages=messages)

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> BaseTool:
        def answer(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            return self.session(runtime.config, runtime.state["messages"]).call(name, arguments)

        return StructuredTool(name=name, description=description, args_schema=parameters, func=answer)


def compacted(
    messages: Sequence[AnyMessage], session: Session, tools: Sequence[Any] | None = None, system: str | None = None
) -> list[AnyMessage]:
    """What to send to a model instead of the whole history, for any node of a graph.

    `tools` are those that the model is given, `system` is a prompt that is sent beside the messages.
    """
    if not isinstance(session, Session):
        raise BadSetting(f"session: expected a Session, got {type(session).__name__}")
    declared = None if tools is None else [convert_to_openai_tool(tool) for tool in tools]
    usage = next((each.usage_metadata for each in reversed(messages) if isinstance(each, AIMessage)), None)
    given = [(message, _as_openai(message)) for message in messages]
    # What has become several messages is no longer the framework's own.
    own = [message if len(plain) == 1 else _from_openai(each) for message, plain in given for each in plain]
    sent = session.sync([each for _, plain in given for each in plain], usage, declared, system)
    return own_messages(own, sent, _from_openai)


def _as_openai(message: BaseMessage) -> list[dict[str, Any]]:
    """A message in OpenAI's form; several where a user message has results of tools in it."""
    more: dict[str, Any] = {"status": "error"} if getattr(message, "status", None) == "error" else {}
    if isinstance(message, AIMessage) and isinstance(message.content, list):
        blocks = [_as_block(block) for block in message.content_blocks if block["type"] not in _CALLS]
        message = message.model_copy(update={"content": blocks})
    try:
        first, *others = convert_to_openai_messages([message])
    except ValueError:  # a block that OpenAI has no form for, such as a video, stays as it is
        first, *others = convert_to_openai_messages([message.model_copy(update={"content": ""})])
        more["content"] = [{"type": "text", "text": one} if isinstance(one, str) else one for one in message.content]
    if isinstance(message, AIMessage) and message.invalid_tool_calls:
        more["tool_calls"] = [*first.get("tool_calls", ()), *map(_unreadable_call, message.invalid_tool_calls)]
    return [{**first, **more}, *others]


def _as_block(block: Any) -> dict[str, Any]:
    if block["type"] == "reasoning":
        return {"type": "thinking", "thinking": block.get("reasoning", ""), **block.get("extras", {})}
    return block.get("value", block)  # what is not LangChain's own is wrapped


def _unreadable_call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"] or "unknown", "arguments": call["args"] or ""}
    return {"id": call["id"], "type": "function", "function": function}


def _from_openai(plain: dict[str, Any]) -> Any:
    """A message that was written or shortened. Of a reply it has text and calls: thinking belongs to it as it was."""
    content = plain.get("content") or ""
    if plain["role"] != "assistant":
        return convert_to_messages([{**plain, "content": content}])[0]
    texts = [content] if isinstance(content, str) else [each["text"] for each in content if each.get("type") == "text"]
    calls, invalid = default_tool_parser(plain.get("tool_calls") or [])
    return AIMessage("\n".join(texts), name=plain.get("name"), tool_calls=calls, invalid_tool_calls=invalid)
