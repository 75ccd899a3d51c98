"""What users and agents said themselves, without what clients add in their name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from context_compactor.dialects.client_text import (
    CLIENT_COMMANDS,
    is_client_text,
    without_client_blocks,
    without_client_ending,
)
from context_compactor.dialects.messages import Message, Text, is_repair_text
from context_compactor.dialects.turns import Turn

_MOST_TEXT = 60_000
_ARGUMENTS = re.compile(r"<command-args>([^<]*)</command-args>")
_COMMAND = re.compile(r"<command-name>\s*(/?[\w:.-]{1,80})\s*</command-name>")
_LONGEST_REMARK = 1_500
_SHORT_PROMPT = 300
_LONGEST_SENTENCE = 600
_BARE_TAG = re.compile(r"</?command-args>|</?user_query>|<image\b[^<>]{0,80}>|</image>|\[image\]", re.IGNORECASE)
_INTERRUPT = re.compile(r"\[Request interrupted by user[^\]\n]{0,40}\]")
_SKILL_TOOLS = frozenset(("Skill", "SlashCommand"))
_FENCE = re.compile(r"^[ \t]{0,8}```.*?(?:^[ \t]{0,8}```[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_CAPITAL = r"[A-Z0-9\u00c0-\u00de\u0410-\u042f\u3040-\u9fff\uac00-\ud7af]"
# It starts with a set of characters, which makes the search several times faster than any other beginning.
_SENTENCE_END = re.compile(
    rf"[.!?…\u3002\uff01\uff1f\n](?:(?<=[\u3002\uff01\uff1f\n])|(?=[ \t]+[\"'(`*\[]{{0,2}}{_CAPITAL}))"
)
_BULLET = re.compile(r"\s*(?:[-*+•>]|\(?\d{1,3}[.)]|#{1,6})\s+")
_LONE_TAG = re.compile(r"</?[\w-]{1,60}>")
_LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|\w{3} +\d+ \d\d:\d\d|[{}\[\]|]|[+-]{2,}|\$ |\S+\.\w{1,5}:\d+"
    r"|(?:error|warning|fatal|diff --git|commit [0-9a-f]{7})\b|at \S+[(:]|File \"|//|/\*|<!"
    r"|[\u2500-\u257f\u276f\u23fa\u23bf]"
)


def own_words(message: Message) -> str:
    """A message's text without the parts that a client added in its author's name; each leaves a line break."""
    kept: list[str] = []
    is_expanded = False
    for part in message.parts:
        if isinstance(part, Text):
            words = _own(part.text)
            # Clients that queue a message may send it twice.
            if words and words not in kept and not (is_expanded and _is_prompt(words)):
                kept.append(words)
            is_expanded = is_expanded or "<command-name>" in part.text
    return "\n".join(kept)


class Utterance(Struct, frozen=True):
    """What somebody said in one turn."""

    turn: int
    text: str


def user_utterances(turns: Iterable[Turn]) -> list[Utterance]:
    """What the user said, turn by turn; turns in the user's name that hold only what a client added are left out."""
    found: list[Utterance] = []
    loads_skill = False
    for turn in turns:
        texts = (own_words(message) for message in turn.messages if message.role == "user")
        words = "\n".join(filter(None, texts))
        loads_skill, before = _loads_prompt(turn), loads_skill
        if words and not ((before or loads_skill) and _is_prompt(words)):
            found.append(Utterance(turn.number, words))
    return found


def _loads_prompt(turn: Turn) -> bool:
    """Whether a skill or a slash command brings in a text that the user has not written."""
    if turn.role == "user" and not turn.exchanges:
        return turn.messages[0].text[:400].lstrip().startswith(("<command-message>", "<command-name>"))
    return any(each.call and each.call.name in _SKILL_TOOLS for each in turn.exchanges)


def agent_utterances(turns: Iterable[Turn]) -> list[Utterance]:
    """What the agent said, turn by turn, without thinking, calls and results."""
    found: list[Utterance] = []
    for turn in turns:
        words = "\n".join(message.text for message in turn.messages if message.role == "assistant" and message.text)
        if words:
            found.append(Utterance(turn.number, words[:_MOST_TEXT]))
    return found


def is_quoted(line: str) -> bool:
    """Whether a line is a quotation, a log or code rather than somebody's own words."""
    return line.startswith((">", "```", "=== ")) or bool(_LOG_LINE.match(line) or _LONE_TAG.fullmatch(line))


def without_code(text: str) -> str:
    """A text without its fenced blocks."""
    return _FENCE.sub("\n", text) if "```" in text else text


def sentences(text: str) -> Iterator[str]:
    """The sentences and list items of prose, without their bullets; code, quotes and logs are passed over."""
    prose = without_code(text)
    start = 0
    for end in (*(found.end() for found in _SENTENCE_END.finditer(prose)), len(prose)):
        sentence = prose[start:end].strip()
        start = end
        if 2 < len(sentence) < _LONGEST_SENTENCE:
            bullet = _BULLET.match(sentence)
            if bullet:
                sentence = "" if sentence[0] == ">" else sentence[bullet.end() :]
            if len(sentence) > 2 and not _LOG_LINE.match(sentence):
                yield sentence


def _own(text: str) -> str:
    if is_client_text(text) or is_repair_text(text):
        return ""
    if "<command-name>" in text:
        text = _typed(text)
    if "<" in text:
        text = _BARE_TAG.sub("\n", without_client_blocks(text))
    text = without_client_ending(text[:_MOST_TEXT])
    if "[Request interrupted" in text:
        text = _INTERRUPT.sub("\n", text)
    text = text.strip()
    return "" if is_client_text(text) else text


def _typed(text: str) -> str:
    """Of a slash command what was typed after it, or else its name; the prompt it stands for is not the user's."""
    arguments = "\n".join(filter(None, (found.strip() for found in _ARGUMENTS.findall(text))))
    rest = without_client_blocks(_ARGUMENTS.sub("\n", text)).strip()
    if arguments or (rest and not _is_prompt(rest)):
        return arguments or rest
    name = _COMMAND.search(text)
    return name[1] if name and name[1].lstrip("/") not in CLIENT_COMMANDS and "local-command" not in text else ""


def _is_prompt(text: str) -> bool:
    is_role = text.startswith(("You are a", "You are the", "Your task is", "Follow these steps"))
    return len(text) > _LONGEST_REMARK or text.startswith(("#", "---")) or (is_role and len(text) > _SHORT_PROMPT)
