"""JSON answers: how a schema is told to a model, and how a value is read out of what it wrote."""

from __future__ import annotations

import json
import re
from typing import Any

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


def told(schema: dict[str, Any]) -> str:
    """A schema as a sentence, for models that cannot be held to one."""
    return f"Answer with one JSON value of this schema and nothing else:\n{json.dumps(schema, ensure_ascii=False)}"


def read_json(text: str, schema: dict[str, Any]) -> Any:
    """The JSON value in a text, or None when it holds none or one that is not of the schema."""
    fenced = _FENCED.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
    return value if fits(value, schema, schema) else None


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is of a schema: types, enumerations, required and known members, items, alternatives."""
    if "$ref" in schema:
        return fits(value, _definition(schema["$ref"], root), root)
    if any(choices in schema for choices in ("anyOf", "oneOf")):
        return any(fits(value, choice, root) for choice in schema.get("anyOf") or schema["oneOf"])
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


def _definition(reference: str, root: dict[str, Any]) -> dict[str, Any]:
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
        return all(fits(item, schema.get("items") or {}, root) for item in value)
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    other = schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value) or (other is False and not set(value) <= set(known)):
        return False
    rest = other if isinstance(other, dict) else {}
    return all(fits(member, known.get(name, rest), root) for name, member in value.items())
