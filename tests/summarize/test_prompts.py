from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.errors import BadSetting
from context_compactor.settings import Settings
from context_compactor.summarize.prompt import (
    SLOTS,
    built_in_prompt,
    check_prompt,
    effective_prompt,
    load_prompt,
    slots_of,
)


def test_every_prompt_that_ships_has_its_slots():
    for name, slots in SLOTS.items():
        assert slots.required <= slots_of(built_in_prompt(name).text) <= slots.required | slots.optional


def test_the_prompt_of_the_settings_takes_the_place_of_ours():
    prompt = load_prompt(Settings(compact_prompt="Be brief.\n{messages}"))
    assert prompt.fill(messages="hello") == "Be brief.\nhello"
    assert prompt.origin == "compact_prompt"


def test_a_prompt_is_read_from_its_file(tmp_path):
    path = tmp_path / "ask.md"
    path.write_text("CONVERSATION TO SUMMARIZE:\n{messages}\n", encoding="utf-8")
    assert "CONVERSATION TO SUMMARIZE" in load_prompt(Settings(compact_prompt_file=str(path))).text


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadSetting, match=r"nowhere\.md"):
        load_prompt(Settings(compact_prompt_file=str(tmp_path / "nowhere.md")))


def test_two_prompts_at_once_are_refused():
    with pytest.raises(BadSetting, match="both set"):
        load_prompt(Settings(compact_prompt="{messages}", compact_prompt_file="a.md"))


def test_an_unknown_slot_is_named():
    with pytest.raises(BadSetting, match=r"unknown slot \{mesages\}"):
        load_prompt(Settings(compact_prompt="{messages} {mesages}"))


def test_a_missing_slot_is_named():
    with pytest.raises(BadSetting, match=r"\{messages\} is missing"):
        load_prompt(Settings(compact_prompt="Summarize."))


def test_braces_that_are_no_slot_stay_as_they_are():
    prompt = check_prompt("summarize", 'Answer {"a": 1} and {{messages}}: {messages}')
    assert prompt.fill(messages="x") == 'Answer {"a": 1} and {messages}: x'


@given(st.text())
def test_what_is_filled_in_is_never_looked_into(text):
    prompt = check_prompt("summarize", "<{messages}>")
    assert prompt.fill(messages=text + "{focus}") == f"<{text}{{focus}}>"


@given(st.text(alphabet="{}abmesagfocu \n", max_size=40))
def test_any_prompt_is_used_or_refused_with_a_reason(text):
    try:
        prompt = load_prompt(Settings(compact_prompt=text))
    except BadSetting as error:
        assert "slot" in str(error)
    else:
        assert "material" in prompt.fill(messages="material", focus="", language="", tokens="", headings="")


def test_the_effective_prompt_can_be_shown_with_where_it_comes_from():
    shown = effective_prompt(Settings(compact_prompt="Be brief. {messages}"))
    assert "(compact_prompt)" in shown
    assert "Be brief. {messages}" in shown
    assert "{mark}" in shown
