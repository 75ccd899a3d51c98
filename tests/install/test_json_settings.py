"""Entries in JSON settings: everything else keeps every byte, on the way in and on the way out."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from context_compactor.agents.coding_agents import CLAUDE_CODE
from context_compactor.agents.install.commands import is_our_hook, is_our_server, is_our_status_line
from context_compactor.agents.install.settings_files import UNKNOWN, JsonSettings
from context_compactor.agents.install.targets import hook_groups, mcp_server, status_line
from context_compactor.agents.install.text_edits import BadSettingsText
from tests.install.odd_json import COMMAND, MARK, OURS, texts

ELSEWHERE = JsonSettings(
    hooks=hook_groups(CLAUDE_CODE, ("/new/compactor",)),
    server=mcp_server(CLAUDE_CODE, ("/new/compactor",)),
    status_line=status_line(("/new/compactor",)),
)


def installed(text: str, ours: JsonSettings = OURS) -> str:
    ours.check(text)
    return ours.with_ours(text, ours.shape_of(ours.without_ours(text, UNKNOWN)))


@given(texts())
def test_what_was_installed_can_be_taken_out_to_the_last_byte(text):
    assert OURS.without_ours(installed(text), OURS.shape_of(text)) == text


@given(texts())
def test_every_byte_that_was_there_is_still_there_in_its_order(text):
    after = iter(installed(text).replace(" ", "").replace("\t", "").replace("\r", "").replace("\n", ""))
    dense = text.replace(" ", "").replace("\t", "").replace("\r", "").replace("\n", "")
    assert all(letter in after for letter in dense)


@given(texts())
def test_an_install_adds_each_entry_once_and_changes_no_other(text):
    before, after = json.loads(text), json.loads(installed(text))
    for event, group in (OURS.hooks or {}).items():
        assert [each for each in after["hooks"][event] if each == group] == [group]
        assert after["hooks"][event][:-1] == before.get("hooks", {}).get(event, [])
    assert after["mcpServers"]["compactor"] == OURS.server
    assert after["statusLine"] == before.get("statusLine", OURS.status_line)
    ignored = {"hooks", "mcpServers", "statusLine"}
    assert {key: after[key] for key in after if key not in ignored} == {
        key: before[key] for key in before if key not in ignored
    }


@given(texts())
def test_a_second_install_changes_nothing(text):
    once = installed(text)
    assert installed(once) == once


@given(texts())
def test_an_install_from_another_place_updates_our_entries_where_they_stand(text):
    once = installed(text)
    again = ELSEWHERE.with_ours(once, OURS.shape_of(text))
    (path,) = COMMAND
    assert again == once.replace(f"'{path}'", "/new/compactor").replace(path, "/new/compactor")
    assert ELSEWHERE.without_ours(again, OURS.shape_of(text)) == text


@given(texts())
def test_what_the_user_edits_in_between_is_all_that_differs_after_an_uninstall(text):
    edited = installed(text).replace(MARK, "changed by hand")
    assert OURS.without_ours(edited, OURS.shape_of(text)) == text.replace(MARK, "changed by hand")


@given(texts())
def test_entries_that_others_add_behind_ours_stay(text):
    value = json.loads(installed(text))
    value["hooks"]["PreCompact"].append({"hooks": [{"type": "command", "command": "theirs"}]})
    value["mcpServers"]["late"] = {"command": "theirs"}
    value["added"] = [1, 2]
    rewritten = json.dumps(value, indent=2, ensure_ascii=False)
    after = json.loads(OURS.without_ours(rewritten, OURS.shape_of(text)))
    assert after["hooks"]["PreCompact"][-1] == {"hooks": [{"type": "command", "command": "theirs"}]}
    assert after["mcpServers"]["late"] == {"command": "theirs"}
    assert after["added"] == [1, 2]
    assert not list(our_entries(after))


@given(texts())
def test_a_file_that_its_agent_has_written_anew_loses_only_our_entries(text):
    rewritten = json.dumps(json.loads(installed(text)), indent=3, ensure_ascii=False)
    assert json.loads(OURS.without_ours(rewritten, OURS.shape_of(text))) == json.loads(text)


@given(texts())
def test_without_a_ledger_everything_of_others_is_kept_and_nothing_of_ours(text):
    value = json.loads(text)
    after = json.loads(OURS.without_ours(installed(text), UNKNOWN))
    assert not list(our_entries(after))
    empty = ({}, [])
    assert {key: after[key] for key in after if key not in ("hooks", "mcpServers")} == {
        key: value[key] for key in value if key not in ("hooks", "mcpServers")
    }
    assert {key: part for key, part in after.get("hooks", {}).items() if part not in empty} == {
        key: part for key, part in value.get("hooks", {}).items() if part not in empty
    }


@given(texts(), st.sampled_from(["hooks", "mcpServers"]))
def test_a_key_that_stands_twice_is_refused_with_its_line(text, key):
    value = json.loads(text)
    assume(key not in value)
    twice = f'{{\n"{key}": {{}},\n"{key}": {{}}' + ("," if value else "") + text.lstrip()[1:]
    with pytest.raises(BadSettingsText, match=r"line 3: .* twice \(lines 2 and 3\)"):
        installed(twice)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "hooks": {\n  // mine\n}}', "line 3: this is not JSON"),
        ('{"a": 1,}', "line 1: this is not JSON"),
        ('{\n"a": NaN}', "NaN is not JSON"),
        ("[]", "a JSON object"),
        ('{\n"hooks": []}', "line 2: 'hooks' must be an object"),
        ('{\n"hooks": null}', "line 2: 'hooks' must be an object"),
        ('{\n"hooks": {\n"Stop": {}}}', "line 3: 'hooks → Stop' must be a list"),
        ('{\r\n"mcpServers": 1}', "line 2: 'mcpServers' must be an object"),
        ('{\n"mcpServers": {\n"compactor": {"command": "tea"}}}', "line 3: another MCP server"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_settings_that_cannot_be_changed_safely_are_refused_with_the_line(text, said):
    with pytest.raises(BadSettingsText, match="Try: ") as refused:
        installed(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("blank", ["", "\n", "  \r\n"])
def test_a_blank_file_is_filled_and_becomes_blank_again(blank):
    after = installed(blank)
    assert json.loads(after)["mcpServers"]["compactor"] == OURS.server
    assert OURS.without_ours(after, OURS.shape_of(blank)) == blank


def test_the_style_of_a_file_is_kept_for_what_is_added():
    tabs = '{\r\n\t"model": "opus"\r\n}'
    after = JsonSettings(server=mcp_server(CLAUDE_CODE, ("/bin/compactor",))).with_ours(tabs, UNKNOWN)
    assert after == (
        '{\r\n\t"model": "opus",\r\n\t"mcpServers": {\r\n\t\t"compactor": {\r\n\t\t\t"type": "stdio",\r\n'
        '\t\t\t"command": "/bin/compactor",\r\n\t\t\t"args": [\r\n\t\t\t\t"mcp"\r\n\t\t\t]\r\n\t\t}\r\n\t}\r\n}'
    )
    dense = JsonSettings(server=mcp_server(CLAUDE_CODE, ("/bin/compactor",))).with_ours('{"a":1}', UNKNOWN)
    assert dense == '{"a":1,"mcpServers":{"compactor":{"type":"stdio","command":"/bin/compactor","args":["mcp"]}}}'


def test_a_number_of_any_length_is_kept_as_it_is_written():
    text = '{"n": ' + "9" * 10_000 + ', "e": 1e999, "z": -0.0}'
    assert text[:-1] in installed(text)


def test_our_own_hook_in_a_group_of_others_goes_and_the_group_stays():
    text = (
        '{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "/x/compactor hook stop"}, {"command": "b"}]}]}}'
    )
    after = OURS.without_ours(text, UNKNOWN)
    assert after == '{"hooks": {"Stop": [{"hooks": [{"command": "a"}, {"command": "b"}]}]}}'


def test_what_a_user_adds_to_our_server_stays_when_its_path_changes():
    text = '{"mcpServers": {"compactor": {"command": "/old/compactor", "args": ["mcp"], "env": {"A": "b"}}}}'
    assert json.loads(installed(text))["mcpServers"]["compactor"] == {**OURS.server, "env": {"A": "b"}}


def test_hooks_of_events_that_are_no_longer_wanted_go_with_an_install():
    text = '{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "compactor hook pre-tool-use"}]}]}}'
    assert "PreToolUse" not in installed(text)


def test_nothing_is_written_where_nothing_is_wanted():
    assert JsonSettings(hooks={}, server={}, status_line={}).with_ours("", UNKNOWN) == ""


def our_entries(value: dict):
    for groups in value.get("hooks", {}).values():
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("hooks"), list):
                yield from (hook for hook in group["hooks"] if is_our_hook(hook))
    if is_our_server(value.get("mcpServers", {}).get("compactor")):
        yield value["mcpServers"]["compactor"]
    if is_our_status_line(value.get("statusLine")):
        yield value["statusLine"]
