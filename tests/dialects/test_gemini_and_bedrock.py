"""What Gemini and Bedrock have in common: each of their rules is found and mended, and they work on every surface."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from context_compactor import compact
from context_compactor.dialects.detection import DIALECTS, detect, dialect_of_request
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.messages import Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.repair import repair
from context_compactor.dialects.transcripts.reader import parse_transcript
from tests.cli.conftest import run  # noqa: F401
from tests.dialects.broken_bedrock import BEDROCK
from tests.dialects.broken_gemini import GEMINI
from tests.engine import promises
from tests.engine.talks import bash, read, talk_in
from tests.sessions.talk import opened

Raw = dict[str, Any]
NAMES = ("gemini", "bedrock")
BROKEN = [*GEMINI, *BEDROCK]
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "dev"

each = pytest.mark.parametrize("name", NAMES)
each_broken = pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.dialect}-{broken.rule}")


def conversation(name: str, rounds: int = 20) -> list[Raw]:
    talk = talk_in(name).system("You fix programs.")
    for at in range(rounds):
        lines = "\n".join(f"def part_{at}_{line}(value): return value + {line}" for line in range(40))
        talk.user(f"Look at part {at} and tell me what `part_{at}_7` adds.")
        talk.step(read(f"src/part_{at}.py", lines), read(f"src/other_{at}.py", lines), text="I read both.")
        talk.step(bash(f"pytest -k part_{at}", "Exit code 1\nE   AssertionError", failed=True))
        talk.answer(f"`part_{at}_7` in src/part_{at}.py adds 7.")
    return talk.user("Now write the release notes.").messages


# Rules --------------------------------------------------------------------------------------------------------


@each_broken
def test_a_history_that_breaks_one_rule_is_rejected_for_that_one_alone(broken):
    dialect = DIALECTS[broken.dialect].for_model(broken.model)
    before = None if broken.before is None else dialect.parse(broken.before)
    found = find_violations(dialect.parse(broken.messages), dialect, before)
    assert {problem.rule for problem in found} == {broken.rule}


@each_broken
def test_a_history_that_breaks_one_rule_is_made_legal(broken):
    dialect = DIALECTS[broken.dialect].for_model(broken.model)
    before = deepcopy(broken.messages)
    repaired, log = repair(dialect.parse(broken.messages), dialect)
    assert broken.messages == before
    if broken.rule in ("media", "thinking"):
        assert log == []
        return
    assert log
    assert find_violations(repaired, dialect) == []
    assert repair(repaired, dialect) == (repaired, [])


@each
def test_every_rule_has_a_history_that_breaks_it(name):
    general = {"missing-result", "repeated-id", "orphan-result", "repeated-result"}
    named = {broken.rule for broken in BROKEN if broken.dialect == name and broken.before is None}
    assert general < named
    # `block-order`, `alternation` and `empty` are one rule each; two rules are named `alternation` for Bedrock.
    own = {"gemini": 8, "bedrock": 10}
    assert len(DIALECTS[name].rules) == own[name]
    assert len(named - general) == own[name] - (1 if name == "bedrock" else 0)


# Round trips --------------------------------------------------------------------------------------------------


@each
def test_what_goes_in_comes_out(name):
    messages = conversation(name)
    before = deepcopy(messages)
    assert detect(messages).name == name
    assert [message.raw for message in DIALECTS[name].parse(messages)] == before
    assert compact(messages, window=10_000_000).messages == before


@each
@pytest.mark.parametrize("layout", ["tail", "record"])
def test_a_chain_of_compactions_stays_in_the_dialect_and_is_legal(name, layout):
    messages = conversation(name)
    for target in (6_000, 3_500, 2_500):
        result = compact(messages, target_tokens=target, layout=layout)
        assert result.report.status == "success"
        assert promises.illegal(result, name) == []
        assert promises.parsed(result.messages, name)[-1].parts[-1] == Text("Now write the release notes.")
        more = talk_in(name).answer("Which ones?").user("Those of `part_3_7`.")
        messages = [*result.messages, *more.step(read("notes.md", "words\n" * 200)).answer("So.").messages]
        messages += talk_in(name).user("Now write the release notes.").messages


@each
def test_what_left_the_context_is_recalled_as_it_was(name):
    messages = conversation(name)
    result = compact(messages, target_tokens=4_000)
    assert promises.not_recalled(messages, result, name) == []
    text = result.recall("file_004")
    assert text.startswith("def part_1_0(value): return value + 0\n")


@each
def test_a_session_keeps_its_dialect_when_it_is_opened_again(name, tmp_path):
    messages = conversation(name, 8)
    with opened(tmp_path, window=8_000) as session:
        for message in messages:
            session.append(message)
        assert session.compact().status == "success"
    with opened(tmp_path, window=8_000) as session:
        context = session.context()
        assert find_violations(DIALECTS[name].parse(context), DIALECTS[name]) == []
        assert session.history() == messages
        assert "part_2_39" in session.recall("file_004") + session.recall("file_007")
        assert "release notes" in str(session.handoff())


@each
def test_the_command_line_compacts_a_file_and_a_request_of_it(name, run, tmp_path):  # noqa: F811
    messages = conversation(name)[1:]
    for number, value in enumerate((messages, request(name, messages))):
        file = tmp_path / f"talk{number}.json"
        file.write_text(json.dumps(value))
        ran = run("compact", file, "--target", "5k", "--output", tmp_path / "short.json")
        assert ran.code == 0, ran
        short = json.loads((tmp_path / "short.json").read_text())
        assert detect(short).name == name
        assert find_violations(DIALECTS[name].parse(short), DIALECTS[name]) == []


# Requests -----------------------------------------------------------------------------------------------------


def request(name: str, messages: list[Raw]) -> Raw:
    """A whole request as it goes over the wire."""
    schema = {"type": "object", "properties": {"file_path": {"type": "string"}}}
    if name == "gemini":
        tool: Raw = {"functionDeclarations": [{"name": "Read", "parameters": schema}]}
        return {
            "contents": messages,
            "systemInstruction": {"parts": [{"text": "You fix programs."}]},
            "tools": [tool],
            "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
            "generationConfig": {"temperature": 1.0},
        }
    return {
        "modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "messages": messages,
        "system": [{"text": "You fix programs."}, {"cachePoint": {"type": "default"}}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "Read", "inputSchema": {"json": schema}}}]},
        "inferenceConfig": {"maxTokens": 1000},
    }


@each
def test_a_request_is_known_with_its_instructions_and_tools(name):
    body = request(name, conversation(name)[1:])
    transcript = parse_transcript(json.dumps(body))
    assert (transcript.dialect, transcript.messages) == (name, conversation(name)[1:])
    assert transcript.system[0] == {"text": "You fix programs."}
    assert "Read" in json.dumps(transcript.tools)
    assert len(transcript.tools) == 1
    found = [dialect.name for dialect in DIALECTS.values() if dialect.recognizes_request(body)]
    assert found == [name]


def test_a_plain_bedrock_request_with_instructions_is_not_taken_for_anthropics():
    body = {"system": [{"text": "Be brief."}], "messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    assert dialect_of_request(body) is DIALECTS["bedrock"]
    typed = {"system": "Be brief.", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    assert dialect_of_request(typed) is DIALECTS["anthropic"]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"role": "user", "parts": [{"text": "hi"}]}, "gemini"),
        ({"parts": [{"text": "hi"}]}, "gemini"),
        ({"role": "user", "content": [{"text": "hi"}]}, "bedrock"),
        ({"role": "user", "content": [{"cachePoint": {"type": "default"}}]}, "bedrock"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, ""),
        ({"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}, ""),
        ({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}, ""),
    ],
)
def test_only_one_dialect_recognizes_a_message(item, name):
    assert [dialect.name for dialect in DIALECTS.values() if dialect.recognizes(item)] == ([name] if name else [])


# Real conversations -------------------------------------------------------------------------------------------


def converted(conversation: Raw, name: str) -> list[Raw]:
    """A recorded conversation in another dialect."""
    source = DIALECTS["anthropic" if conversation["schema"] == "anthropic" else "openai-chat"]
    target = DIALECTS[name]
    found: list[Raw] = []
    names: dict[str, str] = {}
    for message in repair(source.parse(conversation["messages"]), source)[0]:
        blocks = [block for part in message.parts for block in blocks_of(part, name, names)]
        if blocks:
            role = {"assistant": "model" if name == "gemini" else "assistant", "system": "system"}.get(message.role)
            found.append({"role": role or "user", "parts" if name == "gemini" else "content": blocks})
    return [message.raw for message in repair(target.parse(found), target)[0]]


def blocks_of(part: object, name: str, names: dict[str, str]) -> list[Raw]:
    match part:
        case Text(text) if text.strip():
            return [{"text": text}]
        case Thinking(text) if name == "bedrock" and text:
            return [{"reasoningContent": {"reasoningText": {"text": text, "signature": "c2ln"}}}]
        case Thinking(text) if text:
            return [{"text": text, "thought": True}]
        case ToolCall(call_id, called, arguments):
            names[call_id] = called
            args = arguments_of(arguments)
            if name == "gemini":
                return [{"functionCall": {"name": called, "args": args}, "thoughtSignature": "c2ln"}]
            return [{"toolUse": {"toolUseId": call_id, "name": called, "input": args}}]
        case ToolResult(call_id, text) if name == "gemini":
            return [{"functionResponse": {"name": names.get(call_id, "lost"), "response": {"output": text}}}]
        case ToolResult(call_id, text):
            return [{"toolResult": {"toolUseId": call_id, "content": [{"text": text}] if text.strip() else []}}]
    return []


def arguments_of(text: str) -> Raw:
    try:
        value = json.loads(text)
    except ValueError:
        return {"input": text}
    return value if isinstance(value, dict) else {"input": value}


FILES = ("claude_code_entireio.jsonl.gz", "mini_swe_deepseek_chat.jsonl.gz", "tau_airline_gpt4o.jsonl.gz")


@pytest.mark.skipif(not CORPUS.exists(), reason="the development corpus is not beside the repository")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("layout", ["tail", "record"])
@each
def test_real_conversations_are_legal_after_one_to_three_compactions(name, layout, file):
    with gzip.open(CORPUS / file, "rt", encoding="utf-8") as lines:
        told = [converted(json.loads(line), name) for line in islice(lines, 1)]
    for messages in told:
        step = max(len(messages) // 3, 1)
        context: list[Raw] = []
        for first in range(0, 3 * step, step):
            context = [*context, *messages[first : first + step if first < 2 * step else None]]
            target = max(promises.tokens_of(context, name) // 3, 500)
            result = compact(context, target_tokens=target, layout=layout, dialect=name)
            assert promises.illegal(result, name) == []
            assert promises.misfit(context, result, target, name) == []
            context = result.messages
