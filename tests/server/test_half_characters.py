"""Half a character, which JSON can hold and no file can, spoils no answer and no page, and is no setting."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from context_compactor.sessions import schemas
from context_compactor.sessions.schemas import encode
from context_compactor.sessions.verbs import VERBS
from tests.server.running import Running

HALF = "half \ud800 of it"
LOOKS = [
    route.path.removeprefix("/v1/sessions/{id}").replace("{ref}", "turn_001")
    for route in VERBS
    if route.method == "GET" and route.path.startswith("/v1/sessions/{id}")
]


def _answers() -> list[type[schemas.Answer]]:
    return sorted(_below(schemas.Answer), key=lambda each: each.__name__)


def _below(kind: type[Any]) -> set[type[Any]]:
    return {each for direct in kind.__subclasses__() for each in (direct, *_below(direct))}


def _filled(kind: inspect.Type) -> Any:
    """A value of a type, with half a character wherever text can stand."""
    match kind:
        case inspect.StrType() | inspect.AnyType():
            return HALF
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.BoolType():
            return True
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return [_filled(kind.item_type)]
        case inspect.TupleType():
            return [_filled(each) for each in kind.item_types]
        case inspect.DictType():
            return {_filled(kind.key_type): _filled(kind.value_type)}
        case inspect.Metadata():
            return _filled(kind.type)
        case inspect.StructType():
            return {field.encode_name: _filled(field.type) for field in kind.fields}
        case inspect.UnionType():
            return _filled(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
    raise AssertionError(f"no value of {kind} is known here")


@pytest.mark.parametrize("kind", _answers(), ids=lambda kind: kind.__name__)
def test_every_answer_is_as_it_would_be_without(kind):
    answer = msgspec.convert(_filled(inspect.type_info(kind)), kind)
    assert msgspec.convert(json.loads(encode(answer)), kind) == answer


@pytest.fixture(scope="module")
def session(shared) -> str:
    path = shared.made("halves", window=8_000)
    messages = []
    for at in range(6):
        found = f"Please fix file{at}.py, we decided to use {HALF} redis. " + f"w{at} " * 200
        messages += [{"role": "user", "content": found}, {"role": "assistant", "content": f"Done: a{at}.py {HALF}"}]
    assert shared.post(f"{path}/messages", {"messages": messages}).status == 200
    assert shared.post(f"{path}/compact", {"focus": HALF}).json["compacted"] is True
    return path


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_at_a_session_answers_what_the_document_says(shared, session, look):
    route = next(each for each in VERBS if each.path == f"/v1/sessions/{{id}}{look.replace('turn_001', '{ref}')}")
    got = shared.get(f"{session}{look}" + ("?q=redis" if look == "/search" else ""))
    assert got.status == 200
    assert msgspec.convert(got.json, route.answer)


def test_a_handoff_answers_what_the_document_says(shared, session):
    got = shared.post(f"{session}/handoff", {"task": HALF, "task_id": HALF})
    assert msgspec.convert(got.json, schemas.HandoffAnswer).request.task == HALF


@pytest.mark.parametrize("page", ["", "/facts", "/plan", "/archive", "/archive?q=redis", "/now", "/compactions"])
def test_every_page_of_a_session_is_shown(shared, session, page):
    assert shared.get(session.removeprefix("/v1") + page).status == 200


@pytest.mark.parametrize("page", ["/", "/quality", "/quality/series.json", "/activity"])
def test_every_other_page_is_shown(shared, session, page):
    assert session
    assert shared.get(page).status == 200


@pytest.mark.parametrize(
    "given",
    [
        {"model": HALF},
        {"settings": {"summarizer": HALF}},
        {"settings": {"summarizer": f"openai/{HALF}"}},
        {"settings": {"compact_prompt": HALF}},
        {"settings": {"agent_request": {"system": [{"text": HALF}]}}},
        {"settings": {"agent_request": {HALF: 1}}},
        {"settings": {"prices": {HALF: {"input": 1, "output": 1}}}},
    ],
    ids=str,
)
def test_what_a_session_is_set_to_holds_none(shared: Running, given):
    got = shared.post("/v1/sessions", {"id": "never", "window": 8_000, **given})
    assert (got.status, got.problem) == (422, "bad-setting")
    assert shared.get("/v1/sessions/never").status == 404
