"""What holds for every history, whatever happened to it."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_compactor.dialects.detection import DIALECTS, detect
from context_compactor.dialects.legality import find_violations, legal_cuts, pair_results
from context_compactor.dialects.messages import NO_RESULT, Message, Text, Thinking, ToolCall, ToolResult
from context_compactor.dialects.repair import repair
from context_compactor.errors import BadMessage
from context_compactor.json_values import copy_containers, json_text
from tests.dialects.strategies import DIALECT_NAMES, histories, legal_histories, mangled_histories

every_dialect = pytest.mark.parametrize("name", DIALECT_NAMES)
quietly = settings(deadline=None)


def illegalities(messages, dialect):
    return [problem for problem in find_violations(messages, dialect) if problem.rule != "media"]


@every_dialect
@quietly
@given(data=st.data())
def test_parsing_keeps_every_item_as_it_is(name, data):
    items = data.draw(histories(name))
    before = deepcopy(items)
    messages = DIALECTS[name].parse(items)
    assert all(message.raw is item for message, item in zip(messages, items, strict=True))
    assert items == before


@every_dialect
@quietly
@given(data=st.data())
def test_a_legal_history_has_no_problems_and_needs_no_repair(name, data):
    messages = DIALECTS[name].parse(data.draw(legal_histories(name)))
    assert find_violations(messages, DIALECTS[name]) == []
    repaired, log = repair(messages, DIALECTS[name])
    assert log == []
    assert all(after is before for after, before in zip(repaired, messages, strict=True))


@every_dialect
@quietly
@given(data=st.data())
def test_a_repaired_history_is_legal_and_repairing_it_again_changes_nothing(name, data):
    items = data.draw(histories(name))
    before = deepcopy(items)
    messages = DIALECTS[name].parse(items)
    repaired, log = repair(messages, DIALECTS[name])
    assert illegalities(repaired, DIALECTS[name]) == []
    again, more = repair(repaired, DIALECTS[name])
    assert more == []
    assert [message.raw for message in again] == [message.raw for message in repaired]
    assert items == before
    assert bool(log) == bool(illegalities(messages, DIALECTS[name]))


@every_dialect
@quietly
@given(data=st.data())
def test_a_repaired_history_reads_back_as_the_same_messages(name, data):
    repaired, _ = repair(DIALECTS[name].parse(data.draw(histories(name))), DIALECTS[name])
    assert DIALECTS[name].parse([message.raw for message in repaired]) == repaired


@every_dialect
@quietly
@given(data=st.data())
def test_a_repair_loses_no_words_calls_or_results(name, data):
    messages = DIALECTS[name].parse(data.draw(histories(name)))
    repaired, _ = repair(messages, DIALECTS[name])
    assert not said(messages) - said(repaired)
    assert calls(messages) <= calls(repaired)
    everything = "\n".join(text for message in repaired for text in texts_of(message))
    for message in messages:
        for result in message.results:
            assert result.text in everything or result.text == NO_RESULT or not result.text.strip()


@every_dialect
@quietly
@given(data=st.data())
def test_a_repair_never_alters_signed_thinking(name, data):
    messages = DIALECTS[name].parse(data.draw(histories(name)))
    repaired, _ = repair(messages, DIALECTS[name])
    before, after = thoughts(messages), thoughts(repaired)
    assert not Counter(after) - Counter(before)
    if name == "anthropic":
        assert after == before[: len(after)]


@every_dialect
@quietly
@given(data=st.data())
def test_no_reasoning_stands_behind_what_a_repair_changed(name, data):
    messages = DIALECTS[name].parse(data.draw(histories(name)))
    repaired, _ = repair(messages, DIALECTS[name])
    assert [
        each for each in find_violations(repaired, DIALECTS[name], before=messages) if each.rule == "thinking"
    ] == []


@every_dialect
@quietly
@given(data=st.data())
def test_a_strange_value_anywhere_is_named_or_lived_with(name, data):
    dialect = DIALECTS[name]
    items = data.draw(mangled_histories(name))
    try:
        messages = dialect.parse(items)
    except BadMessage as bad:
        assert 0 <= bad.index < len(items)
        return
    repaired, _ = repair(messages, dialect)
    assert illegalities(repaired, dialect) == []
    assert detect(items).name in DIALECT_NAMES
    for message in repaired:
        for at, part in enumerate(message.parts):
            if not isinstance(part, Thinking):
                dialect.edit(message, {at: "short"})
            dialect.edit(message, {at: None})


def texts_of(message: Message):
    return [part.text for part in message.parts if not isinstance(part, ToolCall) and hasattr(part, "text")]


def said(messages):
    """Paragraphs of people and models; joining messages may bring several into one text."""
    return {
        paragraph
        for message in messages
        for part in message.parts
        if isinstance(part, Text)
        for paragraph in part.text.split("\n")
        if paragraph.strip()
    }


def calls(messages):
    return Counter((call.name, call.arguments) for message in messages for call in message.calls)


def thoughts(messages):
    """The raw blocks of signed thinking."""
    blocks = []
    for message in messages:
        if isinstance(message.raw.get("content"), list):
            blocks += [json_text(block) for block in message.raw["content"] if "thinking" in block.get("type", "")]
        if message.raw.get("type") == "reasoning":
            blocks.append(json_text(message.raw))
    return blocks


@every_dialect
@quietly
@given(data=st.data())
def test_an_edit_changes_the_parts_it_names_and_nothing_else(name, data):
    dialect = DIALECTS[name]
    items = data.draw(legal_histories(name))
    before = deepcopy(items)
    message = data.draw(st.sampled_from(dialect.parse(items)))
    edits = data.draw(edits_for(message))
    edited = dialect.edit(message, edits)
    assert items == before
    kept = [part for at, part in enumerate(message.parts) if edits.get(at, "") is not None]
    if not kept:
        assert edited is None
        return
    assert edited is not None
    texts = iter([edits[at] for at in range(len(message.parts)) if edits.get(at) is not None])
    for old, new in zip(kept, edited.parts, strict=True):
        if old != new:
            assert shown(new) == next(texts)
        if isinstance(old, ToolResult):
            assert isinstance(new, ToolResult)
            assert (new.call_id, new.is_error) == (old.call_id, old.is_error)


def shown(part):
    return part.arguments if isinstance(part, ToolCall) else part.text


@st.composite
def edits_for(draw, message):
    edits = {}
    for at, part in enumerate(message.parts):
        what = draw(st.sampled_from(("keep", "replace", "remove")))
        if what == "remove":
            edits[at] = None
        elif what == "replace" and not isinstance(part, (Thinking, ToolCall)):
            edits[at] = f"text {at}"
    return edits


@every_dialect
@quietly
@given(data=st.data())
def test_both_sides_of_a_legal_cut_keep_calls_and_results_together(name, data):
    messages = DIALECTS[name].parse(data.draw(legal_histories(name)))
    cuts = legal_cuts(messages)
    assert cuts[0] == 0
    assert cuts[-1] == len(messages)
    at = data.draw(st.sampled_from(cuts))
    assert not pair_results(messages[at:]).loose
    whole = len(pair_results(messages).answers)
    assert len(pair_results(messages[:at]).answers) + len(pair_results(messages[at:]).answers) == whole


def sorted_keys(value):
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(inner) for inner in value] if isinstance(value, list) else value


@quietly
@given(data=st.data(), name=st.sampled_from(DIALECT_NAMES))
def test_a_copy_is_equal_and_shares_no_container(data, name):
    items = data.draw(histories(name))
    copy = copy_containers(items)
    assert copy == items
    assert not containers(copy) & containers(items)


def containers(value):
    if isinstance(value, dict):
        return {id(value)}.union(*map(containers, value.values()))
    return {id(value)}.union(*map(containers, value)) if isinstance(value, list) else set()
