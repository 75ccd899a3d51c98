"""The OpenAI Responses format: a flat list of items; calls, outputs and reasoning are items of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from msgspec import structs

from context_compactor.dialects.dialect import (
    DEFAULT_REQUEST_BYTES,
    Dialect,
    Overhead,
    Raw,
    ToolDeclaration,
    blocks_at,
    blocks_in,
    dicts_of,
    id_at,
    kind_of_value,
    refuse_thinking,
    role_at,
    text_and_media,
    text_at,
)
from context_compactor.dialects.legality import Pairing, PartPosition, Rule, Violation, pair_results
from context_compactor.dialects.media import inline_media, linked_media
from context_compactor.dialects.messages import (
    LOST_RESULT,
    NO_RESULT,
    PROVIDER_SUMMARY,
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
from context_compactor.dialects.repair import (
    IndexedMessage,
    Repair,
    RepairRule,
    ResultPlacement,
    rename_repeated,
    without_indexes,
)
from context_compactor.errors import BadMessage
from context_compactor.json_values import json_text

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

# Blocks and items that no other dialect has, beside those that end in _call and _output.
OWN_BLOCKS = ("input_text", "output_text", "input_image", "input_file")
SUMMARIES = ("compaction", "compaction_summary", "context_compaction")
"""Sealed items in which the provider has summarized everything before them."""
OWN_ITEMS = ("reasoning", "item_reference", "mcp_list_tools", *SUMMARIES)


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
    own = PROVIDER_SUMMARY if kind in SUMMARIES else kind
    return Message(_opaque_role(kind, raw), (Opaque(own, json_text(raw)),), raw)


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


def _dangling_reasoning(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """Reasoning that no item of the same reply follows. At the very end the reply is under way."""
    follower = "assistant"
    for at in range(len(messages) - 1, -1, -1):
        if not _is_reasoning(messages[at]):
            follower = PROVIDER_SUMMARY if messages[at].is_provider_summary else messages[at].role
        elif follower != "assistant":
            yield Violation(at, "reasoning", "reasoning without the item it belongs to")


def _is_reasoning(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)


def _repeated_items(messages: Sequence[Message], _pairing: object, _dialect: Dialect) -> Iterator[Violation]:
    """Items with the id of another one. Of reasoning that came twice the one counts that its reply follows."""
    places: dict[str, list[int]] = {}
    for at, message in enumerate(messages):
        if isinstance(message.raw.get("id"), str) and item_type(message.raw) != "item_reference":
            places.setdefault(message.raw["id"], []).append(at)
    for item_id, found in places.items():
        own = next((at for at in found if _is_reasoning(messages[at]) and _has_reply(messages, at)), found[0])
        for at in found:
            if at != own:
                yield Violation(at, "repeated-item", f"the id {item_id} names two items")


def _has_reply(messages: Sequence[Message], at: int) -> bool:
    return at + 1 < len(messages) and messages[at + 1].role == "assistant" and not _is_reasoning(messages[at + 1])


def _tell_items_apart(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Take an id that another item has off an item; reasoning, which needs its id, leaves."""
    repeated = {problem.index for problem in _repeated_items(without_indexes(steps), None, dialect)}
    kept: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        if at not in repeated:
            kept.append((index, message))
        elif _is_reasoning(message):
            log.append(Repair(index, "removed reasoning that came twice"))
        else:
            kept.append((index, _without_id(message)))
            log.append(Repair(index, "removed the id of an item, which another one has"))
    return kept


def _outputs_of_other_kinds(messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """Outputs with the id of a call of another kind, such as a shell's for a function."""
    for call, result in pairing.answers.items():
        if OUTPUTS[item_type(messages[call.message].raw)] != item_type(messages[result.message].raw):
            yield Violation(result.message, "orphan-result", "an output of another kind than its call")


def _fit_outputs(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Make an output one of its call's kind, where that can hold a text."""
    messages = without_indexes(steps)
    pairing = pair_results(messages)
    wrong = {problem.index for problem in _outputs_of_other_kinds(messages, pairing, dialect)}
    fitted = list(steps)
    for call, result in pairing.answers.items():
        index, _ = steps[result.message]
        said = pairing.results[result].text
        answer = dialect.answer(messages[call.message], pairing.calls[call], said) if result.message in wrong else None
        if answer is not None:
            fitted[result.message] = (index, answer)
            log.append(Repair(index, "made an output one of its call's kind"))
    return fitted


def _late_summaries(messages: Sequence[Message], pairing: Pairing, _dialect: Dialect) -> Iterator[Violation]:
    """A compaction item behind a call whose output comes later: the provider reads only the output."""
    newest = max((at for at, message in enumerate(messages) if message.is_provider_summary), default=0)
    if any(_is_open_at(newest, call, pairing) for call in pairing.calls):
        yield Violation(newest, "compaction", "a compaction item between a call and its output")


def _is_open_at(at: int, call: PartPosition, pairing: Pairing) -> bool:
    return call.message < at and (call not in pairing.answers or pairing.answers[call].message > at)


def _summary_before_calls(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Put the compaction item before the reply whose calls it would hide."""
    messages = without_indexes(steps)
    pairing = pair_results(messages)
    newest = next((problem.index for problem in _late_summaries(messages, pairing, dialect)), None)
    if newest is None:
        return steps
    start = min(call.message for call in pairing.calls if _is_open_at(newest, call, pairing))
    while start and messages[start - 1].role == "assistant":
        start -= 1
    log.append(Repair(steps[newest][0], "put the compaction item before the calls whose outputs follow it"))
    return [*steps[:start], steps[newest], *steps[start:newest], *steps[newest + 1 :]]


def _without_id(message: Message) -> Message:
    return read_item(0, {key: value for key, value in message.raw.items() if key != "id"})


LOST_ITEM = "removed reasoning without the item it belongs to"


def _drop_reasoning(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Remove reasoning whose reply is gone."""
    dangling = {problem.index for problem in _dangling_reasoning(without_indexes(steps), None, dialect)}
    log += [Repair(steps[at][0], LOST_ITEM) for at in sorted(dangling)]
    return [step for at, step in enumerate(steps) if at not in dangling]


def _place_results(steps: list[IndexedMessage], dialect: Dialect, log: list[Repair]) -> list[IndexedMessage]:
    """Outputs stay where they are, a stand-in waits for the end of the reply it would split.

    Reasoning goes with the item it belongs to, where that becomes words.
    """
    placement = ResultPlacement(steps, dialect, log)
    settled: list[IndexedMessage] = []
    held: list[IndexedMessage] = []
    thoughts: list[IndexedMessage] = []
    for at, (index, message) in enumerate(steps):
        words = placement.words.get(PartPosition(at, 0)) if message.role == "tool" else _unanswerable(placement, at)
        if words or message.role != "assistant":
            settled += held
            held = []
            log += [Repair(lost, LOST_ITEM) for lost, _ in thoughts]
            thoughts = []
        if words:
            settled.append((index, words))
        elif _is_reasoning(message):
            thoughts.append((index, message))
        elif PartPosition(at, 0) not in placement.words:
            settled += [*thoughts, (index, message)]
            thoughts = []
            held += [(index, answer) for answer in placement.placeholder_results(at)]
    return settled + held + thoughts


def _unanswerable(placement: ResultPlacement, at: int) -> Message | None:
    """The words for a call that misses a result which only the tool itself could give."""
    for call in placement.missing(at):
        if placement.dialect.answer(placement.steps[at][1], call, NO_RESULT) is None:
            placement.note(at, "turned a call whose result cannot be stood in for into a user message")
            return placement.dialect.user_text(f"{LOST_RESULT}\n{call.arguments}")
    return None


class OpenAIResponses:
    """Items as the `input` of `POST /v1/responses` takes them."""

    name = "openai-responses"
    strict_alternation = False
    reply_is_one_message = False
    has_unique_call_ids = True
    recommended_layout = "tail"
    summaries_are_readable = False
    compaction_note = (
        "Send this context without previous_response_id: the chain that it names still holds what has left the context."
    )
    can_clear_thinking = False
    overhead = Overhead(request=3, message=3, name=1, call=8, result=4, tool=8, tools=12, images="openai")
    request_bytes = DEFAULT_REQUEST_BYTES
    media_blocks: tuple[str, ...] = ("input_image", "input_file", "input_audio")
    native_models: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = (_dangling_reasoning, _repeated_items, _outputs_of_other_kinds, _late_summaries)
    repairs: tuple[RepairRule, ...] = (
        _tell_items_apart,
        rename_repeated,
        _fit_outputs,
        _place_results,
        _drop_reasoning,
        _summary_before_calls,
    )

    def for_model(self, model: str | None) -> Dialect:
        return self

    def recognizes(self, item: Raw) -> bool:
        """By its blocks and by the types of its items; others have messages with a type too."""
        blocks, kind = blocks_in(item), item.get("type")
        if any(block.get("type") in OWN_BLOCKS for block in blocks):
            return True
        if not isinstance(kind, str) or ("role" in item and (blocks or "stop_reason" in item)):
            return False
        return kind in OWN_ITEMS or kind.endswith(("_call", "_output"))

    def recognizes_plain(self, items: Sequence[Raw]) -> bool:
        """By messages that have a type, unless one has blocks: then it is a reply of Anthropic's."""
        typed = [item for item in items if item.get("type") == "message"]
        return bool(typed) and not any(blocks_in(item) for item in typed)

    def recognizes_request(self, body: Mapping[str, Any]) -> bool:
        """By an `input` in the place of messages."""
        return "messages" not in body and "input" in body

    def is_blank(self, message: Message, is_last: bool) -> bool:
        """The provider takes items without content."""
        return False

    def has_blank_block(self, message: Message) -> bool:
        """The provider takes empty blocks."""
        return False

    def parse(self, items: Sequence[object]) -> list[Message]:
        return [read_item(index, raw) for index, raw in enumerate(dicts_of(items))]

    def edit(self, message: Message, edits: Mapping[int, str | None]) -> Message | None:
        for index, text in edits.items():
            refuse_thinking(message.parts[index], text)
        if not edits:
            return message
        if item_type(message.raw) == "message":
            return _edited_message(message.raw, edits)
        text = edits[0]
        return None if text is None else _edited_item(message, text)

    def user_text(self, text: str) -> Message:
        content = [{"type": "input_text", "text": text}]
        return read_item(0, {"type": "message", "role": "user", "content": content})

    def declare_tools(self, tools: Sequence[ToolDeclaration]) -> list[Raw]:
        return [{"type": "function", **structs.asdict(tool), "strict": False} for tool in tools]

    def place_cache_marks(self, messages: Sequence[Message], stable: int) -> list[Message]:
        return [*messages]

    def can_join(self, first: Message, second: Message) -> bool:
        """A reply is a run of items, which stay apart."""
        return False

    def join(self, first: Message, second: Message) -> Message:
        """Two message items as one; other items cannot be joined."""
        if {item_type(first.raw), item_type(second.raw)} != {"message"}:
            raise ValueError("only message items can be joined")
        one, two = first.raw["content"], second.raw["content"]
        if isinstance(one, str) and isinstance(two, str):
            content: Any = "\n\n".join(text for text in (one, two) if text)
        else:
            content = [*_blocks(first.raw), *_blocks(second.raw)]
        return read_item(0, {**second.raw, **first.raw, "content": content})

    def pick(self, message: Message, order: Sequence[int]) -> Message:
        if item_type(message.raw) != "message":
            return message
        blocks = _blocks(message.raw)
        return read_item(0, {**message.raw, "content": [blocks[at] for at in order]})

    def answer(self, message: Message, call: ToolCall, text: str) -> Message | None:
        """An output item with this text for a call; a computer's output can only be a screenshot."""
        kind = OUTPUTS[item_type(message.raw)]
        raw: Raw = {"type": kind, "call_id": call.id, "output": text}
        match kind:
            case "local_shell_call_output":
                raw["id"] = raw.pop("call_id")
            case "shell_call_output":
                raw["output"] = [_shell_run(text, {"type": "exit", "exit_code": 1})]
            case "apply_patch_call_output":
                raw["status"] = "failed"
            case "computer_call_output":
                return None
        return read_item(0, raw)

    def as_user_message(self, result: ToolResult, frame: str) -> Message | None:
        if not result.text and not result.media:
            return None
        if not result.media:
            return self.user_text(f"{frame}\n{result.text}")
        held = result.content if isinstance(result.content, list) else [_screenshot(result.content)]
        content = [{"type": "input_text", "text": frame}, *held]
        return read_item(0, {"type": "message", "role": "user", "content": content})

    def rename(self, message: Message, ids: Mapping[int, str]) -> Message:
        key = "call_id" if message.raw.get("call_id") else "id"
        return read_item(0, {**message.raw, key: ids[0]})

    def detach(self, before: Sequence[Message], after: Sequence[Message]) -> list[Message | None]:
        """Take the item ids off replies whose reasoning was in `before` and is no longer in `after`.

        The API looks an item up by its id and rejects it when its reasoning does not come with it.
        """
        wanted: dict[str, list[frozenset[str]]] = {}
        for item_id, thoughts in _reasoned(before):
            wanted.setdefault(item_id, []).append(thoughts)
        lost = {
            item_id
            for item_id, thoughts in _reasoned(after)
            if not any(known <= thoughts for known in wanted.get(item_id, [thoughts]))
        }
        return [_without_id(message) if str(message.raw.get("id")) in lost else message for message in after]


def _reasoned(messages: Sequence[Message]) -> Iterator[tuple[str, frozenset[str]]]:
    """The id of every item of a reply, with the ids of the reasoning before it."""
    thoughts: frozenset[str] = frozenset()
    for message in messages:
        item_id = message.raw.get("id")
        if message.role != "assistant":
            thoughts = frozenset()
        elif isinstance(item_id, str) and message.raw.get("type") == "reasoning":
            thoughts |= {item_id}
        elif isinstance(item_id, str):
            yield item_id, thoughts


def _screenshot(output: Raw) -> Raw:
    held: Raw = {key: output[key] for key in ("image_url", "file_id") if key in output}
    return {"type": "input_image", "detail": "auto", **held}


def _blocks(raw: Raw) -> list[Raw]:
    content = raw.get("content")
    if isinstance(content, str):
        return [{"type": _text_type(raw), "text": content}] if content else []
    return list(content or ())


def _text_type(raw: Raw) -> str:
    return "output_text" if raw.get("role") == "assistant" else "input_text"


def _edited_message(raw: Raw, edits: Mapping[int, str | None]) -> Message | None:
    content = raw.get("content")
    if isinstance(content, str):
        return read_item(0, {**raw, "content": edits[0]}) if edits.get(0) is not None else None
    blocks = []
    for at, block in enumerate(content or ()):
        text = edits.get(at, "")
        if at not in edits:
            blocks.append(block)
        elif text is not None:
            blocks.append(_edited_block(raw, block, text))
    return read_item(0, {**raw, "content": blocks}) if blocks else None


def _edited_block(raw: Raw, block: Raw, text: str) -> Raw:
    kind = block.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {**block, "text": text}
    if kind == "refusal":
        return {**block, "refusal": text}
    return {"type": _text_type(raw), "text": text}


def _edited_item(message: Message, text: str) -> Message:
    raw = message.raw
    kind = item_type(raw)
    if kind == "computer_call_output":
        return message  # Its output can only be a screenshot.
    if kind == "shell_call_output" and isinstance(raw.get("output"), list):
        outcomes = sorted(shell_outcomes(raw["output"]), key=is_failure, reverse=True)
        return read_item(0, {**raw, "output": [_shell_run(text, outcomes[0] if outcomes else {})]})
    if kind in OUTPUT_TYPES:
        return read_item(0, {**raw, "output": text})
    if kind in ("function_call", "custom_tool_call"):
        return read_item(0, {**raw, CALLS[kind]: text})
    if kind in CALLS:
        return message
    role = message.role if message.role in ROLES else "assistant"
    block = {"type": _text_type({"role": role}), "text": text}
    return read_item(0, {"type": "message", "role": role, "content": [block]})


def _shell_run(text: str, outcome: Raw) -> Raw:
    return {"stdout": text, "stderr": "", "outcome": outcome or {"type": "exit", "exit_code": 0}}
