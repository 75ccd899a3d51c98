"""A user's own strategies and layouts are used beside ours, and a bad one never breaks a context."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from context_compactor import BadSetting, Session, compact, extensions
from context_compactor.dialects.detection import DIALECTS, find_dialect
from context_compactor.dialects.legality import find_violations
from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import Option
from context_compactor.engine.tiers import Tier
from context_compactor.protocols import Strategy
from tests.cli.conftest import conversation

PAGE = Path(__file__).parents[2] / "docs/how-to/add-a-strategy.md"
TODO = "# TODO: teach the parser about tabs"
TARGET = 8_000


def messages() -> list[dict]:
    given = conversation()
    given[5]["content"] += f"\n{TODO}\n"
    return given


def page_code() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def keep_todos(monkeypatch):
    """The strategy as the page has it, in a module of its own."""
    module = ModuleType("keep_todos")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(page_code()[0], vars(module))
    return module.KeepTodos


@dataclass(frozen=True)
class Proposes:
    """Proposes what a function makes of a view."""

    make: object
    name: str = "keep to-dos"

    def propose(self, view):
        return self.make(view)


def of_first_result(**changes):
    """A strategy with one option for the first result, changed."""

    def make(view):
        source = next(each for each in view.open_sources() if each.voice == "result" and not each.is_loose)
        fields = {"source": source.number, "tier": Tier.KEEP, "text": source.blocks[0].text, "block": 0}
        fields |= {name: value(source) if callable(value) else value for name, value in changes.items()}
        yield Option(strategy="mine", reason="because", **fields)

    return Proposes(make)


def plain(strategies=(), layouts=()):
    result = compact(messages(), target_tokens=TARGET, strategies=strategies, layouts=layouts)
    dialect = find_dialect("auto", result.messages)
    assert find_violations(dialect.parse(result.messages), dialect) == []
    assert result.report.status == "success"
    return result


def test_the_strategy_of_the_page_works_as_written_and_takes_about_twenty_lines(keep_todos):
    assert isinstance(keep_todos(), Strategy)
    result = plain([keep_todos()])
    assert TODO in json.dumps(result.messages)
    assert "keep to-dos" in {decision.strategy for decision in result.decisions}
    assert result.report.reason == ""
    assert len([line for line in page_code()[0].splitlines() if line.strip()]) <= 20


def test_the_calls_of_the_page_run_as_written(keep_todos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"messages": messages(), "KeepTodos": keep_todos}
    exec(page_code()[1], names)
    assert TODO in json.dumps(names["result"].messages)


def test_a_session_compacts_with_its_own_strategies(keep_todos, tmp_path):
    with Session.open("one", window=200_000, store=f"sqlite:///{tmp_path}/x.db", strategies=[keep_todos()]) as session:
        session.append(messages())
        session.compact(level="emergency")
        assert TODO in json.dumps(session.context())


def _fails(view):
    raise KeyError("path")


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (Proposes(_fails), "strategy 'keep to-dos' was left out: KeyError: 'path'"),
        (
            of_first_result(source=9999),
            (
                "1 option of strategy 'keep to-dos' left out: there is no source 9999; "
                "use the number of a source of view.open_sources()"
            ),
        ),
        (
            of_first_result(tier=Tier.SUMMARIZE, block=-1, text=lambda source: source.text),
            "1 option of strategy 'keep to-dos' left out: the text is not shorter than its source",
        ),
        (
            of_first_result(text="something else"),
            "1 option of strategy 'keep to-dos' left out: KEEP needs the text of its block, unchanged",
        ),
        (
            of_first_result(tier=Tier.DROP, block=-1, text="gone"),
            (
                "1 option of strategy 'keep to-dos' left out: a text for drop must be shorter than its source and name "
                "'tool_001', which recalls it"
            ),
        ),
    ],
    ids=["error", "unknown source", "long text", "other text", "no reference"],
)
def test_a_bad_option_is_left_out_with_the_reason_that_the_page_shows(strategy, reason):
    without = plain()
    result = plain([strategy])
    shown = re.sub(r"'(tool|file)_\d+', which", "'tool_001', which", result.report.reason)
    assert shown == reason
    assert f"`{reason}`" in PAGE.read_text()
    assert result.messages == without.messages


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block": 10**6}, "has no block 1000000"),
        ({"weight": float("nan")}, "is not a number from 0 on"),
        ({"weight": -1.0}, "is not a number from 0 on"),
        ({"text": None}, "needs a tier, a text and a reason"),
        ({"tier": "keep!"}, "needs a tier, a text and a reason"),
        ({"tier": Tier.DROP, "text": ""}, "only KEEP names a block"),
        ({"tier": Tier.SUMMARIZE, "block": -1, "text": " "}, "the text is empty"),
    ],
)
def test_every_other_mistake_in_an_option_is_named_too(changes, reason):
    assert reason in plain([of_first_result(**changes)]).report.reason


def test_what_is_no_option_and_a_source_that_may_not_be_shortened_are_refused():
    assert "must give Option values" in plain([Proposes(lambda view: ["keep all"])]).report.reason

    def closed(view):
        source = next(each for each in view.sources if not view.is_open(each))
        yield Option("mine", source.number, Tier.DROP, "", "because")

    assert "may not be shortened" in plain([Proposes(closed)]).report.reason


def test_a_strategy_must_be_an_object_with_a_name_and_a_method(keep_todos):
    for wrong in (keep_todos, object()):
        with pytest.raises(BadSetting, match="is not a strategy; use an object with a `name` and `propose"):
            compact(messages(), target_tokens=TARGET, strategies=[wrong])
    with pytest.raises(BadSetting, match="is not a layout"):
        compact(messages(), target_tokens=TARGET, layouts=[object()])


@dataclass(frozen=True)
class Places:
    """A layout that does what a function says."""

    make: object
    name: str = "my layout"

    def zones(self, room):
        return self.make(room)


def _fold_all(room):
    return {turn.number: Zone.FIXED if turn.is_instruction else Zone.FOLDED for turn in room.turns}


def _keep_last(room):
    return _fold_all(room) | {turn.number: Zone.VERBATIM for turn in room.turns[-2:]}


def test_a_layout_of_ones_own_is_tried_first():
    assert json.dumps(messages()[-2:], sort_keys=True)[1:-1] in json.dumps(
        plain(layouts=[Places(_keep_last)]).messages, sort_keys=True
    )
    assert plain(layouts=[Places(lambda room: None)]).messages == plain().messages


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_fails, "layout 'my layout' was left out: KeyError: 'path'"),
        (lambda room: [Zone.FOLDED], "it must be a dictionary from turn numbers to zones"),
        (lambda room: {}, "has no zone, but None; use one of fixed, folded, placed, verbatim"),
        (lambda room: dict.fromkeys(_fold_all(room), Zone.FIXED), "instructions are fixed, and nothing else is"),
        (_fold_all, "is folded, but waits for an answer"),
    ],
)
def test_a_bad_layout_is_left_out_with_its_reason(make, reason):
    given = [*messages(), {"role": "user", "content": "And now?"}]
    result = compact(given, target_tokens=TARGET, layouts=[Places(make)])
    assert reason in result.report.reason
    assert result.messages == compact(given, target_tokens=TARGET).messages


@pytest.fixture
def entry_points(monkeypatch, keep_todos):
    """Two entry points of an installed package: one that works and one that is broken."""
    sys.modules["keep_todos"].KeepTodos = keep_todos
    points = {
        "keep-todos": EntryPoint("keep-todos", "keep_todos:KeepTodos", extensions.STRATEGY_GROUP),
        "broken": EntryPoint("broken", "keep_todos:Missing", extensions.STRATEGY_GROUP),
    }
    monkeypatch.setattr(extensions, "_entry_points", lambda group: points)
    extensions.load_extension.cache_clear()
    yield
    extensions.load_extension.cache_clear()


def test_an_installed_strategy_is_found_by_its_name(entry_points):
    assert TODO in json.dumps(plain(["keep-todos"]).messages)


def test_a_broken_or_unknown_entry_point_is_named(entry_points):
    with pytest.raises(BadSetting, match=r"'broken' in 'context_compactor.strategies' \(keep_todos:Missing"):
        compact(messages(), target_tokens=TARGET, strategies=["broken"])
    with pytest.raises(BadSetting, match=r"there is no 'nobody' among .* installed: broken, keep-todos"):
        compact(messages(), target_tokens=TARGET, strategies=["nobody"])


def test_an_installed_dialect_is_found_by_its_name_and_not_before(monkeypatch):
    given = type(DIALECTS["openai-chat"])
    mine = type("Mine", (given,), {"name": "my-provider"})
    module = ModuleType("my_provider")
    module.Dialect = mine
    monkeypatch.setitem(sys.modules, "my_provider", module)
    point = EntryPoint("my-provider", "my_provider:Dialect", extensions.DIALECT_GROUP)
    monkeypatch.setattr(extensions, "_entry_points", lambda group: {"my-provider": point})
    extensions.load_extension.cache_clear()
    assert "my-provider" not in DIALECTS
    try:
        result = compact(messages(), target_tokens=TARGET, dialect="my-provider")
        assert result.report.status == "success"
    finally:
        DIALECTS.pop("my-provider", None)
        extensions.load_extension.cache_clear()
    with pytest.raises(BadSetting, match=r"unknown dialect 'nobody'; known dialects: auto, .*my-provider"):
        find_dialect("nobody", ())
