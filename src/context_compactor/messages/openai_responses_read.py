"""Reading an item of the OpenAI Responses format."""

from __future__ import annotations

from types import NoneType
from typing import Any

from context_compactor.errors import BadMessage
from context_compactor.messages.dialect import (
    Raw,
    blocks_at,
    id_at,
    kind_of_value,
    role_at,
    text_and_media,
    text_at,
)
from context_compactor.messages.jsontext import json_text
from context_compactor.messages.media import inline_media, linked_media
from context_compactor.messages.message import (
    Media,
    Message,
    Opaque,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}

CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
}
"""Items that call a tool which the client runs, and the field that says what to do."""

OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}
OUTPUT_TYPES = frozenset(OUTPUTS.values())


def item_type(raw: Raw) -> str:
    """The item's type; an easy input message has none, nor has a bare reference to another item."""
    kind = raw.get("type")
    if kind is None:
        return "item_reference" if "id" in raw and "role" not in raw else "message"
    return str(kind)


def read_item(index: int, raw: Raw) -> Message:
    """The item at this index of the list."""
    kind = item_type(raw)
    if not isinstance(raw.get("type", ""), (str, NoneType)):
        raise BadMessage(index, "type", f"expected a text, got {kind_of_value(raw['type'])}")
    if kind == "message":
        role = role_at(index, raw.get("role"), ROLES)
        return Message(role, _message_parts(index, raw), raw)
    if kind in CALLS:
        return Message("assistant", (_call(index, kind, raw),), raw)
    if kind in OUTPUT_TYPES:
        return Message("tool", (_output(index, kind, raw),), raw)
    if kind == "reasoning":
        return Message("assistant", (_reasoning(index, raw),), raw)
    if kind == "image_generation_call":
        return Message("assistant", (inline_media("image", "image/png", str(raw.get("result") or "")),), raw)
    return Message(_opaque_role(kind, raw), (Opaque(kind, json_text(raw)),), raw)


def _opaque_role(kind: str, raw: Raw) -> Role:
    if kind == "mcp_approval_response":
        return "user"
    role = raw.get("role")
    return ROLES.get(role, "assistant") if isinstance(role, str) else "assistant"


def _message_parts(index: int, raw: Raw) -> tuple[Part, ...]:
    content = raw.get("content")
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks = blocks_at(index, "content", content)
    return tuple([_part(index, f"content[{at}]", block) for at, block in enumerate(blocks)])


def _part(index: int, field: str, block: Raw) -> Part:
    match block.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return Text(text_at(index, f"{field}.text", block.get("text")))
        case "refusal":
            return Text(text_at(index, f"{field}.refusal", block.get("refusal")))
        case "input_image" | "computer_screenshot":
            return _image(block)
        case "input_file":
            return _file(block)
        case "input_audio":
            return _audio(block.get("input_audio"))
    return Opaque(str(block.get("type") or ""), json_text(block))


def _audio(audio: object) -> Media:
    held = audio if isinstance(audio, dict) else {}
    return inline_media("audio", f"audio/{held.get('format') or 'wav'}", str(held.get("data") or ""))


def _image(block: Raw) -> Media:
    url = block.get("image_url")
    return linked_media("image", url if isinstance(url, str) else "", title=str(block.get("file_id") or ""))


def _file(block: Raw) -> Media:
    encoded = str(block.get("file_data") or "")
    title = str(block.get("filename") or block.get("file_id") or block.get("file_url") or "")
    if encoded.startswith("data:"):
        return linked_media("file", encoded, title=title)
    return inline_media("file", "", encoded, title)


def _call(index: int, kind: str, raw: Raw) -> ToolCall:
    call_id = id_at(index, "call_id", raw.get("call_id") or (raw.get("id") if kind == "local_shell_call" else None))
    name = raw.get("name")
    if kind in ("function_call", "custom_tool_call"):
        name = text_at(index, "name", name)
    wanted = raw.get(CALLS[kind])
    arguments = wanted if isinstance(wanted, str) else "" if wanted is None else json_text(wanted)
    return ToolCall(call_id, str(name or kind.removesuffix("_call")), arguments)


def _output(index: int, kind: str, raw: Raw) -> ToolResult:
    own_id = raw.get("id") if kind == "local_shell_call_output" else None
    call_id = id_at(index, "call_id", raw.get("call_id") or own_id)
    output = raw.get("output")
    failed = raw.get("status") == "failed"
    if output is None or isinstance(output, str):
        return ToolResult(call_id, output or "", failed, output)
    if kind == "shell_call_output" and isinstance(output, list):
        return _shell_result(call_id, output)
    if isinstance(output, dict) and output.get("type") != "computer_screenshot":
        return ToolResult(call_id, json_text(output), failed, output)
    blocks = [output] if isinstance(output, dict) else blocks_at(index, "output", output)
    text, media = text_and_media([_part(index, f"output[{at}]", block) for at, block in enumerate(blocks)])
    return ToolResult(call_id, text, failed, output, media)


def _shell_result(call_id: str, output: list[Any]) -> ToolResult:
    runs = [run for run in output if isinstance(run, dict)]
    streams = [run.get(name) for run in runs for name in ("stdout", "stderr")]
    failed = any(is_failure(outcome) for outcome in shell_outcomes(output))
    text = "\n".join(stream for stream in streams if isinstance(stream, str) and stream)
    return ToolResult(call_id, text, failed, output)


def shell_outcomes(output: list[Any]) -> list[Raw]:
    """How the runs of a shell call ended."""
    outcomes = [run.get("outcome") for run in output if isinstance(run, dict)]
    return [outcome for outcome in outcomes if isinstance(outcome, dict)]


def is_failure(outcome: Raw) -> bool:
    """Whether a run ended with an error or not in time."""
    return outcome.get("type") == "timeout" or bool(outcome.get("exit_code"))


def _reasoning(index: int, raw: Raw) -> Thinking:
    for field in ("content", "summary"):
        held = raw.get(field)
        if held:
            blocks = blocks_at(index, field, held)
            texts = [text_at(index, f"{field}[{at}].text", block.get("text")) for at, block in enumerate(blocks)]
            return Thinking("\n".join(texts), bool(raw.get("encrypted_content")))
    return Thinking("", bool(raw.get("encrypted_content")))
