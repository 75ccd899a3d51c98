"""Whether a provider would take a list of messages: the harness' own short checker."""

from __future__ import annotations

from collections.abc import Sequence

from context_compactor.quality.reading import RawMessage, is_instruction, read_message


def problems(messages: Sequence[RawMessage], provider: str) -> list[str]:
    """What is wrong with a context, in words; empty when it is legal."""
    talk = [message for message in messages if not is_instruction(message)]
    if not talk:
        return ["no message"]
    found = [] if talk[0].get("role", "user") == "user" else ["the first message is not the user's"]
    found += _anthropic(talk) if provider == "anthropic" else _openai(talk)
    return found + [f"message {index} is empty" for index, message in enumerate(talk) if _is_empty(message)]


def _is_empty(message: RawMessage) -> bool:
    if message.get("role") == "tool" or "role" not in message:
        return False
    return not any(piece.kind in ("call", "result") or piece.text.strip() for piece in read_message(message))


def _anthropic(messages: Sequence[RawMessage]) -> list[str]:
    found: list[str] = []
    waiting: set[str] = set()
    previous = ""
    for index, message in enumerate(messages):
        role = str(message.get("role"))
        if role == previous:
            found.append(f"message {index} has the role of the one before")
        results = [piece.call_id for piece in read_message(message) if piece.kind == "result"]
        if waiting != set(results) or len(results) != len(set(results)):
            found.append(f"message {index}: results {sorted(set(results) ^ waiting)[:3]} do not match the calls before")
        waiting = {piece.call_id for piece in read_message(message) if piece.kind == "call"}
        previous = role
    return found + (["the last calls have no results"] if waiting else [])


def _openai(messages: Sequence[RawMessage]) -> list[str]:
    found: list[str] = []
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        pieces = read_message(message)
        for piece in pieces:
            if piece.kind == "result" and piece.call_id not in waiting:
                found.append(f"message {index}: result {piece.call_id} without its call")
            waiting.discard(piece.call_id)
        if waiting and not any(piece.kind == "result" for piece in pieces):
            found.append(f"message {index}: calls {sorted(waiting)[:3]} have no result")
            waiting = set()
        waiting |= {piece.call_id for piece in pieces if piece.kind == "call"}
    return found + (["the last calls have no results"] if waiting else [])
