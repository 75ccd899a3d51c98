"""What is asked of a model and what it answers: requests, answers, JSON schemas, deadlines, cancelling and retries."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from context_compactor.errors import ModelError, ModelStopped
from context_compactor.tokens.prices import ModelUsage

_log = logging.getLogger("context_compactor")
_Shown = TypeVar("_Shown")
StopReason = Literal["complete", "length", "tool_call", "refusal", "other"]


class ModelMessage(Struct, frozen=True):
    """One message of a request."""

    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request. With `schema` the answer must be a JSON value of it.

    `prefix` are the conversation's own messages in the provider's dialect, sent first, so that its cache is reused, and
    `beside` is what the agent sends with them, such as tools: a cache is only read when that is the same too.
    """

    messages: tuple[ModelMessage, ...]
    max_tokens: int
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    prefix: tuple[dict[str, Any], ...] = ()
    beside: dict[str, Any] = {}


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """One answer. `value` is the parsed JSON when a schema was asked for."""

    text: str
    value: Any = None
    reasoning: str = ""
    tool_calls: int = 0
    stop: StopReason
    usage: ModelUsage = ModelUsage()
    model: str = ""


class ModelStep(Struct, frozen=True):
    """What happens while a model is at work: a request is sent, sent again after a wait, or answered.

    `number` is that of the call within the compaction, or of the attempt when it is sent again; `of` is how many there
    will be, as far as that is known.
    """

    kind: Literal["asked", "retried", "answered"]
    what: str
    number: int
    of: int
    reason: str = ""


class Control:
    """How long a call may take, how to end it, and who sees its text, its steps and its reasoning while it is written.

    Who sees them cannot stop the work: one that raises is told nothing more, and a warning is logged.
    """

    def __init__(
        self,
        deadline: float,
        cancel: Event,
        on_text: Callable[[str], None] | None = None,
        on_step: Callable[[ModelStep], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
    ) -> None:
        self.deadline = deadline
        self.cancel = cancel
        self.on_text = _safe_callback(on_text)
        self.on_step = _safe_callback(on_step)
        self.on_thought = _safe_callback(on_thought)

    def tell(self, step: ModelStep) -> None:
        """Show a step to whoever looks."""
        if self.on_step:
            self.on_step(step)


class _SafeCallback(Generic[_Shown]):
    def __init__(self, show: Callable[[_Shown], None]) -> None:
        self._show: Callable[[_Shown], None] | None = show

    def __call__(self, what: _Shown) -> None:
        try:
            if self._show:
                self._show(what)
        except Exception as error:  # noqa: BLE001 - it is somebody else's code and must not stop a compaction
            self._show = None
            _log.warning("showing what a model does failed and is given up: %s: %s", type(error).__name__, error)


def _safe_callback(show: Callable[[_Shown], None] | None) -> Callable[[_Shown], None] | None:
    return show if show is None or isinstance(show, _SafeCallback) else _SafeCallback(show)


_Result = TypeVar("_Result")


def with_retries(
    call: Callable[[], _Result],
    attempts: int,
    delay: float,
    control: Control,
    on_retry: Callable[[ModelError, float], None] | None = None,
) -> _Result:
    """The result of a call that is tried up to `attempts` times; the wait begins at `delay` seconds and doubles.

    Only an error that says `retry` is followed by another try, and not sooner than it asks. When the deadline would
    pass during a wait the error is raised at once; a cancel ends the wait. `on_retry` hears of each wait.
    """
    for attempt in range(attempts):
        raise_if_stopped(control)
        try:
            return call()
        except ModelError as error:
            pause = max(delay * 2**attempt, error.retry_after or 0.0)
            if not error.retry or attempt + 1 >= attempts or monotonic() + pause >= control.deadline:
                raise
            if on_retry:
                on_retry(error, pause)
        control.cancel.wait(pause)
    raise ValueError(f"attempts is {attempts}; it must be at least 1")


def raise_if_stopped(control: Control) -> None:
    """Raise `ModelStopped` once a call is cancelled or its deadline has passed."""
    if control.cancel.is_set():
        raise ModelStopped("cancelled")
    if monotonic() >= control.deadline:
        raise ModelStopped("the deadline has passed; deadline_seconds sets it")


_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.S | re.I)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def schema_prompt(schema: dict[str, Any]) -> str:
    """A schema as a sentence, for models that cannot be held to one."""
    return f"Answer with one JSON value of this schema and nothing else:\n{json.dumps(schema, ensure_ascii=False)}"


def read_json(text: str, schema: dict[str, Any]) -> Any:
    """The JSON value in a text, or None when it holds none or one that is not of the schema."""
    fenced = _FENCED.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
    return value if matches_schema(value, schema, schema) else None


def matches_schema(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is of a schema: types, enumerations, required and known members, items, alternatives."""
    if "$ref" in schema:
        return matches_schema(value, _resolve(schema["$ref"], root), root)
    if any(choices in schema for choices in ("anyOf", "oneOf")):
        return any(matches_schema(value, choice, root) for choice in schema.get("anyOf") or schema["oneOf"])
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return False
    return _is_type(value, schema.get("type")) and _members_fit(value, schema, root)


def is_closed(schema: Any) -> bool:
    """Whether every object of a schema requires all its members and allows no other, as strict providers demand."""
    if isinstance(schema, list):
        return all(is_closed(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    members = schema.get("properties")
    is_object = schema.get("type") == "object" or members is not None
    is_open = schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(members or ())
    return not (is_object and is_open) and all(is_closed(part) for part in schema.values())


def _resolve(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return dict(found)


def _is_type(value: Any, wanted: str | list[str] | None) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, list):
        return any(_is_type(value, one) for one in wanted)
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _members_fit(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if isinstance(value, list):
        return all(matches_schema(item, schema.get("items") or {}, root) for item in value)
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    other = schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value) or (other is False and not set(value) <= set(known)):
        return False
    rest = other if isinstance(other, dict) else {}
    return all(matches_schema(member, known.get(name, rest), root) for name, member in value.items())
