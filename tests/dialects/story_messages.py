"""Generated stories as messages of Gemini and of Bedrock; `strategies` has those of the other dialects."""

from __future__ import annotations

import base64

from tests.dialects.strategies import Beat, Call, Raw

POINT: Raw = {"cachePoint": {"type": "default"}}


def gemini_messages(beat: Beat, number: int) -> list[Raw]:
    """Every second beat in the names of the Python SDK; the first call of a step is signed, as Gemini 3 wants it."""
    told = _gemini(beat, number)
    return [_in_snake_case(raw) for raw in told] if number % 2 else told


def _gemini(beat: Beat, number: int) -> list[Raw]:
    if beat.kind == "instructions":
        return [{"role": "system", "parts": [{"text": beat.text}]}] if beat.shape else []
    if beat.kind == "question":
        return [{"role": "user", "parts": _gemini_question(beat)}]
    thoughts = _gemini_thinking(beat, number)
    if beat.kind == "answer":
        return [{"role": "model", "parts": [*thoughts, *_gemini_answer(beat, number)]}]
    said = [{"text": beat.text}] if beat.text else []
    calls: list[Raw] = [{"functionCall": _gemini_call(call)} for call in beat.calls]
    calls[0]["thoughtSignature"] = f"sig{number}=="
    told: list[Raw] = [{"role": "model", "parts": [*thoughts, *said, *calls]}]
    if beat.answered:
        responses = [{"functionResponse": _gemini_response(call)} for call in beat.calls]
        told.append({"role": "function" if beat.shape == 3 else "user", "parts": responses})
        if beat.extra and beat.shape == 1:
            told.append({"role": "user", "parts": [{"text": beat.extra}]})
        elif beat.extra:
            told[-1]["parts"].append({"text": beat.extra})
    return told


def _gemini_question(beat: Beat) -> list[Raw]:
    text: Raw = {"text": beat.text}
    image = {"inlineData": {"mimeType": "image/png", "data": beat.picture}}
    file = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/files/spec"}}
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}
    unknown = {"videoAnnotation": {"deep": [1, None]}}
    return [[text], [text, {"text": "More."}], [image, text], [file, text], [sound, text], [unknown, text]][beat.shape]


def _gemini_thinking(beat: Beat, number: int) -> list[Raw]:
    thought: Raw = {"text": f"I think {number}.", "thought": True}
    return {
        "none": [],
        "plain": [thought],
        "signed": [thought | {"thoughtSignature": f"thought{number}=="}],
        "sealed": [{"text": "", "thoughtSignature": f"sealed{number}=="}],
    }[beat.thinking]


def _gemini_answer(beat: Beat, number: int) -> list[Raw]:
    ran: list[Raw] = [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
    ]
    signed: Raw = {"text": beat.text, "thoughtSignature": f"text{number}=="}
    return {4: [*ran, {"text": beat.text}], 5: [signed]}.get(beat.shape, [{"text": beat.text}])


def _gemini_call(call: Call) -> Raw:
    told: Raw = {"name": call.name, "args": call.arguments}
    return told if call.bare else {"id": call.id, **told}


def _gemini_response(call: Call) -> Raw:
    told: Raw = {"name": call.name, "response": {"error" if call.failed and call.output else "output": call.output}}
    if call.as_blocks and not call.failed:
        told["response"] = {"stdout": call.output, "exit_code": 0}
    if call.pictures:
        told["parts"] = [{"inlineData": {"mimeType": "image/png", "data": data}} for data in call.pictures]
    return told if call.bare or call.custom else {"id": call.id, **told}


SNAKE_CASE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "thoughtSignature": "thought_signature",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "executableCode": "executable_code",
    "codeExecutionResult": "code_execution_result",
}


def _in_snake_case(value: Raw) -> Raw:
    return {
        SNAKE_CASE.get(key, key): _in_snake_case(held)
        if isinstance(held, dict)
        else [_in_snake_case(each) if isinstance(each, dict) else each for each in held]
        if isinstance(held, list)
        else held
        for key, held in value.items()
    }


def bedrock_messages(beat: Beat, number: int) -> list[Raw]:
    """Only the first beats are marked: at most four cache points are taken."""
    if beat.kind == "instructions":
        return [{"role": "system", "content": [{"text": beat.text}]}] if beat.shape else []
    mark = [POINT] if beat.marked and number < 3 else []
    if beat.kind == "question":
        return [{"role": "user", "content": [*_bedrock_question(beat), *mark]}]
    thoughts = _bedrock_thinking(beat, number)
    if beat.kind == "answer":
        return [{"role": "assistant", "content": [*thoughts, *_bedrock_answer(beat)]}]
    said = [{"text": beat.text}] if beat.text else []
    calls = [{"toolUse": {"toolUseId": it.id, "name": it.name, "input": it.arguments}} for it in beat.calls]
    told: list[Raw] = [{"role": "assistant", "content": [*thoughts, *said, *calls]}]
    if beat.answered:
        results = [{"toolResult": _bedrock_result(call)} for call in beat.calls]
        # Another user message may not follow.
        after = [{"text": beat.extra}] if beat.extra else []
        told.append({"role": "user", "content": [*results, *mark, *after]})
    return told


def _bedrock_question(beat: Beat) -> list[Raw]:
    text: Raw = {"text": beat.text}
    image = {"image": {"format": "png", "source": {"bytes": beat.picture}}}
    document = {"document": {"format": "txt", "name": "Spec", "source": {"text": "a"}}}
    remote = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}}
    found = {"searchResult": {"source": "https://example.com", "title": "A page", "content": [{"text": "words"}]}}
    guarded = {"guardContent": {"text": {"text": "Guarded words.", "qualifiers": ["query"]}}}
    return [[text], [text, guarded], [image, text], [document, text, remote], [found, text], [{"new": {}}, text]][
        beat.shape
    ]


def _bedrock_thinking(beat: Beat, number: int) -> list[Raw]:
    spoken: Raw = {"text": f"I think {number}."}
    sealed = base64.b64encode(f"sealed{number}".encode()).decode()
    return {
        "none": [],
        "plain": [{"reasoningContent": {"reasoningText": spoken}}],
        "signed": [{"reasoningContent": {"reasoningText": spoken | {"signature": f"sig{number}=="}}}],
        "sealed": [{"reasoningContent": {"redactedContent": sealed}}],
    }[beat.thinking]


def _bedrock_answer(beat: Beat) -> list[Raw]:
    if beat.shape == 4:
        return [{"citationsContent": {"content": [{"text": beat.text}], "citations": []}}]
    return [{"text": beat.text}, *([{"text": beat.extra}] if beat.extra else [])]


def _bedrock_result(call: Call) -> Raw:
    told: Raw = {"toolUseId": call.id, "content": [{"text": call.output}] if call.output.strip() else []}
    if call.as_blocks:
        told["content"] = [{"json": {"stdout": call.output, "exit_code": int(call.failed)}}]
    told["content"] += [{"image": {"format": "png", "source": {"bytes": data}}} for data in call.pictures]
    return told | ({"status": "error"} if call.failed else {"status": "success"} if call.bare else {})
