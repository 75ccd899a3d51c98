"""Prompts with strict slots: an unknown slot or a missing one is an error at once."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from context_compactor.errors import BadSetting
from context_compactor.settings import Settings

BUILT_IN = "built in"

# Only a name in braces is a slot; `{{name}}` is a slot's name as plain text, and other braces are what they are.
_SLOT = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


class Slots(Struct, frozen=True):
    """The slots that a prompt must have, and those that it may have."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()

    def in_words(self) -> str:
        """All of them, as they are written."""
        return ", ".join(f"{{{name}}}" for name in (*sorted(self.required), *sorted(self.optional)))


_ASKED = frozenset(("focus", "language", "tokens", "headings"))
SLOTS = {
    "frame": Slots(frozenset(("mark", "language", "tokens"))),
    "summarize": Slots(frozenset(("messages",)), _ASKED),
    "merge": Slots(frozenset(("messages",)), _ASKED),
    "again": Slots(frozenset(("objections",))),
    "steer": Slots(frozenset(("tokens", "words", "facts", "custom"))),
}
# What several prompts say in the same words, each in a file of its own.
_SHARED = ("format", "rules")


class Prompt(Struct, frozen=True):
    """A prompt whose slots were checked; `origin` is where its text comes from."""

    name: str
    text: str
    origin: str = BUILT_IN

    @property
    def is_own(self) -> bool:
        """Whether it is a user's, which may have headings of its own."""
        return self.origin != BUILT_IN

    def fill(self, **values: str) -> str:
        """The text with its slots filled. What is filled in is never looked into for slots."""
        missing = slots_of(self.text) - values.keys()
        if missing:
            raise BadSetting(f"the prompt {self.name} ({self.origin}): no value for {_braced(missing)}")
        return _SLOT.sub(lambda slot: f"{{{slot[1]}}}" if slot[1] else values[slot[2]], self.text)


def slots_of(text: str) -> set[str]:
    """The names of the slots in a text."""
    return {slot[2] for slot in _SLOT.finditer(text) if slot[2]}


def check_prompt(name: str, text: str, origin: str = BUILT_IN) -> Prompt:
    """The prompt of this text, or `BadSetting` that names the slot which is unknown or missing."""
    known = SLOTS[name]
    found = slots_of(text)
    unknown = found - known.required - known.optional
    if unknown:
        raise BadSetting(
            f"{origin}: unknown slot {_braced(unknown)}; known slots: {known.in_words()}. "
            "Write {{name}} for a name in braces that is not a slot"
        )
    if not known.required <= found:
        raise BadSetting(f"{origin}: the slot {_braced(known.required - found)} is missing; add it")
    return Prompt(name, text, origin)


def built_in_prompt(name: str) -> Prompt:
    """The prompt of this name as it ships."""
    text = _shipped(name)
    for part in _SHARED:
        text = text.replace(f"{{{part}}}\n", _shipped(part))
    return check_prompt(name, text)


def _shipped(name: str) -> str:
    return files(__package__).joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")


def load_prompt(settings: Settings) -> Prompt:
    """The prompt that asks for a summary: `compact_prompt`, the file of `compact_prompt_file`, or the one we ship."""
    text, path = settings.compact_prompt, settings.compact_prompt_file
    if text is not None and path is not None:
        raise BadSetting(f"compact_prompt and compact_prompt_file ({path!r}) are both set; remove one of them")
    if text is not None:
        return check_prompt("summarize", text, "compact_prompt")
    if path is None:
        return built_in_prompt("summarize")
    try:
        return check_prompt("summarize", Path(path).read_text(encoding="utf-8"), f"compact_prompt_file {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"compact_prompt_file: {path!r} cannot be read: {error}") from error


def effective_prompt(settings: Settings) -> str:
    """What a model is asked with these settings, slots unfilled: our frame, then the prompt and where it comes from."""
    prompt = load_prompt(settings)
    return (
        f"# frame ({BUILT_IN})\n\n{built_in_prompt('frame').text}\n# {prompt.name} ({prompt.origin})\n\n{prompt.text}"
    )


def _braced(names: set[str] | frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
