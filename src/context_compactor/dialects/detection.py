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
from context_compactor.errors import BadMessage, BadSetting
from context_compactor.extensions import DIALECT_GROUP, extension_names, load_extension

# Messages that none of the others recognizes are taken for chat.
_PLAIN: Dialect = OpenAIChat()
_BUILT_IN: tuple[Dialect, ...] = (_PLAIN, OpenAIResponses(), Anthropic(), Gemini(), Bedrock())
_PLAIN_FIELDS = {"role", "content"}
_TEXT_FIELDS = {"type", "text"}
_PLAIN_ROLES = ("user", "assistant", "system")
_SHOWN_INDEXES = 5
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
    """The dialect of these messages: the one that has messages among them which no other dialect has.

    Without such messages it is the one that they are typical of; plain messages are OpenAI chat. Raises `BadMessage`
    when some are of one dialect and some of another.
    """
    found = distinctive_dialect(items)
    return DIALECTS[found] if found else _typical_dialect(items)


def likely_dialect(items: Sequence[object]) -> Dialect:
    """The same for messages that are only shown or searched: of several dialects the one that comes first."""
    claims = _claims(items)
    return DIALECTS[next(iter(claims))] if claims else _typical_dialect(items)


def distinctive_dialect(items: Iterable[object]) -> str:
    """The dialect that some of the messages give away, or "" while they could be of several.

    Raises `BadMessage` when messages of two dialects are among them.
    """
    claims = _claims(items)
    if len(claims) < 2:
        return next(iter(claims), "")
    # One that was registered may be another one's with something added: then it can read them all.
    special = next((name for name in claims if DIALECTS[name] not in _BUILT_IN), "")
    if special and _can_read(DIALECTS[special], items):
        return special
    raise _mixed(claims)


def foreign_message(dialect: Dialect, items: Sequence[object]) -> tuple[int, str] | None:
    """The index of the first message that is of another dialect than this one, and the name of that dialect."""
    for other, indexes in _claims(items).items():
        item = items[indexes[0]]
        if other != dialect.name and not (isinstance(item, dict) and dialect.recognizes(item)):
            return indexes[0], other
    return None


def is_built_in(dialect: Dialect) -> bool:
    """Whether a dialect is one of ours, and not one that was registered."""
    return dialect in _BUILT_IN


def _claims(items: Iterable[object]) -> dict[str, list[int]]:
    """The dialects that have messages of their own among these, with their indexes, in the order of the messages."""
    dialects, registered = _in_order(), _registered()
    found: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if isinstance(item, dict):
            asked = registered if _is_plain(item) else dialects
            name = next((dialect.name for dialect in asked if dialect.recognizes(item)), "")
            if name:
                found.setdefault(name, []).append(index)
    return found


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Whether it is a role with text, which several providers take: no built-in dialect recognizes it."""
    content = item.get("content")
    blocks = content if isinstance(content, list) else ()
    is_text = isinstance(content, str) or (bool(blocks) and all(map(_is_text_block, blocks)))
    return is_text and item.keys() == _PLAIN_FIELDS and item["role"] in _PLAIN_ROLES


def _is_text_block(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and block.keys() == _TEXT_FIELDS


def _typical_dialect(items: Iterable[object]) -> Dialect:
    dicts = [item for item in items if isinstance(item, dict)]
    asked = _registered() if all(map(_is_plain, dicts)) else _in_order()
    return next((dialect for dialect in asked if dialect.recognizes_plain(dicts)), _PLAIN)


def _can_read(dialect: Dialect, items: Iterable[object]) -> bool:
    try:
        dialect.parse(list(items))
    except BadMessage:
        return False
    return True


def _mixed(claims: Mapping[str, Sequence[int]]) -> BadMessage:
    first, second = list(claims)[:2]
    return BadMessage(
        claims[second][0],
        "message",
        f"it is {second}, but other messages are {first}. "
        + "; ".join(f"{name}: {_numbers(indexes)}" for name, indexes in claims.items())
        + f'. Try: messages of one dialect, or name the one to read them as: dialect="{first}", '
        f"on the command line --dialect {first}",
    )


def _numbers(indexes: Sequence[int]) -> str:
    shown = ", ".join(map(str, indexes[:_SHOWN_INDEXES]))
    more = f" and {len(indexes) - _SHOWN_INDEXES} more" if len(indexes) > _SHOWN_INDEXES else ""
    return f"message{'s' if len(indexes) > 1 else ''} {shown}{more}"


def dialect_of_request(body: Mapping[str, Any]) -> Dialect | None:
    """The dialect that a request's fields beside its messages give away."""
    return next((dialect for dialect in _in_order() if dialect.recognizes_request(body)), None)


def _in_order() -> list[Dialect]:
    """Those that were registered first: they are the more special ones."""
    return sorted(DIALECTS.values(), key=is_built_in)


def _registered() -> list[Dialect]:
    return [dialect for dialect in DIALECTS.values() if not is_built_in(dialect)]
