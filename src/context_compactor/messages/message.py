"""The values every dialect is read into: a message and its parts.

A part keeps what the engine reads; `Message.raw` keeps the provider's own dictionary, so that whatever is
not changed goes out exactly as it came in.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "developer", "user", "assistant", "tool"]
MediaKind = Literal["image", "document", "audio", "file"]


class Text(Struct, frozen=True, tag_field="part", tag="text"):
    """Words of whoever has the message's role. A refusal is text too."""

    text: str


class Thinking(Struct, frozen=True, tag_field="part", tag="thinking"):
    """A model's reasoning. A signed or sealed one may be kept or left out, never edited."""

    text: str
    signed: bool = False


class ToolCall(Struct, frozen=True, tag_field="part", tag="call"):
    """A request by the model to run a tool. `arguments` is JSON text, or plain text for custom tools."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag_field="part", tag="result"):
    """What a tool answered. `text` joins its text blocks; `content` is the provider's own value."""

    call_id: str
    text: str
    is_error: bool = False
    content: Any = None
    media: tuple[Media, ...] = ()


class Media(Struct, frozen=True, tag_field="part", tag="media"):
    """An image, document or sound. `width` and `height` are 0 when the data does not tell."""

    kind: MediaKind
    media_type: str = ""
    byte_size: int = 0
    width: int = 0
    height: int = 0
    title: str = ""


class Opaque(Struct, frozen=True, tag_field="part", tag="opaque"):
    """A block this version does not know. It is counted and carried, never looked into."""

    type: str
    text: str = ""


Part = Text | Thinking | ToolCall | ToolResult | Media | Opaque


class Message(Struct, frozen=True):
    """One message of one role. `parts` follow the order in which a model reads them."""

    role: Role
    parts: tuple[Part, ...]
    raw: Any = None

    @property
    def text(self) -> str:
        """The message's own words, without calls, results and thinking."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls this message makes."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results this message carries."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))
