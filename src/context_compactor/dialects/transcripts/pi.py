"""Session logs of pi, as messages in Anthropic's form."""

from __future__ import annotations

from typing import Any

from context_compactor.dialects.messages import read_usage
from context_compactor.dialects.transcripts.transcript import (
    Block,
    CompactionBoundary,
    Transcript,
    TranscriptBuilder,
    as_blocks,
    count_note,
    utc_time,
)

LogRow = dict[str, Any]

_SIGNING_APIS = ("anthropic", "bedrock")


def is_line(value: object) -> bool:
    """Whether a JSON value is a line of such a log."""
    if not isinstance(value, dict):
        return False
    if value.get("type") == "session":
        return isinstance(value.get("id"), str)
    message = value.get("message")
    return value.get("type") == "message" and isinstance(message, dict) and "role" in message


def read(lines: list[LogRow]) -> Transcript:
    """The conversation on the branch of the last entry."""
    header = next((line for line in lines if line.get("type") == "session"), {})
    entries = [line for line in lines if line.get("type") != "session"]
    branch = _branch(entries)
    talk = _PiReader(header)
    for index in branch:
        talk.add(entries[index])
    joined = talk.steps.join()
    left = sum(1 for line in entries if line.get("type") == "message") - talk.read
    return Transcript(
        messages=joined.messages,
        dialect="anthropic",
        source="pi",
        session_id=str(header.get("id") or ""),
        model=talk.model,
        system="\n\n".join(talk.system) or None,
        tools=list(talk.tools.values()) or None,
        cwd=str(header.get("cwd") or ""),
        usages=joined.usages,
        times=joined.times,
        compactions=joined.compactions,
        notes=count_note(left, "message", "messages", "of abandoned branches left out")
        + count_note(talk.hidden, "command", "commands", "the user kept from the model left out")
        + count_note(talk.unknown, "message", "messages", "of an unknown role left out"),
    )


def _branch(entries: list[LogRow]) -> list[int]:
    """The entries from the root to the last one. The first version of the format had no tree."""
    places = {line["id"]: index for index, line in enumerate(entries) if isinstance(line.get("id"), str)}
    branch: list[int] = []
    seen: set[int] = set()
    index = len(entries) - 1
    while index >= 0 and index not in seen:
        seen.add(index)
        branch.append(index)
        line = entries[index]
        if "parentId" in line and line["parentId"] is None:
            break
        index = places.get(str(line.get("parentId")), index - 1)
    return branch[::-1]


class _PiReader:
    def __init__(self, header: LogRow) -> None:
        self.steps = TranscriptBuilder()
        self.model = str(header.get("modelId") or "")
        self.system: list[str] = []
        self.tools: dict[str, Any] = {}
        self.read = 0
        self.hidden = 0
        self.unknown = 0

    def add(self, line: LogRow) -> None:
        self.steps.at = utc_time(line.get("timestamp"))
        match line.get("type"):
            case "message":
                self.read += 1
                message = line.get("message")
                self._message(message if isinstance(message, dict) else {})
            case "custom_message":
                self.steps.add_user(_content(line.get("content")))
            case "branch_summary":
                self._summary_of_branch(line)
            case "compaction":
                self._compaction(line)
            case "model_change":
                self.model = str(line.get("modelId") or self.model)

    def _message(self, message: LogRow) -> None:
        match message.get("role"):
            case "user" | "custom" | "hookMessage":
                self.steps.add_user(_content(message.get("content")))
            case "assistant":
                self._reply(message)
            case "system":
                self._system(message)
            case "toolResult":
                self.steps.add_user([_result(message)])
            case "bashExecution" if message.get("excludeFromContext"):
                self.hidden += 1
            case "bashExecution":
                self.steps.add_user(_execution(message))
            case "branchSummary":
                self._summary_of_branch(message)
            case "compactionSummary":
                self._compaction(message)
            case _:
                self.unknown += 1

    def _reply(self, message: LogRow) -> None:
        self.model = str(message.get("model") or self.model)
        is_signed = str(message.get("api") or "").startswith(_SIGNING_APIS)
        blocks = [_reply_block(block, is_signed) for block in as_blocks(message.get("content"))]
        self.steps.add_reply(f"reply {self.read}", blocks, read_usage(message.get("usage")))

    def _system(self, message: LogRow) -> None:
        """Prompts add up, and so do the tools that come and go with them."""
        texts = [block.get("text") for block in as_blocks(message.get("content")) if isinstance(block, dict)]
        self.system.extend(text for text in texts if isinstance(text, str) and text not in self.system)
        for tool in as_blocks(message.get("toolsRemoved")):
            self.tools.pop(_tool_name(tool), None)
        self.tools.update({_tool_name(tool): tool for tool in as_blocks(message.get("toolsAdded"))})

    def _summary_of_branch(self, line: LogRow) -> None:
        summary = line.get("summary")
        if isinstance(summary, str) and summary.strip():
            self.steps.add_user(f"Summary of another branch that this conversation came back from:\n\n{summary}")

    def _compaction(self, line: LogRow) -> None:
        checkpoint = line.get("systemMessage")
        if isinstance(checkpoint, dict):
            self.system, self.tools = [], {}
            self._system(checkpoint)
        tokens = line.get("tokensBefore")
        boundary = CompactionBoundary(pre_tokens=tokens if isinstance(tokens, int) else None)
        boundary.summary = str(line.get("summary") or "")
        self.steps.add_boundary(boundary)


def _tool_name(tool: object) -> str:
    return str(tool.get("name")) if isinstance(tool, dict) else str(tool)


def _content(content: object) -> str | list[Any]:
    return content if isinstance(content, str) else [_block(block) for block in as_blocks(content)]


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    if block.get("type") == "image" and "data" in block:
        source = {"type": "base64", "media_type": block.get("mimeType") or "", "data": block["data"]}
        return {"type": "image", "source": source}
    return {"type": "text", "text": block.get("text")} if block.get("type") == "text" else block


def _reply_block(block: Any, is_signed: bool) -> Any:
    if not isinstance(block, dict):
        return block
    match block.get("type"):
        case "toolCall":
            call = {"id": block.get("id"), "name": block.get("name"), "input": block.get("arguments")}
            return {"type": "tool_use", **call}
        case "thinking":
            return _thinking(block, block.get("thinkingSignature") if is_signed else None)
    return _block(block)


def _thinking(block: Block, signature: object) -> Block:
    """Only Anthropic's own signature means something in Anthropic's form."""
    if signature and block.get("redacted"):
        return {"type": "redacted_thinking", "data": signature}
    thinking: Block = {"type": "thinking", "thinking": str(block.get("thinking") or "")}
    return {**thinking, "signature": signature} if signature else thinking


def _result(message: LogRow) -> Block:
    content = _content(message.get("content"))
    result = {"type": "tool_result", "tool_use_id": message.get("toolCallId"), "content": content}
    return {**result, "is_error": True} if message.get("isError") else result


def _execution(message: LogRow) -> str:
    """A command the user ran, as the model is told of it."""
    output = str(message.get("output") or "").rstrip("\n")
    shown = f"```\n{output}\n```" if output else "It printed nothing."
    parts = [f"The user ran `{message.get('command') or ''}`.", shown]
    if message.get("cancelled"):
        parts.append("It was cancelled.")
    elif message.get("exitCode"):
        parts.append(f"Exit code {message['exitCode']}.")
    if message.get("truncated") and message.get("fullOutputPath"):
        parts.append(f"The output was cut; all of it is in {message['fullOutputPath']}.")
    return "\n\n".join(parts)
