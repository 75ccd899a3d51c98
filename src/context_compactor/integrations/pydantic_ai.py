"""Pydantic AI: a capability that keeps an agent inside its context window.

agent = Agent("openai:gpt-5", capabilities=[CompactorCapability(window=200_000)])
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from context_compactor.integrations.conversations import Conversations, importing
from context_compactor.sessions.session import Session

with importing("pydantic-ai", "pydantic-ai-slim>=2.60"):
    from pydantic import TypeAdapter
    from pydantic_ai import RunContext, Tool, messages
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ProcessHistory
    from pydantic_ai.messages import ERROR_OUTCOMES, ModelMessage, ModelRequest, ModelResponse
    from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
    from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

_PARTS: TypeAdapter[Any] = TypeAdapter(messages.ModelResponsePart)
_FILES: TypeAdapter[Any] = TypeAdapter(messages.MultiModalContent)


class CompactorCapability(AbstractCapability[object]):
    """Keeps an agent inside its window, and gives it the tools `recall`, `search_archive` and `facts`.

    Give it to the agent: `Agent(model, capabilities=[CompactorCapability(window=200_000)])`. Options are those of
    `Session.open`. `session` is for an agent with one conversation; otherwise each has a session under its
    `conversation_id`. `recall=False` leaves the tools out. What `all_messages()` returns stays as it is.
    """

    def __init__(self, session: Session | str | None = None, *, recall: bool = True, **options: Any) -> None:
        self._conversations = Conversations(session, **{"dialect": "anthropic", **options})
        self._recall = recall

    def session(self, conversation_id: str | None) -> Session:
        """The session of a conversation; a run has its id as `result.conversation_id` and `ctx.conversation_id`."""
        return self._conversations.session(conversation_id)

    def close(self) -> None:
        """Close the sessions that were opened here."""
        self._conversations.close()

    def get_ordering(self) -> CapabilityOrdering:
        """Behind `ProcessHistory`, which writes what it is given into the history."""
        return CapabilityOrdering(wrapped_by=[ProcessHistory])

    def get_toolset(self) -> DynamicToolset[object] | None:
        """The tools that read what left the context, for the conversation of each run."""
        return DynamicToolset(self._tools, per_run_step=False, id="context_compactor") if self._recall else None

    async def _tools(self, ctx: RunContext[Any]) -> FunctionToolset[object]:
        declared = await asyncio.to_thread(lambda: self.session(ctx.conversation_id).tools("anthropic"))

        def call(name: str, /, **arguments: Any) -> str:
            return self.session(ctx.conversation_id).call(name, arguments)

        named = [(tool["name"], tool["description"], tool["input_schema"]) for tool in declared]
        return FunctionToolset([Tool.from_schema(partial(call, tool[0]), *tool) for tool in named])

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the messages of the request by what fits."""
        beside = request_context.model_request_parameters
        # Requests in a row are joined, as Pydantic AI joins them itself when the history is given to the next run.
        given = messages.repair_messages(request_context.messages, repair_last_response=False)
        # A reply that the provider has not finished goes back to it as it is, and is no part of the history yet.
        end = len(given) - isinstance(given[-1], ModelResponse)
        fitted = await asyncio.to_thread(lambda: _fit(self.session(ctx.conversation_id), given[:end], beside))
        request_context.messages = [*fitted, *given[end:]]
        return request_context


def _fit(session: Session, given: Sequence[ModelMessage], beside: ModelRequestParameters) -> list[ModelMessage]:
    prompts = [part for part in given[0].parts if isinstance(part, messages.SystemPromptPart)]
    system = "\n\n".join(part.content for part in (*prompts, *(beside.instruction_parts or ())))
    tools = [
        {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
        for tool in (*beside.function_tools, *beside.output_tools)
    ]
    usage = next((message.usage for message in reversed(given) if isinstance(message, ModelResponse)), None)
    reported = usage and {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
    }
    sent = session.sync([_plain(message, prompts) for message in given], reported, tools, system)
    names = {block["id"]: block["name"] for raw in sent for block in _listed(raw) if block["type"] == "tool_use"}
    fitted = [
        _message(raw, names) if source is None else given[source]
        for raw, source in zip(sent, sent.sources, strict=True)
    ]
    return [ModelRequest(prompts), *fitted] if prompts and sent.sources[0] != 0 else fitted


def _plain(message: ModelMessage, prompts: Sequence[object]) -> dict[str, Any]:
    """A message in Anthropic's form, where one may have as many parts as in Pydantic AI.

    One without content stays one: a run may have no prompt but its instructions, and a reply may be empty.
    """
    role = "user" if isinstance(message, ModelRequest) else "assistant"
    blocks = [block for part in message.parts if part not in prompts for block in _blocks(part)]
    return {"role": role, "content": [block for block in blocks if block.get("text", ".").strip()] or "(empty)"}


def _blocks(part: object) -> Iterator[dict[str, Any]]:
    """What a part says; nothing for notes of Pydantic AI on its tools and instructions."""
    match part:
        case messages.TextPart() | messages.SystemPromptPart() | messages.UserPromptPart() | messages.FilePart():
            items = part.content if isinstance(part.content, (list, tuple)) else [part.content]
            yield from (_block(item) for item in items if not isinstance(item, messages.CachePoint))
        case messages.ToolCallPart():
            call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            yield {"type": "tool_use", **call}
        case messages.ToolReturnPart():
            said = [part.model_response_str(wrap_if_error=False), *part.files]
            content = [_block(item) for item in said if item] if part.files else said[0]
            result = {"tool_use_id": part.tool_call_id, "content": content, "is_error": part.outcome in ERROR_OUTCOMES}
            yield {"type": "tool_result", **result}
        case messages.RetryPromptPart(tool_name=str()):
            result = {"tool_use_id": part.tool_call_id, "content": part.model_response(), "is_error": True}
            yield {"type": "tool_result", **result}
        case messages.RetryFeedbackPart() | messages.RetryPromptPart():
            yield _block(part.model_response())
        case messages.SpeechPart():
            yield _block(part.transcript or "")
        case messages.CompactionPart(provider_name=None):  # a summary that the program wrote
            yield _block(part.content or "")
        case messages.ThinkingPart(signature=str()):
            yield {"type": "thinking", "thinking": part.content, **_dumped(part)}
        case messages.CompactionPart():
            yield {"type": "compaction", **_dumped(part)}
        # Reasoning without a signature may stay where signed reasoning may not, so it is none for the session.
        case messages.ThinkingPart() | messages.NativeToolCallPart() | messages.NativeToolReturnPart():
            yield {"type": f"pydantic_ai:{part.part_kind}", **_dumped(part)}


def _dumped(part: object) -> dict[str, Any]:
    dumped: dict[str, Any] = _PARTS.dump_python(part, mode="json", exclude_none=True)
    return dumped


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, (str, messages.TextContent)):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    if isinstance(item, messages.BinaryContent):
        source = {"type": "base64", "media_type": item.media_type, "data": item.base64}
    else:
        dumped = _FILES.dump_python(item, mode="json")
        source = {"type": "url" if "url" in dumped else "file", **dumped}
    is_image = item.kind == "image-url" or str(source["media_type"]).startswith("image/")
    return {"type": "image" if is_image else "document", "source": source}


def _listed(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = raw["content"]
    return [_block(content)] if isinstance(content, str) else content


def _message(raw: Mapping[str, Any], names: Mapping[str, str]) -> ModelMessage:
    if raw["role"] == "assistant":
        return ModelResponse([_response_part(block) for block in _listed(raw)])
    return ModelRequest([_request_part(block, names) for block in _listed(raw)])


def _request_part(block: dict[str, Any], names: Mapping[str, str]) -> messages.ModelRequestPart:
    if block["type"] != "tool_result":
        return messages.UserPromptPart(block["text"] if "text" in block else [_item(block)])
    content, call = block["content"], block["tool_use_id"]
    held = content if isinstance(content, str) else [_item(inner) for inner in content]
    return messages.ToolReturnPart(names[call], held, call, outcome="failed" if block.get("is_error") else "success")


def _response_part(block: dict[str, Any]) -> messages.ModelResponsePart:
    match block["type"]:
        case "text":
            return messages.TextPart(block["text"])
        case "tool_use":  # without the provider's own id, which may refer to reasoning that is gone
            return messages.ToolCallPart(block["name"], block["input"], block["id"])
        case "image" | "document":
            return messages.FilePart(_item(block))
    return _PARTS.validate_python(block)


def _item(block: dict[str, Any]) -> Any:
    if block["type"] == "text":
        return block["text"]
    source = block["source"]
    if source["type"] == "base64":
        return messages.BinaryContent.from_data_uri(f"data:{source['media_type']};base64,{source['data']}")
    return _FILES.validate_python(source)
