"""Who sends a request: which agent, which of its conversations, and whether it asks for a compaction.

Agents say so in headers; what they do not say is told by the structure and the wording of the request, and only where
that leaves no doubt. An id in a header names a conversation. It is no proof that the sender may see it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from msgspec import Struct

from context_compactor.dialects.dialect import blocks_in

CompactionKind = Literal["", "summary", "checkpoint", "item", "window"]
"""How an agent asks for a compaction: Claude Code for a summary; Codex for a checkpoint as a text, for a compaction
item, or for the whole new window."""
COMPACT_PATH = "/responses/compact"

MODE_HEADER = "x-compactor-mode"
SESSION_HEADER = "x-compactor-session"
OWN_HEADERS = frozenset({MODE_HEADER, SESSION_HEADER})
"""Headers that speak to the proxy, and go no further."""

KEPT_HEADERS = (
    "user-agent",
    "originator",
    "content-type",
    "content-encoding",
    "session-id",
    "thread-id",
    "x-codex-window-id",
    "x-codex-turn-metadata",
    "x-openai-subagent",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-request-class",
    "x-claude-code-compaction",
    "x-claude-code-context-compacted",
    MODE_HEADER,
    SESSION_HEADER,
)
"""The only headers that are written down. No key is among them."""

_MAY_BE_KEY = re.compile("key|auth|token|cookie|secret|credential")
_NO_KEYS = frozenset({"idempotency-key"})
_CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_SUMMARY_OPENINGS = (
    "CRITICAL: Respond with TEXT ONLY",
    "Your task is to create a detailed summary of the conversation",
)
_SUMMARY_MARKS = ("create a detailed summary of the conversation", "<summary>")
_CHECKPOINT = "You are performing a CONTEXT CHECKPOINT COMPACTION"
_FOCUS = re.compile(r"\nAdditional Instructions:\n(.*?)(?:\n\nREMINDER: Do NOT call any tools|\Z)", re.DOTALL)
# How a history begins that a client has compacted by itself.
_COMPACTED = ("This session is being continued from a previous conversation", "Another language model started to solve")
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_LONGEST_NAME = 80
_SAFE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class Sender(Struct, frozen=True):
    """Who sends a request. `conversation` is "" where no header names it; `agent` is the sub-agent that sends it."""

    client: str
    conversation: str
    agent: str = ""

    @property
    def compacts(self) -> bool:
        """Whether the client compacts by itself."""
        return bool(self.client)


def identify(headers: Mapping[str, str]) -> Sender:
    """The sender of a request, by its headers in lower case."""
    agent = headers.get("user-agent", "")
    if named := headers.get(SESSION_HEADER):
        return Sender(_client(headers, agent), _safe(named))
    if conversation := headers.get("x-claude-code-session-id"):
        return Sender("claude-code", _safe(conversation), _safe(headers.get("x-claude-code-agent-id", "")))
    if _client(headers, agent) == "codex":
        return Sender("codex", _safe(headers.get("thread-id") or headers.get("session-id") or ""))
    return Sender(_client(headers, agent), "")


def _client(headers: Mapping[str, str], agent: str) -> str:
    if agent.startswith("claude-cli/") or "x-claude-code-session-id" in headers:
        return "claude-code"
    is_codex = headers.get("originator", "").startswith("codex") or "x-codex-turn-metadata" in headers
    return "codex" if is_codex else ""


def _safe(name: str) -> str:
    """A name as it can be part of a session's id; a long one by its beginning and its digest."""
    cleaned = _SAFE_NAME.sub("-", name).strip("-.")
    if len(cleaned) <= _LONGEST_NAME and cleaned == name:
        return cleaned
    return f"{cleaned[:40]}-{blake2b(name.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def credential_of(headers: Mapping[str, str], query: str = "") -> tuple[str, str]:
    """The digest of the key that a request is sent with, and that of the account it stands for.

    Keys that are renewed every hour name their account; of any other key the account is the key itself. Who only says
    that an account is theirs has no key that the provider accepts, and nothing is answered before it has. A header that
    was sent twice has both values, a line each.
    """
    given = [name for name in _CREDENTIALS if headers.get(name)]
    # Where none of the usual ones is there, any other may be what tells two users of one gateway apart.
    named = given or [name for name in sorted(headers) if _MAY_BE_KEY.search(name) and name not in _NO_KEYS]
    credential = _digest("\n".join([query if not given else "", *(f"{name}:{headers[name]}" for name in named)]))
    # Of two credentials the provider takes one, and nobody here knows which: a claim beside a key may be made up.
    account = _account(headers["authorization"]) if given == ["authorization"] else ""
    return credential, _digest(account) if account else credential


def _account(authorization: str) -> str:
    parts = authorization.rpartition(" ")[2].split(".")
    if len(parts) != 3 or "\n" in authorization:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return ""
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return f"{claims.get('iss', '')}|{subject}" if isinstance(subject, str) and subject else ""


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16, person=b"compactor-proxy").hexdigest()


def scope_of(protocol: str, upstream: str, account: str) -> str:
    """Within which a conversation is looked for: one protocol, one provider, one account."""
    return _digest(f"{protocol}\n{upstream}\n{account}")[:24]


def may_ask_for_compaction(headers: Mapping[str, str], body: bytes) -> bool:
    """A first, quick look at the bytes: whether a request may ask for a compaction. `compaction_kind` knows it."""
    if headers.get("x-claude-code-request-class") == "compaction" or headers.get("x-claude-code-compaction"):
        return True
    if '"request_kind":"compaction"' in headers.get("x-codex-turn-metadata", ""):
        return True
    return headers.get("user-agent", "").startswith("claude-cli/") and _SUMMARY_MARKS[0].encode() in body


def compaction_kind(
    headers: Mapping[str, str], path: str, dialect: str, messages: Sequence[Mapping[str, Any]]
) -> CompactionKind:
    """How a request asks for a compaction; "" when it does not, or when that is not certain."""
    if not messages:
        return ""
    last = messages[-1]
    sender = identify(headers)
    if path.endswith(COMPACT_PATH):
        return "window" if sender.client == "codex" else ""
    if sender.client == "claude-code" and dialect == "anthropic":
        text = _last_text(last) if last.get("role") == "user" else ""
        is_asked = text.lstrip().startswith(_SUMMARY_OPENINGS) and all(mark in text for mark in _SUMMARY_MARKS)
        is_said = headers.get("x-claude-code-request-class") in (None, "", "compaction")
        return "summary" if is_asked and is_said else ""
    if sender.client == "codex" and dialect == "openai-responses" and _is_codex_compaction(headers):
        if last.get("type") == "compaction_trigger":
            return "item"
        return "checkpoint" if last.get("role") == "user" and len(messages) > 1 else ""
    return ""


def _is_codex_compaction(headers: Mapping[str, str]) -> bool:
    try:
        said = json.loads(headers.get("x-codex-turn-metadata") or "{}")
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("request_kind") == "compaction"


def without_request(
    messages: Sequence[dict[str, Any]], kind: CompactionKind
) -> tuple[list[dict[str, Any]], str, Literal["threshold", "manual"]]:
    """The history that is to be compacted, what the user wants kept, and whether the user has asked for it."""
    if kind == "window":
        return list(messages), "", "threshold"
    history, last = list(messages[:-1]), messages[-1]
    if kind != "summary":
        return history, "", "threshold"
    text = _last_text(last)
    if blocks := blocks_in(last)[:-1]:
        history.append({**last, "content": blocks})
    found = _FOCUS.search(text)
    return history, found[1].strip() if found else "", "manual" if found else "threshold"


def without_reminders(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what Claude Code adds to results on the wire: the tokens that are left, files that it attaches
    again, lists of skills.

    None of it is what the tool has answered, nor in any other log of the conversation.
    """
    blocks = blocks_in(message)
    if not any(block.get("type") == "tool_result" for block in blocks):
        return message
    return {**message, "content": [_without_reminders(block) for block in blocks]}


def _without_reminders(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content") if block.get("type") == "tool_result" else None
    if isinstance(content, str):
        return {**block, "content": _before_reminders(content)}
    if not isinstance(content, list) or not content or not isinstance(content[-1], dict):
        return block
    last = content[-1]
    text = _before_reminders(last["text"]) if isinstance(last.get("text"), str) else None
    if text is None or text == last["text"]:
        return block
    return {**block, "content": [*content[:-1], *([{**last, "text": text}] if text else [])]}


def _before_reminders(text: str) -> str:
    """A result without the reminders at its end, where the countdown is among them; else it may be the tool's own."""
    end = len(text)
    is_counted = False
    while (kept := text[:end].rstrip()).endswith(_REMINDER_END):
        start = kept.rfind(_REMINDER)
        if start < 0:
            break
        is_counted |= "<total_tokens>" in kept[start : start + _LONGEST_NAME]
        end = start
    return text[:end].rstrip("\n") if is_counted else text


def is_client_summary(message: Mapping[str, Any]) -> bool:
    """Whether a message is what a client, or its provider, has put in the place of earlier ones."""
    if message.get("type") == "compaction":
        return True
    return message.get("role") == "user" and any(text.startswith(_COMPACTED) for text in _texts(message))


def _last_text(message: Mapping[str, Any]) -> str:
    texts = _texts(message)
    blocks = blocks_in(dict(message))
    if blocks and blocks[-1].get("type") not in ("text", "input_text"):
        return ""
    return texts[-1] if texts else ""


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in blocks_in(dict(message)) if "text" in block]
