"""agno: a model whose requests always fit into its window, and tools by which an agent reads what left its context."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import Conversations, importing
from context_compactor.sessions.session import Session
from context_compactor.sessions.tool_schemas import RECALL, ArchiveTool, schema_of
from context_compactor.sessions.tools import TOOLS

with importing("agno", "agno>=3.1"):
    from agno.models.base import Model
    from agno.models.message import Message
    from agno.run import RunContext
    from agno.tools.function import Function
    from agno.utils.message import normalize_tool_messages
    from agno.utils.openai import images_to_message

ModelT = TypeVar("ModelT", bound=Model)
_FIELDS = ("tool_calls", "tool_call_id", "tool_name", "reasoning_content")
# The models whose reported input leaves out what was read from a cache or written to it.
_COUNT_CACHE_APART = {"Claude", "AwsBedrock"}


def with_compactor(model: ModelT, session: Session | str | None = None, **options: Any) -> ModelT:
    """The same model, with every request of an agent fitted into its window: `Agent(model=with_compactor(model))`.

    `options` are those of `Session.open`, such as `window` and `store`. Each agno session has a session under its id,
    or under `<session id>/<agent name>` for an agent with a name; `session`, an open one or an id, is for an agent with
    one conversation. Requests that agno makes on the side, such as for memories, are left alone.
    """
    given: Any = model
    if isinstance(given, _CompactedModel) or not isinstance(given, Model):
        problem = "a model that has one already" if isinstance(given, Model) else type(given).__name__
        raise BadSetting(f"with_compactor: expected a model of agno such as OpenAIChat(…), got {problem}")
    conversations = Conversations(session, **{"dialect": "openai-chat", "model": model.id, **options})
    # agno copies models deeply, but not their class: all copies share the conversations. It also compares class names.
    kind: Any = type(type(model).__name__, (_CompactedModel, type(model)), {"_conversations": conversations})
    compacted: ModelT = object.__new__(kind)
    vars(compacted).update(vars(model))
    if hasattr(compacted, "use_previous_response_id"):
        compacted.use_previous_response_id = False  # else the provider would add the history that it keeps
    return compacted


def recall_tools(model: Model) -> list[Function]:
    """`recall`, `search_archive` and `facts` for `Agent(tools=[…])`; `model` is that of the agent."""
    return [_recall_tool(conversations_of(model), tool) for tool, _ in TOOLS.values()]


def conversations_of(model: Model) -> Conversations:
    """The sessions of a model from `with_compactor`: `.session("id")` gives one, `.close()` closes all."""
    given: Any = model
    if isinstance(given, _CompactedModel):
        return given._conversations
    raise BadSetting(f"model: expected one from with_compactor(…), got {type(given).__name__}")


class _CompactedModel:
    """What stands before the class of a model, and fits the messages of its requests."""

    _conversations: Conversations

    def invoke(self, messages: list[Message], **request: Any) -> Any:
        parent: Any = super()
        return parent.invoke(messages=self._fit(messages, **request), **request)

    async def ainvoke(self, messages: list[Message], **request: Any) -> Any:
        parent: Any = super()
        return await parent.ainvoke(messages=await asyncio.to_thread(self._fit, messages, **request), **request)

    def invoke_stream(self, messages: list[Message], **request: Any) -> Iterator[Any]:
        parent: Any = super()
        yield from parent.invoke_stream(messages=self._fit(messages, **request), **request)

    async def ainvoke_stream(self, messages: list[Message], **request: Any) -> AsyncIterator[Any]:
        parent: Any = super()
        fitted = await asyncio.to_thread(self._fit, messages, **request)
        async for delta in parent.ainvoke_stream(messages=fitted, **request):
            yield delta

    def _fit(
        self, messages: list[Message], run_response: Any = None, tools: list[dict[str, Any]] | None = None, **_: Any
    ) -> list[Message]:
        if run_response is None:  # agno asks for a name, a memory or a summary: that belongs to no conversation
            return messages
        name = getattr(run_response, "agent_name", None)
        session = self._conversations.session(_conversation(run_response.session_id, name))
        if any(tool.get("function", {}).get("name") == RECALL.name for tool in tools or ()):
            session.tools("openai")
        messages = normalize_tool_messages(messages)
        history = [_as_plain(message) for message in messages]
        sent = session.sync(history, usage=self._usage(messages), tools=tools or [])
        pairs = zip(sent, sent.sources, strict=True)
        return [_from_plain(plain) if at is None else messages[at] for plain, at in pairs]

    def _usage(self, messages: Sequence[Message]) -> dict[str, int] | None:
        """What was reported for the last reply."""
        found = next((message.metrics for message in reversed(messages) if message.role == "assistant"), None)
        if found is None:
            return None
        read, written = found.cache_read_tokens or 0, found.cache_write_tokens or 0
        is_apart = any(base.__name__ in _COUNT_CACHE_APART for base in type(self).__mro__)
        new = found.input_tokens - (0 if is_apart else read + written)
        return {"input": new, "cache_read": read, "cache_write": written, "output": found.output_tokens}


def _conversation(session_id: str | None, agent_name: str | None) -> str | None:
    """The agents of a team or a workflow share its session id, and have their names to tell them apart."""
    return f"{session_id}/{agent_name}" if session_id and agent_name else session_id


def _recall_tool(conversations: Conversations, tool: ArchiveTool) -> Function:
    def answer(run_context: RunContext, agent: Any = None, **arguments: Any) -> str:
        conversation = _conversation(run_context.session_id, agent and agent.name)
        return conversations.session(conversation).call(tool.name, arguments)

    return Function(
        name=tool.name,
        description=tool.description,
        parameters=schema_of(tool.arguments),
        entrypoint=answer,
        skip_entrypoint_processing=True,
    )


def _as_plain(message: Message) -> dict[str, Any]:
    """A message in the form of OpenAI's chat, which agno's is for all providers."""
    content: Any = message.content or ""
    if isinstance(content, list) and not all(isinstance(block, dict) for block in content):
        content = json.dumps(content, ensure_ascii=False, default=str)
    media = images_to_message(message.images or [])
    files: list[Any] = [*(message.files or ()), *(message.audio or ()), *(message.videos or ())]
    media += [{"type": "file", "file": {"filename": str(file.url or file.filepath or file.id)}} for file in files]
    if media:
        content = [*(content if isinstance(content, list) else [{"type": "text", "text": content}]), *media]
    blocks = (message.provider_data or {}).get("content_blocks") or []
    thinking = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
    fields = {name: getattr(message, name) for name in _FIELDS} | {"thinking_blocks": thinking}
    return {"role": message.role, "content": content} | {name: value for name, value in fields.items() if value}


def _from_plain(plain: dict[str, Any]) -> Message:
    content = plain.get("content")
    if isinstance(content, list):  # images are sent as long as agno gives them
        content = "\n\n".join(block.get("text") or f"[{block.get('type')}]" for block in content)
    return Message(role=plain["role"], content=content, **{name: plain[name] for name in _FIELDS if name in plain})
