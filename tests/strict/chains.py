"""Chains of compactions as an agent lives through them: compacted, appended to, compacted again, each result put before
our own rules and before the strict server, which shares no code with them.

A history comes from a number alone, so that a failure can be looked at again. Its reasoning counts as produced at the
place where it was appended: the server takes it over from there, and refuses it once anything before it has changed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from context_compactor import compact
from context_compactor.dialects import check
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.legality import first_speaker, pair_results
from context_compactor.dialects.messages import Message, Thinking
from context_compactor.dialects.repair import join_all
from context_compactor.dialects.transcripts.reader import read_transcripts
from context_compactor.errors import BadMessage
from context_compactor.testing import ScriptedReply, StrictServer
from tests.dialects.strategies import ODD_TEXTS, Beat, after_accidents, story_of, tell
from tests.strict.clients import CLIENTS

Raw = dict[str, Any]
BY_NAME = {client.dialect: client for client in CLIENTS}
ROOMY = 10**9
LAYOUTS = ("tail", "record")
MOST_LINKS = 5
SHARES = (0.03, 0.08, 0.15, 0.3, 0.5, 0.7, 0.9, 2.0)

STRICTEST: dict[str, tuple[str | None, ...]] = {
    "anthropic": ("claude-opus-5-5", "claude-fable-5-1", None),
    "bedrock": ("anthropic.claude-opus-5-5-v1:0", None),
    "gemini": ("gemini-3-pro-preview",),
    "openai-chat": ("anthropic/claude-opus-5-5", None),
    "openai-responses": ("gpt-6", None),
}
"""Models with every rule of their dialect, and None, for which the strictest are taken. The server is as strict."""
OTHER_MODELS: dict[str, tuple[str | None, ...]] = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-8"),
    "bedrock": ("amazon.nova-pro-v1:0", "anthropic.claude-sonnet-4-5"),
    "gemini": ("gemini-2.5-pro", None),
    "openai-chat": ("gpt-6", "deepseek-v4-pro"),
    "openai-responses": ("gpt-5.5",),
}
"""Models with other rules, by which only our own check can judge."""


class Tally(Struct):
    """What the chains have come to: how often each thing happened, and everything that was wrong."""

    counts: Counter[str]
    wrong: list[str]


def chain_of(number: int) -> tuple[str, list[Raw], str | None, str, Random]:
    """The dialect, history, model and layout that a number stands for, and the dice for the rest."""
    dice = Random(number)
    dialect = tuple(BY_NAME)[number % len(BY_NAME)]
    models = OTHER_MODELS[dialect] if dice.random() < 0.25 else STRICTEST[dialect]
    return dialect, history_of(dialect, dice), dice.choice(models), LAYOUTS[number // len(BY_NAME) % 2], dice


def run_chain(number: int, tally: Tally) -> None:
    """Draw a history, compact it one to five times, and note what was wrong."""
    dialect, history, model, layout, dice = chain_of(number)
    ends = cuts_of(dialect, history, dice, dice.randint(1, MOST_LINKS))
    compact_chain(f"history {number}", dialect, history, ends, model, layout, dice, tally)


def compact_chain(
    name: str,
    dialect: str,
    history: Sequence[Raw],
    ends: Sequence[int],
    model: str | None,
    layout: Any,
    dice: Random,
    tally: Tally,
) -> None:
    """Compact a history up to each of these ends, with what came of it before in the place of what was compacted."""
    # Its own replies are no part of the conversation, so they hold no thinking that would have to come back.
    server, path = StrictServer([ScriptedReply("Done.")], window=ROOMY), BY_NAME[dialect].path
    tools = {call.name for message in DIALECTS[dialect].parse(history) for call in message.calls}
    context: list[Raw] = []
    start = 0
    for link, end in enumerate(ends, start=1):
        given = [*context, *deepcopy(list(history[start:end]))]
        start = end
        if not given:
            continue
        where = f"{name}, {dialect}, {model}, {layout}, compaction {link} of {len(ends)}"
        server.adopt(path, request_of(dialect, given, tools))
        target = max(200, int(len(json.dumps(given)) / 4 * dice.choice(SHARES)))
        try:
            result = compact(given, target_tokens=target, model=model, layout=layout, dialect=dialect)
        except Exception as error:  # noqa: BLE001 - the other histories are to be judged all the same
            tally.wrong.append(f"{where}: {type(error).__name__}: {error}")
            return
        context = result.messages
        tally.counts[f"{dialect}: {result.report.status}"] += 1
        tally.counts[f"{dialect}: reasoning kept"] += any(
            isinstance(part, Thinking) for message in DIALECTS[dialect].parse(context) for part in message.parts
        )
        problems = check(context, model=model, dialect=dialect, before=given)
        tally.wrong += [f"{where}: check: {problem.rule}: {problem.what} ({problem.index})" for problem in problems]
        if model in STRICTEST[dialect]:
            server.refusals.clear()
            server.respond(path, request_of(dialect, ready_to_send(dialect, context), tools))
            tally.wrong += [f"{where}: server: {refusal.rule}: {refusal.message}" for refusal in server.refusals]
        if tally.wrong and tally.wrong[-1].startswith(where):
            return


def cuts_of(dialect: str, history: Sequence[Raw], dice: Random, links: int) -> list[int]:
    """Where a history is compacted: anywhere but between reasoning and what it belongs to, and at its end."""
    messages = DIALECTS[dialect].parse(history)
    allowed = [at for at in range(1, len(messages)) if not _is_reasoning(messages[at - 1])]
    return [*sorted(dice.sample(allowed, min(links - 1, len(allowed)))), len(history)]


def _is_reasoning(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Thinking) for part in message.parts)


def request_of(dialect: str, messages: Sequence[Raw], tools: Collection[str]) -> Raw:
    """The request with these messages and tools, and with instructions where the provider wants them."""
    names = sorted(tools)
    spoken = list(messages)
    leading: list[Raw] = []
    while dialect in ("anthropic", "gemini", "bedrock") and spoken and spoken[0].get("role") == "system":
        leading.append(spoken.pop(0))
    body = BY_NAME[dialect].request(spoken)
    match dialect:
        case "openai-chat":
            body["tools"] = [{"type": "function", "function": {"name": name}} for name in names]
        case "gemini":
            body["tools"] = [{"functionDeclarations": [{"name": name} for name in names]}]
            body["systemInstruction"] = leading
        case "bedrock":
            body["toolConfig"] = {"tools": [{"toolSpec": {"name": name}} for name in names]}
            body["system"] = [block for message in leading for block in message["content"]]
        case "anthropic":
            body["tools"] = [{"name": name} for name in names]
            body["system"] = [message["content"] for message in leading]
        case _:
            body["tools"] = [{"name": name} for name in names]
    return body


def _is_unfinished(dialect: str, message: Message) -> bool:
    """Whether it may be the last message, and may not be answered yet: an item of reasoning, or nothing at all."""
    if dialect == "openai-responses":
        return _is_reasoning(message)
    return DIALECTS[dialect].is_blank(message, is_last=False)


def ready_to_send(dialect: str, raws: Sequence[Raw]) -> list[Raw]:
    """The history with results for calls that still run, or else with a word of the user behind the agent's."""
    speaks = DIALECTS[dialect]
    messages = speaks.parse(raws)
    while messages and messages[-1].role == "assistant" and _is_unfinished(dialect, messages[-1]):
        messages.pop()  # the reply that is under way cannot be sent
    pairing = pair_results(messages)
    running = [place for place in pairing.calls if place not in pairing.answers]
    answers = {place: speaks.answer(messages[place.message], pairing.calls[place], "x = 1") for place in running}
    results = [answer for answer in answers.values() if answer is not None]
    if results and results[0].role == "user":
        if messages[-1].results:
            given = {call: result for call, result in pairing.answers.items() if result.message == len(messages) - 1}
            last = messages.pop()
            answers |= {call: speaks.pick(last, [result.part]) for call, result in given.items()}
        results = [join_all([answer for _, answer in sorted(answers.items()) if answer is not None], speaks)]
    is_over = not messages or messages[-1].role == "assistant"
    if not results and (is_over or first_speaker(messages) == len(messages)):
        results = [speaks.user_text("Go on.")]
    return [message.raw for message in (*messages, *results)]


# What histories are made of


def history_of(dialect: str, dice: Random) -> list[Raw]:
    """A conversation with everything that a dialect has, in which something may have gone wrong."""
    rounds = [[dice.getrandbits(256) for _ in range(dice.randint(2, 6))] for _ in range(dice.randint(1, 7))]
    words = dice.sample([text for text in ODD_TEXTS if text.strip()], 2)
    story = story_of(rounds, words)
    for beat in story:
        _leave_out_the_unknown(beat)
    told = tell(dialect, story)
    for embellish in EMBELLISHMENTS[dialect]:
        if dice.random() < 0.5:
            embellish(told, dice)
    if dice.random() < 0.5:
        told = _spoiled(dialect, told, dice)
    sign_anew(told)
    return told


def _spoiled(dialect: str, told: list[Raw], dice: Random) -> list[Raw]:
    """After accidents, but for those that leave what is no message of the dialect at all."""
    spoiled = after_accidents(told, [dice.getrandbits(128) for _ in range(dice.randint(1, 5))])
    try:
        DIALECTS[dialect].parse(spoiled)
    except BadMessage:
        return told
    return spoiled


def _leave_out_the_unknown(beat: Beat) -> None:
    """Blocks of the future are kept as they are; the server, which does not know them, would refuse them."""
    if beat.kind == "question" and beat.shape == 5:
        beat.shape = 1


def _blocks(message: Raw) -> list[Raw]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _remind(told: list[Raw], dice: Random) -> None:
    """System messages behind questions and results, as Claude Code sends them."""
    for at in range(len(told), 0, -1):
        is_last = at == len(told)
        if told[at - 1]["role"] == "user" and (is_last or told[at]["role"] == "assistant") and dice.random() < 0.6:
            told.insert(at, {"role": "system", "content": f"Reminder {at}: the list of tasks is empty."})


def _instruct_anywhere(told: list[Raw], dice: Random) -> None:
    """System messages in the middle, where the provider takes them."""
    role = dice.choice(("system", "developer"))
    for at in range(len(told) - 1, 0, -1):
        if told[at].get("role") == "user" and dice.random() < 0.4:
            told.insert(at, {"role": role, "content": f"Rule {at}: never touch release {at}."})


def _summarize_blocks(told: list[Raw], dice: Random) -> None:
    """The provider's own compactions, in front of replies."""
    replies = [message for message in told if message["role"] == "assistant"]
    for number, message in enumerate(dice.sample(replies, min(len(replies), dice.randint(1, 2)))):
        words = dice.choice((f"Summary {number}: quux_{number} is 17.", f"cell_{number} holds.\n" * 400, "", None))
        block: Raw = {"type": "compaction", "content": words, **dice.choice(({}, {"signature": f"sealed_{number}"}))}
        held = message["content"]
        message["content"] = [block, *([{"type": "text", "text": held}] if isinstance(held, str) else held)]


def _summarize_items(told: list[Raw], dice: Random) -> None:
    """The provider's own compactions, which are sealed, in front of replies."""
    starts = [at for at in range(1, len(told)) if _begins_reply(told[at - 1], told[at])]
    for at in sorted(dice.sample(starts, min(len(starts), dice.randint(1, 2))), reverse=True):
        size = dice.choice((40, 400, 8_000))
        told.insert(at, {"type": "compaction", "id": f"cmp_{at}", "encrypted_content": f"{at}" * size})


def _begins_reply(before: Raw, item: Raw) -> bool:
    outer = ("user", "system", "developer")
    follows = before.get("role") in outer or str(before.get("type")).endswith("_output")
    return follows and item.get("role") not in outer and not str(item.get("type")).endswith("_output")


def _run_at_the_provider(told: list[Raw], dice: Random) -> None:
    """Tools that the provider runs itself, in front of replies without reasoning."""
    items = (
        {"type": "mcp_list_tools", "server_label": "docs", "tools": []},
        {"type": "code_interpreter_call", "code": "print(1)", "status": "completed", "outputs": []},
        {"type": "file_search_call", "queries": ["jwt"], "status": "completed", "results": None},
        {"type": "image_generation_call", "result": "iVBORw0KGgo=", "status": "completed"},
    )
    for at in range(len(told) - 1, 0, -1):
        if _begins_reply(told[at - 1], told[at]) and dice.random() < 0.3:
            told.insert(at, {**dice.choice(items), "id": f"own_{at}"})


def _mark_blocks(told: list[Raw], _dice: Random) -> None:
    """A cache mark at the end of every message of the user."""
    for message in told:
        if message["role"] == "user" and _blocks(message):
            _blocks(message)[-1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}


def _mark_with_points(told: list[Raw], _dice: Random) -> None:
    for message in told:
        if message["role"] == "user":
            message["content"].append({"cachePoint": {"type": "default"}})


def _thoughts_without_words(told: list[Raw], dice: Random) -> None:
    """The shape that newer models have: a signature, and nothing to read."""
    for message in told:
        for block in _blocks(message):
            if block.get("type") == "thinking":
                block["thinking"] = ""
                if dice.random() < 0.3:
                    del block["thinking"]
            text = (block.get("reasoningContent") or {}).get("reasoningText")
            if text:
                text["text"] = ""


def sign_anew(told: list[Raw]) -> None:
    """Every piece of reasoning with a signature of its own: a message that came twice was produced twice."""
    number = 0
    for message in told:
        for block in (*_blocks(message), *(message.get("parts") or ()), *(message.get("thinking_blocks") or ())):
            number += 1
            if block.get("type") == "thinking":
                block["signature"] = f"sig{number}=="
            elif block.get("type") == "redacted_thinking":
                block["data"] = f"sealed{number}=="
            for name in ("thoughtSignature", "thought_signature"):
                if name in block:
                    block[name] = f"sig{number}=="
            reasoning = block.get("reasoningContent") or {}
            if "redactedContent" in reasoning:
                reasoning["redactedContent"] = f"sealed{number}=="
            elif reasoning:
                reasoning["reasoningText"]["signature"] = f"sig{number}=="
        for block in message.get("reasoning_details") or ():
            number += 1
            block["data"] = f"sealed{number}=="


EMBELLISHMENTS: dict[str, tuple[Callable[[list[Raw], Random], None], ...]] = {
    "anthropic": (_thoughts_without_words, _summarize_blocks, _mark_blocks, _remind),
    "bedrock": (_thoughts_without_words, _mark_with_points),
    "gemini": (),
    "openai-chat": (_instruct_anywhere,),
    "openai-responses": (_run_at_the_provider, _summarize_items),
}


# Conversations that were recorded


def run_recorded(path: Path, tally: Tally, every: int = 1) -> None:
    """Every conversation of a file, or every so many, once in each layout, by the rules of the strictest model."""
    for number, transcript in enumerate(read_transcripts(path)):
        if number % every or not transcript.messages:
            continue
        history = deepcopy(transcript.messages)
        sign_anew(history)
        for layout in LAYOUTS:
            dice = Random(f"{path.name} {number} {layout}")
            ends = cuts_of(transcript.dialect, history, dice, dice.randint(1, MOST_LINKS))
            model = STRICTEST[transcript.dialect][0]
            name = f"{path.name}:{number + 1}"
            compact_chain(name, transcript.dialect, history, ends, model, layout, dice, tally)
        tally.counts[f"{path.name}: conversations"] += 1
