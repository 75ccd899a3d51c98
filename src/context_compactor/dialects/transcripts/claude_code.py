"""Session logs of Claude Code: the active branch, what each compaction left, and the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from context_compactor.dialects.client_text import end_of_client_blocks
from context_compactor.dialects.messages import read_usage
from context_compactor.dialects.record import record_span
from context_compactor.dialects.transcripts.transcript import (
    CompactionBoundary,
    RawMessage,
    Transcript,
    TranscriptBuilder,
    as_blocks,
    count_note,
    is_blank_block,
    utc_time,
)
from context_compactor.json_values import json_text

LogRow = dict[str, Any]

_ROLES = ("user", "assistant")
# Where a prompt may come from, and fields that only prompts have.
_PROMPT_SOURCES = ("typed", "queued", "sdk", "user")
_PROMPT_FIELDS = ("permissionMode", "thinkingMetadata", "isReplay")


class Branch(Struct, frozen=True):
    """The indexes of the lines that count, and how much was left behind."""

    active: set[int]
    abandoned_lines: int = 0
    abandoned_branches: int = 0


def active_branch(lines: list[LogRow]) -> Branch:
    """The branch that the last line of the conversation belongs to."""
    tree = _LineTree(lines)
    active = tree.way_back()
    active |= _rest_of_replies(lines, active)
    active |= _late_results(lines, active)
    active |= tree.without_place(active)
    left = tree.left_behind(active)
    talk = [start for index, start in left.items() if lines[index].get("type") in _ROLES]
    return Branch(active, len(talk), len(set(talk)))


def _is_queued_prompt(line: LogRow) -> bool:
    """Whether a row is what the user typed while the agent worked."""
    attachment = line.get("attachment") if line.get("type") == "attachment" else None
    return isinstance(attachment, dict) and isinstance(attachment.get("prompt"), str | list)


class _LineTree:
    def __init__(self, lines: list[LogRow]) -> None:
        self.lines = lines
        self.places: dict[str, int] = {}
        self.before: list[int | None] = []
        self._kept_results: dict[int, int] = {}
        answered: dict[str, int] = {}
        boundary = -1
        last: int | None = None
        for index, line in enumerate(lines):
            self.before.append(last)
            if isinstance(line.get("uuid"), str):
                self.places.setdefault(line["uuid"], index)
            if line.get("subtype") == "compact_boundary":
                boundary = index
            for call in block_ids(line, "tool_result", "tool_use_id"):
                if answered.setdefault(call, index) < boundary:
                    self._kept_results[index] = boundary
            if line.get("type") in _ROLES or line.get("subtype") == "compact_boundary" or _is_queued_prompt(line):
                last = index
        self.last = last

    def way_back(self) -> set[int]:
        way: set[int] = set()
        index = self.last
        while index is not None and index not in way:
            way.add(index)
            index = self.parent(index)
        return way

    def parent(self, index: int) -> int | None:
        """A parent that was never logged is taken to be the line before: better too much than lost."""
        line = self.lines[index]
        if "parentUuid" not in line:
            return self.before[index]
        parent = line["parentUuid"] or line.get("logicalParentUuid")
        if parent is None and not _starts_over(line) and not self._belongs_to_compaction(index):
            return None
        place = self.places.get(parent, self.before[index]) if isinstance(parent, str) else self.before[index]
        # A result that a compaction kept is logged again, and names the call from before the compaction.
        is_kept = place is not None and place < self._kept_results.get(index, 0)
        return self.before[index] if is_kept else place

    def _belongs_to_compaction(self, index: int) -> bool:
        """Whether a row without a parent is what a compaction left, and not a new beginning that the user made."""
        before = self.before[index]
        is_behind = before is not None and self.lines[before].get("subtype") == "compact_boundary"
        return is_behind and self.lines[index].get("type") == "user" and not is_typed(self.lines[index])

    def left_behind(self, active: set[int]) -> dict[int, int]:
        """The lines that do not count, each with the line its branch starts at."""
        starts: dict[int, int] = {}
        for index in range(len(self.lines)):
            if index not in active:
                parent = self.parent(index)
                starts[index] = index if parent is None else starts.get(parent, index)
        return starts

    def without_place(self, active: set[int]) -> set[int]:
        """Lines that are not in the tree go with the line before them."""
        return {index for index, line in enumerate(self.lines) if "uuid" not in line and self.before[index] in active}


def _starts_over(line: LogRow) -> bool:
    """A compaction cuts the chain of parents, though the conversation goes on."""
    return line.get("subtype") == "compact_boundary" or bool(line.get("isCompactSummary"))


def _rest_of_replies(lines: list[LogRow], active: set[int]) -> set[int]:
    replies = {reply for index in active if (reply := reply_id(lines[index]))}
    return {index for index, line in enumerate(lines) if reply_id(line) in replies}


def _late_results(lines: list[LogRow], active: set[int]) -> set[int]:
    calls = {call for index in active for call in block_ids(lines[index], "tool_use", "id")}
    return {
        index
        for index, line in enumerate(lines)
        if line.get("type") == "user" and any(call in calls for call in block_ids(line, "tool_result", "tool_use_id"))
    }


def reply_id(line: LogRow) -> str | None:
    """The provider's id of the reply that a line holds a block of."""
    message = line.get("message")
    if line.get("type") != "assistant" or not isinstance(message, dict):
        return None
    found = message.get("id")
    return found if isinstance(found, str) and found else None


def block_ids(line: LogRow, kind: str, field: str) -> Iterator[str]:
    """The ids of the blocks of one kind in a line."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(field), str):
            yield block[field]


def is_typed(line: LogRow) -> bool:
    """Whether a log says of a row that it is a prompt: typed by the user, or given by a program in the user's name."""
    if line.get("isMeta") or line.get("isCompactSummary") or line.get("isSynthetic"):
        return False
    origin, source = line.get("origin"), line.get("promptSource")
    if isinstance(origin, dict) and "kind" in origin:
        return bool(origin["kind"] == "human")
    if isinstance(source, str):
        return source in _PROMPT_SOURCES
    return any(field in line for field in _PROMPT_FIELDS)


_COMMAND_TAGS = ("<command-", "<local-command-", "<bash-")
_INTERRUPTED = "[Request interrupted"
_COMPACT_COMMAND = "<command-name>/compact</command-name>"


class CompactionFollower:
    """Follows the rows of one branch. What belongs to a compaction ends where somebody says something new."""

    def __init__(self) -> None:
        self.is_open = False
        self.has_summary = False
        self._has_record = False
        self._marks_prompts = False
        self._boundary: LogRow = {}
        self._fresh: list[LogRow] = []
        self._prompts: dict[str, set[str]] = {}
        self._blocks: set[str] = set()
        self._calls: set[str] = set()
        self._replies: set[str] = set()
        self._usages: set[str] = set()

    def begin(self, boundary: LogRow) -> None:
        """A compaction: what was said before it can now be repeated."""
        for line in self._fresh:
            self._remember(line)
        self._fresh = []
        self._boundary = boundary
        self.is_open, self.has_summary, self._has_record = True, False, False

    def add(self, line: LogRow) -> None:
        """A row that somebody said."""
        self._fresh.append(line)
        self._marks_prompts = self._marks_prompts or is_typed(line)
        self.is_open = self.is_open and not self._ends_with(line)

    def _ends_with(self, line: LogRow) -> bool:
        text = _text_of(line)
        if line.get("type") != "assistant" and not is_typed(line):
            is_other_command = text.lstrip().startswith("<command-") and _COMPACT_COMMAND not in text
            return is_other_command or bool(text and not is_markup(text))
        return True

    def is_digest(self, line: LogRow) -> bool:
        """Whether a row in the user's name was written by whoever compacted.

        Where prompts are not marked as such, only the client's own summary tells that what follows it was typed. A
        record of ours is all that we write.
        """
        text = _text_of(line)
        is_told = bool(text.strip()) and not is_markup(text) and not is_typed(line)
        is_written = self._marks_prompts or not self.has_summary
        return self.is_open and is_told and is_written and not self._has_record

    def add_digest(self, line: LogRow) -> None:
        """A row that whoever compacted has written."""
        self._has_record = self._has_record or record_span(_text_of(line)) is not None

    def is_repeated(self, line: LogRow) -> bool:
        """Whether a row was there before the compaction, under another id."""
        if line.get("type") == "assistant":
            return self.is_open and self._is_repeated_reply(line)
        known = self._prompts.get(_content_key(line)) if self._prompts and _text_of(line).strip() else None
        prompt = line.get("promptId")
        # What a plugin puts back stands under an id of its own, but is not marked as typed.
        if known and isinstance(prompt, str) and (is_typed(line) or not self._marks_prompts or prompt in known):
            return prompt in known
        return self.is_open and known is not None and not self._is_later(line)

    def _is_repeated_reply(self, line: LogRow) -> bool:
        blocks = _blocks_of(line)
        calls = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
        if calls and calls <= self._calls:
            return True
        if not blocks or not all(json_text(block) in self._blocks for block in blocks):
            return False
        usage = line["message"].get("usage")
        is_known = reply_id(line) in self._replies or not usage or json_text(usage) in self._usages
        return is_known and not (reply_id(line) not in self._replies and self._is_later(line))

    def _is_later(self, line: LogRow) -> bool:
        """Whether a row that says the same was said anew: the client logs nothing again behind its own summary."""
        at, boundary = line.get("timestamp"), self._boundary.get("timestamp")
        return self.has_summary and isinstance(at, str) and isinstance(boundary, str) and at > boundary

    def _remember(self, line: LogRow) -> None:
        if line.get("type") != "assistant":
            prompts = self._prompts.setdefault(_content_key(line), set())
            prompts.update(prompt for prompt in (line.get("promptId"),) if isinstance(prompt, str))
            return
        for block in _blocks_of(line):
            self._blocks.add(json_text(block))
            if block.get("type") == "tool_use":
                self._calls.add(str(block.get("id")))
        if line["message"].get("usage"):
            self._usages.add(json_text(line["message"]["usage"]))
        self._replies.add(reply_id(line) or "")


def is_markup(text: str) -> bool:
    """Whether a text is what a client writes about its own commands and events; it is known as such wherever it is."""
    is_command = text.lstrip().startswith((*_COMMAND_TAGS, _INTERRUPTED))
    return is_command or end_of_client_blocks(text) == len(text)


def _content_of(line: LogRow) -> object:
    holder = line.get("attachment") if line.get("type") == "attachment" else line.get("message")
    field = "prompt" if line.get("type") == "attachment" else "content"
    return holder.get(field) if isinstance(holder, dict) else None


def _blocks_of(line: LogRow) -> list[dict[str, Any]]:
    blocks = as_blocks(_content_of(line))
    return [block for block in blocks if isinstance(block, dict) and not is_blank_block(block)]


def _text_of(line: LogRow) -> str:
    """The words of a row; none when it answers calls."""
    blocks = _blocks_of(line)
    if any(block.get("type") == "tool_result" for block in blocks):
        return ""
    return "\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def _content_key(line: LogRow) -> str:
    return json_text(_blocks_of(line))


_OWN_LINES = ("file-history-snapshot", "queue-operation", "progress")
_CAVEATS = ("<local-command-caveat>", "Caveat: The messages below were generated by the user while running local")


def is_line(value: object) -> bool:
    """Whether a JSON value is a line of such a log."""
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if kind in _ROLES:
        return isinstance(value.get("message"), dict)
    in_tree = isinstance(kind, str) and "uuid" in value and "parentUuid" in value
    return in_tree or kind in _OWN_LINES or (kind == "summary" and "leafUuid" in value)


def read(lines: list[LogRow]) -> Transcript:
    """The conversation on the active branch; sub-agents are kept apart."""
    main, chains = _split(_without_repeats(lines))
    if chains and not any(line.get("type") in _ROLES for line in main):
        # The log of a sub-agent is nothing but side chain.
        main = chains.pop(max(chains, key=lambda key: len(chains[key])))
    branch = active_branch(main)
    talk = _ClaudeCodeReader(main)
    talk.add_all(main[index] for index in sorted(branch.active))
    joined = talk.steps.join()
    side_chains = _side_chains(chains)
    left = f"({branch.abandoned_lines:,} log lines) left out"
    return Transcript(
        messages=joined.messages,
        dialect="anthropic",
        source="claude-code",
        session_id=_last(lines, "sessionId") or _last(lines, "session_id"),
        model=talk.model,
        cwd=_last(lines, "cwd"),
        usages=joined.usages,
        times=joined.times,
        compactions=joined.compactions,
        errors=talk.errors,
        side_chains=side_chains,
        notes=count_note(len(side_chains), "side chain of a sub-agent", "side chains of sub-agents", "kept apart")
        + count_note(branch.abandoned_branches, "branch abandoned by a rewind", "branches abandoned by rewinds", left)
        + talk.notes(),
    )


def _without_repeats(lines: list[LogRow]) -> list[LogRow]:
    """A resumed session can write its lines a second time."""
    seen: set[str] = set()
    kept = []
    for line in lines:
        uuid = line.get("uuid")
        if not isinstance(uuid, str) or uuid not in seen:
            kept.append(line)
            seen.add(str(uuid))
    return kept


def _split(lines: list[LogRow]) -> tuple[list[LogRow], dict[str, list[LogRow]]]:
    """The lines of the main conversation, and those of each sub-agent."""
    main: list[LogRow] = []
    chains: dict[str, list[LogRow]] = {}
    chain_of: dict[str, str] = {}
    for line in lines:
        key, side = _side_line(line, chain_of)
        if key:
            chains.setdefault(key, []).append(side)
            chain_of[str(side.get("uuid"))] = key
        else:
            main.append(line)
    return main, chains


def _side_line(line: LogRow, chain_of: dict[str, str]) -> tuple[str, LogRow]:
    if line.get("isSidechain"):
        key = line.get("agentId") or chain_of.get(str(line.get("parentUuid"))) or line.get("uuid") or "side chain"
        return str(key), line
    if line.get("parent_tool_use_id"):
        return str(line["parent_tool_use_id"]), line
    progress = line.get("data") if line.get("type") == "progress" else None
    if isinstance(progress, dict) and progress.get("type") == "agent_progress":
        inner = progress.get("message")
        if isinstance(inner, dict) and progress.get("agentId"):
            return str(progress["agentId"]), inner
    return "", line


def _side_chains(chains: dict[str, list[LogRow]]) -> dict[str, list[RawMessage]]:
    made = {}
    for key, lines in chains.items():
        talk = _ClaudeCodeReader(lines)
        talk.add_all(lines)
        messages = talk.steps.join().messages
        if messages:
            made[key] = messages
    return made


class _ClaudeCodeReader:
    """Reads the lines of one branch, in order, into steps."""

    def __init__(self, lines: list[LogRow]) -> None:
        self.steps = TranscriptBuilder()
        self.model = ""
        self.errors: list[str] = []
        self._queued = _queued_only(lines)
        self._boundary: CompactionBoundary | None = None
        self._behind = CompactionFollower()
        self._written_by_client = 0
        self._attachments = 0
        self._kept_again = 0

    def add_all(self, lines: Iterable[LogRow]) -> None:
        for line in lines:
            self.steps.at = utc_time(line.get("timestamp"))
            match line.get("type"):
                case "assistant":
                    self._reply(line)
                case "user":
                    self._user(line)
                case "system" if line.get("subtype") == "compact_boundary":
                    self._compacted(line)
                case "attachment":
                    self._attachment(line)
                case "queue-operation" if _queued(line) in self._queued:
                    self.steps.add_user(line["content"])

    def _reply(self, line: LogRow) -> None:
        message = line.get("message")
        if not isinstance(message, dict):
            return
        if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            self._written_by_client += 1
            blocks = as_blocks(message.get("content")) if line.get("isApiErrorMessage") else []
            self.errors += [block["text"] for block in blocks if isinstance(block.get("text"), str)]
            return
        if not self._is_new(line):
            return
        self.model = str(message.get("model") or self.model)
        self._behind.add(line)
        key = reply_id(line) or f"line {line.get('uuid') or id(line)}"
        self.steps.add_reply(key, as_blocks(message.get("content")), read_usage(message.get("usage")))

    def _user(self, line: LogRow) -> None:
        message = line.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if line.get("isCompactSummary"):
            if self._boundary is None or self._behind.has_summary:
                self._begin(line, CompactionBoundary())
            self._summarize(content)
            self._behind.has_summary = True
        elif not isinstance(content, str | list) or _is_display_only(line, content):
            return
        elif self._is_new(line):
            if self._behind.is_digest(line):
                self._behind.add_digest(line)
                self._summarize(content)
            else:
                self._behind.add(line)
                self.steps.add_user(content)

    def _is_new(self, line: LogRow) -> bool:
        """Whether a row is not one that a compaction kept and the client has logged again."""
        is_repeated = self._behind.is_repeated(line)
        self._kept_again += is_repeated
        return not is_repeated

    def _begin(self, line: LogRow, boundary: CompactionBoundary) -> None:
        self._behind.begin(line)
        self._boundary = self.steps.add_boundary(boundary)

    def _summarize(self, content: object) -> None:
        if self._boundary is not None:
            self._boundary.summary = "\n\n".join(filter(None, (self._boundary.summary, _text(content))))

    def _compacted(self, line: LogRow) -> None:
        facts = line.get("compactMetadata") or line.get("compact_metadata")
        facts = facts if isinstance(facts, dict) else {}
        tokens = facts.get("preTokens", facts.get("pre_tokens"))
        self._begin(
            line, CompactionBoundary(str(facts.get("trigger") or ""), tokens if isinstance(tokens, int) else None)
        )

    def _attachment(self, line: LogRow) -> None:
        """What the user typed while the agent worked is an attachment; the others are reminders by the client."""
        attachment = line.get("attachment")
        prompt = attachment.get("prompt") if isinstance(attachment, dict) else None
        if isinstance(prompt, str | list):
            if self._is_new(line):
                self._behind.add(line)
                self.steps.add_user(prompt)
        else:
            self._attachments += 1

    def notes(self) -> list[str]:
        """What was left out of the branch."""
        return (
            count_note(self._written_by_client, "reply", "replies", "written by the client, not the model, left out")
            + count_note(self._attachments, "attachment", "attachments", "of the client left out")
            + count_note(self.steps.repeated, "repeated tool result", "repeated tool results", "left out")
            + count_note(self._kept_again, "row", "rows", "that a compaction kept and logged again left out")
        )


def _queued_only(lines: list[LogRow]) -> set[str]:
    """Words typed while the agent worked that an older client logged nowhere but in its queue."""
    queued = {_queued(line) for line in lines if line.get("type") == "queue-operation"} - {""}
    if not queued or any(line.get("type") == "attachment" for line in lines):
        return set()
    return queued - _user_texts(lines)


def _queued(line: LogRow) -> str:
    content = line.get("content")
    return content.strip() if isinstance(content, str) else ""


def _user_texts(lines: list[LogRow]) -> set[str]:
    messages = [line.get("message") for line in lines if line.get("type") == "user"]
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    blocks = [block for content in contents for block in as_blocks(content) if isinstance(block, dict)]
    return {block["text"].strip() for block in blocks if isinstance(block.get("text"), str)}


def _is_display_only(line: LogRow, content: object) -> bool:
    """What the client shows or tells about its own commands. Its other meta lines are prompts the model did get."""
    if line.get("isVisibleInTranscriptOnly"):
        return True
    return bool(line.get("isMeta")) and _text(content).startswith(_CAVEATS)


def _text(content: object) -> str:
    blocks = [block for block in as_blocks(content) if isinstance(block, dict)]
    return "\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def _last(lines: list[LogRow], field: str) -> str:
    found = (line[field] for line in reversed(lines) if isinstance(line.get(field), str) and line[field])
    return next(found, "")
