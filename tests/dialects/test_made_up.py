"""A dialect that only these tests know works on every surface, registered as a user would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor import BadSetting, compact, handoff_text
from context_compactor.dialects import detection
from context_compactor.dialects.detection import DIALECTS, detect, register_dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.dialects.repair import repair
from tests.cli.conftest import run  # noqa: F401
from tests.dialects.made_up import NAME, MadeUp
from tests.dialects.strategies import histories
from tests.engine import promises
from tests.engine.talks import read, talk_in
from tests.server.running import running
from tests.sessions.talk import opened

MADE_UP = DIALECTS[NAME]


def conversation(rounds: int = 24) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"who": "rules", "say": "You fix programs."}]
    for at in range(rounds):
        lines = "\n".join(f"def part_{at}_{line}(value): return value + {line}" for line in range(40))
        ask = {"ref": f"call_{at}", "do": "Read", "with": {"file_path": f"src/part_{at}.py"}}
        said += [
            {"who": "human", "say": f"Look at part {at} and tell me what `part_{at}_7` adds."},
            {"who": "bot", "say": "I read it.", "ask": [ask]},
            {"who": "machine", "ref": f"call_{at}", "got": lines},
            {"who": "bot", "say": f"`part_{at}_7` in src/part_{at}.py adds 7."},
        ]
    return [*said, {"who": "human", "say": "Now write the release notes."}]


def legal(messages: list[dict[str, Any]]) -> bool:
    return all("who" in raw for raw in messages) and not find_violations(MADE_UP.parse(messages), MADE_UP)


@pytest.mark.parametrize("layout", ["tail", "record"])
def test_a_compaction_and_the_next_one_stay_in_the_dialect_and_are_legal(layout):
    messages = conversation()
    assert detect(messages) is MADE_UP
    for target in (6_000, 2_500):
        result = compact(messages, target_tokens=target, layout=layout)
        assert result.report.status == "success"
        assert legal(result.messages)
        assert result.messages[-1]["say"].endswith("Now write the release notes.")
        asked = {"who": "human", "say": "Now write the release notes."}
        messages = [*result.messages, {"who": "bot", "say": "Which ones?"}, asked]


def test_what_left_the_context_is_recalled_as_it_was():
    result = compact(conversation(), target_tokens=4_000)
    assert promises.not_recalled(conversation(), result, NAME) == []
    assert "part_3_7" in result.recall("file_004")


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_whatever_has_happened_the_promises_hold(data):
    messages = data.draw(histories(NAME, 2, 6))
    target = max(promises.tokens_of(messages, NAME) // data.draw(st.sampled_from((2, 4, 20))), 1)
    result = compact(messages, target_tokens=target, dialect=NAME)
    assert promises.illegal(result, NAME) == []
    assert promises.misfit(messages, result, target, NAME) == []
    assert promises.lost_pins(messages, result, NAME) == []
    assert promises.not_recalled(messages, result, NAME) == []


def test_a_session_keeps_its_dialect_when_it_is_opened_again(tmp_path):
    with opened(tmp_path, dialect=NAME) as session:
        for message in conversation():
            session.append(message)
        assert session.compact().status == "success"
        assert legal(session.context())
    with opened(tmp_path) as session:
        assert legal(session.context())
        assert session.history() == conversation()
        assert "part_2_39" in session.recall("file_003")
        assert any("part_5" in hit.text for hit in session.search("part_5_7"))
        assert "release notes" in str(session.handoff())
        session.append({"who": "bot", "say": "They are written."})
        assert session.context()[-1] == {"who": "bot", "say": "They are written."}


def test_a_handoff_tells_what_was_asked_last():
    assert "release notes" in handoff_text(conversation(), tokens=500)


def test_the_command_line_compacts_a_file_of_it(run, tmp_path):  # noqa: F811
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, conversation())))
    ran = run("compact", file, "--target", "5k", "--output", tmp_path / "short.json")
    assert ran.code == 0, ran
    assert legal(json.loads((tmp_path / "short.json").read_text()))


def test_the_server_takes_and_returns_it(tmp_path):
    with running(tmp_path) as server:
        made = server.call("POST", "/v1/sessions", {"id": "odd", "window": 6_000, "dialect": NAME})
        assert made.status == 201, made.raw
        told = server.call("POST", "/v1/sessions/odd/messages", {"messages": conversation()})
        assert told.status == 200, told.raw
        assert server.call("POST", "/v1/sessions/odd/compact", {}).status == 200
        context = server.call("GET", "/v1/sessions/odd/context").json["messages"]
        assert legal(context)
        refused = server.call("POST", "/v1/sessions", {"id": "even", "window": 6_000, "dialect": "nobody"})
        assert refused.status in (400, 422)
        assert NAME in refused.json["detail"]


def test_one_that_lacks_a_member_is_refused_by_the_name_of_what_it_lacks():
    members = {name: getattr(MADE_UP, name) for name in dir(MADE_UP) if not name.startswith("_")}
    for lacking in members:
        rest = {name: value for name, value in members.items() if name != lacking}
        with pytest.raises(BadSetting, match=f"lacks {lacking};"):
            register_dialect(SimpleNamespace(**rest))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "anthropic"}, "there is a dialect 'anthropic' already"),
        ({"name": "auto"}, "cannot be named 'auto'"),
        ({"name": ""}, "cannot be named ''"),
        ({"repairs": ()}, "one of repairs that is not empty"),
        ({"rules": None}, "a tuple of rules"),
    ],
)
def test_a_bad_one_is_refused_with_the_reason(changed, why):
    with pytest.raises(BadSetting, match=why):
        register_dialect(type("Bad", (MadeUp,), {"name": "bad", **changed})())
    assert "bad" not in DIALECTS


def test_registering_it_again_changes_nothing():
    before = list(DIALECTS)
    register_dialect(MadeUp())
    assert list(DIALECTS) == before


def test_the_dialect_of_the_how_to_runs_as_it_is_written(monkeypatch):
    page = Path(__file__).parents[2] / "docs/how-to/add-a-dialect.md"
    code = re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.setattr("context_compactor.dialects.detection.DIALECTS", dict(DIALECTS))
    exec(code[1], {"__name__": "small_letters"})
    messages = talk_in("openai-chat").user("Look.").step(read("a.py", "x = 1")).answer("One.").user("And now?").messages
    small = detection.DIALECTS["small-letters"]
    assert [problem.rule for problem in find_violations(small.parse(messages), small)] == ["large-name"]
    repaired, log = repair(small.parse(messages), small)
    assert find_violations(repaired, small) == []
    assert [entry.what for entry in log] == ["wrote the names of tools in small letters"]


def test_the_how_to_names_every_member():
    page = (Path(__file__).parents[2] / "docs/how-to/add-a-dialect.md").read_text()
    members = [name for name in dir(MADE_UP) if not name.startswith("_")]
    assert [name for name in members if f"`{name}`" not in page] == []
