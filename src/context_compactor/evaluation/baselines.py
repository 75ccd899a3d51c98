"""What others do, as plain methods: messages and a budget in, messages out."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from context_compactor.evaluation.expected import failures, longest_identifiers
from context_compactor.evaluation.messages import (
    PER_MESSAGE,
    FlatPart,
    RawMessage,
    count_message,
    count_messages,
    count_text,
    is_instruction,
    read_messages,
    text_of,
)

Method = Callable[[list[RawMessage], int], list[RawMessage]]

MASK = "[output omitted]"
SHORTEST = 80
UNMASKED = 150


def keep_everything(messages: list[RawMessage], _budget: int) -> list[RawMessage]:
    """The history itself, whatever the budget."""
    return messages


def keep_nothing(_messages: list[RawMessage], _budget: int) -> list[RawMessage]:
    """An empty context."""
    return []


def keep_last(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The last messages that fit, with no regard to calls and results."""
    kept: list[RawMessage] = []
    for message in reversed(messages):
        budget -= count_message(message)
        if budget < 0:
            break
        kept.append(message)
    return kept[::-1]


def trim(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The system prompt and the last messages that fit, from the first words of the user among them."""
    system = [message for message in messages if is_instruction(message)]
    rest = [message for message in messages if not is_instruction(message)]
    kept = keep_last(rest, budget - count_messages(system))
    words = [index for index, message in enumerate(kept) if message.get("role") == "user" and not _has_results(message)]
    return system + (kept[words[0] :] if words else kept)


def truncate_outputs(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """Every tool output cut to its head and tail, as long as fits; then the oldest turns are dropped."""
    low, high = SHORTEST, max([len(text) for message in messages for text in _outputs(message)], default=0)
    with_outputs = [message for message in messages if _outputs(message)]
    room = budget - sum(count_message(message) for message in messages if not _outputs(message))
    while room > 0 and high - low > 20:
        middle = (low + high) // 2
        low, high = (middle, high) if count_messages(_truncated(with_outputs, middle)) <= room else (low, middle)
    return drop_oldest(_truncated(messages, low if room > 0 else SHORTEST), budget)


def _truncated(messages: list[RawMessage], length: int) -> list[RawMessage]:
    return [_with_outputs(message, lambda text: head_and_tail(text, length)) for message in messages]


def mask_observations(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The oldest tool outputs replaced by a mark, as many as needed; then the oldest turns are dropped."""
    masked = [_with_outputs(message, lambda text: MASK if len(text) > UNMASKED else text) for message in messages]
    before, after = [count_message(message) for message in messages], [count_message(message) for message in masked]
    room, first = budget - sum(after), len(messages)
    while first and room >= before[first - 1] - after[first - 1]:
        first -= 1
        room -= before[first] - after[first]
    return drop_oldest(masked[:first] + messages[first:], budget)


def random_drop(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """Turns left out at random until the rest fits."""
    head, turns = split(messages)
    order = list(range(len(turns)))
    random.Random(len(messages)).shuffle(order)
    room, kept = budget - count_messages(head), set[int]()
    for index in order:
        size = count_messages(turns[index])
        if size <= room:
            room -= size
            kept.add(index)
    return head + _joined([turn for index, turn in enumerate(turns) if index in kept])


def drop_oldest(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The messages before the first reply and the last whole turns that fit."""
    head, turns = split(messages)
    head = _fitting_head(head, budget)
    last = _first_fitting(turns[::-1], budget - count_messages(head))
    return head + _joined(last[::-1])


def keep_ends(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The first and the last whole turns, half of the budget each; the middle is dropped."""
    head, turns = split(messages)
    head = _fitting_head(head, budget)
    room = budget - count_messages(head)
    first = _first_fitting(turns, room // 2)
    last = _first_fitting(turns[len(first) :][::-1], room - sum(map(count_messages, first)))
    return head + _joined(first) + _joined(last[::-1])


def _first_fitting(turns: Sequence[list[RawMessage]], room: int) -> list[list[RawMessage]]:
    kept: list[list[RawMessage]] = []
    for turn in turns:
        room -= count_messages(turn)
        if room < 0:
            break
        kept.append(turn)
    return kept


def _joined(turns: Sequence[list[RawMessage]]) -> list[RawMessage]:
    return [message for turn in turns for message in turn]


def split(messages: Sequence[RawMessage]) -> tuple[list[RawMessage], list[list[RawMessage]]]:
    """What stands before the first reply, and the turns: a reply with all that follows up to the next."""
    head: list[RawMessage] = []
    turns: list[list[RawMessage]] = []
    for message in messages:
        if message.get("role") == "assistant":
            turns.append([message])
        else:
            (turns[-1] if turns else head).append(message)
    return head, turns


def head_and_tail(text: str, length: int) -> str:
    """A text cut in the middle to about `length` characters."""
    if len(text) <= length + len(MASK):
        return text
    half = length // 2
    return text[:half] + MASK + text[len(text) - half :]


def _fitting_head(head: list[RawMessage], budget: int) -> list[RawMessage]:
    length = 4 * budget
    while length > 40 and count_messages(head) > budget * 2 // 3:
        length //= 2
        head = [{**message, "content": head_and_tail(text_of(message.get("content")), length)} for message in head]
    return head


def _has_results(message: RawMessage) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


def _outputs(message: RawMessage) -> list[str]:
    if message.get("role") == "tool":
        return [text_of(message.get("content"))]
    if not _has_results(message):
        return []
    return [text_of(block.get("content")) for block in message["content"] if block.get("type") == "tool_result"]


def _with_outputs(message: RawMessage, shorten: Callable[[str], str]) -> RawMessage:
    if message.get("role") == "tool":
        return {**message, "content": shorten(text_of(message.get("content")))}
    if not _has_results(message):
        return message
    blocks = [copy.copy(block) for block in message["content"]]
    for block in blocks:
        if block.get("type") == "tool_result":
            block["content"] = shorten(text_of(block.get("content")))
    return {**message, "content": blocks}


def mask_old_outputs(messages: list[RawMessage], keep: int = 10) -> list[RawMessage]:
    """All but the last ten tool outputs replaced by a mark: what some agents do before every reply."""
    old = [index for index, message in enumerate(messages) if _outputs(message)][:-keep]
    shown = list(messages)
    for index in old:
        shown[index] = _with_outputs(messages[index], lambda text: MASK if len(text) > UNMASKED else text)
    return shown


_LINE = 300


def name_list(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """The identifiers the agent used most, nothing else, as many as fit."""
    return _as_message(_fitting((name for name, _ in _most_used(read_messages(messages))), " ", budget))


def ledger(messages: list[RawMessage], budget: int) -> list[RawMessage]:
    """Failures, then for each identifier, most used first, one line in which it stood."""
    history = read_messages(messages)
    failed = (f"{failure.command}: {' ... '.join(failure.lines)}" for failure in failures(history))
    return _as_message(_fitting(_unique([*failed, *_lines(history)]), "\n", budget))


def _unique(lines: Iterable[str]) -> Iterator[str]:
    return iter(dict.fromkeys(lines))


def _most_used(history: Sequence[FlatPart]) -> list[tuple[str, int]]:
    """Identifiers by how many pieces hold them, the agent's own far dearer than a tool's."""
    counts: Counter[str] = Counter()
    for piece in history:
        weight = 1 if piece.kind == "result" else 20
        for forms in longest_identifiers(piece.text):
            counts[forms[0]] += weight
    return counts.most_common()


def _lines(history: Sequence[FlatPart]) -> Iterator[str]:
    """For each identifier the longest line, up to a limit, in which it stood."""
    best: dict[str, str] = {}
    for piece in history:
        for line in piece.text.splitlines():
            short = line.strip()[:_LINE]
            for forms in longest_identifiers(short):
                if len(best.get(forms[0], "")) < len(short):
                    best[forms[0]] = short
    return (best[name] for name, _ in _most_used(history) if name in best)


def _fitting(parts: Iterable[str], joint: str, budget: int) -> str:
    room, kept = budget - PER_MESSAGE, list[str]()
    for part in parts:
        room -= count_text(joint + part)
        if room < 0:
            break
        kept.append(part)
    return joint.join(kept)


def _as_message(text: str) -> list[RawMessage]:
    return [{"role": "user", "content": text}]
