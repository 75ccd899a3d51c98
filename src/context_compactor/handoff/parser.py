"""Requests and responses of a handoff, parsed from what sub-agents really write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

from context_compactor.dialects.dialect import kind_of_value
from context_compactor.engine.digests.test_runs import digest_test_run
from context_compactor.errors import BadInput
from context_compactor.facts.outputs import ToolOutput
from context_compactor.handoff.context_summary import clean_summary
from context_compactor.handoff.protocol import Decision, HandoffRequest, HandoffResponse, SubAgentRegister, bad_field

STATUS_WORDS = (
    dict.fromkeys("success succeeded successful completed done ok finished passed ✓ ✅".split(), "complete")
    | dict.fromkeys("incomplete partially partial_success in_progress".split(), "partial")
    | dict.fromkeys("failure fail error errored ✗ ❌".split(), "failed")
    | dict.fromkeys("needs_input waiting".split(), "blocked")
)
# The form has no decision of its own: it follows from the status unless one is written.
_DECISION_OF = {"complete": "PROCEED", "partial": "CLARIFY", "blocked": "CLARIFY", "failed": "STOP"}
_KNOWN = (
    "task id|status|phase|decision|summary|files (?:modified|changed|created)|recommendations|tokens used|test results"
)
_LABEL = re.compile(
    r"^[ \t]{0,3}(?:[-*+][ \t]{1,3})?(?:\*\*([A-Za-z][\w /-]{0,40}?)(?::\*\*|\*\*[ \t]{0,3}:)"
    rf"|#{{2,6}}[ \t]+([A-Za-z][\w /-]{{0,40}})$|((?i:{_KNOWN}))[ \t]{{0,3}}:)[ \t]*",
    re.MULTILINE,
)
_BULLET = re.compile(r"^[ \t]{0,6}(?:[-*+•]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
_SINGLE = ("task_id", "status", "phase", "decision", "tokens_used")
_TITLE = "task_result"
_TESTS = 3


def task_result_fields(text: str) -> dict[str, Any] | None:
    """The fields of a Task Result, or None when the text is not one."""
    labels = _labels(text)
    if "status" not in labels or not ("task_id" in labels or "summary" in labels):
        return None
    fields: dict[str, Any] = {
        name: labels[name].partition("\n")[0].partition("|")[0].strip(" *`") for name in _SINGLE if labels.get(name)
    }
    status = str(fields.get("status", "")).lower()
    fields.setdefault("decision", _DECISION_OF.get(STATUS_WORDS.get(status, status), ""))
    findings = {name: _items(body) for name, body in labels.items() if name not in (*_SINGLE, _TITLE)}
    return fields | {"findings": findings, "context_summary": _summary(labels)}


def _labels(text: str) -> dict[str, str]:
    found = list(_LABEL.finditer(text))
    ends = [*(each.start() for each in found), len(text)][1:]
    bodies: dict[str, str] = {}
    for label, end in zip(found, ends, strict=True):
        name = "_".join((label[1] or label[2] or label[3]).lower().split())
        bodies.setdefault(name, text[label.end() : end].strip())
    return bodies


def _items(body: str) -> str | list[str]:
    """A list as its items, everything else as it is."""
    if not _BULLET.match(body):
        return body
    return [item.strip() for item in _BULLET.split(body) if item.strip()]


def _summary(labels: dict[str, str]) -> str:
    """Summary, files, how tests ended, recommendations: what the short form of a Task Result shows."""
    shown = [labels.get("summary", "")]
    for name, body in labels.items():
        if name.startswith("files") and body:
            items = _items(body)
            shown.append(f"Files: {', '.join(items) if isinstance(items, list) else items}")
        elif name.startswith("test") and body:
            shown.append(f"Tests: {'; '.join(digest_test_run(None, ToolOutput(body))[:_TESTS])}")
        elif name in ("recommendations", "blockers", "errors", "questions", "next_steps") and body:
            shown.append(f"{name.replace('_', ' ').capitalize()}:\n{body}")
    return "\n".join(filter(None, shown))


_Message = TypeVar("_Message", HandoffRequest, HandoffResponse)

_RESPONSE_FIELDS = frozenset(HandoffResponse.__struct_fields__)
# Two of these say that an object is meant as a message.
_TELLING = frozenset(("task_id", "phase", "decision", "context_summary"))
_MOST_TRIES = 200
_MOST_DIGITS = 15
_LARGEST = 10**_MOST_DIGITS
_USED = re.compile(r"\btotal_tokens:\s{0,4}(\d{1,12})\b")
_TRAILER = re.compile(r"\n(?:agentId: [^\n]{0,300}|<usage>)[\s\S]{0,1000}\Z")


class Parsed(Struct, Generic[_Message], frozen=True):
    """A message, what came as it came, and what the rules left out of its `context_summary`."""

    message: _Message
    raw: Any
    left_out: tuple[str, ...] = ()


def read_response(
    answer: object, request: HandoffRequest | None = None, *, known: SubAgentRegister | None = None
) -> Parsed[HandoffResponse]:
    """A sub-agent's answer in any of the known forms. `request` fills in the task and phase where the answer has none.

    Without one, the register of sub-agents does so; an answer that names no task is that of the only one that runs.
    Its `context_summary` is brought under the limit by rule. Raises `BadInput`, which names the field.
    """
    raw = answer.to_dict() if isinstance(answer, HandoffResponse) else answer
    fields = dict(_fields("response", raw))
    if request is not None:
        fields = {"task_id": request.task_id, "phase": request.phase} | fields
    fields = _with_asked(fields, known or SubAgentRegister())
    _need("response", fields, ("task_id", "phase", "status", "decision", "context_summary"))
    summary = clean_summary(_summary_text("response", fields["context_summary"]))
    response = HandoffResponse(
        task_id=_id(fields["task_id"]),
        phase=_small(fields["phase"]),
        status=_status(fields["status"]),
        decision=_capital(fields["decision"]),
        findings=_findings(fields),
        context_summary=summary.text,
        tokens_used=_number(fields.get("tokens_used")),
    )
    if request is not None and response.task_id != request.task_id:
        raise bad_field(
            "response", "task_id", f"{response.task_id!r} was not asked for; the task is {request.task_id!r}"
        )
    return Parsed(response, raw, summary.left_out)


def read_report(report: str, request: HandoffRequest, decision: Decision = "PROCEED") -> Parsed[HandoffResponse]:
    """The answer of a sub-agent that knows no protocol: whoever asked says what is decided; the rules do the rest."""
    if not report.strip():
        raise bad_field("response", "findings", "the report is empty")
    used = _USED.search(report, max(0, len(report) - 1_000))
    body = _TRAILER.sub("", report)
    summary = clean_summary(body if body.strip() else report)
    response = HandoffResponse(
        task_id=request.task_id,
        phase=request.phase,
        status="complete" if decision == "PROCEED" else "blocked",
        decision=decision,
        findings={"report": report},
        context_summary=summary.text,
        tokens_used=int(used[1]) if used else None,
    )
    return Parsed(response, report, summary.left_out)


def read_request(message: object) -> Parsed[HandoffRequest]:
    """A request from a dictionary or from JSON text, by itself or among prose; held to the same limit."""
    raw = message.to_dict() if isinstance(message, HandoffRequest) else message
    fields = _fields("request", raw)
    _need("request", fields, ("task_id", "phase", "task"))
    summary = clean_summary(_summary_text("request", fields.get("context_summary") or ""))
    request = HandoffRequest(
        task_id=_id(fields["task_id"]),
        phase=_small(fields["phase"]),
        task=fields["task"],
        context_summary=summary.text,
        constraints=_texts(fields.get("constraints")),
        files=_texts(fields.get("files")),
        references=_texts(fields.get("references")),
        feature=fields.get("feature") or "",
        spec_path=fields.get("spec_path") or "",
    )
    return Parsed(request, raw, summary.left_out)


def _fields(message: str, raw: object) -> Mapping[str, Any]:
    if isinstance(raw, dict):
        return _message_in(raw) or {str(key): value for key, value in raw.items()}
    if not isinstance(raw, str):
        raise BadInput(f"handoff {message}: expected an object or a text, got {kind_of_value(raw)}")
    objects = list(_objects(raw))
    found = next((fields for each in objects if (fields := _message_in(each))), None)
    if found is None and message == "response":
        found = task_result_fields(raw)
    if found is None and objects and raw.lstrip().startswith("{"):
        return objects[0]
    if found is None:
        shown = " ".join(raw[:200].split())[:60]
        hint = "; read_report reads a report without a form" if message == "response" else ""
        raise BadInput(f"handoff {message}: no JSON object with task_id and phase in the text {shown!r}{hint}")
    return found


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, whatever stands around them."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    at = text.find("{")
    for _ in range(_MOST_TRIES):
        if at < 0:
            return
        end = at + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        at = text.find("{", end)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _message_in(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    """The object itself, or the one inside of it, that is meant as a message."""
    for each in (value, *value.values()):
        if isinstance(each, Mapping) and len(_TELLING.intersection(each)) > 1:
            return {str(key): inner for key, inner in each.items()}
    return None


def _with_asked(fields: dict[str, Any], known: SubAgentRegister) -> dict[str, Any]:
    """The fields with the task and its phase, where only whoever asked knows them."""
    if fields.get("task_id") is None and len(known.running) == 1:
        fields = fields | {"task_id": known.running[0].id}
    phases = {agent.id: agent.phase for agent in known.agents if agent.phase}
    phase = phases.get(str(_id(fields.get("task_id"))))
    return fields | {"phase": phase} if phase and fields.get("phase") is None else fields


def _need(message: str, fields: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if fields.get(name) is None:
            raise bad_field(message, name, "is missing")


def _id(value: object) -> Any:
    """Some number their tasks."""
    return str(value) if type(value) is int and abs(value) < _LARGEST else value


def _small(value: object) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _capital(value: object) -> Any:
    return value.strip().strip("*`.!").upper() if isinstance(value, str) else value


def _status(value: object) -> Any:
    word = _small(value)
    return STATUS_WORDS.get(word, word) if isinstance(word, str) else word


def _number(value: object) -> Any:
    """A number of tokens; people write it with separators."""
    plain = value.replace(",", "").replace("_", "").strip() if isinstance(value, str) else ""
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < _MOST_DIGITS else value


def _texts(value: object) -> Any:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else value


def _summary_text(message: str, value: object) -> str:
    """The summary as one text; a list becomes one line for each item."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(f"- {each}" for each in value)
    if not isinstance(value, str):
        raise bad_field(message, "context_summary", f"must be a text, not {kind_of_value(value)}")
    return value


def _findings(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, and beside it whatever else the answer says: nothing of it is thrown away."""
    found = fields.get("findings")
    more = {name: value for name, value in fields.items() if name not in _RESPONSE_FIELDS}
    if found is None:
        return more
    return more | ({str(key): value for key, value in found.items()} if isinstance(found, dict) else {"report": found})
