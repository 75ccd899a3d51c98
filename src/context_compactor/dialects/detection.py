"""The known dialects, how one more is registered, and which one a list of messages is written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from context_compactor.dialects.anthropic import Anthropic
from context_compactor.dialects.bedrock import Bedrock
from context_compactor.dialects.dialect import Dialect
from context_compactor.dialects.gemini import Gemini
from context_compactor.dialects.openai_chat import OpenAIChat
from context_compactor.dialects.openai_responses import OpenAIResponses
from context_compactor.errors import BadSetting
from context_compactor.extensions import DIALECT_GROUP, extension_names, load_extension

# Messages that none of the others recognizes are taken for chat.
_PLAIN: Dialect = OpenAIChat()
_BUILT_IN: tuple[Dialect, ...] = (_PLAIN, OpenAIResponses(), Anthropic(), Gemini(), Bedrock())
_MEMBERS = (*Dialect.__annotations__, *(name for name in vars(Dialect) if callable(getattr(Dialect, name))))
_NEEDED = tuple(name for name in _MEMBERS if not name.startswith("_"))

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _BUILT_IN}


def register_dialect(dialect: Dialect) -> None:
    """Make one more dialect known under its name, for this process.

    It is asked whether it recognizes a message before those that are built in. Raises `BadSetting` for one that lacks
    a member, so that no rule of its provider is lost without a word.
    """
    name = getattr(dialect, "name", None)
    shown = repr(name) if isinstance(name, str) and name else type(dialect).__name__
    lacking = [member for member in _NEEDED if not hasattr(dialect, member)]
    if lacking:
        raise BadSetting(
            f"the dialect {shown} lacks {', '.join(lacking)}; see context_compactor.dialects.dialect.Dialect"
        )
    if not isinstance(name, str) or not name or name == "auto":
        raise BadSetting(f"a dialect cannot be named {name!r}; use a name such as 'my-provider'")
    known = DIALECTS.get(name)
    if known is not None and type(known) is not type(dialect):
        raise BadSetting(f"there is a dialect {name!r} already; use another name")
    lists: tuple[object, ...] = (dialect.rules, dialect.repairs)
    if not dialect.repairs or not all(isinstance(each, tuple) for each in lists):
        raise BadSetting(
            f"the dialect {name!r} needs a tuple of rules, and one of repairs that is not empty; "
            "begin with repairs = (rename_repeated, results_behind_calls)"
        )
    DIALECTS[name] = dialect


def find_dialect(name: str, items: object) -> Dialect:
    """The dialect of this name; `auto` looks at the messages."""
    if name == "auto":
        return detect(items if isinstance(items, (list, tuple)) else ())
    return dialect_named(name)


def dialect_named(name: str) -> Dialect:
    """The dialect of this name, of ours or of an installed package; else an error that lists those there are."""
    if name not in DIALECTS:
        installed = extension_names(DIALECT_GROUP)
        if name not in installed:
            known = ", ".join(("auto", *DIALECTS, *installed))
            raise BadSetting(f"unknown dialect {name!r}; known dialects: {known}")
        register_dialect(load_extension(DIALECT_GROUP, name))
    return DIALECTS[name]


def detect(items: Sequence[object]) -> Dialect:
    """The dialect of the first message that only one dialect has; plain messages are OpenAI chat."""
    dicts = [item for item in items if isinstance(item, dict)]
    found = distinctive_dialect(dicts)
    if found:
        return DIALECTS[found]
    return next((dialect for dialect in _in_order() if dialect.recognizes_plain(dicts)), _PLAIN)


def distinctive_dialect(items: Iterable[dict[str, Any]]) -> str:
    """The dialect that one of the messages gives away, or "" while they could be of several."""
    dialects = _in_order()
    return next((dialect.name for item in items for dialect in dialects if dialect.recognizes(item)), "")


def dialect_of_request(body: Mapping[str, Any]) -> Dialect | None:
    """The dialect that a request's fields beside its messages give away."""
    return next((dialect for dialect in _in_order() if dialect.recognizes_request(body)), None)


def _in_order() -> list[Dialect]:
    """Those that were registered first: they are the more special ones."""
    return sorted(DIALECTS.values(), key=lambda dialect: dialect in _BUILT_IN)
