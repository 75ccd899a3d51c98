"""Generated conversations in every dialect, for property tests.

`legal_histories(name)` draws conversations a provider would accept; `histories(name)` draws the same after
things have gone wrong: lost, doubled, swapped and emptied messages and blocks, and ids that name two calls.
Both yield plain lists of dictionaries that `parse` reads.

A conversation is first drawn as a story (who says, calls and answers what), then told in a dialect.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.dialects.made_up import NAME as MADE_UP
from tests.dialects.made_up import NO_WORDS

DIALECT_NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", MADE_UP)

Raw = dict[str, Any]

SENTENCES = (
    "Please fix the failing test in src/auth/jwt.py and do not touch the migrations.",
    "Never commit to main; always open a pull request.",
    "I looked at `TokenStore.refresh` and the expiry is compared in seconds, not milliseconds.",
    "Let's use SQLite because the deployment has one machine.",
    "That did not work: the second worker still sees the old schema.",
    "See https://example.com/docs/retry?attempts=3#backoff for the rule.",
    "日本語のコメントも残してください。",
    "لا تغير أسماء الملفات",
    "ok",
    "continue 👍🏽",
)
TOOLS = ("Read", "Bash", "Edit", "Grep", "Task", "WebFetch", "mcp__db__query", "write_file")
PATHS = ("src/auth/jwt.py", "tests/test_auth.py", "docs/why/cache.md", "package.json", "/etc/app/config.yaml")
COMMANDS = ("pytest -q tests/test_auth.py", "rg -n 'expires_at' src", "git diff --stat", "cargo test", "ls -la")
LINES = (
    "def refresh(self, token: str) -> Token:",
    "    if token.expires_at < time.time():",
    '        raise ExpiredToken(f"token {token.id} expired")',
    "src/auth/jwt.py:42:    expires_at = claims['exp']",
    "E       AssertionError: assert 401 == 200",
    "FAILED tests/test_auth.py::test_refresh - AssertionError: assert 401 == 200",
    "2024-05-01T12:00:03Z INFO worker-2 job 8812 finished in 341 ms",
    '{"id": 8812, "status": "failed", "error": {"code": "E_TIMEOUT"}}',
    "Traceback (most recent call last):",
    "bash: foo: command not found",
    "@@ -10,7 +10,7 @@ class TokenStore:",
    "",
    "    ",
    "total 48",
)


ODD_TEXTS = (
    "\x00",
    "\ud800 alone",
    "a\udfffb",
    " " * 5000,
    "QUJD" * 2000,
    "x" * 20_000,
    "\u202eright to left",
    "\r\n\t",
)
"""Texts that break careless code: NUL, lone surrogates, spaces, base64, one very long line."""


class Dice:
    """A drawn number as a row of small choices. The first choice of each is the plainest, so examples shrink well."""

    def __init__(self, number: int, words: Sequence[str] = ()) -> None:
        self.number = number
        self.words = words

    def roll(self, sides: int) -> int:
        """A number below `sides`."""
        self.number, rolled = divmod(self.number, sides)
        return rolled

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of the choices."""
        return choices[self.roll(len(choices))]

    def chance(self, one_in: int) -> bool:
        """True once in so many rolls."""
        return self.roll(one_in) == one_in - 1

    def text(self) -> str:
        """Words a person or a model might say."""
        return str(self.pick((*SENTENCES, *self.words)))

    def maybe_text(self) -> str:
        """Words, or none."""
        return self.text() if self.chance(2) else ""

    def output(self) -> str:
        """What a tool printed: nothing, a few lines, many that look alike, or something odd."""
        if self.chance(20):
            return str(self.pick(ODD_TEXTS))
        head = [self.pick(LINES) for _ in range(self.roll(5))]
        filler = self.pick(LINES[:8])
        return "\n".join([*head, *(f"{filler} # {number}" for number in range(self.pick((0, 1, 3, 40))))])

    def picture(self) -> str:
        """A PNG of some size."""
        return picture(self.pick((1, 640, 1800)), self.pick((1, 480, 1999)))


def picture(width: int, height: int) -> str:
    """The beginning of a PNG of this size, as base64."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", width, height)
    return base64.b64encode(head + b"\x08\x02\0\0\0" + b"\0" * 40).decode()


numbers = st.integers(0, 2**128 - 1)
words = st.lists(st.text(min_size=1, max_size=30).filter(str.strip), max_size=3)
texts = st.one_of(st.sampled_from(SENTENCES), st.text(min_size=1, max_size=30).filter(str.strip))
odd_texts = st.sampled_from(ODD_TEXTS)
outputs = st.builds(Dice.output, st.builds(Dice, numbers))


# The story ----------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """A tool call, and what came back: text, pictures, an error, or nothing at all."""

    id: str
    name: str
    arguments: Raw
    output: str = ""
    pictures: list[str] = field(default_factory=list)
    failed: bool = False
    as_blocks: bool = False
    custom: bool = False
    bare: bool = False


@dataclass
class Beat:
    """One thing that happens in a story."""

    kind: str
    text: str = ""
    extra: str = ""
    thinking: str = "none"
    calls: list[Call] = field(default_factory=list)
    shape: int = 0
    picture: str = ""
    marked: bool = False
    answered: bool = True


THINKING = ("none", "none", "plain", "signed", "sealed")


def _question(dice: Dice) -> Beat:
    return Beat(
        "question",
        text=dice.text(),
        extra=dice.maybe_text(),
        shape=dice.roll(6),
        picture=dice.picture(),
        marked=dice.chance(2),
    )


def _answer(dice: Dice) -> Beat:
    return Beat("answer", text=dice.text(), extra=dice.maybe_text(), thinking=dice.pick(THINKING), shape=dice.roll(6))


def _step(dice: Dice, first_call: int) -> Beat:
    calls = [_call(dice, first_call + more) for more in range(dice.pick((1, 1, 1, 2, 3)))]
    return Beat(
        "step",
        text=dice.maybe_text(),
        extra=dice.text() if dice.chance(3) else "",
        thinking=dice.pick(THINKING),
        calls=calls,
        shape=dice.roll(4),
        marked=dice.chance(2),
    )


def _call(dice: Dice, number: int) -> Call:
    arguments = {
        "file_path": dice.pick(PATHS),
        "command": dice.pick(COMMANDS),
        "query": dice.text(),
    }
    key = dice.pick(("file_path", "command", "query", ""))
    return Call(
        id=f"call_{number:04d}",
        name=dice.pick(TOOLS),
        arguments={key: arguments[key]} if key else {},
        output=dice.output(),
        pictures=[dice.picture()] if dice.chance(10) else [],
        failed=dice.chance(5),
        as_blocks=dice.chance(2),
        custom=dice.chance(10),
        bare=dice.chance(12),
    )


def story_of(rounds: list[list[int]], odd_words: list[str]) -> list[Beat]:
    """Each round is a question, steps with calls, and an answer; the last one may be cut off anywhere."""
    opening = Dice(rounds[0][0], odd_words)
    has_instructions = opening.chance(2)
    beats = [Beat("instructions", text=opening.text(), shape=opening.roll(3))] if has_instructions else []
    calls = 0
    for asked, *steps, answered in rounds:
        beats.append(_question(Dice(asked, odd_words)))
        for number in steps:
            beats.append(_step(Dice(number, odd_words), calls))
            calls += len(beats[-1].calls)
        beats.append(_answer(Dice(answered, odd_words)))
    ending = Dice(rounds[-1][-1] >> 64).roll(4)
    if ending:
        beats.pop()
    if ending == 3 and beats[-1].calls:
        beats[-1].answered = False
    return beats


def stories(min_rounds: int = 1, max_rounds: int = 4) -> SearchStrategy[list[Beat]]:
    """A conversation: perhaps instructions, then rounds of a question, steps with calls, and an answer."""
    one_round = st.lists(numbers, min_size=2, max_size=5)
    return st.builds(story_of, st.lists(one_round, min_size=min_rounds, max_size=max_rounds), words)


# As messages --------------------------------------------------------------------------------------------------


def tell(name: str, story: list[Beat]) -> list[Raw]:
    """A story as the messages of a dialect."""
    from tests.dialects.story_messages import bedrock_messages, gemini_messages

    writers = {
        "anthropic": _anthropic_messages,
        "openai-chat": _chat_messages,
        "openai-responses": _responses_messages,
        "gemini": gemini_messages,
        "bedrock": bedrock_messages,
        MADE_UP: _made_up_messages,
    }
    return [raw for number, beat in enumerate(story) for raw in writers[name](beat, number)]


MARK = {"cache_control": {"type": "ephemeral"}}


def _anthropic_messages(beat: Beat, number: int) -> list[Raw]:
    if beat.kind == "instructions":
        return [{"role": "system", "content": beat.text}] if beat.shape else []
    if beat.kind == "question":
        return [{"role": "user", "content": _anthropic_question(beat)}]
    blocks: list[Raw] = _anthropic_thinking(beat, number)
    if beat.kind == "answer":
        blocks += _anthropic_answer(beat, number)
        content: Any = beat.text if beat.shape == 0 and not blocks[:-1] else blocks
        return [{"role": "assistant", "content": content}]
    blocks += [{"type": "text", "text": beat.text}] if beat.text else []
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in beat.calls]
    told: list[Raw] = [{"role": "assistant", "content": blocks, "usage": {"input": 1200 + number, "output": 80}}]
    if beat.answered:
        results = [_anthropic_result(call) for call in beat.calls]
        if beat.marked:
            results[-1] |= MARK
        told.append({"role": "user", "content": [*results, *_text_block(beat.extra)]})
    return told


def _text_block(text: str) -> list[Raw]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _anthropic_question(beat: Beat) -> Any:
    text: Raw = {"type": "text", "text": beat.text, **(MARK if beat.marked else {})}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": beat.picture}}
    remote = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    document = {
        "type": "document",
        "title": "Spec",
        "source": {"type": "text", "media_type": "text/plain", "data": "a"},
    }
    found = {"type": "search_result", "source": "https://example.com", "title": "A page", "content": [text]}
    unknown = {"type": "container_upload", "file_id": "file_1", "future": {"deep": [1, None]}}
    shapes: list[Any] = [beat.text, [text], [image, text], [document, text, remote], [found, text], [unknown, text]]
    told = shapes[beat.shape]
    return told if isinstance(told, str) else [*told, *_text_block(beat.extra)]


def _anthropic_thinking(beat: Beat, number: int) -> list[Raw]:
    return {
        "none": [],
        "plain": [{"type": "thinking", "thinking": f"I think {number}."}],
        "signed": [{"type": "thinking", "thinking": f"I think {number}.", "signature": f"sig{number}=="}],
        "sealed": [{"type": "redacted_thinking", "data": f"sealed{number}=="}],
    }[beat.thinking]


def _anthropic_answer(beat: Beat, number: int) -> list[Raw]:
    searched: list[Raw] = [
        {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "jwt"}},
        {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": []},
    ]
    cited: Raw = {"type": "text", "text": beat.text, "citations": None}
    return [*(searched if beat.shape == 4 else []), cited, *_text_block(beat.extra)]


def _anthropic_result(call: Call) -> Raw:
    block: Raw = {"type": "tool_result", "tool_use_id": call.id}
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        for data in call.pictures
    ]
    if images or call.as_blocks:
        block["content"] = [*_text_block(call.output), *images]
    elif not call.bare:
        block["content"] = call.output
    return block | ({"is_error": True} if call.failed else {})


def _chat_messages(beat: Beat, number: int) -> list[Raw]:
    if beat.kind == "instructions":
        return [{"role": "developer" if beat.shape == 0 else "system", "content": beat.text}]
    if beat.kind == "question":
        return [{"role": "user", "content": _chat_question(beat), **({"name": "ada"} if beat.marked else {})}]
    told: Raw = {"role": "assistant", **_chat_thinking(beat, number)}
    if beat.kind == "answer":
        return [told | _chat_answer(beat)]
    told |= {"content": beat.text or (None if beat.shape else ""), "usage": {"input": 900 + number, "output": 60}}
    if beat.shape == 3 and len(beat.calls) == 1:
        return _chat_function(told, beat)
    told["tool_calls"] = [_chat_call(call) for call in beat.calls]
    results = [_chat_result(call) for call in beat.calls] if beat.answered else []
    after = [{"role": "user", "content": beat.extra}] if beat.extra and beat.answered else []
    return [told, *results, *after]


def _chat_question(beat: Beat) -> Any:
    text = {"type": "text", "text": beat.text}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{beat.picture}", "detail": "low"}}
    remote = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    file = {"type": "file", "file": {"filename": "spec.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
    unknown = {"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}}
    return [beat.text, [text], [text, image], [file, text, remote], [sound, text], [unknown, text]][beat.shape]


def _chat_thinking(beat: Beat, number: int) -> Raw:
    sealed = [{"type": "reasoning.encrypted", "data": f"sealed{number}=="}]
    return {
        "none": {},
        "plain": {"reasoning_content": f"I think {number}."},
        "signed": {"reasoning": f"I think {number}.", "reasoning_details": sealed},
        "sealed": {"thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": f"sig{number}=="}]},
    }[beat.thinking]


def _chat_answer(beat: Beat) -> Raw:
    if beat.shape == 5:
        return {"content": None, "refusal": beat.text}
    if beat.shape == 4:
        return {"content": [{"type": "text", "text": beat.text}, {"type": "refusal", "refusal": "but not that"}]}
    return {"content": beat.text, "refusal": None}


def _chat_call(call: Call) -> Raw:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": "free text"}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": str(call.arguments)}}


def _chat_result(call: Call) -> Raw:
    told: Raw = {"role": "tool", "tool_call_id": call.id, "content": call.output}
    if call.pictures:
        images = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{it}"}} for it in call.pictures]
        told["content"] = [*_text_block(call.output), *images]
    elif call.as_blocks:
        told["content"] = [{"type": "text", "text": call.output}]
    return told | ({"name": call.name} if call.failed else {})


def _chat_function(told: Raw, beat: Beat) -> list[Raw]:
    (call,) = beat.calls
    told["function_call"] = {"name": call.name, "arguments": str(call.arguments)}
    result = {"role": "function", "name": call.name, "content": call.output}
    return [told, result] if beat.answered else [told]


def _responses_messages(beat: Beat, number: int) -> list[Raw]:
    if beat.kind == "instructions":
        return [{"role": "developer", "content": beat.text}]
    if beat.kind == "question":
        return [_responses_question(beat)]
    told = _responses_thinking(beat, number)
    if beat.kind == "answer" or beat.text:
        told.append(_responses_words(beat, number))
    told += [_responses_call(call) for call in beat.calls]
    if beat.answered:
        told += [_responses_output(call) for call in beat.calls]
        told += [{"role": "user", "content": beat.extra}] if beat.kind == "step" and beat.extra else []
    return told


def _responses_question(beat: Beat) -> Raw:
    text = {"type": "input_text", "text": beat.text}
    image = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{beat.picture}"}
    file = {"type": "input_file", "filename": "spec.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    shapes: list[Any] = [beat.text, [text], [text, image], [file, text], beat.text, [{"type": "input_new"}, text]]
    told: Raw = {"role": "user", "content": shapes[beat.shape]}
    return {"type": "message", **told} if beat.marked or beat.shape else told


def _responses_thinking(beat: Beat, number: int) -> list[Raw]:
    summary = [{"type": "summary_text", "text": f"I think {number}."}]
    item: Raw = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
    sealed = item | {"encrypted_content": f"sealed{number}==", "summary": [] if beat.thinking == "sealed" else summary}
    return {"none": [], "plain": [item], "signed": [sealed], "sealed": [sealed]}[beat.thinking]


def _responses_words(beat: Beat, number: int) -> Raw:
    text = {"type": "output_text", "text": beat.text, "annotations": []}
    refusal = {"type": "refusal", "refusal": beat.text}
    told: Raw = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    if beat.shape == 0:
        return {"role": "assistant", "content": beat.text}
    if beat.shape == 4:
        return {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": {"query": "jwt"}}
    return told | {"content": [refusal if beat.shape == 5 else text]}


def _responses_call(call: Call) -> Raw:
    if call.custom:
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": "free text"}
    if call.bare:
        action = {"commands": ["ls"], "timeout_ms": 1000}
        return {"type": "shell_call", "call_id": call.id, "action": action, "status": "completed"}
    told: Raw = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": str(call.arguments)}
    return told | ({"id": f"fc_{call.id}", "status": "completed"} if call.failed else {})


def _responses_output(call: Call) -> Raw:
    if call.custom:
        return {"type": "custom_tool_call_output", "call_id": call.id, "output": call.output}
    if call.bare:
        run = {"stdout": call.output, "stderr": "", "outcome": {"type": "exit", "exit_code": int(call.failed)}}
        return {"type": "shell_call_output", "call_id": call.id, "output": [run]}
    told: Raw = {"type": "function_call_output", "call_id": call.id, "output": call.output}
    if call.pictures or call.as_blocks:
        images = [{"type": "input_image", "image_url": f"data:image/png;base64,{it}"} for it in call.pictures]
        told["output"] = [{"type": "input_text", "text": call.output}, *images]
    return told


def _made_up_messages(beat: Beat, number: int) -> list[Raw]:
    if beat.kind == "instructions":
        return [{"who": "rules", "say": beat.text}]
    if beat.kind == "question":
        return [{"who": "human", "say": beat.text}]
    if beat.kind == "answer":
        return [{"who": "bot", "say": beat.text, "number": number}]
    asked = [{"ref": call.id, "do": call.name, "with": call.arguments} for call in beat.calls]
    told: list[Raw] = [{"who": "bot", "say": beat.text or NO_WORDS, "ask": asked}]
    if beat.answered:
        told += [{"who": "machine", "ref": it.id, "got": it.output, "bad": it.failed} for it in beat.calls]
        told += [{"who": "human", "say": beat.extra}] if beat.extra else []
    return told


# What goes wrong ----------------------------------------------------------------------------------------------


def legal_histories(dialect_name: str, min_rounds: int = 1, max_rounds: int = 4) -> SearchStrategy[list[Raw]]:
    """Conversations that the provider would accept as they are."""
    return stories(min_rounds, max_rounds).map(lambda story: tell(dialect_name, story))


def histories(dialect_name: str, min_rounds: int = 1, max_rounds: int = 4) -> SearchStrategy[list[Raw]]:
    """Conversations in which up to five things may have gone wrong."""
    legal = legal_histories(dialect_name, min_rounds, max_rounds)
    return st.builds(after_accidents, legal, st.lists(numbers, max_size=5))


def after_accidents(legal: list[Raw], accidents: list[int]) -> list[Raw]:
    told = deepcopy(legal)
    for number in accidents:
        dice = Dice(number)
        if told:
            dice.pick(ACCIDENTS)(dice, told)
    return told


def mangled_histories(dialect_name: str) -> SearchStrategy[list[Raw]]:
    """Conversations in which one to three values, anywhere, are something else altogether."""
    return st.builds(_mangled, legal_histories(dialect_name), st.lists(numbers, min_size=1, max_size=3))


STRANGE = (None, "", 0, 7.5, True, "text", [], {}, [7], ["text"], [[]], {"type": "text"}, {"a": {"b": [None]}})


def _mangled(legal: list[Raw], accidents: list[int]) -> list[Raw]:
    told = deepcopy(legal)
    for number in accidents:
        dice = Dice(number)
        holder, key = dice.pick(list(_places(told)))
        holder[key] = deepcopy(dice.pick(STRANGE))
    return told


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value that holds another one."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _lose(dice: Dice, told: list[Raw]) -> None:
    del told[dice.roll(len(told))]


def _double(dice: Dice, told: list[Raw]) -> None:
    told.insert(dice.roll(len(told) + 1), deepcopy(dice.pick(told)))


def _move(dice: Dice, told: list[Raw]) -> None:
    raw = told.pop(dice.roll(len(told)))
    told.insert(dice.roll(len(told) + 1), raw)


def _lose_beginning(dice: Dice, told: list[Raw]) -> None:
    del told[: 1 + dice.roll(3)]


def _lose_end(dice: Dice, told: list[Raw]) -> None:
    del told[-1 - dice.roll(3) :]


def _empty(dice: Dice, told: list[Raw]) -> None:
    raw = dice.pick(told)
    if _is_bedrock(raw):
        raw["content"] = dice.pick(([], [{"text": ""}], [{"text": " \n"}], [{"cachePoint": {"type": "default"}}]))
    elif "content" in raw and raw.get("role") not in ("tool", "function") and raw.get("type") != "reasoning":
        raw["content"] = dice.pick(("", [], " \n"))
    if "parts" in raw:
        raw["parts"] = dice.pick(([], [{"text": ""}], [{}], [{"text": " \n"}]))
    if "say" in raw:
        raw["say"] = dice.pick(("", " \n"))


def _is_bedrock(raw: Raw) -> bool:
    content = raw.get("content")
    return isinstance(content, list) and any("type" not in block for block in content)


def _lists(raw: Raw) -> list[list[Any]]:
    return [
        raw[key] for key in ("content", "tool_calls", "parts", "ask") if isinstance(raw.get(key), list) and raw[key]
    ]


def _lose_block(dice: Dice, told: list[Raw]) -> None:
    for entries in _lists(dice.pick(told)):
        del entries[dice.roll(len(entries))]


def _shuffle_blocks(dice: Dice, told: list[Raw]) -> None:
    for entries in _lists(dice.pick(told)):
        entries[:] = [entries.pop(dice.roll(len(entries))) for _ in range(len(entries))]


def _empty_block(dice: Dice, told: list[Raw]) -> None:
    for entries in _lists(dice.pick(told)):
        for block in entries:
            if isinstance(block.get("text"), str):
                block["text"] = dice.pick(("", "  "))


def _reuse_id(dice: Dice, told: list[Raw]) -> None:
    """Two calls get one id, with or without their results."""
    wanted = dice.pick(("call_0000", "call_0001"))
    given_up = dice.pick(("call_0001", "call_0002", "call_0003"))
    both = ("id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "ref")
    keys = dice.pick((both, ("id",), ("tool_call_id", "tool_use_id")))
    for raw in told:
        blocks = [block for entries in _lists(raw) for block in entries]
        nested = [value for block in blocks for value in block.values() if isinstance(value, dict)]
        for holder in [raw, *blocks, *nested]:
            for key in keys:
                if holder.get(key) == given_up:
                    holder[key] = wanted


def _instruct(dice: Dice, told: list[Raw]) -> None:
    text = dice.text()
    if all(raw.get("content") == [] for raw in told):
        return  # nothing shows any more in which form the provider has its messages
    system: Raw = {"role": "system", "content": text}
    if any("who" in raw for raw in told):
        system = {"who": "rules", "say": text}
    elif any("parts" in raw for raw in told):
        system = {"role": "system", "parts": [{"text": text}]}
    elif any(map(_is_bedrock, told)):
        system = {"role": "system", "content": [{"text": text}]}
    told.insert(dice.roll(len(told) + 1), system)


ACCIDENTS = (
    _lose,
    _lose,
    _double,
    _move,
    _lose_beginning,
    _lose_end,
    _empty,
    _lose_block,
    _shuffle_blocks,
    _empty_block,
    _reuse_id,
    _instruct,
)
