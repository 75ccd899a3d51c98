"""Pydantic AI: a capability that keeps an agent inside its context window.

agent = Agent("openai:gpt-5", capabilities=[CompactorCapability(window=200_000)])
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from context_compactor.integrations.conversations import Conversations, archive_tools, importing, own_messages
from context_compactor.sessions.session import Session

with importing("pydantic-ai", "pydantic-ai-slim>=2.60"):
    from pydantic import TypeAdapter
    from pydantic_ai import FunctionToolset, ModelRequestContext, RunContext, Tool, messages
    from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ProcessHistory
    from pydantic_ai.messages import ERROR_OUTCOMES, ModelMessage, ModelRequest, ModelResponse, ToolReturnPart

_OBJECTS: TypeAdapter[Any] = TypeAdapter(messages.ModelResponsePart | messages.MultiModalContent)


class CompactorCapability(AbstractCapability[object]):
    """Keeps an agent inside its window, and gives it the tools `recall`, `search_archive` and `facts`.

    Give it to the agent: `Agent(model, capabilities=[CompactorCapability(window=200_000)])`. Options are those of
    `Session.open`. `session` is for an agent with one conversation; otherwise each has a session under its
    `conversation_id`, as in `conversations.session(result.conversation_id)`; `conversations.close()` closes them.
    `recall=False` leaves the tools out. What `all_messages()` returns stays as it is.
    """

    def __init__(self, session: Session | str | None = None, *, recall: bool = True, **options: Any) -> None:
        self.conversations = Conversations(session, **{"dialect": "anthropic", **options})
        self._recall = recall

    def get_ordering(self) -> CapabilityOrdering:
        """Behind `ProcessHistory`, which writes what it is given into the history."""
        return CapabilityOrdering(wrapped_by=[ProcessHistory])

    def get_toolset(self) -> FunctionToolset | None:
        """The tools that read what left the context of the conversation that a run belongs to."""
        return FunctionToolset([self._tool(**tool) for tool in archive_tools()]) if self._recall else None

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> Tool:
        def call(ctx: RunContext, /, **arguments: Any) -> str:
            return self.conversations.session(ctx.conversation_id).call(name, arguments)

        return Tool.from_schema(call, name, description, parameters, takes_ctx=True)

    async def before_model_request(self, ctx: RunContext, request_context: ModelRequestContext) -> ModelRequestContext:
        """Replace the messages of the request by what fits."""
        # Requests in a row are joined, as Pydantic AI joins them itself when the history is given to the next run.
        given = messages.repair_messages(request_context.messages, repair_last_response=False)
        # A reply that the provider has not finished goes back to it as it is, and is no part of the history yet.
        end = len(given) - isinstance(given[-1], ModelResponse)
        session = await asyncio.to_thread(self.conversations.session, ctx.conversation_id)
        request_context.messages = [*await asyncio.to_thread(_fit, session, given[:end], request_context), *given[end:]]
        return request_context


def _fit(session: Session, given: Sequence[ModelMessage], request: ModelRequestContext) -> list[ModelMessage]:
    beside = request.model_request_parameters
    prompts = [part for part in given[0].parts if isinstance(part, messages.SystemPromptPart)]
    system = "\n\n".join(part.content for part in (*prompts, *(beside.instruction_parts or ())))
    used = [*beside.function_tools, *beside.output_tools]
    tools = [{"name": one.name, "description": one.description, "schema": one.parameters_json_schema} for one in used]
    usage = next((message.usage for message in reversed(given) if isinstance(message, ModelResponse)), None)
    reported = usage and {**vars(usage), "cached_tokens": usage.cache_read_tokens}
    sent = session.sync([_plain(message, prompts) for message in given], reported, tools, system)
    fitted = own_messages(given, sent, _message)
    return [ModelRequest(prompts), *fitted] if prompts and sent.sources[0] != 0 else fitted


def _plain(message: ModelMessage, prompts: Sequence[object]) -> dict[str, Any]:
    """A message in Anthropic's form, where one may have as many parts as in Pydantic AI.

    One without content stays one: a run may have no prompt but its instructions, and a reply may be empty.
    """
    role = "user" if isinstance(message, ModelRequest) else "assistant"
    blocks = [block for part in message.parts if part not in prompts for block in _blocks(part)]
    return {"role": role, "content": [block for block in blocks if block.get("text", ".").strip()] or "(empty)"}


def _blocks(part: Any) -> Iterator[dict[str, Any]]:
    """What a part says; nothing for notes of Pydantic AI on its tools and instructions."""
    match part.part_kind:
        case "tool-call":
            yield {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
        case "tool-return":
            text = part.model_response_str(wrap_if_error=False)
            content = [_block(item) for item in (text, *part.files) if item] if part.files else text
            about = {"name": part.tool_name, "outcome": part.outcome, "is_error": part.outcome in ERROR_OUTCOMES}
            yield {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": content, **about}
        case "retry-prompt" if part.tool_name:  # Pydantic AI translates it so as well, later
            yield from _blocks(ToolReturnPart(part.tool_name, part.content, part.tool_call_id, outcome="retried"))
        # Reasoning without a signature may stay where signed reasoning may not, so it is none for the session.
        case "thinking":
            kind, shown = ("thinking", {"thinking": part.content}) if part.signature else ("unsigned_thinking", {})
            yield {"type": kind, **shown, **_OBJECTS.dump_python(part, mode="json")}
        case "builtin-tool-call" | "builtin-tool-return" | "compaction" if part.provider_name:
            yield {"type": part.part_kind, **_OBJECTS.dump_python(part, mode="json")}
        case "text" | "system-prompt" | "user-prompt" | "file" | "speech" | "compaction" | "retry-feedback":
            said = part.model_response() if part.part_kind == "retry-feedback" else part.content or ""
            items = said if isinstance(said, (list, tuple)) else [said]
            yield from (_block(item) for item in items if not isinstance(item, messages.CachePoint))


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, (str, messages.TextContent)):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    encoded = {"type": "base64", "data": item.base64} if isinstance(item, messages.BinaryContent) else {}
    source = {"type": "url" if hasattr(item, "url") else "file", **_OBJECTS.dump_python(item, mode="json"), **encoded}
    is_image = str(source.get("media_type") or item.kind).startswith("image")
    return {"type": "image" if is_image else "document", "source": source}


def _message(raw: dict[str, Any]) -> ModelMessage:
    blocks = raw["content"] if isinstance(raw["content"], list) else [_block(raw["content"])]
    if raw["role"] == "assistant":
        return ModelResponse([_response_part(block) for block in blocks])
    return ModelRequest([_request_part(block) for block in blocks])


def _request_part(block: dict[str, Any]) -> messages.ModelRequestPart:
    if block["type"] != "tool_result":
        return messages.UserPromptPart(block["text"] if "text" in block else [_item(block)])
    held = block["content"] if isinstance(block["content"], str) else [_item(inner) for inner in block["content"]]
    return ToolReturnPart(block.get("name", ""), held, block["tool_use_id"], outcome=block.get("outcome", "failed"))


def _response_part(block: dict[str, Any]) -> messages.ModelResponsePart:
    if block["type"] == "tool_use":  # without the provider's own id, which may refer to reasoning that is gone
        return messages.ToolCallPart(block["name"], block["input"], block["id"])
    item = _item(block)
    return messages.TextPart(item) if isinstance(item, str) else messages.FilePart(item) if "source" in block else item


def _item(block: dict[str, Any]) -> Any:
    return block["text"] if block["type"] == "text" else _OBJECTS.validate_json(json.dumps(block.get("source", block)))
