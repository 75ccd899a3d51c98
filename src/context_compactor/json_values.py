"""JSON values: written compactly and read back equal, copied, made from the objects of SDKs, read under former
names, and the types of this package made ready to be read by threads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isnan
from threading import Lock
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import force_setattr

_LARGE = 1 << 16
_MOST_INT = 1 << 63


def json_text(value: Any) -> str:
    """The value as compact JSON. Lone surrogates are escaped, values JSON does not know are written as text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _odd_json_text(value)


def _odd_json_text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), default=_builtins, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(f"<{type(value).__name__} that is not JSON>")


def _builtins(value: Any) -> Any:
    """What Python's own writer does not know, as it would have been written without half a character beside it."""
    return msgspec.to_builtins(value, enc_hook=str)


def json_bytes(value: Any) -> bytes:
    """The value as compact JSON that `read_json` makes equal again, or `ValueError` when there is no such JSON."""
    try:
        content = msgspec.json.encode(value)
        if (len(content) > _LARGE and _is_plain(value)) or msgspec.json.decode(content) == value:
            return content
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # half a character, or a number that only Python's own reader takes
    try:
        content = json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not _is_equal(read_json(content), value):
        raise ValueError("not JSON: a key that is not text")
    return content


def _is_plain(value: Any) -> bool:
    """Whether a value that was written comes back equal for sure: reading a large one back stops all other threads."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    if kind is list:
        return all(map(_is_plain, value))
    return kind in (str, bool, type(None)) or (kind is int and abs(value) < _MOST_INT)


def _is_equal(read: Any, value: Any) -> bool:
    """Whether a value came back as it was; tuples come back as lists, and a NaN is never equal to itself."""
    if isinstance(value, dict) and isinstance(read, dict):
        return read.keys() == value.keys() and all(_is_equal(read[key], inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)) and isinstance(read, list):
        return len(read) == len(value) and all(map(_is_equal, read, value))
    return bool(read == value) or (
        isinstance(value, float) and isnan(value) and isinstance(read, float) and isnan(read)
    )


def read_json(content: bytes) -> Any:
    """The value behind JSON that `json_bytes` has written."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(content)


def copy_containers(value: Any) -> Any:
    """The same JSON value with new dictionaries and lists; texts and numbers are shared."""
    if isinstance(value, dict):
        return {key: copy_containers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_containers(inner) for inner in value]
    return value


def plain_value(value: Any) -> Any:
    """The value with plain dictionaries in the place of an SDK's objects; itself where it holds none.

    An object has `model_dump`, as those of OpenAI, Anthropic and Google and all models of Pydantic have, or `to_dict`.
    Fields that are None are left out, and those that the SDK would not send. What is neither JSON nor such an object
    stays as it is.
    """
    return _plain_copy(value) if _holds_object(value) else value


_LEAVES = frozenset({str, int, float, bool, type(None), bytes})


def _holds_object(value: Any) -> bool:
    if type(value) in _LEAVES:
        return False
    if isinstance(value, dict):
        return any(map(_holds_object, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_object, value))
    return isinstance(value, Mapping) or is_dumpable(value)


def is_dumpable(value: Any) -> bool:
    """Whether a value is an object that can say what it is as a dictionary; its class cannot."""
    return not isinstance(value, type) and (hasattr(value, "model_dump") or hasattr(value, "to_dict"))


def _plain_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain_copy(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_copy(inner) for inner in value]
    return dumped(value) if is_dumpable(value) else value


def dumped(value: Any) -> Any:
    """What an object says that it is; `ValueError` when that fails."""
    try:
        if not hasattr(value, "model_dump"):
            return plain_value(value.to_dict())
        unsent = getattr(value, "__api_exclude__", None)
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=unsent)
    except Exception as problem:  # whatever another library raises, the caller must learn which object it was
        raise ValueError(f"{type(value).__name__} cannot be written as a dictionary: {problem}") from problem


_PACKAGE = __name__.partition(".")[0]
_lock = Lock()


def prepare_types() -> None:
    """Have every type of this package that is loaded learned now. Call it before threads begin to read.

    A thread that comes upon a type which another one is just learning can bring the whole process down.
    """
    with _lock:
        for kind in set(_subclasses(Struct)):
            if kind.__module__.partition(".")[0] == _PACKAGE:
                with suppress(TypeError, NameError):  # it holds what no text can say, and is never read from one
                    msgspec.json.Decoder(kind)


def _subclasses(kind: type[Struct]) -> Iterator[type[Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


class FormerNames(Struct, frozen=True, kw_only=True):
    """Reads the JSON field `told_by`, as `summarized_by` was called before, and never writes it."""

    former_summarized_by: str | UnsetType = field(default=UNSET, name="told_by")

    def __post_init__(self) -> None:
        if self.former_summarized_by is not UNSET:
            force_setattr(self, "summarized_by", self.former_summarized_by)
            force_setattr(self, "former_summarized_by", UNSET)

    @property
    def told_by(self) -> Any:
        """Deprecated: `summarized_by`."""
        warnings.warn("told_by is deprecated; use summarized_by", DeprecationWarning, stacklevel=2)
        return getattr(self, "summarized_by")  # noqa: B009  each subclass has it
