"""agno: a model whose requests always fit into its window, and tools by which an agent reads what left its context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import Conversations, archive_tools, importing, own_messages
from context_compactor.sessions.session import Session

with importing("agno", "agno>=3.1"):
    from agno.models.base import Model
    from agno.models.message import Message
    from agno.tools.function import Function
    from agno.utils.message import normalize_tool_messages
    from agno.utils.openai import images_to_message

ModelT = TypeVar("ModelT", bound=Model)
_FIELDS = ("tool_calls", "tool_call_id", "tool_name", "reasoning_content")


def with_compactor(model: ModelT, session: Session | str | None = None, **options: Any) -> ModelT:
    """The same model, with every request of an agent fitted into its window: `Agent(model=with_compactor(model))`.

    `options` are those of `Session.open`, such as `window` and `store`. Each agno session has a session under its id,
    or under `<session id>/<agent name>` for an agent with a name; `session`, an open one or an id, is for an agent with
    one conversation. Requests that agno makes on the side, such as for memories, are left alone.
    """
    given: Any = model
    if not isinstance(given, Model) or isinstance(given, _CompactedModel):
        raise BadSetting(f"model: expected one of agno that has no compactor yet, got {type(given).__name__}")
    conversations = Conversations(session, **{"dialect": "openai-chat", "model": model.id, **options})
    # agno copies models deeply, but not their class: all copies share the conversations. It also compares class names.
    kind: Any = type(type(model).__name__, (_CompactedModel, type(model)), {"conversations": conversations})
    compacted: ModelT = object.__new__(kind)
    # With an id of a response, OpenAIResponses would have the provider add the history that it keeps.
    vars(compacted).update(vars(model), use_previous_response_id=False)
    return compacted


def recall_tools(model: Model) -> list[Function]:
    """`recall`, `search_archive` and `facts` for `Agent(tools=[…])`; `model` is that of the agent."""
    if not isinstance(model, _CompactedModel):
        raise BadSetting(f"model: expected one from with_compactor(…), got {type(model).__name__}")

    def tool(name: str, **declared: Any) -> Function:
        def answer(run_context: Any, agent: Any = None, **arguments: Any) -> str:
            return model.session_of(run_context.session_id, agent and agent.name).call(name, arguments)

        return Function(name=name, **declared, entrypoint=answer, skip_entrypoint_processing=True)

    return [tool(**declared) for declared in archive_tools()]


class _CompactedModel:
    """What stands before the class of a model, and fits the messages of its requests."""

    conversations: Conversations

    def session_of(self, session_id: str | None, agent_name: str | None) -> Session:
        """The agents of a team or a workflow share its session id, and have their names to tell them apart."""
        return self.conversations.session(f"{session_id}/{agent_name}" if session_id and agent_name else session_id)

    def _parent(self) -> Any:
        return super()

    def invoke(self, messages: list[Message], **request: Any) -> Any:
        return self._parent().invoke(messages=self._fit(messages, **request), **request)

    async def ainvoke(self, messages: list[Message], **request: Any) -> Any:
        return await self._parent().ainvoke(messages=await asyncio.to_thread(self._fit, messages, **request), **request)

    def invoke_stream(self, messages: list[Message], **request: Any) -> Iterator[Any]:
        yield from self._parent().invoke_stream(messages=self._fit(messages, **request), **request)

    async def ainvoke_stream(self, messages: list[Message], **request: Any) -> AsyncIterator[Any]:
        fitted = await asyncio.to_thread(self._fit, messages, **request)
        async for delta in self._parent().ainvoke_stream(messages=fitted, **request):
            yield delta

    def _fit(self, messages: list[Message], run_response: Any = None, tools: Any = None, **_: Any) -> list[Message]:
        if run_response is None:  # agno asks for a name, a memory or a summary: that belongs to no conversation
            return messages
        session = self.session_of(run_response.session_id, getattr(run_response, "agent_name", None))
        messages = normalize_tool_messages(messages)
        sent = session.sync([_as_plain(message) for message in messages], self._usage(messages), tools or [])
        return own_messages(messages, sent, _from_plain)

    def _usage(self, messages: list[Message]) -> dict[str, int]:
        """What was reported for the last reply."""
        last = next((each for each in reversed(messages) if each.role == "assistant"), Message(role="none")).metrics
        read, written, new = last.cache_read_tokens or 0, last.cache_write_tokens or 0, last.input_tokens
        # The others count in the input what was read from a cache or written to it.
        if not {"Claude", "AwsBedrock"} & {base.__name__ for base in type(self).__mro__}:
            new -= read + written
        return {"input": new, "cache_read": read, "cache_write": written, "output": last.output_tokens}


def _as_plain(message: Message) -> dict[str, Any]:
    """A message in the form of OpenAI's chat, which agno's is for all providers."""
    content: Any = message.content or ""
    files: list[Any] = [*(message.files or ()), *(message.audio or ()), *(message.videos or ())]
    media = images_to_message(message.images or [])
    media += [{"type": "file", "file": {"filename": str(file.url or file.filepath or file.id)}} for file in files]
    if media or isinstance(content, list):
        given = content if isinstance(content, list) else [content]
        content = [each if isinstance(each, dict) else {"type": "text", "text": str(each)} for each in given] + media
    blocks = (message.provider_data or {}).get("content_blocks") or []
    thinking = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
    fields = {name: getattr(message, name) for name in _FIELDS} | {"thinking_blocks": thinking}
    return {"role": message.role, "content": content} | {name: value for name, value in fields.items() if value}


def _from_plain(plain: dict[str, Any]) -> Message:
    content = plain.get("content")
    if isinstance(content, list):  # images are sent as long as agno gives them
        content = "\n\n".join(block.get("text") or f"[{block.get('type')}]" for block in content)
    return Message(role=plain["role"], content=content, **{name: plain[name] for name in _FIELDS if name in plain})
