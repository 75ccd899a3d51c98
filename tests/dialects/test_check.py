"""`context_compactor.dialects.check`: every rule that a history breaks, by name."""

from __future__ import annotations

import ast
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import dialects
from context_compactor.dialects import Violation, check
from context_compactor.dialects.detection import DIALECTS
from context_compactor.dialects.repair import repair
from context_compactor.errors import BadMessage, BadSetting
from tests.dialects.broken_rules import BrokenRule, assistant, every_broken_rule, user
from tests.dialects.strategies import DIALECT_NAMES, histories
from tools.legality import RULES

CASES = every_broken_rule()
UNREPAIRED = {"media", "thinking"}
"""Only the engine knows which images it may do without, and which reasoning came with what."""


def name_of(case: BrokenRule) -> str:
    return f"{case.dialect}-{case.rule}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_exactly_the_rule_that_is_broken_is_found(case):
    found = check(case.messages, model=case.model, dialect=case.dialect, before=case.before)
    assert {problem.rule for problem in found} == {case.rule}
    assert all(0 <= problem.index < len(case.messages) and problem.what for problem in found)


@pytest.mark.parametrize("case", [case for case in CASES if case.rule not in UNREPAIRED], ids=name_of)
def test_a_broken_rule_is_mended_by_repair(case):
    dialect = DIALECTS[case.dialect].for_model(case.model)
    repaired, log = repair(dialect.parse(case.messages), dialect)
    assert check([message.raw for message in repaired], model=case.model, dialect=case.dialect) == []
    assert log


@pytest.mark.parametrize("case", [case for case in CASES if case.before], ids=name_of)
def test_reasoning_with_everything_before_it_as_it_was_is_legal(case):
    assert check(case.before, dialect=case.dialect, before=case.before) == []


def test_a_problem_has_an_index_a_rule_and_a_sentence():
    messages = [user("Look."), assistant("I look."), assistant("Done.")]
    assert check(messages) == [Violation(2, "alternation", "two assistant messages in a row")]


def test_a_legal_history_breaks_no_rule_and_neither_does_an_empty_one():
    assert check([user("Look."), assistant("Done.")]) == []
    assert check([]) == []


def test_calls_that_still_run_break_no_rule():
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    assert check([user("Look."), {"role": "assistant", "content": None, "tool_calls": [call]}]) == []


def test_the_dialect_can_be_named_and_decides():
    blank = [user("Look."), assistant("Done."), user("")]
    assert check(blank, dialect="openai-chat") == []
    assert [problem.rule for problem in check(blank, dialect="anthropic")] == ["empty"]


@pytest.mark.parametrize("messages", [None, "text", {"role": "user"}, 7])
def test_what_is_no_list_is_refused(messages):
    with pytest.raises(BadMessage, match="expected a list of messages"):
        check(messages)


@pytest.mark.parametrize(
    ("message", "field"), [("text", "message"), ({"role": "human", "content": "x"}, "role"), ({"content": "x"}, "role")]
)
def test_what_is_no_message_is_refused_with_its_index(message, field):
    with pytest.raises(BadMessage) as refused:
        check([user("Look."), message])
    assert (refused.value.index, refused.value.field) == (1, field)


def test_what_is_no_message_before_is_refused_too():
    with pytest.raises(BadMessage):
        check([user("Look.")], before=["text"])


def test_an_unknown_dialect_is_refused():
    with pytest.raises(BadSetting, match="known dialects"):
        check([user("Look.")], dialect="telegraph")


@pytest.mark.parametrize("name", DIALECT_NAMES)
@given(drawn=st.data())
def test_the_history_is_not_changed_and_every_problem_names_a_message(name, drawn):
    messages = drawn.draw(histories(name))
    given_messages = deepcopy(messages)
    for problem in check(messages, dialect=name, before=messages):
        assert 0 <= problem.index < len(messages)
        assert problem.rule != "thinking"
    assert messages == given_messages


def test_importing_the_package_of_the_dialects_imports_none_of_them():
    code = "import sys, context_compactor.dialects; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in loaded if name.startswith("context_compactor.dialects.")]
    assert "msgspec" not in loaded


def test_every_rule_that_the_code_names_has_a_row_in_the_docs_and_a_history_that_breaks_it():
    names = set()
    for path in Path(dialects.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Violation":
                rule = node.args[1]
                assert isinstance(rule, ast.Constant), f"{path.name}, line {node.lineno}: the rule's name is computed"
                names.add(rule.value)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "legality.md").read_text(encoding="utf-8")
    assert names == {case.rule for case in CASES} == set(RULES)
    assert {name for name in names if f"| `{name}` |" not in page} == set()
